"""The configuration files that the command lines of hosted components name: where each comes from, and what it says of
itself. Pure.

Contract: returns for any objects, and never raises. Of a file only its apiVersion, its kind and its feature gates are
kept (`header`). Files that are not mounted from a ConfigMap or a Secret are not looked at, and say so.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import join, normpath
from typing import Any

from autarky.control.common.shapes import container_of, items, mapping, plain, text, texts, within
from autarky.control.upgrade.decide.header import header
from autarky.control.upgrade.decide.observed import File
from autarky.control.upgrade.decide.removed import flags_given
from autarky.control.upgrade.decide.surface import Flag, surface_of
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version

FLAGS: Mapping[str, tuple[str, ...]] = {
    API_SERVER: (
        "admission-control-config-file",
        "audit-policy-file",
        "authentication-config",
        "authorization-config",
        "egress-selector-config-file",
        "encryption-provider-config",
        "tracing-config-file",
    ),
    CONTROLLER_MANAGER: ("leader-migration-config",),
    SCHEDULER: ("config",),
    KUBE_PROXY: ("config",),
}
"""Those that name a file with an apiVersion that comes and goes. Kubeconfigs have had theirs since the beginning."""
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
Reference = tuple[str, str]
"""(kind, name) of an object in kube-system."""
Objects = Mapping[Reference, Mapping[str, Any] | None]
"""None for one that does not exist."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One key of an object in kube-system."""

    kind: str
    name: str
    key: str

    @property
    def reference(self) -> Reference:
        return self.kind, self.name

    @property
    def place(self) -> str:
        return plain(f"{self.key} of the {self.kind} {self.name}")


@dataclass(frozen=True, slots=True)
class Named:
    """origins: several where a volume is projected from several objects, one of which has the file; none where it is
    not mounted from an object."""

    component: str
    flag: str
    path: str
    origins: tuple[Origin, ...]


def named(workloads: Mapping[str, Mapping[str, Any]], runs: Version) -> list[Named]:
    """Of each flag the file that counts, which is the last one."""
    return [
        Named(component, flag, path, tuple(_origins(template, component, path)))
        for component, template in ((name, within(live, "spec", "template")) for name, live in workloads.items())
        for flag, path in _paths(template, component, runs).items()
        if path
    ]


def references(files: list[Named]) -> list[Reference]:
    """The objects to be read for them, each once."""
    return sorted({origin.reference for file in files for origin in file.origins if _NAME.fullmatch(origin.name)})


def read(file: Named, objects: Objects) -> File:
    """objects: those of `references`."""
    if not file.origins:
        return File(file.component, file.flag, plain(file.path), trouble="is not mounted from a ConfigMap or a Secret")
    for origin in file.origins:
        obj = objects.get(origin.reference)
        content = _content(obj, origin)
        if content is not None:
            return _of_content(file, origin.place, content, fixed=within(obj, "immutable") is True)
    return File(file.component, file.flag, file.origins[-1].place, trouble="is not there", missing=True)


def _of_content(file: Named, place: str, content: bytes, *, fixed: bool) -> File:
    says = header(content)
    if says is None:
        trouble = "is neither JSON nor YAML in block style with an apiVersion and a kind"
        return File(file.component, file.flag, place, trouble=trouble)
    what = plain(f"{says.api_version} {says.kind}")
    gates = {plain(name): value for name, value in says.gates.items()}
    return File(file.component, file.flag, place, what, gates, fixed)


# --- from the command line to the key of an object -----------------------------------------------------------


def _paths(template: object, component: str, runs: Version) -> dict[str, str]:
    """Flag → path. Other flags are only known so that their values are not taken for flags."""
    container, own = container_of(template, component), FLAGS.get(component, ())
    surface = surface_of(runs)
    flags = {
        **({} if surface is None else surface.flags.get(component, {})),
        **dict.fromkeys(own, Flag(takes_value=True)),
    }
    line = [*texts(container.get("command")), *texts(container.get("args"))]
    return {flag: path for flag, path in flags_given(line, flags) if flag in own}


def _origins(template: object, component: str, path: str) -> Iterator[Origin]:
    yield from _in_volume(*volume_of(template, component, path))


def volume_of(template: object, component: str, path: str) -> tuple[Mapping[str, Any], str]:
    """The volume of a file that the component sees, and its path in it, by the mount that is nearest to the file. Empty
    where there is none, or it differs by node."""
    mounts = [mapping(one) for one in items(container_of(template, component).get("volumeMounts"))]
    over = [(inside, one) for one in mounts if (inside := _below(path, text(one.get("mountPath")))) is not None]
    inside, mount = min(over, key=lambda one: len(one[0]), default=("", {}))
    if not mount or mount.get("subPathExpr"):
        return {}, ""
    volumes = (mapping(one) for one in items(within(template, "spec", "volumes")))
    volume = next((one for one in volumes if one.get("name") == mount.get("name")), {})
    return volume, normpath(join(text(mount.get("subPath")), inside))


def _below(path: str, directory: str) -> str | None:
    """The path from there; None where it does not lead there."""
    path, directory = normpath(path), normpath(directory)
    if path == directory:
        return ""
    return path[len(directory) + 1 :] if path.startswith(f"{directory}/") else None


def _in_volume(volume: Mapping[str, Any], inside: str) -> Iterator[Origin]:
    sources = [volume, *map(mapping, items(within(volume, "projected", "sources")))]
    for source in sources:
        config_map, secret = mapping(source.get("configMap")), mapping(source.get("secret"))
        for kind, one, name in (
            ("ConfigMap", config_map, text(config_map.get("name"))),
            ("Secret", secret, text(secret.get("secretName")) or text(secret.get("name"))),
        ):
            key = _key(one, inside)
            if name and key:
                yield Origin(kind, name, key)


def _key(source: Mapping[str, Any], inside: str) -> str:
    """The key that lies there; empty where none does."""
    chosen = [mapping(one) for one in items(source.get("items"))]
    if not chosen:
        return inside
    return next((text(one.get("key")) for one in chosen if normpath(text(one.get("path")) or "-") == inside), "")


def _content(obj: Mapping[str, Any] | None, origin: Origin) -> bytes | None:
    """None where the object or its key is not there."""
    data, binary = within(obj, "data", origin.key), within(obj, "binaryData", origin.key)
    if origin.kind == "ConfigMap" and isinstance(data, str):
        return data.encode(errors="surrogatepass")
    encoded = data if origin.kind == "Secret" else binary
    if not isinstance(encoded, str):
        return None
    try:
        return base64.b64decode(encoded)
    except ValueError:
        return b""
