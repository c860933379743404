"""What a node's agent, or an `up`, was changing of its member ends with the member: the note of it goes with the fence,
and before it, so that nobody puts a former member's static pod back. And the second member of a change is one, too."""

from __future__ import annotations

import pytest

from autarky.control.etcd.manifests.pods import SECOND_DATA
from autarky.errors import CommandFailed
from autarky.phases.recovery.joining import ReturnMembers
from autarky.phases.recovery.state import FromMember, FromSnapshot
from autarky.places import ETCD_CHANGE, ETCD_DATA, ETCD_FENCE, ETCD_FORMER
from unit.phases.recovery.scenes import Scene, abandon, all_is_well, killed_after_fencing_n2, not_hosted
from unit.phases.recovery.test_left_fenced import left_fenced, majority_left_fenced

pytestmark = pytest.mark.looptime
NOTES = {ETCD_CHANGE, ETCD_FORMER}
"""By its agent, and by `up`."""


def is_being_changed(scene: Scene, *names: str) -> None:
    for name in names:
        scene.hosts[name].files |= dict.fromkeys(NOTES, (b"{}", 0o600))


def noted(scene: Scene) -> list[str]:
    """Where all of them are, or some."""
    found = {name: NOTES & host.files.keys() for name, host in scene.hosts.items()}
    assert all(notes in (set(), NOTES) for notes in found.values()), found
    return [name for name, notes in found.items() if notes]


@pytest.mark.parametrize("hosted", [True, False])
async def test_it_goes_before_the_fence(scene: Scene, snapshot: FromSnapshot, hosted: bool) -> None:
    """Behind the fence its agent does nothing."""
    if not hosted:
        await not_hosted(scene)
    is_being_changed(scene, *scene.hosts)
    await scene.run(snapshot)
    assert noted(scene) == []
    all_is_well(scene)
    acts = scene.etcd.acts
    for name, unfenced in (("n1", "release-etcd"), ("n2", f"remove {ETCD_FENCE}"), ("n3", f"remove {ETCD_FENCE}")):
        for note in NOTES:
            assert acts.index(f"{name}: remove {note}") < acts.index(f"{name}: {unfenced}")


async def test_one_of_the_new_member_which_has_no_fence_any_more_goes_on(scene: Scene, snapshot: FromSnapshot) -> None:
    """Its static pod may be away at the moment, and nobody else would put it back."""
    await scene.until(snapshot, ReturnMembers)
    assert ETCD_FENCE not in scene.hosts["n1"].files
    is_being_changed(scene, *scene.hosts)
    await scene.run(snapshot)
    assert noted(scene) == ["n1"]
    all_is_well(scene)


async def test_with_what_is_abandoned_it_goes_only_where_the_etcd_was_replaced(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await killed_after_fencing_n2(scene, snapshot)
    is_being_changed(scene, "n2")
    await abandon(scene)
    assert ETCD_FENCE not in scene.hosts["n2"].files
    assert noted(scene) == ["n2"], "its member runs again, and so does what was changed of it"


async def test_and_there_it_goes(scene: Scene) -> None:
    await left_fenced(scene)
    scene.etcd.hosted = False
    is_being_changed(scene, "n3")
    await abandon(scene)
    assert (noted(scene), ETCD_FENCE in scene.hosts["n3"].files) == ([], False)


async def test_also_where_a_recovery_fails(scene: Scene) -> None:
    await majority_left_fenced(scene)
    is_being_changed(scene, "n2")
    n2 = scene.hosts["n2"]
    del n2.files[ETCD_FENCE]
    n2.files["/etc/kubernetes/manifests/etcd-n2.json"] = (b'{"metadata": {"name": "etcd-n2"}}', 0o600)
    scene.hosts["n1"].fails["make"] = "it says no"
    with pytest.raises(CommandFailed, match="it says no"):
        await scene.run(FromMember())
    assert (noted(scene), ETCD_FENCE in n2.files) == ([], False)


# --- the second member of a node --------------------------------------------------------------------------------------


async def test_the_fence_waits_for_a_nodes_second_member_as_well(scene: Scene, snapshot: FromSnapshot) -> None:
    """It stands in for the only one while that is changed, and would acknowledge writes beside the new etcd."""
    host = scene.hosts["n2"]
    host.processes_beside = [SECOND_DATA]
    await scene.run(snapshot)
    assert host.processes_beside == []
    acts = scene.etcd.acts
    assert acts.index(f"n2: kill etcd in {SECOND_DATA}") < acts.index("n1: fence-etcd")
    assert SECOND_DATA.startswith(f"{ETCD_DATA}/")
