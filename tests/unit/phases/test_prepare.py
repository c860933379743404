from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.control.kubelet.manifests import files as kubelet_files
from autarky.control.kubelet.manifests import service as kubelet_service
from autarky.control.kubelet.manifests import units as change_units
from autarky.control.slots import manifests as standby
from autarky.engine.phase import Warn
from autarky.errors import CommandFailed, Unreachable
from autarky.model.cluster import Level
from autarky.model.components import API_SERVER, COMPONENTS, WITH_STANDBY
from autarky.phases.prepare import PrepareHosts, lacks_watch, look
from autarky.pki.issue import Pair, read_pair
from autarky.places import NODE_MARKER
from autarky.ports import Completed
from autarky.render import node as render_node
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

API = API_SERVER
BAD = {component: {"no-such-flag": "1"} for component in WITH_STANDBY}
PHASE = PrepareHosts()
WATCHES = [f"{unit}.path" for unit in (kubelet_service.GIVEN_UNIT, change_units.UNIT)]
WATCH_UNITS = (*kubelet_service.GIVEN_UNITS, *change_units.PATHS)
WATCHED = ["daemon-reload", *(f"restart {unit}" for unit in WATCHES)]


async def prepared(context, notes):
    await PHASE.run(context, notes)
    return context.machines.hosts["n1"]


OPERATOR = {"apiVersion": "apps/v1", "kind": "Deployment"}


def start_agent(host):
    host.files[f"{places.MANIFESTS}/{STANDBY_POD}-n1.json"] = (b"{}", 0o600)


def has_pivoted(context):
    """The node has an agent of its own, and `up` has come past the pivot."""
    start_agent(context.machines.hosts["n1"])
    context.kube().put({**OPERATOR, "metadata": {"name": "autarky-operator", "namespace": "kube-system"}})


def current(host, component):
    return host.links[f"{places.STANDBY}/{component}/current"]


def state(host):
    return host.files, host.links, host.active_units, host.images


async def test_a_second_run_changes_nothing(make_context, notes):
    context = make_context(a_cluster(controls=1, workers=1))
    assert await PHASE.plan(context)
    await PHASE.run(context, notes)
    before = {name: list(host.log) for name, host in context.machines.hosts.items()}
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert {name: host.log for name, host in context.machines.hosts.items()} == before


async def test_a_plan_only_looks(make_context):
    context = make_context()
    await PHASE.plan(context)
    assert context.machines.hosts["n1"].log == []


async def test_the_steps_come_in_an_order_in_which_a_kill_misleads_nobody(make_context, notes):
    host = await prepared(make_context(), notes)
    first = {step: host.log.index(step) for step in reversed(host.log)}
    binaries = [number for step, number in first.items() if step.startswith("push /var/lib/autarky/store/")]
    images = [number for step, number in first.items() if step.startswith("import ")]
    switches = [number for step, number in first.items() if step.startswith("switch kube-")]
    assert first[f"write {NODE_MARKER}"] == 0, "whose host it is comes before anything else"
    assert first["link"] < first["restart containerd"] < min(images)
    made = f"{kubelet_files.KUBELETS}/{host.links[kubelet_files.CURRENT]}"
    complete, links = (
        first[f"write {made}/{kubelet_files.COMPLETE}"],
        [n for n, s in enumerate(host.log) if s == "link"],
    )
    *inside, last = sorted(n for step, n in first.items() if step.startswith(f"write {made}/"))
    assert last == complete
    assert [n for n in links if max(*binaries, *inside) < n < complete], "all of its programs are in it by then"
    switch = first[f"switch to generation {host.links[kubelet_files.CURRENT]}"]
    assert max(complete, first[f"write {kubelet_files.SCRIPT_PATH}"]) < switch
    assert switch < min(first[f"write {unit}"] for unit in (kubelet_service.KUBELET_UNIT, render_node.CONTAINERD_UNIT))
    assert [n for n in links if switch < n < first["restart containerd"]], "the programs in force are in bin/ by then"
    assert first[f"write {render_node.CONTAINERD_CONFIG}"] < first["daemon-reload"] < first["restart containerd"]
    assert max(images) < min(switches)
    for component in WITH_STANDBY:
        revision = host.links[f"/var/lib/autarky/standby/{component}/current"]
        pod = first[f"write /var/lib/autarky/standby/{component}/{revision}/pod.json"]
        files = [n for step, n in first.items() if f"/standby/{component}/{revision}/files/" in step]
        assert max(files) < pod < first[f"switch {component} {revision}"]


async def test_modules_are_loaded_before_their_settings_and_both_before_their_files_say_that_it_is_done(
    make_context, notes
):
    host = await prepared(make_context(), notes)
    [load] = [number for number, step in enumerate(host.log) if step.startswith("load ")]
    assert "br_netfilter" in host.log[load]
    assert host.log[load + 1] == "set sysctls"
    assert load + 1 < host.log.index(f"write {render_node.MODULES_FILE}")
    assert load + 1 < host.log.index(f"write {render_node.SYSCTLS}")
    assert load < host.log.index("restart containerd")


async def test_new_kernel_settings_take_effect_on_a_host_whose_runtime_runs(make_context, notes):
    context = make_context()
    host = await prepared(context, notes)
    del host.files[render_node.SYSCTLS]
    host.log.clear()
    await PHASE.run(context, notes)
    assert host.log == ["set sysctls", f"write {render_node.SYSCTLS}"]


async def test_a_kill_between_any_two_steps_heals_on_the_next_run(make_context, notes):
    complete = await prepared(make_context(), notes)
    for step in range(len(complete.log)):
        context = make_context()
        host = context.machines.hosts["n1"]
        host.fail_at = step
        with pytest.raises(Unreachable):
            await PHASE.run(context, notes)
        host.fail_at = None
        await PHASE.run(context, notes)
        leftovers = {path for path in host.files if path.startswith("/run/autarky/import-")}
        written = {path: content for path, content in host.files.items() if path not in leftovers}
        assert written.keys() == complete.files.keys()
        leaves = {path for path in written if "/leaves/" in path or path.endswith((".pem", "server.crt", "peer.crt"))}
        leaves |= {path for path in written if path.endswith(("server.key", "peer.key"))}
        assert all(written[path] == complete.files[path] for path in written.keys() - leaves)
        for path in leaves:  # each run issues others, and a certificate has its own key beside it
            if path.endswith(".crt"):
                read_pair(Pair(written[path][0], written[f"{path.removesuffix('crt')}key"][0]))
        assert state(host)[1:] == state(complete)[1:]
        assert await PHASE.plan(context) == []


@pytest.mark.parametrize(("path", "restarts"), [(render_node.CONTAINERD_CONFIG, True), (kubelet_files.BASE, False)])
async def test_the_runtime_is_restarted_only_for_what_it_reads_at_its_start(make_context, notes, path, restarts):
    context = make_context()
    host = await prepared(context, notes)
    host.files[path] = (b"edited", 0o644)
    host.log.clear()
    assert [change.sentence for change in await PHASE.plan(context)][:1] == [f"write {path} on n1"]
    await PHASE.run(context, notes)
    assert host.log == [f"write {path}"] + ["daemon-reload", "enable containerd", "restart containerd"] * restarts


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("path", WATCH_UNITS)
async def test_what_watches_for_what_an_agent_leaves_does_so_at_once_beside_a_kubelet_that_runs(
    make_context, notes, path, runs
):
    context = make_context()
    host = await prepared(context, notes)
    host.active_units |= {"kubelet", *WATCHES} if runs else set()
    del host.files[path]
    host.log.clear()
    await PHASE.run(context, notes)
    assert host.log == [f"write {path}"] + WATCHED * runs


@pytest.mark.parametrize("kubelet", ["active_units", "restarting"])
@pytest.mark.parametrize("path", [*WATCHES, *WATCH_UNITS])
async def test_a_run_that_was_killed_before_it_had_anything_watch_is_made_good_by_the_next(
    make_context, notes, path, kubelet
):
    """path: of a unit that this run has only changed, beside watches that go on with the one before; or the watch that
    there was not yet."""
    context = make_context()
    host = await prepared(context, notes)
    getattr(host, kubelet).add("kubelet")
    host.active_units |= {*WATCHES} - {path}
    if path in WATCH_UNITS:
        host.units_read[path] = b"of before"
    host.log.clear()
    assert [change.sentence for change in await PHASE.plan(context)] == [
        "watch for what the agent of n1 asks for its kubelet"
    ]
    await PHASE.run(context, notes)
    assert host.log == WATCHED
    assert await PHASE.plan(context) == []


@pytest.mark.parametrize("said", ["", "\n\n\n\n", "ActiveState=odd\n\nActiveState=active", "Failed to connect to bus"])
async def test_a_host_that_does_not_say_what_it_runs_stops_nobody_there(make_context, notes, monkeypatch, said):
    context = make_context()
    host = await prepared(context, notes)
    monkeypatch.setattr(FakeHost, "_systemd", lambda *_: Completed(0, said.encode(), ""))
    assert not await lacks_watch(host, [])


async def test_a_mode_that_was_opened_is_closed_again(make_context, notes):
    context = make_context()
    host = await prepared(context, notes)
    path = "/etc/kubernetes/pki/ca.key"
    host.files[path] = (host.files[path][0], 0o644)
    await PHASE.run(context, notes)
    assert host.files[path][1] == 0o600


async def test_only_what_is_new_in_a_payload_is_installed(make_context, notes, tmp_path):
    context = make_context()
    host = await prepared(context, notes)
    host.log.clear()
    context.payload.binaries["kubectl"] = replace(context.payload.binaries["kubectl"], sha256="f" * 64)
    work = await look(context, context.cluster.nodes[0])
    assert work.sentences(context.cluster.nodes[0])[0] == "install 1 binaries on n1"
    await PHASE.run(context, notes)
    assert host.log == [f"push /var/lib/autarky/store/kubectl-{'f' * 16}", "link"]


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("name", kubelet_files.PROGRAMS)
async def test_other_programs_of_kubelet_and_runtime_come_by_their_generations_only(make_context, notes, name, runs):
    context = make_context()
    host = await prepared(context, notes)
    if runs:
        await host.run(["systemctl", "restart", "kubelet"])
    host.log.clear()
    context.payload.binaries[name] = replace(context.payload.binaries[name], sha256="f" * 64)
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert host.log == []


async def test_an_image_that_is_gone_is_imported_again_and_its_archive_is_removed(make_context, notes):
    context = make_context()
    host = await prepared(context, notes)
    del host.images[context.payload.images["coredns"].reference]
    assert [change.sentence for change in await PHASE.plan(context)] == ["import 1 images on n1"]
    await PHASE.run(context, notes)
    assert not [path for path in host.files if path.startswith("/run/")]


@pytest.mark.parametrize("lowest", [Level.ETCD, Level.CONTROLLERS])
async def test_while_the_api_answers_a_new_argument_is_for_the_hosted_slot_alone(make_context, notes, lowest):
    """Both slots with an argument that does not work would be the end of the API."""
    context = make_context(replace(a_cluster(), self_hosted=lowest))
    host = await prepared(context, notes)
    has_pivoted(context)
    links = dict(host.links)
    context.cluster = replace(context.cluster, extra_args=BAD)
    await PHASE.run(context, notes)
    changed = {path.split("/")[-2] for path, target in host.links.items() if links.get(path) not in (target, None)}
    not_hosted = {c for c in WITH_STANDBY if not context.cluster.hosts_level(COMPONENTS[c].level)}
    assert changed == not_hosted
    assert await PHASE.plan(context) == []


async def test_rule_2_where_an_agent_is_one_look_at_the_api_that_fails_gives_no_standby_a_new_argument(
    make_context, notes
):
    kube = FakeKube()
    context = make_context(kube=kube)
    host = await prepared(context, notes)
    has_pivoted(context)
    links = dict(host.links)
    kube.set_outage("connection refused")
    context.cluster = replace(context.cluster, extra_args=BAD)
    await PHASE.run(context, notes)
    assert host.links == links


@pytest.mark.parametrize(
    ("api_answers", "agent"), [(True, False), (False, False), (True, True)], ids=["no agent", "no API", "before pivot"]
)
async def test_a_mistake_in_the_first_files_arguments_is_made_good_by_the_next_one(
    make_context, notes, api_answers, agent
):
    """Before the pivot nobody else restarts what is in place and does not start: a scheduler that does not keeps its
    own hosted pods from being scheduled. The API server's is left to the phase that starts it, while it answers, since
    it may be that one which answers."""
    kube = FakeKube()
    context = make_context(kube=kube)
    good, context.cluster = context.cluster, replace(context.cluster, extra_args=BAD)
    host = await prepared(context, notes)
    if agent:
        start_agent(host)
    for component in WITH_STANDBY:
        await host.run([standby.SCRIPT_PATH, "activate", component])
    bad, activated = {c: current(host, c) for c in WITH_STANDBY}, dict(host.activations)
    assert await PHASE.plan(context) == []
    if not api_answers:
        kube.set_outage("connection refused")
    context.cluster = good
    assert [c.sentence for c in await PHASE.plan(context) if "kube-scheduler" in c.sentence]
    await PHASE.run(context, notes)
    for component in ("kube-controller-manager", "kube-scheduler"):
        assert host.in_place[component] == current(host, component) != bad[component]
        assert host.activations[component] != activated[component]
    assert host.activations[API] == activated[API]
    assert (current(host, API) == bad[API]) is api_answers
    assert await PHASE.plan(context) == []


async def test_a_renewal_that_was_cut_is_made_up_for(make_context, notes):
    """Killed between the switch and the new activation: nothing else would restart it."""
    context = make_context()
    host = await prepared(context, notes)
    await host.run([standby.SCRIPT_PATH, "activate", "kube-scheduler"])
    host.in_place["kube-scheduler"] = "former"
    assert [c.sentence for c in await PHASE.plan(context)] == [
        "restart the standby of kube-scheduler on n1 with its current revision"
    ]
    await PHASE.run(context, notes)
    assert host.in_place["kube-scheduler"] == current(host, "kube-scheduler")
    assert await PHASE.plan(context) == []


async def test_static_pods_of_a_level_that_is_not_hosted_go_on_and_a_warning_says_how_to_restart_them(
    make_context, notes
):
    context = make_context(replace(a_cluster(), self_hosted=Level.CONTROLLERS))
    host = await prepared(context, notes)
    has_pivoted(context)
    for component in WITH_STANDBY:
        await host.run([standby.SCRIPT_PATH, "activate", component])
    assert await PHASE.plan(context) == []
    before = dict(host.activations)
    context.cluster = replace(context.cluster, extra_args={API: {"v": "5"}})
    for changes in (1, 0, 0):  # told by the first `up`, and by each after it
        *changed, reported = await PHASE.plan(context)
        assert len(changed) == changes
        assert isinstance(reported, Warn)
        assert reported.sentence.startswith(f"{API} on n1 goes on with its former arguments")
        assert reported.sentence.endswith(f"{standby.SCRIPT_PATH} renew {API}")
        await PHASE.run(context, notes)
    assert host.activations == before
    await host.run([standby.SCRIPT_PATH, "renew", API])
    assert await PHASE.plan(context) == []


# --- a worker whose host fails ---------------------------------------------------------------------------------------


@pytest.fixture
def a_workers_host(make_context):
    """A cluster that n2 has joined before, or not; what its host does is the test's."""

    def of(host_kind, *, joined):
        cluster = a_cluster(controls=1, workers=1)
        facts = facts_of(cluster)
        context = make_context(cluster, hosts={"n1": FakeHost("n1", facts["n1"]), "n2": host_kind("n2", facts["n2"])})
        context.joined = frozenset({"n1", "n2"} if joined else {"n1"})
        return context

    return of


class Refuses(FakeHost):
    async def run(self, argv, **how):
        raise CommandFailed(self.name, list(argv), 1, "no")


class Hangs(FakeHost):
    async def run(self, argv, **how):
        await asyncio.Event().wait()


@pytest.mark.looptime
@pytest.mark.parametrize(("kind", "why"), [(Refuses, "no"), (Hangs, "within 120 s")])
async def test_a_worker_that_has_joined_before_is_left_out_and_the_others_are_prepared(
    a_workers_host, notes, kind, why
):
    context = a_workers_host(kind, joined=True)
    [reported] = [found.sentence for found in await PHASE.plan(context) if isinstance(found, Warn)]
    assert reported == f"n2 is left out: {context.absent['n2']}"
    assert why in reported
    await PHASE.run(context, notes)
    assert list(context.absent) == ["n2"]
    assert context.machines.hosts["n1"].active_units
    assert await PHASE.plan(context) == []


@pytest.mark.looptime
async def test_a_worker_whose_host_never_ends_while_it_is_prepared_is_left_out(a_workers_host, notes):
    class HangsLater(FakeHost):
        async def run(self, argv, **how):
            if argv[:2] == ["systemctl", "restart"]:
                await asyncio.Event().wait()
            return await FakeHost.run(self, argv, **how)

    context = a_workers_host(HangsLater, joined=True)
    async with asyncio.timeout(PHASE.timeout):
        await PHASE.run(context, notes)
    assert context.absent == {"n2": "it was not done within 420 s"}
    assert [note for note in notes.notes if note.startswith("n2 is left out: ")]
    assert "containerd" in context.machines.hosts["n1"].active_units


async def test_a_worker_that_has_not_joined_yet_ends_it(a_workers_host, notes):
    with pytest.raises(CommandFailed):
        await PHASE.run(a_workers_host(Refuses, joined=False), notes)


async def test_a_standby_that_is_not_there_is_put_though_the_api_answers(make_context, notes):
    context = make_context()
    host = await prepared(context, notes)
    del host.links["/var/lib/autarky/standby/kube-scheduler/current"]
    await PHASE.run(context, notes)
    assert "/var/lib/autarky/standby/kube-scheduler/current" in host.links


async def test_a_new_argument_makes_a_new_revision_of_the_standby_and_keeps_the_old(make_context, notes):
    """With no API: the one that is there may be what keeps it away."""
    kube = FakeKube()
    kube.set_outage("connection refused")
    context = make_context(kube=kube)
    host = await prepared(context, notes)
    old = host.links["/var/lib/autarky/standby/kube-scheduler/current"]
    context.cluster = replace(context.cluster, extra_args={"kube-scheduler": {"v": "5"}})
    [change] = await PHASE.plan(context)
    assert change.sentence.endswith("of kube-scheduler in place on n1")
    await PHASE.run(context, notes)
    assert host.links["/var/lib/autarky/standby/kube-scheduler/current"] != old
    assert f"/var/lib/autarky/standby/kube-scheduler/{old}/pod.json" in host.files


async def test_a_worker_gets_no_standby_and_no_keys(make_context, notes):
    context = make_context(a_cluster(controls=1, workers=1))
    await PHASE.run(context, notes)
    paths = [*context.machines.hosts["n2"].files, *context.machines.hosts["n2"].links]
    assert not [path for path in paths if path.endswith(".key") or "/standby/" in path]


async def test_before_addresses_are_known_the_plan_says_so_and_renders_nothing(make_context):
    context = make_context()
    context.cluster = replace(context.cluster, nodes=(replace(context.cluster.nodes[0], address=None),))
    assert [change.sentence for change in await PHASE.plan(context)] == ["prepare host n1"]
