"""What the cluster that is there cannot become is refused before anything is written; only other files are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.backup.decide.written_by import STANDBY_POD
from autarky.control.drift.decide import applied
from autarky.control.upgrade.decide.steps import ORDER
from autarky.control.upgrade.decide.templates import with_tag
from autarky.errors import Problems, UserError
from autarky.model.cluster import CertificateSettings, Cni, ExternalEtcd
from autarky.model.components import COMPONENTS
from autarky.model.versions import Version
from autarky.phases import kept_file
from autarky.phases.check_file import CheckFile
from autarky.phases.hosts import CheckHosts
from autarky.phases.objects import ApplyObjects
from autarky.phases.ownership import FollowControlPlane
from autarky.phases.prepare import PrepareHosts
from autarky.phases.removal import CheckRemoval
from autarky.render.values import pretty_json
from autarky.workflows.up import PHASES
from fakes.clusters import a_cluster
from fakes.kube import FakeKube

NEWER = Version(1, 37, 1)
WITH_A_WORKER = a_cluster(controls=3, workers=1)
PHASE = CheckFile()


def down() -> FakeKube:
    return FakeKube(unhealthy="connection refused")


def marked(context, *, version: str | None = None, cluster: str = "demo") -> None:
    for name, host in context.machines.hosts.items():
        said = {"cluster": cluster, "node": name, "founders": ["n1"], "ca": context.ours.ca}
        said |= {} if version is None else {"version": version}
        host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)


def with_standby(context, name: str, image: object) -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "kube-apiserver", "image": image}]}}
    context.machines.hosts[name].files[STANDBY_POD] = (json.dumps(pod).encode(), 0o600)


def asking_for(context, version: Version) -> None:
    context.cluster = replace(context.cluster, kubernetes_version=version)
    context.file_content = str(version).encode()


def a_worker_says(context, version: str, name: str = "n4") -> None:
    """In its marker, and by all that lies on its disk."""
    host = context.machines.hosts[name]
    said = json.loads(host.files[places.NODE_MARKER][0]) | {"version": version}
    host.files[places.NODE_MARKER] = (json.dumps(said).encode(), 0o644)
    host.kubelet_version = version
    with_standby(context, name, f"registry.k8s.io/kube-apiserver:{version}")


def untouched(context) -> bool:
    kept = context.directory / "cluster.json"
    return not kept.exists() and all(host.log == [] for host in context.machines.hosts.values())


# --- another version -------------------------------------------------------------------------------------------


async def test_another_version_is_refused_by_the_api_with_nothing_written(make_context, notes):
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    context = make_context(kube=kube)
    asking_for(context, NEWER)
    with pytest.raises(UserError, match=r"runs Kubernetes v1\.36\.4, as its ControlPlane object says") as caught:
        await PHASE.plan(context)
    assert str(caught.value.fix).startswith('set kubernetesVersion: "1.36.4" in the file; or upgrade the cluster')
    assert untouched(context)


async def upgraded(kube: FakeKube, version: Version) -> None:
    """By somebody, through the API."""
    status = {"version": str(version)}
    await kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": {"version": str(version)}})
    plane = await kube.get("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    assert plane is not None
    await kube.replace({**plane, "status": status}, subresource="status")


async def test_a_file_that_has_not_changed_follows_an_upgrade_that_was_made_through_the_api(make_context, notes):
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    await upgraded(kube, NEWER)
    context = make_context(kube=kube)
    await CheckHosts().plan(context)
    assert context.cluster.kubernetes_version == NEWER
    assert context.release.kubernetes == NEWER
    assert context.upgrade_from is None
    assert context.payload is None, "the components are of another version"
    await FollowControlPlane().plan(context)
    assert context.in_file is not None
    assert context.in_file.kubernetes_version == Version(1, 36, 4), "else the same file would take the upgrade back"


async def test_up_upgrades_to_a_new_version_in_the_file_and_nothing_else_does(make_context, notes):
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    context = make_context(kube=kube)
    context.upgrades = True
    asking_for(context, NEWER)
    await CheckHosts().plan(context)
    assert (context.upgrade_from, context.cluster.kubernetes_version) == (Version(1, 36, 4), NEWER)


async def test_with_take_ownership_the_file_takes_an_upgrade_back(make_context, notes):
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    await upgraded(kube, NEWER)
    context = make_context(kube=kube)
    context.upgrades = context.take_ownership = True
    await CheckHosts().plan(context)
    assert (context.upgrade_from, context.cluster.kubernetes_version) == (NEWER, Version(1, 36, 4))


def kept_here(context, *versions: Version) -> None:
    """Files with these versions, the last one now."""
    for version in versions:
        spec = {"kubernetesVersion": str(version)[1:], "defaults": 1}
        kept_file.write(context.directory, pretty_json({"spec": spec}))


async def test_a_file_from_before_another_machine_upgraded_the_cluster_does_not_take_that_back(make_context, notes):
    """Its version was never meant as a request: it is the one that this machine has always had."""
    kube = FakeKube()
    await ApplyObjects().run(make_context(replace(a_cluster(), kubernetes_version=NEWER), kube=kube), notes)
    await upgraded(kube, NEWER)
    older = Version(1, 36, 4)

    async def planned(*kept: Version, takes: bool = False) -> Version | None:
        context = make_context(kube=kube)
        context.upgrades, context.take_ownership = True, takes
        kept_file.settle(context.directory)
        kept_here(context, *kept)
        await CheckHosts().plan(context)
        assert context.cluster.kubernetes_version == older
        return context.upgrade_from

    with pytest.raises(UserError, match=r"another machine has changed the cluster to Kubernetes v1\.37\.1") as caught:
        await planned(older)
    assert 'set kubernetesVersion: "1.37.1" in the file' in str(caught.value.fix)
    assert await planned(older, takes=True) == NEWER
    assert await planned(NEWER, older) == NEWER, "this machine knew of it, so that the file asks for the older one"
    await kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": {"version": str(older)}})
    assert await planned(older) == NEWER, "somebody takes it back"


async def deleted_after_an_upgrade(make_context, notes, *stepped: str) -> FakeKube:
    """The ControlPlane object; these components have the newer version, as the operator has set and recorded it."""
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    for name in stepped:
        live = await kube.get("apps/v1", COMPONENTS[name].kind, name, "kube-system")
        assert live is not None
        changed = {**live, "spec": {**live["spec"], "template": with_tag(live["spec"]["template"], name, NEWER)}}
        kube.put(applied.with_record(changed, changed))
    await kube.delete("autarky.dev/v1alpha1", "ControlPlane", "cluster")
    return kube


async def test_up_does_not_take_back_an_upgrade_whose_control_plane_object_was_deleted(make_context, notes):
    """By the markers, which the last `up` has written, the file would be right; and its version would come to all
    components at once."""
    kube = await deleted_after_an_upgrade(make_context, notes, *ORDER)
    context = make_context(kube=kube)
    context.upgrades = True
    marked(context, version="v1.36.4")
    for phase in (CheckHosts(), FollowControlPlane()):
        with pytest.raises(UserError, match=r"no ControlPlane object, and runs Kubernetes v1\.37\.1") as caught:
            await phase.plan(context)
        assert 'run `autarky up` with kubernetesVersion: "1.37.1" in the file' in str(caught.value.fix)
    context = make_context(replace(a_cluster(), kubernetes_version=NEWER), kube=kube)
    context.upgrades = True
    marked(context, version="v1.36.4")
    await CheckHosts().plan(context)
    await FollowControlPlane().plan(context)
    assert (context.cluster.kubernetes_version, context.upgrade_from) == (NEWER, None)
    context = make_context(kube=kube)
    context.known = []
    await CheckHosts().plan(context)
    assert context.cluster.kubernetes_version == NEWER, "other commands go by what runs"


async def test_a_control_plane_object_that_was_deleted_in_the_middle_of_an_upgrade_is_not_made_again(
    make_context, notes
):
    kube = await deleted_after_an_upgrade(make_context, notes, "kube-apiserver", "kube-proxy")
    for version in (Version(1, 36, 4), NEWER):
        context = make_context(replace(a_cluster(), kubernetes_version=version), kube=kube)
        context.upgrades = True
        with pytest.raises(
            UserError, match=r"kube-apiserver is of v1\.37\.1, kube-controller-manager of v1\.36\.4"
        ) as caught:
            await CheckHosts().plan(context)
        command = "kubectl -n kube-system set image deployment/kube-scheduler kube-scheduler="
        assert f"{command}registry.k8s.io/kube-scheduler:v1.37.1`" in str(caught.value.fix)


@pytest.mark.parametrize("upgrades", [True, False], ids=["up", "another command"])
async def test_up_takes_part_in_a_rollback_to_the_version_of_the_file_and_does_not_follow_what_is_left(
    make_context, notes, upgrades
):
    """Followed, the version that is left would be brought to kubelets, over API servers that go back (rule 4)."""
    kube = FakeKube()
    await ApplyObjects().run(make_context(kube=kube), notes)
    await upgraded(kube, NEWER)
    await kube.patch("autarky.dev/v1alpha1", "ControlPlane", "cluster", {"spec": {"version": "v1.36.4"}})
    context = make_context(kube=kube)
    context.upgrades = upgrades
    await CheckHosts().plan(context)
    expected = (NEWER, Version(1, 36, 4)) if upgrades else (None, NEWER)
    assert (context.upgrade_from, context.cluster.kubernetes_version) == expected


async def test_the_file_that_is_kept_here_follows_the_hosts_with_the_api_down(make_context):
    context = make_context(kube=down())
    marked(context, version=str(NEWER))
    context.known = []
    await PHASE.plan(context)
    assert context.cluster.kubernetes_version == NEWER


async def test_another_version_is_refused_by_the_marker_with_the_api_down(make_context):
    context = make_context(kube=down())
    marked(context, version="v1.36.4")
    asking_for(context, NEWER)
    with pytest.raises(UserError, match=r"runs Kubernetes v1\.36\.4, as host n1 says"):
        await PHASE.plan(context)
    assert untouched(context)


async def test_a_marker_of_an_older_release_lets_the_kubelet_on_the_disk_tell(make_context):
    context = make_context(kube=down())
    marked(context)
    context.machines.hosts["n1"].kubelet_version = "v1.36.4"
    asking_for(context, NEWER)
    with pytest.raises(UserError, match=r"runs Kubernetes v1\.36\.4, as host n1 says"):
        await PHASE.plan(context)


async def test_a_kubelet_that_was_switched_before_a_refusal_is_put_back_by_the_right_file(make_context):
    context = make_context(kube=down())
    marked(context)
    context.machines.hosts["n1"].kubelet_version = "v1.37.1"
    with_standby(context, "n1", "registry.k8s.io/kube-apiserver:v1.36.4")
    await PHASE.plan(context)
    asking_for(context, NEWER)
    with pytest.raises(UserError, match=r"runs Kubernetes v1.36.4"):
        await PHASE.plan(context)


@pytest.mark.parametrize("lie", ["v1.36.4", "v1.0.0", "v9.0.0"])
@pytest.mark.parametrize("with_markers", [True, False], ids=["by markers", "by disks"])
async def test_a_worker_does_not_say_what_a_cluster_runs_whose_control_nodes_do(make_context, lie, with_markers):
    """Followed, the refusal would have all hosts prepared for another version than the cluster's."""
    context = make_context(WITH_A_WORKER, kube=down())
    marked(context, version=str(NEWER) if with_markers else None)
    for name in ("n1", "n2", "n3"):
        context.machines.hosts[name].kubelet_version = str(NEWER)
        with_standby(context, name, f"registry.k8s.io/kube-apiserver:{NEWER}")
    a_worker_says(context, lie)
    asking_for(context, NEWER)
    await PHASE.plan(context)
    asking_for(context, Version(1, 36, 4))
    with pytest.raises(UserError, match=r"runs Kubernetes v1\.37\.1, as host n1 says"):
        await PHASE.plan(context)


async def test_what_lies_on_the_disk_of_a_control_node_counts_before_the_marker_of_a_worker(make_context):
    context = make_context(WITH_A_WORKER, kube=down())
    marked(context)
    with_standby(context, "n2", f"registry.k8s.io/kube-apiserver:{NEWER}")
    a_worker_says(context, "v1.36.4")
    asking_for(context, NEWER)
    await PHASE.plan(context)


async def test_where_no_control_node_says_anything_a_worker_does(make_context):
    """A newer kubelet than the API server breaks rule 4 on a worker as well."""
    context = make_context(WITH_A_WORKER, kube=down())
    marked(context, version="v1.36.4")
    for name in ("n1", "n2", "n3"):
        del context.machines.hosts[name]
    asking_for(context, NEWER)
    with pytest.raises(UserError, match=r"runs Kubernetes v1\.36\.4, as host n4 says"):
        await PHASE.plan(context)


@pytest.mark.parametrize("image", [5, None, ["v1.36.4"], {"v1.36.4": ""}, "", "v1.36.4/x"], ids=str)
async def test_a_standby_whose_image_is_none_says_nothing(make_context, image):
    context = make_context(kube=down())
    marked(context)
    with_standby(context, "n1", image)
    asking_for(context, NEWER)
    await PHASE.plan(context)


async def test_a_host_that_was_off_is_asked_when_it_runs(make_context):
    context = make_context(kube=down())
    host = context.machines.hosts.pop("n1")
    asking_for(context, NEWER)
    await PHASE.plan(context)
    context.machines.hosts["n1"] = host
    marked(context, version="v1.36.4")
    with pytest.raises(UserError, match="as host n1 says"):
        await CheckHosts().plan(context)


async def test_the_marker_that_is_written_says_the_version(make_context, notes):
    context = make_context()
    await PrepareHosts().run(context, notes)
    assert json.loads(context.machines.hosts["n1"].files[places.NODE_MARKER][0])["version"] == "v1.36.4"
    await PHASE.plan(context)


async def test_a_node_is_not_removed_by_a_file_of_another_version(make_context, notes):
    context = make_context(a_cluster(controls=3), kube=down())
    marked(context, version="v1.36.4")
    asking_for(context, NEWER)
    with pytest.raises(UserError, match=r"the cluster runs Kubernetes .*, and the file says"):
        await CheckRemoval(context.cluster.node("n2"), dead=False).plan(context)


async def test_new_hosts_take_any_version(make_context):
    context = make_context(kube=down())
    asking_for(context, NEWER)
    await PHASE.plan(context)


# --- what else is refused before the first write -----------------------------------------------------------------


def test_the_refusals_come_before_all_that_writes():
    names = [phase.name for phase in PHASES]
    assert names[0] == "check-file"
    assert names.index("forget-replaced") < names.index("prepare-hosts")
    writers = ("issue-certificates", "write-kubeconfig", "forget-replaced", "prepare-hosts")
    assert names.index("check-hosts") < min(names.index(name) for name in writers)


async def test_hosts_of_another_cluster_are_refused_with_nothing_written(make_context):
    context = make_context(kube=down())
    marked(context, cluster="another")
    context.file_content = b"{}"
    with pytest.raises(Problems, match="belongs to the cluster another"):
        await PHASE.plan(context)
    assert untouched(context)


async def test_a_ca_directory_that_lacks_the_key_is_refused_with_nothing_written(make_context, tmp_path):
    (tmp_path / "given").mkdir()
    settings = CertificateSettings(ca_directory=str(tmp_path / "given"))
    context = make_context(kube=down())
    context.cluster = replace(context.cluster, certificates=settings)
    with pytest.raises(UserError, match="cannot be found"):
        await PHASE.plan(context)
    assert untouched(context)


async def test_certificates_of_an_external_etcd_that_cannot_be_read_are_refused_with_nothing_written(make_context):
    missing = ExternalEtcd(("https://192.0.2.9:2379",), "/nowhere/ca.crt", "/nowhere/c.crt", "/nowhere/c.key")
    context = make_context(kube=down())
    context.cluster = replace(context.cluster, external_etcd=missing)
    with pytest.raises(UserError, match=r"cannot read /nowhere/ca\.crt"):
        await PHASE.plan(context)
    assert untouched(context)


# --- the file that is kept -----------------------------------------------------------------------------------------


async def test_a_file_that_is_not_refused_is_kept_once(make_context, notes):
    context = make_context(kube=down())
    context.file_content = b"as it is"
    [change] = await PHASE.plan(context)
    assert change.sentence == f"keep the cluster file as {context.directory / 'cluster.json'}"
    await PHASE.run(context, notes)
    assert Path(context.directory / "cluster.json").read_bytes() == b"as it is"
    assert await PHASE.plan(context) == []


async def test_a_file_is_kept_over_another_only_when_all_hosts_were_asked(make_context, notes):
    context = make_context(kube=down())
    (context.directory / "cluster.json").write_bytes(b"as it was")
    context.file_content = b"as it is"
    host = context.machines.hosts.pop("n1")
    assert await PHASE.plan(context) == []
    context.machines.hosts["n1"] = host
    assert [change for change in await CheckHosts().plan(context) if "keep the cluster file" in str(change)]
    await CheckHosts().run(context, notes)
    assert Path(context.directory / "cluster.json").read_bytes() == b"as it is"


@pytest.mark.parametrize(
    ("kept", "wanted", "refused"),
    [
        ({}, Cni.NONE, True),
        ({"network": {"podCIDR": "10.244.0.0/16"}}, Cni.NONE, True),
        ({"network": {"cni": "none"}}, Cni.FLANNEL, True),
        ({"network": {"cni": "none"}}, Cni.NONE, False),
        ({}, Cni.FLANNEL, False),
        ("odd", Cni.NONE, False),
        ({"network": {"cni": 5}}, Cni.NONE, False),
    ],
)
async def test_who_gives_pods_their_network_stays(make_context, kept, wanted, refused):
    """Files of releases that knew no choice meant flannel."""
    context = with_network(make_context, kept, wanted)
    marked(context)
    if not refused:
        await PHASE.plan(context)
        return
    with pytest.raises(UserError, match=r"no cluster can change it") as error:
        await PHASE.plan(context)
    assert error.value.where == "spec.network.cni"


def with_network(make_context, kept, wanted: Cni):
    """A file that wants this one, where another was kept."""
    context = make_context(a_cluster())
    context.cluster = replace(context.cluster, network=replace(context.cluster.network, cni=wanted))
    context.directory.mkdir(parents=True, exist_ok=True)
    (context.directory / "cluster.json").write_text(json.dumps({"metadata": {"name": "demo"}, "spec": kept}))
    return context


async def test_before_a_host_is_the_clusters_another_network_may_be_chosen(make_context):
    """The first `up` has failed in its preflight checks, say."""
    await PHASE.plan(with_network(make_context, {}, Cni.NONE))


@pytest.mark.parametrize("kept", [{"network": {"cni": "none"}}, {}])
async def test_which_network_a_cluster_has_is_said_by_its_record_before_what_is_kept_here(make_context, kept):
    context = with_network(make_context, kept, Cni.NONE)
    marked(context)
    record = {"file": {"metadata": {"name": "demo"}, "spec": {}}, "nodes": {}, "number": 7}
    context.machines.hosts["n1"].files[places.CLUSTER_RECORD] = (json.dumps(record).encode(), 0o600)
    with pytest.raises(UserError, match=r"the cluster has network\.cni: flannel"):
        await PHASE.plan(context)


# --- where etcd is ----------------------------------------------------------------------------------------------------

OUTSIDE = {"etcd": {"external": {"lab": "store"}}}


@pytest.mark.parametrize(
    ("kept", "outside", "refused"),
    [
        (OUTSIDE, False, "etcd is outside of the cluster"),
        ({}, True, "etcd is inside of the cluster"),
        ({"etcd": {"version": "3.6.16"}}, True, "etcd is inside of the cluster"),
        (OUTSIDE, True, None),
        ({}, False, None),
        ({"etcd": None}, False, None),
        ("odd", False, None),
    ],
)
async def test_up_does_not_make_another_etcd_where_the_file_has_it_elsewhere(make_context, kept, outside, refused):
    context = with_etcd(make_context, kept, outside=outside)
    marked(context)
    if refused is None:
        await PHASE.plan(context)
        return
    with pytest.raises(UserError, match=refused) as error:
        await PHASE.plan(context)
    assert error.value.where == "spec.etcd.external"
    assert "autarky etcd migrate -f FILE" in str(error.value)
    context.moves_etcd = True
    await PHASE.plan(context)


async def test_a_move_that_was_begun_is_not_given_up_by_up_with_the_former_file(make_context):
    """A control node may be a member already. Only the same command goes back."""
    context = with_etcd(make_context, {}, outside=True)
    before = [{"metadata": {"name": "demo"}, "spec": OUTSIDE}]
    (context.directory / "cluster.before.json").write_text(json.dumps(before))
    marked(context)
    with pytest.raises(UserError, match="or on its way from there"):
        await PHASE.plan(context)


async def test_a_record_of_another_machine_says_where_etcd_is_as_well(make_context):
    """It was moved from there, and the file here is older."""
    context = with_etcd(make_context, OUTSIDE, outside=True)
    marked(context)
    record = {"file": {"metadata": {"name": "demo"}, "spec": {}}, "nodes": {}, "number": 7}
    context.machines.hosts["n1"].files[places.CLUSTER_RECORD] = (json.dumps(record).encode(), 0o600)
    with pytest.raises(UserError, match="etcd is inside of the cluster"):
        await PHASE.plan(context)


def with_etcd(make_context, kept, *, outside: bool):
    context = make_context(a_cluster())
    external = ExternalEtcd(("https://192.0.2.99:2379",), "", "", "", "store", "192.0.2.99") if outside else None
    context.cluster = replace(context.cluster, external_etcd=external)
    context.directory.mkdir(parents=True, exist_ok=True)
    (context.directory / "cluster.json").write_text(json.dumps({"metadata": {"name": "demo"}, "spec": kept}))
    return context


@pytest.mark.parametrize(("silent", "kept"), [("n4", True), ("n1", False)])
async def test_no_silent_worker_keeps_a_move_of_etcd_from_being_written_down(make_context, notes, silent, kept):
    """The move would go on all the same, and every later command would take it for one that was given up."""
    context = make_context(WITH_A_WORKER)
    context.file_content = b"{}\n"
    (context.directory / "cluster.json").write_bytes(b'{"spec": {}}\n')
    context.absent = {silent: "no answer"}
    assert not context.all_seen
    context.moves_etcd = True
    assert context.all_seen is kept
    await PHASE.run(context, notes)
    assert (context.directory / "cluster.json").read_bytes() == (b"{}\n" if kept else b'{"spec": {}}\n')
