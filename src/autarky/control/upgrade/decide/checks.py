"""The checks that are made before the first change of an upgrade of the hosted control plane. Pure.

The operator makes them when the ControlPlane's spec asks for another version, and `autarky upgrade check` on the
administrator's machine. They are about the cluster as it is: which versions can be reached from which is
`path.refusal`'s.

Contract: all findings at once, errors first, each with what to do about it. A source that could not be looked at is a
finding, an error where a safe upgrade depends on it: unknown is not well. While an error is there, nothing is changed.
They are for the first change only: an upgrade under way makes some of them fail (RolloutsSettled, `standbys`), and one
that is given up must be able to go back whatever they say. Back to the version from before, when an upgrade is
complete, few of them count: `on_the_way_back`.

Danger: what a finding is based on may come late (images are reported up to a minute after they were pushed). Whoever
refuses an upgrade therefore looks again every few seconds, and refuses by `refusing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from autarky.control.common.shapes import plain
from autarky.control.upgrade.decide import (
    checks_of_apis,
    checks_of_emulation,
    checks_of_nodes,
    checks_of_plane,
    checks_of_webhooks,
    commands,
)
from autarky.control.upgrade.decide.observed import PASSES, Finding, Requested, Seen, Source, Stored

__all__ = ["Finding", "Requested", "Seen", "Source", "Stored", "findings", "on_the_way_back", "refusing"]

_CHECKS = {
    Source.PLANE: "health",
    Source.NODES: "health",
    Source.CONTROL_NODES: "health",
    Source.WORKLOADS: "images",
    Source.FILES: "configurations",
    Source.WEBHOOKS: "webhooks",
    Source.BUDGETS: "budgets",
    Source.METRICS: "apis",
    Source.API_SERVICES: "apiservices",
}
"""Source → the name of the check that cannot be made without it."""
_STOP_A_STEP = frozenset({"commands", "configurations", "standbys", "images", "webhooks"})
_ONLY_WARN = frozenset({Source.BUDGETS, Source.API_SERVICES})
"""Nothing that they say prevents an upgrade."""


def findings(seen: Seen) -> list[Finding]:
    """Errors first; otherwise in the order of the checks."""
    found = [
        *_unseen(seen),
        *commands.findings(seen),
        *checks_of_emulation.findings(seen),
        *checks_of_nodes.standbys(seen),
        *checks_of_plane.health(seen),
        *checks_of_nodes.readiness(seen),
        *checks_of_nodes.forgotten(seen),
        *checks_of_plane.certificates(seen),
        *checks_of_nodes.disk(seen),
        *checks_of_nodes.images(seen),
        *checks_of_nodes.kubelet_images(seen),
        *checks_of_webhooks.webhooks(seen),
        *checks_of_plane.backup(seen),
        *checks_of_apis.budgets(seen),
        *checks_of_apis.apis(seen),
        *checks_of_apis.api_services(seen),
    ]
    return sorted(found, key=lambda one: one.warning)


def on_the_way_back(found: Iterable[Finding]) -> list[Finding]:
    """Those that count where the version from before is wanted again: what would make its steps fail. A cluster that is
    not well is a reason to go back."""
    return [one if one.name in _STOP_A_STEP else replace(one, warning=True) for one in found]


def refusing(found: Iterable[Finding], seconds: float) -> list[Finding]:
    """All errors, once one of them counts. seconds: for how long there has been an error without a break. Empty while
    there is none, or none that has used up its patience: then look again before anything is refused, or changed."""
    errors = [one for one in found if not one.warning]
    return errors if any(one.patience <= seconds for one in errors) else []


def _unseen(seen: Seen) -> Iterator[Finding]:
    for source, why in sorted(seen.unseen.items()):
        yield Finding(
            _CHECKS[source],
            f"{source} could not be looked at: {plain(why)}",
            "look again; `autarky doctor` says what is wrong with the API; a right that the operator lacks comes with"
            " `autarky up`",
            warning=source in _ONLY_WARN,
            patience=PASSES,
        )
