"""What a lab writes down and how it is found again. No host is made here."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from autarky.clock import start_time
from autarky.errors import CommandFailed, TimedOut, UserError
from autarky.lab import Lab, cgroups, disk, tools
from autarky.lab.lab import HostRecord, _remove_with_state_last


@pytest.fixture(autouse=True)
def _state_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def described(name: str, **hosts: tuple[int, int]) -> Lab:
    """A lab as its state file tells it: host → (pid, start time)."""
    lab = Lab.open(name)
    lab.directory.mkdir(parents=True)
    records = {
        host: {"index": index, "address": f"10.201.7.{11 + index}", "pid": pid, "start_time": started}
        for index, (host, (pid, started)) in enumerate(hosts.items())
    }
    (lab.directory / "lab.json").write_text(json.dumps({"subnet": "10.201.7.0/24", "hosts": records, "runc": "runc"}))
    return lab


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "a" * 64, "ä"])
def test_a_name_that_is_no_dns_label_is_refused(name):
    with pytest.raises(UserError, match="is not a valid name for a lab or a host"):
        Lab.open(name)


def test_a_lab_is_known_once_it_is_written_down():
    assert Lab.all() == []
    assert Lab.open("demo").records() == {}
    described("demo", n1=(0, 0))
    assert Lab.all() == [Lab.open("demo")]


def test_labs_of_one_name_below_two_state_directories_are_strangers(tmp_path, monkeypatch):
    here = described("demo").network
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    there = described("demo").network
    assert here.subnet == there.subnet
    assert len({here.switch, there.switch, here.uplink, there.uplink, here.table, there.table}) == 6
    assert here.netns("n1") != there.netns("n1")


def test_a_host_runs_while_its_init_process_is_the_one_that_was_written_down():
    pid = os.getpid()
    started = start_time(pid)
    assert started is not None
    records = described("demo", n1=(pid, started), n2=(pid, started - 1), n3=(0, 0)).records()
    assert [record.name for record in records.values() if record.running] == ["n1"]


def test_a_host_that_never_said_when_it_started_does_not_run():
    assert not HostRecord("n1", "10.201.7.11", 2**22 + 1, 0).running


async def test_hosts_that_do_not_exist_are_refused_by_name():
    lab = described("demo", n1=(0, 0), n2=(0, 0))
    with pytest.raises(UserError, match="has no host n3\n  fix: its hosts are: n1, n2"):
        await lab.cut("n1", "n3")


def test_a_removal_that_was_killed_is_still_a_lab(tmp_path, monkeypatch):
    """Whatever it had removed by then, `down` finds the lab and goes on."""
    lab = described("demo", n1=(0, 0))
    (lab.directory / "hosts/n1").mkdir(parents=True)
    (lab.directory / "hosts.txt").write_text("")
    removed = []
    rmdir = os.rmdir

    def killed_after_the_hosts(path, **rest):
        rmdir(path, **rest)
        removed.append(str(path))
        if str(path).endswith("hosts"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", killed_after_the_hosts)
        with pytest.raises(KeyboardInterrupt):
            _remove_with_state_last(lab.directory)
    assert removed
    assert Lab.all() == [lab]
    _remove_with_state_last(lab.directory)
    assert not lab.directory.exists()


def test_running_hosts_see_new_hosts_in_the_file_they_have_mounted():
    lab = described("demo", n1=(0, 0))
    lab._write_hosts_file()
    path = lab.directory / "hosts.txt"
    before = path.stat().st_ino
    state = lab._state()
    lab._add_hosts(state, ["n2", "n1"])
    lab._write(state)
    lab._write_hosts_file()
    assert path.stat().st_ino == before
    assert path.read_text() == "127.0.0.1 localhost\n10.201.7.11 n1\n10.201.7.12 n2\n"


# --- this machine ------------------------------------------------------------------------------------


def test_the_disk_of_this_machine_is_never_taken_for_that_of_a_host(tmp_path):
    """A wrong guess would stop the file system of this machine."""
    for path in ("/", "/proc", str(tmp_path)):
        assert disk._backing_file(Path(path).stat().st_dev) is None
    assert disk.stop(tmp_path / "disk.img", 2**22 + 1) is False


async def test_a_disk_that_nothing_has_is_free_at_once(tmp_path):
    (tmp_path / "disk.img").write_bytes(b"")
    async with asyncio.timeout(5):
        await disk.wait_until_free(tmp_path / "disk.img")


def test_control_groups_are_found_by_name_wherever_the_lab_was_started(tmp_path):
    for path in ("cpu/autarky-1-n1/system.slice", "memory/some/where/autarky-1-n1", "cpu/autarky-2-n1/autarky-1-n1"):
        (tmp_path / path).mkdir(parents=True)
    assert sorted(cgroups.find("autarky-1-n1", tmp_path)) == [
        tmp_path / "cpu/autarky-1-n1",
        tmp_path / "memory/some/where/autarky-1-n1",
    ]


async def test_control_groups_go_with_all_below_them_and_others_stay(tmp_path):
    (tmp_path / "cpu/autarky-1-n1/system.slice/a.service").mkdir(parents=True)
    (tmp_path / "cpu/autarky-1-n10").mkdir()
    await cgroups.clear("autarky-1-n1", tmp_path)
    assert [path.name for path in (tmp_path / "cpu").iterdir()] == ["autarky-1-n10"]
    await cgroups.clear("autarky-1-n1", tmp_path)


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(tmp_path):
    assert tools._file_system(Path("/proc/self/nothing/here")) == "proc"
    assert tools._file_system(tmp_path / "not/there/yet") == tools._file_system(tmp_path)


async def test_a_tool_that_fails_says_why():
    with pytest.raises(CommandFailed, match=r"this machine: sh -c .* ended with status 3: no"):
        await tools.tool("sh", "-c", "echo no >&2; exit 3")
    assert await tools.tool("sh", "-c", "echo yes; exit 3", check=False) == "yes\n"


async def test_a_tool_that_hangs_is_ended():
    with pytest.raises(TimedOut, match="sleep 60 did not end within 0 s"):
        await tools.tool("sleep", "60", timeout=0.1)


async def test_a_host_that_was_removed_begins_from_scratch_and_takes_nobody_elses_address(monkeypatch):
    async def nothing(*_args: object) -> None: ...

    monkeypatch.setattr("autarky.lab.machine.Machine.clear", nothing)
    monkeypatch.setattr("autarky.lab.ssh.write_config", lambda *_: None)
    lab = described("demo", n1=(0, 0), n2=(0, 0), n3=(0, 0))
    disk_of_n2 = lab.directory / "hosts" / "n2" / "disk.img"
    disk_of_n2.parent.mkdir(parents=True)
    disk_of_n2.write_bytes(b"")
    await lab.remove("n2")
    assert list(lab.records()) == ["n1", "n3"]
    assert not disk_of_n2.exists()
    state = lab._state()
    lab._add_hosts(state, ["n4", "n2"])
    addresses = [entry["address"] for entry in state["hosts"].values()]
    assert len(set(addresses)) == 4


async def test_a_lab_that_another_process_removes_meanwhile_is_gone_for_both(monkeypatch):
    async def nothing(_self):
        await asyncio.sleep(0.01)

    monkeypatch.setattr("autarky.lab.machine.Machine.clear", nothing)
    monkeypatch.setattr("autarky.lab.network.LabNetwork.remove", nothing)
    lab = described("demo", n1=(0, 0))
    await asyncio.gather(lab.down(), lab.down())
    assert Lab.all() == []
