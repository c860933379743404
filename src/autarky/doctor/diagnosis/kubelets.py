"""What is wrong with kubelets that are changed through the API: by what the API and their hosts' files say.

Contract: pure; returns for any JSON and any file. What was decided is decided again by what the operator decides with
(`control.kubelet.decide`), not guessed. Nothing is said of a change that is on its way, nor of a kubelet that waits for
one: these end by themselves, unless one of them is stuck, which is a finding. What a worker writes leads to findings
about itself only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from autarky.control.common.shapes import items, mapping, plain, some, text, within
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import nodes as nodes_of
from autarky.control.kubelet.decide import order, pools, report, telling, wanted
from autarky.control.kubelet.decide.observed import Outcome
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.decide.standing import LATE_SECONDS, MOST_ATTEMPTS, has
from autarky.control.kubelet.decide.turns import Node
from autarky.control.kubelet.manifests import files, units
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.path import KUBELET_BEHIND, kubelet_of
from autarky.doctor.diagnosis.finding import Finding
from autarky.model.versions import Version

HANGS_SECONDS = 180
"""Beyond the time that the script takes at most: what is there then, nobody carries out."""
_EDIT = "autarky kubectl edit controlplane cluster"
_OUTCOMES = {
    Outcome.BACK: "the last change of its kubelet was taken back",
    Outcome.REFUSED: "the last change of its kubelet was refused",
    Outcome.FAILED: "the last change of its kubelet was taken back, and the former one is not healthy, either",
}


@dataclass(frozen=True, slots=True)
class OnHost:
    """What a host's files say of its kubelet (`control.kubelet.manifests.files`). has_base: whether it has base.json.
    current: the generation in force, empty where there is no complete one. boot, uptime: of the host, empty and 0 where
    it does not say. ask, trial, result, hosted: the content of these files. words: the kubelet's errors, when it went
    back. in_force: its kubelets that wait for no lock: pid → seconds since it was started."""

    has_base: bool = False
    current: str = ""
    boot: str = ""
    uptime: int = 0
    ask: Mapping[str, str] = field(default_factory=dict)
    trial: Mapping[str, str] = field(default_factory=dict)
    result: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    hosted: Mapping[str, str] = field(default_factory=dict)
    in_force: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InApi:
    """plane: the ControlPlane, empty where there is none; nodes: all Nodes; servers: the versions of API servers that
    run. now: seconds since 1970. daemon_set: of hosted kubelets, empty where there is none, None where nobody knows;
    back: why it does not follow, where it was rolled back, else empty."""

    plane: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    servers: Sequence[Version] = ()
    now: float = 0.0
    daemon_set: Mapping[str, Any] | None = None
    back: str = ""


def of_kubelets(
    seen: InApi | None, hosts: Mapping[str, OnHost], silent: Collection[str] = (), unready: Collection[str] = ()
) -> list[Finding]:
    """seen: None while the API does not answer. hosts: those that answer; silent: the others, of which nothing else is
    said. unready: nodes of which it is said already that they are not Ready."""
    by_hosts = [one for name, host in hosts.items() for one in _of_host(name, host)]
    if seen is None:
        return [*by_hosts, *(one for name, host in hosts.items() for one in _ended(name, host))]
    nodes = [one for one in _nodes(seen) if one.node.name not in silent]
    broken = [one for obj in seen.nodes for one in _skew(obj, seen.servers) if one.subject not in silent]
    stuck = {one.subject for one in by_hosts}
    causes = [*broken, *by_hosts, *_trouble(seen.plane), *_ends(nodes, seen.now, hosts, stuck)]
    behind = () if causes else _behind(seen, nodes, {*silent, *unready})
    return _merged([*causes, *_asked(seen.plane, nodes, hosts), *behind])


def _merged(found: Sequence[Finding]) -> list[Finding]:
    """Those that say the same of several nodes become one."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        groups.setdefault((one.what, one.evidence, one.next), []).append(one.subject)
    return [Finding(some(subjects), *said) for said, subjects in groups.items()]


# --- by the files on the hosts -----------------------------------------------------------------------------------


def _of_host(name: str, host: OnHost) -> Iterator[Finding]:
    if host.has_base and not host.current:
        seen = f"the link {files.CURRENT} leads to no complete generation"
        go_on = f"autarky up; or on {name}: {files.SCRIPT_PATH} switch NAME, with one that is complete"
        yield Finding(name, "its kubelet has no generation to start with", seen, go_on)
    if hangs := _hangs(host):
        yield Finding(
            name, "a change of its kubelet is stuck", hangs, f"on {name}: journalctl -u {units.UNIT} -u kubelet"
        )


def _hangs(host: OnHost) -> str:
    """What hangs; empty where nothing does, or nobody knows. A trial of another boot may be: the former generation runs
    all the same."""
    if not host.boot or not host.uptime:
        return ""
    if host.trial and host.trial.get("order") != host.result.get("order"):
        phase = f"its trial is in phase {host.trial.get('phase', '-')}"
        if host.trial.get("boot") != host.boot:
            return f"{phase}, and was interrupted by a restart of the machine"
        late = host.uptime - number_of(host.trial.get("ceiling"), host.uptime)
        return f"{phase}, {late} s after its end" if late > HANGS_SECONDS else ""
    if host.ask and host.ask.get("order") != host.result.get("order"):
        old = host.uptime - number_of(host.ask.get("uptime"), host.uptime)
        is_old = host.ask.get("boot") != host.boot or old > files.ASK_SECONDS + HANGS_SECONDS
        return f"{files.ASK} is there, and nobody carries it out" if is_old else ""
    return ""


def number_of(said: str | None, otherwise: int) -> int:
    return int(said) if said is not None and said.isascii() and said.isdigit() and len(said) < 10 else otherwise


def _ended(name: str, host: OnHost) -> Iterator[Finding]:
    """How the last change ended: while the API is silent, nobody knows whether something else is wanted since."""
    what = next((what for outcome, what in _OUTCOMES.items() if host.result.get("result") == outcome), None)
    if what is not None:
        why = plain(host.result.get("why")) or "it does not say why"
        yield Finding(name, what, _with_words(why, host), f"autarky logs kubelet --node {name}")


def _with_words(why: str, host: OnHost | None) -> str:
    return f"{why}; its last words: {plain(host.words)}" if host is not None and host.words else why


# --- by what the API says ------------------------------------------------------------------------------------------


def _skew(obj: Mapping[str, Any], servers: Sequence[Version]) -> Iterator[Finding]:
    """Rule 4."""
    name, runs = plain(within(obj, "metadata", "name")), kubelet_of(obj)
    if runs is None or not servers:
        return
    oldest, newest = min(servers), max(servers)
    if minor_of(runs) > minor_of(oldest):
        seen = f"it is {runs}, and an API server is {oldest}"
        what = "its kubelet is newer than an API server (rule 4)"
        yield Finding(name, what, seen, without_pin(obj, "autarky up"))
    elif runs.major != newest.major or runs.minor < newest.minor - KUBELET_BEHIND:
        what = f"its kubelet is more than {KUBELET_BEHIND} minors older than an API server (rule 4)"
        yield Finding(name, what, f"it is {runs}, and an API server is {newest}", without_pin(obj, "autarky up"))


def without_pin(obj: Mapping[str, Any], otherwise: str) -> str:
    """How to go on: without the Node's pin, where it has one."""
    if wanted.pin_of(mapping(obj.get("metadata"))) is None:
        return otherwise
    return f"autarky kubectl annotate node {plain(within(obj, 'metadata', 'name'))} {wanted.PIN}-"


@dataclass(frozen=True, slots=True)
class _Seen:
    """node: as it is decided on; obj: the Node. said: why its kubelet stays as it is, or does not get what was asked
    for."""

    node: Node
    obj: Mapping[str, Any]
    said: str


def _nodes(seen: InApi) -> list[_Seen]:
    """None where nothing is asked of kubelets."""
    if not telling.is_used(seen.plane):
        return []
    objects = {text(within(obj, "metadata", "name")): obj for obj in seen.nodes}
    groups = pools.read(within(seen.plane, "spec", "pools"))
    found = nodes_of.found(objects.values(), nodes_of.Around(seen.plane, groups))
    return [_Seen(node, objects[node.name], found.said.get(node.name, "")) for node in found.nodes]


def _trouble(plane: Mapping[str, Any]) -> Iterator[Finding]:
    status = telling.read(plane)
    if status is not None and status.trouble:
        yield Finding("control plane", "no kubelet is changed", status.trouble, _EDIT)


def _ends(nodes: Sequence[_Seen], now: float, hosts: Mapping[str, OnHost], stuck: Collection[str]) -> Iterator[Finding]:
    """Changes that have failed, or do not end. stuck: of these it is said already, by their hosts' files."""
    for one in nodes:
        if one.node.report is not None and _has_failed(one.node):
            yield _failed(one.node, one.node.report, hosts.get(one.node.name))
        elif one.node.name not in stuck and (minutes := _late(one.node, one.obj, now)):
            yield _late_finding(one.node, minutes)


def _asked(plane: Mapping[str, Any], nodes: Sequence[_Seen], hosts: Mapping[str, OnHost]) -> Iterator[Finding]:
    """Who does not get what is asked for."""
    for one in nodes:
        if _is_refused(plane, one.node, one.obj):
            what = "its kubelet does not get the version that is asked for"
            go_on = without_pin(one.obj, f"{_EDIT}: the version of pool {one.node.pool.name} in spec.pools")
            yield Finding(one.node.name, what, one.said, go_on)
        elif one.said == nodes_of.NO_BASE:
            yield _left_alone(one.node.name, hosts.get(one.node.name))


def _has(node: Node) -> bool:
    return node.wanted is None or has(node, node.wanted)


def _has_failed(node: Node) -> bool:
    """With what is still wanted of it. One that a restart interrupted is tried again."""
    given, said = node.order, node.report
    if _has(node) or given is None or said is None or said.order != given.id or given.target != node.wanted:
        return False
    again = said.interrupted and given.attempt < MOST_ATTEMPTS
    return said.state in (State.WENT_BACK, State.REFUSED) and not again


def _failed(node: Node, said: report.Report, host: OnHost | None) -> Finding:
    version = "" if node.wanted is None else f" ({node.wanted.version})"
    what = f"its kubelet went back{version}" if said.state is State.WENT_BACK else f"its kubelet was refused{version}"
    words = host if said.state is State.WENT_BACK else None
    go_on = "once the cause is removed: autarky up, or another text in spec.kubelets.asked; see docs/kubelet.md"
    return Finding(node.name, what, _with_words(said.why or "it does not say why", words), go_on)


def _is_under_way(node: Node) -> bool:
    given, said = node.order, node.report
    if given is None:
        return said is not None and said.state is not None and not said.is_final
    if said is None or said.order == given.id:
        return said is None or not said.is_final
    return said.number < given.number


def _late(node: Node, obj: Mapping[str, Any], now: float) -> int:
    """For how many minutes its change has been under way; 0 where there is none, or it is not late."""
    ordered = written(obj, order.ANNOTATION)
    if node.order is None or ordered is None or not _is_under_way(node):
        return 0
    took = now - ordered
    return int(took // 60) if took > LATE_SECONDS + node.order.request.drain_seconds else 0


def written(obj: Mapping[str, Any], annotation: str) -> float | None:
    """When the annotation was written, or another one by the same, as the API server has noted."""
    times = [
        _time(mapping(one).get("time"))
        for one in items(within(obj, "metadata", "managedFields"))
        if within(one, "fieldsV1", "f:metadata", "f:annotations", f"f:{annotation}") is not None
    ]
    return max((time for time in times if time is not None), default=None)


def _time(said: object) -> float | None:
    try:
        found = datetime.fromisoformat(text(said))
        return found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _late_finding(node: Node, minutes: int) -> Finding:
    said = node.report
    state = "its agent has not begun"
    if said is not None and node.order is not None and said.order == node.order.id:
        state = f"it reports {said.state}{f': {said.why}' if said.why else ''}"
    seen = f"it was ordered {minutes} min ago, and {state}"
    return Finding(node.name, "a change of its kubelet is stuck", seen, f"autarky logs node-agent --node {node.name}")


def _is_refused(plane: Mapping[str, Any], node: Node, obj: Mapping[str, Any]) -> bool:
    """Whether its pin, or its pool's version, is the reason why it does not get what is asked for."""
    pin = wanted.pin_of(mapping(obj.get("metadata")))
    asked = wanted.version(plane, node.pool, pin, node.runs)
    otherwise = wanted.version(plane, replace(node.pool, version=None), None, node.runs)
    return bool(asked.sentence) and asked.sentence != otherwise.sentence


def _left_alone(name: str, host: OnHost | None) -> Finding:
    what = "its kubelet is left alone"
    if host is not None and host.has_base:
        seen = f"its host has {files.BASE}, and its agent does not report that"
        return Finding(name, what, seen, f"autarky logs node-agent --node {name}")
    seen = f"its host has no {files.BASE}" if host is not None else "its agent reports no base.json"
    return Finding(name, what, seen, "autarky up")


# --- who waits, though nothing is on its way ----------------------------------------------------------------------


def _behind(seen: InApi, nodes: Sequence[_Seen], said: Collection[str]) -> Iterator[Finding]:
    """Where the operator says of nobody that it changes, and the control plane does not move: else they wait only for
    their turn. said: of these it is said already what is wrong."""
    status, moves = telling.read(seen.plane) or telling.Reported(), reported.read(seen.plane)
    if moves is not None and moves.state in (reported.State.UPGRADING, reported.State.SOAKING):
        return
    yield from _not_followed(seen, said)
    if status.changing or any(_is_under_way(one.node) for one in nodes):
        return
    otherwise = "it waits, as others do" if status.waits else "the operator has not ordered it"
    go_on = "autarky upgrade resume" if reported.is_paused(seen.plane) else "autarky upgrade status"
    for node in (one.node for one in nodes):
        if node.wanted is not None and not _has(node) and node.name not in said:
            why = status.waits.get(node.name, otherwise)
            evidence = f"{node.wanted.version} is wanted, it is {node.runs}: {why}"
            yield Finding(node.name, "its kubelet has not what is wanted of it", evidence, go_on)


def _not_followed(seen: InApi, said: Collection[str]) -> Iterator[Finding]:
    """Where no `up` has had kubelets follow yet. That they do not by somebody's choice is no finding."""
    complete = reported.complete_version(seen.plane)
    if complete is None or within(seen.plane, "spec", "kubelets", "follow") is not None:
        return
    for obj in seen.nodes:
        name, runs = plain(within(obj, "metadata", "name")), kubelet_of(obj)
        asked = wanted.pin_of(mapping(obj.get("metadata"))) is not None
        if runs is not None and minor_of(runs) < minor_of(complete) and name not in said and not asked:
            what = "its kubelet is of an older minor than the control plane, and does not follow it"
            yield Finding(name, what, f"it is {runs}, the control plane is {complete}", "autarky up")
