"""What a move of etcd waits for before a member leaves: for whoever still dials it, and for the members that stay."""

from __future__ import annotations

import asyncio

import pytest

from autarky.errors import CommandFailed, Refused, TimedOut
from autarky.model import patience
from autarky.phases.migration import looking
from autarky.phases.migration.looking import await_rollout
from fakes.clusters import a_cluster
from fakes.migrating_host import BALANCER
from unit.phases.migration.scenes import OUTSIDE, later

pytestmark = pytest.mark.looptime
WAYS = pytest.mark.parametrize("into", [True, False], ids=["inwards", "outwards"])


@WAYS
@pytest.mark.parametrize("which", ["server", "standby"])
async def test_rule_1_no_member_leaves_while_anything_dials_it_on_any_control_node(
    scenes, which: str, into: bool
) -> None:
    """`fakes.migrating_host` says where an API server is left alone."""
    scene = scenes(3, inside=not into)
    scene.late = {"n3": which}
    await scene.move(into=into)
    scene.all_inside() if into else scene.all_outside()
    assert {host.dials for host in scene.controls} == {frozenset({BALANCER if into else OUTSIDE})}


@WAYS
async def test_rule_1_no_member_leaves_while_the_operator_would_roll_api_servers_back_to_it(scenes, into: bool) -> None:
    scene = scenes(3, inside=not into)
    scene.goes_back_to(OUTSIDE if into else BALANCER)
    await scene.move(into=into)
    scene.all_inside() if into else scene.all_outside()
    assert scene.etcd.last_good == (BALANCER if into else OUTSIDE)


async def test_no_api_server_is_rolled_before_every_load_balancer_leads_to_etcd(scenes) -> None:
    """The node's agent makes it do so, some time after it has seen the members."""
    scene = scenes(3)
    late = scene.controls[1]
    late.agent_is_late = True
    later(200, lambda: setattr(late, "agent_is_late", False))
    await scene.move(into=True)
    scene.all_inside()
    assert late.is_balanced()


@WAYS
async def test_rule_3_no_member_leaves_while_one_that_stays_is_not_healthy(scenes, into: bool) -> None:
    scene = scenes(3, inside=not into)
    ill = "n1" if into else "store"
    scene.etcd.leader = "store"
    scene.rolled = lambda: scene.etcd.ill.add(ill)
    with pytest.raises(Refused, match=f"{ill}: deadline"):
        await scene.move(into=into)
    assert scene.etcd.removed == []
    assert scene.etcd.leader == ("n2" if into else "store"), "one that is not healthy got the leadership"
    scene.etcd.ill.clear()
    scene.rolled = lambda: None
    await scene.move(into=into)
    scene.all_inside() if into else scene.all_outside()


async def test_members_that_are_not_healthy_leave_first(scenes) -> None:
    """Without them etcd lets the others go; before them it refuses."""
    scene = scenes(3, inside=True)
    scene.rolled = lambda: scene.etcd.ill.add("n2")
    await scene.move(into=False)
    assert scene.etcd.removed[0] == "n2"
    scene.all_outside()


EACH = 150.0
"""Seconds for one control node on a slow machine: less than a step may take, and all of them more than the wait."""


async def test_the_wait_for_all_api_servers_goes_on_while_one_after_the_other_comes(
    make_context, notes, monkeypatch, looptime
) -> None:
    """containerd may be restarted meanwhile: what cannot be asked for a moment is as far as it was."""
    context = make_context(a_cluster(controls=3))

    async def dialled(host) -> frozenset[str]:
        now = asyncio.get_running_loop().time()
        if now % 50 < 2:
            raise CommandFailed(host.name, ["look", "dialled"], 1, "connection refused")
        return frozenset({BALANCER if now > EACH * int(host.name[1:]) else OUTSIDE})

    monkeypatch.setattr(looking, "dialled", dialled)
    assert patience.PIVOT < 2 * EACH < 2 * patience.STEP
    await await_rollout(context, [BALANCER], notes)
    assert looptime > 3 * EACH


async def test_the_wait_for_all_api_servers_ends_where_none_comes(make_context, notes, monkeypatch, looptime) -> None:
    async def dialled(_host) -> frozenset[str]:
        return frozenset({OUTSIDE})

    monkeypatch.setattr(looking, "dialled", dialled)
    with pytest.raises(TimedOut, match=f"n1 still uses {OUTSIDE}"):
        await await_rollout(make_context(a_cluster(controls=3)), [BALANCER], notes)
    assert looptime <= max(patience.PIVOT, patience.STEP) + 1
