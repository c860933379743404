"""What has to be built before a case can run, how long that takes about, and building it.

A case whose components are not in the store costs their build; the first that needs them pays.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from autarky import places
from autarky.model.versions import Version
from autarky.payload import Store, load_release
from autarky.payload.artefacts import stored_binary
from autarky.payload.release import wanted_binaries
from cases.listing import Need
from cases.tree import ROOT

_COMPONENT_SECONDS = {
    "kubernetes": 300,
    "etcd": 60,
    "containerd": 90,
    "runc": 20,
    "versitygw": 150,
    "kwok": 100,
    "coredns": 210,
    "flannel": 120,
    "cni-plugins": 15,
    "kubernetes-tests": 420,
}
"""On two cores, with nothing in Go's caches."""
_UNKNOWN_SECONDS = 300
_MACHINE = "virtual machine"
_MACHINE_SECONDS = 120
"""Its packages, and its root file system; about half of it where the archive is near."""


def missing_builds(needs: Iterable[Need]) -> dict[str, float]:
    """What of it is not there yet, by name → about how many seconds its build takes."""
    found: dict[str, float] = {}
    for need in needs:
        if need.machine and not _machine_is_there():
            found[_MACHINE] = _MACHINE_SECONDS
        if need.version is not None:
            found |= _missing_components(need.version, need.group)
    return found


def _missing_components(version: str, group: str) -> dict[str, float]:
    store, release = Store(), load_release(Version.parse(version))
    return {
        f"{component.name} {component.version}": _COMPONENT_SECONDS.get(component.name, _UNKNOWN_SECONDS)
        for component, binary in wanted_binaries(release, {"cluster", group})
        if stored_binary(store, component, binary) is None
    }


def _machine_is_there() -> bool:
    """Its root file system; one that is being made, and may never be done, has a name with a dot before it."""
    roots = places.cache_dir() / "vm-root"
    return roots.is_dir() and any(root.is_dir() and not root.name.startswith(".") for root in roots.iterdir())


def build(needs: Iterable[Need]) -> None:
    """Have the components in the store, and the programs for the virtual machine; nothing to do when they are there.
    The tests make that machine themselves. CalledProcessError where something cannot be had."""
    needs = list(needs)
    if any(need.machine for need in needs):
        subprocess.run([ROOT / "run", "need-vm"], stdin=subprocess.DEVNULL, check=True)
    for version, group in sorted({(need.version, need.group) for need in needs if need.version is not None}):
        argv = [sys.executable, "-m", "autarky", "payload", "get", version]
        argv += [f"--group={one}" for one in sorted({"cluster", group})]
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
