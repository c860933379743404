"""What a phase learns of etcd's members from the real etcdctl: who votes, who leads, who is well."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from autarky.control.etcd.decide.restart import Member as Seen
from autarky.payload import default_version, find_binary, load_release
from autarky.phases.etcd_listed import MEMBERS, read_members
from contract.servers import Member, a_member, etcd_pki, running_member

pytestmark = pytest.mark.contract


class ThreeMembers:
    """Founded together, as `up` does it."""

    def __init__(self, directory: Path) -> None:
        self.pki = etcd_pki(directory / "pki")
        self.members = [a_member(name) for name in ("n1", "n2", "n3")]
        self.running = {member.name: ExitStack() for member in self.members}
        self.directory = directory
        etcdctl = find_binary(load_release(default_version()), "etcdctl")
        assert etcdctl is not None, "autarky payload get"
        (directory / "bin").mkdir()
        (directory / "bin/etcdctl").symlink_to(etcdctl.path)

    async def start(self) -> None:
        async with asyncio.TaskGroup() as group:
            for member in self.members:
                group.create_task(asyncio.to_thread(self._start, member))

    def _start(self, member: Member) -> None:
        began = running_member(member, self.members, self.pki, self.directory / member.name)
        self.running[member.name].enter_context(began)

    def seen_by(self, number: int) -> list[Seen] | None:
        port = urlsplit(self.members[number].client).port
        argv = ["bash", "-c", MEMBERS, "bash", str(self.directory / "bin"), str(port), str(self.pki.directory / "etcd")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return read_members(done.stdout, {})

    def close(self) -> None:
        for stack in self.running.values():
            stack.close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeMembers]:
    found = ThreeMembers(tmp_path)
    yield found
    found.close()


async def test_members_are_seen_as_the_quorum_has_them_and_without_a_quorum_not_at_all(three: ThreeMembers) -> None:
    await three.start()
    seen = three.seen_by(0)
    assert seen is not None
    assert {member.name for member in seen} == {"n1", "n2", "n3"}
    assert all(member.voter and member.healthy for member in seen)
    assert sum(member.leader for member in seen) == 1

    three.running["n3"].close()
    seen = three.seen_by(0)
    assert seen is not None
    assert {member.name: member.healthy for member in seen} == {"n1": True, "n2": True, "n3": False}

    three.running["n2"].close()
    assert three.seen_by(0) is None
    assert three.seen_by(1) is None


async def test_a_learner_that_has_not_run_is_no_voter(three: ThreeMembers) -> None:
    await three.start()
    port = urlsplit(three.members[0].client).port
    pki = three.pki.directory / "etcd"
    tls = [f"--cacert={pki}/ca.crt", f"--cert={pki}/server.crt", f"--key={pki}/server.key"]
    add = [str(three.directory / "bin/etcdctl"), f"--endpoints=https://127.0.0.1:{port}", *tls, "member", "add", "n4"]
    argv = [*add, "--learner", "--peer-urls=https://192.0.2.14:2380"]
    for _ in range(60):  # etcd counts its peers as connected after five seconds
        added = await asyncio.to_thread(lambda: subprocess.run(argv, check=False))
        if added.returncode == 0:
            break
        await asyncio.sleep(0.5)
    seen = three.seen_by(0)
    assert seen is not None
    [learner] = [member for member in seen if not member.voter]
    assert not learner.healthy
    assert sum(member.voter for member in seen) == 3
