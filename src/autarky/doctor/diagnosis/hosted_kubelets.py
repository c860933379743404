"""What is wrong with hosted kubelets (level 0), and with the hosts' behind them.

Contract: as `kubelets`. Who waits while others have their trials, while kubelets change, or while a pod has failed,
waits for its turn: that is no finding. Nor is it that a node has the version that its pin asks for, and not that of the
DaemonSet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autarky.control.common.shapes import image_of, mapping, plain, text, within
from autarky.control.common.skew import image_version, minor_of
from autarky.control.kubelet.decide import hosted_report, report, takeovers, telling, wanted
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.takeovers import LATE_SECONDS
from autarky.control.kubelet.manifests import files, hosted
from autarky.control.rollout.decide.failures import TRY_AGAIN
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.path import KUBELET_BEHIND, kubelet_of
from autarky.doctor.diagnosis.finding import Finding
from autarky.doctor.diagnosis.kubelets import InApi, OnHost, number_of, without_pin, written
from autarky.model.components import KUBELET

STARTED_SECONDS = 30
"""So long after its start a kubelet has the lock, or waits for it."""
_ONE = "autarky kubectl -n kube-system"
_IMAGE = f"{_ONE} set image ds/kubelet kubelet=autarky.dev/kubelet:VERSION"
"""Only where kubelets do not follow: else it is set back."""
_AGAIN = f"once the cause is removed: {_ONE} annotate ds/kubelet {TRY_AGAIN}=now"


def of_hosted(seen: InApi | None, hosts: Mapping[str, OnHost], silent: Collection[str] = ()) -> list[Finding]:
    """As `kubelets.of_kubelets`."""
    by_hosts = [one for name, host in hosts.items() for one in _two(name, host)]
    if seen is None:
        return by_hosts
    nodes = [one for one in map(_read, seen.nodes) if one.name not in silent]
    behind = [one for node in nodes for one in _standby(node, seen)]
    if not wanted.is_hosted(seen.plane):
        return [*by_hosts, *behind]
    if seen.daemon_set is not None and not seen.daemon_set:
        why = f"selfHosted is {text(within(seen.plane, 'spec', 'selfHosted'))}, and there is no DaemonSet kubelet"
        return [*by_hosts, *behind, Finding("kubelets", "none of them is hosted", why, "autarky up")]
    failed = [_failed(node, said, seen) for node in nodes if (said := node.hosted) and said.state is State.FAILED]
    moves = _is_under_way(seen.plane, nodes)
    held = () if failed or moves else _held(seen, nodes)
    return [*by_hosts, *behind, *failed, *(() if moves else _back(seen)), *held]


def runs_hosted(host: OnHost | None) -> bool:
    """Whether the supervisor says so, and has not ended."""
    if host is None or not host.boot or host.hosted.get("boot") != host.boot:
        return False
    age = host.uptime - number_of(host.hosted.get("uptime"), 0)
    return host.hosted.get("state") in (hosted.State.PROVING, hosted.State.PROVEN) and age <= hosted.STALE_SECONDS


# --- by the hosts ----------------------------------------------------------------------------------------------------


def _two(name: str, host: OnHost) -> Iterator[Finding]:
    """Each of them believes that it is the node's."""
    both = [pid for pid, age in host.in_force.items() if age >= STARTED_SECONDS]
    if len(both) > 1:
        seen = f"processes {' and '.join(both)} are kubelets, and none of them waits for the lock"
        go_on = f"on {name}: {files.SCRIPT_PATH} aside; systemctl restart kubelet"
        yield Finding(name, "it has two kubelets in force", seen, go_on)


# --- by the API ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Node:
    """hosted: what it says of its hosted kubelet; host: of its host's."""

    name: str
    obj: Mapping[str, Any]
    metadata: Mapping[str, Any]
    hosted: Report | None
    host: report.Report | None


def _read(obj: Mapping[str, Any]) -> _Node:
    metadata = mapping(obj.get("metadata"))
    return _Node(plain(metadata.get("name")), obj, metadata, hosted_report.read(metadata), report.read(metadata))


def _standby(node: _Node, seen: InApi) -> Iterator[Finding]:
    """It would be in force the moment that the hosted one ends."""
    host, runs = None if node.host is None else node.host.version, kubelet_of(node.obj)
    if host is None or runs is None or node.hosted is None or not node.hosted.state.is_of_node or not seen.servers:
        return
    oldest, newest = min(seen.servers), max(seen.servers)
    if minor_of(host) == minor_of(runs):
        return
    if minor_of(host) > minor_of(oldest):
        how, server = "newer than an API server", oldest
    elif host.major != newest.major or host.minor < newest.minor - KUBELET_BEHIND:
        how, server = f"more than {KUBELET_BEHIND} minors older than an API server", newest
    else:
        return
    said = f"the host's is {host}, the hosted one, which is in force, is {runs}, and an API server is {server}"
    what = f"the standby of its kubelet is {how} (rule 4)"
    yield Finding(node.name, what, said, without_pin(node.obj, "autarky up"))


def _back(seen: InApi) -> Iterator[Finding]:
    """Of the DaemonSet, which is another version's then: that it may not be in force anywhere is an effect."""
    if seen.back:
        what = f"the hosted kubelets do not get {reported.lowest_version(seen.plane)}, which was rolled back"
        yield Finding("kubelets", what, seen.back, _AGAIN)


def _failed(node: _Node, said: Report, seen: InApi) -> Finding:
    what = f"its hosted kubelet failed ({said.version}), and the host's is in force"
    delete = f"{_ONE} delete pod -l k8s-app=kubelet --field-selector spec.nodeName={node.name}"
    other = "" if wanted.follows(seen.plane) else f"; or another version: {_IMAGE}"
    go_on = f"once the cause is removed: {delete}{other}"
    return Finding(node.name, what, said.why or "it does not say why", go_on)


def _is_under_way(plane: Mapping[str, Any], nodes: Sequence[_Node]) -> bool:
    """Whether something is, for which hosted kubelets wait, or are refused meanwhile."""
    moves, status = reported.read(plane), telling.read(plane)
    if moves is not None and moves.state in (reported.State.UPGRADING, reported.State.SOAKING):
        return True
    if status is not None and status.changing:
        return True
    changes = (one.host for one in nodes if one.host is not None and one.host.state is not None)
    proving = any(one.hosted is not None and one.hosted.state is State.PROVING for one in nodes)
    return proving or any(not one.is_final for one in changes)


def _held(seen: InApi, nodes: Sequence[_Node]) -> Iterator[Finding]:
    for node in nodes:
        said = node.hosted
        if said is not None and said.state is State.REFUSED and not _has_its_pin(node):
            if seen.back and said.version == image_version(_image_of(seen)):
                continue
            what = f"its hosted kubelet ({said.version}) may not be in force, and the host's is"
            go_on = without_pin(node.obj, _for_refused(seen))
            yield Finding(node.name, what, said.why or "it does not say why", go_on)
        elif said is not None and said.state is State.WAITING and (minutes := _waits(seen, node)):
            seen_there = f"for {minutes} min or more{f': {said.why}' if said.why else ''}"
            yield Finding(
                node.name, "its hosted kubelet waits, and the host's is in force", seen_there, _next(seen, node)
            )


def _for_refused(seen: InApi) -> str:
    if not wanted.follows(seen.plane):
        return f"{_IMAGE}, or another version for the node; see docs/kubelet.md"
    follows_to = reported.lowest_version(seen.plane)
    if follows_to is None or not takeovers.is_behind(_image_of(seen), follows_to):
        return "another version for the node; see docs/kubelet.md"
    return "autarky upgrade resume" if reported.is_paused(seen.plane) else "autarky logs operator"


def _image_of(seen: InApi) -> str:
    """Of the DaemonSet; empty where that is not known."""
    return image_of(within(seen.daemon_set or {}, "spec", "template"), KUBELET)


def _has_its_pin(node: _Node) -> bool:
    runs = kubelet_of(node.obj)
    return runs is not None and wanted.pin_of(node.metadata) == str(runs)


def _waits(seen: InApi, node: _Node) -> int:
    """For how many minutes, at least; 0 where it has not been long, or nobody knows."""
    since = written(node.obj, hosted_report.ANNOTATION)
    took = 0.0 if since is None else seen.now - since
    return int(took // 60) if took > LATE_SECONDS else 0


def _next(seen: InApi, node: _Node) -> str:
    if reported.is_paused(seen.plane):
        return "autarky upgrade resume"
    has_turn = node.hosted is not None and hosted_report.turn_of(node.metadata) == node.hosted.pod
    return f"autarky logs node-agent --node {node.name}" if has_turn else "autarky logs operator"
