"""What hides a later run from the kubelet: by the number of the attempt, whatever the clock said."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.clocks.decide.hidden import hiding
from autarky.model.runtime import Container, ContainerState, Sandbox


def sandbox(uid: str, attempt: int, created: float, *, ready: bool) -> Sandbox:
    return Sandbox(f"{uid}-{attempt}", uid, "kube-system", uid, attempt, ready, created, {}, {})


def container(uid: str, name: str, attempt: int, created: float, state: ContainerState, sandbox_id: str) -> Container:
    identity = f"{uid}-{name}-{attempt}"
    return Container(identity, sandbox_id, name, attempt, state, created, "i", "i", uid, "kube-system", uid)


def exited(*made: float) -> list[Container]:
    """Dead runs of one container in the one sandbox that lives, made at these times one after the other."""
    return [container("etcd", "etcd", attempt, created, "exited", "etcd-0") for attempt, created in enumerate(made)]


def dead_sandboxes(*made: float) -> list[Sandbox]:
    return [sandbox("etcd", attempt, created, ready=False) for attempt, created in enumerate(made)]


def named(sandboxes, containers) -> tuple[list[str], list[str]]:
    found = hiding(sandboxes, containers)
    return [one.id for one in found.sandboxes], [one.id for one in found.containers]


def test_after_a_boot_with_an_earlier_clock_the_sandboxes_of_the_boot_before_hide_those_of_this_one():
    sandboxes = [sandbox("etcd", 2, 100, ready=True), sandbox("etcd", 1, 220, ready=False)]
    containers = [
        container("etcd", "etcd", 2, 104, "running", "etcd-2"),
        container("etcd", "etcd", 1, 224, "exited", "etcd-1"),
    ]
    assert named(sandboxes, containers) == (["etcd-1"], [])


def test_a_container_that_was_restarted_after_the_clock_was_set_back_is_hidden_by_the_dead_one():
    sandboxes = [sandbox("etcd", 0, 50, ready=True)]
    containers = [
        container("etcd", "etcd", 1, 40, "running", "etcd-0"),
        container("etcd", "etcd", 0, 60, "exited", "etcd-0"),
        container("etcd", "other", 0, 61, "exited", "etcd-0"),
        container("dns", "etcd", 0, 62, "exited", "dns-0"),
    ]
    assert named(sandboxes, containers) == ([], ["etcd-etcd-0"])


# The kubelet wants to start the attempt after the one that was made last, and a dead run has its name, too.
DEAD_HIDE_THE_DEAD = pytest.mark.parametrize(
    ("made", "gone"),
    [
        ([12.0, 10.0], [0]),
        ([12.0, 12.0], [0]),
        ([12.0, 10.0, 11.0], [0]),
        ([12.0, 11.0, 10.0], [0, 1]),
        ([9.0, 12.0, 10.0], [1]),
        ([10.0, 11.0, 12.0], []),
    ],
)


@DEAD_HIDE_THE_DEAD
def test_a_dead_container_hides_a_later_dead_one(made, gone):
    assert named([sandbox("etcd", 0, 1, ready=True)], exited(*made)) == ([], [f"etcd-etcd-{one}" for one in gone])


@DEAD_HIDE_THE_DEAD
def test_a_dead_sandbox_hides_a_later_dead_one(made, gone):
    assert named(dead_sandboxes(*made), []) == ([f"etcd-{one}" for one in gone], [])


@pytest.mark.parametrize("state", ["created", "unknown"])
def test_what_never_ran_and_what_nobody_knows_of_has_its_name_but_is_not_dead(state):
    living = [sandbox("etcd", 0, 1, ready=True)]
    odd = container("etcd", "etcd", 1, 10, state, "etcd-0")
    assert named(living, [*exited(12), odd]) == ([], ["etcd-etcd-0"])
    later = container("etcd", "etcd", 2, 5, "running", "etcd-0")
    assert named(living, [odd, later]) == ([], [])


@pytest.mark.parametrize(
    ("state", "gone"), [("running", []), ("unknown", []), ("created", ["etcd-0"]), ("exited", ["etcd-0"])]
)
def test_a_sandbox_in_which_something_may_run_does_not_go_with_it(state, gone):
    """A runtime that could not inspect the sandbox when it started reports it as not ready."""
    assert named(dead_sandboxes(12, 10), [container("etcd", "etcd", 0, 12, state, "etcd-0")]) == (gone, [])


def test_what_goes_with_its_sandbox_is_not_removed_by_itself_and_hides_nothing():
    containers = [
        container("etcd", "etcd", 0, 12, "exited", "etcd-0"),
        container("etcd", "etcd", 1, 13, "exited", "etcd-1"),
        container("etcd", "etcd", 2, 11, "exited", "etcd-0"),
    ]
    assert named(dead_sandboxes(12, 10), containers) == (["etcd-0"], [])


def test_sandboxes_that_no_kubelet_made_are_not_runs_of_one_pod():
    """Pods without a uid are unrelated: two of them have nothing to do with each other."""
    assert named([sandbox("", 0, 200, ready=False), sandbox("", 1, 100, ready=True)], []) == ([], [])


def test_what_no_kubelet_made_is_left_alone():
    containers = [container("", "main", attempt, 9 - attempt, "exited", f"box-{attempt}") for attempt in (0, 1)]
    assert named([], containers) == ([], [])


STATES: tuple[ContainerState, ...] = ("running", "exited", "created", "unknown")
PODS, NAMES, ATTEMPTS, TIMES = (
    st.sampled_from("ab"),
    st.sampled_from(["main", "other"]),
    st.integers(0, 4),
    st.floats(0, 9),
)
SANDBOXES = st.lists(
    st.builds(sandbox, PODS, ATTEMPTS, TIMES, ready=st.booleans()),
    unique_by=lambda one: one.id,
)
CONTAINERS = st.lists(
    st.builds(
        lambda uid, name, attempt, created, state, box: container(uid, name, attempt, created, state, f"{uid}-{box}"),
        *(PODS, NAMES, ATTEMPTS, TIMES, st.sampled_from(STATES), ATTEMPTS),
    ),
    unique_by=lambda one: one.id,
)


def hides(one, runs) -> bool:
    """Whether the kubelet takes it for made after the last of these runs, which it is itself not."""
    last = max(runs, key=lambda run: run.attempt)
    return one.attempt < last.attempt and one.created >= last.created


@given(SANDBOXES, CONTAINERS)
def test_only_dead_sandboxes_go_and_none_that_is_left_hides_the_last(sandboxes, containers):
    gone = {one.id for one in hiding(sandboxes, containers).sandboxes}
    lived_in = {one.sandbox_id for one in containers if one.state in ("running", "unknown")}
    alive = {one.id for one in sandboxes if one.ready or one.id in lived_in}
    assert not gone & alive
    for uid in "ab":
        runs = [one for one in sandboxes if one.uid == uid]
        assert {one.id for one in runs if hides(one, runs)} - alive == {one.id for one in runs} & gone
        left = [one for one in runs if one.id not in gone]
        assert not [one for one in left if hides(one, left) and one.id not in alive]


@given(SANDBOXES, CONTAINERS)
def test_only_exited_containers_go_and_none_that_is_left_hides_the_last_of_its_pod_and_name(sandboxes, containers):
    found = hiding(sandboxes, containers)
    assert {one.state for one in found.containers} <= {"exited"}
    going = {one.id for one in found.sandboxes}
    gone = {one.id for one in found.containers}
    for uid, name in product("ab", ("main", "other")):
        runs = [one for one in containers if (one.pod_uid, one.name) == (uid, name) and one.sandbox_id not in going]
        assert {one.id for one in runs if hides(one, runs) and one.state == "exited"} == {one.id for one in runs} & gone
        left = [one for one in runs if one.id not in gone]
        assert not [one for one in left if hides(one, left) and one.state == "exited"]


@given(SANDBOXES, CONTAINERS)
def test_with_a_clock_that_only_goes_on_nothing_is_named(sandboxes, containers):
    sandboxes = [replace(one, created=float(one.attempt)) for one in sandboxes]
    containers = [replace(one, created=float(one.attempt)) for one in containers]
    assert named(sandboxes, containers) == ([], [])
