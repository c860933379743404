"""A cluster on new machines, from a backup: nothing of it is lost by a cut, nothing of another cluster is touched, and
at no moment an old machine is trusted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from autarky import places
from autarky.control.cluster_file.decide.records import Record
from autarky.control.control_nodes.decide.initial import Memory
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.phase import Change
from autarky.errors import AutarkyError, Refused, UserError
from autarky.model.cluster import HostRef, Node
from autarky.phases.borrow import ROOTS
from autarky.phases.check_file import CheckFile
from autarky.phases.context import Context
from autarky.phases.hosts import FOUNDED
from autarky.phases.recovery.machines import (
    BEGUN,
    BeginEtcd,
    ForgetOldMachines,
    RefuseLiving,
    TakeRoots,
    begun_with,
)
from autarky.phases.recovery.state import FromSnapshot, Recovered, Recovery
from autarky.phases.trusted import Trusted, trusted
from autarky.places import ETCD_DATA
from autarky.render import access, crds
from autarky.workflows.recover import phases
from fakes.clusters import a_cluster, facts_of
from fakes.kube import FakeKube
from fakes.recovering_host import Cut, RecoveringEtcd
from unit.phases.recovery.scenes import etcd_member
from unit.phases.recovery.test_removed_nodes import Watched, lists, node, nodes

pytestmark = pytest.mark.looptime
CLUSTER = a_cluster(controls=1, workers=1)
LOST = 0xAB
"""The etcd of the cluster that is gone."""
RECORD = Record(
    file={},
    nodes={
        name: {"host": f"lab:{name}", "address": address, "controlPlane": control, "founder": control}
        for name, address, control in (
            ("n1", "192.0.2.11", True),
            ("n3", "192.0.2.203", True),
            ("n4", "192.0.2.204", False),
        )
    },
)


class World:
    def __init__(self, make_context, kube: FakeKube) -> None:
        self.etcd, self.kube = RecoveringEtcd(), kube
        self.hosts = self.etcd.of(facts_of(CLUSTER))
        self._make = make_context
        for definition in (crds.control_plane_crd(), etcd_members.crd()):
            kube.put(definition)

    def context(self) -> Context:
        return self._make(CLUSTER, kube=self.kube, hosts=self.hosts)


@pytest.fixture
def world(make_context) -> World:
    return World(make_context, FakeKube())


# --- etcd begins ------------------------------------------------------------------------------------------------------


async def begin(world: World, snapshot: FromSnapshot, notes) -> None:
    """As one command does it."""
    context, recovery = world.context(), Recovery(snapshot, made_of="made of backup-1")
    founded = FOUNDED in world.hosts["n1"].files
    context.memories = {"n1": Memory(frozenset({"n1"}), founded)}
    phase = BeginEtcd(recovery, begun_with(LOST, snapshot.revision))
    if await phase.plan(context):
        await phase.run(context, notes)


@pytest.mark.parametrize("how", Cut)
async def test_rule_5_cut_twice_anywhere_it_begins_all_the_same(
    make_context, snapshot: FromSnapshot, notes, how: Cut
) -> None:
    """Each cut may come after the data was placed, which is then in the way of that of the next run."""
    cuts = [(first, second) for first in range(13) for second in range(13)]
    longest = 0
    for pair in cuts:
        world = World(make_context, FakeKube())
        for number in pair:
            world.etcd.cut, world.etcd.how = number, how
            with suppress(AutarkyError):
                await begin(world, snapshot, notes)
            longest = max(longest, len(world.etcd.acts))
            world.etcd.on_again()
        host = world.hosts["n1"]
        await begin(world, snapshot, notes)
        assert json.loads(host.files[f"{ETCD_DATA}/member/snap/db"][0])["keys"] == {"/registry/pods/demo/restored": "1"}
        assert len(host.pods) == 1
        assert {BEGUN, FOUNDED} <= host.files.keys()
        assert not [name for name in host.left() if name.startswith("recovery.")], pair
    assert 7 < longest < 13


async def test_what_it_began_with_is_noted_before_the_host_counts_as_one_of_the_cluster(
    world: World, snapshot: FromSnapshot, notes
) -> None:
    await begin(world, snapshot, notes)
    acts = world.etcd.acts
    assert acts.index(f"n1: write {BEGUN}") < acts.index(f"n1: write {FOUNDED}")
    assert world.hosts["n1"].files[BEGUN] == (begun_with(LOST, 300).content, 0o600)
    assert begun_with(LOST, 300) != begun_with(LOST, 301) != begun_with(LOST + 1, 301)


# --- where there is a cluster already -------------------------------------------------------------------------------


def take(context: Context, begun=None) -> TakeRoots:
    files = {name: (context.pki.directory / name).read_bytes() for name in ROOTS}
    return TakeRoots(files, RECORD, begun or begun_with(LOST, 300))


async def test_a_cluster_that_is_there_is_refused_whether_it_runs_or_not(world: World) -> None:
    """Everything in it would be forgotten."""
    for why in (None, "it is down"):
        world.kube.unhealthy = why
        context = world.context()
        context.memories = {"n1": Memory(frozenset({"n1"}), founded=True)}
        with pytest.raises(Refused, match="is on n1 already, and was not begun with this backup") as refused:
            await take(context).plan(context)
        assert "autarky restore FILE" in str(refused.value)
    assert world.etcd.acts == []


async def test_so_is_one_that_answers_though_no_host_of_the_file_remembers_it(world: World) -> None:
    context = world.context()
    with pytest.raises(Refused, match="an API of this cluster answers at the addresses in the file"):
        await take(context).plan(context)


async def test_new_machines_are_not(world: World) -> None:
    world.kube.unhealthy = "connection refused"
    context = world.context()
    context.memories = {"n1": Memory(), "n2": Memory(frozenset({"n2"}), founded=True)}  # a worker's own word
    assert await take(context).plan(context) == []
    assert not context.founded, "etcd would not be begun"


@pytest.mark.parametrize("why", [None, "it is down"])
async def test_one_that_was_begun_with_this_very_backup_is_resumed_and_no_other(
    world: World, snapshot: FromSnapshot, notes, why: str | None
) -> None:
    await begin(world, snapshot, notes)
    world.kube.unhealthy = why
    context = world.context()
    context.memories = {"n1": Memory(frozenset({"n1"}), founded=True)}
    assert await take(context).plan(context) == []
    for other in (begun_with(LOST, 301), begun_with(LOST + 1, 300)):
        with pytest.raises(Refused, match="was not begun with this backup"):
            await take(context, other).plan(context)
    world.hosts["n2"].files[BEGUN] = world.hosts["n1"].files.pop(BEGUN)
    with pytest.raises(Refused):
        await take(context).plan(context)


async def test_an_old_cluster_that_still_runs_is_refused_wherever_it_was(world: World, monkeypatch) -> None:
    context, asked = world.context(), []

    def connect(servers, certificate):
        asked.append((list(servers), certificate))
        return world.kube

    context.connect = connect
    with pytest.raises(Refused, match=r"the API of the old cluster answers, at one of 192\.0\.2\.203"):
        await RefuseLiving(RECORD).plan(context)
    assert asked == [(["https://192.0.2.203:6443"], "super-admin")], "not the address that a new machine has now"
    world.kube.unhealthy = "no route to host"
    assert await RefuseLiving(RECORD).plan(context) == []
    asked.clear()
    without: list[dict[str, Any]] = [{}, {"n1": RECORD.nodes["n1"]}, {"x": {}}]
    for others in without:
        assert await RefuseLiving(Record(file={}, nodes=others)).plan(context) == []
    monkeypatch.setattr(type(context.pki), "complete", lambda *_: False)
    assert await RefuseLiving(RECORD).plan(context) == []
    assert asked == []


def test_it_is_refused_before_anything_is_written_to_a_host_or_to_the_api(snapshot: FromSnapshot) -> None:
    names = [phase.name for phase in phases(Recovery(snapshot), {}, RECORD, LOST)]
    assert names.index("check-hosts") < names.index("take-roots") < names.index("refuse-living")
    assert names.index("refuse-living") < min(map(names.index, ("forget-replaced", "prepare-hosts", "begin-etcd")))


async def test_what_this_machine_remembers_of_old_machines_is_rendered_nowhere(world: World) -> None:
    world.kube.unhealthy = "connection refused"
    context = world.context()
    context.unlisted = (Node("n3", HostRef("lab", "n3"), True, address="192.0.2.203"),)
    await take(context).plan(context)
    assert {one.name for one in context.complete.nodes} == {"n1", "n2"}


async def test_another_cluster_of_that_name_and_a_backup_without_keys_are_refused(world: World) -> None:
    context = world.context()
    with pytest.raises(UserError, match="has another cluster named demo"):
        await replace(take(context), files={"ca.crt": context.pki.files()["etcd/ca.crt"]}).plan(context)
    with pytest.raises(UserError, match=r"the backup lacks ca\.key, sa\.key"):
        await replace(take(context), files={"ca.crt": context.pki.files()["ca.crt"]}).plan(context)


# --- the old machines -------------------------------------------------------------------------------------------------


OLD_NODES = ("n1", "n2", "n3", "n4")


@pytest.fixture
def begun(make_context) -> World:
    """The API has what was in the backup. The kubelet of n1 runs already; n2 is new."""
    world = World(make_context, Watched())
    for obj in (*map(node, OLD_NODES), *lists(OLD_NODES), etcd_member("n1", 9), etcd_member("n3", 3)):
        world.kube.put(obj)
    host = world.hosts["n1"]
    world.etcd.values[LOST + 1], world.etcd.voters[LOST + 1] = {"revision": 9, "keys": {}}, {"n1": 1}
    world.etcd.leader = "n1"
    host.has_data(LOST + 1, 1, world.etcd.values[LOST + 1])
    host.files[f"{places.MANIFESTS}/etcd-x.json"] = (b"{}", 0o600)
    host.files[kubelet_credentials.KUBELET_KUBECONFIG] = (b"", 0o600)
    world.etcd.settle()
    return world


def forgetting(snapshot: FromSnapshot) -> ForgetOldMachines:
    return ForgetOldMachines(Recovery(snapshot, made_of="made of backup-1"), LOST)


async def test_old_machines_are_not_trusted_any_more_before_they_are_forgotten(
    begun: World, snapshot: FromSnapshot, notes
) -> None:
    """Those of which a new machine has the name included: what the old one had is good for nothing. Meanwhile the
    inventory is never empty (see Watched)."""
    context, phase = begun.context(), forgetting(snapshot)
    planned = [one.sentence for one in await phase.plan(context) if isinstance(one, Change)]
    assert planned[0] == "trust the nodes of the file, and no credential of any machine"
    old = [one for one in planned if "old machine" in one]
    assert old == [f"forget the old machine {name}" for name in ("n2", "n3", "n4")]
    await phase.run(context, notes)
    inventory = access.inventory(CLUSTER)["data"]
    assert await trusted(begun.kube) == Trusted(inventory, {"n1": "", "n2": ""})
    assert await nodes(begun.kube) == {"n1"}
    assert await begun.kube.list("autarky.dev/v1alpha1", "EtcdMember") == []
    assert former_of(begun.etcd.values[LOST + 1]["keys"][FORMER]) == {LOST}
    noted = Recovered.read(begun.hosts["n1"].files[places.ETCD_RECOVERED][0])
    assert noted is not None
    assert (noted.made_of, noted.kept) == ("made of backup-1", "")
    assert await phase.plan(context) == []


async def test_also_where_not_one_of_the_old_names_is_left(begun: World, snapshot: FromSnapshot, notes) -> None:
    """Deleting them one by one would leave an empty inventory, which refuses nobody."""
    for obj in lists(("n3", "n4")):
        begun.kube.put(obj)
    await forgetting(snapshot).run(begun.context(), notes)
    assert (await trusted(begun.kube)).inventory.keys() == {"n1", "n2"}


async def test_once_that_is_noted_a_node_that_is_silent_or_in_no_file_is_not_forgotten(
    begun: World, snapshot: FromSnapshot, notes
) -> None:
    """It has joined since then."""
    phase = forgetting(snapshot)
    await phase.run(begun.context(), notes)
    for name in ("n2", "n9"):
        begun.kube.put(node(name))
    context = begun.context()
    context.absent = {"n2": "no route to host"}
    assert await phase.plan(context) == []


@pytest.mark.parametrize("kind", ["apply", "patch", "delete"])
async def test_rule_5_interrupted_at_any_write_to_the_api_the_next_run_does_the_rest(
    begun: World, snapshot: FromSnapshot, notes, kind: str, monkeypatch
) -> None:
    real, count = getattr(Watched, kind), 0

    async def cut(self, *arguments, **others):
        nonlocal count
        count += 1
        if count in (1, 3, 6, 10, 15, 21):
            raise UserError("it was cut")
        return await real(self, *arguments, **others)

    monkeypatch.setattr(Watched, kind, cut)
    for _ in range(30):
        with suppress(UserError):
            await forgetting(snapshot).run(begun.context(), notes)
    assert count > 1
    assert (await trusted(begun.kube)).inventory.keys() == {"n1", "n2"}
    assert await nodes(begun.kube) == {"n1"}


async def test_where_the_api_is_silent_it_is_planned_in_general(begun: World, snapshot: FromSnapshot) -> None:
    begun.kube.unhealthy = "it is down"
    assert [one.sentence for one in await forgetting(snapshot).plan(begun.context())] == [
        "forget the machines that the backup names"
    ]


# --- `autarky up` after it was cut ------------------------------------------------------------------------------------


def of_up(world: World) -> Context:
    context = world.context()
    context.upgrades = True
    return context


async def test_an_up_does_not_go_on_before_the_old_machines_are_forgotten(
    begun: World, snapshot: FromSnapshot, notes
) -> None:
    """Each of their credentials is good until then; and what joins meanwhile would not be trusted afterwards."""
    host = begun.hosts["n1"]
    host.files[BEGUN] = (begun_with(LOST, 300).content, 0o600)
    for why in ("it is down", None):
        begun.kube.unhealthy = why
        context = of_up(begun)
        with pytest.raises(Refused, match="begun etcd on n1, and was interrupted") as refused:
            await CheckFile().plan(context)
        assert "run the same `autarky recover --from FILE` again" in str(refused.value)
        await CheckFile().plan(begun.context())  # as `recover` itself looks
    await forgetting(snapshot).run(begun.context(), notes)
    await CheckFile().plan(of_up(begun))
    begun.kube.unhealthy = "it is down"
    await CheckFile().plan(of_up(begun))


async def test_once_a_node_has_an_agent_that_is_long_done(begun: World) -> None:
    """An earlier release has noted it in etcd alone, which may be what is down."""
    begun.hosts["n1"].files[BEGUN] = (begun_with(LOST, 300).content, 0o600)
    begun.hosts["n1"].files[f"{places.MANIFESTS}/node-agent-standby-1.json"] = (b"{}", 0o600)
    begun.kube.unhealthy = "it is down"
    await CheckFile().plan(of_up(begun))


async def test_of_another_recovery_the_note_says_nothing_and_a_workers_host_neither(begun: World) -> None:
    begun.hosts["n2"].files[BEGUN] = (begun_with(LOST, 300).content, 0o600)
    await CheckFile().plan(of_up(begun))
    begun.hosts["n1"].files[BEGUN] = (begun_with(LOST, 300).content, 0o600)
    begun.hosts["n1"].files[places.ETCD_RECOVERED] = (Recovered("ac", "", "m", "t", 1, ["ad"]).file().content, 0o600)
    with pytest.raises(Refused, match="begun etcd on n1"):
        await CheckFile().plan(of_up(begun))
