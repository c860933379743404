"""Power cuts of the only node while its kubelets hand over to each other: after each write of the agent's, in each
state of the supervisor's, at moments between, and in the trial of a kubelet that does not work; and an orderly
shutdown, which does not wait for them. It comes back without help, with what is wanted in force. The moments are
fresh ones in each run; AUTARKY_SEED makes the same ones again.

A cut takes a minute with all that it waits for: so the writes are cut into parts, each of which looks at its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
from hand_over_cuts import Cuts, until_one_says
from harness import Show, TestCluster
from kubelets import bring_hosted
from level_0 import (
    DAEMON_SET,
    EXITS,
    a_hosted_kubelet,
    comes_back_hosted,
    comes_into_force,
    follows,
    host_pid,
    is_hosted,
    set_kubelet,
    shut_down,
)
from parts import REST, Draw, writes_in_parts
from power import NODE, Client, Writer, comes_back, cut, settled, stopped_after_drawn_write, table
from rollouts import explanations, judged, judged_after, last_good, version_wanted

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.rotation,
    pytest.mark.needs("v1.37.1"),
    pytest.mark.timeout(900, func_only=True),
]

FORMER, NEXT = "v1.36.4", "v1.37.1"
PATHS = "kubelet-hosted|hosted-verdict"
"""Of the agent's notes and verdicts."""
BEFORE_A_RENAME = ("create ", "chmod ", "write ", "fsync ")
PARTS = {
    "note": r"(create|chmod|write|fsync|unlink) .*/\.kubelet-hosted",
    "verdict": r"(create|chmod|write|fsync|unlink) .*/\.hosted-verdict",
}
AMONG_THEM = {
    "note": BEFORE_A_RENAME,
    "verdict": BEFORE_A_RENAME,
    REST: (r"rename .*/kubelet-hosted\.json$", r"rename .*/hosted-verdict may$", r"rename .*/hosted-verdict good$"),
}
"""Part → which of its writes there are in each hand-over."""
SHARES = [(writes, AMONG_THEM[part]) for part, writes in writes_in_parts(PARTS).items()]
MOST_CUTS = 8
STATES = ("waiting", "proving", "proven")
MOMENTS = 4
LONGEST_SECONDS = 20.0
"""A hand-over of a pod that has just been replaced is proven by then."""
JUDGED_SECONDS = 30
ENDED_SECONDS = 45.0
"""For the host's kubelet in a shutdown. Where nobody ended it systemd would wait for 90 s."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = a_hosted_kubelet(make_cluster, "t-level-0-power", NEXT)
    cluster.wait("the first one is good", lambda: last_good(cluster, DAEMON_SET), seconds=150)
    cluster.autarky("payload", "push", FORMER, "--cluster", cluster.name, timeout=300)
    follows(cluster, False)
    return cluster


@pytest.fixture(scope="module")
def writer(cluster: TestCluster) -> Writer:
    """One for all: what was acknowledged in an earlier case is not lost in a later one."""
    return Writer(Client(cluster))


def _other(cluster: TestCluster) -> str:
    """Than the version that is wanted now."""
    return FORMER if version_wanted(cluster, DAEMON_SET) == NEXT else NEXT


def _is_back(cluster: TestCluster, writer: Writer, version: str, written: int) -> tuple[float, float]:
    """Seconds to the API, and until all is where it belongs. written: how many writes there were before."""
    back = comes_back_hosted(cluster, version)
    _nothing_is_lost(writer, written)
    return back.answers, back.settled


def _nothing_is_lost(writer: Writer, written: int) -> None:
    assert len(writer.acknowledged) > written, "nothing was written that could be lost"
    assert writer.lost() == set()


@pytest.mark.parametrize(("writes", "among_them"), SHARES, ids=AMONG_THEM)
def test_a_power_cut_after_any_write_of_the_agent_ends_with_what_is_wanted(
    cluster: TestCluster, writer: Writer, show: Show, writes: str, among_them: tuple[str, ...]
) -> None:
    """Of a hand-over to another version, each time the other one, until one has no write that has yet to be taken."""
    draw, rows, taken = Draw("", 1, among_them), list[tuple[object, ...]](), set[str]()
    while True:
        version, written = _other(cluster), len(writer.acknowledged)
        with stopped_after_drawn_write(cluster, PATHS, writes, draw, taken) as found, writer.writing():
            set_kubelet(cluster, version)
            cluster.wait("a write, or the end", lambda v=version: found or is_hosted(cluster, v), seconds=120)
            if found:
                cut(cluster)
        if not found:
            break
        rows.append((*_is_back(cluster, writer, version, written), found[0]))
        taken.add(found[0])
        assert len(taken) <= MOST_CUTS, f"there are more writes than one case has time for: {taken}"
    show(table("cut after a write of a hand-over", ("answers", "in force", "write"), rows))
    assert draw.missing(taken) == [], taken


def test_a_power_cut_in_each_state_of_the_supervisor_s_ends_with_what_is_wanted(
    cluster: TestCluster, writer: Writer, show: Show
) -> None:
    rows = list[tuple[object, ...]]()
    for state in STATES:
        version, written = _other(cluster), len(writer.acknowledged)
        with writer.writing():
            set_kubelet(cluster, version)
            until_one_says(cluster, version, {state}, [NODE])
            cluster.cut_at_once(NODE)
        rows.append((*_is_back(cluster, writer, version, written), state))
    show(table("cut in a state of a hand-over", ("answers", "in force", "in"), rows))


def test_power_cuts_at_random_moments_of_hand_overs_end_with_what_is_wanted(
    cluster: TestCluster, writer: Writer, show: Show, seed: str
) -> None:
    show(f"AUTARKY_SEED={seed}")
    random, rows = Random(f"{seed} hand-over"), list[tuple[object, ...]]()  # noqa: S311 # no secret
    cuts = Cuts(cluster, MOMENTS)
    for _ in range(MOMENTS):
        version, written, moment = _other(cluster), len(writer.acknowledged), random.uniform(0, LONGEST_SECONDS)
        with writer.writing():
            set_kubelet(cluster, version)
            at = cuts.cut(version, moment, NODE)
        rows.append((*_is_back(cluster, writer, version, written), at))
    show(table("cut in a hand-over", ("answers", "in force", "at"), rows))
    assert cuts.one_was_in_a_trial, cuts.states


@pytest.mark.parametrize(
    ("version", "write"),
    [("v1.37.90", r"rename .*/hosted-verdict may$"), ("v1.37.91", r"rename .*/kubelet-hosted\.json failed$")],
    ids=["it-may-start", "it-has-failed"],
)
def test_a_power_cut_in_the_trial_of_a_kubelet_that_does_not_work_ends_with_the_good_one(
    cluster: TestCluster, writer: Writer, show: Show, version: str, write: str
) -> None:
    set_kubelet(cluster, NEXT)
    comes_into_force(cluster, NEXT, seconds=120)
    bring_hosted(cluster, version, EXITS)
    judged(cluster)
    told, written = len(explanations(cluster, DAEMON_SET)), len(writer.acknowledged)
    with judged_after(cluster, JUDGED_SECONDS):
        with stopped_after_drawn_write(cluster, PATHS, write, Draw("", 1, ()), ()) as found, writer.writing():
            set_kubelet(cluster, version)
            cluster.wait("that is written", lambda: found, seconds=120)
            cut(cluster)
        back = comes_back(cluster, lambda: version_wanted(cluster, DAEMON_SET) == NEXT)
        comes_into_force(cluster, NEXT, seconds=120)
    _nothing_is_lost(writer, written)
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=150)
    assert len(explanations(cluster, DAEMON_SET)) > told, "and that is explained"
    show(f"cut after {found[0]}: answers after {back.answers:.1f} s, taken back after {back.settled:.1f} s")


def test_an_orderly_shutdown_does_not_wait_for_the_kubelet_that_waits(
    cluster: TestCluster, writer: Writer, show: Show
) -> None:
    """The host's waits for the lock and hears no SIGTERM, and the pod's supervisor looks whether it runs."""
    version, written = version_wanted(cluster, DAEMON_SET), len(writer.acknowledged)
    comes_into_force(cluster, version, seconds=120)
    assert host_pid(cluster) != "0", "both of them run"
    with writer.writing():
        time.sleep(2)
        ended, off = shut_down(cluster)
    answers, again = _is_back(cluster, writer, version, written)
    show(f"the host's ended after {ended:.1f} s, off after {off:.1f} s")
    show(f"and on again: answers after {answers:.1f} s, all in force after {again:.1f} s")
    assert ended <= ENDED_SECONDS, f"it lived for {ended:.0f} s, and the machine was off after {off:.0f} s"
