"""Whether the control plane may go from one version to another at all. Pure; asked before anything is changed.

The rules are those of the Kubernetes version skew policy: one minor at a time, in either direction; no kubelet newer
than an API server, and none more than three minors older. Kubelets that follow the control plane go down before it by
themselves: then newer ones are waited for (`control.kubelet.decide.down`), and nothing is refused. Nor is it for a
kubelet where the step changes nothing for it: within a minor, and for one that is too old, on the way down. What a
worker's kubelet is, only its own word says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autarky.control.common.shapes import some, within
from autarky.control.common.skew import minor_of
from autarky.control.upgrade.decide.reported import parsed
from autarky.model.versions import Version

KUBELET_BEHIND = 3


def refusal(
    runs: Version, wanted: Version, kubelets: Mapping[str, Version | None], *, follow: bool = False
) -> str | None:
    """Why not, and what to do instead. kubelets: node → version, None where its node reports none. follow: whether they
    follow the control plane."""
    if wanted.major != runs.major:
        return f"from {runs} to {wanted} there is no way"
    if wanted.minor > runs.minor + 1:
        return f"minors are not skipped (rule 4): from {runs} go to a {_minor(runs, 1)} first, then to {wanted}"
    if wanted.minor < runs.minor - 1:
        return f"minors are not skipped (rule 4): from {runs} go back to a {_minor(runs, -1)} first"
    known = {name: version for name, version in kubelets.items() if version is not None}
    if wanted.minor == runs.minor:
        return None
    too_old = _of_older(wanted, known, follow=follow) if wanted > runs else None
    return _of_newer(wanted, known, follow=follow) or too_old


def kubelet_of(node: object) -> Version | None:
    """The version that a Node reports."""
    return parsed(within(node, "status", "nodeInfo", "kubeletVersion"))


def not_hosted(lacking: Sequence[str]) -> str:
    """Why not, where these components have no workload."""
    return f"{', '.join(lacking)} does not run from the API, and is not upgraded through it"


def _of_newer(wanted: Version, kubelets: Mapping[str, Version], *, follow: bool) -> str | None:
    newer = {name: version for name, version in kubelets.items() if minor_of(version) > minor_of(wanted)}
    if not newer or follow:
        return None
    return (
        f"{_named(newer)}, and none may be newer than an API server (rule 4): bring it back first, with that version in"
        f" the cluster file and `autarky up`; {_or_removed(newer)}"
    )


def _of_older(wanted: Version, kubelets: Mapping[str, Version], *, follow: bool) -> str | None:
    older = {name: version for name, version in kubelets.items() if version.minor < wanted.minor - KUBELET_BEHIND}
    if not older:
        return None
    follows = "wait until it has followed: condition KubeletsCurrent of the ControlPlane"
    how = follows if follow else "bring it up first, with `autarky up`"
    return (
        f"{_named(older)}, more than {KUBELET_BEHIND} minors older than {wanted} (rule 4): {how}; {_or_removed(older)}"
    )


def _minor(version: Version, by: int) -> str:
    return f"{version.major}.{version.minor + by}"


def _named(kubelets: Mapping[str, Version]) -> str:
    """At least one."""
    lowest, highest = min(kubelets.values()), max(kubelets.values())
    versions = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    return f"the kubelet of {some(kubelets)} is {versions}"


def _or_removed(kubelets: Mapping[str, Version]) -> str:
    """At least one."""
    return f"one that does not come there, or does not tell the truth: `autarky node remove {min(kubelets)}`"
