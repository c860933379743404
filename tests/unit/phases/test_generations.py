"""What a kubelet starts with before any agent changes it: what is wanted of it, or a copy of what it runs with."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest

from autarky.control.kubelet.decide import nodes as nodes_of
from autarky.control.kubelet.decide import pools, turns
from autarky.control.kubelet.decide import report as reports
from autarky.control.kubelet.manifests import configuration as kubelet_configuration
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files, generation, units
from autarky.control.kubelet.manifests import service as kubelet_service
from autarky.errors import CommandFailed, Unreachable, UserError
from autarky.model.cluster import Cluster, HostRef, Taint
from autarky.model.versions import Version
from autarky.phases import former_settings, generations
from autarky.phases.binaries import STORE, stored
from autarky.phases.context import Context
from autarky.phases.members import as_it_joins
from autarky.phases.prepare import PrepareHosts
from autarky.ports import Completed
from autarky.render import crds
from autarky.render import node as render_node
from autarky.render.values import CONTROL_PLANE_ACTIVE
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube
from unit.phases.conftest import Notes

PHASE = PrepareHosts()
MakeContext = Callable[..., Context]
UNIT = kubelet_service.KUBELET_UNIT
OLD_CONFIG, OLD_UNIT = b'{"kind": "KubeletConfiguration", "of": "before"}\n', b"[Service]\nExecStart=as before\n"
OURS = [
    f"--config={kubelet_configuration.FORMER_KUBELET_CONFIG}",
    f"--bootstrap-kubeconfig={kubelet_credentials.BOOTSTRAP_KUBECONFIG}",
]
THEIRS = ["--kubeconfig=/etc/kubernetes/kubelet.conf", "--hostname-override=n1", "--node-labels=a=1 b", "--v="]


def host_of(context: Context, name: str = "n1") -> FakeHost:
    found: FakeHost = context.machines.hosts[name]  # type: ignore[attr-defined]
    return found


def current(host: FakeHost) -> str:
    return f"{files.KUBELETS}/{host.links[files.CURRENT]}"


def made_of(host: FakeHost) -> generation.MadeOf:
    found = generation.read(host.files[f"{current(host)}/{generation.MADE_OF}"][0])
    assert found is not None
    return found


def programs(host: FakeHost) -> dict[str, str]:
    return {name: host.links[f"{current(host)}/{name}"] for name in files.PROGRAMS}


def in_bin(host: FakeHost) -> dict[str, str]:
    return {name: host.disk.followed(render_node.BINARIES[name]) for name in files.PROGRAMS}


def of_the_payload(context: Context) -> dict[str, str]:
    binaries = context.require_payload().binaries
    return {name: f"../../store/{PurePosixPath(stored(binaries[name])).name}" for name in files.PROGRAMS}


def is_complete(host: FakeHost) -> bool:
    """What the script asks of a generation."""
    directory = current(host)
    contents = [host.disk.file(f"{directory}/{name}") for name in (files.ARGUMENTS, files.CONFIG, *files.PROGRAMS)]
    return all(contents) and files.parse(host.files[f"{directory}/{files.COMPLETE}"][0]) == {
        "generation": host.links[files.CURRENT]
    }


# --- a new host --------------------------------------------------------------------------------------------------


async def test_a_new_host_gets_the_payloads_programs_and_those_in_bin_lead_through_the_generation_in_force(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    assert is_complete(host)
    assert in_bin(host) == {name: f"{STORE}/{PurePosixPath(link).name}" for name, link in programs(host).items()}
    assert programs(host) == of_the_payload(context)
    assert host.links[render_node.BINARIES["kubelet"]] == f"{files.CURRENT}/kubelet"
    assert made_of(host).version == context.cluster.kubernetes_version
    assert files.PREVIOUS not in host.links
    assert not {files.ASK, files.TRIAL, files.RESULT} & host.files.keys()


ARGUMENTS = {"kubelet": {"max-pods": "50", "node-ip": "198.51.100.1", "v": "4"}, "kube-scheduler": {"v": "2"}}
CLUSTERS: dict[str, Cluster] = {
    "plain": a_cluster(controls=2, workers=1),
    "arguments": a_cluster(workers=1, extra_args=ARGUMENTS),
    "no arguments": a_cluster(workers=1, extra_args={"kubelet": {}}),
    "taints": a_cluster(workers=1),
    "ssh": a_cluster(workers=1),
}
CLUSTERS["taints"] = replace(
    CLUSTERS["taints"],
    nodes=tuple(replace(one, taints=(Taint("a", "b", "NoSchedule"),)) for one in CLUSTERS["taints"].nodes),
)
CLUSTERS["ssh"] = replace(
    CLUSTERS["ssh"],
    nodes=tuple(replace(one, host=HostRef("ssh", f"root@{one.address}")) for one in CLUSTERS["ssh"].nodes),
)


def as_reported(context: Context, name: str) -> dict[str, Any]:
    """The Node, once its agent has said what is in force on the disk."""
    host, version = host_of(context, name), str(context.cluster.kubernetes_version)
    said = reports.Report(
        slot="host",
        version=made_of(host).version,
        base=generation.base_digest(host.files[files.BASE][0]),
        target=made_of(host).digest,
    )
    labels = {CONTROL_PLANE_ACTIVE: ""} if context.cluster.node(name).control_plane else {}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {reports.ANNOTATION: reports.text(said)}},
        "status": {"nodeInfo": {"kubeletVersion": version}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.mark.parametrize("which", CLUSTERS)
async def test_what_a_new_host_gets_is_what_the_operator_wants_of_it_so_that_it_orders_nothing(
    make_context: MakeContext, notes: Notes, which: str
) -> None:
    context = make_context(CLUSTERS[which])
    await PHASE.run(context, notes)
    version = context.cluster.kubernetes_version
    plane = {**crds.control_plane(context.cluster), "status": {"version": str(version)}}
    around = nodes_of.Around(plane, pools.read(None))
    found = nodes_of.found([as_reported(context, node.name) for node in context.cluster.nodes], around)
    assert found.said == {}
    wanted = {node.name: None if node.wanted is None else node.wanted.digest for node in found.nodes}
    assert wanted == {node.name: made_of(host_of(context, node.name)).digest for node in context.cluster.nodes}
    situation = turns.Situation(found.nodes, version, lambda version: f"{files.IMAGE}:{version}")
    decision = turns.decide(situation, turns.Memory(), 1e6)
    assert (decision.writes, decision.waits) == ((), {})


async def test_a_control_node_that_joins_as_a_worker_has_the_base_of_one(
    make_context: MakeContext, notes: Notes
) -> None:
    cluster = a_cluster(controls=3)
    context = make_context(
        replace(cluster, nodes=tuple(replace(n, initial_member=n.name == "n1") for n in cluster.nodes))
    )
    await PHASE.run(context, notes)
    for node in context.cluster.nodes:
        wanted = generation.base_file(kubelet_configuration.base_of(context.inputs(), as_it_joins(node))).content
        assert made_of(host_of(context, node.name)).base == generation.base_digest(wanted)
    assert made_of(host_of(context, "n1")).base != made_of(host_of(context, "n2")).base


@pytest.mark.parametrize("odd", ["4\n--fail", "4\0"])
async def test_an_argument_that_is_no_line_is_refused_before_anything_is_done(
    make_context: MakeContext, notes: Notes, odd: str
) -> None:
    context = make_context(a_cluster(extra_args={"kubelet": {"v": odd}}))
    with pytest.raises(UserError, match=r"spec\.extraArgs\.kubelet"):
        await PHASE.run(context, notes)
    assert host_of(context).log == []


async def test_programs_that_somebody_has_put_in_bin_are_not_replaced_by_links(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = host_of(context)
    by_hand = [render_node.BINARIES[name] for name in ("kubelet", "runc")]
    for path in by_hand:
        host.disk.write(path, b"by hand", 0o755)
    await PHASE.run(context, notes)
    assert [host.files.get(path) for path in by_hand] == [(b"by hand", 0o755)] * 2
    assert host.links.keys().isdisjoint(by_hand)
    assert host.links[render_node.BINARIES["ctr"]] == f"{files.CURRENT}/ctr"
    assert await PHASE.plan(context) == []


OLDER, NEWER = Version(1, 36, 4), Version(1, 37, 1)


@pytest.mark.parametrize(
    ("spec", "noted", "said"),
    [
        (OLDER, (), r"asks for v1\.36\.4\n  fix: run `autarky up` with kubernetesVersion: .1\.36\.4. in the file"),
        (OLDER, (NEWER, OLDER), r"asks for v1\.36\.4"),
        (NEWER, (OLDER, NEWER), r"not all of the control plane has left v1\.36\.4\n  fix: .*upgrade status --watch"),
        (NEWER, (), None),
    ],
)
@pytest.mark.parametrize("new", [True, False])
async def test_rule_4_no_host_gets_a_newer_program_of_ours_than_the_control_plane_has_or_goes_to(
    make_context: MakeContext, notes: Notes, spec: Version, noted: tuple[Version, ...], said: str | None, new: bool
) -> None:
    """Also one whose host only boots would start it. One that has its own is not concerned."""
    context = make_context()
    if not new:
        await PHASE.run(context, notes)
    context.cluster = replace(context.cluster, kubernetes_version=NEWER)
    upgrade = {"upgrade": {"versions": [str(one) for one in noted]}} if noted else {}
    plane = crds.control_plane(replace(context.cluster, kubernetes_version=spec))
    kube: FakeKube = context.kube()  # type: ignore[assignment]
    kube.put(crds.control_plane_crd())
    kube.put({**plane, "status": {"version": str(NEWER), **upgrade}})
    host = host_of(context)
    host.log.clear()
    if new and said is not None:
        with pytest.raises(UserError, match=said):
            await PHASE.run(context, notes)
        assert host.log == []
    else:
        await PHASE.run(context, notes)
        assert made_of(host).version == (NEWER if new else OLDER)


# --- a host whose kubelet does not run ---------------------------------------------------------------------------


async def test_a_kubelet_that_has_not_started_yet_gets_the_settings_that_the_file_has_by_then(
    make_context: MakeContext, notes: Notes
) -> None:
    """A first `up` with an argument that it cannot start with."""
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    before = current(host)
    context.cluster = replace(context.cluster, extra_args={"kubelet": {"v": "4"}})
    [change] = [one.sentence for one in await PHASE.plan(context) if "generation" in one.sentence]
    await PHASE.run(context, notes)
    assert f"make {host.links[files.CURRENT]} the generation of the kubelet of n1" == change
    assert current(host) != before
    assert b"--v=4\n" in host.files[f"{current(host)}/{files.ARGUMENTS}"][0]
    assert f"{files.KUBELETS}/{host.links[files.PREVIOUS]}" == before
    assert await PHASE.plan(context) == []


def change_address(context: Context) -> None:
    context.cluster = context.cluster.with_addresses({"n1": "192.0.2.77"})


def change_arguments(context: Context) -> None:
    context.cluster = replace(context.cluster, extra_args={"kubelet": {"v": "4"}})


def change_version(context: Context) -> None:
    context.cluster = replace(context.cluster, kubernetes_version=Version(1, 37, 1))


@pytest.mark.parametrize(
    ("change", "before_any_agent", "after_one"),
    [(change_address, True, True), (change_arguments, True, False), (change_version, False, False)],
)
@pytest.mark.parametrize("agent", [False, True])
async def test_what_an_agent_has_changed_is_left_unless_it_is_for_another_host_and_so_is_another_version(
    make_context: MakeContext, notes: Notes, change: Any, before_any_agent: bool, after_one: bool, agent: bool
) -> None:
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    before = current(host)
    if agent:
        host.disk.write(files.RESULT, files.written({"order": "5b1c", "result": "back"}), 0o600)
    change(context)
    await PHASE.run(context, notes)
    assert (current(host) != before) is (after_one if agent else before_any_agent)
    assert made_of(host).version == Version(1, 36, 4)


async def test_one_that_cannot_be_understood_is_left_since_nobody_knows_of_what_it_is(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    host.files[f"{current(host)}/{generation.MADE_OF}"] = (b"{}", 0o644)
    change_address(context)
    assert await generations.first(context, host, context.cluster.nodes[0]) is None


@pytest.mark.parametrize("under_way", [files.ASK, files.TRIAL])
@pytest.mark.parametrize("runs", [False, True])
async def test_a_change_under_way_is_left_alone(
    make_context: MakeContext, notes: Notes, under_way: str, runs: bool
) -> None:
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    if runs:
        await host.run(["systemctl", "restart", "kubelet"])
    links = dict(host.links)
    host.disk.write(under_way, files.written({"order": "5b1c"}), 0o600)
    change_arguments(context)
    await PHASE.run(context, notes)
    assert host.links == links


@pytest.mark.parametrize("change", [change_address, change_arguments, change_version])
async def test_a_kubelet_that_runs_is_left_alone_whatever_the_file_has(
    make_context: MakeContext, notes: Notes, change: Any
) -> None:
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    await host.run(["systemctl", "restart", "kubelet"])
    links = dict(host.links)
    change(context)
    host.log.clear()
    await PHASE.run(context, notes)
    assert host.links == links
    assert not [step for step in host.log if "kubelet" in step and step.startswith(("restart", "push", "switch"))]
    node = context.cluster.nodes[0]
    assert (
        host.files[files.BASE][0] == generation.base_file(kubelet_configuration.base_of(context.inputs(), node)).content
    )


async def test_settings_that_a_pods_kubelet_runs_with_are_left_alone_where_the_hosts_does_not_run(
    make_context: MakeContext, notes: Notes
) -> None:
    """They would be in force with no trial."""
    context = make_context()
    host = host_of(context)
    await PHASE.run(context, notes)
    host.active_units.discard("kubelet")
    host.runs_hosted_kubelet, links = True, dict(host.links)
    change_arguments(context)
    await PHASE.run(context, notes)
    assert host.links == links
    host.runs_hosted_kubelet = False
    await PHASE.run(context, notes)
    assert host.links != links


# --- a host of an earlier release --------------------------------------------------------------------------------


async def as_before(context: Context, notes: Notes, name: str = "n1") -> FakeHost:
    """Its kubelet runs, of the version before; the config, and the unit, are as that release wrote them."""
    host = host_of(context, name)
    await PHASE.run(context, notes)
    for there in [path for path in (*host.files, *host.links) if path.startswith(f"{files.KUBELETS}/")]:
        host.disk.remove(there)
    host.disk.remove(files.SCRIPT_PATH)
    for path in units.PATHS:
        host.disk.remove(path)
    for program in files.PROGRAMS:
        host.disk.write(f"{STORE}/{program}-before", b"of before", 0o755)
        host.disk.link(render_node.BINARIES[program], f"{STORE}/{program}-before")
    host.disk.write(kubelet_configuration.FORMER_KUBELET_CONFIG, OLD_CONFIG, 0o644)
    host.disk.write(former_settings.SETTLED, b"digest\n", 0o644)
    host.disk.write(UNIT, OLD_UNIT, 0o644)
    await host.run(["systemctl", "daemon-reload"])
    host.active_units |= {"kubelet", f"{kubelet_service.GIVEN_UNIT}.path"}
    host.kubelet_program, host.kubelet_version = f"{STORE}/kubelet-before", "v1.36.2"
    host.kubelet_arguments = [OURS[1], OURS[0], *THEIRS]
    host.log.clear()
    return host


async def test_a_kubelet_of_an_earlier_release_gets_a_copy_of_what_it_runs_with_and_goes_on(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = await as_before(context, notes)
    assert not [one.sentence for one in await PHASE.plan(context) if "binaries" in one.sentence]
    await PHASE.run(context, notes)
    assert is_complete(host)
    assert programs(host) == in_bin(host) == {name: f"{STORE}/{name}-before" for name in files.PROGRAMS}
    assert host.files[f"{current(host)}/{files.ARGUMENTS}"][0].decode().split("\n") == [*THEIRS, ""]
    assert host.files[f"{current(host)}/{files.CONFIG}"][0] == OLD_CONFIG
    assert made_of(host) == generation.MadeOf("", Version(1, 36, 2))
    assert host.files[f"{current(host)}/{files.VERSION}"][0] == b"v1.36.2\n"
    restarted = [step for step in host.log if step.startswith(("restart", "start", "stop", "enable"))]
    assert restarted == [f"restart {unit}.path" for unit in (kubelet_service.GIVEN_UNIT, units.UNIT)]
    assert not [step for step in host.log if step.startswith("push")]
    assert host.files.keys().isdisjoint(former_settings.LEFT)
    assert host.kubelet_arguments == [OURS[1], OURS[0], *THEIRS]
    await host.run(["systemctl", "restart", "kubelet"])
    assert host.kubelet_program == f"{STORE}/kubelet-before"
    assert host.kubelet_arguments == [f"--config={current(host)}/{files.CONFIG}", *THEIRS]


async def test_a_second_run_changes_nothing_of_a_copy(make_context: MakeContext, notes: Notes) -> None:
    context = make_context()
    host = await as_before(context, notes)
    await PHASE.run(context, notes)
    host.log.clear()
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert host.log == []


async def test_a_configuration_that_the_user_has_named_is_named_by_the_copy_as_well(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = await as_before(context, notes)
    host.kubelet_arguments = ["--config=/etc/my.json", "--bootstrap-kubeconfig=/etc/mine", *THEIRS]
    await PHASE.run(context, notes)
    said = host.files[f"{current(host)}/{files.ARGUMENTS}"][0].decode().splitlines()
    assert said == ["--config=/etc/my.json", "--bootstrap-kubeconfig=/etc/mine", *THEIRS]


@pytest.mark.parametrize(
    ("former", "config"),
    [
        (
            json.dumps({"files": {kubelet_configuration.FORMER_KUBELET_CONFIG: "of FORMER"}, "ready": True}).encode(),
            b"of FORMER",
        ),
        (json.dumps({"files": {UNIT: "x"}, "ready": True}).encode(), OLD_CONFIG),
        (json.dumps({"files": {kubelet_configuration.FORMER_KUBELET_CONFIG: ""}}).encode(), OLD_CONFIG),
        (b"[]", OLD_CONFIG),
        (b"\xff" * 9, OLD_CONFIG),
        (b"[" * 60_000, OLD_CONFIG),
    ],
)
async def test_where_a_change_was_interrupted_the_copy_has_the_configuration_of_before_it(
    make_context: MakeContext, notes: Notes, former: bytes, config: bytes
) -> None:
    context = make_context()
    host = await as_before(context, notes)
    host.disk.write(former_settings.FORMER, former, 0o600)
    await PHASE.run(context, notes)
    assert host.files[f"{current(host)}/{files.CONFIG}"][0] == config
    assert host.files.keys().isdisjoint(former_settings.LEFT)


async def test_of_a_program_that_was_removed_since_it_started_the_copy_has_what_is_in_its_place(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = await as_before(context, notes)
    host.kubelet_program = f"{STORE}/kubelet-removed (deleted)"
    await PHASE.run(context, notes)
    assert programs(host)["kubelet"] == in_bin(host)["kubelet"] == f"{STORE}/kubelet-before"


async def test_links_to_programs_elsewhere_are_followed_before_they_lead_to_the_copy(
    make_context: MakeContext, notes: Notes
) -> None:
    """Else bin/ and the copy would lead to each other."""
    context = make_context()
    host = await as_before(context, notes)
    host.disk.write("/usr/bin/runc", b"the distribution's", 0o755)
    host.disk.link(render_node.BINARIES["runc"], "/usr/bin/runc")
    host.disk.remove(render_node.BINARIES["ctr"])
    host.disk.write(render_node.BINARIES["ctr"], b"by hand", 0o755)
    await PHASE.run(context, notes)
    assert is_complete(host)
    assert programs(host)["runc"] == in_bin(host)["runc"] == "/usr/bin/runc"
    assert programs(host)["ctr"] == in_bin(host)["ctr"] == render_node.BINARIES["ctr"]
    assert await PHASE.plan(context) == []


async def test_one_that_does_not_run_starts_with_what_is_wanted_also_where_an_earlier_release_had_prepared_it(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    host = await as_before(context, notes)
    host.active_units.discard("kubelet")
    await PHASE.run(context, notes)
    assert programs(host) == of_the_payload(context)
    assert made_of(host).digest
    assert host.files.keys().isdisjoint(former_settings.LEFT)
    assert await PHASE.plan(context) == []


@pytest.mark.parametrize(("version", "agent", "replaced"), [("v1.36.4", False, True), ("v1.36.4", True, False)])
async def test_a_copy_is_replaced_where_its_kubelet_does_not_run_unless_a_change_has_gone_back_to_it(
    make_context: MakeContext, notes: Notes, version: str, agent: bool, replaced: bool
) -> None:
    context = make_context()
    host = await as_before(context, notes)
    host.kubelet_version = version
    await PHASE.run(context, notes)
    host.active_units.discard("kubelet")
    if agent:
        host.disk.write(files.RESULT, files.written({"order": "5b1c", "result": "back"}), 0o600)
    await PHASE.run(context, notes)
    assert bool(made_of(host).digest) is replaced


# --- killed anywhere ---------------------------------------------------------------------------------------------


def assert_it_would_start(host: FakeHost) -> None:
    """Whichever unit there is finds what it starts with; systemd may start again what it has read last."""
    on_disk, read = host.disk.file(UNIT), host.units_read.get(UNIT)
    for unit in {on_disk[0] if on_disk is not None else b"", read or b""} - {b""}:
        if unit == OLD_UNIT:
            assert kubelet_configuration.FORMER_KUBELET_CONFIG in host.files
        else:
            assert is_complete(host)
    if files.CURRENT in host.links:
        assert is_complete(host)


async def test_killed_between_any_two_acts_a_host_of_an_earlier_release_can_start_and_the_next_run_completes_it(
    make_context: MakeContext, notes: Notes
) -> None:
    before = await as_before(make_context(), notes)
    context, complete = _like(before, make_context)
    await PHASE.run(context, notes)
    assert len(complete.log) > 15
    for step in range(len(complete.log)):
        for second in (None, *range(1, 12)):
            context, host = _like(before, make_context)
            await _killed_at(context, notes, step)
            assert_it_would_start(host)
            if second is not None:
                await _killed_at(context, notes, second)
                assert_it_would_start(host)
            await PHASE.run(context, notes)
            assert host.links == complete.links
            assert host.files == complete.files
            assert host.active_units == complete.active_units
            assert await PHASE.plan(context) == []


def _like(before: FakeHost, make_context: MakeContext) -> tuple[Context, FakeHost]:
    copied = {name: copy(getattr(before, name)) for name in ("files", "links", "active_units", "images", "units_read")}
    host = replace(before, log=[], **copied)
    return make_context(hosts={"n1": host}), host


async def _killed_at(context: Context, notes: Notes, step: int) -> None:
    host = host_of(context)
    host.log.clear()
    host.fail_at = step
    try:
        await PHASE.run(context, notes)
    except Unreachable:
        assert len(host.log) == step
    host.fail_at = None


async def test_killed_between_any_two_acts_a_new_host_has_no_unit_without_a_generation(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context()
    await PHASE.run(context, notes)
    for step in range(len(host_of(context).log)):
        again = make_context()
        await _killed_at(again, notes, step)
        assert_it_would_start(host_of(again))


# --- a host that says what it wants ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"\0",
        b"x",
        b"\xff\xfe",
        b"a b\nc d e\n\nf",
        b"/bin/kubelet (deleted)\n\0\0",
        b"Kubernetes v1",
        b"-\n-",
    ],
)
@pytest.mark.parametrize("which", ["all", "RUNS", "version", "links"])
async def test_a_worker_whose_host_says_what_it_wants_is_left_out_or_prepared_and_ends_nothing(
    make_context: MakeContext, notes: Notes, said: bytes, which: str
) -> None:
    class Odd(FakeHost):
        async def run(self, argv: Any, **how: Any) -> Completed:
            script = argv[2] if list(argv[:2]) == ["sh", "-c"] else ""
            kinds = {
                "RUNS": script == generations.RUNS,
                "version": list(argv[1:]) == ["--version"],
                "links": "readlink" in script and script != generations.RUNS,
            }
            if kinds.get(which, any(kinds.values())):
                return Completed(0, said, "")
            return await FakeHost.run(self, argv, **how)

    cluster = a_cluster(workers=1)
    facts = facts_of(cluster)
    context = make_context(cluster, hosts={name: FakeHost(name, facts[name]) for name in facts})
    old = await as_before(context, notes, "n2")
    fields = {name: getattr(old, name) for name in ("files", "links", "active_units", "units_read")}
    host = Odd("n2", facts["n2"], **fields)
    host.kubelet_program, host.kubelet_arguments = old.kubelet_program, old.kubelet_arguments
    host.kubelet_version = old.kubelet_version
    context.machines.hosts["n2"] = host  # type: ignore[attr-defined]
    context.joined = frozenset({"n1", "n2"})
    await PHASE.run(context, notes)
    assert set(context.absent) <= {"n2"}
    assert is_complete(host_of(context, "n1"))


async def test_a_worker_whose_configuration_has_gone_is_left_out_with_what_to_do(
    make_context: MakeContext, notes: Notes
) -> None:
    context = make_context(a_cluster(workers=1))
    host = await as_before(context, notes, "n2")
    host.disk.remove(kubelet_configuration.FORMER_KUBELET_CONFIG)
    context.joined = frozenset({"n1", "n2"})
    await PHASE.run(context, notes)
    assert "stop that kubelet, and run `autarky up` again" in context.absent["n2"]


async def test_a_generation_that_is_not_complete_is_not_made_the_current_one(
    make_context: MakeContext, notes: Notes
) -> None:
    """As the script says it; where the links in a generation lead to nothing, say."""
    context = make_context()
    host = await as_before(context, notes)
    made = await generations.first(context, host, context.cluster.nodes[0])
    assert made is not None
    await host.write_files(made.files)
    with pytest.raises(CommandFailed, match="is not complete"):
        await host.run([files.SCRIPT_PATH, "switch", made.generation.name])
    assert files.CURRENT not in host.links
