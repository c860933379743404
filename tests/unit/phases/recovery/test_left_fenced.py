"""A fence that a recovery has left: how it goes, and that no member starts whose etcd was replaced."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky.control.etcd.decide.lineage import FORMER
from autarky.engine.phase import Change
from autarky.errors import AutarkyError, CommandFailed, Refused
from autarky.model.cluster import Level
from autarky.phases.recovery.abandoning import AbandonRecovery
from autarky.phases.recovery.removed import NoteMembers
from autarky.phases.recovery.resuming import ABANDON
from autarky.phases.recovery.starting import StartEtcd
from autarky.phases.recovery.state import Fence, FromMember, FromSnapshot, Recovery
from autarky.places import ETCD_CHANGE, ETCD_FENCE, ETCD_FENCED, ETCD_FORMER
from unit.phases.recovery.scenes import OLD, Scene, abandon, killed_after_fencing_n2, not_hosted

pytestmark = pytest.mark.looptime


# --- a fence that is left where the new etcd serves -----------------------------------------------------------------


async def left_fenced(scene: Scene) -> None:
    """n3 was off at the end of the recovery that has fenced it."""
    scene.lost_quorum()
    recovery = await scene.run(FromMember())
    n3 = scene.hosts["n3"]
    n3.files[ETCD_FENCE] = (replace(recovery.fence, seat="n3").file().content, 0o600)
    scene.on("n3")
    scene.etcd.acts.clear()


async def test_nobody_is_advised_to_start_the_member_of_an_etcd_that_was_replaced(scene: Scene) -> None:
    await left_fenced(scene)
    with pytest.raises(Refused, match="etcd has a quorum") as refused:
        await scene.run(FromMember())
    assert "a fence is left on n3, whose data is of an etcd that this one has replaced" in str(refused.value)
    assert "after ten minutes its agent lets it join this one" in str(refused.value)
    assert "release-etcd" not in str(refused.value)
    assert "--abandon" not in str(refused.value)


async def test_where_no_agent_looks_after_it_there_is_a_command(scene: Scene) -> None:
    await left_fenced(scene)
    await not_hosted(scene)
    make = scene.make

    def without_agents():
        context = make()
        return replace(context, cluster=replace(context.cluster, self_hosted=Level(2)))

    scene.make = without_agents
    with pytest.raises(
        Refused, match=f"remove it there with `rm -f {ETCD_CHANGE} {ETCD_FORMER} {ETCD_FENCED} {ETCD_FENCE}`"
    ):
        await scene.run(FromMember())


async def test_abandoning_takes_only_its_fence(scene: Scene) -> None:
    await left_fenced(scene)
    scene.etcd.hosted = False
    n3 = scene.hosts["n3"]
    changes = await AbandonRecovery(Recovery(FromMember())).plan(scene.make())
    assert Change("remove the fence on n3, whose etcd was replaced") in changes
    await abandon(scene)
    assert not {ETCD_FENCE, ETCD_FENCED} & n3.files.keys()
    assert n3.runs is None


# --- and where that does not serve at the moment ----------------------------------------------------------------------


async def majority_left_fenced(scene: Scene) -> None:
    """n2 and n3 were off when the second try made a new etcd on n1, whose member is down now. Both still have the
    fence of the first try, and the static pod that it has taken away."""
    scene.lost_quorum()
    recovery = await scene.run(FromMember())
    for name in ("n2", "n3"):
        earlier = replace(recovery.fence, recovery="earlier")
        scene.hosts[name].files[ETCD_FENCE] = (earlier.file().content, 0o600)
        scene.on(name)
        assert ETCD_FENCED in scene.hosts[name].files
    n1 = scene.hosts["n1"]
    n1.take_away_pods()
    n1.process = False
    assert scene.etcd.serving() == []


async def test_abandoning_starts_no_member_of_an_etcd_that_was_replaced_by_one_that_is_down(scene: Scene) -> None:
    """They would be its majority, and acknowledge writes until n1 is back: then there would be two."""
    await majority_left_fenced(scene)
    await abandon(scene)
    assert not [act for act in scene.etcd.acts if "release-etcd" in act]
    assert scene.etcd.serving() == []
    for name in ("n2", "n3"):
        assert not {ETCD_FENCE, ETCD_FENCED} & scene.hosts[name].files.keys()


async def test_nor_does_a_recovery_that_fails(scene: Scene) -> None:
    """What it finds fenced did not run before it."""
    await majority_left_fenced(scene)
    scene.hosts["n1"].fails["make"] = "it says no"
    with pytest.raises(CommandFailed, match="it says no"):
        await scene.until(FromMember(), NoteMembers)
    assert {act for act in scene.etcd.acts if "release-etcd" in act} <= {"n1: release-etcd"}
    assert scene.etcd.serving() == []
    for name in ("n2", "n3"):
        left = Fence.read(scene.hosts[name].files[ETCD_FENCE][0])
        assert left is not None
        assert (left.recovery, ETCD_FENCED in scene.hosts[name].files) == ("earlier", True)
        said = f"{name} stays fenced, as an earlier recovery has left it: `{ABANDON}` gives that up"
        assert said in scene.notes.notes
    assert ETCD_FENCE not in scene.hosts["n1"].files


async def test_a_recovery_that_fails_starts_no_member_whose_etcd_was_replaced(scene: Scene) -> None:
    """One that was not fenced, since its agent has not looked yet: n2 alone does no harm, and two of them do."""
    await majority_left_fenced(scene)
    n2 = scene.hosts["n2"]
    n2.files["/etc/kubernetes/manifests/etcd-n2.json"] = n2.files.pop(ETCD_FENCED)
    del n2.files[ETCD_FENCE]
    scene.hosts["n1"].fails["make"] = "it says no"
    with pytest.raises(CommandFailed, match="it says no"):
        await scene.run(FromMember())
    assert "n2: release-etcd" not in scene.etcd.acts
    assert n2.runs is None
    assert not {ETCD_FENCE, ETCD_FENCED} & n2.files.keys()


async def test_before_its_first_fence_a_restore_that_fails_releases_nobody(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    recovery = await killed_after_fencing_n2(scene, snapshot)
    scene.hosts["n1"].fails["make"] = "it says no"
    with pytest.raises(CommandFailed, match="it says no"):
        await scene.run(snapshot)
    assert not [act for act in scene.etcd.acts if "release-etcd" in act]
    assert scene.hosts["n2"].files[ETCD_FENCE][0] == recovery.fence.file().content
    assert scene.etcd.serving() == [OLD]


async def test_one_that_is_resumed_and_fails_releases_what_it_has_fenced_itself(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Its own fences of the run before are no others."""
    await killed_after_fencing_n2(scene, snapshot)
    scene.off("n3")
    scene.hosts["n1"].fails["fence-etcd"] = "it says no"
    with pytest.raises(AutarkyError):
        await scene.until(snapshot, StartEtcd)
    assert scene.hosts["n2"].runs == OLD
    assert ETCD_FENCE not in scene.hosts["n2"].files


# --- what an etcd says of itself ----------------------------------------------------------------------------------


async def test_an_etcd_is_not_taken_as_replaced_since_it_says_so_of_itself(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Whoever had it before may have written that. Its members run again, like any that were fenced."""
    await killed_after_fencing_n2(scene, snapshot)
    scene.etcd.values[OLD]["keys"][FORMER] = json.dumps([f"{OLD:x}"])
    await abandon(scene)
    assert scene.hosts["n2"].runs == OLD
    assert scene.etcd.serving() == [OLD]
