"""The only node loses its power after single writes of what changes its etcd: what was begun is ended, by the same
command or by the agents, there is one etcd at any time, and nothing is lost but what a restore takes back.

The last one leaves an etcd of a newer minor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cuts_of_etcd import (
    TIMEOUT,
    Share,
    any_write,
    cut_after_writes_of,
    cut_after_writes_of_agents,
    of_kinds,
    share,
    shown,
)
from etcd_versions import (
    CHANGE_SECONDS,
    NEWER,
    command_line,
    etcd_now,
    image_of_another_patch,
    is_changed,
    is_made_of,
    own_image,
    patch_of,
    wanted,
)
from harness import Show, TestCluster, one_node
from one_etcd import one_etcd_at_a_time
from power import Client, Writer
from recoveries import SPACE, Keys, backed_up, data_of, members_agree, nothing_is_left_over, restored, write, written
from rollouts import patch_plane
from slots import settled
from two_clusters import Read, has_become_another

from autarky.model.etcd_members import SECOND_SUFFIX

__all__ = ["share"]
pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(TIMEOUT, func_only=True)]

KINDS = {"content": "(create|write|truncate|chmod|fsync) "}
MIB = 2**20


@pytest.fixture(scope="module")
def of_module(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-power", **one_node())
    cluster.up()
    cluster.kubectl("create", "namespace", SPACE)
    return cluster


@pytest.fixture
def cluster(of_module: TestCluster) -> TestCluster:
    of_module.wait("everything is settled", lambda: settled(of_module), seconds=240)
    return of_module


@pytest.fixture
def writer(cluster: TestCluster) -> Writer:
    return Writer(Client(cluster))


def one_etcd(cluster: TestCluster) -> None:
    members_agree(cluster, ["n1"])
    nothing_is_left_over(cluster, "n1")
    assert [name for name in cluster.static_pods("n1") if "etcd" in name]


@of_kinds(KINDS, one_of=8, most=2)
def test_a_restore_is_ended_by_the_same_command(cluster: TestCluster, share: Share, show: Show, tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    write(cluster, before="1")
    archive = backed_up(cluster, keys, tmp_path / "archive")

    def check() -> None:
        assert written(cluster) == {"before": "1"}
        one_etcd(cluster)

    with one_etcd_at_a_time(cluster, "n1", another=True):
        cuts = cut_after_writes_of(
            cluster,
            ["restore", str(archive), "--identity", str(keys.file), "--yes", "--cluster", cluster.name],
            share,
            prepare=lambda: write(cluster, after=str(time.time())),
            again=lambda: restored(cluster, archive, keys),
            check=check,
        )
    shown(show, "a restore", cuts)


@of_kinds(KINDS, one_of=8, most=2)
def test_a_recovery_of_a_hung_member_is_ended_by_the_same_command(
    cluster: TestCluster, share: Share, show: Show, writer: Writer
) -> None:
    argv, recovered = ["etcd", "recover-quorum", "--cluster", cluster.name, "--yes", "-o", "plain"], False

    def prepare() -> None:
        with writer.writing():
            time.sleep(3)
            cluster.announce()
            cluster.shell("n1", "pkill -x -STOP etcd")

    def again() -> None:
        """It is refused where nothing was fenced yet: then the member has come back with its machine."""
        nonlocal recovered
        ended = cluster.autarky(*argv, check=False)
        if ended.status:
            assert "etcd has a quorum" in ended.stderr, ended.stderr
        else:
            recovered = True

    def check() -> None:
        cluster.wait("the API answers", Client(cluster).answers, seconds=240)
        assert writer.lost() == set()
        one_etcd(cluster)

    with one_etcd_at_a_time(cluster, "n1") as reads:
        cuts = cut_after_writes_of(cluster, argv, share, prepare=prepare, again=again, check=check)
    assert has_become_another(reads) or not recovered
    assert len(writer.acknowledged) > 20
    shown(show, "a recovery", cuts)


# --- by an edit of the ControlPlane -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """etcd: what it says of etcd. reached: whether the member has it."""

    etcd: Mapping[str, Any]
    reached: Callable[[], bool]


def another_quota(cluster: TestCluster) -> Edit:
    quota = _etcd_of_plane(cluster).get("quotaBytes", 2**31 + int(time.time()) % 1000 * MIB) + MIB
    return Edit({"quotaBytes": quota}, lambda: f"--quota-backend-bytes={quota}" in command_line(cluster, "n1"))


def another_version(cluster: TestCluster) -> Edit:
    patched = image_of_another_patch(cluster, "n1")
    asked = own_image() if patch_of(patched) == _etcd_of_plane(cluster).get("version") else patched
    return Edit({"version": patch_of(asked)}, lambda: is_made_of(cluster, "n1", asked))


def _etcd_of_plane(cluster: TestCluster) -> dict[str, Any]:
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    return dict(plane["spec"].get("etcd") or {})


def is_over(cluster: TestCluster, before: dict[str, str]) -> bool:
    """With the last work: the data of the second member is removed. before: the revisions that the members should have
    had."""
    return is_changed(cluster, before) and "second" not in data_of(cluster, "n1")


def stood_in(cluster: TestCluster, writer: Writer, reads: Collection[Read]) -> None:
    """The second member, which nothing is left of."""
    assert f"n1{SECOND_SUFFIX}" in {one.host for one in reads}, "the second one has not served"
    assert writer.lost() == set()
    one_etcd(cluster)


@of_kinds(KINDS, one_of=6, most=1)
@pytest.mark.parametrize("another", [another_quota, another_version], ids=["quota", "version"])
def test_a_change_of_the_only_member_is_ended_by_the_agents(
    cluster: TestCluster,
    share: Share,
    show: Show,
    writer: Writer,
    another: Callable[[TestCluster], Edit],
) -> None:
    """A second member on the same node stands in for it: there and back."""
    before, edit = dict[str, str](), Edit({}, lambda: False)

    def begin() -> None:
        nonlocal before, edit
        before, edit = wanted(cluster), another(cluster)
        patch_plane(cluster, etcd=edit.etcd)

    def check() -> None:
        stood_in(cluster, writer, reads)
        assert edit.reached(), edit

    with one_etcd_at_a_time(cluster, "n1") as reads:
        cuts = cut_after_writes_of_agents(
            cluster,
            share,
            node="n1",
            begin=begin,
            over=lambda: is_over(cluster, before),
            check=check,
            writer=writer,
            seconds=CHANGE_SECONDS,
        )
    shown(show, "a change", cuts)


def test_a_step_to_a_newer_minor_is_ended_by_the_agents(
    cluster: TestCluster, seed: str, show: Show, writer: Writer
) -> None:
    """From which there is no way back: so one write is drawn, of all."""
    cluster.autarky("payload", "etcd", "push", NEWER, "--cluster", cluster.name)
    before = wanted(cluster)

    def check() -> None:
        stood_in(cluster, writer, reads)
        assert etcd_now(cluster)["n1"]["version"] == NEWER

    with one_etcd_at_a_time(cluster, "n1") as reads:
        cuts = cut_after_writes_of_agents(
            cluster,
            any_write(seed, one_of=4),
            node="n1",
            begin=lambda: patch_plane(cluster, etcd={"version": NEWER}),
            over=lambda: is_over(cluster, before),
            check=check,
            writer=writer,
            seconds=CHANGE_SECONDS,
        )
    shown(show, "a step to a newer minor", cuts)
