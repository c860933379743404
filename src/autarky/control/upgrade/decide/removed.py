"""What a new version would not understand of that with which the components run now, and which APIs it lacks. Pure.

Contract: of command lines only what the old version understands is judged. A flag that it does not know is somebody's
wrapper's, and one with which it could not have started is not what runs. Values of flags are judged where they are
names that come and go with versions: feature gates, admission plugins, API versions. Where it is not known what the old
version understands, gates and plugins count as understood, and flags and API versions are not judged.

Of configuration files, which nothing else reads, only the new version's word counts: what they are (apiVersion and
kind), and their feature gates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autarky.control.upgrade.decide.observed import File
from autarky.control.upgrade.decide.surface import Flag, Gate, Resource, Served, Surface
from autarky.model.components import API_SERVER, KUBELET

GATES = "feature-gates"
PLUGINS = ("admission-control", "enable-admission-plugins", "disable-admission-plugins")
RUNTIME_CONFIG = "runtime-config"
FIELD = "featureGates"
OF_KUBELETS = "spec.componentArguments.kubelet of the ControlPlane (extraArgs.kubelet in the cluster file)"
"""Where the arguments of all kubelets are set."""
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""As Go reads it."""
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


@dataclass(frozen=True, slots=True)
class Finding:
    """what: the flag, gate, plugin or API version. fix: an imperative sentence. starts: whether the new version starts
    nevertheless, without what was asked for."""

    component: str
    what: str
    sentence: str
    fix: str
    starts: bool = False


@dataclass(frozen=True, slots=True)
class RemovedApis:
    """gone: no version of its group has the resource any more. moved: resource → the group versions that still have it,
    what is served by default first, then the most stable. unreadable: those of moved whose objects are in etcd in a
    version that the new API server has no type for: it fails to read them, whatever it serves."""

    gone: tuple[Resource, ...]
    moved: Mapping[Resource, tuple[str, ...]]
    unreadable: tuple[Resource, ...] = ()


def not_understood(commands: Mapping[str, Iterable[Sequence[str]]], old: Surface | None, new: Surface) -> list[Finding]:
    """Each finding once, in the order of the components and their command lines.

    commands: component → the command lines it runs with, on whatever nodes and in whatever slots; components without a
    surface, such as etcd, are ignored. old: None where it is not known.
    """
    found = [
        finding
        for component, lines in commands.items()
        if component in new.flags and (old is None or component in old.flags)
        for line in lines
        for finding in _of_command(component, line, old, new)
    ]
    return list(dict.fromkeys(found))


def _of_command(component: str, line: Sequence[str], old: Surface | None, new: Surface) -> Iterator[Finding]:
    former = {} if old is None else old.flags[component]
    where = OF_KUBELETS if component == KUBELET else f"the command line of {component}"
    given = list(flags_given(line, {**new.flags[component], **former}))
    for name in dict.fromkeys(name for name, _ in given):
        if name not in new.flags[component]:
            yield Finding(
                component,
                f"--{name}",
                f"{component} {new.version} has no flag --{name}, and does not start with it",
                f"remove --{name} from {where} first",
            )
    values = [(name, value) for name, value in given if name in new.flags[component]]
    of_gates = f"--{GATES} in {where}" if component == KUBELET else f"--{GATES} of {component}"
    yield from _of_gates(component, _pairs(values, GATES), old, new, of_gates)
    if component == API_SERVER:
        yield from _of_plugins(values, old, new)
        if old is not None:
            yield from _of_runtime_config(_pairs(values, RUNTIME_CONFIG), old, new)


def files_not_understood(files: Iterable[File], new: Surface) -> list[Finding]:
    """In their order. Those of which it is not known what they say are left out."""
    return [finding for file in files if file.what for finding in _of_file(file, new)]


def _of_file(file: File, new: Surface) -> Iterator[Finding]:
    understood = new.configurations.get(file.component, {}).get(file.flag)
    if understood is not None and file.what not in understood:
        sentence = f"{file.component} {new.version} does not understand {file.what}, as which {file.place} is written"
        kinds = " or ".join(sorted(understood))
        yield Finding(
            file.component, file.what, f"{sentence}, and does not start with it", _correct(file, f"write it as {kinds}")
        )
    for one in _of_gates(file.component, file.gates, None, new, f"{FIELD} in {file.place}"):
        yield replace(one, fix=_correct(file, one.fix.removesuffix(" first")))


def _correct(file: File, how: str) -> str:
    """Somebody may have to make another object, since this one cannot be changed."""
    return f"{how}, in a copy that is mounted instead: this one is immutable" if file.fixed else f"{how} first"


# --- command lines -------------------------------------------------------------------------------------------


def flags_given(line: Sequence[str], flags: Mapping[str, Flag]) -> Iterator[tuple[str, str]]:
    """Each of these flags on a command line, with its value, as often as it is there: `--name=value`, `--name value`,
    `--name`, `-v2`, `-v=2` or `-v 2`, and with _ for -. The value of a flag that has none is empty."""
    words = iter(line)
    for word in words:
        if word == "--":
            return
        name, value = _split(word)
        flag = flags.get(name)
        if flag is not None:
            yield name, value if value is not None else next(words, "") if flag.takes_value else ""


def _split(word: str) -> tuple[str, str | None]:
    """Name and value; None where the word has no value. The name is empty where the word is no flag."""
    if word.startswith("--"):
        name, sign, value = word[2:].partition("=")
        return name.replace("_", "-"), value if sign else None
    if word.startswith("-") and len(word) > 1:
        return word[1], word[2:].removeprefix("=") if len(word) > 2 else None
    return "", None


def _pairs(given: Iterable[tuple[str, str]], flag: str) -> dict[str, str]:
    """What a flag says in NAME=VALUE,NAME=VALUE; the last one of a name counts."""
    items = [item.strip() for name, value in given if name == flag for item in value.split(",")]
    return {name.strip(): value.strip() for name, _, value in (item.partition("=") for item in items) if name}


# --- feature gates, admission plugins, API versions ----------------------------------------------------------


def _of_gates(
    component: str, given: Mapping[str, str], old: Surface | None, new: Surface, place: str
) -> Iterator[Finding]:
    """Those of a component whose gates are of several parts are written PART:NAME; the part is "kube"."""
    before, after = None if old is None else old.gates.get(component, {}), new.gates.get(component, {})
    for written, value in given.items():
        name, what = written.removeprefix("kube:"), f"feature gate {written.removeprefix('kube:')}"
        if before is not None and (name not in before or _refused(before[name], value)):
            continue
        fix = f"remove {written} from {place} first"
        if name not in after:
            sentence = f"{component} {new.version} does not know the {what}, and does not start with it"
            yield Finding(component, what, sentence, fix)
        elif _refused(after[name], value):
            locked = f"has the {what} locked to {str(after[name].default).lower()}"
            sentence = f"{component} {new.version} {locked}, and does not start with {name}={value}"
            yield Finding(component, what, sentence, fix)


def _refused(gate: Gate, value: str) -> bool:
    return gate.locked and value in (_FALSE if gate.default else _TRUE)


def _of_plugins(given: Iterable[tuple[str, str]], old: Surface | None, new: Surface) -> Iterator[Finding]:
    for flag, value in given:
        for plugin in (one.strip() for one in value.split(",") if flag in PLUGINS):
            if not plugin or (old is not None and plugin not in old.admission_plugins):
                continue
            if plugin not in new.admission_plugins:
                sentence = f"{API_SERVER} {new.version} has no admission plugin {plugin}, and does not start with it"
                fix = f"remove {plugin} from --{flag} of {API_SERVER} first"
                yield Finding(API_SERVER, f"admission plugin {plugin}", sentence, fix)


def _of_runtime_config(given: Mapping[str, str], old: Surface, new: Surface) -> Iterator[Finding]:
    for written, value in given.items():
        group_version, name = _api_of(written)
        if group_version not in old.registered:
            continue
        fix = f"remove {written} from --{RUNTIME_CONFIG} of {API_SERVER} first"
        if group_version not in new.registered:
            does_not_know = f"{API_SERVER} {new.version} does not know {group_version}, and does not start with it"
            yield Finding(API_SERVER, group_version, f"{does_not_know} in --{RUNTIME_CONFIG}", fix)
        elif value not in _FALSE and _serves(old, group_version, name) and not _serves(new, group_version, name):
            what = f"{name} of {group_version}" if name else group_version
            serves_none = f"{API_SERVER} {new.version} does not serve {what}, also with {written} in --{RUNTIME_CONFIG}"
            yield Finding(API_SERVER, what, serves_none, f"use another version, and {fix}", starts=True)


def _api_of(written: str) -> tuple[str, str]:
    """Group version and resource of "apps/v1", "apps/v1/deployments" or "api/v1"; the resource may be empty."""
    parts = written.removeprefix("api/").split("/")
    if len(parts) == 1 or _VERSION.fullmatch(parts[0]):
        return parts[0], "/".join(parts[1:])
    return "/".join(parts[:2]), "/".join(parts[2:])


def _serves(surface: Surface, group_version: str, name: str) -> bool:
    return any(one.group_version == group_version and name in ("", one.name) for one in surface.resources)


# --- APIs ----------------------------------------------------------------------------------------------------


def removed_apis(old: Surface, new: Surface) -> RemovedApis:
    """What the old version serves, in any way, and the new one cannot serve at all. How the old one serves it is in its
    `resources`. Moves to another group are not followed: the same name there may be something else."""
    elsewhere = {one: _versions_with(new, one) for one in sorted(old.resources.keys() - new.resources.keys())}
    moved = {one: versions for one, versions in elsewhere.items() if versions}
    return RemovedApis(
        tuple(one for one, versions in elsewhere.items() if not versions),
        moved,
        tuple(one for one in moved if new.registered.isdisjoint(_versions_with(old, one))),
    )


def _versions_with(surface: Surface, resource: Resource) -> tuple[str, ...]:
    same = [one for one in surface.resources if (one.group, one.name) == (resource.group, resource.name)]
    return tuple(one.group_version for one in sorted(same, key=lambda one: _preference(one, surface.resources[one])))


def _preference(resource: Resource, served: Served) -> tuple[int, int, int, int, str]:
    """Lower is better: by how it is served, then as Kubernetes orders versions."""
    found = _VERSION.fullmatch(resource.version)
    stage = ("", "beta", "alpha").index(found[2] or "") if found else 3
    major, minor = (int(found[1]), int(found[3] or 0)) if found else (0, 0)
    return list(Served).index(served), stage, -major, -minor, resource.version
