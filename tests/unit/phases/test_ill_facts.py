"""What is wrong with the machine of a worker that joined before, or what root there says of it, is no reason to refuse
the command for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from autarky.errors import Problems
from autarky.model.cluster import Cluster
from autarky.phases import members
from autarky.phases.context import Context, memory_of
from autarky.phases.hosts import refuse_errors
from fakes.clusters import FACTS, a_cluster, facts_of
from unit.phases.seen import MakeContext

FOUR = a_cluster(controls=3, workers=1)
ILL: Mapping[str, dict[str, Any]] = {
    "init": {"init": "sh"},
    "kernel": {"missing_features": ("vxlan",)},
    "networks": {"networks": ("10.96.0.0/16",)},
    "clock": {"clock": FACTS.clock + 31},
    "architecture": {"architecture": "aarch64"},
    "machines": {"boot_id": f"{FACTS.boot_id}-n1"},
}
"""Check → what a host says that it finds an error."""


def seen(make_context: MakeContext, cluster: Cluster, *, joined: set[str], **ill: dict[str, Any]) -> Context:
    """All hosts are of this cluster; node → what is different on its host."""
    context = make_context(cluster)
    context.facts = {name: replace(facts, **ill.get(name, {})) for name, facts in facts_of(cluster).items()}
    context.owners = dict.fromkeys(context.facts)
    context.joined = frozenset(joined)
    return context


@pytest.mark.parametrize("check", ILL)
async def test_a_worker_that_joined_before_is_left_out_with_what_is_wrong(make_context: MakeContext, check: str):
    context = seen(make_context, FOUR, joined={"n1", "n2", "n3", "n4"}, n4=ILL[check])
    assert refuse_errors(context) == []
    assert set(context.absent) == {"n4"}
    assert context.absent["n4"].startswith(f"[{check}] ")
    assert "n4" not in context.facts


@pytest.mark.parametrize("check", ILL)
async def test_a_worker_that_joins_is_refused_and_so_is_a_control_node(make_context: MakeContext, check: str):
    with pytest.raises(Problems, match=rf"\[{check}\] n4"):
        refuse_errors(seen(make_context, FOUR, joined={"n1", "n2", "n3"}, n4=ILL[check]))
    control = "n1" if check != "machines" else "n2"
    with pytest.raises(Problems, match=rf"\[{check}\] {control}"):
        refuse_errors(seen(make_context, FOUR, joined={"n1", "n2", "n3", "n4"}, **{control: ILL[check]}))


async def test_whichever_of_the_two_hosts_was_read_first_the_worker_is_left_out(make_context: MakeContext):
    context = seen(make_context, FOUR, joined={"n1", "n2", "n3", "n4"}, n4=ILL["machines"])
    context.facts = dict(reversed(context.facts.items()))
    assert refuse_errors(context) == []
    assert set(context.absent) == {"n4"}


async def test_a_new_node_on_the_machine_of_a_worker_is_refused(make_context: MakeContext):
    """It would be joined in place of that worker."""
    five = a_cluster(controls=3, workers=2)
    same = {"boot_id": f"{FACTS.boot_id}-n4"}
    with pytest.raises(Problems, match="n5: it is the same machine as n4"):
        refuse_errors(seen(make_context, five, joined={"n1", "n2", "n3", "n4"}, n5=same))


async def test_more_workers_with_another_clock_than_control_nodes_do_not_make_that_the_right_one(
    make_context: MakeContext,
):
    cluster = a_cluster(controls=1, workers=3)
    early = {"clock": FACTS.clock - 3600}
    context = seen(make_context, cluster, joined={"n1", "n2", "n3", "n4"}, n2=early, n3=early, n4=early)
    assert refuse_errors(context) == []
    assert set(context.absent) == {"n2", "n3", "n4"}


def with_the_address_of(make_context: MakeContext, address: str) -> Context:
    """n4 says so, and the file has none."""
    context = seen(
        make_context, FOUR, joined={"n1", "n2", "n3", "n4"}, n4={"address": address, "addresses": (address,)}
    )
    context.cluster, context.said_addresses = context.cluster.with_addresses({"n4": address}), {"n4"}
    return context


@pytest.mark.parametrize("address", ["192.0.2.11", "10.96.0.1"], ids=["of a control node", "of a service"])
async def test_the_address_that_a_worker_is_left_out_for_is_not_taken_for_its_own(
    make_context: MakeContext, address: str
):
    context = with_the_address_of(make_context, address)
    members.path_of(context.directory).write_bytes(memory_of(FOUR.nodes))
    assert refuse_errors(context) == []
    assert set(context.absent) == {"n4"}
    assert context.cluster.node("n4").address == "192.0.2.14"


async def test_where_no_other_address_of_it_is_known_it_is_refused(make_context: MakeContext):
    with pytest.raises(Problems, match="the same address as n1"):
        refuse_errors(with_the_address_of(make_context, "192.0.2.11"))
