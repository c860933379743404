"""Another version of etcd on the nodes: brought to all of them, and kept by the next `up`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from autarky.cli import wiring
from autarky.cli.main import main
from autarky.control.etcd.manifests.pods import TEMPLATE_KEY, template_object
from autarky.engine.phase import Warn
from autarky.errors import Unreachable, UserError
from autarky.model.cluster import ExternalEtcd
from autarky.model.versions import Version
from autarky.payload import Binary, Image, Payload, etcd_version, load_etcd
from autarky.phases import other_etcd, prepare
from autarky.phases.binaries import STORE
from autarky.phases.other_etcd import BringEtcd, FindNodes
from autarky.phases.prepare import PrepareHosts
from autarky.render.crds import API_VERSION, control_plane_crd
from autarky.render.node import ETCD_TOOLS
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube

OLDER, NEWER = Version(3, 5, 35), Version(3, 7, 3)
IMAGE = "registry.k8s.io/etcd:3.7.3-0"
CLUSTER = a_cluster(controls=1, workers=1)
UP = PrepareHosts()


def built(directory: Path, version: Version) -> Payload:
    """As in the store; each program says its version."""
    directory = directory / f"etcd-{version}"
    directory.mkdir(exist_ok=True)
    release = load_etcd(version)
    binaries = {}
    for name in ETCD_TOOLS:
        content = f"{name} Version: {str(version).removeprefix('v')}\n".encode()
        (directory / name).write_bytes(content)
        binaries[name] = Binary(name, directory / name, sha256(content).hexdigest(), len(content))
    image, digest = release.image("etcd"), f"sha256:{version}"
    (directory / "etcd.tar").write_text(f"{image.reference} {digest}")
    stored = Image("etcd", image.reference, directory / "etcd.tar", f"{version}".ljust(64, "0"), 1, digest)
    return Payload(release, binaries, {"etcd": stored})


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """Has every version."""

    async def get(release, _progress, **_):
        return built(tmp_path, etcd_version(release))

    monkeypatch.setattr(other_etcd, "get_payload", get)
    monkeypatch.setattr(other_etcd, "needs", lambda *_: [])


@pytest.fixture
def prepared(make_context, notes, tmp_path) -> Callable:
    """A cluster whose hosts `up` has prepared, with a release whose own etcd says its version."""

    async def make(cluster=CLUSTER, **given):
        context = make_context(cluster, **given)
        own = built(tmp_path, etcd_version(context.release))
        context.payload = replace(context.payload, binaries={**context.payload.binaries, **own.binaries})
        await UP.run(context, notes)
        return context

    return make


async def sentences(phase, context):
    return [change.sentence for change in await phase.plan(context)]


def versions_on(host: FakeHost) -> dict[str, str]:
    """Program → the version that it says."""
    said = {name: host.disk.file(path) for name, path in ETCD_TOOLS.items()}
    return {name: file[0].decode().split()[-1] for name, file in said.items() if file is not None}


def all_of(version: Version) -> dict[str, str]:
    return dict.fromkeys(ETCD_TOOLS, str(version).removeprefix("v"))


def put(host: FakeHost, name: str, content: bytes, digest: str | None = None) -> None:
    """A program under the name that autarky gives it."""
    target = f"{STORE}/{name}-{(digest or sha256(content).hexdigest())[:16]}"
    host.disk.write(target, content, 0o755)
    host.disk.link(ETCD_TOOLS[name], target)


# --- bringing it ---------------------------------------------------------------------------------------


async def test_a_newer_one_comes_to_every_node_with_its_programs_and_then_nothing_is_lacking(prepared, notes):
    context = await prepared()
    phase = BringEtcd(NEWER)
    assert await sentences(phase, context) == [
        sentence
        for node in ("n1", "n2")
        for sentence in (f"import {IMAGE} on {node}", f"install etcd, etcdctl, etcdutl v3.7.3 on {node}")
    ]
    await phase.run(context, notes)
    for host in context.machines.hosts.values():
        assert host.images[IMAGE] == "sha256:v3.7.3"
        assert versions_on(host) == all_of(NEWER)
        host.log.clear()
    assert await phase.plan(context) == []
    await phase.run(context, notes)
    assert [host.log for host in context.machines.hosts.values()] == [[], []]


async def test_of_an_older_one_only_the_image_comes(prepared, notes):
    context = await prepared()
    await BringEtcd(OLDER).run(context, notes)
    for host in context.machines.hosts.values():
        assert "registry.k8s.io/etcd:3.5.35-0" in host.images
        assert versions_on(host) == all_of(etcd_version(context.release))
    assert await BringEtcd(OLDER).plan(context) == []


async def test_what_is_newer_still_stays(prepared, notes):
    context = await prepared()
    host = context.machines.hosts["n1"]
    put(host, "etcdutl", b"etcdutl Version: 3.8.0\n")
    await BringEtcd(NEWER).run(context, notes)
    assert versions_on(host) == {**all_of(NEWER), "etcdutl": "3.8.0"}


async def test_what_is_to_be_built_first_is_planned_only_if_a_node_lacks_it(prepared, notes, monkeypatch):
    context = await prepared()
    monkeypatch.setattr(other_etcd, "needs", lambda *_: ["image etcd"])
    assert (await sentences(BringEtcd(NEWER), context))[0] == "build image etcd v3.7.3"
    await BringEtcd(NEWER).run(context, notes)
    assert await sentences(BringEtcd(NEWER), context) == []


async def test_a_plan_only_looks(prepared):
    context = await prepared()
    logs = [list(host.log) for host in context.machines.hosts.values()]
    await BringEtcd(NEWER).plan(context)
    assert [host.log for host in context.machines.hosts.values()] == logs


async def test_a_kill_between_any_two_steps_and_an_up_after_it_take_nothing_away(prepared, notes):
    one_node = a_cluster()
    complete = (await prepared(one_node)).machines.hosts["n1"]
    before = len(complete.log)
    context = await prepared(one_node)
    await BringEtcd(NEWER).run(context, notes)
    steps = len(context.machines.hosts["n1"].log)
    for step in range(before, steps):
        context = await prepared(one_node)
        host = context.machines.hosts["n1"]
        host.fail_at = step
        with pytest.raises(Unreachable):
            await BringEtcd(NEWER).run(context, notes)
        host.fail_at = None
        seen = versions_on(host)
        await UP.run(context, notes)
        assert versions_on(host) == seen
        await BringEtcd(NEWER).run(context, notes)
        assert versions_on(host) == all_of(NEWER)
        assert await BringEtcd(NEWER).plan(context) == []
        assert await UP.plan(context) == []


@pytest.mark.looptime
async def test_a_worker_whose_host_never_ends_is_left_out(prepared, notes, monkeypatch):
    context = await prepared()
    context.joined = frozenset({"n1", "n2"})
    real = prepare.import_images

    async def never(host: FakeHost, *rest):
        if host.name == "n2":
            await asyncio.Event().wait()
        return await real(host, *rest)

    monkeypatch.setattr(other_etcd, "import_images", never)
    await BringEtcd(NEWER).run(context, notes)
    assert context.absent == {"n2": "it was not done within 600 s"}
    assert IMAGE in context.machines.hosts["n1"].images


# --- what `up` keeps -----------------------------------------------------------------------------------


async def test_up_keeps_newer_programs_whatever_the_store_here_has(prepared, notes):
    context = await prepared()
    await BringEtcd(NEWER).run(context, notes)
    assert await UP.plan(context) == []
    await UP.run(context, notes)
    for host in context.machines.hosts.values():
        assert versions_on(host) == all_of(NEWER)
        assert IMAGE in host.images


@pytest.mark.parametrize(
    ("content", "digest"),
    [
        (b"etcd Version: 3.5.35\n", None),
        (b"etcd Version: 3.6.16 of another build\n", None),
        (b"etcd Version: 3.9.9\n", None),
        (b"something else\n", None),
        (b"etcd Version: 3.7.3, damaged\n", "0" * 64),
    ],
    ids=["older", "as new", "of no known version", "no etcd", "damaged"],
)
async def test_up_replaces_every_other_program(prepared, notes, content, digest):
    context = await prepared()
    host = context.machines.hosts["n1"]
    put(host, "etcd", content, digest)
    assert (await sentences(UP, context))[0] == "install 1 binaries on n1"
    await UP.run(context, notes)
    assert versions_on(host) == all_of(etcd_version(context.release))


async def test_up_replaces_a_program_that_autarky_has_not_put_there(prepared, notes):
    context = await prepared()
    host = context.machines.hosts["n1"]
    content = b"etcd Version: 3.7.3\n"
    target = f"/opt/etcd-{sha256(content).hexdigest()[:16]}"
    host.disk.write(target, content, 0o755)
    host.disk.link(ETCD_TOOLS["etcd"], target)
    await UP.run(context, notes)
    assert versions_on(host) == all_of(etcd_version(context.release))


# --- what the ControlPlane asks for --------------------------------------------------------------------


def asks_for(kube: FakeKube, etcd: object) -> None:
    kube.put(control_plane_crd())
    meta = {"name": "cluster"}
    kube.put({"apiVersion": API_VERSION, "kind": "ControlPlane", "metadata": meta, "spec": {"etcd": etcd}})


async def test_a_node_that_comes_later_gets_what_the_control_plane_asks_for(prepared, notes):
    context = await prepared()
    asks_for(context.kube(), {"version": "3.7.3"})
    await BringEtcd(NEWER).run(context, notes)
    context.machines.hosts["n2"] = FakeHost("n2", context.facts["n2"])
    await UP.run(context, notes)
    lacking = [f"import {IMAGE} on n2", "install etcd, etcdctl, etcdutl v3.7.3 on n2"]
    assert await sentences(BringEtcd(), context) == lacking
    await BringEtcd().run(context, notes)
    assert versions_on(context.machines.hosts["n2"]) == all_of(NEWER)
    assert await BringEtcd().plan(context) == []


@pytest.mark.parametrize("asked", [{}, {"version": "3.6.16"}], ids=["nothing", "the release's"])
async def test_a_node_gets_the_version_that_the_cluster_was_made_with_unless_another_is_asked_for(prepared, asked):
    """Another autarky may have another one for this release of Kubernetes."""
    context = await prepared(a_cluster())
    asks_for(context.kube(), asked)
    found = template_object(context.inputs())
    text = found["data"][TEMPLATE_KEY].replace("/etcd:3.6.16-0", "/etcd:3.7.3-0")
    context.kube().put({**found, "data": {**found["data"], TEMPLATE_KEY: text}})
    lacking = [f"import {IMAGE} on n1", "install etcd, etcdctl, etcdutl v3.7.3 on n1"]
    assert await sentences(BringEtcd(), context) == ([] if asked else lacking)


@pytest.mark.parametrize(
    "etcd",
    [None, {}, "3.7.3", {"version": None}, {"version": "newest"}, {"version": "3.4.0"}, {"version": "3.6.16"}],
    ids=["nothing", "no version", "no object", "null", "no number", "not known", "the release's"],
)
async def test_what_the_release_has_or_nobody_knows_is_left_to_others(prepared, etcd):
    context = await prepared()
    asks_for(context.kube(), etcd)
    assert await BringEtcd().plan(context) == []


async def test_nothing_is_known_without_an_api(prepared):
    context = await prepared(kube=FakeKube(unhealthy="connection refused"))
    asks_for(context.kube(), {"version": "3.7.3"})
    assert await BringEtcd().plan(context) == []


# --- finding the nodes ---------------------------------------------------------------------------------


async def test_a_host_that_is_not_prepared_is_left_out_and_that_is_said(prepared, notes):
    context = await prepared()
    context.machines.hosts["n2"] = FakeHost("n2", context.facts["n2"])
    [warning] = await FindNodes().plan(context)
    assert isinstance(warning, Warn)
    assert warning.sentence == "n2 is left out: it is not prepared yet, which `autarky up` does"
    await BringEtcd(NEWER).run(context, notes)
    assert context.machines.hosts["n2"].log == []
    assert IMAGE in context.machines.hosts["n1"].images


async def test_an_etcd_outside_of_the_cluster_is_refused(make_context):
    external = ExternalEtcd(("https://192.0.2.9:2379",), "ca", "cert", "key")
    with pytest.raises(UserError, match="is external"):
        await FindNodes().plan(make_context(replace(CLUSTER, external_etcd=external)))


# --- the command ---------------------------------------------------------------------------------------


@pytest.fixture
def push(prepared, monkeypatch) -> Callable:
    """`autarky payload etcd push 3.7.3` on such a cluster: its exit code and the hosts."""

    def run(*options: str, unprepared: bool = False):
        context = asyncio.run(prepared())
        if unprepared:
            context.machines.hosts["n2"] = FakeHost("n2", context.facts["n2"])
        monkeypatch.setattr(wiring, "load_cluster", lambda *_: context.cluster)
        monkeypatch.setattr(wiring, "build_context", lambda _: context)
        return main(["payload", "etcd", "push", "3.7.3", *options]), context.machines.hosts

    return run


def test_the_command_brings_it_to_every_node(push, capsys):
    status, hosts = push("-o", "plain")
    assert status == 0
    assert all(versions_on(host) == all_of(NEWER) and IMAGE in host.images for host in hosts.values())
    assert capsys.readouterr().out.splitlines()[-1] == "etcd v3.7.3 is on every node"


def test_a_dry_run_of_it_changes_nothing(push, capsys):
    status, hosts = push("--dry-run")
    assert status == 0
    assert not [host for host in hosts.values() if IMAGE in host.images or versions_on(host) == all_of(NEWER)]
    assert f"import {IMAGE} on n2" in capsys.readouterr().out


def test_programs_read_its_events(push, capsys):
    status, _ = push("-o", "json")
    assert status == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["operation"] for event in events} == {"payload etcd push"}
    assert events[-1]["outcome"] == "changed"


def test_a_node_that_is_left_out_makes_it_fail_when_the_others_have_it(push, capsys):
    status, hosts = push(unprepared=True)
    assert status == Unreachable.exit_code
    assert versions_on(hosts["n1"]) == all_of(NEWER)
    assert "node n2: it is not prepared yet" in capsys.readouterr().err
