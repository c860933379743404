"""Which etcd the members of a new one are: it may be another than that of the release, by an edit of the ControlPlane
or by a file from before. An older one does not start from the data of a newer one, and is let into no etcd of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from autarky.control.etcd.decide.template import Kept, Reports, decide
from autarky.control.etcd.decide.template import request as request_of
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.phase import Warn
from autarky.errors import Refused, TimedOut
from autarky.phases.recovery.judging import JudgeVersions
from autarky.phases.recovery.letting import let_start
from autarky.phases.recovery.starting import StartEtcd
from autarky.phases.recovery.state import FromMember, FromSnapshot, Source, began_in
from autarky.phases.recovery.versions import version_on
from autarky.places import ETCD_FENCE, ETCD_FENCED, MANIFESTS
from autarky.ports import Object
from autarky.render.crds import API_VERSION
from fakes.kube import FakeKube
from fakes.recovering_host import RecoveringHost
from unit.phases.recovery.scenes import Scene, all_is_well, not_hosted
from unit.phases.recovery.test_taken_back import with_program

pytestmark = pytest.mark.looptime
OWN, NEWER = "registry.k8s.io/etcd:3.6.16-0", "registry.k8s.io/etcd:3.7.3-0"


def pods_of(host: RecoveringHost) -> dict[str, Any]:
    found = {path: content for path, (content, _) in host.files.items() if path.startswith(f"{MANIFESTS}/etcd-")}
    return {path: json.loads(content) for path, content in found.items()}


def runs(scene: Scene, *names: str, image: str = NEWER) -> None:
    """The members of these nodes have been moved to it."""
    for name in names:
        for path, pod in pods_of(scene.hosts[name]).items():
            pod["spec"]["containers"][0]["image"] = image
            scene.hosts[name].files[path] = (json.dumps(pod).encode(), 0o600)


def images(scene: Scene) -> dict[str, str]:
    found = {name: list(pods_of(host).values()) for name, host in scene.hosts.items()}
    return {name: pod["spec"]["containers"][0]["image"] for name, [pod] in found.items()}


@pytest.mark.parametrize("image", [OWN, NEWER])
async def test_members_that_no_agent_looks_after_come_back_with_the_version_that_the_new_etcd_has(
    scene: Scene, snapshot: FromSnapshot, image: str
) -> None:
    await not_hosted(scene)
    runs(scene, "n1", "n2", "n3", image=image)
    await scene.run(snapshot)
    all_is_well(scene)
    assert images(scene) == dict.fromkeys(("n1", "n2", "n3"), image)


async def test_so_do_members_that_are_left(two_left: Scene) -> None:
    """n2 has the newest data. Where a change was interrupted, the others may run another one."""
    await not_hosted(two_left)
    runs(two_left, "n2")
    await two_left.run(FromMember())
    assert {name: image for name, image in images(two_left).items() if name != "n3"} == {"n1": NEWER, "n2": NEWER}


async def test_a_seat_that_had_no_member_begins_with_the_newest_that_the_others_had(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    await not_hosted(scene)
    runs(scene, "n3")
    scene.hosts["n1"].take_away_pods()
    await scene.run(replace(snapshot, node="n1"))
    assert images(scene)["n1"] == NEWER


# --- where the hosts have programs of another minor -------------------------------------------------------------------


def brought(scene: Scene, *versions: str, image: bool = True) -> None:
    """As by `payload etcd push`, one after the other: the links lead to the last one."""
    for host in scene.hosts.values():
        for version in versions:
            with_program(host, version, "etcd", "etcdutl")
            if image:
                host.images[f"registry.k8s.io/etcd:{version}-0"] = "sha256:1"


def made_with(scene: Scene) -> str:
    """The etcd that has led the data of the new one alone; no older minor starts from that."""
    [cluster] = scene.etcd.serving()
    return str(scene.etcd.values[cluster]["etcd"])


@pytest.fixture(params=["a snapshot", "an old snapshot", "the members"])
def source(scene: Scene, snapshot: FromSnapshot, request: pytest.FixtureRequest) -> Source:
    """What is recovered: a backup, or the last of three members."""
    if request.param == "the members":
        scene.lost_quorum()
        return FromMember()
    return replace(snapshot, etcd="3.6.20" if request.param == "a snapshot" else "3.5.30")


async def test_programs_of_a_newer_minor_do_not_make_the_data_of_members_that_have_not_got_it(
    scene: Scene, source: Source
) -> None:
    """They were brought, or a change to them went back. What has led the data alone leaves its own minor there."""
    brought(scene, "3.6.12", "3.6.16", "3.7.3")
    await not_hosted(scene)
    assert not [said for said in await scene.plan(source) if "3.7.3" in said]
    await scene.run(source)
    assert made_with(scene) == "3.6.16"
    assert {images(scene)[name] for name, host in scene.hosts.items() if not host.off} == {OWN}


async def test_where_the_host_has_only_those_the_new_etcd_begins_with_their_version(
    scene: Scene, source: Source
) -> None:
    brought(scene, "3.7.3")
    await not_hosted(scene)
    assert await judged(scene, source) == [
        "etcd on n1 was 3.6.16, and the new one is 3.7.3: n1 has no programs of 3.6",
    ]
    await scene.run(source)
    assert made_with(scene) == "3.7.3"
    assert {images(scene)[name] for name, host in scene.hosts.items() if not host.off} == {NEWER}


async def judged(scene: Scene, source: Source) -> list[str]:
    recovery, context = await scene.until(source, JudgeVersions)
    return [one.sentence for one in await JudgeVersions(recovery).plan(context) if isinstance(one, Warn)]


async def test_and_is_refused_before_anything_is_touched_where_their_image_is_not_there(
    scene: Scene, source: Source
) -> None:
    brought(scene, "3.7.3", image=False)
    with pytest.raises(Refused, match=r"3\.7\.3-0 is not on n1: .* n1 has no programs of 3\.6") as refused:
        await scene.run(source)
    assert "autarky payload etcd push 3.7.3" in str(refused.value)
    assert scene.etcd.acts == []


async def test_half_of_what_makes_data_is_not_used(scene: Scene, snapshot: FromSnapshot) -> None:
    for host in scene.hosts.values():
        with_program(host, "3.6.16")
    brought(scene, "3.7.3")
    await scene.run(snapshot)
    assert made_with(scene) == "3.7.3"


@pytest.mark.parametrize("image", [True, False])
async def test_the_data_of_a_newer_minor_is_not_given_to_the_seats_older_etcd(
    scene: Scene, snapshot: FromSnapshot, image: bool
) -> None:
    """The hosts have a program that reads it, or it would be refused."""
    await not_hosted(scene)
    brought(scene, "3.6.16")
    brought(scene, "3.7.3", image=image)
    written = replace(snapshot, etcd="3.7.1")
    if not image:
        with pytest.raises(Refused, match=r"the data is of 3\.7\.1"):
            await scene.run(written)
        assert scene.etcd.acts == []
        return
    assert await judged(scene, written) == ["etcd on n1 was 3.6.16, and the new one is 3.7.3: the data is of 3.7.1"]
    await scene.run(written)
    all_is_well(scene)
    assert set(images(scene).values()) == {NEWER}


@pytest.mark.parametrize(
    ("before", "later", "by_earlier"),
    [("3.6.16", "3.7.3", False), ("3.7.3", "3.6.16", False), ("3.7.3", "3.7.3", True)],
)
async def test_a_recovery_that_was_cut_goes_on_with_an_etcd_that_reads_what_was_made(
    scene: Scene, snapshot: FromSnapshot, before: str, later: str, by_earlier: bool
) -> None:
    """Whichever programs there are by then. An earlier release did not note which ones it has used."""
    await not_hosted(scene)
    brought(scene, before)
    recovery, _ = await scene.until(snapshot, StartEtcd)
    brought(scene, later)
    if by_earlier:
        path = began_in(recovery.work)
        said = {key: value for key, value in json.loads(scene.hosts["n1"].files[path][0]).items() if key != "etcd"}
        scene.hosts["n1"].files[path] = (json.dumps(said).encode(), 0o600)
    await scene.run(snapshot)
    all_is_well(scene)
    assert made_with(scene) == before
    assert images(scene)["n1"] == f"registry.k8s.io/etcd:{before}-0"


# --- what the API asks for --------------------------------------------------------------------------------------------


def template(scene: Scene, image: str) -> Object:
    """Of the members, as the API of the backup has it."""
    found = etcd.template_object(scene.make().inputs())
    spec = json.loads(found["data"][etcd.TEMPLATE_KEY])
    spec["containers"][0]["image"] = image
    return {**found, "data": {**found["data"], etcd.IN_FORCE_KEY: json.dumps(spec)}}


async def asked_for(scene: Scene) -> str | None:
    plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    version = (plane["spec"].get("etcd") or {}).get("version")
    return None if version is None else str(version)


async def test_where_agents_look_after_members_an_api_of_an_earlier_time_asks_for_the_version_that_runs(
    scene: Scene, snapshot: FromSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody joins: a member of an older minor would be let in by nobody."""
    runs(scene, "n1", "n2", "n3")
    scene.kube.put(template(scene, OWN))
    patch, fenced = FakeKube.patch, list[bool]()

    async def patched(kube: FakeKube, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> Any:
        done = await patch(kube, api_version, kind, name, *arguments, **more)
        if kind == "ControlPlane" and await asked_for(scene) is not None:
            fenced.extend(ETCD_FENCE in scene.hosts[name].files for name in ("n2", "n3"))
            scene.kube.put(template(scene, NEWER))  # the operator follows
        return done

    monkeypatch.setattr(FakeKube, "patch", patched)
    await scene.run(replace(snapshot, etcd="3.6.16"))
    all_is_well(scene)
    assert await asked_for(scene) == "3.7.3"
    assert fenced == [True, True]


def decided(scene: Scene, in_force: str, *, condemned: str = "") -> Object:
    """What the operator had noted at the time of the backup."""
    noted = template(scene, in_force)
    data = {**noted["data"], etcd.SETTLED_KEY: noted["data"][etcd.IN_FORCE_KEY]}
    if condemned:
        data |= {etcd.CONDEMNED_KEY: template(scene, condemned)["data"][etcd.IN_FORCE_KEY], etcd.WHY_KEY: "it ended"}
    return {**noted, "data": data}


async def asks_for(scene: Scene, **spec: object) -> None:
    """The ControlPlane of the backup."""
    plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    scene.kube.put({**plane, "spec": {**plane["spec"], "etcd": spec}})


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decides as the real one, whenever something is patched that it looks at."""
    patch = FakeKube.patch

    async def patched(kube: FakeKube, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> Any:
        done = await patch(kube, api_version, kind, name, *arguments, **more)
        plane = await kube.get(API_VERSION, "ControlPlane", "cluster")
        live = await kube.get("v1", "ConfigMap", etcd.TEMPLATE, "kube-system")
        if kind in ("ControlPlane", "ConfigMap") and plane is not None and live is not None:
            _decide(kube, plane, live)
        return done

    monkeypatch.setattr(FakeKube, "patch", patched)


def _decide(kube: FakeKube, plane: Object, live: Object) -> None:
    keys = (etcd.IN_FORCE_KEY, etcd.SETTLED_KEY, etcd.CONDEMNED_KEY)
    in_force, settled, condemned = (etcd.spec_in(live, key) for key in keys)
    kept = Kept(in_force, settled, condemned, live["data"].get(etcd.WHY_KEY, ""))
    base = etcd.spec_in(live, etcd.TEMPLATE_KEY)
    assert base is not None
    decision = decide(base, request_of(plane), kept, Reports((), {}))
    if decision.refused:
        said = {"reason": "EtcdTemplateRefused", "message": decision.refused, "observedGeneration": 10**6}
        kube.put({**plane, "status": {"conditions": [{"type": "SpecApplied", "status": "False", **said}]}})
    held = zip(keys, (decision.kept.in_force, decision.kept.settled, decision.kept.condemned), strict=True)
    data = {key: json.dumps(spec) for key, spec in held if spec is not None}
    if decision.kept != kept:
        kube.put({**live, "data": {**{key: live["data"][key] for key in live["data"].keys() - set(keys)}, **data}})


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("asked", ["3.7.3", None])
@pytest.mark.parametrize(("in_force", "condemned"), [(OWN, NEWER), ("registry.k8s.io/etcd:3.6.8-0", "")])
async def test_what_the_operator_had_given_up_or_refused_by_then_keeps_nobody_away(
    scene: Scene, snapshot: FromSnapshot, in_force: str, condemned: str, asked: str | None
) -> None:
    """That version had not worked at the time of the backup, and came later; or there was a step that is not made."""
    runs(scene, "n1", "n2", "n3")
    scene.kube.put(decided(scene, in_force, condemned=condemned))
    await asks_for(scene, **({} if asked is None else {"version": asked}))
    await scene.run(snapshot)
    all_is_well(scene)
    assert await asked_for(scene) == "3.7.3"
    live = await scene.kube.get("v1", "ConfigMap", etcd.TEMPLATE, "kube-system")
    assert live is not None
    in_force_now = etcd.spec_in(live, etcd.IN_FORCE_KEY)
    assert in_force_now is not None
    assert in_force_now["containers"][0]["image"] == NEWER
    assert not {etcd.SETTLED_KEY, etcd.CONDEMNED_KEY, etcd.WHY_KEY} & live["data"].keys(), "nothing older comes back"


@pytest.mark.parametrize("says_so", [True, False])
async def test_where_it_does_not_follow_no_host_stays_fenced_and_the_same_command_finishes(
    scene: Scene, snapshot: FromSnapshot, request: pytest.FixtureRequest, says_so: bool
) -> None:
    """It refuses something else that the backup asks for, or does not run."""
    runs(scene, "n1", "n2", "n3")
    scene.kube.put(decided(scene, OWN))
    if says_so:
        request.getfixturevalue("operator")
    plane = await scene.kube.get(API_VERSION, "ControlPlane", "cluster")
    assert plane is not None
    twice = {"componentArguments": {"etcd": {"quota-backend-bytes": "1"}}, "etcd": {"quotaBytes": 2}}
    scene.kube.put({**plane, "spec": {**plane["spec"], **twice}})
    said = "has not made a template of it" + ": the quota is set twice" * says_so
    with pytest.raises(TimedOut, match=said):
        await scene.run(snapshot)
    for host in scene.hosts.values():
        assert not {ETCD_FENCE, ETCD_FENCED} & host.files.keys()
    scene.kube.put(template(scene, NEWER))
    await scene.run(snapshot)
    all_is_well(scene)


@pytest.mark.parametrize("image", [NEWER, "registry.k8s.io/etcd:3.7.2-0", "registry.k8s.io/etcd:3.8.0-0", None])
async def test_where_it_asks_for_that_minor_a_later_one_or_nothing_nothing_else_is_asked_for(
    scene: Scene, snapshot: FromSnapshot, image: str | None
) -> None:
    runs(scene, "n1", "n2", "n3")
    if image is not None:
        scene.kube.put(template(scene, image))
    await scene.run(snapshot)
    all_is_well(scene)
    assert await asked_for(scene) is None


@pytest.mark.parametrize("content", [b"no JSON", b"[]", b"{}", b'{"spec": {"containers": []}}', b'{"spec": null}'])
async def test_a_static_pod_that_cannot_be_understood_says_no_version(scene: Scene, content: bytes) -> None:
    host = scene.hosts["n1"]
    host.take_away_pods()
    host.files[ETCD_FENCED] = (content, 0o600)
    assert await version_on(host) is None


async def test_a_worker_has_no_say_in_which_image_a_control_node_runs(scene: Scene) -> None:
    """Of a static pod only the version of the image is taken."""
    runs(scene, "n1", image="evil.example/rootkit:3.7.3-0")
    scene.hosts["n2"].take_away_pods()
    context = scene.make()
    await let_start(context, scene.hosts["n1"], context.cluster.node("n2"), {"n1": "192.0.2.11", "n2": "192.0.2.12"})
    assert images(scene)["n2"] == NEWER
