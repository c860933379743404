"""Another machine works on the cluster: what `login` brings, what it never brings, and that `up` changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.cli import login as login_command
from autarky.cli import main
from autarky.config import default_cluster, dump, loads
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.phase import Change, Warn
from autarky.errors import Conflict, Problems, Unreachable, UserError
from autarky.model.cluster import Level
from autarky.model.versions import Version
from autarky.payload import default_version, known_versions
from autarky.phases import kept_file, login, renewals
from autarky.phases.check_file import CheckFile, CheckFileAgain
from autarky.phases.finish import WriteKubeconfig
from autarky.phases.hosts import CheckHosts
from autarky.phases.members import nodes_of
from autarky.phases.prepare import CTR, look
from autarky.phases.record import KeepRecord
from autarky.phases.supply import IssueCertificates
from autarky.pki import PkiStore
from autarky.pki.signing import answer
from autarky.ports import Completed
from autarky.render import cluster_record
from autarky.render.kubeconfig import bootstrap_token
from autarky.render.objects import parts
from autarky.render.values import pretty_json
from autarky.workflows.login import phases
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

THREE = a_cluster(controls=3, workers=1)
AGENT = "autarky.dev/agent:0.1.0-abc"
SECRETS = ("ca.key", "front-proxy-ca.key", "sa.key", "etcd/ca.key")


class ControlNode(FakeHost):
    """Runs the signer with the CAs of the directory, as containerd would."""

    directory = None

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True):
        if tuple(argv[:4]) == (*CTR, "run"):
            assert AGENT in argv
            assert f"src={places.PKI}" in argv[argv.index("--mount") + 1]
            assert b"PRIVATE" not in stdin
            return Completed(0, answer(stdin, self.directory, datetime.now(UTC)), "")
        return await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)


def document():
    made = default_cluster(default_version=default_version(), known_versions=known_versions())
    return dump(replace(made, name="demo", ssh_config="/home/anna/.ssh/config"))


@pytest.fixture
def first(make_context):
    """The machine that has brought the cluster up, and what it has left on the hosts."""
    facts = facts_of(THREE)
    hosts = {name: ControlNode(name, facts[name]) for name in facts}
    context = make_context(THREE, hosts=hosts)
    context.document = document()
    for host in hosts.values():
        host.directory = context.pki.directory
        host.images[AGENT] = "sha256:1"
        host.active_units.add("containerd")
    return context


def record_object(context):
    [found] = [part.objects[0] for part in parts(context.inputs()) if part.name == "record"]
    return found


async def leave_files(context):
    await CheckHosts().plan(context)
    for node in context.cluster.nodes:
        host = context.machines.hosts[node.name]
        await host.write_files((await look(context, node)).files)
    await CheckHosts().plan(context)


@pytest.fixture
async def second(first, make_context, tmp_path):
    """Another machine, after `login`."""
    await leave_files(first)
    return await logged_in(first, make_context, tmp_path / "second")


async def logged_in(first, make_context, directory):
    host = first.machines.hosts["n2"]
    fetched = await login.fetch(host)
    context = make_context(THREE, hosts=first.machines.hosts)
    context.directory, context.pki, context.document = directory, PkiStore(directory / "pki"), first.document
    known = nodes_of(fetched.record.nodes)
    nodes = tuple(replace(node, initial_member=known[node.name].initial_member) for node in THREE.nodes)
    context.cluster, context.file_content = replace(THREE, nodes=nodes), b"{}"
    for phase in phases(host, fetched, lambda _newer: pytest.fail("the host has the newest")):
        assert await phase.plan(context) or phase.name == "compare-record"
        await phase.run(context, context.silence)
        assert not await phase.plan(context), f"{phase.name} once more changes nothing"
    return context


def written(context):
    return set(contents(context))


def contents(context):
    found = [path for path in context.directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(context.directory)): path.read_bytes() for path in found}


async def test_login_brings_the_file_a_kubeconfig_and_keys_of_its_own_and_no_key_of_the_cluster(first, second):
    administrators = {f"pki/{name}.{end}" for name in ("admin", "super-admin") for end in ("crt", "key")}
    assert written(second) == {"cluster.json", "kubeconfig", "nodes.json", "pki/ca.crt", *administrators}
    theirs = first.pki.files()
    assert all(content not in theirs.values() for name, content in second.pki.files().items() if name.endswith(".key"))


async def test_after_login_up_has_nothing_to_issue_and_nothing_to_write(first, second):
    before = contents(second)
    assert [found for found in await CheckHosts().plan(second) if isinstance(found, Change)] == []
    assert second.lender == "n1"
    assert await IssueCertificates().plan(second) == []
    assert await WriteKubeconfig().plan(second) == []
    for node in second.cluster.nodes:
        assert (await look(second, node)).files == []
    assert contents(second) == before
    theirs = {name for name in first.pki.files() if name.endswith(".key")}
    assert theirs >= set(SECRETS), "the first machine has them all"
    own = {"pki/admin.key", "pki/super-admin.key"}
    assert {f"pki/{name}" for name in theirs} & before.keys() <= own


async def test_what_up_issues_after_login_is_signed_on_a_control_node(first, second, notes):
    await CheckHosts().plan(second)
    second.pki.forget(["admin"])
    assert await IssueCertificates().plan(second)
    await IssueCertificates().run(second, notes)
    assert notes.notes == ["n1 has signed 1 certificates"]
    assert await IssueCertificates().plan(second) == []
    assert "pki/admin.key" in written(second)


async def test_what_a_node_comes_back_with_is_signed_on_a_control_node_and_not_kept(first, second):
    await CheckHosts().plan(second)
    worker = second.cluster.node("n2") if len(second.cluster.nodes) > 1 else second.cluster.nodes[0]
    await renewals.give(second, worker)
    content = second.machines.hosts[worker.name].files[kubelet_credentials.BOOTSTRAP_KUBECONFIG][0]
    assert bootstrap_token(content) is None
    assert not [name for name in written(second) if "renewal" in name]


async def test_without_a_control_node_that_lends_up_says_what_is_missing(first, second):
    for host in first.machines.hosts.values():
        host.files.pop(f"{places.PKI}/ca.key", None)
    with pytest.raises(Unreachable, match="no control node that has it answers"):
        await CheckHosts().plan(second)


async def test_a_record_has_nothing_of_the_machine_that_wrote_it_and_no_secret(first):
    await leave_files(first)
    host = first.machines.hosts["n1"]
    content, mode = host.files[places.CLUSTER_RECORD]
    assert (b"PRIVATE" not in content, b"anna" not in content, mode) == (True, True, 0o600)
    found = cluster_record.read(content)
    assert loads(json.dumps(found.file), "record", default_version=default_version(), known_versions=known_versions())
    assert [node["founder"] for node in found.nodes.values()] == [True, True, True, False]
    keys, mode = host.files[places.CLUSTER_KEYS]
    assert mode == 0o600
    assert not {f"{name}.key" for name in ("admin", "super-admin", "ca")} & set(json.loads(keys))
    worker = first.machines.hosts["n4"].files
    assert places.CLUSTER_RECORD not in worker
    assert places.CLUSTER_KEYS not in worker


async def test_the_api_has_the_record_and_the_fingerprint_too(first):
    found = record_object(first)
    assert found["data"][cluster_record.CA_KEY] == first.ours.ca
    assert cluster_record.read(found["data"][cluster_record.FILE_KEY].encode()) is not None


async def of_another_ca(context):
    """The API has the record of a cluster of the same name, whose CA is another one."""
    await leave_files(context)
    found = record_object(context)
    context.kube().put({**found, "data": {**found["data"], cluster_record.CA_KEY: "0" * 64}})
    return f"keeps the record of another cluster: its CA is {'0' * 16}, ours {context.ours.ca[:16]}"


async def test_an_api_whose_record_names_another_ca_is_refused_before_anything_is_written(first):
    seen = await of_another_ca(first)
    hosts = {name: dict(host.files) for name, host in first.machines.hosts.items()}
    before = contents(first)
    for phase in (CheckFile(), CheckHosts()):
        with pytest.raises(UserError, match=seen):
            await phase.plan(first)
    assert {name: host.files for name, host in first.machines.hosts.items()} == hosts
    assert contents(first) == before


async def test_an_api_that_answers_late_and_whose_record_names_another_ca_is_refused_as_well(first):
    seen = await of_another_ca(first)
    first.kube().set_outage("it starts")
    await CheckHosts().plan(first)
    first.kube().set_outage(None)
    with pytest.raises(UserError, match=seen):
        await CheckFileAgain().plan(first)


async def test_login_believes_no_api_whose_record_names_another_ca(first):
    seen = await of_another_ca(first)
    host = first.machines.hosts["n1"]
    fetched = await login.fetch(host)
    with pytest.raises(UserError, match=seen):
        await login.record_of_the_api(lambda _servers, _certificate: first.kube(), fetched)
    with pytest.raises(UserError, match=seen):
        await login.CompareRecord("n1", fetched, lambda _: pytest.fail("believed")).plan(first)


async def test_the_record_of_an_older_release_names_no_ca_and_is_believed(first):
    await leave_files(first)
    found = record_object(first)
    data = {key: value for key, value in found["data"].items() if key != cluster_record.CA_KEY}
    first.kube().put({**found, "data": data})
    await CheckHosts().plan(first)


async def test_a_node_that_was_removed_is_not_in_the_record_any_more(first, notes):
    await leave_files(first)
    first.machines.hosts["n2"].files[places.CLUSTER_RECORD] = (b"old", 0o600)
    await CheckHosts().plan(first)
    phase = KeepRecord(first.cluster.node("n3"))
    assert [change.sentence for change in await phase.plan(first)] == [
        *(f"write {places.CLUSTER_RECORD} on {name}" for name in ("n1", "n2")),
        "apply ConfigMap kube-system/autarky-cluster",
    ]
    await phase.run(first, notes)
    assert await phase.plan(first) == []
    found = cluster_record.read(first.machines.hosts["n2"].files[places.CLUSTER_RECORD][0])
    assert list(found.nodes) == ["n1", "n2", "n4"]


async def test_a_file_that_was_kept_here_before_another_machine_applied_one_is_refused(first):
    await leave_files(first)
    kube = first.kube()
    kube.put(record_object(first))
    ours = cluster_record.portable(first.document)
    first.known = [ours]
    await CheckHosts().plan(first)
    first.known = [{**ours, "spec": {**ours["spec"], "selfHosted": "4"}}]
    with pytest.raises(Conflict, match="another machine has applied another file"):
        await CheckHosts().plan(first)
    first.known = None
    await CheckHosts().plan(first)


async def test_after_a_login_only_the_file_that_it_has_fetched_is_known_wherever_it_was_stopped(
    first, notes, monkeypatch
):
    """What an `up` had kept before counts no more, also where it had kept that very file."""
    first.file_content = pretty_json(first.document)
    earlier = pretty_json({**first.document, "spec": {**first.document["spec"], "selfHosted": "4"}})
    kept_file.write(first.directory, earlier)
    kept_file.write(first.directory, first.file_content)
    assert await login.KeepFile().plan(first)

    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(login, "write_private", stops)
        with pytest.raises(KeyboardInterrupt):
            await login.KeepFile().run(first, notes)
    assert kept_file.applied(first.directory) == [first.document]
    await login.KeepFile().run(first, notes)
    assert await login.KeepFile().plan(first) == []


async def test_a_control_node_without_a_record_is_answered_for_by_the_api(first):
    await leave_files(first)
    host = first.machines.hosts["n1"]
    del host.files[places.CLUSTER_RECORD]
    fetched = await login.fetch(host)
    assert fetched.record is None
    kube = FakeKube()
    with pytest.raises(UserError, match="the API has none either"):
        await login.record_of_the_api(lambda _servers, _certificate: kube, fetched)
    kube.put(record_object(first))
    found = await login.record_of_the_api(lambda _servers, _certificate: kube, fetched)
    assert found.file["metadata"]["name"] == "demo"
    assert set(found.nodes) == {"n1", "n2", "n3", "n4"}


async def test_a_control_node_that_was_off_hands_out_no_old_file_while_the_api_answers(first):
    await leave_files(first)
    fetched = await login.fetch(first.machines.hosts["n1"])
    taken: list[Any] = []
    phase = login.CompareRecord("n1", fetched, taken.append)
    first.kube().put(record_object(first))
    assert await phase.plan(first) == []
    newer = replace(fetched.record, file={**fetched.record.file, "spec": {"defaults": 1, "nodes": []}}, number=2)
    first.kube().put(cluster_record.config_map(cluster_record.written(newer), first.ours.ca))
    assert [change.sentence for change in await phase.plan(first)] == [
        "take the file that the API has, which is newer than that on the disk of n1"
    ]
    assert taken == [newer]


async def test_a_change_that_was_cut_before_the_api_had_it_is_on_the_disk(first):
    await leave_files(first)
    fetched = await login.fetch(first.machines.hosts["n1"])
    first.kube().put(record_object(first))
    newer = replace(fetched, record=replace(fetched.record, file={}, number=2))
    phase = login.CompareRecord("n1", newer, lambda _record: pytest.fail("the disk has the newest"))
    assert await phase.plan(first) == []


async def test_without_the_api_login_says_that_the_file_may_be_an_old_one(first):
    await leave_files(first)
    fetched = await login.fetch(first.machines.hosts["n1"])
    first.kube().set_outage("connection refused")
    phase = login.CompareRecord("n1", fetched, lambda _record: pytest.fail("nobody has said so"))
    [warning] = await phase.plan(first)
    assert isinstance(warning, Warn)
    assert "which is old if that host was off" in warning.sentence


@pytest.mark.parametrize(
    ("path", "content", "what"),
    [
        (places.NODE_MARKER, None, "belongs to no cluster"),
        (places.NODE_MARKER, b"{", "cannot be read"),
        (f"{places.PKI}/ca.key", None, "holds no CA key"),
        (places.NODE_MARKER, b'{"cluster": "demo", "ca": "00"}', "names another CA"),
    ],
)
async def test_a_host_that_cannot_answer_for_a_cluster_says_why(first, path, content, what):
    await leave_files(first)
    host = first.machines.hosts["n1"]
    if content is None:
        del host.files[path]
    else:
        host.files[path] = (content, 0o644)
    with pytest.raises(UserError, match=what):
        await login.fetch(host)


async def test_a_state_directory_with_another_cluster_of_that_name_is_left_alone(first, tmp_path):
    await leave_files(first)
    fetched = await login.fetch(first.machines.hosts["n1"])
    other = PkiStore(tmp_path / "other")
    other.ensure(certificate_specs(THREE), THREE.certificates, datetime.now(UTC))
    with pytest.raises(UserError, match="different cluster named demo"):
        await login.refuse_another_ca(other, fetched)
    await login.refuse_another_ca(first.pki, fetched)


# --- a cluster of a release that this machine does not know ------------------------------------------------------


async def test_the_record_of_a_release_that_is_not_known_here_is_taken_as_it_is(first):
    await leave_files(first)
    record = (await login.fetch(first.machines.hosts["n1"])).record
    spec = {**record.file["spec"], "kubernetesVersion": "1.20.0"}
    found = login_command._cluster(replace(record, file={**record.file, "spec": spec}), None, None)
    assert found.kubernetes_version == Version(1, 20, 0)
    assert login_command._context(found).release.kubernetes == Version(1, 20, 0)


def test_the_file_of_a_release_that_is_not_known_here_names_the_hosts_to_ask(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "cluster.yaml"
    wanted = document()
    file.write_text(json.dumps({**wanted, "spec": {**wanted["spec"], "kubernetesVersion": "1.20.0"}}))
    assert main.main(["login", "-f", str(file)]) != 0
    assert "no host of the cluster demo could be asked" in capsys.readouterr().err


# --- login -f FILE ----------------------------------------------------------------------------------------------


async def test_of_a_file_the_first_control_node_that_can_sign_is_asked(first):
    await leave_files(first)
    hosts = first.machines.hosts
    assert (await login_command._first(first))[0] is hosts["n1"]
    of_first: Any = hosts["n1"]
    del of_first.files[f"{places.PKI}/ca.key"]
    del hosts["n2"]
    host, fetched = await login_command._first(first)
    assert host is hosts["n3"]
    assert (fetched.cluster, fetched.record.file["metadata"]["name"]) == ("demo", "demo")


async def test_a_worker_of_the_file_is_not_believed_whatever_it_has(first):
    await leave_files(first)
    hosts = first.machines.hosts
    hosts["n4"].files |= hosts["n1"].files
    for name in ("n1", "n2"):
        del hosts[name].files[f"{places.PKI}/ca.key"]
    del hosts["n3"]
    with pytest.raises(Problems, match="no host of the cluster demo could be asked") as reported:
        await login_command._first(first)
    said = [str(problem) for problem in reported.value.problems]
    assert len(said) == 3
    assert "host n1 holds no CA key" in said[0]
    assert "the machine of node n3 (lab:n3) is not running" in said[2]


def test_a_file_that_is_not_what_was_applied_last_is_named(capsys):
    path = Path("mine.yaml")
    applied = pretty_json(dump(replace(THREE, ssh_config="/home/anna/.ssh/config")))
    login_command._compare(THREE, applied, path)
    assert capsys.readouterr() == ("", ""), "where ssh has its configuration is of one machine only"
    assert THREE.self_hosted is not Level.CONTROLLERS
    login_command._compare(replace(THREE, self_hosted=Level.CONTROLLERS), applied, path)
    assert "mine.yaml is not what was applied last" in capsys.readouterr().err
