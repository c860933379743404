"""Changed arguments reach the members of etcd one at a time, and a mistake in them meets one member only."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace

import pytest

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.slots import manifests as standby
from autarky.errors import Refused, Unreachable, UserError
from autarky.model.files import File
from autarky.phases.etcd_change import FORMER, LIMIT, ChangeEtcd
from autarky.phases.etcd_pods import static_pods
from autarky.phases.hosts import FOUNDED, observe
from autarky.phases.start import StartControlPlane, static_pod_changes
from autarky.render import node as render_node
from autarky.workflows.up import PHASES
from fakes.clusters import a_cluster, facts_of
from fakes.etcd_host import FakeEtcd
from fakes.kube import FakeKube

PHASE = ChangeEtcd()
BAD, GOOD = {"etcd": {"nonsense": "1"}}, {"etcd": {"quota-backend-bytes": "123"}}
pytestmark = pytest.mark.looptime


@pytest.fixture
def fake_etcd():
    return FakeEtcd()


@pytest.fixture
def running(make_context, fake_etcd):
    """A cluster whose control nodes have their members."""

    async def make(controls=3, workers=0, kube=None):
        cluster = a_cluster(controls=controls, workers=workers)
        context = make_context(cluster, kube=kube or FakeKube(), hosts=fake_etcd.of(facts_of(cluster)))
        for node in cluster.control_nodes:
            host = context.machines.hosts[node.name]
            await host.write_files([render_node.manifest(etcd.member_pod(context.inputs(), node))])
            said = {"cluster": "demo", "node": node.name, "founders": [n.name for n in cluster.control_nodes]}
            host.files |= {places.NODE_MARKER: (json.dumps(said).encode(), 0o644), FOUNDED: (b"", 0o644)}
        for host in context.machines.hosts.values():
            host.active_units.add("kubelet")
            host.log.clear()
        await observe(context)
        return context

    return make


def given(context, arguments):
    context.cluster = replace(context.cluster, extra_args=arguments)


async def pods(context):
    return {name: await static_pods(host) for name, host in context.machines.hosts.items()}


def changed(context):
    return [name for name, host in context.machines.hosts.items() if any("/etcd-" in act for act in host.log)]


# --- what is done -----------------------------------------------------------------------------------------------


async def test_nothing_is_done_to_members_that_are_as_they_should_be(running):
    assert await PHASE.plan(await running()) == []


async def test_members_are_changed_one_after_the_other_the_leader_last_and_with_a_quorum_of_the_others(
    running, fake_etcd, notes
):
    context = await running()
    given(context, GOOD)
    assert len(await PHASE.plan(context)) == 3
    await PHASE.run(context, notes)
    assert fake_etcd.stopped == [
        ("n2", frozenset({"n1", "n3"})), ("n3", frozenset({"n1", "n2"})), ("n1", frozenset({"n2", "n3"}))
    ]  # fmt: skip
    for host in context.machines.hosts.values():
        [content] = host.manifests
        assert b"--quota-backend-bytes=123" in content
        assert FORMER not in host.files
    assert notes.notes[0] == "the member of etcd on n2 runs with --quota-backend-bytes=123"
    assert await PHASE.plan(context) == []


@pytest.mark.parametrize("by", ["its label", "a control node, with the API down"])
async def test_a_member_that_a_label_made_is_changed_too_where_its_host_is_in_the_file(running, fake_etcd, notes, by):
    context = await running(workers=1)
    node = context.cluster.node("n4")
    reported = etcd.Founding("n4=https://192.0.2.14:2380", "existing", context.cluster.name)
    spec = etcd.read_template(etcd.template_object(context.inputs()))
    host = context.machines.hosts["n4"]
    await host.write_files([render_node.manifest(etcd.filled(spec, "n4", node.address, reported, written_for=0xABC))])
    if by == "its label":
        context.api_seen, context.active_in_api = True, frozenset({"n4"})
    else:
        context.api_seen = False
        known = json.dumps([{"name": "n4", "address": node.address, "learner": False}]).encode()
        await host.write_files([File(places.CONTROL_NODE_STATE, b'{"state": "ready"}')])
        await context.machines.hosts["n1"].write_files([File(places.MEMBERS_FILE, known)])
    assert await PHASE.plan(context) == []
    given(context, GOOD)
    await PHASE.run(context, notes)
    [content] = host.manifests
    pod = json.loads(content)
    assert b"--quota-backend-bytes=123" in content
    assert etcd.founding_of(pod) == reported
    assert pod["metadata"]["annotations"] == {etcd.WRITTEN_FOR: "abc"}


@pytest.mark.parametrize("api", [True, False])
async def test_a_worker_has_no_member_whatever_is_on_its_disk(running, notes, api):
    """Root there could keep `up` from ever having nothing to do, or from going on."""
    context = await running(workers=1)
    context.api_seen = api
    host, node = context.machines.hosts["n4"], context.cluster.node("n4")
    await host.write_files([render_node.manifest(etcd.member_pod(context.inputs(), node))])
    await host.write_files([File(FORMER, b"{}"), File(places.CONTROL_NODE_STATE, b'{"state": "ready"}')])
    given(context, GOOD)
    assert len(await PHASE.plan(context)) == 3
    host.disk.make_directory(places.ETCD_CHANGE)  # what cannot be read
    host.log.clear()
    await PHASE.run(context, notes)
    assert "n4" not in changed(context)
    assert await PHASE.plan(context) == []


async def test_a_member_whose_host_is_not_in_the_file_is_told(running, notes):
    context = await running()
    context.cluster = replace(context.cluster, nodes=context.cluster.nodes[:2])
    given(context, GOOD)
    await PHASE.run(context, notes)
    assert changed(context) == ["n1", "n2"]
    assert "the member of etcd on n3 was left as it is" in notes.notes[-1]


# --- a mistake --------------------------------------------------------------------------------------------------


async def test_a_mistake_meets_one_member_which_is_put_back_and_the_others_are_not_touched(running, fake_etcd, notes):
    context = await running()
    before = await pods(context)
    given(context, BAD)
    with pytest.raises(UserError, match="node n2: its member of etcd is not healthy with --nonsense=1") as refused:
        await PHASE.run(context, notes)
    assert "it was started 3 times, and exited each time" in str(refused.value)
    assert "}\n  | flag provided but not defined: -nonsense\n" in str(refused.value)
    assert "Usage" not in str(refused.value)
    assert "correct spec.extraArgs.etcd" in refused.value.fix
    assert await pods(context) == before
    assert changed(context) == ["n2"]
    assert fake_etcd.living() == {"n1", "n2", "n3"}
    assert FORMER not in context.machines.hosts["n2"].files
    given(context, {})
    assert await PHASE.plan(context) == []


async def test_the_only_member_is_put_back_too(running, fake_etcd, notes):
    context = await running(controls=1)
    before = await pods(context)
    given(context, BAD)
    with pytest.raises(UserError, match="node n1"):
        await PHASE.run(context, notes)
    assert await pods(context) == before
    assert fake_etcd.living() == {"n1"}


async def test_a_member_that_hangs_is_given_up_after_its_time(running, fake_etcd, notes, looptime):
    context = await running()
    fake_etcd.bad = lambda _manifest: False
    given(context, GOOD)
    host = context.machines.hosts["n2"]
    host.slow = b"--quota"
    before = await pods(context)
    with pytest.raises(UserError, match=rf"its health check answers 503 after {LIMIT:.0f} s"):
        await PHASE.run(context, notes)
    assert looptime >= LIMIT
    assert await pods(context) == before


# --- what stands against it -----------------------------------------------------------------------------------------


async def test_while_a_member_is_missing_no_other_one_is_stopped_that_the_quorum_needs(running, notes):
    context = await running()
    context.machines.hosts["n3"].off = True
    given(context, GOOD)
    with pytest.raises(UserError, match="node n3"):
        await PHASE.run(context, notes)  # the one that is not well anyway comes first
    del context.machines.hosts["n3"].files[FORMER]
    context.absent = {"n3": "off"}
    with pytest.raises(Refused, match="n3 does not serve, and without n2 there is no quorum"):
        await PHASE.run(context, notes)
    assert changed(context) == ["n3"]


async def test_members_that_none_of_them_can_live_with_are_repaired_one_after_the_other(running, fake_etcd, notes):
    """As an earlier release left them: all of them have the mistake."""
    context = await running(kube=FakeKube(unhealthy="connection refused"))
    given(context, BAD)
    for node in context.cluster.nodes:
        host = context.machines.hosts[node.name]
        await host.remove(list(await static_pods(host)))
        await host.write_files([render_node.manifest(etcd.member_pod(context.inputs(), node))])
    assert not fake_etcd.has_quorum()
    given(context, GOOD)
    await PHASE.run(context, notes)
    assert fake_etcd.living() == {"n1", "n2", "n3"}
    assert notes.notes[0].startswith("etcd has no quorum")


async def test_rule_2_while_the_api_is_ready_members_that_cannot_be_asked_are_no_quorum_that_is_gone(
    running, fake_etcd, notes, monkeypatch
):
    """Their client may be too slow, or shut out by arguments: etcd might not survive the restart of a healthy one."""
    context = await running()
    context.machines.hosts["n3"].off = True
    monkeypatch.setattr(FakeEtcd, "json_lines", lambda _self: "")
    given(context, GOOD)
    with pytest.raises(Refused, match="none of its members reports who the members are"):
        await PHASE.run(context, notes)
    assert changed(context) == []


# --- cut in the middle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [GOOD, BAD])
@pytest.mark.parametrize("cut", range(6))
async def test_a_change_that_is_cut_anywhere_is_finished_or_put_back_by_the_next_run(
    running, fake_etcd, notes, arguments, cut
):
    context = await running()
    before = await pods(context)
    given(context, arguments)
    host = context.machines.hosts["n2"]
    host.fail_at = cut
    with suppress(Unreachable, UserError):
        await PHASE.run(context, notes)
    host.fail_at = None
    if not host.manifests:
        assert [*host.timers.values()] == [[standby.SCRIPT_PATH, "restore-etcd"]], "nobody else would put one back"
        assert FORMER in host.files
    try:
        await PHASE.run(context, notes)
    except UserError:
        assert arguments == BAD
        assert await pods(context) == before
    else:
        assert arguments == GOOD
        assert await PHASE.plan(context) == []
    assert fake_etcd.living() == {"n1", "n2", "n3"}
    assert all(FORMER not in each.files and not each.timers for each in context.machines.hosts.values())


@pytest.mark.parametrize("cut", range(6))
async def test_a_mistake_that_is_fixed_after_the_run_was_cut_leaves_nothing_of_it(running, fake_etcd, notes, cut):
    context = await running()
    before = await pods(context)
    given(context, BAD)
    host = context.machines.hosts["n2"]
    host.fail_at = cut
    with suppress(Unreachable, UserError):
        await PHASE.run(context, notes)
    host.fail_at = None
    given(context, {})
    if await PHASE.plan(context):
        await PHASE.run(context, notes)
    assert await pods(context) == before
    assert await PHASE.plan(context) == []
    assert FORMER not in host.files


OTHER_IMAGE = "registry.k8s.io/etcd:3.7.3-0"


@pytest.mark.parametrize("in_place", [True, False])
async def test_a_version_that_a_cut_run_has_put_in_place_stays_when_the_file_names_none_any_more(
    running, notes, in_place
):
    """Its data may be of that version already, and the former one not start from it."""
    context = await running()
    host, node = context.machines.hosts["n2"], context.cluster.node("n2")
    [former] = (await static_pods(host)).values()
    await host.remove(list(await static_pods(host)))
    other = render_node.manifest(etcd.member_pod(context.inputs(), node, image=OTHER_IMAGE))
    if in_place:
        await host.write_files([File(FORMER, former, 0o600), other])
    else:
        await host.write_files([File(FORMER, other.content, 0o600)])
    [change] = await PHASE.plan(context)
    assert ("whose change was interrupted" in change.sentence) == in_place
    await PHASE.run(context, notes)
    assert await static_pods(host) == {other.path: other.content}
    assert FORMER not in host.files


async def test_the_new_process_is_written_when_the_former_one_has_ended(running, notes):
    context = await running()
    given(context, GOOD)
    host = context.machines.hosts["n2"]
    host.lingers = 20
    await PHASE.run(context, notes)
    assert "0 looks before the former has ended" in host.log


async def test_a_run_that_is_stopped_while_the_former_process_ends_leaves_a_static_pod(running, notes):
    context = await running()
    given(context, GOOD)
    host = context.machines.hosts["n2"]
    host.lingers = 10**6
    run = asyncio.create_task(PHASE.run(context, notes))
    await asyncio.sleep(5)
    assert host.manifests == []
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(host.manifests) == 1
    host.lingers = 0
    await PHASE.run(context, notes)
    assert await PHASE.plan(context) == []


# --- beside the first start -------------------------------------------------------------------------------------------


def test_members_are_changed_before_the_api_is_waited_for():
    """It may be they that keep it from answering."""
    names = [phase.name for phase in PHASES]
    assert names.index("check-external-etcd") < names.index("change-etcd") < names.index("start-control-plane")


async def test_the_phase_that_starts_all_initial_members_side_by_side_touches_no_member_that_runs(running, notes):
    context = await running()
    given(context, BAD)
    for node in context.cluster.nodes:
        host = context.machines.hosts[node.name]
        stale, missing = await static_pod_changes(context, host, node, founding=False)
        assert not [path for path in [*stale, *(file.path for file in missing)] if "/etcd-" in path]
    assert not [change for change in await StartControlPlane().plan(context) if "/etcd-" in change.sentence]


async def test_etcd_that_is_still_to_be_founded_is_left_to_its_first_start(make_context, fake_etcd):
    cluster = a_cluster(controls=3)
    hosts = fake_etcd.of(facts_of(cluster))
    context = make_context(cluster, kube=FakeKube(unhealthy="connection refused"), hosts=hosts)
    host = hosts["n1"]
    await host.write_files([render_node.manifest(etcd.member_pod(context.inputs(), cluster.nodes[0]))])
    given(context, GOOD)
    assert await PHASE.plan(context) == []
    stale, missing = await static_pod_changes(context, host, cluster.nodes[0], founding=True)
    assert [path for path in stale if "/etcd-" in path] == list(await static_pods(host))
    assert [b"--quota-backend-bytes=123" in file.content for file in missing if "/etcd-" in file.path] == [True]
