"""Which version a control plane has whose ControlPlane object is gone: as its workloads say. Pure.

Contract: the API servers' version counts. It is the latest of all, on every way up and down; so where another component
has another version, somebody deleted the object in the middle of an upgrade, which nobody can go on with: what it was
to replace was only noted there. The same while anything emulates the minor before (`control.common.emulation`), unless
the cluster file has it do so. The way out is by hand, and every command line that is named is a step that an upgrade
would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.cluster_file.decide.running_version import Runs
from autarky.control.common.emulation import FORWARD, OPTION
from autarky.control.common.skew import image_version, repository_of
from autarky.model.components import API_SERVER


@dataclass(frozen=True, slots=True)
class Hosted:
    """The workload of a component. emulates: the minor that its command line names, and the file does not; or empty."""

    name: str
    kind: str
    image: str
    emulates: str = ""

    @property
    def workload(self) -> str:
        """As kubectl has it."""
        return f"{self.kind.lower()}/{self.name}"


def runs(hosted: Sequence[Hosted]) -> Runs | None:
    """None where the API servers are not hosted, or their image is of no version."""
    servers = next((one for one in hosted if one.name == API_SERVER), None)
    version = None if servers is None else image_version(servers.image)
    return None if servers is None or version is None else Runs(version, f"its {servers.kind} {servers.name}")


def unsettled(hosted: Sequence[Hosted]) -> tuple[str, str] | None:
    """(What is seen, what to do about it); None where all have one version. hosted: in the order of an upgrade."""
    found = runs(hosted)
    if found is None:
        return None
    others = [one for one in hosted if image_version(one.image) not in (None, found.version)]
    emulating = [one for one in hosted if one.emulates]
    if others and not emulating:
        said = ", ".join(f"{one.name} of {image_version(one.image)}" for one in others)
        steps = [f"`kubectl -n kube-system set image {_image(one, str(found.version))}`" for one in others]
        return f"{API_SERVER} is of {found.version}, {said}", f"run {', then '.join(steps)}"
    if emulating:  # first: what is of the minor that they emulate would be newer than what they serve as
        said = ", ".join(f"{one.name} emulates {one.emulates}" for one in emulating)
        edits = [f"`kubectl -n kube-system edit {one.workload}`" for one in emulating]
        return said, f"take {OPTION} and --{FORWARD} out of the command lines, with {', then '.join(edits)}"
    return None


def _image(one: Hosted, version: str) -> str:
    return f"{one.workload} {one.name}={repository_of(one.image)}:{version}"
