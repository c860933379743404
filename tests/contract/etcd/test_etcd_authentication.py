"""etcd's own authentication as a fence, against real members: what is refused, what goes on, what a snapshot has."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autarky.control.etcd.decide.recovery import BUMP
from autarky.errors import CommandFailed
from autarky.etcd import EtcdTools, Place
from autarky.hosts import LocalHost
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec
from autarky.ports import Completed
from contract.servers import Member, a_member, etcd_pki, linked_programs, running_member

pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]
ROOTS = "of-the-copy"
KEYS = 20
LEASE_SECONDS = 5
_REFUSED = "permission denied"
_SAID = (_REFUSED, "user name", "user not found")


@dataclass
class Scene:
    """A member, and etcdctl with the API servers' certificate."""

    directory: Path
    member: Member
    ends: ExitStack

    def place(self, certificate: str = "client", member: Member | None = None) -> Place:
        where = (member or self.member).client
        pki, programs = str(self.directory / "pki/etcd"), str(self.directory / "bin")
        return Place(where, pki, programs, certificate=f"{certificate}.crt", key=f"{certificate}.key")

    def tools(self, password: str | None = None, *, certificate: str = "client", at: Member | None = None) -> EtcdTools:
        return EtcdTools(LocalHost("n1"), place=self.place(certificate, at), password=password)

    def argv(self, *arguments: str, certificate: str = "client") -> list[str]:
        place = self.place(certificate)
        files = [f"--cacert={place.pki}/ca.crt", f"--cert={place.pki}/{certificate}.crt"]
        files += [f"--key={place.pki}/{certificate}.key", f"--endpoints={place.local}"]
        return [f"{place.programs}/etcdctl", *files, "--command-timeout=5s", *arguments]

    async def ctl(self, *arguments: str, stdin: bytes = b"", certificate: str = "client") -> Completed:
        return await LocalHost("n1").run(self.argv(*arguments, certificate=certificate), stdin=stdin, check=False)

    def start(self, member: Member) -> None:
        pki, directory = etcd_pki(self.directory / "pki"), self.directory / member.name
        self.ends.enter_context(running_member(member, [member], pki, directory))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[list[str]]:
        """What a watch that was there before has seen, once the block has ended."""
        seen = list[str]()
        argv = self.argv("watch", "", "--prefix", "-w", "json")
        watch = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        try:
            await asyncio.sleep(1)
            yield seen
            await asyncio.sleep(1)
        finally:
            watch.kill()
            said, _ = await watch.communicate()
        seen += said.decode().splitlines()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    linked_programs(tmp_path / "bin", "etcdctl", "etcdutl")
    with ExitStack() as ends:
        begun = Scene(tmp_path, a_member("one"), ends)
        begun.start(begun.member)
        subprocess.run(begun.argv("put", "/registry/0", "x"), check=True, capture_output=True)
        for number in range(1, KEYS):
            subprocess.run(begun.argv("put", f"/registry/{number}", "x"), check=True, capture_output=True)
        yield begun


async def test_it_refuses_everything_of_everybody_but_root(scene: Scene) -> None:
    await scene.tools(ROOTS).refuse_all_but(ROOTS)
    for certificate in ("client", "server"):
        for arguments, stdin in (
            (("get", "/registry/1"), b""),
            (("get", "/registry/1", "--consistency=s"), b""),
            (("put", "/registry/1", "y"), b""),
            (("del", "/registry/1"), b""),
            (("txn",), b'mod("/registry/1") > "0"\n\nput /registry/1 y\n\n\n'),
            (("user", "add", "other:x"), b""),
            (("auth", "disable"), b""),
            (("snapshot", "save", str(scene.directory / "stolen")), b""),
        ):
            said = await scene.ctl(*arguments, stdin=stdin, certificate=certificate)
            assert said.status != 0, arguments
            assert any(words in said.stderr for words in _SAID), said.stderr
    with pytest.raises(CommandFailed, match="invalid user ID or password"):
        await scene.tools("guessed").revision()
    root = scene.tools(ROOTS)
    assert await root.has_authentication()
    assert await root.users() == ("root",)
    revision = await root.revision()
    assert await root.count(revision, timeout=10) == KEYS
    assert (await root.membership()).members
    assert (await root.value("/registry/1")).strip() == "x"
    assert (await root.statuses([scene.member.client]))[scene.member.client].revision == revision


async def test_open_again_it_is_as_before(scene: Scene) -> None:
    root = scene.tools(ROOTS)
    await root.answer_all()  # nothing was begun
    await root.refuse_all_but(ROOTS)
    await root.answer_all()
    await root.answer_all()
    anybody = scene.tools()
    assert not await anybody.has_authentication()
    assert await anybody.users() == ()
    await anybody.put("/registry/1", "z")
    await scene.tools("another").refuse_all_but("another")
    assert await scene.tools("another").value("/registry/1") == "z"


async def test_only_what_leases_end_goes_on(scene: Scene) -> None:
    """So another etcd must begin far above it: clients have seen these revisions, by watches that go on."""
    lease = json.loads((await scene.ctl("lease", "grant", str(LEASE_SECONDS), "-w", "json")).text)["ID"]
    async with scene.watched() as seen:
        await scene.ctl("put", "/registry/leased", "x", f"--lease={lease:x}")
        root = scene.tools(ROOTS)
        await root.refuse_all_but(ROOTS)
        fenced = await root.revision()
        for _ in range(3):
            await scene.ctl("put", "/registry/1", "y")
        for _ in range(120):
            if await root.revision() > fenced:
                break
            await asyncio.sleep(0.5)
        assert await root.value("/registry/leased") == ""
        assert await root.value("/registry/1") == "x"
    events = [one for line in seen if line.startswith("{") for one in json.loads(line).get("Events", ())]
    assert len(events) == 2, "a watch that was there before sees the key that is put, and its end"


async def test_a_restored_snapshot_is_fenced_as_well_and_begins_above_what_was_seen(scene: Scene) -> None:
    root = scene.tools(ROOTS)
    await root.refuse_all_but(ROOTS)
    path, fenced = str(scene.directory / "snapshot.db"), await root.revision()
    await root.save_snapshot(path, timeout=30, endpoint=scene.member.client)
    taken = await root.snapshot_status(path, timeout=30)
    assert taken.revision == fenced
    copied = a_member("copied")
    _restore(scene, path, copied)
    await asyncio.to_thread(scene.start, copied)
    its_root = scene.tools(ROOTS, at=copied)
    with pytest.raises(CommandFailed, match=_REFUSED):
        await scene.tools(at=copied).revision()
    assert await its_root.revision() == fenced + BUMP
    assert await its_root.count(fenced + BUMP, timeout=10) == KEYS
    assert (await its_root.membership()).cluster != (await root.membership()).cluster
    await its_root.answer_all()
    anybody = scene.tools(at=copied)
    assert not await anybody.has_authentication()
    assert await anybody.users() == ()
    await anybody.put("/registry/1", "z")
    with pytest.raises(CommandFailed, match=_REFUSED):
        await scene.tools().put("/registry/1", "lost")


def _restore(scene: Scene, path: str, member: Member) -> None:
    (scene.directory / "copied").mkdir()
    argv = [str(scene.directory / "bin/etcdutl"), "snapshot", "restore", path, f"--bump-revision={BUMP}"]
    argv += ["--mark-compacted", f"--data-dir={scene.directory / 'copied/data'}", f"--name={member.name}"]
    argv += [f"--initial-cluster={member.name}={member.peer}", f"--initial-advertise-peer-urls={member.peer}"]
    subprocess.run([*argv, "--initial-cluster-token=of-the-copy"], check=True, capture_output=True)


async def test_the_name_in_a_certificate_is_a_user_so_root_must_not_be_one(scene: Scene) -> None:
    spec = CertSpec("etcd/root", "etcd/ca", "root")
    etcd_pki(scene.directory / "pki").ensure([spec], CertificateSettings(), datetime.now(UTC))
    await scene.tools(ROOTS).refuse_all_but(ROOTS)
    await scene.tools(certificate="root").put("/registry/1", "y")
    assert await scene.tools(ROOTS).value("/registry/1") == "y"
