"""Snapshots of a real etcd that lie on this machine: intact, and good enough to start an etcd from."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky.errors import TimedOut, UserError
from autarky.etcd import EtcdTools
from autarky.etcd.snapshots import intact, tried
from autarky.etcd.tools import Place
from autarky.hosts import LocalHost
from contract.servers import Server, a_member, etcd_pki, linked_programs, running_member

WRITES, KEYS = 30, 7
pytestmark = [pytest.mark.contract, pytest.mark.timeout(120)]


@dataclass
class Saved:
    programs: Path
    snapshot: Path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    directory = tmp_path_factory.mktemp("snapshots")
    programs, snapshot = linked_programs(directory / "bin", "etcd", "etcdctl", "etcdutl"), directory / "snapshot.db"
    pki, member = etcd_pki(directory / "pki"), a_member("n1")
    with running_member(member, [member], pki, directory / "n1"):
        place = Place(member.client, str(pki.directory / "etcd"), str(programs))
        asyncio.run(_written(Server(member.client, pki), EtcdTools(LocalHost("n1"), place=place), snapshot))
    return Saved(programs, snapshot)


async def _written(server: Server, tools: EtcdTools, snapshot: Path) -> None:
    etcd = server.etcd()
    for number in range(WRITES):
        await etcd.put(f"/registry/{number % KEYS}".encode(), b"x" * 1000)
    await etcd.close()
    await tools.save_snapshot(str(snapshot), timeout=30)


async def test_an_etcd_that_is_started_from_it_has_its_keys(saved: Saved, tmp_path: Path) -> None:
    found = await tried(saved.snapshot, tmp_path / "tried", saved.programs, timeout=60)
    assert found.keys == KEYS
    assert found.revision == 1 + WRITES
    assert list(tmp_path.iterdir()) == []
    assert _servers_in(tmp_path) == []


def _servers_in(directory: Path) -> list[str]:
    """Processes with a working directory below it."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if str(directory) in str((one / "cwd").readlink()):
                found.append(one.name)
        except OSError:
            continue
    return found


def test_what_is_intact_has_its_size_and_digest(saved: Saved) -> None:
    content = saved.snapshot.read_bytes()
    found = intact(saved.snapshot)
    assert (found.size, found.sha256) == (len(content), hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("position", [0, 5000, -40, -1])
def test_a_damaged_one_is_found(saved: Saved, tmp_path: Path, position: int) -> None:
    content = bytearray(saved.snapshot.read_bytes())
    content[position] ^= 1
    (tmp_path / "damaged").write_bytes(content)
    with pytest.raises(UserError, match="is damaged"):
        intact(tmp_path / "damaged")


@pytest.mark.parametrize("length", [0, 20, 32, 8192])
def test_one_that_was_cut_off_is_found(saved: Saved, tmp_path: Path, length: int) -> None:
    (tmp_path / "short").write_bytes(saved.snapshot.read_bytes()[:length])
    with pytest.raises(UserError, match="is damaged"):
        intact(tmp_path / "short")


async def test_what_cannot_be_restored_is_said_and_leaves_nothing(saved: Saved, tmp_path: Path) -> None:
    (tmp_path / "nonsense").write_bytes(os.urandom(100_000))
    with pytest.raises(UserError, match="cannot be restored"):
        await tried(tmp_path / "nonsense", tmp_path / "tried", saved.programs, timeout=60)
    assert [one.name for one in tmp_path.iterdir()] == ["nonsense"]


async def test_an_etcd_that_does_not_serve_is_given_up_and_ended(saved: Saved, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("etcdctl", "etcdutl"):
        (programs / name).symlink_to((saved.programs / name).resolve())
    (programs / "etcd").write_text("#!/bin/sh\nsleep 1000\n")
    (programs / "etcd").chmod(0o755)
    with pytest.raises(TimedOut, match="does not serve"):
        await tried(saved.snapshot, tmp_path / "tried", programs, timeout=4)
    assert not (tmp_path / "tried").exists()
    assert _servers_in(tmp_path / "tried") == []
