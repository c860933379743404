"""Kubelets that are changed through the API: what is wrong with one, and what its host's files say without the API."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide import order, report
from autarky.control.kubelet.decide.order import MOST_NUMBER, Order, Request, Target, made
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.decide.standing import LATE_SECONDS, MOST_ATTEMPTS
from autarky.control.kubelet.decide.wanted import PIN
from autarky.control.kubelet.manifests import files
from autarky.doctor import evidence
from autarky.doctor.diagnosis import ClusterEvidence, NodeEvidence, diagnose
from autarky.doctor.diagnosis.finding import Finding
from autarky.doctor.diagnosis.kubelets import HANGS_SECONDS, InApi, OnHost, of_kubelets
from autarky.doctor.evidence import on_host, read_said
from autarky.model.versions import Version
from autarky.programs import program
from unit.control.kubelet.decide.test_kubelet_order import any_json

V33, V36, V37, V38 = (Version(1, minor, 1) for minor in (33, 36, 37, 38))
ORDERED = "2026-11-29T08:00:00Z"
ORDERED_AT, DRAIN_SECONDS = 1795939200.0, 300
WANTED = Target(V37, "base")
ORDER = made(Request(WANTED, "image", drain_seconds=DRAIN_SECONDS), 3)
CURRENT = Report(version=V37, base="base", target=WANTED.digest)
BEHIND = Report(version=V36, base="base")
UP = OnHost(has_base=True, current="aa", boot="b1", uptime=10_000)
TRIAL = {"order": "0f", "phase": "proving", "boot": "b1", "ceiling": "9000"}


def a_plane(*, follow: bool | None = True, version: Version = V37, **status: Any) -> dict[str, Any]:
    spec = {"version": str(version), **({} if follow is None else {"kubelets": {"follow": follow}})}
    return {"spec": spec, "status": {"version": str(version), **status}}


def a_node(
    said: Report | None = CURRENT, ordered: Order | None = None, *, runs: Version = V37, name: str = "n1", pin: str = ""
) -> dict[str, Any]:
    annotations = {} if said is None else {report.ANNOTATION: report.text(said)}
    annotations |= {} if ordered is None else {order.ANNOTATION: order.text(ordered)}
    annotations |= {PIN: pin} if pin else {}
    owns: Any = {"f:metadata": {"f:annotations": {f"f:{order.ANNOTATION}": {}}}}
    entry = {"manager": "autarky", "time": ORDERED, "fieldsV1": owns}
    metadata = {"name": name, "annotations": annotations, "managedFields": [entry]}
    return {"metadata": metadata, "status": {"nodeInfo": {"kubeletVersion": str(runs)}}}


def ended(state: State, *, attempt: int = 1, interrupted: bool = False) -> dict[str, Any]:
    given = made(ORDER.request, 3, attempt)
    said = replace(BEHIND, order=given.id, number=3, attempt=attempt, state=state, why="no space")
    return a_node(replace(said, interrupted=interrupted), given, runs=V36)


def found(
    *nodes: dict[str, Any],
    plane: Mapping[str, Any] | None = None,
    hosts: Mapping[str, OnHost] | None = None,
    now: float = ORDERED_AT,
    **more: Any,
) -> list[Finding]:
    return of_kubelets(InApi(plane or a_plane(), nodes, [V37], now), hosts or {"n1": UP}, **more)


def test_of_one_that_has_what_is_wanted_nothing_is_said() -> None:
    assert found(a_node()) == []


@pytest.mark.parametrize(
    ("runs", "what"),
    [
        (V38, "newer than an API server"),
        (V37, ""),
        (V36, ""),
        (Version(1, 34, 0), ""),
        (V33, "more than 3 minors older"),
    ],
)
def test_rule_4_is_judged_by_the_api_servers_that_run_also_where_nothing_is_asked(runs: Version, what: str) -> None:
    said = found(a_node(runs=runs), plane=a_plane(follow=False))
    assert [what in one.what and "rule 4" in one.what for one in said] == ([True] if what else [])
    assert all(one.next == "autarky up" for one in said)


def test_the_oldest_api_server_says_what_is_newer_and_the_newest_what_is_too_old() -> None:
    both = [V37, V36]
    for runs, wrong in ((V37, True), (V36, False), (V33, True)):
        seen = InApi(a_plane(follow=False), [a_node(runs=runs)], both)
        assert bool(of_kubelets(seen, {})) is wrong, runs


def test_one_that_a_pin_holds_there_is_released_by_its_annotation() -> None:
    [one] = found(a_node(runs=V38, pin=str(V38)), plane=a_plane(follow=False))[:1]
    assert one.next == f"autarky kubectl annotate node n1 {PIN}-"


@pytest.mark.parametrize(("state", "what"), [(State.WENT_BACK, "went back"), (State.REFUSED, "was refused")])
def test_one_that_failed_says_why_and_how_it_is_tried_again(state: State, what: str) -> None:
    [one] = found(ended(state), hosts={"n1": replace(UP, words="unknown flag: --no")})
    assert (one.subject, one.what) == ("n1", f"its kubelet {what} ({V37})")
    assert ("no space", "unknown flag" in one.evidence) == (one.evidence[:8], state is State.WENT_BACK)
    assert all(part in one.next for part in ("autarky up", "spec.kubelets.asked", "docs/kubelet.md"))


def test_what_failed_and_is_not_wanted_any_more_is_history() -> None:
    node = ended(State.WENT_BACK)
    wants = Target(V36, "base")
    said = report.read(node["metadata"])
    assert said is not None
    node["metadata"]["annotations"][report.ANNOTATION] = report.text(replace(said, target=wants.digest))
    assert found(node, plane=a_plane(version=V36)) == []
    [one] = found(ended(State.WENT_BACK), plane=a_plane(version=V36))
    assert "went back" not in one.what, "the former version, with what it lacks otherwise"


def test_one_that_has_what_failed_by_hand_is_well() -> None:
    said = replace(CURRENT, order=ORDER.id, number=3, state=State.WENT_BACK)
    assert found(a_node(said, ORDER)) == []


def test_a_change_that_ended_long_ago_is_not_stuck() -> None:
    done = replace(CURRENT, order=ORDER.id, number=3, state=State.DONE)
    assert found(a_node(done, ORDER), now=ORDERED_AT + 10**6) == []


@pytest.mark.parametrize(("attempt", "said"), [(1, False), (MOST_ATTEMPTS, True)])
def test_one_that_a_restart_interrupted_is_tried_again_first(attempt: int, said: bool) -> None:
    findings = found(ended(State.WENT_BACK, attempt=attempt, interrupted=True))
    assert any("went back" in one.what for one in findings) is said


@pytest.mark.parametrize("state", [None, State.STAGING, State.PROVING])
@pytest.mark.parametrize("late", [False, True])
def test_a_change_that_takes_longer_than_any_may_is_stuck(state: State | None, late: bool) -> None:
    said = BEHIND if state is None else replace(BEHIND, order=ORDER.id, number=3, state=state, why="copying")
    now = ORDERED_AT + LATE_SECONDS + DRAIN_SECONDS + (1 if late else 0)
    findings = found(a_node(said, ORDER, runs=V36), now=now)
    assert [one.what for one in findings] == (["a change of its kubelet is stuck"] if late else [])
    states = "its agent has not begun" if state is None else f"it reports {state}: copying"
    assert all(one.evidence == f"it was ordered 20 min ago, and {states}" for one in findings)


@pytest.mark.parametrize("time", ["", "soon", "2026-11-29T08:00:00", "0001-01-01T00:00:00+23:59", None, 5, [ORDERED]])
def test_when_nobody_knows_since_when_it_is_not_stuck(time: object) -> None:
    node = a_node(BEHIND, ORDER, runs=V36)
    node["metadata"]["managedFields"][0]["time"] = time
    late = found(node, now=ORDERED_AT + 10**6)
    assert [one.what for one in late] == (["a change of its kubelet is stuck"] if str(time).startswith("0001") else [])


def test_a_pin_that_may_not_be_is_named_and_not_what_would_be_so_without_it() -> None:
    assert found(a_node(pin=str(V37))) == []
    assert found(a_node(pin=str(V38)), plane=a_plane(follow=None)) == [], "nothing is asked of kubelets"
    for follow in (True, False):
        [one] = found(a_node(pin=str(V38)), plane=a_plane(follow=follow))
        assert "does not get the version that is asked for" in one.what
    assert (PIN in one.evidence, one.next) == (True, f"autarky kubectl annotate node n1 {PIN}-")
    down = {**a_plane(), "spec": {**a_plane()["spec"], "version": str(V36)}}
    assert not any("asked for" in one.what for one in found(a_node(pin=str(V37)), plane=down))


def test_a_pools_version_that_may_not_be_is_named() -> None:
    plane = a_plane()
    plane["spec"]["pools"] = [{"name": "workers", "version": str(V38)}]
    [one] = found(a_node(), plane=plane)
    assert f"pool workers asks for {V38}" in one.evidence
    assert "edit controlplane" in one.next


@pytest.mark.parametrize(
    ("host", "seen", "then"),
    [
        (OnHost(), f"its host has no {files.BASE}", "autarky up"),
        (UP, "its agent does not report that", "autarky logs node-agent --node n1"),
        (None, "reports no base.json", "autarky up"),
    ],
)
def test_one_that_is_left_alone(host: OnHost | None, seen: str, then: str) -> None:
    for said in (None, Report(version=V37)):
        [one] = found(a_node(said), hosts={"x": UP} if host is None else {"n1": host})
        assert (one.what, seen in one.evidence, one.next) == ("its kubelet is left alone", True, then)
    assert found(a_node(None), plane=a_plane(follow=False)) == []


def test_those_of_which_the_same_is_to_be_said_are_one_finding() -> None:
    [one] = found(*(a_node(None, name=f"n{number}") for number in range(7)), hosts={"x": UP})
    assert one.subject == "n0, n1, n2, n3, n4 and 2 more"


def test_who_waits_is_named_only_where_nothing_is_on_its_way() -> None:
    waits = {"waits": [{"node": "n1", "why": "spec.paused is true"}]}
    behind, paused = a_node(BEHIND, runs=V36), a_plane(kubelets=waits)
    paused["spec"]["paused"] = True
    [one] = found(behind, plane=paused)
    assert (one.evidence, one.next) == (
        f"{V37} is wanted, it is {V36}: spec.paused is true",
        "autarky upgrade resume",
    )
    assert "has not ordered it" in found(behind)[0].evidence
    assert found(behind, plane=a_plane(kubelets={**waits, "changing": ["n2"]})) == []
    assert found(behind, a_node(replace(BEHIND, order=ORDER.id, number=3, state=State.STAGING), ORDER, name="n2")) == []
    moves = {"wanted": str(V37), "state": "Upgrading", "message": "", "versions": [str(V37)]}
    assert found(behind, plane=a_plane(upgrade=moves)) == []
    assert found(behind, unready={"n1"}) == []


def test_who_waits_for_one_that_failed_is_an_effect() -> None:
    assert {one.subject for one in found(ended(State.WENT_BACK), a_node(BEHIND, runs=V36, name="n2"))} == {"n1"}


@pytest.mark.parametrize(("follow", "said"), [(None, True), (False, False)])
def test_where_no_up_has_had_kubelets_follow_one_that_is_behind_is_named(follow: bool | None, said: bool) -> None:
    findings = found(a_node(None, runs=V36), a_node(None, name="n2"), plane=a_plane(follow=follow))
    assert [(one.subject, one.next) for one in findings] == ([("n1", "autarky up")] if said else [])


def test_that_a_person_has_chosen_an_older_kubelet_is_no_finding() -> None:
    assert found(a_node(None, runs=V36, pin=str(V36)), plane=a_plane(follow=None)) == []


def test_pools_that_cannot_be_understood_are_named() -> None:
    [one] = found(a_node(), plane=a_plane(kubelets={"trouble": "spec.pools: it is no list"}))
    assert (one.subject, one.evidence) == ("control plane", "spec.pools: it is no list")


def test_of_a_silent_host_nothing_is_said() -> None:
    off = NodeEvidence("n1", problem="its machine does not run", control_plane=False, has_etcd=False)
    for node in (ended(State.WENT_BACK), a_node(None), a_node(runs=V38), a_node(BEHIND, runs=V36)):
        for plane in (a_plane(), a_plane(follow=None)):
            seen = ClusterEvidence((off,), kubelets=InApi(plane, [node], [V37], 0.0))
            assert [one.what for one in diagnose(seen)] == ["its host does not answer"]


@given(value=any_json, node=any_json, number=st.integers(0, MOST_NUMBER))
def test_nothing_is_raised_for_any_objects(value: Any, node: Any, number: int) -> None:
    forged = {report.ANNOTATION: f'{{"number": {number}}}', order.ANNOTATION: "{", PIN: value}
    fields = [{"time": node, "fieldsV1": value}]
    objects: list[Any] = [node if isinstance(node, dict) else {}]
    objects.append({"metadata": {"name": value, "annotations": forged, "managedFields": fields}, "status": value})
    for plane in (value if isinstance(value, dict) else {}, a_plane(kubelets=value), {**a_plane(), "status": node}):
        of_kubelets(InApi(plane, objects, [V37]), {"n1": UP})


# --- by the files on the host --------------------------------------------------------------------------------------


def by_host(host: OnHost) -> list[str]:
    seen = NodeEvidence("n1", balanced={}, kubelet=host)
    return [one.what for one in diagnose(ClusterEvidence((seen,), api="refused")) if one.subject == "n1"]


@pytest.mark.parametrize(
    ("host", "stuck"),
    [
        (replace(UP, trial=TRIAL), True),
        (replace(UP, trial={**TRIAL, "ceiling": str(10_000 - HANGS_SECONDS)}), False),
        (replace(UP, trial={**TRIAL, "ceiling": "much"}), False),
        (replace(UP, trial={**TRIAL, "ceiling": "\u00b2"}), False),
        (replace(UP, trial={**TRIAL, "ceiling": "9" * 5000}), False),
        (replace(UP, trial={**TRIAL, "ceiling": "11000", "boot": "b0"}), True),
        (replace(UP, trial=TRIAL, result={"order": "0f"}), False),
        (replace(UP, trial=TRIAL, boot=""), False),
        (replace(UP, ask={"order": "0f", "boot": "b1", "uptime": "9990"}), False),
        (replace(UP, ask={"order": "0f", "boot": "b1", "uptime": "9000"}), True),
        (replace(UP, ask={"order": "0f", "boot": "b0", "uptime": "9990"}), True),
        (replace(UP, ask={"order": "0f", "boot": "b0"}, result={"order": "0f"}), False),
    ],
)
def test_a_trial_or_an_ask_that_nobody_carries_out_is_stuck_with_the_api_or_without(host: OnHost, stuck: bool) -> None:
    whats = ["a change of its kubelet is stuck"] if stuck else []
    assert by_host(host) == whats
    late = ORDERED_AT + 2 * LATE_SECONDS
    again = found(a_node(BEHIND, ORDER, runs=V36), hosts={"n1": host}, now=late)
    assert [one.what for one in again] == ["a change of its kubelet is stuck"], "said once"


def test_a_host_that_has_no_complete_generation_cannot_start_its_kubelet() -> None:
    assert by_host(replace(UP, current="")) == ["its kubelet has no generation to start with"]
    assert by_host(OnHost()) == [], "no `up` has made any yet"


@pytest.mark.parametrize(
    ("result", "what"),
    [("good", None), ("back", "taken back"), ("refused", "refused"), ("failed", "not healthy, either"), ("odd", None)],
)
def test_without_the_api_the_script_says_how_the_last_change_ended(result: str, what: str | None) -> None:
    host = replace(UP, result={"result": result, "why": "it exited"}, words="no such flag")
    said = of_kubelets(None, {"n1": host})
    assert [(what or "") in one.what for one in said] == ([] if what is None else [True])
    assert all(one.evidence == "it exited; its last words: no such flag" for one in said)
    assert found(a_node(), hosts={"n1": host}) == [], "with the API that is history"


@pytest.fixture
def looked_at(tmp_path: Path) -> Callable[[], OnHost | None]:
    """What doctor's script finds below the directory, as it is read."""
    paths = ("manifests", "fence", "copy", "kept", "peer_ca", "configuration_path", "configuration_file")
    values = {
        **{name: tmp_path / "none" / name for name in paths},
        **dict.fromkeys(("units", "disks", "api_ports"), ""),
    }
    ports = {"etcd_port": 1, "balancer_port": 1, "sync_seconds": 0}
    script = program(evidence.__file__, "doctor.sh", kubelets=tmp_path, slot_lock=tmp_path / "lock", **ports, **values)

    def look() -> OnHost | None:
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
        return on_host(read_said(done.stdout, ()))

    return look


def test_the_script_prints_what_the_files_say(tmp_path: Path, looked_at: Callable[[], OnHost | None]) -> None:
    empty = looked_at()
    assert empty is not None
    assert (empty.has_base, empty.current, empty.ask, empty.trial, empty.result, empty.words) == (
        False,
        "",
        {},
        {},
        {},
        "",
    )
    assert empty.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert empty.uptime > 0
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / files.COMPLETE).write_bytes(files.written({"generation": "aa"}))
    (tmp_path / "current").symlink_to("aa")
    (tmp_path / "base.json").write_text("{}")
    result = {"order": "0f", "result": "back", "why": "it was not proven: two  words"}
    (tmp_path / "result").write_bytes(files.written(result))
    (tmp_path / "trial").write_bytes(files.written(TRIAL))
    (tmp_path / "ask").write_text("order 1")  # no end of line: what follows is not lost
    (tmp_path / "last-words").write_text("one\ntwo\nthree\nE1129 four")
    full = looked_at()
    assert full is not None
    assert (full.has_base, full.current, full.words) == (True, "aa", "two three E1129 four")
    assert (full.ask, full.trial) == ({"order": "1"}, TRIAL)
    assert full.result == {**result, "why": "it was not proven: two words"}


def test_what_a_host_may_print_is_bounded() -> None:
    said = on_host(read_said("\n".join(["kubelet host uptime 1" + "0" * 30, "kubelet words " + "x" * 10_000]), ()))
    assert said is not None
    assert (said.uptime, len(said.words) < 1000) == (0, True)
    assert on_host(read_said("kubelet\nkubelet ask\nkubelet odd a b", ())) is None
