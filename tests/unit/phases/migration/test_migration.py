"""etcd moves between control nodes and a host outside, cut at any act: at every moment one etcd serves, and every API
server dials a member of it (fakes.migrating_host)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import AutarkyError, Refused, UserError
from autarky.model.cluster import ExternalEtcd, HostRef, Level, Node
from autarky.phases.context import Context
from autarky.phases.external_etcd import PrepareExternalEtcd
from autarky.phases.migration import peering
from autarky.phases.migration.inwards import JoinInside
from autarky.phases.migration.looking import Migration
from autarky.phases.migration.outwards import JoinOutside
from fakes.migrating_host import MigratingHost
from unit.phases.migration.scenes import ETCD, KEYS, OUTSIDE, STORE, peers

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("controls", [1, 3])
async def test_it_moves_in_and_out_again(scenes, controls: int) -> None:
    scene = scenes(controls)
    await scene.move(into=True)
    scene.all_inside()
    await scene.move(into=False)
    scene.all_outside()
    assert scene.etcd.led == [], "a leader was removed, which costs an election"
    assert scene.etcd.values[ETCD]["keys"] == KEYS


async def test_it_moves_out_to_members_that_have_another_ca_for_their_clients(scenes) -> None:
    """The members inside have no certificate of it: whoever asks those outside has the API servers' own. One that is
    ill leaves first all the same: etcd would not let the others go before it."""
    scene = scenes(3, inside=True)
    scene.etcd.closed.add(STORE)
    scene.etcd.ill.add("n3")
    await scene.move(into=False)
    scene.all_outside()
    assert (scene.etcd.led, scene.etcd.removed[0]) == ([], "n3")


async def test_what_an_agent_was_changing_of_a_member_ends_before_that_leaves(scenes) -> None:
    """It would put its static pod back."""
    scene = scenes(inside=True)
    for host in scene.controls:
        host.files[places.ETCD_CHANGE] = (b"{}", 0o600)
    await scene.move(into=False)
    scene.all_outside()
    for host in scene.controls:
        assert places.ETCD_CHANGE not in host.files
        removed = [act for act in scene.etcd.acts if act.startswith(f"{host.name}: remove ")]
        pod = next(number for number, act in enumerate(removed) if places.MANIFESTS in act)
        assert removed.index(f"{host.name}: remove {places.ETCD_CHANGE}") < pod


async def cut_at_each_act(scenes, *, into: bool, then_into: bool) -> None:
    """Of a move in that direction, followed by another command."""
    number = 0
    for number in range(200):
        scene = scenes(inside=not into)
        try:
            await scene.move(into=into, cut=number)
        except AutarkyError:
            assert scene.etcd.is_cut
        else:
            break
        await scene.move(into=then_into)
        scene.all_inside() if then_into else scene.all_outside()
    assert 10 < number < 199


@pytest.mark.parametrize("into", [True, False])
async def test_rule_5_it_may_be_cut_at_any_act(scenes, into: bool) -> None:
    await cut_at_each_act(scenes, into=into, then_into=into)


@pytest.mark.parametrize("into", [True, False])
async def test_rule_5_whoever_thinks_better_of_it_goes_back_from_any_act(scenes, into: bool) -> None:
    await cut_at_each_act(scenes, into=into, then_into=not into)


async def test_again_it_changes_nothing(scenes) -> None:
    scene = scenes(3)
    await scene.move(into=True)
    await scene.move(into=True)
    assert scene.etcd.acts == []
    await scene.move(into=False)
    await scene.move(into=False)
    assert scene.etcd.acts == []


async def test_a_later_up_does_not_touch_the_unit_of_a_member_that_joined(scenes) -> None:
    scene = scenes(inside=True)
    await scene.move(into=False)
    unit = scene.store.files[etcd.UNIT_PATH][0].decode()
    assert "--initial-cluster-state=existing" in unit
    assert "n1=https://192.0.2.11:2380" in unit
    found = await PrepareExternalEtcd().plan(scene.contexts[False]())
    assert [one.sentence for one in found] == []


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_members_that_do_not_accept_each_other_are_not_joined(scenes) -> None:
    scene = scenes()
    scene.etcd.strangers.add(STORE)
    with pytest.raises(Refused, match="do not trust each other's certificates"):
        await scene.move(into=True)
    assert scene.etcd.voters[ETCD] == {"store": 9}
    assert not scene.etcd.learners.get(ETCD)


async def test_a_certificate_that_no_peer_can_have_is_refused_before_it_is_anywhere(scenes) -> None:
    good, other = peers(), peers()
    for wrong, said in (
        (peers(nodes=2), r"lacks the addresses 192\.0\.2\.13"),
        (peers(usages=("client",)), "is not for servers"),
        (peers(usages=("server",)), "is not for clients"),
        (replace(good, key=other.key), "do not belong together"),
        (replace(good, ca=other.ca), "do not belong together"),
        (replace(good, certificate=b"x"), "do not belong together"),
        (peers(ended=True), "valid from"),
    ):
        scene = scenes(3)
        scene.peers = wrong
        with pytest.raises(UserError, match=said):
            await scene.move(into=True)
        assert scene.etcd.acts == []


async def test_the_certificate_of_a_member_that_votes_is_not_exchanged(scenes) -> None:
    """A run that was cut is resumed with other files."""
    first, voters, number = peers(), list[MigratingHost](), 30
    while not 0 < len(voters) < 3:
        scene = scenes(3)
        scene.etcd.strangers.add(STORE)
        scene.peers = first
        number += 1
        with pytest.raises(AutarkyError):
            await scene.move(into=True, cut=number)
        voters = [host for host in scene.controls if host.name in scene.etcd.voters[ETCD]]
    scene.peers = peers()
    scene.etcd.on_again()
    context = scene.contexts[True]()
    await JoinInside(Migration(lambda: scene.store, scene.peers)).run(context, scene.notes)
    assert {host.files[f"{etcd.PKI}/peer.crt"][0] for host in voters} == {first.certificate}


async def test_control_nodes_that_came_later_are_not_forgotten_but_refused(scenes) -> None:
    scene = scenes()
    with pytest.raises(UserError, match="n7 became a control node after the cluster was created"):
        await scene.judged(replace(scene.contexts[True](), active_in_api=frozenset({"n1", "n7"})))


async def test_levels_whose_api_servers_nobody_rolls_are_refused(scenes) -> None:
    context = scenes().contexts[True]()
    with pytest.raises(UserError, match="nobody rolls the API servers"):
        await scenes().judged(replace(context, cluster=replace(context.cluster, self_hosted=Level.ADD_ONS)))


async def test_a_member_outside_that_would_be_taken_for_a_nodes_is_refused(scenes) -> None:
    scene = scenes()
    context = scene.contexts[True]()

    def at_its_address(*, control_plane: bool) -> Context:
        node = Node("x", HostRef("lab", "x"), control_plane=control_plane, address=STORE)
        return replace(context, cluster=replace(context.cluster, nodes=(*context.cluster.nodes, node)))

    with pytest.raises(
        UserError, match="'store' of etcd is none of the cluster's, and has the address of a control node"
    ):
        await scene.judged(at_its_address(control_plane=True))
    await scene.judged(at_its_address(control_plane=False))  # a worker says itself where it is


def elsewhere(*names: str) -> list[dict[str, Any]]:
    """Members of the etcd outside, beside the first one."""
    addresses = [f"192.0.2.{101 + number}" for number in range(len(names))]
    return [
        {"ID": 901 + number, "name": name, "peerURLs": [f"https://{addresses[number]}:2380"], "clientURLs": []}
        for number, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["db 1"], "'db 1'"),
        (["db,1=x"], "'db,1=x'"),
        (["db\nfrontend x"], r"'db\\nfrontend x'"),
        ([""], "none, at https://192.0.2.101:2380"),
        (["db", "db"], "'db'"),
        (["store"], "'store'"),
    ],
)
async def test_a_member_outside_with_a_name_that_cannot_be_written_down_is_refused(
    scenes, names: list[str], said: str
) -> None:
    """It goes into the load balancers' configuration, and into the arguments of the members that join."""
    scene = scenes()
    scene.etcd.elsewhere = elsewhere(*names)
    with pytest.raises(UserError, match=f"outside of the cluster .*{said}") as refused:
        await scene.judged()
    assert "--name" in str(refused.value.fix)
    assert scene.etcd.acts == []


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", ["db,x=https://192.0.2.66:2380", "", "store", "n1"])
async def test_nor_does_anybody_join_beside_one_that_got_its_name_after_the_judgement(
    scenes, name: str, begun: bool
) -> None:
    """begun: the control node was admitted before."""
    scene = scenes()
    scene.etcd.elsewhere = elsewhere(name)
    if begun:
        scene.etcd.learners[ETCD] = {"n1": 77}
    with pytest.raises(UserError, match="outside of the cluster have names") as refused:
        await JoinInside(Migration(lambda: scene.store)).run(scene.contexts[True](), scene.notes)
    assert (repr(name) if name else "none, at https://192.0.2.101:2380") in str(refused.value)
    assert "--name" in str(refused.value.fix)
    assert bool(scene.etcd.learners.get(ETCD)) is begun
    assert not scene.controls[0].pods


async def test_a_message_shows_the_name_of_another_etcds_member_as_text(scenes) -> None:
    """It may have been chosen for the terminal that it is printed to."""
    scene = scenes()
    scene.etcd.elsewhere = [{**elsewhere("\x1b]0;x")[0], "peerURLs": ["https://192.0.2.11:2380"]}]
    with pytest.raises(UserError, match="none of the cluster's") as refused:
        await scene.judged()
    assert r"'\x1b]0;x'" in str(refused.value)
    assert "\x1b" not in str(refused.value)


async def test_usual_names_are_no_trouble_and_neither_is_a_learner_that_has_not_started(scenes) -> None:
    """An earlier run that was cut may have left the latter."""
    scene = scenes()
    scene.etcd.elsewhere = [*elsewhere("db-1", "etcd_2.example.com", "Default")]
    scene.etcd.learners[ETCD] = {"n1": 77}
    await scene.judged()


async def test_a_cluster_that_is_said_to_be_replaced_by_itself_is_refused(scenes) -> None:
    """The members on control nodes would take themselves for those of a former etcd."""
    for ids in ([f"{ETCD:x}"], ["7", f"{ETCD:X}"]):
        scene = scenes()
        scene.etcd.values[ETCD]["keys"][FORMER] = json.dumps(ids)
        with pytest.raises(Refused, match=f"{FORMER}.*{ETCD:x}") as refused:
            await scene.judged()
        assert f"etcdctl del {FORMER}" in str(refused.value)
    scene.etcd.values[ETCD]["keys"][FORMER] = json.dumps(["7", "d1"])
    await scene.judged()


async def test_a_move_that_goes_back_leaves_nothing_of_the_other_ca(scenes) -> None:
    """A later move would trust it without being asked to."""
    scene = scenes()
    scene.etcd.strangers.add(STORE)
    scene.peers = peers()
    await JoinInside(Migration(lambda: scene.store, scene.peers)).run(scene.contexts[True](), scene.notes)
    [host] = scene.controls
    assert peering.TRUSTED in host.files
    await scene.move(into=False)
    scene.all_outside()
    assert not {peering.TRUSTED, f"{etcd.PKI}/peer.crt", f"{etcd.PKI}/peer.key"} & host.files.keys()


async def test_with_a_certificate_of_the_other_ca_they_are_and_have_their_own_again_at_the_end(scenes) -> None:
    scene, theirs = scenes(3), peers()
    scene.lends(theirs)
    own = scene.contexts[True]().pki.files()["etcd/ca.crt"]
    context = scene.contexts[True]()
    await JoinInside(Migration(lambda: scene.store, scene.peers)).run(context, scene.notes)
    for host in scene.controls:
        assert host.files[f"{etcd.PKI}/peer.crt"][0] == theirs.certificate
        assert host.files[etcd.PEER_CA][0] == own.rstrip() + b"\n" + theirs.ca
        assert places.ETCD_PEERS_CA in host.files, "its agent would replace the certificate"
    await scene.move(into=True)
    scene.all_inside()
    for host in scene.controls:
        assert host.files[f"{etcd.PKI}/peer.crt"][0] not in (b"", theirs.certificate)
        assert host.files[etcd.PEER_CA][0] == own
        assert b"etcd" in host.files[places.LEAVES_PLAN][0]
        assert peering.TRUSTED not in host.files
    await scene.move(into=True)
    assert scene.etcd.acts == []


async def test_former_data_on_a_control_node_is_moved_aside(scenes) -> None:
    scene = scenes()
    scene.controls[0].has_data(0xBAD, 5, {"revision": 1, "keys": {}})
    await scene.move(into=True)
    scene.all_inside()
    assert any(name.startswith("kept.") for name in scene.controls[0].left())


async def test_it_is_judged_before_anything_is_touched(scenes) -> None:
    scene = scenes()
    await scene.judged()
    for key in ("/other/app", "!first", "zzz"):
        scene = scenes()
        scene.etcd.values[ETCD]["keys"][key] = "1"
        with pytest.raises(Refused, match="keys of others") as refused:
            await scene.judged()
        assert key in str(refused.value)
    scene = scenes()
    scene.etcd.version = "3.4.0"
    with pytest.raises(Refused, match=r"runs etcd 3\.4\.0"):
        await scene.judged()
    context = scenes().contexts[True]()
    args = {"kube-apiserver": {"etcd-prefix": "/other"}}
    with pytest.raises(UserError, match="under /other"):
        await scenes().judged(replace(context, cluster=replace(context.cluster, extra_args=args)))
    scene = scenes()
    scene.kube.unhealthy = "500"
    with pytest.raises(Refused, match="the API does not answer"):
        await scene.judged()
    with pytest.raises(Refused, match="n1 does not answer: off"):
        await scenes(3).judged(replace(scenes(3).contexts[True](), absent={"n1": "off"}))


async def test_an_etcd_of_the_users_must_have_joined_before(scenes, tmp_path: Path) -> None:
    scene = scenes(inside=True)
    base = scene.contexts[False]()
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    own = ExternalEtcd((OUTSIDE,), *(str(tmp_path / name) for name in ("ca", "cert", "key")))
    context = replace(base, cluster=replace(base.cluster, external_etcd=own))
    with pytest.raises(UserError, match=f"{OUTSIDE} is no member of this cluster's etcd"):
        await JoinOutside().plan(context)
    scene.etcd.learners[ETCD] = {"store": 77}
    scene.store.active_units.add("etcd")
    scene.store.files[etcd.UNIT_PATH] = (b"[Service]", 0o644)
    scene.etcd.settle()
    join = JoinOutside()
    assert [one.sentence for one in await join.plan(context)] == ["give store its vote in etcd"]
    await join.run(context, scene.notes)
    assert scene.etcd.voters[ETCD] == {"n1": 1, "store": 77}
    assert not [path for path in scene.controls[0].files if "etcd-outside" in path], "its key stays nowhere"
    assert json.loads(json.dumps(await join.plan(context))) == []
    scene.store.no_route = True
    with pytest.raises(UserError, match=f"does not answer n1: {OUTSIDE}: .*deadline exceeded") as error:
        await join.run(context, scene.notes)
    assert error.value.where == "spec.etcd.external"
    assert not [path for path in scene.controls[0].files if "etcd-outside" in path]
