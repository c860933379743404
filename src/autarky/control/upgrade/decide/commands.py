"""Whether a new version would understand the command lines of the hosted components as they are, also after somebody's
edit, the configuration files that these name, and what kubelets that follow are to have: removed flags, feature gates,
admission plugins, API versions, and versions of configurations. Pure.

Contract: what is not known of a version is a warning; it refuses nothing. Returns for any template, and never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autarky.control.common.shapes import items, mapping, texts, within
from autarky.control.upgrade.decide import checks_of_kubelets
from autarky.control.upgrade.decide.observed import PASSES, File, Finding, Seen
from autarky.control.upgrade.decide.removed import files_not_understood, not_understood, removed_apis
from autarky.control.upgrade.decide.surface import Resource, surface_of
from autarky.model.components import KUBELET
from autarky.model.versions import Version

COMMANDS, FILES = "commands", "configurations"
"""The names of the checks."""
_READ_IT = "compare its apiVersion, its kind and its feature gates with the release notes of Kubernetes"


def resources_lost(runs: Version, wanted: Version) -> Mapping[Resource, tuple[str, ...]]:
    """Those whose objects the wanted version serves no longer, or cannot read → the group versions in which it serves
    the resource; none where nothing is known of one of them."""
    old, new = surface_of(runs), surface_of(wanted)
    if old is None or new is None:
        return {}
    removed = removed_apis(old, new)
    return {**dict.fromkeys(removed.gone, ()), **{one: removed.moved[one] for one in removed.unreadable}}


def findings(seen: Seen) -> Iterator[Finding]:
    """One for each thing that would keep a component from starting, or that is not known."""
    old, new = surface_of(seen.runs), surface_of(seen.wanted)
    if new is None:
        unknown = "flags, feature gates, admission plugins, configuration files and APIs"
        yield _unknown(seen.wanted, f"{unknown} were not compared with it")
    else:
        if old is None:
            yield _unknown(seen.runs, f"flags, and APIs, that {seen.wanted} lacks would not be found")
        lines = {name: list(_command_lines(live, name)) for name, live in seen.workloads.items()}
        lines[KUBELET] = checks_of_kubelets.command_lines(seen.plane)
        for one in not_understood(lines, old, new):
            yield Finding(COMMANDS, one.sentence, one.fix, warning=one.starts)
        for one in files_not_understood([*seen.files, *checks_of_kubelets.configurations(seen.plane)], new):
            yield Finding(FILES, one.sentence, one.fix)
        yield from _with_parts(seen.files)
    yield from _not_known(seen.files)


def _unknown(version: Version, what: str) -> Finding:
    sentence = f"this autarky does not know what {version} understands: {what}"
    return Finding(COMMANDS, sentence, "read in the release notes of Kubernetes what was removed", warning=True)


def _not_known(files: Iterable[File]) -> Iterator[Finding]:
    for file in files:
        if file.missing:
            fix = f"create it, or correct --{file.flag} of {file.component}"
            yield Finding(FILES, f"{_named(file)} {file.trouble}: no new pod would start", fix, patience=PASSES)
        elif file.trouble:
            yield Finding(FILES, f"{_named(file)} {file.trouble}, and was not compared", _READ_IT, warning=True)


def _with_parts(files: Iterable[File]) -> Iterator[Finding]:
    """Each plugin has a configuration of its own in such a file, or in one that it names."""
    for file in files:
        if file.what.endswith(" AdmissionConfiguration"):
            sentence = f"{_named(file)} was compared without the configurations of single plugins in it"
            yield Finding(FILES, sentence, _READ_IT, warning=True)


def _named(file: File) -> str:
    return f"{file.place}, the file that --{file.flag} of {file.component} names,"


def _command_lines(live: Mapping[str, Any], component: str) -> Iterable[list[str]]:
    """Of the container of that name."""
    for container in map(mapping, items(within(live, "spec", "template", "spec", "containers"))):
        if container.get("name") == component:
            yield [*texts(container.get("command")), *texts(container.get("args"))]
