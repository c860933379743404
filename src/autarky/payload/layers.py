"""Layers that are no single binary: Debian packages, Python dependencies, autarky itself.

Debian packages are extracted, not installed: no maintainer script runs, no package database is kept, and
a layer holds only what its packages add to the layers below.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import py_compile
import shutil
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import autarky
from autarky.errors import UserError
from autarky.payload.oci import Entry, Layer, write_layer, write_tree_layer
from autarky.payload.programs import run_tool
from autarky.payload.release import DebianLayer, Release
from autarky.payload.store import Store, full_disk_explained, remove_tree
from autarky.ports import Progress

SITE_PACKAGES = "usr/lib/python3/dist-packages"
AGENT_PYTHON = "3.11"
"""Debian bookworm's."""
_STRIPPED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/perl5",
    "usr/share/common-licenses",
    "usr/lib/x86_64-linux-gnu/gconv",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log",
    "etc/apt",
    "dev",
    "proc",
    "sys",
    "run",
    "usr/share/initramfs-tools",
    "lib/systemd",
    "usr/lib/systemd",
)
_IPTABLES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
# What maintainer scripts would have linked.
_ALTERNATIVES = {f"usr/sbin/{name}": "xtables-nft-multi" for name in _IPTABLES}
STATIC_FILES = (
    Entry(
        "etc/passwd", 0o644, content=b"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n"
    ),
    Entry("etc/group", 0o644, content=b"root:x:0:\nnonroot:x:65532:\n"),
    Entry("tmp", 0o1777),
)


def stored_layer(store: Store, key: str) -> Layer | None:
    """The layer recorded under the key, if it is there and whole."""
    record = store.record(key)
    if record is None or not store.has(record["sha256"]):
        return None
    return Layer(store.blob_path(record["sha256"]), record["sha256"], record["size"])


def _keep(store: Store, key: str, built: Path) -> Layer:
    digest, size = store.add(built)
    store.write_record(key, {"sha256": digest, "size": size, "name": key})
    return Layer(store.blob_path(digest), digest, size)


def debian_key(release: Release, layer: DebianLayer) -> str:
    chain = [[release.layer(name).packages for name in layer.below], layer.packages, layer.only, release.suite]
    recipe = json.dumps([chain, _STRIPPED, _ALTERNATIVES, 2])
    return f"layer-{layer.name}-{hashlib.sha256(recipe.encode()).hexdigest()[:24]}"


async def debian_layer(store: Store, release: Release, layer: DebianLayer, progress: Progress) -> Layer:
    """The layer from the store, else extracted now."""
    key = debian_key(release, layer)
    found = stored_layer(store, key)
    if found is not None:
        return found
    if shutil.which("mmdebstrap") is None:
        raise UserError("mmdebstrap is needed to build image layers", fix="apt-get install mmdebstrap")
    with store.scratch(f"debian-{layer.name}") as scratch:
        below = [package for name in layer.below for package in release.layer(name).packages]
        whole = await _extract(release.suite, [*below, *layer.packages], scratch / "whole")
        base = await _extract(release.suite, below, scratch / "base") if below else None
        target = scratch / "layer.tar"
        with full_disk_explained(store.root):
            write_tree_layer(target, whole, below=base, only=layer.only)
        built = _keep(store, key, target)
    progress.note(f"built the layer {layer.name}: {built.size / 1e6:.0f} MB from {', '.join(layer.packages)}")
    return built


async def _extract(suite: str, packages: Sequence[str], target: Path) -> Path:
    argv = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(packages)}", suite, str(target)]
    await run_tool(argv)
    for name in _STRIPPED:
        remove_tree(target / name)
    for name, program in _ALTERNATIVES.items():
        if (target / "usr/sbin" / program).exists():
            (target / name).unlink(missing_ok=True)
            (target / name).symlink_to(program)
    (target / "etc").mkdir(exist_ok=True)
    for entry in STATIC_FILES:
        if entry.content is not None:
            (target / entry.name).write_bytes(entry.content)
    (target / "tmp").mkdir(exist_ok=True)
    (target / "tmp").chmod(0o1777)
    return target


async def binary_layer(store: Store, names: Sequence[str], blobs: Sequence[str], *, static: bool) -> Layer:
    """Binaries under /usr/local/bin; with the few files that a static image needs besides."""
    recipe = json.dumps([list(names), list(blobs), static, 1])
    key = f"layer-bin-{'-'.join(names)}-{hashlib.sha256(recipe.encode()).hexdigest()[:24]}"
    found = stored_layer(store, key)
    if found is not None:
        return found
    entries = [Entry(f"usr/local/bin/{n}", 0o755, source=store.blob_path(b)) for n, b in zip(names, blobs, strict=True)]
    with store.scratch(f"layer-{'-'.join(names)}") as scratch, full_disk_explained(store.root):
        write_layer(scratch / "layer.tar", [*(STATIC_FILES if static else ()), *entries])
        return _keep(store, key, scratch / "layer.tar")


def _agent_lock() -> Path:
    return Path(str(resources.files("autarky.payload") / "requirements" / "agent.lock"))


def _dependencies_key() -> str:
    return f"layer-agent-dependencies-{hashlib.sha256(_agent_lock().read_bytes()).hexdigest()[:24]}"


async def python_dependencies_layer(store: Store, progress: Progress) -> Layer:
    """The agents' dependencies for Debian's Python, from the hash-locked list; never from a running venv."""
    key = _dependencies_key()
    found = stored_layer(store, key)
    if found is not None:
        return found
    with store.scratch("agent-dependencies") as scratch:
        target = scratch / "root" / SITE_PACKAGES
        platforms = [
            f"--platform={p}" for p in ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
        ]
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        argv += ["--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={AGENT_PYTHON}"]
        await run_tool([*argv, *platforms, "--target", str(target), "-r", str(_agent_lock())])
        _compile(target)
        write_tree_layer(scratch / "layer.tar", scratch / "root")
        built = _keep(store, key, scratch / "layer.tar")
    progress.note(f"built the layer of the agents' dependencies: {built.size / 1e6:.0f} MB")
    return built


def agent_keys() -> list[str]:
    """What the agent image depends on besides Debian: its locked dependencies and the running package."""
    return [_dependencies_key(), _autarky_key(package_sources())]


def package_sources() -> list[Path]:
    """The Python files of the running package."""
    package = Path(autarky.__file__).parent
    return sorted(path for path in package.rglob("*.py") if "__pycache__" not in path.parts)


def _autarky_key(sources: Sequence[Path]) -> str:
    package = Path(autarky.__file__).parent
    digest = hashlib.sha256()
    for path in sources:
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return f"layer-autarky-{digest.hexdigest()[:24]}"


async def autarky_layer(store: Store) -> Layer:
    """The running package itself."""
    package = Path(autarky.__file__).parent
    sources = package_sources()
    key = _autarky_key(sources)
    found = stored_layer(store, key)
    if found is not None:
        return found
    with store.scratch("autarky-layer") as scratch:
        root = scratch / "root" / SITE_PACKAGES / "autarky"
        for path in sources:
            target = root / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        _compile(root)
        write_tree_layer(scratch / "layer.tar", scratch / "root")
        return _keep(store, key, scratch / "layer.tar")


def _compile(directory: Path) -> None:
    """Byte code that needs no check of times: it starts faster and is the same in every build. Only when
    this Python's byte code is the agent's; else the agent compiles at its first start, in memory."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != AGENT_PYTHON:
        return
    compileall.compile_dir(
        directory,
        quiet=2,
        stripdir=str(directory),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        workers=os.cpu_count() or 1,
    )
