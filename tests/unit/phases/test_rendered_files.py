"""`autarky render` writes what `up` puts on hosts: all of it, byte for byte, and with the keys that a cluster has."""

from __future__ import annotations

import copy
import stat
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from autarky import places
from autarky.cli import render, render_files
from autarky.control.certificates.manifests.specs import authorities, certificate_specs
from autarky.control.drift.decide import applied
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files as kubelet_files
from autarky.errors import UserError
from autarky.phases.join import start_joining
from autarky.phases.objects import ApplyObjects
from autarky.phases.ownership import judge
from autarky.phases.prepare import PrepareHosts
from autarky.phases.start import StartControlPlane
from autarky.pki import PkiStore
from autarky.pki.issue import alternative_names
from autarky.render import crds
from autarky.render import node as render_node
from fakes.clusters import a_cluster
from fakes.host import FakeHost
from fakes.kube import FakeKube

CONTENT_ONLY_THERE = (f"{places.HOST_ROOT}/store/", f"{places.BIN}/", "/opt/cni/bin/", f"{places.RUN}/", "/founded")
"""Where binaries are, and what only time can tell."""


def rendered(root: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    found = {f"/{path.relative_to(root)}": path for path in files if "/current/" not in str(path)}
    contents = {name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for name, path in found.items()}
    return of_any_generation(contents, generation_of(root))


def generation_of(root: Path) -> str:
    return str((root / kubelet_files.CURRENT[1:]).readlink())


def of_any_generation(found: dict[str, tuple[bytes, int]], name: str) -> dict[str, tuple[bytes, int]]:
    """Its name is a hash, also of where its programs are: of what is rendered in bin/, where people put them."""
    return {
        path.replace(name, "GENERATION"): (content.replace(name.encode(), b"GENERATION"), mode)
        for path, (content, mode) in found.items()
    }


def first_leaves(cluster, name: str) -> set[str]:
    return {*render_node.leaf_paths(cluster, cluster.node(name)), kubelet_credentials.FIRST_CERTIFICATE} - {
        places.LEAVES_PLAN
    }


@pytest.mark.looptime
async def test_every_file_that_up_writes_on_a_host_before_the_agents_is_rendered_as_it_is(
    make_context, notes, tmp_path
):
    context = make_context(a_cluster(controls=1, workers=1))
    await PrepareHosts().run(context, notes)
    await StartControlPlane().run(context, notes)
    render_files.write_all(context.inputs(), tmp_path / "out")
    for name, host in context.machines.hosts.items():
        ours = rendered(tmp_path / "out/hosts" / name)
        theirs = of_any_generation(host.files, host.links[kubelet_files.CURRENT])
        theirs = {path: file for path, file in theirs.items() if not any(p in path for p in CONTENT_ONLY_THERE)}
        leaves = first_leaves(context.cluster, name)  # each rendering issues others
        assert ours.keys() >= leaves & theirs.keys()
        assert {path: ours.get(path) for path in theirs.keys() - leaves} == {
            path: file for path, file in theirs.items() if path not in leaves
        }
        assert ours[f"{places.BIN}/standby"] == host.files[f"{places.BIN}/standby"]
    assert rendered(tmp_path / "out/hosts/n1")[etcd.PEER_CA] == (context.pki.files()["etcd/ca.crt"], 0o600)
    assert etcd.PEER_CA not in rendered(tmp_path / "out/hosts/n2")


def made_by(host) -> dict[str, int]:
    """Directory → mode, as hosts make them: what the first file that is put there needs, and open above it
    (`hosts.shell`, and its own test there); and the two that phases make themselves."""
    modes: dict[str, int] = {}

    def make(path: Path, mode: int) -> None:
        if str(path) not in ("/", *modes):
            make(path.parent, 0o755)
            modes[str(path)] = mode

    for step in host.log:
        verb, _, rest = step.partition(" ")
        if verb == "write":
            make(Path(rest).parent, 0o755 if host.files[rest][1] & 0o77 else 0o700)
        elif verb == "push":
            make(Path(rest).parent, 0o755)
        elif verb == "make":
            for path in rest.split():
                make(Path(path), 0o700)
        elif step == "install leaves":
            make(Path(places.LEAVES), 0o700)
            for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
                make(Path(places.LEAVES, component), 0o750)
    return modes


@dataclass
class BroughtUp(FakeKube):
    """An API that answers as soon as a kubelet has been started."""

    hosts: dict[str, FakeHost] = field(default_factory=dict)

    async def healthy(self, path: str = "/readyz", *, timeout: float = 2.0) -> str | None:
        started = any("enable --now kubelet" in host.log for host in self.hosts.values())
        return None if started else "connection refused"


@pytest.mark.looptime
async def test_directories_are_open_or_closed_as_up_makes_them(make_context, notes, tmp_path):
    kube = BroughtUp()
    context = make_context(a_cluster(controls=1, workers=1), kube=kube)
    kube.hosts = context.machines.hosts
    await PrepareHosts().run(context, notes)
    await StartControlPlane().run(context, notes)
    await start_joining(context, context.cluster.node("n2"))
    render_files.write_all(context.inputs(), tmp_path / "out")
    for name, host in context.machines.hosts.items():
        root, theirs = tmp_path / "out/hosts" / name, made_by(host)
        ours = {
            f"/{path.relative_to(root)}": path for path in root.rglob("*") if path.is_dir() and not path.is_symlink()
        }
        ours = {path: where for path, where in ours.items() if "/current/" not in path}
        modes = {path: stat.S_IMODE(where.stat().st_mode) for path, where in ours.items()}
        its, rendered_one = host.links[kubelet_files.CURRENT], generation_of(root)
        theirs = {path.replace(its, rendered_one): mode for path, mode in theirs.items()}
        assert modes == {path: theirs.get(path) for path in modes}
        assert modes[places.MANIFESTS] == 0o700
        assert (f"{places.LEAVES}/kube-apiserver" in modes) == (name == "n1")


async def test_what_is_unpacked_as_it_was_rendered_has_all_of_a_generation_and_up_leaves_it_as_it_is(
    make_context, notes, tmp_path
):
    """Its programs are those that somebody puts in bin/."""
    context = make_context(a_cluster(controls=1))
    await PrepareHosts().run(context, notes)
    render_files.write_all(context.inputs(), tmp_path / "out")
    root, host = tmp_path / "out/hosts/n1", context.machines.hosts["n1"]
    name = generation_of(root)
    directory = root / kubelet_files.KUBELETS[1:] / name
    links = {path.name: str(path.readlink()) for path in directory.iterdir() if path.is_symlink()}
    assert links == {name: render_node.BINARIES[name] for name in kubelet_files.PROGRAMS}
    for path in directory.iterdir():
        there = f"{kubelet_files.KUBELETS}/{name}/{path.name}"
        if path.is_symlink():
            host.disk.link(there, links[path.name])
        else:
            host.disk.write(there, path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    for program in links.values():
        host.disk.write(program, b"put there by hand", 0o755)
    await host.run([kubelet_files.SCRIPT_PATH, "switch", name])
    assert await PrepareHosts().plan(context) == []


async def test_the_standbys_of_the_first_initial_member_are_in_place(make_context, tmp_path):
    render_files.write_all(make_context(a_cluster(controls=3)).inputs(), tmp_path / "out")
    hosts = tmp_path / "out/hosts"
    assert (hosts / "n1" / places.STANDBY[1:] / "kube-apiserver/current/pod.json").is_file()
    assert not (hosts / "n2" / places.STANDBY[1:] / "kube-apiserver/current").exists()


async def test_what_is_applied_from_the_files_counts_as_applied_by_up(make_context, notes, tmp_path):
    """Also after an edit of the file: then it is somebody's edit, which stands, and no new wanted value of ours."""
    context = make_context()
    kube = FakeKube()
    render_files.write_all(context.inputs(), tmp_path / "out")
    for path in sorted((tmp_path / "out/manifests").glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            await kube.apply(obj, manager="kubectl")
    again = make_context(kube=kube)
    assert await ApplyObjects().plan(again) == []
    [file] = (tmp_path / "out/manifests").glob("*-kube-scheduler.yaml")
    [deployment] = [obj for obj in yaml.safe_load_all(file.read_text()) if obj["kind"] == "Deployment"]
    edited = copy.deepcopy(deployment)
    edited["spec"]["replicas"] = 2
    drift = applied.drift_of(edited)
    assert drift is not None
    assert [str(one.live) for one in drift.drifted] == ["2"]
    found = judge(deployment, edited, take_ownership=False)
    assert found.to_apply is None
    assert [edit.live for edit in found.kept] == ["2"]


# --- whose keys -------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def with_keys(cluster) -> PkiStore:
    store = PkiStore(places.cluster_dir(cluster.name) / "pki")
    store.ensure(certificate_specs(cluster), cluster.certificates, datetime.now(UTC), authorities(cluster))
    return store


async def test_the_keys_of_a_cluster_that_is_known_here_are_used_and_not_replaced(make_context, home, tmp_path):
    context = make_context()
    own = with_keys(context.cluster)
    inputs = await render._inputs_of_file(context, tmp_path / "out", ask_hosts=False, with_pki=True)
    assert {name: inputs.credentials[name] for name in own.files()} == own.files()
    moved = make_context(context.cluster.with_addresses({"n1": "192.0.2.77"}))
    inputs = await render._inputs_of_file(moved, tmp_path / "moved", ask_hosts=False, with_pki=True)
    assert inputs.credentials["ca.crt"] == own.files()["ca.crt"]
    serving = x509.load_pem_x509_certificate(inputs.credentials["apiserver-n1.crt"])
    assert "192.0.2.77" in {str(name.value) for name in alternative_names(serving)}


async def test_hosts_that_are_asked_give_addresses_and_facts(make_context, home, tmp_path):
    context = make_context()
    context.cluster = replace(context.cluster, nodes=tuple(replace(n, address=None) for n in context.cluster.nodes))
    context.connect = lambda _url, _certificate: FakeKube(unhealthy="connection refused")
    inputs = await render._inputs_of_file(context, tmp_path / "out", ask_hosts=True, with_pki=False)
    assert inputs.cluster.nodes[0].address == "192.0.2.11"
    assert inputs.facts["n1"].boot_id
    assert inputs.credentials["ca.key"] == b"<ca.key>\n"


async def test_a_live_cluster_is_rendered_with_its_own_keys_and_addresses(make_context, tmp_path):
    context = make_context(kube=FakeKube())
    context.cluster = replace(context.cluster, nodes=tuple(replace(n, address=None) for n in context.cluster.nodes))
    inputs = await render._live_inputs(context)
    assert inputs.cluster.nodes[0].address == "192.0.2.11"
    assert {name: inputs.credentials[name] for name in context.pki.files()} == context.pki.files()


async def test_the_edits_of_a_live_clusters_control_plane_are_rendered(make_context, tmp_path):
    kube = FakeKube()
    context = make_context(kube=kube)
    kube.put(crds.control_plane_crd())
    plane = crds.control_plane(context.cluster)
    live = kube.put(applied.with_record(plane, plane))
    kube.put({**live, "spec": {**plane["spec"], "componentArguments": {"kube-scheduler": {"v": "7"}}}})
    inputs = await render._live_inputs(context)
    render_files.write_all(inputs, tmp_path / "out", in_file=context.in_file)
    [file] = (tmp_path / "out/manifests").glob("*-kube-scheduler.yaml")
    assert "- --v=7\n" in file.read_text()


async def test_a_cluster_whose_keys_are_not_here_is_not_rendered_as_if_it_were_there(make_context, tmp_path):
    context = make_context(kube=FakeKube(unhealthy="connection refused"))
    context.pki = PkiStore(tmp_path / "none")
    with pytest.raises(UserError, match="addresses or keys of the cluster demo are not known here"):
        await render._live_inputs(context)
