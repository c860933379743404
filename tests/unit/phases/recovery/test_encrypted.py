"""A backup of a cluster that stores Secrets encrypted: the first API server on new machines reads them, though what the
hosted one reads them with is in such a Secret itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from autarky import places
from autarky.control.backup.decide.encryption import Encryption
from autarky.control.slots import manifests as standby
from autarky.errors import Refused, Unreachable
from autarky.model.components import API_SERVER
from autarky.phases.context import Context
from autarky.phases.hosts import observe
from autarky.phases.prepare import PrepareHosts
from autarky.phases.recovery.encryption import PutEncryption, TakeEncryption
from autarky.phases.recovery.state import FromSnapshot, Recovery
from autarky.phases.start import StartControlPlane
from autarky.ports import Completed
from autarky.render.values import Object
from autarky.upkeep.backup import encryption_in
from autarky.workflows.recover import phases
from fakes.clusters import a_cluster, facts_of, inputs_of
from fakes.encrypting import CONFIGURATION, archived, on_host
from fakes.host import FakeHost
from fakes.hosted_pods import hosted_objects
from fakes.kube import FakeKube
from unit.phases.recovery.test_new_machines import LOST, RECORD

pytestmark = pytest.mark.looptime
CLUSTER = a_cluster(controls=2)
FLAG = "--encryption-provider-config"
HOST_FILE = f"{places.PKI}/config.yaml"
KEYS = "kind: x\n"


@dataclass(slots=True)
class SharingHost(FakeHost):
    """Gives files to the group of the hosted pods."""

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        match argv:
            case ["sh", "-c", script, "sh", path] if script.startswith("chgrp"):
                self._act(f"share {path}")
                assert "chmod 640" in script
                self.files[path] = (self.files[path][0], 0o640)
                return Completed(0, b"", "")
        return FakeHost._completed(self, argv, stdin)


@pytest.fixture
def context(make_context) -> Context:
    """New machines; no API answers."""
    hosts = {name: SharingHost(name, facts) for name, facts in facts_of(CLUSTER).items()}
    found: Context = make_context(CLUSTER, kube=FakeKube(unhealthy="connection refused"), hosts=hosts)
    found.initial_member = "n1"
    return found


def host(context: Context, name: str) -> SharingHost:
    found = context.machines.host(name)
    assert isinstance(found, SharingHost)
    return found


def hosts_of(context: Context) -> dict[str, SharingHost]:
    return {name: host(context, name) for name in ("n1", "n2")}


async def sentences(context: Context, phase: PutEncryption) -> list[str]:
    return [change.sentence for change in await phase.plan(context)]


async def started(context: Context, encryption: Encryption | None, notes) -> Object:
    """As the command does it, but for etcd; the standby that the first node started."""
    await observe(context)
    await TakeEncryption(encryption).plan(context)
    await PrepareHosts().run(context, notes)
    await PutEncryption(encryption).run(context, notes)
    await started_until_it_answers(context, notes)
    return in_place(context)


async def started_until_it_answers(context: Context, notes) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(StartControlPlane().run(context, notes))
        await asyncio.sleep(30)
        kube = context.kube()
        assert isinstance(kube, FakeKube)
        kube.unhealthy = None


def in_place(context: Context, name: str = "n1") -> Object:
    """The standby there."""
    revision = host(context, name).in_place[API_SERVER]
    pod: Object = json.loads(host(context, name).files[f"{places.STANDBY}/{API_SERVER}/{revision}/pod.json"][0])
    return pod


def read_by(pod: Object) -> list[str]:
    """The files on the node that the flags of this standby name, by its mounts."""
    container = pod["spec"]["containers"][0]
    volumes = {one["name"]: one["hostPath"]["path"] for one in pod["spec"]["volumes"]}
    places_of = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
    paths = [word.partition("=")[2] for word in container["command"] if word.startswith(f"{FLAG}=")]
    return [places_of[path.rpartition("/")[0]] + "/" + path.rpartition("/")[2] for path in paths]


async def test_the_first_api_server_reads_with_the_file_of_the_backup(context: Context, notes) -> None:
    [path] = read_by(await started(context, encryption_in(archived()), notes))
    assert host(context, "n1").files[path] == (CONFIGURATION.encode(), 0o600)
    acts = host(context, "n1").log
    assert acts.index(f"write {path}") < acts.index(f"activate {API_SERVER}")


async def test_also_where_the_cluster_file_names_what_only_the_hosted_one_sees(context: Context, notes) -> None:
    given = {API_SERVER: {"encryption-provider-config": "/etc/encryption/config.yaml", "v": "3"}}
    context.cluster = replace(context.cluster, extra_args=given)
    pod = await started(context, encryption_in(archived()), notes)
    [path] = read_by(pod)
    assert host(context, "n1").files[path][0] == CONFIGURATION.encode()
    assert "--v=3" in pod["spec"]["containers"][0]["command"]


async def test_without_one_it_starts_as_ever(context: Context, notes) -> None:
    assert read_by(await started(context, None, notes)) == []
    assert context.encryption == ""


def test_of_the_hosted_one_nothing_changes() -> None:
    """Whatever it reads with is in the API."""
    inputs = inputs_of(CLUSTER)
    assert hosted_objects(replace(inputs, encryption=KEYS), API_SERVER) == hosted_objects(inputs, API_SERVER)
    assert standby.revision(replace(inputs, encryption=KEYS), API_SERVER) != standby.revision(inputs, API_SERVER)


# --- an `up` after a recovery that was cut ----------------------------------------------------------------------------


async def upped(make_context, context: Context, notes) -> Context:
    """`autarky up` after the host has booted: no agent has ever run there, and the API is still silent."""
    later: Context = make_context(CLUSTER, kube=FakeKube(unhealthy="refused"), hosts=hosts_of(context))
    await observe(later)
    assert later.founded
    await PrepareHosts().run(later, notes)
    await started_until_it_answers(later, notes)
    return later


async def test_an_up_after_it_leaves_the_api_server_what_it_reads_with(make_context, context: Context, notes) -> None:
    """Else nothing that was stored encrypted can be read any more, and where the API answers nobody takes that back."""
    await started(context, encryption_in(archived()), notes)
    later = await upped(make_context, context, notes)
    [path] = read_by(in_place(later))
    assert host(later, "n1").files[path] == (CONFIGURATION.encode(), 0o600)
    assert await StartControlPlane().plan(later) == []


async def test_where_there_is_an_agent_it_takes_the_hosted_ones_and_nothing_is_learned(
    make_context, context: Context, notes
) -> None:
    await started(context, encryption_in(archived()), notes)
    host(context, "n1").files[f"{places.MANIFESTS}/node-agent-standby-1.json"] = (b"{}", 0o600)
    later: Context = make_context(CLUSTER, hosts=hosts_of(context))
    await observe(later)
    assert later.encryption == ""


async def test_without_such_a_file_there_is_nothing_to_learn(make_context, context: Context, notes) -> None:
    await started(context, None, notes)
    assert read_by(in_place(await upped(make_context, context, notes))) == []


# --- a file of the host -----------------------------------------------------------------------------------------------


def of_host() -> Encryption | None:
    return encryption_in(archived(on_host(places.PKI)) | {f"host{HOST_FILE}": KEYS.encode()})


async def test_where_it_was_on_the_host_each_control_node_has_it_before_a_server_starts(
    context: Context, notes
) -> None:
    [path] = read_by(await started(context, of_host(), notes))
    assert path.startswith(f"{places.STANDBY}/{API_SERVER}/")
    for name in ("n1", "n2"):
        assert host(context, name).files[HOST_FILE] == (KEYS.encode(), 0o640)
        acts = host(context, name).log
        marked = acts.index(f"write {places.NODE_MARKER}")
        assert marked < acts.index(f"write {HOST_FILE}") < acts.index(f"share {HOST_FILE}")
    acts = host(context, "n1").log
    assert acts.index(f"share {HOST_FILE}") < acts.index(f"activate {API_SERVER}")
    assert await sentences(context, PutEncryption(of_host())) == []


async def test_what_a_person_has_put_there_stays(context: Context, notes) -> None:
    host(context, "n2").files[HOST_FILE] = (b"newer keys", 0o644)
    phase = PutEncryption(of_host())
    assert await sentences(context, phase) == [f"write {HOST_FILE} on n1"]
    await phase.run(context, notes)
    assert host(context, "n2").files[HOST_FILE] == (b"newer keys", 0o644)


@pytest.mark.parametrize("act", range(2))
async def test_rule_5_cut_anywhere_the_next_run_does_the_rest(context: Context, notes, act: int) -> None:
    phase = PutEncryption(of_host())
    host(context, "n1").fail_at = act
    with suppress(Unreachable):
        await phase.run(context, notes)
    assert host(context, "n1").files.get(HOST_FILE, (b"", 0))[1] in (0, 0o440), "nobody else reads it meanwhile"
    host(context, "n1").fail_at = None
    assert await sentences(context, phase) != []
    await phase.run(context, notes)
    assert await sentences(context, phase) == []
    assert host(context, "n1").files[HOST_FILE] == (KEYS.encode(), 0o640)


async def test_one_of_the_standbys_own_is_written_nowhere_else(context: Context) -> None:
    assert await sentences(context, PutEncryption(encryption_in(archived()))) == []
    assert await sentences(context, PutEncryption(None)) == []


# --- a file that is in no backup --------------------------------------------------------------------------------------

ELSEWHERE = "/etc/keys/config.yaml"


def in_no_backup() -> Encryption | None:
    return encryption_in(archived(on_host("/etc/keys")))


@pytest.mark.parametrize("there", [(), ("n1",), ("n2",)])
async def test_a_file_that_is_in_no_backup_is_asked_for_before_anything_is_touched(
    context: Context, there: Sequence[str]
) -> None:
    for name in there:
        host(context, name).files[ELSEWHERE] = (KEYS.encode(), 0o600)
    lacking = sorted({"n1", "n2"} - set(there))
    with pytest.raises(Refused, match=f"{ELSEWHERE}.* nor on {', '.join(lacking)}: ") as refused:
        await TakeEncryption(in_no_backup()).plan(context)
    assert "put that file there" in str(refused.value)
    assert [host(context, name).log for name in ("n1", "n2")] == [[], []]


async def test_where_each_control_node_has_it_the_first_server_reads_with_that(context: Context, notes) -> None:
    for name in ("n1", "n2"):
        host(context, name).files[ELSEWHERE] = (KEYS.encode(), 0o644)
    assert await TakeEncryption(in_no_backup()).plan(context) == []
    [path] = read_by(await started(context, in_no_backup(), notes))
    assert host(context, "n1").files[path] == (KEYS.encode(), 0o600)
    assert host(context, "n1").files[ELSEWHERE] == (KEYS.encode(), 0o644)


def test_it_is_looked_for_before_and_written_after_the_hosts_are_the_clusters(snapshot: FromSnapshot) -> None:
    names = [phase.name for phase in phases(Recovery(snapshot), {}, RECORD, LOST, of_host())]
    assert names.index("take-roots") < names.index("take-encryption") < names.index("issue-certificates")
    assert names.index("prepare-hosts") < names.index("put-encryption") < names.index("begin-etcd")
