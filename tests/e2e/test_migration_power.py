"""The node and the machine of the etcd outside lose their power after single writes of a move of etcd, in and out by
members, and in by a copy: the same command ends it, or, before the decision on a copy, the former file takes it back.
There is one etcd at any time, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import copies
import pytest
from cuts_of_etcd import TIMEOUT, cut_after_writes_of, share_of, shown
from harness import Show, TestCluster
from migrations import dialled, members
from one_etcd import one_etcd_at_a_time
from power import RETURN_SECONDS, Client, Writer
from slots import settled

from autarky import places

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

NODE = {"name": "n1", "host": "lab", "roles": ["control-plane", "worker"]}
INSIDE: dict[str, Any] = {"selfHosted": "1-4", "nodes": [NODE]}
OUTSIDE: dict[str, Any] = {"selfHosted": "2-4", "nodes": [NODE], "etcd": {"external": {"lab": "etcd1"}}}
HOSTS = ("n1", "etcd1")
DRAWN_OF = 6
"""One of so many writes is drawn."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-migration-power", **OUTSIDE)
    cluster.up()
    return cluster


def command(cluster: TestCluster, *, into: bool) -> list[str]:
    cluster.spec = INSIDE if into else OUTSIDE
    return ["etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain"]


def is_inside(cluster: TestCluster) -> bool:
    return "https://127.0.0.1:2378" in dialled(cluster)


def begins(cluster: TestCluster, *, inside: bool) -> None:
    """With etcd there: where it is not, it moves by members, without a cut."""
    if is_inside(cluster) is not inside:
        cluster.autarky(*command(cluster, into=inside))


def has_ended(cluster: TestCluster, *, inside: bool) -> None:
    host = "n1" if inside else "etcd1"
    assert list(members(cluster, host)) == [host]
    assert len(dialled(cluster)) == 1
    assert is_inside(cluster) is inside
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=240)


def answers_by_itself(cluster: TestCluster, writer: Writer) -> None:
    """What was acknowledged before the cut is there before the move goes on."""
    cluster.wait("the API answers", Client(cluster).answers, seconds=RETURN_SECONDS)
    assert writer.lost() == set()


@pytest.mark.parametrize("into", [True, False], ids=["in", "out"])
def test_a_move_of_etcd_is_ended_by_the_same_command(
    cluster: TestCluster, seed: str, show: Show, *, into: bool
) -> None:
    argv, writer = command(cluster, into=into), Writer(Client(cluster))

    def prepare() -> None:
        begins(cluster, inside=not into)
        command(cluster, into=into)

    def again() -> None:
        answers_by_itself(cluster, writer)
        with writer.writing():
            cluster.autarky(*argv)

    def check() -> None:
        has_ended(cluster, inside=into)
        assert copies.lost(cluster, writer) == set()

    share = share_of("", seed, one_of=DRAWN_OF, most=1)
    with one_etcd_at_a_time(cluster, *HOSTS):
        cuts = cut_after_writes_of(
            cluster, argv, share, prepare=prepare, again=again, check=check, hosts=HOSTS, during=writer.writing
        )
    assert len(writer.acknowledged) > 20
    shown(show, "a move of etcd", cuts)


# --- by a copy ------------------------------------------------------------------------------------------------------


def mark_of_the_copy(cluster: TestCluster) -> dict[str, Any] | None:
    """As the cut has left it; None where there is none yet, or none any more."""
    found = cluster.shell("n1", f"if [ -e {places.ETCD_COPY} ]; then cat {places.ETCD_COPY}; fi")
    return dict(json.loads(found)) if found else None


@pytest.mark.parametrize("back", [True, False], ids=["former-file", "same-command"])
def test_a_copy_of_etcd_is_taken_back_before_the_decision_and_ended_after_it(
    cluster: TestCluster, seed: str, show: Show, *, back: bool
) -> None:
    """In the pause both etcds refuse everybody, also when they have come back: so nobody waits for the API there."""
    argv, writer = copies.command(cluster, INSIDE), Writer(Client(cluster))
    inside = True

    def prepare() -> None:
        nonlocal inside
        begins(cluster, inside=False)
        copies.command(cluster, INSIDE)
        inside = True

    def again() -> None:
        nonlocal inside
        mark = mark_of_the_copy(cluster)
        if mark is None or not mark["paused"]:
            answers_by_itself(cluster, writer)
        decided = is_inside(cluster) if mark is None else bool(mark["opened"])
        show(f"the copy was {'decided' if decided else 'not decided yet'} when the power was cut")
        inside = decided or not back
        with writer.writing():
            if back and mark is not None and decided:
                refused = cluster.autarky(*command(cluster, into=False), check=False)
                assert refused.status == 6
                assert "etcd is being copied into the cluster" in refused.stderr
            cluster.autarky(*(copies.command(cluster, INSIDE) if inside else command(cluster, into=False)))

    def check() -> None:
        has_ended(cluster, inside=inside)
        assert mark_of_the_copy(cluster) is None
        assert not cluster.shell("n1", "ls -d /var/lib/etcd/copy.* 2>/dev/null || true").strip()
        assert copies.lost(cluster, writer) == set()

    share = share_of("", f"{seed} {back}", one_of=DRAWN_OF, most=1)
    with one_etcd_at_a_time(cluster, *HOSTS, silent=["n1"] if back else []):  # what is taken back has not answered
        cuts = cut_after_writes_of(
            cluster, argv, share, prepare=prepare, again=again, check=check, hosts=HOSTS, during=writer.writing
        )
    assert len(writer.acknowledged) > 20
    shown(show, "a copy of etcd", cuts)
