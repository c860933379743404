"""Changed settings of a kubelet that runs: applied with a restart, judged, and taken back where it is not well."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.errors import TimedOut, Unreachable, UserError
from autarky.model.files import File
from autarky.model.versions import Version
from autarky.phases import kubelets, kubelets_back
from autarky.phases.binaries import stored
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
    bad_program: str = ""
    """One that ends at once."""

    def boot(self) -> None:
        """The machine is switched off and on, or the kubelet exits and systemd restarts it."""
        self.started_with = self.files[render_node.KUBELET_UNIT][0]
        self._change_units("restart", ["kubelet"])

    @property
    def well(self) -> bool:
        return BAD not in self.started_with and self.kubelet_program != (self.bad_program or None)

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


# --- another program -----------------------------------------------------------------------------------------


def bring(context, digest: str) -> str:
    """Another kubelet is in the payload; returns where it will lie on hosts."""
    assert context.payload is not None
    binary = replace(context.payload.binaries["kubelet"], sha256=f"{digest:0<64}")
    context.payload = replace(context.payload, binaries={**context.payload.binaries, "kubelet": binary})
    return stored(binary)


def runs(context) -> dict[str, str]:
    """The host → the program of its kubelet; fails where its link points to another one."""
    hosts = context.machines.hosts
    assert all(host.links[render_node.BINARIES["kubelet"]] == host.kubelet_program for host in hosts.values())
    return {name: host.kubelet_program for name, host in hosts.items()}


async def test_a_new_program_comes_with_one_restart_of_each_kubelet_workers_first(running, notes):
    context = await running()
    former, new = runs(context), bring(context, "b")
    await PrepareHosts().run(context, notes)
    assert runs(context) == former, "a host that starts before the verdict begins with what it had"
    because = f"with its new program (Kubernetes {context.payload.release.kubernetes})"
    assert [change.sentence for change in await PHASE.plan(context)] == [
        f"restart the kubelet of {name} {because}; no pod is touched" for name in ("n1", "n2")
    ]
    await PHASE.run(context, notes)
    assert runs(context) == dict.fromkeys(("n1", "n2"), new)
    assert [log.count("restart kubelet") for log in logs(context).values()] == [1, 1]
    assert (await PHASE.plan(context), await PrepareHosts().plan(context)) == ([], [])


async def test_a_program_that_is_not_healthy_gives_way_to_the_former_one(running, notes):
    context = await running()
    former, new = runs(context), bring(context, "b")
    context.machines.hosts["n2"].bad_program = new
    await PrepareHosts().run(context, notes)
    with pytest.raises(UserError, match="so that it has the former ones again"):
        await PHASE.run(context, notes)
    assert runs(context) == former
    bring(context, "c")
    await up(context, notes)
    assert set(runs(context).values()) == {stored(context.payload.binaries["kubelet"])}


OLDER, NEWER = Version(1, 36, 4), Version(1, 37, 1)


class Versions(Beating):
    """Each Node says the version of the kubelet that runs, in its second look after that has started."""

    def __init__(self, hosts: dict[str, KubeletHost], older: str) -> None:
        super().__init__(hosts=hosts)
        self.older, self.looks = older, 0

    async def list(self, api_version, kind, **selected):
        if kind != "Node":
            return await super().list(api_version, kind, **selected)
        self.looks += 1
        said = {name: OLDER if one.kubelet_program == self.older else NEWER for name, one in self.hosts.items()}
        return [
            {"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": str(version)}}}
            for name, version in said.items()
        ]


async def test_kubelets_of_a_later_minor_go_back_before_the_control_plane_does(running, notes):
    context = await running()
    older = bring(context, "b")
    context._kube = Versions(context.machines.hosts, older)
    assert await kubelets_back.to_lower(context, OLDER) == {"n1": NEWER, "n2": NEWER}
    assert await kubelets_back.to_lower(context, NEWER) == {}
    context.absent = {"n2": "it is off"}
    assert await kubelets_back.to_lower(context, OLDER) == {"n1": NEWER}
    context.absent = {}
    await kubelets_back.lower(context, OLDER, notes)
    assert runs(context) == dict.fromkeys(("n1", "n2"), older)
    assert [log.count("restart kubelet") for log in logs(context).values()] == [1, 1]
    await kubelets_back.lower(context, OLDER, notes)
    assert [log.count("restart kubelet") for log in logs(context).values()] == [1, 1]


class Planed(Beating):
    """With a ControlPlane; a rollback is asked for when so many kubelets have the new program."""

    def __init__(self, hosts: dict[str, KubeletHost], spec: Version, noted: Sequence[Version] = ()) -> None:
        Beating.__init__(self, hosts=hosts)
        self.spec, self.noted = spec, noted
        self.back_after = len(hosts) + 1

    async def get(self, api_version, kind, name, namespace=None):
        if kind != "ControlPlane":
            return await Beating.get(self, api_version, kind, name, namespace)
        restarted = sum("restart kubelet" in host.log for host in self.hosts.values())
        spec = OLDER if restarted >= self.back_after else self.spec
        upgrade = {"upgrade": {"versions": [str(one) for one in self.noted]}} if self.noted else {}
        return {"spec": {"version": str(spec)}, "status": {"version": str(NEWER), **upgrade}}


async def of_the_newer_version(running):
    """A context of the newer version, whose program is to come to kubelets of the older one."""
    context = await running()
    context.cluster = replace(context.cluster, kubernetes_version=NEWER)
    return context, bring(context, "b"), dict(runs(context))


@pytest.mark.parametrize(
    ("spec", "noted", "said"),
    [
        (OLDER, (), r"asks for v1\.36\.4\n  fix: run `autarky up` with kubernetesVersion: .1\.36\.4. in the file"),
        (OLDER, (NEWER, OLDER), r"asks for v1\.36\.4"),
        (NEWER, (OLDER, NEWER), r"not all of the control plane has left v1\.36\.4\n  fix: .*upgrade status --watch"),
    ],
)
async def test_rule_4_no_kubelet_is_raised_above_what_the_control_plane_has_or_goes_to(
    running, notes, spec, noted, said
):
    context, _, before = await of_the_newer_version(running)
    context._kube = Planed(context.machines.hosts, spec, noted)
    with pytest.raises(UserError, match=said):
        await PHASE.run(context, notes)
    assert runs(context) == before
    assert [log.count("restart kubelet") for log in logs(context).values()] == [0, 0]


async def test_rule_4_a_rollback_that_is_asked_for_between_two_kubelets_ends_it_before_the_next(running, notes):
    context, newer, before = await of_the_newer_version(running)
    context._kube = kube = Planed(context.machines.hosts, NEWER)
    await PrepareHosts().run(context, notes)
    kube.back_after = 1
    with pytest.raises(UserError, match="no kubelet may be newer"):
        await PHASE.run(context, notes)
    assert runs(context) == {"n1": before["n1"], "n2": newer}
    kube.back_after = 3
    await PHASE.run(context, notes)
    assert runs(context) == dict.fromkeys(("n1", "n2"), newer)


async def test_rule_4_a_kubelet_that_does_not_run_gets_no_later_program_while_the_control_plane_goes_back(
    running, notes
):
    context, newer, before = await of_the_newer_version(running)
    context._kube = kube = Planed(context.machines.hosts, OLDER)
    context.machines.hosts["n2"].active_units.discard("kubelet")
    with pytest.raises(UserError, match="no kubelet may be newer"):
        await PrepareHosts().run(context, notes)
    link = context.machines.hosts["n2"].links
    assert link[render_node.BINARIES["kubelet"]] == before["n2"]
    assert not [line for log in logs(context).values() for line in log if not line.startswith("systemctl")]
    kube.spec = NEWER
    await PrepareHosts().run(context, notes)
    assert link[render_node.BINARIES["kubelet"]] == newer


@pytest.mark.parametrize("boots", [False, True], ids=["", "the host boots"])
@pytest.mark.parametrize("bad", [False, True], ids=["good", "bad"])
async def test_a_new_program_that_was_cut_anywhere_is_judged_or_taken_back_by_the_next_up(running, notes, bad, boots):
    for cut in itertools.count():
        context = await running()
        host, former = context.machines.hosts["n2"], runs(context)["n2"]
        new = bring(context, "b")
        host.bad_program = new if bad else ""
        cut_at(context, cut)
        with suppress(UserError, Unreachable):
            await up(context, notes)
        was_cut, host.fail_at = len(host.log) == cut, None
        if boots:
            host.boot()
        if bad:
            with pytest.raises(UserError, match="so that it has the former ones again"):
                await up(context, notes)
            assert runs(context)["n2"] == former, cut
        else:
            await up(context, notes)
            assert runs(context)["n2"] == new, cut
            assert (await PHASE.plan(context), await PrepareHosts().plan(context)) == ([], []), cut
            assert kubelets.FORMER not in host.files
        assert host.ready, cut
        if not was_cut:
            break
    assert cut > 4


async def test_a_kubelet_that_cannot_start_with_a_program_that_was_cut_starts_with_the_former_one(running, notes):
    context = await running()
    host, former = context.machines.hosts["n2"], runs(context)["n2"]
    host.bad_program = bring(context, "b")
    await PrepareHosts().run(context, notes)
    host.log.clear()
    host.fail_at = 4  # the former settings are noted, the link points to the new program
    with pytest.raises(Unreachable):
        await PHASE.run(context, notes)
    host.fail_at = None
    assert host.links[render_node.BINARIES["kubelet"]] == host.bad_program, host.log
    host.boot()
    assert not host.well
    await PrepareHosts().run(context, notes)
    host.boot()
    assert (host.well, host.kubelet_program) == (True, former)


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
