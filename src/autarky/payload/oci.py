"""Writing layers and OCI image archives, reproducibly: sorted names, no times, owner root.

An archive is an OCI image layout in one tar, with the annotation by which containerd names what it
imports. Layers are not compressed: they never cross a slow network here, and import fastest that way.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer blob. Uncompressed, so its digest is its diff id as well."""

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a layer: a file from disk, literal content, a link to another path, or a directory (none)."""

    name: str
    mode: int
    source: Path | None = None
    content: bytes | None = None
    link: str | None = None


def write_layer(target: Path, entries: Iterable[Entry]) -> None:
    """A layer of the given entries; missing parent directories are added with mode 0755."""
    by_name = {entry.name.strip("/"): entry for entry in entries}
    for name in list(by_name):
        for parent in Path(name).parents:
            if str(parent) != "." and str(parent) not in by_name:
                by_name[str(parent)] = Entry(str(parent), 0o755)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(by_name):
            _add_entry(archive, name, by_name[name])


def _add_entry(archive: tarfile.TarFile, name: str, entry: Entry) -> None:
    info = tarfile.TarInfo(name)
    info.mode = entry.mode
    if entry.source is not None:
        info.size = entry.source.stat().st_size
        with entry.source.open("rb") as file:
            archive.addfile(info, file)
    elif entry.content is not None:
        info.size = len(entry.content)
        archive.addfile(info, io.BytesIO(entry.content))
    elif entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        archive.addfile(info)
    else:
        info.type = tarfile.DIRTYPE
        archive.addfile(info)


def write_tree_layer(target: Path, tree: Path, *, below: Path | None = None, only: Sequence[str] = ()) -> None:
    """A layer with what `tree` has and `below` has not (or has differently)."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(tree.rglob("*")):
            name = str(path.relative_to(tree))
            if only and not any(f"/{name}" == wanted or wanted.startswith(f"/{name}/") for wanted in only):
                continue
            if below is None or not _same(path, below / name):
                _add_path(archive, path, name)


def _add_path(archive: tarfile.TarFile, path: Path, name: str) -> None:
    info = archive.gettarinfo(str(path), arcname=name)
    info.mtime = info.uid = info.gid = 0
    info.uname = info.gname = ""
    if info.islnk():  # a hard link to a file that may not be in this layer: store the content
        info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
    if info.isreg():
        with path.open("rb") as file:
            archive.addfile(info, file)
    else:
        archive.addfile(info)


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    if one.is_dir():
        return other.is_dir()
    return other.is_file() and one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()


_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What the image says of itself. `user` is left to the pods."""

    reference: str
    entrypoint: Sequence[str]
    command: Sequence[str] = ()
    environment: Sequence[str] = ()
    """Besides the PATH."""


def write_archive(target: Path, config: ImageConfig, layers: Sequence[Layer]) -> str:
    """The image as one archive; returns the digest of its manifest (with "sha256:")."""
    configuration = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(config.entrypoint),
                **({"Cmd": list(config.command)} if config.command else {}),
                "Env": [_PATH, *config.environment],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.sha256}" for layer in layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, configuration),
            "layers": [
                {"mediaType": _LAYER, "digest": f"sha256:{layer.sha256}", "size": layer.size} for layer in layers
            ],
        }
    )
    described = _descriptor(_MANIFEST, manifest)
    described["annotations"] = {
        "io.containerd.image.name": config.reference,
        "org.opencontainers.image.ref.name": config.reference.rpartition(":")[2],
    }
    described["platform"] = {"architecture": "amd64", "os": "linux"}
    index = _json(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [described]}
    )
    entries = [
        Entry("oci-layout", 0o644, content=_json({"imageLayoutVersion": "1.0.0"})),
        Entry("index.json", 0o644, content=index),
        *(Entry(f"blobs/sha256/{_sha256(blob)}", 0o644, content=blob) for blob in (configuration, manifest)),
        *(Entry(f"blobs/sha256/{layer.sha256}", 0o644, source=layer.path) for layer in layers),
    ]
    write_layer(target, entries)
    return str(described["digest"])


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{_sha256(blob)}", "size": len(blob)}


def _sha256(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
