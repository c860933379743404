"""Bars and marks of journals, containers, objects of the API and the command, all on one axis."""

from __future__ import annotations

import json

from _timeline_lanes import (
    BOOTED_ID,
    FAILED_ID,
    IN_API,
    IS_READY,
    IS_SCHEDULED,
    RUNNING,
    STARTED_ID,
    STARTING,
    STARTING_ID,
    STOPPED_ID,
    STOPPING_ID,
    WAITING,
    Bar,
    Clock,
    Lane,
    Mark,
    container_lanes,
    in_order,
    lease_lanes,
    node_lanes,
    phase_lanes,
    pod_marks,
    unit_lanes,
    with_marks,
)

from autarky.model.runtime import Container, ContainerStatus, Sandbox

CLOCK = Clock(1_700_000_000.0)
"""The monotonic clock began at 2023-11-14T22:13:20Z."""


def entry(at, message, unit=None):
    fields = {"__MONOTONIC_TIMESTAMP": str(int(at * 1e6)), "__REALTIME_TIMESTAMP": "1", "MESSAGE_ID": message}
    return json.dumps(fields | ({"UNIT": unit} if unit else {}))


def bars(lane):
    return [(bar.begin, bar.end, bar.kind) for bar in lane.bars]


def test_a_unit_starts_runs_and_stops_by_the_monotonic_clock_of_the_journal():
    times = ((1, STARTING_ID), (1.5, STARTED_ID), (4, STOPPING_ID), (5, STOPPED_ID), (6, STARTED_ID))
    journal = "\n".join(entry(at, message, "kubelet.service") for at, message in times)
    (lane,) = unit_lanes("n1", f"-- Journal begins --\n{journal}\n")
    assert (lane.where, lane.name) == ("n1", "kubelet")
    assert bars(lane) == [(1, 1.5, STARTING), (1.5, 4, RUNNING), (6, None, RUNNING)]


def test_a_unit_that_failed_runs_no_more():
    journal = "\n".join((entry(1, STARTED_ID, "containerd.service"), entry(2, FAILED_ID, "containerd.service")))
    assert bars(unit_lanes("n1", journal)[0]) == [(1, 2, RUNNING)]


def test_other_units_are_shown_when_their_start_took_time_and_the_boot_always():
    parts = [("quick.service", 0.1), ("slow.service", 0.5), ("slow.mount", 0.5)]
    journal = "\n".join(
        entry(1 + late, message, unit)
        for unit, took in parts
        for late, message in ((0, STARTING_ID), (took, STARTED_ID))
    )
    lanes = unit_lanes("n1", journal + "\n" + entry(3, BOOTED_ID))
    assert [lane.name for lane in lanes] == ["boot", "slow"]
    assert lanes[0].marks == (Mark(3, "systemd has booted"),)


# --- containers -----------------------------------------------------------------------------------


def sandbox(id_="s1", created=0.0):
    return Sandbox(id_, "etcd-n1", "kube-system", "u", 0, True, CLOCK.ahead + created, {}, {})


def run(name, created, started, finished=None, *, id_="c1", pod="etcd-n1", in_sandbox="s1", attempt=0, code=None):
    def of_day(at):
        return None if at is None else CLOCK.ahead + at

    container = Container(id_, in_sandbox, name, attempt, "running", of_day(created), "i", "i", pod, "kube-system", "u")
    times = (of_day(created), of_day(started), of_day(finished))
    return container, ContainerStatus(id_, name, attempt, "running", *times, code, "", "", "")


def test_the_first_container_of_a_pod_is_being_made_from_its_sandbox_on_and_the_next_from_its_own_creation():
    found = container_lanes(
        "n1", CLOCK, [sandbox(created=2)], [run("main", 6, 7, id_="c2"), run("init", 3, 4, 5, code=0)], 0.0
    )
    assert [(lane.name, bars(lane)) for lane in found] == [
        ("etcd-n1 / init", [(2, 4, STARTING), (4, 5, RUNNING)]),
        ("etcd-n1 / main", [(6, 7, STARTING), (7, None, RUNNING)]),
    ]
    assert found[0].bars[-1].text == "etcd-n1 / init, run 1, exit code 0"


def test_a_pod_named_like_its_container_is_named_once_and_all_its_runs_are_on_one_lane():
    runs = [run("etcd", 5, 6, attempt=1, id_="c2"), run("etcd", 1, 2, 4, code=1)]
    (lane,) = container_lanes("n1", CLOCK, [], runs, 0.0)
    assert (lane.name, [bar.begin for bar in lane.bars]) == ("etcd-n1", [1, 2, 5, 6])


def test_what_ran_before_the_power_was_cut_is_left_out_though_its_sandbox_or_its_pod_is_the_same():
    runs = [run("etcd", 1, 2, 9), run("etcd", 11, 12, id_="c2")]
    (lane,) = container_lanes("n1", CLOCK, [sandbox(created=8)], runs, 10.0)
    assert [bar.begin for bar in lane.bars] == [8, 12]


def test_a_container_that_did_not_start_is_no_running_one():
    (lane,) = container_lanes("n1", CLOCK, [], [run("etcd", 1, None, 3)], 0.0)
    assert bars(lane) == [(1, 3, STARTING)]


# --- the API --------------------------------------------------------------------------------------


def pod(name="etcd-n1", node="n1", *, created="2023-11-14T22:13:25Z", ready="2023-11-14T22:13:27Z", status="True"):
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-11-14T22:13:26Z"},
        {"type": "Ready", "status": status, "lastTransitionTime": ready},
        {"type": "Initialized", "status": "True", "lastTransitionTime": ready},
    ]
    metadata = {"name": name, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": conditions}}


def test_a_pod_is_in_the_api_scheduled_and_ready():
    found = pod_marks([pod()], CLOCK, 0.0)
    assert found == {("n1", "etcd-n1"): [Mark(5, IN_API), Mark(6, IS_SCHEDULED), Mark(7, IS_READY)]}


def test_one_that_is_not_ready_has_no_mark_for_it_nor_what_was_before():
    assert pod_marks([pod(status="False")], CLOCK, 6.5) == {("n1", "etcd-n1"): [Mark(6, IS_SCHEDULED)]}


def test_a_pod_that_is_nowhere_yet_is_no_error():
    assert pod_marks([{"metadata": {"name": "x"}, "spec": {}}], CLOCK, 0.0) == {("", "x"): []}


def test_the_marks_of_a_pod_are_on_the_container_that_runs_and_on_no_other_node_s():
    ended, runs = (Bar(1, 2, ""),), (Bar(2, None, ""),)
    lanes = [
        Lane("n1", "flannel-x / install", ended),
        Lane("n1", "flannel-x / main", runs),
        Lane("n1", "flannel-x / other", runs),
        Lane("n2", "flannel-x / main", runs),
        Lane("n1", "flannel-xy / main", runs),
    ]
    mark = Mark(3, IS_READY)
    found = with_marks(lanes, {("n1", "flannel-x"): [mark]})
    assert [lane.marks for lane in found] == [(), (mark,), (), (), ()]
    assert with_marks(lanes[:1], {("n1", "flannel-x"): [mark]})[0].marks == (mark,)


def test_a_node_that_stayed_ready_through_the_power_cut_has_no_lane():
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:30Z"}
    node = {
        "metadata": {"name": "n1", "creationTimestamp": "2023-11-14T22:13:21Z"},
        "status": {"conditions": [ready]},
    }
    assert node_lanes([node], CLOCK, 9.0) == [Lane("n1", "Node", (), (Mark(10, IS_READY),))]
    assert node_lanes([node], CLOCK, 20.0) == []


def test_a_lease_is_a_bar_of_its_holder_from_when_it_was_acquired():
    def lease(name, **spec):
        return {"metadata": {"name": name}, "spec": spec}

    leases = [
        lease("scheduler", holderIdentity="n1_x", acquireTime="2023-11-14T22:13:28.250000Z", leaseTransitions=2),
        lease("manager", holderIdentity="n1_y", acquireTime="2023-11-14T22:13:27.000000Z"),
        lease("before", holderIdentity="n1_z", acquireTime="2023-11-14T22:13:22.000000Z"),
        lease("free", holderIdentity="", acquireTime="2023-11-14T22:13:28.000000Z"),
        lease("n1", holderIdentity="n1", renewTime="2023-11-14T22:13:28.000000Z"),
        {"metadata": {"name": "empty"}},
    ]
    found = lease_lanes("the cluster", leases, CLOCK, 5.0)
    assert [(lane.name, bars(lane)) for lane in found] == [
        ("lease manager", [(7, None, RUNNING)]),
        ("lease scheduler", [(8.25, None, RUNNING)]),
    ]
    assert found[1].bars[0].text == "n1_x, transition 2"


# --- the command ----------------------------------------------------------------------------------


def event(at, kind, phase="", **more):
    return json.dumps({"kind": kind, "time": CLOCK.ahead + at, "operation": "up", "phase": phase, **more})


def wait(at, last, what="the API answers"):
    return event(at, "waiting", "start", what=what, deadline=9.0, last=last)


def test_a_phase_is_a_lane_and_so_is_what_it_waits_for_each_time():
    events = [
        event(0, "operation-started", title="", phases=[], titles=[]),
        event(1, "phase-started", "start", title="Start", number=1, of=1),
        *(wait(2, "refused"), wait(3, "refused"), wait(4, "")),
        *(wait(5, "503"), wait(6, ""), wait(6.5, "none", "a lease")),
        event(7, "phase-ended", "start", title="Start", outcome="changed", seconds=6.0),
        event(7, "phase-started", "nothing", title="Nothing", number=2, of=2),
        event(7.05, "phase-ended", "nothing", title="Nothing", outcome="unchanged", seconds=0.05),
    ]
    found = phase_lanes("the command", "a warning of Python's\n" + "\n".join(events), CLOCK)
    assert [(lane.name, bars(lane)) for lane in found] == [
        ("start", [(1, 7, RUNNING)]),
        ("… the API answers", [(2, 4, WAITING), (5, 6, WAITING)]),
        ("… a lease", [(6.5, 7, WAITING)]),
    ]


def test_lanes_are_in_the_order_of_places_and_there_of_their_beginnings():
    lanes = [Lane("n2", "a", (Bar(1, 2, ""),)), Lane("n1", "b", (Bar(5, 6, ""),)), Lane("n1", "c", (), (Mark(3, ""),))]
    assert [lane.name for lane in in_order(lanes, ["n1", "n2"])] == ["c", "b", "a"]
