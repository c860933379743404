"""Keys of encryption that were changed since a backup: what nobody could read is not put in the place of what there is.

The gravest case: every restored Secret is stored with a key that no API server here has any more, also the one that the
hosted API servers get their configuration from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from autarky import places
from autarky.archive.contents import HOST
from autarky.control.backup.decide.readers import Readers
from autarky.control.etcd.decide.lineage import FORMER
from autarky.errors import Refused
from autarky.phases.context import Context
from autarky.phases.recovery.decrypting import JudgeEncryption, readers_by, readers_on
from autarky.phases.recovery.looking import LookForData
from autarky.phases.recovery.starting import AwaitApi
from autarky.phases.recovery.state import FromKept, FromMember, FromSnapshot, Recovered, Recovery, Source
from autarky.render.values import pretty_json
from autarky.upkeep.backup import encryption_in
from fakes.encrypting import CONFIGURATION, IN_SECRET, archived, on_host
from unit.phases.recovery.scenes import OLD, Scene, all_is_well

pytestmark = pytest.mark.looptime
POD = f"{places.STANDBY}/kube-apiserver/current/pod.json"
PLAIN: dict[str, Any] = {"identity": {}}


def configuration(*names: str, plain: bool = True) -> str:
    """For Secrets. The first key writes."""
    keys = [{"name": name, "secret": f"secret of {name}"} for name in names]
    providers = [*([{"secretbox": {"keys": keys}}] if keys else []), *([PLAIN] if plain else [])]
    return json.dumps({"resources": [{"resources": ["secrets"], "providers": providers}]})


A, B, BOTH = configuration("a"), configuration("b"), configuration("b", "a")


def standby(content: str, volume: Mapping[str, Any] = IN_SECRET) -> dict[str, bytes]:
    """The files of a standby that reads with that, by their names in an archive."""
    files = archived(dict(volume))
    return {name: content.encode() if found == CONFIGURATION.encode() else found for name, found in files.items()}


def without(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """That of an API server which encrypts nothing."""
    name = f"{HOST}{POD.removeprefix('/')}"
    pod = json.loads(files[name])
    [container] = pod["spec"]["containers"]
    container["command"] = [word for word in container["command"] if "encryption" not in word]
    return {name: pretty_json(pod)}


NOTHING = without(standby(A))


def runs_with(scene: Scene, files: Mapping[str, bytes], *names: str) -> None:
    """Their standbys."""
    for name in names or tuple(scene.hosts):
        host = scene.hosts[name]
        host.files = {path: file for path, file in host.files.items() if not path.startswith(places.STANDBY)}
        host.files |= {f"/{path.removeprefix(HOST)}": (content, 0o600) for path, content in files.items()}


def of(snapshot: FromSnapshot, files: Mapping[str, bytes]) -> FromSnapshot:
    """As the command reads them."""
    return replace(snapshot, readers=readers_by(encryption_in(files)))


async def said(scene: Scene, source: Source) -> str:
    recovery, context = Recovery(source), scene.make()
    await LookForData(recovery).plan(context)
    return "\n".join(str(one) for one in await JudgeEncryption(recovery).plan(context))


async def refused(scene: Scene, source: Source) -> str:
    scene.etcd.on_again()
    with pytest.raises(Refused) as found:
        await scene.go_on(source)
    assert scene.etcd.acts == [], "nothing is touched"
    return str(found.value)


async def test_a_backup_with_a_key_that_no_api_server_has_any_more_is_refused_before_anything_is_touched(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    runs_with(scene, standby(B))
    sentence = await refused(scene, of(snapshot, standby(A)))
    assert "may be stored with secretbox 'a' (secrets), which no API server here can read" in sentence
    assert "as a further provider or key" in sentence
    assert "secret of" not in sentence
    assert scene.etcd.serving() == [OLD]


async def test_with_that_key_as_a_further_one_it_is_restored(scene: Scene, snapshot: FromSnapshot) -> None:
    runs_with(scene, standby(BOTH))
    await scene.run(of(snapshot, standby(A)))
    all_is_well(scene)


@pytest.mark.parametrize(
    ("data", "present", "lacks"),
    [
        (standby(A), NOTHING, "secretbox 'a'"),
        (standby(A, on_host("/etc/keys")), NOTHING, "what /etc/keys/config.yaml names"),
        (NOTHING, standby(configuration("b", plain=False)), "the provider identity"),
        (standby(configuration("b")), standby(configuration("b", plain=False)), "the provider identity"),
        (standby(configuration("a", "b")), standby(B), "secretbox 'a'"),
    ],
    ids=["nothing reads", "nothing reads what is in no backup", "all is encrypted", "no identity", "an older key"],
)
async def test_so_is_whatever_else_nobody_could_read(
    scene: Scene, snapshot: FromSnapshot, data: dict[str, bytes], present: dict[str, bytes], lacks: str
) -> None:
    runs_with(scene, present)
    assert f"may be stored with {lacks} (" in await refused(scene, of(snapshot, data))


@pytest.mark.parametrize(
    ("data", "present"),
    [
        (standby(A), standby(A)),
        (NOTHING, NOTHING),
        (standby(configuration("a", plain=False)), standby(A)),
        (standby(configuration("b", "a")), standby(configuration("a", "b"))),
    ],
    ids=["the same", "nothing", "more than it needs", "another order"],
)
async def test_what_is_read_and_written_back_is_no_matter(
    scene: Scene, snapshot: FromSnapshot, data: dict[str, bytes], present: dict[str, bytes]
) -> None:
    runs_with(scene, present)
    assert await said(scene, of(snapshot, data)) == ""


async def test_what_is_written_until_the_hosted_ones_are_back_is_named(scene: Scene, snapshot: FromSnapshot) -> None:
    """They come back with the configuration that the backup has, which has no such key."""
    for data, present in ((standby(A), standby(BOTH)), (NOTHING, standby(B))):
        runs_with(scene, present)
        sentence = await said(scene, of(snapshot, data))
        assert "is stored with secretbox 'b' (secrets), which they cannot read then" in sentence


async def test_one_node_that_can_read_all_is_enough_and_the_others_are_named(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """One whose agent has not made a standby for long reads no more of what there is today."""
    runs_with(scene, standby(A))
    runs_with(scene, standby(B), "n3")
    assert "n3 cannot read what may be in it: secretbox 'a' (secrets)" in await said(scene, of(snapshot, standby(A)))


async def test_what_a_worker_says_of_itself_counts_for_nothing(scene: Scene, snapshot: FromSnapshot) -> None:
    scene.not_in_file("n3", remembered=True)
    runs_with(scene, standby(B))
    runs_with(scene, standby(A), "n3")
    await refused(scene, of(snapshot, standby(A)))


@pytest.mark.parametrize(
    "present",
    [
        standby(B, on_host("/etc/keys")),
        standby("kind: ["),
        {},
        {f"{HOST}{POD.removeprefix('/')}": b"x"},
    ],
    ids=["the file is gone", "no YAML", "no standby", "no pod"],
)
async def test_rule_2_what_is_not_known_refuses_nothing_and_is_said(
    scene: Scene, snapshot: FromSnapshot, present: dict[str, bytes]
) -> None:
    runs_with(scene, present)
    assert "whether the API servers here can read that is not known" in await said(scene, of(snapshot, standby(A)))
    await said(scene, replace(snapshot, readers=None))


async def test_a_file_of_the_host_is_read_where_it_is(scene: Scene) -> None:
    context = scene.make()
    runs_with(scene, standby(B, on_host("/etc/keys")), "n1")
    host = context.host(context.cluster.node("n1"))
    assert await readers_on(host) == Readers(unknown="/etc/keys/config.yaml")
    scene.hosts["n1"].files["/etc/keys/config.yaml"] = (B.encode(), 0o600)
    assert await readers_on(host) == readers_by(encryption_in(standby(B)))


async def test_of_a_members_data_nothing_is_asked(scene: Scene) -> None:
    """It is of this very cluster."""
    runs_with(scene, standby(B))
    scene.lost_quorum()
    assert await said(scene, FromMember()) == ""


# --- and what is taken back -------------------------------------------------------------------------------------------


def noted(scene: Scene) -> Recovered:
    found = Recovered.read(scene.hosts["n1"].files[places.ETCD_RECOVERED][0])
    assert found is not None
    return found


async def test_what_is_taken_back_must_be_readable_as_well(scene: Scene, snapshot: FromSnapshot) -> None:
    """With the backup the hosted API servers are back at its configuration, and soon their standbys."""
    runs_with(scene, standby(BOTH))
    await scene.run(of(snapshot, standby(A)))
    assert b"secret of" not in scene.hosts["n1"].files[places.ETCD_RECOVERED][0]
    runs_with(scene, standby(A))
    assert "secretbox 'b' (secrets), which no API server here can read" in await refused(scene, FromKept())
    runs_with(scene, standby(configuration("a", "b")))
    await scene.run(FromKept())
    [cluster] = scene.etcd.serving()
    assert "/registry/pods/demo/web" in scene.etcd.values[cluster]["keys"]


async def test_rule_5_a_run_that_is_resumed_notes_what_the_former_data_is_read_with(
    scene: Scene, snapshot: FromSnapshot
) -> None:
    """Not with what the API servers read by then that have come back with the backup."""
    runs_with(scene, standby(BOTH))
    source = of(snapshot, standby(A))
    await scene.until(source, AwaitApi)
    before = noted(scene)
    runs_with(scene, standby(A))
    await scene.run(source)
    assert noted(scene).readers == before.readers == readers_by(encryption_in(standby(BOTH)))


async def test_a_note_of_an_earlier_release_says_nothing_of_it(scene: Scene, snapshot: FromSnapshot) -> None:
    runs_with(scene, standby(B))
    await scene.run(snapshot)
    found = json.loads(noted(scene).file().content)
    del found["readers"]
    scene.hosts["n1"].files[places.ETCD_RECOVERED] = (json.dumps(found).encode(), 0o600)
    runs_with(scene, standby(A))
    await scene.run(FromKept())
    assert FORMER in scene.etcd.values[scene.etcd.serving()[0]]["keys"]


async def test_a_person_is_not_asked_before_that_is_judged(
    scene: Scene, snapshot: FromSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autarky.cli import restore  # noqa: PLC0415 # as the command does it

    runs_with(scene, standby(BOTH))
    await scene.run(of(snapshot, standby(A)))
    runs_with(scene, standby(A))
    context: Context = scene.make()
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda _: context)
    with pytest.raises(Refused, match="which no API server here can read"):
        await restore._looked(context.cluster, Recovery(FromKept()))
