"""Hosted kubelets (level 0): what is wrong with one, or with the host's behind it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from autarky.control.kubelet.decide import hosted_report, report
from autarky.control.kubelet.decide.hosted_report import Report, State
from autarky.control.kubelet.decide.takeovers import LATE_SECONDS
from autarky.control.kubelet.decide.wanted import PIN
from autarky.control.kubelet.manifests import files, hosted
from autarky.doctor import evidence
from autarky.doctor.diagnosis import ClusterEvidence, NodeEvidence, diagnose
from autarky.doctor.diagnosis.finding import Finding
from autarky.doctor.diagnosis.hosted_kubelets import STARTED_SECONDS, of_hosted
from autarky.doctor.diagnosis.kubelets import InApi, OnHost
from autarky.doctor.evidence import SaidByScript, on_host, read_said
from autarky.model.versions import Version
from autarky.programs import program
from unit.control.kubelet.decide.test_kubelet_order import any_json

V33, V36, V37, V38 = (Version(1, minor, 1) for minor in (33, 36, 37, 38))
WROTE, WROTE_AT = "2026-11-29T08:00:00Z", 1795939200.0
LATE = WROTE_AT + LATE_SECONDS + 1
POD = "b3f1-77"
UP = OnHost(boot="b1", uptime=10_000)
RUNS = {"boot": "b1", "pod": POD, "state": "proven", "uptime": "9990"}


def a_plane(levels: object = "0-4", **more: Any) -> dict[str, Any]:
    return {"spec": {"selfHosted": levels, "version": str(V37)}, "status": {"version": str(V37)}} | more


def a_node(
    state: State | None = State.IN_FORCE,
    why: str = "",
    *,
    version: Version = V37,
    runs: Version = V37,
    host: report.Report | None = None,
    name: str = "n1",
    turn: str = POD,
    pin: str = "",
) -> dict[str, Any]:
    annotations = {
        hosted_report.TURN: turn,
        PIN: pin,
        report.ANNOTATION: report.text(host or report.Report(version=V37)),
    }
    if state is not None:
        annotations[hosted_report.ANNOTATION] = hosted_report.text(Report(POD, version, state, why))
    annotations = {key: value for key, value in annotations.items() if value}
    owns: Any = {"f:metadata": {"f:annotations": {f"f:{key}": {} for key in annotations}}}
    entry = {"manager": "autarky", "time": WROTE, "fieldsV1": owns}
    metadata = {"name": name, "annotations": annotations, "managedFields": [entry]}
    return {"metadata": metadata, "status": {"nodeInfo": {"kubeletVersion": str(runs)}}}


def found(
    *nodes: Mapping[str, Any],
    plane: Mapping[str, Any] | None = None,
    now: float = WROTE_AT,
    daemon_set: Mapping[str, Any] | None = None,
    silent: tuple[str, ...] = (),
    back: str = "",
) -> list[Finding]:
    there = {"kind": "DaemonSet"} if daemon_set is None else daemon_set
    return of_hosted(InApi(plane or a_plane(), nodes, [V37], now, there, back), {"n1": UP}, silent)


def a_daemon_set(image: object) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "kubelet", "image": image}]}}}}


def following(**more: Any) -> dict[str, Any]:
    plane = a_plane()
    return {**plane, "spec": {**plane["spec"], "kubelets": {"follow": True}, **more}}


def test_of_one_that_is_in_force_or_on_trial_nothing_is_said() -> None:
    assert found(a_node(), a_node(State.PROVING, "no heartbeat", name="n2"), a_node(None, name="n3"), now=LATE) == []


def test_one_that_failed_says_why_and_how_it_is_tried_again() -> None:
    [one] = found(a_node(State.FAILED, "it was not proven in time: no heartbeat"))
    assert (one.subject, one.evidence) == ("n1", "it was not proven in time: no heartbeat")
    assert f"failed ({V37})" in one.what
    assert "delete pod -l k8s-app=kubelet --field-selector spec.nodeName=n1" in one.next
    assert "set image ds/kubelet" in one.next


def test_who_waits_for_one_that_failed_is_an_effect() -> None:
    waits = a_node(State.WAITING, "its turn has not come", name="n2", turn="")
    assert {one.subject for one in found(a_node(State.FAILED), waits, now=LATE)} == {"n1"}


@pytest.mark.parametrize(
    ("turn", "more", "then"),
    [
        (POD, {}, "autarky logs node-agent --node n1"),
        ("", {}, "autarky logs operator"),
        ("a0", {}, "autarky logs operator"),
        ("", {"paused": True}, "autarky upgrade resume"),
    ],
)
def test_one_that_waits_for_longer_than_a_trial_takes_is_named(turn: str, more: dict[str, Any], then: str) -> None:
    plane = a_plane()
    plane["spec"] |= more
    node = a_node(State.WAITING, "its turn has not come", turn=turn)
    assert found(node, plane=plane, now=LATE - 1) == []
    [one] = found(node, plane=plane, now=LATE)
    assert (one.evidence, one.next) == ("for 5 min or more: its turn has not come", then)
    node["metadata"]["managedFields"][0]["time"] = "soon"
    assert found(node, plane=plane, now=LATE) == []


def test_one_that_may_not_be_in_force_says_why() -> None:
    why = f"{V38} is newer than API server {V37}"
    [one] = found(a_node(State.REFUSED, why, version=V38))
    assert (one.evidence, str(V38) in one.what, "set image ds/kubelet" in one.next) == (why, True, True)
    [one] = found(a_node(State.REFUSED, "it is to be another", pin=str(V38)))
    assert one.next == f"autarky kubectl annotate node n1 {PIN}-"
    assert found(a_node(State.REFUSED, "it is to be another", pin=str(V36), runs=V36)) == [], "somebody wants it so"


def test_where_the_daemon_set_was_rolled_back_that_is_said_once_with_the_way_to_try_it_again() -> None:
    """`set image` would be set back, where kubelets follow."""
    nodes = [a_node(State.REFUSED, "it is to be v1.37.1", version=V36, name=name) for name in ("n1", "n2")]
    former = a_daemon_set(f"{files.IMAGE}:{V36}")
    [one] = found(*nodes, plane=following(), daemon_set=former, back="n1 has no pod that is Ready")
    assert (one.subject, one.evidence) == ("kubelets", "n1 has no pod that is Ready")
    assert str(V37) in one.what
    assert one.next == (
        "once the cause is removed: autarky kubectl -n kube-system annotate ds/kubelet autarky.dev/try-again=now"
    )
    failed = a_node(State.FAILED, "it says so", name="n3")
    assert {one.subject for one in found(*nodes, failed, plane=following(), daemon_set=former, back="x")} == {
        "kubelets",
        "n3",
    }, "no worker hides it"
    other = a_node(State.REFUSED, "it is old", version=V33, name="n3")
    assert len(found(other, plane=following(), daemon_set=former, back="x")) == 2
    upgrading = {"wanted": str(V37), "state": "Upgrading", "message": "", "versions": [str(V37)]}
    moving = following() | {"status": {"version": str(V37), "upgrade": upgrading}}
    assert found(*nodes, plane=moving, daemon_set=former, back="x") == []


@pytest.mark.parametrize(
    ("more", "image", "then"),
    [
        ({}, f"{files.IMAGE}:{V36}", "autarky logs operator"),
        ({"paused": True}, f"{files.IMAGE}:{V36}", "autarky upgrade resume"),
        ({}, f"{files.IMAGE}:{V37}", "another version for the node; see docs/kubelet.md"),
        ({}, 7, "another version for the node; see docs/kubelet.md"),
    ],
)
def test_where_kubelets_follow_nobody_is_to_set_the_image(more: dict[str, Any], image: object, then: str) -> None:
    node = a_node(State.REFUSED, "it is to be v1.37.1", version=V36)
    [one] = found(node, plane=following(**more), daemon_set=a_daemon_set(image))
    assert one.next == then
    [one] = found(a_node(State.FAILED), plane=following(), daemon_set=a_daemon_set(image))
    assert "set image" not in one.next


def test_while_something_is_on_its_way_nobody_waits_for_too_long() -> None:
    held = (a_node(State.WAITING), a_node(State.REFUSED, name="n2"))
    assert len(found(*held, now=LATE)) == 2
    moves = {"wanted": str(V37), "state": "Upgrading", "message": "", "versions": [str(V37)]}
    changing = report.Report(order="0f" * 8, number=3, state=report.State.STAGING, version=V37)
    for plane, other in (
        (a_plane(status={"upgrade": moves}), a_node(name="n3")),
        (a_plane(status={"kubelets": {"changing": ["n3"]}}), a_node(name="n3")),
        (a_plane(), a_node(State.PROVING, name="n3")),
        (a_plane(), a_node(host=changing, name="n3")),
    ):
        assert found(*held, other, plane=plane, now=LATE) == []


@pytest.mark.parametrize(
    ("host", "runs", "what"),
    [
        (V38, V37, "newer than an API server"),
        (V33, V37, "more than 3 minors older than an API server"),
        (V36, V37, ""),
        (V38, V38, ""),
        (V37, V37, ""),
    ],
)
def test_the_hosts_behind_it_is_out_of_step_where_it_breaks_rule_4(host: Version, runs: Version, what: str) -> None:
    node = a_node(runs=runs, host=report.Report(version=host))
    for plane in (a_plane(), a_plane("1-4")):
        said = found(node, plane=plane)
        assert [what in one.what and one.next == "autarky up" for one in said] == ([True] if what else [])
        assert all(str(host) in one.evidence and str(runs) in one.evidence for one in said)
    assert found(a_node(State.WAITING, runs=runs, host=report.Report(version=host))) == [], "then it is in force itself"


@pytest.mark.parametrize("levels", ["0-4", "02-4", "1-4", "2-4", "", None, 5])
def test_a_daemon_set_that_is_wanted_and_not_there_is_named(levels: object) -> None:
    said = found(a_node(None), plane=a_plane(levels), daemon_set={})
    is_wanted = levels in ("0-4", "02-4")
    assert [(one.what, one.next) for one in said] == ([("none of them is hosted", "autarky up")] if is_wanted else [])
    seen = InApi(a_plane(levels), [a_node(None)], [V37])
    assert of_hosted(seen, {}) == [], "nobody knows whether it is there"


def test_where_the_level_is_not_hosted_what_failed_is_history() -> None:
    for state in (State.FAILED, State.REFUSED, State.WAITING):
        assert found(a_node(state), plane=a_plane("1-4"), now=LATE) == []


def test_of_a_silent_host_nothing_is_said() -> None:
    node = a_node(State.FAILED, host=report.Report(version=V38))
    assert (len(found(node)), found(node, silent=("n1",))) == (1, [])
    off = NodeEvidence("n1", problem="its machine does not run", control_plane=False, has_etcd=False)
    seen = ClusterEvidence((off,), kubelets=InApi(a_plane(), [node], [V37], 0.0, {"kind": "DaemonSet"}))
    assert [one.what for one in diagnose(seen)] == ["its host does not answer"]


@given(value=any_json, node=any_json)
def test_nothing_is_raised_for_any_objects(value: Any, node: Any) -> None:
    forged = {hosted_report.ANNOTATION: value, hosted_report.TURN: node, PIN: value, report.ANNOTATION: node}
    objects: list[Any] = [node if isinstance(node, dict) else {}]
    objects.append({"metadata": {"name": value, "annotations": forged}, "status": value})
    objects.append({**a_node(State.WAITING), "status": node})
    for plane in (value if isinstance(value, dict) else {}, a_plane(value), {**a_plane(), "status": node}):
        found(*objects, plane=plane, now=LATE)
    plane = {**following(), "status": node}
    for daemon_set in (a_daemon_set(value), {"spec": value}, {"spec": {"template": node}}):
        found(*objects, plane=plane, now=LATE, daemon_set=daemon_set, back="x")


# --- by the hosts ----------------------------------------------------------------------------------------------------


def by_host(host: OnHost, *, active: bool = True) -> list[tuple[str, str]]:
    units = {"containerd": True, "kubelet": active}
    seen = NodeEvidence("n1", units=units, balanced={}, kubelet=host)
    return [(one.what, one.next) for one in diagnose(ClusterEvidence((seen,), api="refused")) if one.subject == "n1"]


@pytest.mark.parametrize(
    ("ages", "two"),
    [
        ({}, False),
        ({"7": 1000}, False),
        ({"7": 1000, "8": STARTED_SECONDS - 1}, False),
        ({"7": 1000, "8": STARTED_SECONDS}, True),
    ],
)
def test_two_of_which_none_waits_for_the_lock_are_named_with_the_api_or_without(
    ages: dict[str, int], two: bool
) -> None:
    host = replace(UP, in_force=ages)
    go_on = "on n1: /var/lib/autarky/bin/kubelet-slots aside; systemctl restart kubelet"
    wrong = [("it has two kubelets in force", go_on)] if two else []
    assert by_host(host) == wrong
    said = of_hosted(InApi(a_plane(), [a_node()], [V37], 0.0, {"kind": "DaemonSet"}), {"n1": host})
    assert [(one.what, one.next) for one in said] == wrong
    assert all("7 and 8" in one.evidence for one in said)


@pytest.mark.parametrize(
    ("other", "runs"),
    [
        ({}, True),
        ({"state": "proving"}, True),
        ({"state": "waiting"}, False),
        ({"state": "away"}, False),
        ({"boot": "b0"}, False),
        ({"uptime": str(10_000 - hosted.STALE_SECONDS - 1)}, False),
        ({"uptime": "now"}, False),
    ],
)
def test_without_the_hosts_the_hosted_one_has_no_standby(other: dict[str, str], runs: bool) -> None:
    host = replace(UP, hosted={**RUNS, **other})
    start = "on n1: systemctl start kubelet; if it does not stay up: journalctl -u kubelet"
    lacks, down = ("its kubelet has no standby", start), "kubelet does not run"
    said = by_host(host, active=False)
    assert (said[0] == lacks) if runs else (said[0][0] == down)
    assert by_host(host) == []


@pytest.fixture
def looked_at(tmp_path: Path) -> Callable[[], SaidByScript]:
    paths = ("manifests", "fence", "copy", "kept", "peer_ca", "configuration_path", "configuration_file")
    values: dict[str, object] = {name: tmp_path / "none" / name for name in paths}
    values |= dict.fromkeys(("units", "disks", "api_ports"), "")
    ports = {"etcd_port": 1, "balancer_port": 1, "sync_seconds": 0}
    script = program(evidence.__file__, "doctor.sh", kubelets=tmp_path, slot_lock=tmp_path / "lock", **ports, **values)

    def look() -> SaidByScript:
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
        return read_said(done.stdout, ())

    return look


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Programs under the name of kubelet."""
    made: list[subprocess.Popen[bytes]] = []

    def start(program_: str, *arguments: str, name: str = "kubelet") -> subprocess.Popen[bytes]:
        directory = tmp_path / "programs" / program_
        directory.mkdir(parents=True, exist_ok=True)
        found_ = shutil.which(program_)
        assert found_ is not None
        made.append(subprocess.Popen([shutil.copy(found_, directory / name), *arguments]))
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.wait()


def test_the_script_prints_who_waits_for_no_lock(
    tmp_path: Path, looked_at: Callable[[], SaidByScript], started: Callable[..., subprocess.Popen[bytes]]
) -> None:
    lock = str(tmp_path / "lock")
    started("flock", "--no-fork", lock, "sleep", "60", name="holder")
    while subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0:
        pass
    waiting, free = started("flock", lock, "true"), started("sleep", "60")
    other = started("sleep", "60", name="kubelets")
    while f"WRITE {waiting.pid} " not in Path("/proc/locks").read_text():
        pass
    (tmp_path / "hosted").write_bytes(files.written(RUNS))
    said = looked_at()
    assert [str(one.pid) in said.kubelets for one in (waiting, free, other)] == [False, True, False]
    assert 0 <= said.kubelets[str(free.pid)] < 60
    seen = on_host(said)
    assert seen is not None
    assert seen.hosted == RUNS


def test_what_a_host_may_print_is_bounded() -> None:
    lines = [f"kubelet process {number} 1" for number in range(10_000)]
    said = on_host(read_said("\n".join(["kubelet host boot b1", "kubelet process x 1", *lines]), ()))
    assert said is not None
    assert (len(said.in_force), "x" in said.in_force) == (10, False)
