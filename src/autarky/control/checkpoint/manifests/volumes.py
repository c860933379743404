"""Volumes of a hosted pod as volumes of a static pod, and the files that they need on the node's disk.

    Secret, ConfigMap      → files, and a hostPath of their directory; an emptyDir where there are no files
    projected              → the same; tokens are left out, downward API items become files where possible
    hostPath, emptyDir …   → unchanged
    anything of the API    → refused

Only root can read the files and their directories (0600 and 0700): a hostPath has no fsGroup, so another user could
read them only if everybody could. Standbys therefore run as root, which owns the files, and keep all other
restrictions: see `containers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from autarky import places
from autarky.control.checkpoint.manifests.references import Contents, Kind, Reference
from autarky.control.checkpoint.manifests.refusal import Rule, refused
from autarky.render import pods
from autarky.render.values import Object

FOREIGN_STORAGE: Final = frozenset({"hostPath", "nfs", "iscsi", "fc"})
"""Storage whose files have owners of their own; the hosted pod may write there as its own user."""
KEPT: Final = FOREIGN_STORAGE | {"emptyDir", "downwardAPI", "image"}
_OF_THE_PODS_IDENTITY = ("metadata.labels['", "metadata.annotations['")


def is_foreign(volume: Object) -> bool:
    """Whether it is storage whose files have owners of their own. The node's leaf certificates belong to root."""
    path = str((volume.get("hostPath") or {}).get("path", ""))
    return bool(FOREIGN_STORAGE & volume.keys()) and not path.startswith(f"{places.LEAVES}/")


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """One file under the revision's `files` directory."""

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class Translated:
    """One volume of the standby. `read_only`: its files are part of the revision, which must not be written."""

    volume: Object
    files: tuple[VolumeFile, ...] = ()
    read_only: bool = False


def translated(volume: Object, pod: Object, contents: Contents, directory: str) -> Translated:
    """`directory` is where the revision's files will be. Refuses what a static pod cannot have."""
    name = volume["name"]
    where = f"spec.volumes[{name}]"
    kind = _kind(volume, where)
    if kind == "secret":
        return _as_files(name, directory, list(_files_of("Secret", volume[kind], contents, 0o644, where)))
    if kind == "configMap":
        return _as_files(name, directory, list(_files_of("ConfigMap", volume[kind], contents, 0o644, where)))
    if kind == "projected":
        return _projected(volume, pod, contents, directory, where)
    return Translated({"name": name, kind: volume.get(kind) or {}})


def _kind(volume: Object, where: str) -> str:
    kinds = [key for key in volume if key != "name"]
    kind = kinds[0] if kinds else "emptyDir"
    if kind not in KEPT | {"secret", "configMap", "projected"}:
        fix = "use a hostPath, emptyDir, Secret or ConfigMap volume"
        raise refused(Rule.SELF_CONTAINED, f"{where}.{kind}", "a static pod cannot have such a volume", fix)
    if "secretRef" in (volume.get(kind) or {}):
        fix = "use a volume that needs no Secret of its own"
        raise refused(Rule.SELF_CONTAINED, f"{where}.{kind}.secretRef", "a static pod cannot refer to a Secret", fix)
    return kind


def _as_files(name: str, directory: str, files: list[VolumeFile]) -> Translated:
    """Later files win, as they do in a projected volume."""
    if not files:
        return Translated({"name": name, "emptyDir": {}}, read_only=True)
    by_path = {f"{name}/{file.path}": VolumeFile(f"{name}/{file.path}", file.content, file.mode) for file in files}
    return Translated(pods.host_volume(name, f"{directory}/{name}", "Directory"), tuple(by_path.values()), True)


def _files_of(kind: Kind, source: Object, contents: Contents, default_mode: int, where: str) -> Iterator[VolumeFile]:
    """The files of one Secret or ConfigMap: its keys, or those that `items` choose."""
    name = source["secretName"] if "secretName" in source else source["name"]
    reference = Reference(kind, name, bool(source.get("optional")))
    data = contents.data(reference, where)
    if data is None:
        return
    default = source.get("defaultMode", default_mode)
    items = source.get("items") or [{"key": key, "path": key} for key in sorted(data)]
    for item in items:
        if item["key"] in data:
            path = _inside(item["path"], where)
            yield VolumeFile(path, data[item["key"]], _mode(item.get("mode", default)))
        elif not reference.optional:
            what = f"the {kind} {reference.name} has no key {item['key']}"
            raise refused(Rule.COMPLETE, f"{where}.items", what, "add the key, or remove the item")


def _mode(mode: int) -> int:
    """For root only; executable where it was executable for anybody."""
    return 0o700 if mode & 0o111 else 0o600


def _inside(path: str, where: str) -> str:
    """The API server checks this too; but a path outside the revision would be written as root."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise refused(Rule.COMPLETE, f"{where}.items", "a path leaves its volume", "use a path without ..")
    return str(parts)


# --- projected volumes -----------------------------------------------------------------------------


def _projected(volume: Object, pod: Object, contents: Contents, directory: str, where: str) -> Translated:
    projected = volume["projected"]
    sources = [source for source in projected.get("sources") or () if "serviceAccountToken" not in source]
    for source in sources:
        for kind in source.keys() - {"secret", "configMap", "downwardAPI"}:
            fix = "use a Secret or a ConfigMap for this content"
            raise refused(Rule.SELF_CONTAINED, f"{where}.projected.{kind}", "a static pod cannot have it", fix)
    if sources and all("downwardAPI" in source for source in sources):
        return Translated({"name": volume["name"], "projected": {**projected, "sources": sources}})
    mode = projected.get("defaultMode", 0o644)
    files = [file for source in sources for file in _files_of_source(source, pod, contents, mode, where)]
    return _as_files(volume["name"], directory, files)


def _files_of_source(source: Object, pod: Object, contents: Contents, mode: int, where: str) -> Iterator[VolumeFile]:
    if "secret" in source:
        yield from _files_of("Secret", source["secret"], contents, mode, where)
    elif "configMap" in source:
        yield from _files_of("ConfigMap", source["configMap"], contents, mode, where)
    else:
        for item in source["downwardAPI"].get("items") or ():
            text = value_of_field((item.get("fieldRef") or {}).get("fieldPath", ""), pod)
            if text is None:
                fix = "give these items a downwardAPI volume of their own"
                raise refused(
                    Rule.SELF_CONTAINED, f"{where}.projected.downwardAPI", "only the kubelet knows its value", fix
                )
            yield VolumeFile(_inside(item["path"], where), text.encode(), _mode(item.get("mode", mode)))


def value_of_field(path: str, pod: Object) -> str | None:
    """The value of a field that the standby lacks: labels, annotations, namespace, service account.

    None for every other field: the kubelet fills those in for a static pod as well.
    """
    if path == "metadata.namespace":
        return str(pod["metadata"]["namespace"])
    if path == "spec.serviceAccountName":
        return str(pod["spec"].get("serviceAccountName", ""))
    for prefix, group in zip(_OF_THE_PODS_IDENTITY, ("labels", "annotations"), strict=True):
        if path.startswith(prefix):
            key = path.removeprefix(prefix).removesuffix("']")
            return str((pod["metadata"].get(group) or {}).get(key, ""))
    return None
