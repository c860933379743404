"""Changed settings of a kubelet that runs: applied with a restart, judged, and taken back where it is not well."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.errors import TimedOut, Unreachable, UserError
from autarky.model.files import File
from autarky.phases import kubelets
from autarky.phases.kubelets import ConfigureKubelets, Former, read_former
from autarky.phases.prepare import PrepareHosts
from autarky.phases.start import start_kubelet
from autarky.ports import Completed
from autarky.render import node as render_node
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

pytestmark = pytest.mark.looptime
PHASE = ConfigureKubelets()
BAD = b"--nonsense"
BREAKING = b"--breaking"
LAST_WORDS = 'E1123 run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --nonsense"'


@dataclass(slots=True)
class KubeletHost(FakeHost):
    """Its kubelet ends at once where the unit that it was started with has a flag that it does not know; its Node is
    NotReady where that has one that breaks it."""

    restarts: int = 0
    beats: itertools.count[int] = field(default_factory=itertools.count)
    started_with: bytes = b""

    def boot(self) -> None:
        """The machine is switched off and on, or the kubelet exits and systemd restarts it."""
        self.started_with = self.files[render_node.KUBELET_UNIT][0]
        self._change_units("start", ["kubelet"])

    @property
    def well(self) -> bool:
        return BAD not in self.started_with

    @property
    def ready(self) -> bool:
        return self.well and BREAKING not in self.started_with

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True) -> Completed:
        match list(argv):
            case ["systemctl", "is-active", "kubelet"] if "kubelet" in self.active_units and not self.well:
                return Completed(3, b"activating\n", "")
            case ["systemctl", "enable", "--now", "kubelet"]:
                if "kubelet" not in self.active_units:
                    self.boot()
            case ["systemctl", "show", "kubelet", *_]:
                self.restarts += 0 if self.well else 1
                state = "active" if self.well else "activating"
                return Completed(0, f"ActiveState={state}\nNRestarts={self.restarts}\n".encode(), "")
            case ["systemctl", "reset-failed", "kubelet"]:  # a restart alone need not
                self.restarts = 0
            case ["bash", "-c", script] if "/healthz" in script:
                return Completed(0 if self.well else 1, b"HTTP/1.0 200 OK\r\n" if self.well else b"", "")
            case ["journalctl", *_]:
                return Completed(0, f"Flag --x has been deprecated\n{LAST_WORDS}\n".encode(), "")
        said = await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)
        if list(argv) == ["systemctl", "restart", "kubelet"]:
            self.boot()
        return said


@dataclass
class Beating(FakeKube):
    """An API that hears of every kubelet that is well, each time it is asked."""

    hosts: dict[str, KubeletHost] = field(default_factory=dict)
    outages: int = 0
    """How many requests for a Node fail before one is answered."""
    late: int = 0
    """How often a Node that will be Ready is shown as it was before."""

    async def get(self, api_version, kind, name, namespace=None):
        if kind == "Node" and self.outages:
            self.outages -= 1
            raise Unreachable("nothing listens")
        if kind == "Node" and self.late:
            self.late -= 1
            return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        if kind == "Lease" and name in self.hosts:
            host = self.hosts[name]
            return {"spec": {"renewTime": str(next(host.beats) if host.well else 0)}}
        if kind == "Node" and name in self.hosts:
            ready = "True" if self.hosts[name].ready else "False"
            return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}
        return await FakeKube.get(self, api_version, kind, name, namespace)


@pytest.fixture
def running(make_context, notes):
    """A context of a control node and a worker whose kubelets run with what was prepared."""

    async def make(kind: type[KubeletHost] = KubeletHost):
        cluster = a_cluster(controls=1, workers=1)
        facts = facts_of(cluster)
        hosts = {name: kind(name, facts[name]) for name in facts}
        context = make_context(cluster, kube=Beating(hosts=hosts), hosts=hosts)
        await PrepareHosts().run(context, notes)
        for host in hosts.values():
            host.boot()
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
    assert "node n2: its kubelet is not healthy with the new settings" in str(caught.value)
    assert "unknown flag: --nonsense" in str(caught.value)
    assert "deprecated" not in str(caught.value)
    assert {name: unit(context, name) for name in ("n1", "n2")} == before
    assert logs(context)["n1"] == []
    context.cluster = replace(context.cluster, extra_args={})
    assert await PHASE.plan(context) == []


@pytest.mark.parametrize("away", [1, 3])
async def test_rule_2_a_node_that_nobody_could_look_at_was_not_unready(running, notes, away):
    """The API is away for some requests, right before the change: what breaks the Node goes back all the same."""
    context = await running()
    before = unit(context, "n2")
    asking_for(context, BREAKING.decode().lstrip("-"), "1")
    context.kube().outages = away
    with pytest.raises(UserError, match="so that it has the former ones again"):
        await PHASE.run(context, notes)
    assert unit(context, "n2") == before


async def test_a_node_that_becomes_ready_a_moment_later_was_not_unready(running, notes):
    """All machines have just been powered on."""
    context = await running()
    before = unit(context, "n2")
    asking_for(context, BREAKING.decode().lstrip("-"), "1")
    context.kube().late = 5
    with pytest.raises(UserError, match="so that it has the former ones again"):
        await PHASE.run(context, notes)
    assert unit(context, "n2") == before


async def test_nothing_is_changed_while_the_api_does_not_say_how_the_node_is(running, notes):
    context = await running()
    asking_for(context, "max-pods", "50")
    context.kube().outages = 10**6
    with pytest.raises(TimedOut, match="Ready"):
        await PHASE.run(context, notes)
    assert [step for name in ("n1", "n2") for step in logs(context)[name]] == []


async def test_killed_between_any_two_steps_it_converges(running, notes):
    complete = await running()
    asking_for(complete, "max-pods", "50")
    await PHASE.run(complete, notes)
    steps = len(logs(complete)["n2"])
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


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_worker_whose_host_cannot_be_looked_at_is_left_out(running, notes, monkeypatch, hangs):
    real = kubelets._unsettled

    async def unsettled(context, node):
        if node.name == "n1":
            return await real(context, node)
        if hangs:
            await asyncio.Event().wait()
        raise Unreachable("n2: connection reset")

    monkeypatch.setattr(kubelets, "_unsettled", unsettled)
    context = await running()
    context.joined = frozenset({"n1", "n2"})
    asking_for(context, "max-pods", "50")
    [change, reported] = await PHASE.plan(context)
    assert change.sentence.startswith("restart the kubelet of n1 ")
    assert reported.sentence == f"n2 is left out: {context.absent['n2']}"
    await PHASE.run(context, notes)
    assert b"--max-pods=50" in unit(context, "n1")


@dataclass(slots=True)
class Lost(KubeletHost):
    """With the new settings its host is not heard of any more."""

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True) -> Completed:
        if b"--max-pods=50" in self.started_with:
            raise Unreachable(f"{self.name}: connection reset")
        return await KubeletHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)


async def test_what_fails_once_a_worker_has_its_settings_ends_it_before_any_control_node(running, notes):
    context = await running(Lost)
    context.joined = frozenset({"n1", "n2"})
    asking_for(context, "max-pods", "50")
    with pytest.raises((Unreachable, UserError)):
        await PHASE.run(context, notes)
    assert context.absent == {}
    assert b"--max-pods=50" in unit(context, "n2")
    assert b"--max-pods=50" not in unit(context, "n1")


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


async def test_a_kubelet_that_does_not_run_gets_its_settings_when_its_host_is_prepared_and_is_judged_with_them(
    running, notes
):
    context = await running()
    asking_for(context, "max-pods", "50")
    host = context.machines.hosts["n1"]
    host.active_units.discard("kubelet")
    await PrepareHosts().run(context, notes)
    assert b"--max-pods=50" in unit(context, "n1")
    assert len(await PHASE.plan(context)) == 2
    host.boot()
    await PHASE.run(context, notes)
    assert logs(context)["n1"].count("restart kubelet") == 1
    assert await PHASE.plan(context) == []


async def test_a_kubelet_that_starts_for_the_first_time_is_not_started_anew(make_context, notes):
    complete = make_context(a_cluster(controls=1))
    await PrepareHosts().run(complete, notes)
    assert await PHASE.plan(complete) == []
    assert await PHASE.plan(make_context(a_cluster(controls=1))) == []


async def up(context, notes) -> None:
    """What `up` does to kubelets: it prepares their hosts, starts them, and applies changed settings."""
    await PrepareHosts().run(context, notes)
    for host in context.machines.hosts.values():
        await start_kubelet(host)
    await PHASE.run(context, notes)


def cut_at(context, step: int) -> None:
    host = context.machines.hosts["n2"]
    host.log.clear()
    host.fail_at = step


AFTERWARDS = {
    "the same file": None,
    "the file is corrected": {},
    "another good one": {"max-pods": "60"},
    "another that breaks": {"breaking": "2"},
}


@pytest.mark.parametrize("boots", [False, True], ids=["", "the host boots"])
@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("change", ["max-pods", "nonsense", "breaking"])
async def test_a_change_that_was_cut_anywhere_is_judged_or_taken_back_by_the_next_up(
    running, notes, change, afterwards, boots
):
    for cut in itertools.count():
        context = await running()
        host = context.machines.hosts["n2"]
        former = unit(context, "n2")
        asking_for(context, change, "1")
        cut_at(context, cut)
        with suppress(UserError, Unreachable):
            await up(context, notes)
        was_cut, host.fail_at = len(host.log) == cut, None
        if boots:
            host.boot()
        if AFTERWARDS[afterwards] is not None:
            context.cluster = replace(context.cluster, extra_args={"kubelet": AFTERWARDS[afterwards]})
        good = not context.cluster.extra_args.get("kubelet", {}).keys() & {"nonsense", "breaking"}
        if good:
            await up(context, notes)
            assert await PHASE.plan(context) == [], cut
            assert await PrepareHosts().plan(context) == [], cut
            assert kubelets.FORMER not in host.files
        else:
            with pytest.raises(UserError, match="so that it has the former ones again"):
                await up(context, notes)
            assert host.started_with == former or b"--max-pods=1" in host.started_with, cut
        assert host.ready, cut
        assert host.started_with == unit(context, "n2"), cut
        if not was_cut:
            break
    assert cut > 4


async def test_a_kubelet_that_cannot_start_with_a_change_that_was_cut_starts_with_the_former_settings(running, notes):
    """The phase that judges may be out of reach: what starts with this kubelet may be the control plane."""
    context = await running()
    host, former = context.machines.hosts["n2"], unit(context, "n2")
    asking_for(context, "nonsense", "1")
    written = [f"write {path}" for path in (kubelets.FORMER, *kubelets.PATHS)]
    host.fail_at = len(written)
    with pytest.raises(Unreachable):
        await PHASE.run(context, notes)
    assert host.log == written
    host.fail_at = None
    host.boot()
    assert not host.well
    await PrepareHosts().run(context, notes)
    assert unit(context, "n2") == former
    assert len(await PHASE.plan(context)) == 2


@given(st.binary(max_size=200))
def test_what_is_kept_of_former_settings_is_read_as_it_was_and_bad_bytes_are_a_change_all_the_same(content):
    former = Former(tuple(File(path, content) for path in kubelets.PATHS), ready=True)
    assert read_former(former.written()) == former
    assert isinstance(read_former(content), Former)
