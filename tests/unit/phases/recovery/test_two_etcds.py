"""No recovery begins beside members that serve and that it cannot stop: there would be two etcds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky import places
from autarky.errors import Refused
from autarky.phases.recovery.serving import noted
from autarky.phases.recovery.state import FromKept, FromMember, FromSnapshot
from autarky.ports import Completed
from fakes.recovering_host import RecoveringHost
from unit.phases.recovery.scenes import OLD, Scene, all_is_well

pytestmark = pytest.mark.looptime
OTHERS = r"etcd serves on n2 \(192\.0\.2\.12\), n3 \(192\.0\.2\.13\)"


def sources(snapshot: FromSnapshot) -> list[object]:
    return [snapshot, replace(snapshot, node="n1"), FromMember(), FromMember("n1"), FromKept()]


async def refused(scene: Scene, snapshot: FromSnapshot, said: str = OTHERS) -> str:
    """Every kind of recovery, before its first act. Returns how to go on."""
    found = ""
    for source in sources(snapshot):
        with pytest.raises(Refused, match=said) as why:
            await scene.run(source)
        assert scene.etcd.acts == []
        found = str(why.value)
    return found


async def test_members_whose_hosts_do_not_answer_to_us_are_asked_through_those_that_do(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    scene.cut_off("n2", "n3")
    assert "make its host reachable, or power it off" in await refused(scene, snapshot)
    assert scene.etcd.serving() == [OLD]


async def test_also_where_the_member_on_the_host_that_answers_is_down(scene: Scene, snapshot: FromSnapshot) -> None:
    """It says of the quorum that it does not reach one."""
    scene.cut_off("n2", "n3")
    scene.hosts["n1"].process = False
    scene.hosts["n1"].take_away_pods()
    await refused(scene, snapshot)


async def test_a_member_that_reads_by_others_which_nobody_reaches_shows_them(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    scene.cut_off("n2", "n3", no_route=True)
    await refused(scene, snapshot)


@pytest.mark.parametrize("remembered", [False, True])
@pytest.mark.parametrize("down", [False, True])
async def test_members_that_the_file_does_not_have_are_found_in_lists(
    scene: Scene, snapshot: FromSnapshot, remembered: bool, down: bool
) -> None:
    """A file from last year. By what this machine remembers, or by what the agents have noted."""
    scene.not_in_file("n2", "n3", remembered=remembered)
    if not remembered:
        members = [{"name": name, "address": scene.hosts[name].host_facts.address} for name in scene.hosts]
        scene.hosts["n1"].files[places.MEMBERS_FILE] = (json.dumps(members).encode(), 0o600)
    if down:
        scene.hosts["n1"].process = False
        scene.hosts["n1"].take_away_pods()
    assert "cannot be found in the cluster file" in await refused(scene, snapshot)


async def test_or_in_the_list_of_the_quorum_alone(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.not_in_file("n2", "n3")
    await refused(scene, snapshot)


async def test_all_in_the_list_of_a_quorum_are_asked_that_only_another_host_reaches(scenes) -> None:
    """n5 is in no file and in no list of n1."""
    scene = scenes(5)
    scene.cut_off("n2", "n3", "n4", "n5")
    scene.not_in_file("n5")
    scene.hosts["n1"].process = False
    scene.hosts["n1"].take_away_pods()
    with pytest.raises(Refused, match=r"n5 \(192\.0\.2\.15\) cannot be found in the cluster file"):
        await scene.run(FromMember())
    assert scene.etcd.acts == []


async def test_one_of_three_that_cannot_be_fenced_is_one_too_many(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.cut_off("n3")
    for source in (snapshot, replace(snapshot, node="n1")):
        with pytest.raises(Refused, match=r"etcd serves on n3 \(192\.0\.2\.13\), whose host"):
            await scene.run(source)
    assert scene.etcd.acts == []


async def test_one_that_is_off_stands_in_no_ones_way(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.off("n3")
    assert any("n3 does not answer" in one for one in await scene.plan(snapshot))
    await scene.run(snapshot)
    scene.on("n3")
    scene.etcd.agents_look()
    all_is_well(scene)


async def test_a_single_member_that_runs_elsewhere_and_has_no_leader_does_not_serve(scene: Scene) -> None:
    scene.lost_quorum()
    host = scene.hosts["n2"]
    host.off, host.process = False, True
    scene.hosts["n1"].process = False
    scene.hosts["n1"].take_away_pods()
    scene.cut_off("n2")
    assert (await scene.run(FromMember())).seat == "n1"


async def test_a_node_that_is_not_in_the_file_is_named_where_its_member_is_silent(scene: Scene) -> None:
    scene.lost_quorum()
    scene.not_in_file("n2", "n3", remembered=True)
    said = await scene.plan(FromMember())
    for name in ("n2", "n3"):
        assert f"{name} is in the cluster and not in its file: it must not run etcd while this goes on" in said


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[1]", b'[{"name": 1}]', b'{"a": 1}', b'[{"address": "x", "port": "y"}]']
)
def test_a_list_that_cannot_be_understood_has_nobody(content: bytes | None) -> None:
    assert noted(content) == {}


def test_the_second_member_of_a_node_has_a_port_of_its_own() -> None:
    found = noted(
        b'[{"name": "n1", "address": "192.0.2.11"}, {"name": "n1:second", "address": "192.0.2.11", "port": 2479}]'
    )
    assert found == {"https://192.0.2.11:2379": "n1", "https://192.0.2.11:2479": "n1:second"}


async def test_an_etcd_that_reads_and_says_nothing_else_is_not_lost(scene: Scene, monkeypatch) -> None:
    """Its list of members needs the quorum as well, which may be lost just now."""
    said_by = RecoveringHost._said_by

    def no_list(self, cluster, arguments, **how):
        if arguments[:2] == ["member", "list"]:
            return Completed(1, b"", "Error: context deadline exceeded")
        return said_by(self, cluster, arguments, **how)

    monkeypatch.setattr(RecoveringHost, "_said_by", no_list)
    with pytest.raises(Refused, match="etcd has a quorum"):
        await scene.run(FromMember())
    assert scene.etcd.acts == []
