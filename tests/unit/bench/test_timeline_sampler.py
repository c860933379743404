"""The program that looks at all processes: what it reads, and that it ends with whoever started it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import _timeline_sampler
import pytest
from _timeline_sampler import (
    TICKS,
    Sampler,
    Stat,
    parse_machine,
    parse_pressure,
    parse_stat,
    parse_usage,
    place,
    usage_files,
)

STAT = "{pid} ({name}) S 1 1 1 0 -1 4194560 9 0 0 0 {user} {system} 700 700 20 0 11 0 {start} 1671458816 80519"
HOST, CONTAINER = "autarky-6602a431-n1", "9052ed7d" * 8
V1 = f"""\
4:memory:/outer/27aed95e/{HOST}/kubepods/burstable/pod5aea/{CONTAINER}
2:cpu,cpuacct:/outer/{HOST}/kubepods/burstable/pod5aea/{CONTAINER}
0::/{HOST}
"""


def stat(pid=7, name="etcd", user=0, system=0, start=50):
    return STAT.format(pid=pid, name=name, user=user, system=system, start=start)


def test_a_name_with_parentheses_and_spaces_moves_no_field():
    found = parse_stat(stat(name="runc:[2) S 1 (x", user=3 * TICKS, system=TICKS, start=8243698))
    assert found == Stat("runc:[2) S 1 (x", 4.0, 8243698)


def test_the_control_group_says_which_host_and_which_container():
    assert place(V1) == (HOST, CONTAINER)
    assert place(f"0::/{HOST}/system.slice/containerd.service\n") == (HOST, "")
    assert place(f"0::/docker/{CONTAINER}\n") == ("", "")


def test_the_usage_of_a_host_is_that_of_its_own_group_not_of_the_container():
    files = usage_files(V1)
    assert f"/sys/fs/cgroup/cpu,cpuacct/outer/{HOST}/cpuacct.usage" in files
    assert files[-1] == f"/sys/fs/cgroup/{HOST}/cpu.stat"
    assert usage_files("0::/user.slice\n") == []


def test_usage_is_in_seconds_by_both_versions_of_control_groups():
    assert parse_usage("2500000000\n") == 2.5
    assert parse_usage("usage_usec 2500000\nuser_usec 1\n") == 2.5


def test_a_machine_that_waits_for_its_disk_or_does_nothing_does_not_work():
    hertz = TICKS
    user, nice, system, idle, disk, interrupts, soft, stolen, guest = (
        n * hertz for n in (1, 2, 4, 500, 70, 8, 16, 3, 1)
    )
    line = f"cpu  {user} {nice} {system} {idle} {disk} {interrupts} {soft} {stolen} {guest} 0\ncpu0 9 9 9\n"
    assert parse_machine(line) == (31, 3)


def test_pressure_is_that_of_some_not_of_all():
    assert parse_pressure("some avg10=67.98 avg60=0 avg300=0 total=32500000\nfull avg10=0 total=1\n") == 32.5


# --- look by look ---------------------------------------------------------------------------------


class Machine:
    """A /proc of files."""

    def __init__(self, root) -> None:
        self.root = root
        (root / "pressure").mkdir()
        (root / "pressure/cpu").write_text("some total=1000000\n")
        (root / "stat").write_text("cpu  100 0 0 0 0 0 0 0 0 0\n")

    def run(self, pid, text, *, group="0::/\n", words="", environment="", waited=0):
        directory = self.root / str(pid)
        (directory / "task/1").mkdir(parents=True, exist_ok=True)
        for name, content in {"stat": text, "cgroup": group, "cmdline": words, "environ": environment}.items():
            (directory / name).write_text(content)
        (directory / "task/1/schedstat").write_text(f"5 {waited} 5\n")

    def end(self, pid):
        (self.root / str(pid) / "stat").unlink()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_line_has_what_is_new_and_what_has_worked_since(machine):
    sampler = Sampler(machine.root)
    machine.run(7, stat(7, "etcd", user=TICKS), group=V1)
    machine.run(8, stat(8, "idle"))
    first = sampler.look(1.0, waited=False)
    assert sorted(first["seen"]) == [["7:50", HOST, CONTAINER, "etcd", "-", ""], ["8:50", "", "", "idle", "-", ""]]
    assert sorted(first["used"]) == [["7:50", 1.0], ["8:50", 0.0]]
    machine.run(7, stat(7, "etcd", user=2 * TICKS), group=V1)
    second = sampler.look(1.25, waited=False)
    assert (second["seen"], second["used"]) == ([], [["7:50", 2.0]])


def test_a_process_that_runs_another_program_or_has_a_used_id_is_described_again(machine):
    sampler = Sampler(machine.root)
    machine.run(7, stat(7, "runc"))
    sampler.look(1.0, waited=False)
    machine.run(7, stat(7, "kube-apiserver"), group=V1)
    assert sampler.look(2.0, waited=False)["seen"] == [["7:50", HOST, CONTAINER, "kube-apiserver", "-", ""]]
    machine.run(7, stat(7, "kube-apiserver", start=60), group=V1)
    assert sampler.look(3.0, waited=False)["seen"] == [["7:60", HOST, CONTAINER, "kube-apiserver", "-", ""]]


def test_a_python_is_known_by_its_words_and_its_slot(machine):
    words, environment = "python3\0-m\0autarky.agents.node\0", "A=1\0AUTARKY_SLOT=hosted\0"
    machine.run(7, stat(7, "python3"), words=words, environment=environment)
    machine.run(8, stat(8, "kubelet"), words="kubelet\0--config\0")
    seen = Sampler(machine.root).look(1.0, waited=False)["seen"]
    assert sorted(each[3:] for each in seen) == [
        ["kubelet", "-", ""],
        ["python3", "hosted", "python3 -m autarky.agents.node "],
    ]


def test_one_that_has_ended_is_none_and_stops_no_look(machine):
    sampler = Sampler(machine.root)
    machine.run(7, stat(7))
    machine.run(8, stat(8))
    machine.end(7)
    assert [each[0] for each in sampler.look(1.0, waited=True)["seen"]] == ["8:50"]


def test_what_was_waited_for_a_processor_is_read_only_when_asked(machine):
    machine.run(7, stat(7), waited=1_500_000_000)
    sampler = Sampler(machine.root)
    assert "waited" not in sampler.look(1.0, waited=False)
    assert sampler.look(2.0, waited=True)["waited"] == [["7:50", 1.5]]


def test_a_kernel_that_knows_no_pressure_is_looked_at_all_the_same(machine):
    (machine.root / "pressure/cpu").unlink()
    line = Sampler(machine.root).look(1.0, waited=False)
    assert (line["stalled"], line["busy"]) == (None, 100 / TICKS)


def test_the_program_looks_by_this_clock_and_ends_with_its_standard_input(tmp_path):
    file, before = tmp_path / "looks", time.monotonic()
    with subprocess.Popen([sys.executable, _timeline_sampler.__file__, str(file)], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        while not (file.exists() and file.stat().st_size):
            assert process.poll() is None
            time.sleep(0.02)
        process.stdin.close()
        assert process.wait(timeout=30) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert before <= lines[0]["at"] < lines[-1]["at"] <= time.monotonic()
    assert any(each[0].startswith(f"{process.pid}:") for each in lines[0]["seen"])
    assert "waited" in lines[0]
    assert "waited" in lines[-1]
