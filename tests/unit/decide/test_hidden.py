"""What hides the living from the kubelet: by the number of the attempt, whatever the clock said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.decide.hidden import hiding
from autarky.model.runtime import Container, ContainerState, Sandbox


def sandbox(uid: str, attempt: int, created: float, *, ready: bool) -> Sandbox:
    return Sandbox(f"{uid}-{attempt}", uid, "kube-system", uid, attempt, ready, created, {}, {})


def container(uid: str, name: str, attempt: int, created: float, state: ContainerState, sandbox_id: str) -> Container:
    identity = f"{uid}-{name}-{attempt}"
    return Container(identity, sandbox_id, name, attempt, state, created, "i", "i", uid, "kube-system", uid)


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


def test_a_container_that_was_started_anew_after_the_clock_was_set_back_is_hidden_by_the_dead_one():
    sandboxes = [sandbox("etcd", 0, 50, ready=True)]
    containers = [
        container("etcd", "etcd", 1, 40, "running", "etcd-0"),
        container("etcd", "etcd", 0, 60, "exited", "etcd-0"),
        container("etcd", "other", 0, 61, "running", "etcd-0"),
    ]
    assert named(sandboxes, containers) == ([], ["etcd-etcd-0"])


def test_while_nothing_lives_nothing_is_hidden():
    sandboxes = [sandbox("etcd", 2, 100, ready=False), sandbox("etcd", 1, 220, ready=False)]
    containers = [container("etcd", "etcd", attempt, 300 - attempt, "exited", f"etcd-{attempt}") for attempt in (1, 2)]
    assert named(sandboxes, containers) == ([], [])


RUNS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.floats(0, 9), st.booleans()),
    unique_by=lambda run: run[:2],
)


@given(RUNS, RUNS)
def test_only_what_is_dead_goes_and_what_is_left_of_the_living_is_what_was_made_last(boxes, runs):
    sandboxes = [sandbox(uid, attempt, created, ready=ready) for uid, attempt, created, ready in boxes]
    containers = [
        container(uid, "main", attempt, created, "running" if lives else "exited", f"{uid}-{attempt}")
        for uid, attempt, created, lives in runs
    ]
    found = hiding(sandboxes, containers)
    assert not [one for one in found.sandboxes if one.ready]
    assert not [one for one in found.containers if one.state == "running"]
    gone = {one.id for one in found.sandboxes}
    for uid in "ab":
        left = [one for one in sandboxes if one.uid == uid and one.id not in gone]
        living = [one for one in left if one.ready]
        if living:
            last = max(living, key=lambda one: one.attempt)
            assert all(one.created < last.created for one in left if not one.ready and one.attempt < last.attempt)


@given(RUNS)
def test_with_a_clock_that_only_goes_on_nothing_is_named(runs):
    sandboxes = [sandbox(uid, attempt, float(attempt), ready=ready) for uid, attempt, _, ready in runs]
    containers = [
        container(uid, "main", attempt, float(attempt), "running" if lives else "exited", f"{uid}-{attempt}")
        for uid, attempt, _, lives in runs
    ]
    assert named(sandboxes, containers) == ([], [])
