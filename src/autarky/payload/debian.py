"""Layers of Debian packages.

Packages are extracted, not installed: no maintainer script runs, no package database is kept, and a layer
holds only what its packages add to the layers below. What maintainer scripts would have made and is needed
(alternatives, the bundle of CA certificates, byte code) is made here.

The packages come from this machine's own apt sources, and are of the suite that the release pins.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from autarky.payload.disk import full_disk_explained, remove_tree
from autarky.payload.layers import keep_layer, stored_layer
from autarky.payload.oci import Layer, write_tree_layer
from autarky.payload.programs import in_thread, run_tool
from autarky.payload.release import DebianLayer, Release
from autarky.payload.store import Store
from autarky.ports import Progress

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
    "usr/share/ca-certificates",
    "usr/share/initramfs-tools",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/python3.11/ensurepip",
    "usr/lib/python3.11/lib2to3",
    "usr/lib/python3.11/pydoc_data",
    "usr/lib/python3.11/turtle.py",
    "usr/bin/dpkg",
    "usr/bin/dpkg-deb",
    "usr/bin/dpkg-divert",
    "usr/bin/dpkg-query",
    "usr/bin/dpkg-split",
    "usr/bin/openssl",
    "usr/sbin/update-ca-certificates",
    "lib/systemd",
    "usr/lib/systemd",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log",
    "etc/apt",
    "proc",
    "sys",
    "run",
)
_IPTABLES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
_ALTERNATIVES = {f"usr/sbin/{name}": "xtables-nft-multi" for name in _IPTABLES}
_CERTIFICATES = "usr/share/ca-certificates/mozilla"
_CERTIFICATE_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
}
_LOADER = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
_LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
BYTE_CODE = 2
"""Python's level of optimization at which an image's Python runs: docstrings, about 2.4 MB of an agent, are not loaded.
Assertions go with them, so nothing may depend on one."""
_FORMAT = 5
"""Version of the layer format: raise it when the same packages give a different layer."""


def below(release: Release, name: str) -> list[str]:
    """The layers an image with that layer on top consists of, lowest first."""
    return [*release.layer(name).below, name]


def debian_key(release: Release, layer: DebianLayer) -> str:
    chain = [release.layer(name).packages for name in layer.below]
    compiled = [*layer.compile, BYTE_CODE] if layer.compile else []
    recipe = [chain, layer.packages, layer.only, compiled, release.suite, _STRIPPED, _ALTERNATIVES, _FORMAT]
    return f"layer-{layer.name}-{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:24]}"


async def debian_layer(store: Store, release: Release, layer: DebianLayer, progress: Progress) -> Layer:
    """The layer from the store, else made now; those below it come first."""
    key = debian_key(release, layer)
    found = stored_layer(store, key)
    if found is not None:
        return found
    lower = [await debian_layer(store, release, release.layer(name), progress) for name in layer.below]
    lower_packages = [package for name in layer.below for package in release.layer(name).packages]
    with store.scratch(f"debian-{layer.name}") as scratch, full_disk_explained(store.root):
        base = await unpack([one.path for one in lower], scratch / "base")
        complete = await _extract(release.suite, [*lower_packages, *layer.packages], scratch)
        for directory in layer.compile:
            await compile_python(complete, complete / directory.lstrip("/"), installed=directory)
        only = await _with_libraries(complete, layer.only)
        await in_thread(write_tree_layer, scratch / "layer.tar", complete, below=base, only=only)
        built = keep_layer(store, key, scratch / "layer.tar")
    progress.note(f"built the layer {layer.name}: {built.size / 1e6:.1f} MB from {', '.join(layer.packages)}")
    return built


async def unpack(archives: Iterable[Path], target: Path) -> Path:
    """Unpack archives over each other, as the user that runs this."""
    target.mkdir()
    for archive in archives:
        argv = ["tar", "--extract", "--no-same-owner", "--preserve-permissions", "--exclude=./dev"]
        await run_tool([*argv, "--file", str(archive), "--directory", str(target)])
    return target


async def _extract(suite: str, packages: Sequence[str], scratch: Path) -> Path:
    """The packages' files and what maintainer scripts would have made of them."""
    archive = scratch / "complete.tar"
    argv = ["mmdebstrap", "--quiet", "--variant=extract", "--format=tar", f"--include={','.join(packages)}"]
    # As another user, mmdebstrap works in a user namespace that cannot enter our directories.
    environment = {"TMPDIR": str(scratch)} if os.geteuid() == 0 else {}
    await run_tool([*argv, suite, str(archive)], env=environment)
    tree = await unpack([archive], scratch / "complete")
    _bundle_certificates(tree)
    _strip(tree)
    for name, program in _ALTERNATIVES.items():
        if (tree / "usr/sbin" / program).exists():
            (tree / name).unlink(missing_ok=True)
            (tree / name).symlink_to(program)
    for name, content in _ACCOUNTS.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(content)
    (tree / "tmp").mkdir(exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    return tree


def _bundle_certificates(tree: Path) -> None:
    certificates = sorted((tree / _CERTIFICATES).glob("*.crt"))
    if certificates:
        bundle = tree / _CERTIFICATE_BUNDLE
        bundle.parent.mkdir(parents=True, exist_ok=True)
        bundle.write_bytes(b"".join(path.read_bytes() for path in certificates))


def _strip(tree: Path) -> None:
    for path in (tree / name for name in _STRIPPED):
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


# --- running programs of a tree, as any user and on any system ------------------------------------------


def _loader(tree: Path, *options: str) -> list[str]:
    """How to start the tree's dynamic linker, so that it finds the tree's libraries and no others."""
    libraries = ":".join(str(tree / directory) for directory in _LIBRARIES)
    return [str(tree / _LOADER), *options, "--inhibit-cache", "--library-path", libraries]


async def _with_libraries(tree: Path, files: Sequence[str]) -> list[str]:
    """The files, and the shared libraries that the programs among them need."""
    found = set(files)
    for name in files:
        if not _is_dynamic(tree / name.lstrip("/")):
            continue
        lines: list[str] = []
        await run_tool([*_loader(tree, "--list"), str(tree / name.lstrip("/"))], on_line=lines.append)
        for path in (tree / word for line in lines for word in line.split() if word.startswith(str(tree))):
            found |= {f"/{link.relative_to(tree)}" for link in _link_chain(tree, path)}
    return sorted(found)


def _is_dynamic(path: Path) -> bool:
    """Whether the file names a dynamic linker, which stands near its beginning."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return Path(_LOADER).name.encode() in file.read(4096)


def _link_chain(tree: Path, path: Path) -> list[Path]:
    """The path and, where it is a link, what it leads to within the tree."""
    chain = [path]
    while chain[-1].is_symlink():
        target = chain[-1].readlink()
        chain.append(tree / str(target).lstrip("/") if target.is_absolute() else chain[-1].parent / target)
    return chain


async def compile_python(tree: Path, directory: Path, *, installed: str) -> None:
    """Byte code by the tree's own Python, that needs no check of times: it starts faster than source.

    `installed` is where the directory will lie, which is what tracebacks show.
    """
    python = [*_loader(tree), str(tree / "usr/bin/python3.11"), "-S", "-m", "compileall"]
    options = ["-q", "-o", str(BYTE_CODE), "-s", str(directory), "-p", installed]
    options += ["--invalidation-mode", "unchecked-hash"]
    await run_tool([*python, *options, str(directory)], env={"PYTHONHOME": str(tree / "usr"), "PYTHONHASHSEED": "0"})
