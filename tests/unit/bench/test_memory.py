"""What counts as memory of a cluster, and where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _memory import SCRIPT, Process, by_row, memory_figures, read, row, together

NODE_AGENT = "/usr/bin/python3 -m autarky.agents.node"
# Name as the kernel has it, command line, where it is counted.
SEEN = [
    ("kube-apiserver", "", "kube-apiserver"),
    ("kube-controller", "", "kube-controller-manager"),
    ("kube-scheduler", "", "kube-scheduler"),
    ("kube-proxy", "", "kube-proxy"),
    ("etcd", "", "etcd"),
    ("haproxy", "", "haproxy"),
    ("kubelet", "", "kubelet"),
    ("containerd", "", "containerd"),
    ("containerd-shim", "", "containerd-shim"),
    ("catatonit", "", "pause"),
    ("flanneld", "", "flanneld"),
    ("coredns", "", "coredns"),
    ("python3", "/usr/bin/python3 -m autarky.agents.operator", "operator"),
    ("python3", "/usr/bin/python3 -m something.else", "others"),
    ("agnhost", "", "others"),
]
OF_ANY_HOST = ["systemd", "systemd-journal", "dbus-daemon", "sshd", "(sd-pam)", "agetty"]


def process(name: str, words: str = "", slot: str = "-", kilobytes: int | None = 1024) -> Process:
    return Process(kilobytes, name, slot, words)


@pytest.mark.parametrize(("name", "words", "where"), SEEN)
def test_every_process_is_counted_by_its_program(name, words, where):
    assert row(process(name, words)) == where


@pytest.mark.parametrize("slot", ["hosted", "standby"])
@pytest.mark.parametrize("words", [NODE_AGENT, f"{NODE_AGENT}.end_hung /run/autarky/node-agent.lock"])
def test_both_slots_of_the_node_agent_are_counted_each_by_itself(slot, words):
    assert row(process("python3", words, slot)) == f"node agent, {slot}"


@pytest.mark.parametrize("name", OF_ANY_HOST)
def test_what_any_host_has_is_not_counted(name):
    assert row(process(name)) is None


def test_a_row_is_the_sum_of_its_processes_in_mib():
    seen = [process("etcd", kilobytes=1536), process("etcd", kilobytes=512), process("sshd")]
    assert by_row(seen) == {"etcd": 2.0}


def test_a_process_that_does_not_show_its_memory_is_no_small_one():
    with pytest.raises(ValueError, match="etcd does not show its memory"):
        by_row([process("etcd", kilobytes=None)])
    assert by_row([process("etcd"), process("systemd", kilobytes=None)]) == {"etcd": 1.0}


def test_hosts_add_up_row_by_row():
    assert together([{"etcd": 1.0}, {"etcd": 2.0, "kubelet": 4.0}]) == {"etcd": 3.0, "kubelet": 4.0}


def test_all_processes_are_the_sum_of_all_rows_the_unknown_ones_among_them():
    figures = memory_figures("up", [{"etcd": 10.0, "others": 1.5}, {"operator": 3.0}], [{"etcd": 7.0}, {}])
    assert {figure.name: (figure.ours, figure.theirs) for figure in figures} == {
        "memory: all processes": ((11.5, 3.0), (7.0, 0)),
        "memory: etcd": ((10.0, None), (7.0, None)),
        "memory: operator": ((None, 3.0), (None, None)),
        "memory: others": ((1.5, None), (None, None)),
    }
    assert {(figure.benchmark, figure.unit) for figure in figures} == {("up", "MiB")}


# --- what a host says -----------------------------------------------------------------------------


def test_a_line_is_a_process_whatever_its_command_line_has():
    assert read("12\tpython3\thosted\tpython3 -c  a\x0b\u2028 \n3\tsh\t-\t\n") == [
        Process(12, "python3", "hosted", "python3 -c  a\x0b\u2028 "),
        Process(3, "sh", "-", ""),
    ]


@pytest.mark.parametrize("said", ["", "\n", "12 kB\n", "-\t-\tsh\tsh\n"])
def test_what_says_nothing_of_memory_is_no_measurement(said):
    with pytest.raises(ValueError, match=r".+"):
        read(said)


def test_what_was_swapped_out_counts_and_what_is_not_shown_is_told_from_what_has_none(tmp_path):
    rollup = "00-ff ---p [rollup]\nRss: 900 kB\nPss: 300 kB\nPss_Anon: 250 kB\nSwap: 80 kB\nSwapPss: 40 kB\n"
    alive = "Name: x\nVmRSS:\t 900 kB\n"
    seen = {
        "1": {"comm": "etcd", "smaps_rollup": rollup, "status": alive},
        "2": {"comm": "hidden", "status": alive},
        "3": {"comm": "kthreadd", "smaps_rollup": "", "status": "Name: kthreadd\n"},
        "4": {"comm": "ended"},
    }
    for number, files in seen.items():
        (tmp_path / number).mkdir()
        for name, content in files.items():
            (tmp_path / number / name).write_text(content)
    argv = ["sh", "-c", SCRIPT, "sh", str(tmp_path)]
    said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert read(said) == [Process(340, "etcd", "-", ""), Process(None, "hidden", "-", "")]


# Two processes: the second has the first one's memory, until one of them changes it.
HELD = """
import os, sys
held = bytearray(b"x" * (32 << 20))
second = os.fork()
if second:
    print("ready", flush=True)
sys.stdin.read()
if second:
    os.waitpid(second, 0)
"""


def test_the_script_sees_processes_with_slot_and_command_line_and_what_they_share_once_and_not_the_shell_that_looks(
    tmp_path,
):
    argv = [sys.executable, "-c", HELD, str(tmp_path), "tab\there", "line\nthere"]
    environment = {**os.environ, "AUTARKY_SLOT": "standby"}
    shell = tmp_path / f"looks-{os.getpid()}"
    shell.symlink_to(str(shutil.which("sh")))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        seen = read(
            subprocess.run([shell, "-c", SCRIPT, "sh", "/proc"], stdout=subprocess.PIPE, text=True, check=True).stdout
        )
        holder.communicate()
    found = [process for process in seen if process.words.endswith(f" {tmp_path} tab here line there ")]
    assert [(process.name, process.slot) for process in found] == [(Path(sys.executable).name[:15], "standby")] * 2
    assert 32 << 10 <= sum(process.kilobytes or 0 for process in found) < 48 << 10
    assert not [process for process in seen if process.name == shell.name]
