"""Whether the control plane may go from one version to another at all. Pure; asked before anything is changed.

The rules are those of the Kubernetes version skew policy: one minor at a time, in either direction; no kubelet newer
than an API server, and none more than three minors older. Kubelets that follow the control plane go down before it by
themselves: then newer ones are waited for (`control.kubelet.decide.down`), and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autarky.control.common.shapes import within
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
    return _of_kubelets(wanted, kubelets, follow=follow)


def kubelet_of(node: object) -> Version | None:
    """The version that a Node reports."""
    return parsed(within(node, "status", "nodeInfo", "kubeletVersion"))


def not_hosted(lacking: Sequence[str]) -> str:
    """Why not, where these components have no workload."""
    return f"{', '.join(lacking)} does not run from the API, and is not upgraded through it"


def _of_kubelets(wanted: Version, kubelets: Mapping[str, Version | None], *, follow: bool) -> str | None:
    known = {name: version for name, version in kubelets.items() if version is not None}
    newer = [name for name, version in sorted(known.items()) if minor_of(version) > minor_of(wanted)]
    if newer and not follow:
        return (
            f"the kubelet of {_some(newer)} is {known[newer[0]]}, and none may be newer than an API server (rule 4):"
            " bring it back first, with that version in the cluster file and `autarky up`"
        )
    older = [name for name, version in sorted(known.items()) if version.minor < wanted.minor - KUBELET_BEHIND]
    if older:
        how = "until it has followed: condition KubeletsCurrent of the ControlPlane" if follow else ""
        return (
            f"the kubelet of {_some(older)} is {known[older[0]]}, more than {KUBELET_BEHIND} minors older than {wanted}"
            f" (rule 4): {f'wait {how}' if how else 'bring it up first, with `autarky up`'}"
        )
    return None


def _minor(version: Version, by: int) -> str:
    return f"{version.major}.{version.minor + by}"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more nodes"
