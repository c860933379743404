"""The upper layers of the agent image: Python dependencies, and autarky itself.

Both are for Debian's Python, whatever runs autarky here: dependencies come from a list that is locked
with hashes for that version, never from the environment that runs this; byte code is by that Python.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import autarky
from autarky.payload.agent_content import dependencies_lock, package_sources
from autarky.payload.debian import BYTE_CODE, below, compile_python, debian_layer, unpack
from autarky.payload.disk import full_disk_explained
from autarky.payload.layers import keep_layer, loose_layer, stored_layer
from autarky.payload.oci import Layer, write_tree_layer
from autarky.payload.programs import in_thread, pip_install
from autarky.payload.release import Release
from autarky.payload.store import Store
from autarky.ports import Progress

SITE_PACKAGES = "usr/lib/python3/dist-packages"
_WHEELS = (
    "--implementation=cp",
    "--python-version=3.11",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux2014_x86_64",
)
"""Of Debian bookworm's Python."""
ENVIRONMENT = (f"PYTHONOPTIMIZE={BYTE_CODE}",)
"""Of the image: without it, Python would look for byte code of another level, and compile everything at each start."""
_FORMAT = 2


def dependencies_key(release: Release) -> str:
    recipe = f"{release.suite} {_WHEELS} {ENVIRONMENT} {_FORMAT}\n".encode() + dependencies_lock().read_bytes()
    return f"layer-agent-dependencies-{hashlib.sha256(recipe).hexdigest()[:24]}"


async def dependencies_layer(store: Store, release: Release, progress: Progress) -> Layer:
    """The agents' dependencies, from the store or from the locked list."""
    key = dependencies_key(release)
    found = stored_layer(store, key)
    if found is not None:
        return found
    with store.scratch("agent-dependencies") as scratch, full_disk_explained(store.root):
        packages = scratch / "root" / SITE_PACKAGES
        await pip_install(dependencies_lock(), packages, scratch=scratch, options=_WHEELS)
        shutil.rmtree(packages / "bin", ignore_errors=True)  # scripts for the Python that runs pip
        await _compile(store, release, packages, scratch, progress)
        await in_thread(write_tree_layer, scratch / "layer.tar", scratch / "root")
        built = keep_layer(store, key, scratch / "layer.tar")
    progress.note(f"built the layer of the agents' dependencies: {built.size / 1e6:.0f} MB")
    return built


async def autarky_layer(store: Store, release: Release, scratch: Path, progress: Progress) -> Layer:
    """The running package itself, as a layer in the scratch directory."""
    package = Path(autarky.__file__).parent
    modules = scratch / "root" / SITE_PACKAGES
    for path in package_sources():
        target = modules / "autarky" / path.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o644)
    await _compile(store, release, modules, scratch, progress)
    await in_thread(write_tree_layer, scratch / "autarky.tar", scratch / "root")
    return loose_layer(scratch / "autarky.tar")


async def _compile(store: Store, release: Release, modules: Path, scratch: Path, progress: Progress) -> None:
    lower = [await debian_layer(store, release, release.layer(name), progress) for name in below(release, "python")]
    tree = await unpack([layer.path for layer in lower], scratch / "python")
    await compile_python(tree, modules, installed=f"/{SITE_PACKAGES}")
