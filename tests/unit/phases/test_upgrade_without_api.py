"""Going back with the API down, on hosts in memory: what is looked at, what is refused with nothing written, and that a
command that is cut anywhere goes on."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from autarky import places
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests.hosted import HOSTED as HOSTED_FILE
from autarky.control.slots import manifests as standby
from autarky.control.slots.manifests import BOOT_FILE
from autarky.control.upgrade.decide.reported import IMAGES_PLACED, IMAGES_PLACED_UNTIL, placed
from autarky.engine.phase import Change, Warn
from autarky.errors import Refused, Unreachable, UserError
from autarky.model.cluster import Cluster, Level
from autarky.model.components import API_SERVER, WITH_STANDBY
from autarky.model.versions import Version
from autarky.phases.context import Context
from autarky.phases.objects import ApplyObjects
from autarky.phases.prepare import CTR
from autarky.phases.upgrade_looking import DOWN_SECONDS, PLANE_KEY, WORKERS_SECONDS
from autarky.phases.upgrade_offline import GoingBack, SwitchStandbys, phases, rows
from autarky.ports import Completed
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube
from unit.phases.conftest import Notes

PLANE = ("autarky.dev/v1alpha1", "ControlPlane", "cluster")
OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
CREATED = {"metadata": {"creationTimestamp": "2026-11-01T08:00:00Z"}}
Object = dict[str, Any]
pytestmark = pytest.mark.looptime


@dataclass(slots=True)
class Upgraded(FakeHost):
    """A control node after an upgrade. etcd: what it has of the ControlPlane, None where there is no quorum.
    containers: lines of `ctr containers ls`. hangs: its kubelet's program, until the command is given up."""

    etcd: Object | None = None
    containers: list[str] = field(default_factory=list)
    hangs: bool = False

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        if self.hangs and argv[-1] == "--version":
            await asyncio.sleep(timeout)
            raise Unreachable(f"{self.name} does not answer")
        if argv[0].endswith("/etcdctl"):
            return self._etcdctl(list(argv))
        if tuple(argv[: len(CTR)]) == CTR and argv[len(CTR)] == "containers":
            listed = [line for line in self.containers if "-q" not in argv or "standby" in line]
            head = [] if "-q" in argv else ["CONTAINER IMAGE RUNTIME"]
            return Completed(0, "\n".join([*head, *listed]).encode(), "")
        return await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)

    def _etcdctl(self, argv: list[str]) -> Completed:
        if self.etcd is None:
            return Completed(1, b"", "Error: context deadline exceeded\n")
        found: Object = {"header": {"revision": 7}}
        if PLANE_KEY in argv:
            found["kvs"] = [{"value": base64.b64encode(json.dumps(self.etcd).encode()).decode()}]
        return Completed(0, json.dumps(found).encode(), "")

    def has(
        self, component: str, revision: str, version: Version, *flags: str, keys: str = "k", image: bool = True
    ) -> None:
        """A complete revision of its standby."""
        name = f"registry.k8s.io/{component}:{version}"
        container = {"name": component, "image": name, "command": [component, *flags]}
        pod = json.dumps({"kind": "Pod", "spec": {"containers": [container]}}, indent=2) + "\n"
        root = f"{places.STANDBY}/{component}/{revision}"
        self.disk.write(f"{root}/pod.json", pod.encode(), 0o600)
        self.disk.write(f"{root}/files/secrets/sa.key", keys.encode(), 0o600)
        self.disk.write(f"{root}/files/config/authentication.json", revision.encode(), 0o600)
        if image:
            self.images[name] = f"sha256:{component}{version}"

    def current(self, component: str = API_SERVER) -> str:
        return self.links[f"{places.STANDBY}/{component}/current"]


class Served(FakeKube):
    """An API that is there while a host has the former API server in its place."""

    hosts: dict[str, Upgraded] | None = None

    async def healthy(self, path: str = "/readyz", *, timeout: float = 5.0) -> str | None:
        if self.hosts is None:
            return None
        there = [host.in_place.get(API_SERVER) for host in self.hosts.values() if host.activations.get(API_SERVER)]
        return None if "old" in there else "connection refused"


class Late(FakeKube):
    """Answers when it is asked for the third time."""

    asked = 0

    async def healthy(self, path: str = "/readyz", *, timeout: float = 5.0) -> str | None:
        self.asked += 1
        return None if self.asked > 2 else "connection refused"


@dataclass
class Scene:
    context: Callable[[], Context]
    hosts: dict[str, Upgraded]
    kube: Served
    notes: Notes

    async def plan(self, **options: Any) -> list[Change | Warn]:
        return list(await SwitchStandbys(GoingBack(**options)).plan(self.context()))

    async def go_back(self) -> GoingBack:
        """As the command does it."""
        going, context = GoingBack(), self.context()
        for phase in phases(going):
            found = await phase.plan(context)
            if any(isinstance(one, Change) for one in found):
                await phase.run(context, self.notes)
        return going

    async def asked(self) -> str:
        plane = await self.kube.get(*PLANE)
        assert plane is not None
        return str(plane["spec"]["version"])

    def written(self) -> list[str]:
        return [line for host in self.hosts.values() for line in host.log]


@pytest.fixture
def scenes(make_context, notes) -> Callable[..., Any]:
    async def make(cluster: Cluster | None = None) -> Scene:
        cluster = cluster or a_cluster()
        kube = Served()
        await ApplyObjects().run(make_context(cluster, kube=kube), notes)
        plane = await kube.get(*PLANE)
        assert plane is not None
        annotations = {**plane["metadata"].get("annotations", {}), **placed(NEW, [CREATED])}
        meta = {**plane["metadata"], "annotations": annotations}
        await kube.replace({**plane, "metadata": meta, "spec": {**plane["spec"], "version": str(NEW)}})
        said = {**plane, "spec": {"version": str(NEW)}, "status": {"version": str(NEW), "formerVersion": str(OLD)}}
        hosts = {name: Upgraded(name, facts, etcd=said) for name, facts in facts_of(cluster).items()}
        kube.hosts = hosts
        base = make_context(cluster)
        for node in cluster.nodes:
            host = hosts[node.name]
            marker = {"cluster": "demo", "node": node.name, "founders": ["n1"]}
            host.files[places.NODE_MARKER] = (json.dumps(marker).encode(), 0o644)
            host.files[f"{places.PKI}/ca.crt"] = (base.pki.files()["ca.crt"], 0o644)
            for component in WITH_STANDBY if node.control_plane else ():
                for name, version in (("old", OLD), ("new", NEW)):
                    host.has(component, name, version)
                host.disk.link(f"{places.STANDBY}/{component}/current", "new")
                host.disk.link(f"{places.STANDBY}/{component}/previous", "old")
            if node.control_plane:
                host.activations[API_SERVER], host.in_place[API_SERVER] = ["0badcafe"], "new"
        return Scene(lambda: make_context(cluster, kube=kube, hosts=hosts), hosts, kube, notes)

    return make


async def test_the_former_api_server_serves_and_the_version_is_asked_for(scenes) -> None:
    scene: Scene = await scenes()
    going = await scene.go_back()
    assert going.to == OLD
    host = scene.hosts["n1"]
    assert {host.current(component) for component in WITH_STANDBY} == {"old"}
    assert host.in_place == dict.fromkeys(WITH_STANDBY, "old")
    server = [f"switch {API_SERVER} old", f"renew {API_SERVER}"]
    level_3 = [one for one in WITH_STANDBY if one != API_SERVER]
    assert host.log == [*(f"switch {one} old" for one in level_3), *server, *(f"activate {one}" for one in level_3)]
    assert await scene.asked() == str(OLD)
    plane = await scene.kube.get(*PLANE)
    assert plane is not None
    assert not {IMAGES_PLACED, IMAGES_PLACED_UNTIL} & plane["metadata"]["annotations"].keys()


async def test_a_second_run_finds_the_api_and_changes_nothing(scenes) -> None:
    scene: Scene = await scenes()
    await scene.go_back()
    before = scene.written()
    with pytest.raises(UserError, match="the API answers"):
        await scene.go_back()
    assert scene.written() == before


@pytest.mark.parametrize("cut", range(4))
async def test_cut_before_any_act_it_goes_on(scenes, cut: int) -> None:
    scene: Scene = await scenes()
    host = scene.hosts["n1"]
    host.fail_at = cut
    with pytest.raises(Unreachable):
        await scene.go_back()
    assert await scene.asked() == str(NEW)
    host.fail_at = None
    await scene.go_back()
    assert host.in_place[API_SERVER] == "old"
    assert await scene.asked() == str(OLD)


async def test_cut_while_it_waits_for_the_api_it_waits_again(scenes) -> None:
    scene: Scene = await scenes()
    host = scene.hosts["n1"]
    await scene.go_back()
    host.has(API_SERVER, "starting", OLD)
    host.in_place[API_SERVER] = host.links[f"{places.STANDBY}/{API_SERVER}/current"] = "starting"
    assert [one for one in await scene.plan() if isinstance(one, Change)] == []


async def test_of_three_those_that_answer_go_back_and_the_others_are_named(scenes) -> None:
    scene: Scene = await scenes(a_cluster(controls=3))
    del scene.hosts["n3"].links[f"{places.STANDBY}/{API_SERVER}/previous"]
    scene.hosts["n3"].images.pop(f"registry.k8s.io/{API_SERVER}:{OLD}")
    off = scene.hosts.pop("n2")
    found = await scene.plan()
    said = [one.sentence for one in found if isinstance(one, Warn)]
    assert any("n3 stays as it is: the node lacks registry.k8s.io/kube-apiserver:v1.36.4" in one for one in said)
    assert any("n2 cannot be looked at, and goes back when it is there" in one for one in said)
    await scene.go_back()
    assert (scene.hosts["n1"].current(), scene.hosts["n3"].current(), off.current()) == ("old", "new", "new")


async def test_a_host_that_fails_does_not_keep_the_others_from_serving(scenes) -> None:
    scene: Scene = await scenes(a_cluster(controls=3))
    scene.hosts["n1"].fail_at = 0
    await scene.go_back()
    assert [host.current() for host in scene.hosts.values()] == ["new", "old", "old"]
    assert any("n1 stays as it is" in note for note in scene.notes.notes)


async def test_one_standby_of_level_3_is_enough_and_a_host_that_fails_is_passed_over(scenes) -> None:
    scene: Scene = await scenes(a_cluster(controls=3))
    scene.hosts["n1"].fail_at = 4  # all four acts before it are done
    await scene.go_back()
    active = [sorted(one for one, there in host.activations.items() if there) for host in scene.hosts.values()]
    level_3 = sorted(one for one in WITH_STANDBY if one != API_SERVER)
    assert active == [[API_SERVER], sorted([API_SERVER, *level_3]), [API_SERVER]]


async def test_what_each_node_has_is_shown(scenes) -> None:
    scene: Scene = await scenes()
    host = scene.hosts["n1"]
    host.images["sha256:1234"] = f"sha256:{API_SERVER}{NEW}"
    host.containers = ["c1 sha256:1234 runc", f"c2-standby registry.k8s.io/{API_SERVER}:{NEW} runc"]
    host.tasks = {"c1": "STOPPED", "c2-standby": "STOPPED"}
    going = GoingBack()
    await SwitchStandbys(going).plan(scene.context())
    assert rows(going)[1] == ("n1", f"{NEW}, does not run", f"{NEW} (new), active, does not run", f"{OLD} (old)")


# --- refused, with nothing written -----------------------------------------------------------------------


def _other_place(host: Upgraded) -> None:
    host.has(API_SERVER, "old", OLD, "--etcd-servers=https://192.0.2.99:2379")


def _other_keys(host: Upgraded) -> None:
    host.has(API_SERVER, "old", OLD, keys="another")


def _no_former(host: Upgraded) -> None:
    del host.files[f"{places.STANDBY}/{API_SERVER}/old/pod.json"]


def _no_images(host: Upgraded) -> None:
    host.images.clear()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_other_place, "it has another --etcd-servers than the current one"),
        (_other_keys, "its sa.key is not the one of today"),
        (_no_former, r"it has no v1\.36\.4 on its disk, only v1\.37\.1"),
        (_no_images, "the node lacks registry.k8s.io/kube-apiserver"),
    ],
)
async def test_a_former_revision_that_would_not_serve_is_not_gone_back_to(scenes, spoil: Any, why: str) -> None:
    scene: Scene = await scenes()
    spoil(scene.hosts["n1"])
    with pytest.raises(UserError, match=why):
        await scene.plan()
    assert scene.written() == []


async def test_a_client_certificate_that_the_owner_of_an_etcd_outside_has_renewed_is_no_reason(scenes) -> None:
    scene: Scene = await scenes()
    for revision in ("old", "new"):
        path = f"{places.STANDBY}/{API_SERVER}/{revision}/files/secrets/etcd-client.key"
        scene.hosts["n1"].disk.write(path, revision.encode(), 0o600)
    assert any("make v1.36.4 (revision old)" in one.sentence for one in await scene.plan())


async def test_a_current_revision_that_cannot_be_understood_is_as_none(scenes) -> None:
    scene: Scene = await scenes()
    path = f"{places.STANDBY}/{API_SERVER}/new/pod.json"
    scene.hosts["n1"].disk.write(path, b'{"kind": "Pod", "spec": 7}\n', 0o600)
    assert any("make v1.36.4 (revision old)" in one.sentence for one in await scene.plan())


async def test_without_a_quorum_of_etcd_the_command_for_that_is_named(scenes) -> None:
    scene: Scene = await scenes()
    scene.hosts["n1"].etcd = None
    with pytest.raises(UserError, match="autarky etcd recover-quorum"):
        await scene.plan()


async def test_what_etcd_has_encrypted_is_not_understood_and_the_disks_say_it(scenes) -> None:
    scene: Scene = await scenes()
    scene.hosts["n1"].etcd = {"spec": "k8s:enc:aescbc"}
    assert any("make v1.36.4 (revision old)" in one.sentence for one in await scene.plan())


async def test_a_kubelet_that_would_be_newer_is_refused_with_the_option_that_accepts_it(scenes) -> None:
    scene: Scene = await scenes()
    scene.hosts["n1"].kubelet_version = str(NEW)
    with pytest.raises(Refused, match="rule 4"):
        await scene.plan()
    said = [one.sentence for one in await scene.plan(accepts_kubelets=True) if isinstance(one, Warn)]
    newer = "the kubelet of n1 (v1.37.1) is newer than the API servers will be: as soon as an API answers, kubelets"
    assert any(one.startswith(newer) for one in said)


HOSTED = {
    "boot": "b1",
    "pod": "0f9b7c1e-2d1a-4c56-9a51-3a1f4b7f8c11",
    "try": 1,
    "version": NEW,
    "state": "proven",
    "uptime": 1000,
}
"""What the supervisor of a hosted kubelet says (level 0)."""


@pytest.mark.parametrize(
    ("said", "boot", "uptime", "counts"),
    [
        (HOSTED, "b1", "1010.5 7.0", True),
        ({**HOSTED, "state": "proving"}, "b1", "1010.5 7.0", True),
        (HOSTED, None, None, True),
        (HOSTED, "b1", "odd", True),
        ({**HOSTED, "state": "waiting"}, "b1", "1010.5 7.0", False),
        ({**HOSTED, "state": "away"}, "b1", "1010.5 7.0", False),
        (HOSTED, "b2", "1010.5 7.0", False),
        (HOSTED, "b1", "1900.5 7.0", False),
        ({**HOSTED, "version": OLD}, "b1", "1010.5 7.0", False),
        ({**HOSTED, "version": "new"}, "b1", "1010.5 7.0", False),
    ],
)
async def test_so_is_a_hosted_one_that_is_in_force(
    scenes, said: Object, boot: str | None, uptime: str | None, counts: bool
) -> None:
    """What cannot be told to be of another boot, or of a supervisor that has ended, counts."""
    scene: Scene = await scenes()
    disk = scene.hosts["n1"].disk
    disk.write(HOSTED_FILE, files.written(said), 0o644)
    if boot is not None:
        disk.write(BOOT_FILE, f"{boot} at-noon\n".encode(), 0o644)
    if uptime is not None:
        disk.write("/proc/uptime", uptime.encode(), 0o444)
    if counts:
        with pytest.raises(Refused, match=r"the kubelet of n1 \(v1.37.1\) would be newer than its API server v1.36.4"):
            await scene.plan()
    else:
        await scene.plan()


async def test_levels_that_are_not_hosted_are_refused(scenes) -> None:
    scene: Scene = await scenes(a_cluster(Level.CONTROLLERS))
    with pytest.raises(UserError, match="are not hosted"):
        await scene.plan()


async def test_an_api_server_that_is_ready_beside_the_load_balancers_is_left_alone(scenes) -> None:
    """Only the load balancers' port is dead."""
    scene: Scene = await scenes()
    context = scene.context()
    ready, dead = FakeKube(), scene.kube
    context.connect = lambda urls, _: ready if urls[0].endswith(":7443") else dead
    with pytest.raises(UserError, match=r"ready, but not through the load balancers: n1 \(port 7443\)"):
        await SwitchStandbys(GoingBack()).plan(context)


async def test_a_blip_of_the_api_is_no_reason(scenes) -> None:
    scene: Scene = await scenes()
    context = scene.context()
    kube, dead = Late(), scene.kube
    context.connect = lambda urls, _: kube if urls[0].endswith(":6443") else dead
    with pytest.raises(UserError, match="the API answers"):
        await SwitchStandbys(GoingBack()).plan(context)


async def test_an_api_that_answers_after_all_was_looked_at_is_left_alone(scenes) -> None:
    scene: Scene = await scenes()
    phase, context = SwitchStandbys(GoingBack()), scene.context()
    assert any(isinstance(one, Change) for one in await phase.plan(context))
    scene.kube.hosts = None  # it serves
    with pytest.raises(UserError, match="the API answers"):
        await phase.run(context, scene.notes)
    assert scene.written() == []


async def test_rule_2_workers_do_not_choose_how_old_it_is_that_nothing_answers(scenes, monkeypatch) -> None:
    scene: Scene = await scenes(a_cluster(workers=25))
    for name, host in scene.hosts.items():
        host.hangs = name != "n1"
    clock = asyncio.get_running_loop().time
    asked, began = list[float](), clock()
    healthy = scene.kube.healthy

    async def noted(*arguments: Any, **options: Any) -> str | None:
        asked.append(clock())
        return await healthy(*arguments, **options)

    monkeypatch.setattr(scene.kube, "healthy", noted)
    assert any(isinstance(one, Change) for one in await scene.plan())
    assert clock() - began < DOWN_SECONDS + WORKERS_SECONDS + 2
    assert clock() - asked[-1] < 1


async def test_a_worker_with_a_newer_kubelet_is_named_beside_one_that_does_not_answer(scenes) -> None:
    scene: Scene = await scenes(a_cluster(workers=2))
    first, second = (host for name, host in scene.hosts.items() if name != "n1")
    first.hangs, second.kubelet_version = True, str(NEW)
    said = [one.sentence for one in await scene.plan() if isinstance(one, Warn)]
    assert [one.split(" is newer")[0] for one in said if "newer" in one] == [f"the kubelet of {second.name} ({NEW})"]


def test_the_standbys_program_has_the_verbs_that_are_used() -> None:
    text = standby.script().content.decode()
    for verb in ("switch", "renew", "activate"):
        assert f"standby {verb} COMPONENT" in text


async def test_after_a_soak_the_revision_that_emulated_the_former_minor_takes_its_place(scenes) -> None:
    """Two revisions of a standby are kept: that of the former version itself is gone."""
    scene: Scene = await scenes()
    host = scene.hosts["n1"]
    emulating = f"--emulated-version={OLD.major}.{OLD.minor}"
    for component in WITH_STANDBY:
        host.has(component, "old", NEW, emulating)  # under the name that the scene knows as serving
        host.images.pop(f"registry.k8s.io/{component}:{OLD}", None)
    await scene.go_back()
    assert {host.current(component) for component in WITH_STANDBY} == {"old"}


async def test_one_that_emulates_another_minor_does_not(scenes) -> None:
    scene: Scene = await scenes()
    host = scene.hosts["n1"]
    for component in WITH_STANDBY:
        host.has(component, "old", NEW, f"--emulated-version={OLD.major}.{OLD.minor - 1}")
        host.images.pop(f"registry.k8s.io/{component}:{OLD}", None)
    with pytest.raises(UserError, match=r"it has no v1\.36\.4 on its disk"):
        await scene.go_back()
    assert {host.current(component) for component in WITH_STANDBY} == {"new"}
