"""Control nodes in memory with their etcd, on which recoveries are run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.etcd.manifests import members as etcd_members
from autarky.engine.phase import Change, Warn
from autarky.engine.runner import run_operation
from autarky.phases.context import Context, memory_of
from autarky.phases.recovery.fencing import FenceEtcd
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.state import FromMember, FromSnapshot, Recovery
from autarky.places import ETCD_FENCE, ETCD_FENCED
from autarky.render.crds import API_VERSION
from autarky.workflows.recovery import abandoning, phases
from fakes.kube import FakeKube
from fakes.recovering_host import RecoveringEtcd

OLD = 0xC1
KEYS = {"/registry/pods/demo/web": "1"}


class Scene:
    """A cluster with its etcd, on which commands are run, each as a process of its own."""

    def __init__(self, make: Callable[[], Context], etcd_: RecoveringEtcd, kube: FakeKube, notes) -> None:
        self.make, self.etcd, self.kube, self.notes = make, etcd_, kube, notes

    @property
    def hosts(self):
        return self.etcd.hosts

    def off(self, *names: str) -> None:
        for name in names:
            self.hosts[name].off, self.hosts[name].process = True, False

    def cut_off(self, *names: str, no_route: bool = False) -> None:
        """From us: they run, and what runs on them. no_route: from the other hosts as well."""
        for name in names:
            self.hosts[name].cut_off, self.hosts[name].no_route = True, no_route

    def not_in_file(self, *names: str, remembered: bool = False) -> None:
        """The file is from last year, and this machine may know them all the same."""
        make, directory = self.make, self.make().directory
        if remembered:
            (directory / "nodes.json").write_bytes(memory_of(make().cluster.nodes))

        def without() -> Context:
            context = make()
            left = tuple(node for node in context.cluster.nodes if node.name not in names)
            return replace(context, cluster=replace(context.cluster, nodes=left))

        self.make = without

    def on(self, *names: str) -> None:
        """One after the other. At its boot each one asks those that serve whether they have replaced its etcd."""
        for name in names:
            self.hosts[name].boot()

    async def run(self, source, *, after_look=None) -> Recovery:
        """To its end; raises what a person would see."""
        self.etcd.on_again()
        return await self.go_on(source, after_look=after_look)

    async def go_on(self, source, *, after_look=None) -> Recovery:
        recovery, context = Recovery(source), self.make()
        look = None if after_look is None else after_look(recovery)
        await run_operation("test", "recovery", phases(recovery, look), context, clock=context.clock)
        return recovery

    async def until(self, source, phase: type) -> tuple[Recovery, Context]:
        """Everything before that phase."""
        recovery, context = Recovery(source), self.make()
        for one in phases(recovery):
            if isinstance(one, phase):
                break
            if any(isinstance(change, Change) for change in await one.plan(context)):
                await one.run(context, self.notes)
        return recovery, context

    async def plan(self, source) -> list[str]:
        """What is said before anything is done."""
        recovery, context = Recovery(source), self.make()
        found = await LookForData(recovery).plan(context)
        assert all(isinstance(one, Warn) for one in found)
        return [one.sentence for one in found]

    def lost_quorum(self) -> None:
        """Only n1 is left. Its last entry is not marked as committed."""
        self.off("n2", "n3")
        self.hosts["n1"].has_data(OLD, 1, self.etcd.values[OLD], entries=9, commits=1)

    def former(self) -> frozenset[int]:
        [cluster] = self.etcd.serving()
        return former_of(self.etcd.values[cluster]["keys"].get(FORMER))


async def fence(scene: Scene, recovery: Recovery, name: str) -> None:
    host = scene.hosts[name]
    await host.write_files([recovery.fence.file()])
    host._fencing("fence-etcd")
    host.process = False


async def killed_after_fencing_n2(scene: Scene, snapshot: FromSnapshot) -> Recovery:
    """The new data is complete on n1."""
    recovery, _ = await scene.until(snapshot, FenceEtcd)
    assert recovery.made
    await fence(scene, recovery, "n2")
    scene.etcd.acts.clear()
    return recovery


async def abandon(scene: Scene) -> None:
    context = scene.make()
    scene.etcd.on_again()
    await run_operation("test", "abandon", abandoning(Recovery(FromMember())), context, clock=context.clock)


def etcd_member(name: str, number: int):
    spec = {"nodeName": name, "address": f"192.0.2.1{number}", "state": "Member"}
    return {"apiVersion": API_VERSION, "kind": etcd_members.KIND, "metadata": {"name": name}, "spec": spec}


def all_is_well(scene: Scene) -> None:
    """One etcd serves, with all members that are there; nothing is left over, and nothing of the old data is gone."""
    [cluster] = scene.etcd.serving()
    assert cluster != OLD
    for name, host in scene.hosts.items():
        if host.off:
            continue
        assert host.runs == cluster, name
        assert len(host.pods) == 1
        assert not {ETCD_FENCE, ETCD_FENCED} & host.files.keys()
        assert not [one for one in host.left() if one.startswith("recovery.")]
        assert [one for one in host.left() if one.startswith("kept.")]
    assert OLD in scene.former()


def with_two_left(scene: Scene) -> Scene:
    """Of five voters: n1 has fewer entries than n2."""
    scene.etcd.voters[OLD] |= {"n4": 4, "n5": 5}
    scene.off("n3")
    scene.hosts["n1"].has_data(OLD, 1, {**scene.etcd.values[OLD], "revision": 490}, entries=90)
    scene.hosts["n2"].has_data(OLD, 2, scene.etcd.values[OLD], entries=100)
    assert scene.etcd.serving() == []
    return scene


async def not_hosted(scene: Scene) -> None:
    scene.etcd.hosted = False
    await says(scene, "2-4")


async def says(scene: Scene, levels: str) -> None:
    """The ControlPlane."""
    plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
    scene.kube.put({**plane, "spec": {**plane["spec"], "selfHosted": levels}})
