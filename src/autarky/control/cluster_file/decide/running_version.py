"""Which version of Kubernetes a cluster runs, as reported by its API and its hosts. Pure.

Contract: the API's report takes precedence over the hosts' markers, and those over the versions on the disks of hosts
whose marker is of a release that recorded none. There the lowest version of all counts: a kubelet may have been
switched to a version that was refused afterwards, and an API server set to a newer image by hand, but nothing ever made
either older than the cluster (rule 4: a kubelet is never newer than an API server).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autarky.model.versions import Version


@dataclass(frozen=True, slots=True)
class Runs:
    """The version, and who says so: "its ControlPlane object", "host n1"."""

    version: Version
    source: str


def by_the_api(version: str | None) -> Runs | None:
    """`version`: what was applied last to the ControlPlane object; None where that is not known."""
    found = _read(version)
    return None if found is None else Runs(found, "its ControlPlane object")


def by_markers(markers: Mapping[str, str | None]) -> Runs | None:
    """Host → the version in its marker, None in one of an older release. None where no marker has one."""
    return _lowest({host: [text] for host, text in markers.items()})


def by_disks(disks: Mapping[str, tuple[str | None, ...]]) -> Runs | None:
    """Host → the versions found on its disk. None where there are none."""
    return _lowest(disks)


def _lowest(said: Mapping[str, list[str | None] | tuple[str | None, ...]]) -> Runs | None:
    found = [(version, host) for host, texts in said.items() for text in texts if (version := _read(text)) is not None]
    if not found:
        return None
    version, host = min(found)
    return Runs(version, f"host {host}")


def _read(text: str | None) -> Version | None:
    try:
        return None if text is None else Version.parse(text)
    except ValueError:
        return None
