"""Changed settings of a kubelet that runs: applied with a restart, judged, and taken back where it is not well."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest

from autarky.errors import Unreachable, UserError
from autarky.phases import kubelets
from autarky.phases.kubelets import ConfigureKubelets
from autarky.phases.prepare import PrepareHosts
from autarky.ports import Completed
from autarky.render import node as render_node
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
PHASE = ConfigureKubelets()
BAD = b"--nonsense"
LAST_WORDS = 'E1123 run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --nonsense"'


class Cluster(FakeKube):
    """Whose kubelets renew their leases as long as they are well."""


@dataclass(slots=True)
class KubeletHost(FakeHost):
    """A host whose kubelet ends at once where its unit has a flag that it does not know."""

    restarts: int = 0
    beats: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def well(self) -> bool:
        return BAD not in self.files[render_node.KUBELET_UNIT][0]

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True) -> Completed:
        match list(argv):
            case ["systemctl", "show", *_]:
                self.restarts += 0 if self.well else 1
                state = "active" if self.well else "activating"
                return Completed(0, f"ActiveState={state}\nNRestarts={self.restarts}\n".encode(), "")
            case ["systemctl", "reset-failed", "kubelet"]:  # a restart alone need not
                self.restarts = 0
            case ["bash", "-c", script] if "/healthz" in script:
                return Completed(0 if self.well else 1, b"HTTP/1.0 200 OK\r\n" if self.well else b"", "")
            case ["journalctl", *_]:
                return Completed(0, f"Flag --x has been deprecated\n{LAST_WORDS}\n".encode(), "")
        return await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)


@dataclass
class Beating(FakeKube):
    """An API that hears of every kubelet that is well, each time it is asked."""

    hosts: dict[str, KubeletHost] = field(default_factory=dict)

    async def get(self, api_version, kind, name, namespace=None):
        if kind == "Lease" and name in self.hosts:
            host = self.hosts[name]
            return {"spec": {"renewTime": str(next(host.beats) if host.well else 0)}}
        if kind == "Node" and name in self.hosts:
            ready = "True" if self.hosts[name].well else "False"
            return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
        return await FakeKube.get(self, api_version, kind, name, namespace)


@pytest.fixture
def running(make_context, notes):
    """A context of a control node and a worker whose kubelets run with what was prepared."""

    async def make():
        cluster = a_cluster(controls=1, workers=1)
        facts = facts_of(cluster)
        hosts = {name: KubeletHost(name, facts[name]) for name in facts}
        context = make_context(cluster, kube=Beating(hosts=hosts), hosts=hosts)
        await PrepareHosts().run(context, notes)
        for host in hosts.values():
            host.active_units.add("kubelet")
            host.log.clear()
        return context

    return make


def asking_for(context, argument: str, value: str) -> None:
    context.cluster = replace(context.cluster, extra_args={"kubelet": {argument: value}})


def unit(context, name: str) -> bytes:
    return context.machines.hosts[name].files[render_node.KUBELET_UNIT][0]


def logs(context) -> dict[str, list[str]]:
    return {name: host.log for name, host in context.machines.hosts.items()}


async def test_nothing_is_planned_while_nothing_has_changed(running, notes):
    context = await running()
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert logs(context) == {"n1": [], "n2": []}


async def test_a_change_is_named_by_the_plan_and_left_alone_by_what_prepares_hosts(running, notes):
    context = await running()
    asking_for(context, "max-pods", "50")
    assert await PrepareHosts().plan(context) == []
    await PrepareHosts().run(context, notes)
    assert b"--max-pods=50" not in unit(context, "n1")
    assert [change.sentence for change in await PHASE.plan(context)] == [
        f"restart the kubelet of {name} with its new settings ({render_node.KUBELET_UNIT}); no pod is touched"
        for name in ("n1", "n2")
    ]


async def test_a_change_is_applied_with_one_restart_of_each_kubelet_workers_first(running, notes):
    context = await running()
    asking_for(context, "max-pods", "50")
    await PHASE.run(context, notes)
    assert notes.notes[-2:] == [f"the kubelet of {name} runs with its new settings" for name in ("n2", "n1")]
    for name in ("n1", "n2"):
        assert b"--max-pods=50" in unit(context, name)
        assert [step for step in logs(context)[name] if "restart" in step] == ["restart kubelet"]
    assert await PHASE.plan(context) == []


async def test_a_bad_flag_is_taken_back_on_the_first_node_and_the_error_has_the_kubelets_last_words(running, notes):
    context = await running()
    before = {name: unit(context, name) for name in ("n1", "n2")}
    asking_for(context, "nonsense", "1")
    with pytest.raises(UserError) as caught:
        await PHASE.run(context, notes)
    assert "node n2: its kubelet is not well with the new settings" in str(caught.value)
    assert "unknown flag: --nonsense" in str(caught.value)
    assert "deprecated" not in str(caught.value)
    assert {name: unit(context, name) for name in ("n1", "n2")} == before
    assert logs(context)["n1"] == []
    context.cluster = replace(context.cluster, extra_args={})
    assert await PHASE.plan(context) == []


async def test_killed_between_any_two_steps_it_converges(running, notes):
    whole = await running()
    asking_for(whole, "max-pods", "50")
    await PHASE.run(whole, notes)
    steps = len(logs(whole)["n2"])
    assert steps > 5
    for cut in range(steps):
        context = await running()
        asking_for(context, "max-pods", "50")
        context.machines.hosts["n2"].fail_at = cut
        with pytest.raises(Unreachable):
            await PHASE.run(context, notes)
        context.machines.hosts["n2"].fail_at = None
        await PHASE.run(context, notes)
        assert await PHASE.plan(context) == [], cut
        assert b"--max-pods=50" in unit(context, "n2")


async def test_killed_between_any_two_steps_of_a_bad_change_the_former_settings_are_not_lost(running, notes):
    for cut in range(20):
        context = await running()
        before = unit(context, "n2")
        asking_for(context, "nonsense", "1")
        context.machines.hosts["n2"].fail_at = cut
        with pytest.raises((Unreachable, UserError)):
            await PHASE.run(context, notes)
        context.machines.hosts["n2"].fail_at = None
        with pytest.raises(UserError, match="so that it has the former ones again"):
            await PHASE.run(context, notes)
        assert unit(context, "n2") == before, cut


async def test_a_host_of_an_older_release_is_restarted_once(running, notes):
    context = await running()
    for host in context.machines.hosts.values():
        del host.files[kubelets.SETTLED]
    assert [change.sentence for change in await PHASE.plan(context)] == [
        f"restart the kubelet of {name} with its settings, which it has not read yet; no pod is touched"
        for name in ("n1", "n2")
    ]
    await PHASE.run(context, notes)
    assert await PHASE.plan(context) == []


async def test_a_kubelet_that_does_not_run_gets_its_settings_when_its_host_is_prepared(running, notes):
    context = await running()
    asking_for(context, "max-pods", "50")
    context.machines.hosts["n1"].active_units.discard("kubelet")
    await PrepareHosts().run(context, notes)
    assert b"--max-pods=50" in unit(context, "n1")
    assert len(await PHASE.plan(context)) == 1
