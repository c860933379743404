"""Somebody else is root on a worker, or has its certificate: its removal takes the cluster's trust away first, and
nothing that is done there, or in its name, keeps it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autarky import places
from autarky.control.admission.act import read_inventory, read_renewals
from autarky.control.cluster_file.decide.records import API, Record
from autarky.control.etcd.manifests.members import crd
from autarky.engine.phase import Change, Warn
from autarky.errors import CommandFailed, Problems, Refused, Unreachable
from autarky.phases import forget, hosts, members
from autarky.phases.clean_node import CleanNode
from autarky.phases.context import memory_of
from autarky.phases.distrust import DistrustNode, is_plain_worker
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.hosts import observe
from autarky.phases.objects import ApplyObjects
from autarky.phases.promote import ETCD_MEMBER
from autarky.phases.removal import known_node
from autarky.ports import Completed
from autarky.render import access
from autarky.render.crds import API_VERSION
from autarky.render.values import CONTROL_PLANE_ACTIVE, CONTROL_PLANE_REQUESTED, SYSTEM
from autarky.workflows.remove import phases
from fakes.clusters import a_cluster, facts_of
from fakes.host import CleanableHost, FakeHost
from fakes.kube import FakeKube

FOUR = a_cluster(controls=3, workers=1)
LABELS = {CONTROL_PLANE_ACTIVE: "", CONTROL_PLANE_REQUESTED: ""}
WORKER = FOUR.node("n4")
pytestmark = pytest.mark.looptime


@dataclass
class CutKube(FakeKube):
    """After so many writes it can be written to no more."""

    writes_left: int | None = None

    def _write(self) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Unreachable("cut")
            self.writes_left -= 1

    async def patch(self, *args, **more):
        self._write()
        return await super().patch(*args, **more)

    async def delete(self, *args, **more):
        self._write()
        return await super().delete(*args, **more)


class SpoiledHost(CleanableHost):
    """`way`: how each command of the cleaning ends."""

    way = "fails"

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True) -> Completed:
        if list(argv[:2]) == ["sh", "-c"]:
            if self.way == "hangs":
                await asyncio.sleep(100_000)
            raise CommandFailed(self.name, ["sh", "-c", "…"], 1, "no")
        return await super().run(argv, stdin=stdin, timeout=timeout, check=check)


class UnreadableHost(FakeHost):
    """It says its facts, and its files take forever, or fail."""

    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        raise CommandFailed(self.name, ["cat", path], 1, "no")


class SlowHost(FakeHost):
    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        await asyncio.sleep(29)
        return await super().read(path, most=most)


def a_kube(kind: type[FakeKube] = FakeKube) -> Any:
    kube = kind()
    for node in FOUR.nodes:
        meta = {"name": node.name, "labels": LABELS if node.control_plane else {}}
        status = {"addresses": [{"type": "InternalIP", "address": node.address}]}
        kube.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status})
    kube.put(access.inventory(FOUR))
    kube.put(access.renewals({node.name: f"{node.name:0<64}" for node in FOUR.nodes}))
    kube.put(access.join_token(WORKER, "abcdef", "0123456789abcdef", "2030-01-01T00:00:00Z"))
    stamp = datetime.now(UTC).isoformat()
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"renewTime": stamp}}
    kube.put({**lease, "metadata": {"name": "n4", "namespace": "kube-node-lease"}})
    return kube


def a_context(make_context, kube, **other: FakeHost):
    """Each host has our marker."""
    facts = facts_of(FOUR)
    made = {name: CleanableHost(name, facts[name]) for name in facts} | other
    for name, host in made.items():
        host.host_facts = facts[name]
    context = make_context(FOUR, kube=kube, hosts=made)
    for name, host in made.items():
        said = {"cluster": "demo", "node": name, "founders": ["n1", "n2", "n3"], "ca": context.ours.ca}
        host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)
    return context


def removal(*, dead=False, node=WORKER):
    return phases(node, dead=dead, drain=False, purge=False, write=None)


async def carried_out(context, some, notes) -> list[str]:
    """What was warned of."""
    reported = []
    for phase in some:
        found = await phase.plan(context)
        reported += [one.sentence for one in found if isinstance(one, Warn)]
        if any(isinstance(one, Change) for one in found):
            await phase.run(context, notes)
    return reported


async def trusted(kube) -> list[str]:
    """What of its trust n4 has."""
    secrets = [secret["metadata"]["name"] for secret in await kube.list("v1", "Secret", namespace=SYSTEM)]
    tokens = [name for name in secrets if name.startswith("bootstrap-token-")]
    known: dict[str, Any] = {"inventory": await read_inventory(kube), "renewal": await read_renewals(kube)}
    entries = [kind for kind, found in known.items() if "n4" in found]
    return [*entries, *tokens]


async def is_gone(kube) -> None:
    assert await trusted(kube) == []
    assert await forget.left_of(kube, "n4") == []
    assert set(await read_inventory(kube)) == {"n1", "n2", "n3"}
    assert set(await read_renewals(kube)) == {"n1", "n2", "n3"}


@asynccontextmanager
async def somebody_renews(kube):
    async def renew() -> None:
        while True:
            await asyncio.sleep(10)
            with suppress(Exception):
                stamp = {"spec": {"renewTime": datetime.now(UTC).isoformat()}}
                await FakeKube.patch(kube, "coordination.k8s.io/v1", "Lease", "n4", stamp, namespace="kube-node-lease")

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()


# --- what it is ---------------------------------------------------------------------------------------------


async def test_a_workers_trust_is_taken_away_before_anything_on_its_host_or_in_its_name_is_waited_for(
    make_context, notes
):
    names = [phase.name for phase in removal()]
    assert names[:3] == ["check-removal", "take-out-of-the-file", "distrust-node"]
    kube = a_kube()
    context = a_context(make_context, kube)
    assert await trusted(kube) == ["inventory", "renewal", "bootstrap-token-abcdef"]
    await carried_out(context, removal()[:3], notes)
    assert await trusted(kube) == []
    assert await kube.get("v1", "Node", "n4") is not None
    assert context.machines.hosts["n4"].log == []
    assert await DistrustNode(WORKER).plan(context) == []


@pytest.mark.parametrize("sign", ["file", "record", "requested", "active", "member"])
async def test_what_may_be_a_control_node_keeps_its_trust_until_it_has_left(make_context, sign):
    kube, node = a_kube(), WORKER
    context = a_context(make_context, kube)
    if sign == "file":
        node = replace(WORKER, control_plane=True)
    elif sign == "record":
        memory = json.loads(memory_of([replace(WORKER, control_plane=True)]))
        context.records[API] = Record({}, memory, 1)
    elif sign == "member":
        kube.put(crd())
        kube.put({"apiVersion": API_VERSION, "kind": ETCD_MEMBER, "metadata": {"name": "n4"}, "status": {}})
    else:
        label = CONTROL_PLANE_REQUESTED if sign == "requested" else CONTROL_PLANE_ACTIVE
        await kube.patch("v1", "Node", "n4", {"metadata": {"labels": {label: ""}}})
    assert not await is_plain_worker(context, node)
    assert await DistrustNode(node).plan(context) == []
    assert context.distrusted == frozenset()


# --- who would keep it --------------------------------------------------------------------------------------


async def test_a_dead_worker_whose_lease_somebody_renews_is_removed_and_that_is_told(make_context, notes):
    kube = a_kube()
    context = a_context(make_context, kube)
    del context.machines.hosts["n4"]
    async with somebody_renews(kube):
        reported = await carried_out(context, removal(dead=True), notes)
    assert [sentence.partition(":")[0] for sentence in reported] == ["something renews the lease of n4"]
    await is_gone(kube)


async def test_a_dead_control_node_whose_lease_somebody_renews_stays(make_context):
    kube = a_kube()
    context = a_context(make_context, kube)
    lease = await kube.get("coordination.k8s.io/v1", "Lease", "n4", "kube-node-lease")
    kube.put({**lease, "metadata": {"name": "n3", "namespace": "kube-node-lease"}})
    context.machines.hosts.pop("n3")

    async def renew() -> None:
        await asyncio.sleep(9)
        kube.put({**lease, "metadata": {"name": "n3", "namespace": "kube-node-lease"}, "spec": {"renewTime": "later"}})

    task = asyncio.create_task(renew())
    with pytest.raises(Refused, match="something answers in its name"):
        await removal(dead=True, node=FOUR.node("n3"))[0].plan(context)
    await task
    assert "n3" in await read_inventory(kube)


@pytest.mark.parametrize("way", ["fails", "hangs"])
async def test_a_worker_whose_host_does_not_let_itself_be_cleaned_is_removed_and_what_is_left_is_told(
    make_context, notes, way
):
    kube, host = a_kube(), SpoiledHost("n4")
    host.way = way
    context = a_context(make_context, kube, n4=host)
    assert await carried_out(context, removal(), notes) == []
    await is_gone(kube)
    [reported] = [note for note in notes.notes if note.startswith("warning: ")]
    assert "host n4 was not cleaned" in reported
    assert "wipe its disk" in reported


async def test_a_control_nodes_host_that_cannot_be_cleaned_stops_its_removal_as_before(make_context, notes):
    context = a_context(make_context, a_kube(), n3=SpoiledHost("n3"))
    node = FOUR.node("n3")
    await DistrustNode(node).plan(context)
    with pytest.raises(CommandFailed):
        await CleanNode(node, purge=False).run(context, notes)


async def test_a_worker_that_spoils_its_files_once_it_was_looked_at_is_removed(make_context, notes):
    kube = a_kube()
    context = a_context(make_context, kube)
    all_of_it = removal()
    await carried_out(context, all_of_it[:6], notes)
    context.machines.hosts["n4"] = UnreadableHost("n4")
    [reported] = await carried_out(context, all_of_it[6:], notes)
    assert "host n4 was not cleaned" in reported
    await is_gone(kube)


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_worker_that_claims_to_be_another_clusters_is_removed_as_dead_and_its_host_left_alone(
    make_context, notes, renewed
):
    kube = a_kube()
    context = a_context(make_context, kube)
    host = context.machines.hosts["n4"]
    marker = {"cluster": "demo", "node": "n4", "founders": [], "ca": "b" * 64}
    host.files[places.NODE_MARKER] = (json.dumps(marker).encode(), 0o644)
    with pytest.raises(Problems, match="belongs to another cluster"):
        await carried_out(context, removal(), notes)
    if renewed:
        async with somebody_renews(kube):
            reported = await carried_out(context, removal(dead=True), notes)
    else:
        reported = await carried_out(context, removal(dead=True), notes)
    assert len(reported) == 1 + renewed
    assert "host n4 belongs to another cluster of the same name" in reported[0]
    assert host.log == []
    await is_gone(kube)


async def test_a_worker_that_answers_and_is_ours_is_not_dead(make_context):
    context = a_context(make_context, a_kube())
    with pytest.raises(Refused, match="unknown is not down"):
        await removal(dead=True)[0].plan(context)


@pytest.mark.parametrize("kind", [UnreadableHost, SlowHost])
async def test_a_worker_that_answers_half_or_late_is_as_one_that_does_not(
    make_context, notes, kind, monkeypatch, looptime
):
    kube = a_kube()
    context = a_context(make_context, kube, n4=kind("n4"))
    with pytest.raises(Refused, match="--dead"):
        await carried_out(context, removal()[:1], notes)
    assert looptime <= hosts.LOOK_SECONDS
    await carried_out(context, removal(dead=True), notes)
    await is_gone(kube)


# --- cuts ---------------------------------------------------------------------------------------------------


async def writes_of_a_complete_removal(make_context, notes, *, dead: bool) -> int:
    kube = a_kube(CutKube)
    kube.writes_left = 1000
    context = a_context(make_context, kube)
    if dead:
        del context.machines.hosts["n4"]
    await carried_out(context, removal(dead=dead), notes)
    await is_gone(kube)
    return 1000 - kube.writes_left


@pytest.mark.parametrize("dead", [False, True])
async def test_a_removal_that_is_cut_before_any_of_its_writes_ends_the_same_when_it_is_run_again(
    make_context, notes, dead
):
    complete = await writes_of_a_complete_removal(make_context, notes, dead=dead)
    assert complete > 5
    for writes in range(complete):
        kube = a_kube(CutKube)
        context = a_context(make_context, kube)
        if dead:
            del context.machines.hosts["n4"]
        kube.writes_left = writes
        with pytest.raises(Unreachable, match="cut"):
            await carried_out(context, removal(dead=dead), notes)
        kube.writes_left = None
        # What makes it a member goes first of all: whatever is cut after it, it is none.
        assert ("inventory" in await trusted(kube)) == (writes == 0), writes
        context.distrusted = frozenset()
        await carried_out(context, removal(dead=dead), notes)
        await is_gone(kube)


@pytest.mark.parametrize("cut", range(9))
async def test_a_removal_that_is_killed_between_two_phases_ends_the_same_whoever_spoils_it(make_context, notes, cut):
    kube = a_kube()
    context = a_context(make_context, kube, n4=SpoiledHost("n4"))
    await carried_out(context, removal()[:cut], notes)
    context.distrusted = frozenset()
    if "n4" in context.machines.hosts:
        await carried_out(context, removal(), notes)
    await is_gone(kube)


@pytest.mark.parametrize("recorded", [False, True])
async def test_an_up_between_a_removal_that_was_cut_and_its_repetition_gives_no_trust_back(
    make_context, notes, recorded
):
    """On the machine that began it, and remembers the node, which is in no file or record any more."""
    kube = a_kube()
    context = a_context(make_context, kube)
    await WriteKubeconfig().run(context, notes)
    await carried_out(context, removal()[:4], notes)
    smaller = replace(FOUR, nodes=FOUR.nodes[:3])
    later = a_context(make_context, kube)
    later.cluster = smaller
    if recorded:
        record = {"number": 1, "file": {"spec": {}}, "nodes": json.loads(memory_of(smaller.nodes))}
        later.machines.hosts["n1"].files[places.CLUSTER_RECORD] = (json.dumps(record).encode(), 0o600)
    await observe(later)
    assert {node.name: node.address for node in later.unlisted} == {"n4": None}
    [reported] = [hosts.taken_out(node) for node in later.unlisted]
    assert "autarky node remove n4" in reported.live
    await ApplyObjects().run(later, notes)
    assert "n4" not in await read_inventory(kube)
    await WriteKubeconfig().run(later, notes)
    assert known_node(later, "n4").address == WORKER.address, "who goes on with it knows it"
    await carried_out(a_context(make_context, kube), removal(node=known_node(later, "n4")), notes)
    await is_gone(kube)
    assert "n4" not in members.remembered(context.directory)
