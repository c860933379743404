"""Processor time by process, requests by client, and the size of objects."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from _scale_looks import CLIENTS, REQUESTS, TIMES, Size, Time, requests, size, spent, times

STAT = "{pid} (a) b) S 1 1 1 0 -1 4194560 {rest} {utime} {stime} {cutime} {cstime} 20 0 1 0 {began} 1000 10\n"
AGENT = b"python3\0-m\0autarky.agents.node\0"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """An etcd, a node agent in its standby, a program of any host, and a process that ends while it is looked at."""
    _process(tmp_path, 7, "etcd", (200, 100, 0, 0))
    _process(tmp_path, 8, "python3", (1, 2, 30, 40), AGENT, b"A=b\0AUTARKY_SLOT=standby\0")
    _process(tmp_path, 9, "systemd", (5, 5, 0, 0))
    (tmp_path / "10").mkdir()
    return tmp_path


def _process(
    proc: Path, pid: int, name: str, ticks: tuple[int, int, int, int], words: bytes = b"", variables: bytes = b""
) -> None:
    directory = proc / str(pid)
    directory.mkdir()
    fields = dict(zip(("utime", "stime", "cutime", "cstime"), ticks, strict=True))
    (directory / "stat").write_text(STAT.format(pid=pid, rest="1 2 3 4", began=500 + pid, **fields))
    (directory / "comm").write_text(f"{name}\n")
    (directory / "cmdline").write_bytes(words)
    (directory / "environ").write_bytes(variables)


def run(script: str, *arguments: str) -> str:
    return subprocess.run(["sh", "-c", script, "sh", *arguments], check=True, capture_output=True, text=True).stdout


# --- processor time ----------------------------------------------------------------------------------------


def test_processes_are_seen_with_the_time_of_their_ended_children(proc: Path):
    a_second = int(subprocess.run(["getconf", "CLK_TCK"], check=True, capture_output=True, text=True).stdout)
    assert times(run(TIMES, str(proc))) == {
        ("7", "507"): Time("etcd", 300 / a_second),
        ("8", "508"): Time("node agent, standby", 73 / a_second),
    }


def test_real_processes_are_seen():
    assert all(one.seconds >= 0 for one in times(run(TIMES, "/proc")).values())


def test_no_process_is_no_little_time(tmp_path: Path):
    with pytest.raises(ValueError, match="no process was seen"):
        times(run(TIMES, str(tmp_path)))


def test_what_was_spent_between_two_looks():
    before = {("1", "10"): Time("etcd", 4.0), ("2", "11"): Time("operator", 7.0)}
    after = {("1", "10"): Time("etcd", 5.5), ("2", "11"): Time("operator", 7.0), ("3", "90"): Time("etcd", 0.25)}
    assert spent(before, after).by_row == {"etcd": 1.75, "operator": 0.0}
    assert spent(before, after).ended == ()


def test_a_number_that_another_process_has_now_is_not_the_same_process():
    found = spent({("1", "10"): Time("operator", 90.0)}, {("1", "77"): Time("operator", 2.0)})
    assert (found.by_row, found.ended) == ({"operator": 2.0}, ("operator",))


# --- requests ----------------------------------------------------------------------------------------------


def line(verb: str, uri: str, schema: str, agent: str = "autarky/0.9.0") -> str:
    return (
        f'2026-11-29T10:00:00.1Z stderr F I1129 10:00:00.123456       1 httplog.go:134] "HTTP" verb="{verb}"'
        f' URI="{uri}" latency="1.2ms" userAgent="{agent}" audit-ID="a" srcIP="127.0.0.1:1" apf_pl="system"'
        f' apf_fs="{schema}" apf_iseats=1 resp=200'
    )


def test_requests_are_the_operators_or_the_agents_by_their_flow_schema():
    found = requests(
        [
            line("WATCH", "/api/v1/nodes?allowWatchBookmarks=true&watch=true", "kube-system-service-accounts"),
            line("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/y?a=b", "system-leader-election"),
            line("WATCH", "/api/v1/nodes?watch=true", "kube-system-service-accounts"),
            line("PATCH", "/api/v1/nodes/n1", "system-node-high"),
            line("GET", "/api/v1/nodes/hollow-0012", "system-nodes"),
            line("LIST", "/api/v1/pods", "exempt"),
            "I1129 something else",
        ]
    )
    assert found == {
        "operator": Counter({"WATCH nodes": 2, "PUT coordination.k8s.io/v1/namespaces/x/leases/y": 1}),
        "node agent": Counter({"PATCH nodes/n1": 1, "GET nodes/…": 1}),
    }
    assert tuple(found) == CLIENTS


def test_only_what_is_logged_meanwhile_is_counted_and_only_autarkys(tmp_path: Path):
    for name in ("0.log", "1.log"):
        (tmp_path / name).write_text(line("GET", "/before", "system-nodes") + "\n")
    program = f"""
import time
time.sleep(0.5)
for name in ("0.log", "1.log"):
    with open("{tmp_path}/" + name, "a") as log:
        log.write({line("GET", "/api/v1/a", "system-nodes")!r} + "\\n")
        log.write({line("GET", "/api/v1/b", "system-nodes", "kubelet/v1.36.4")!r} + "\\n")
"""
    with subprocess.Popen([sys.executable, "-c", program]):
        said = run(REQUESTS, "2", f"{tmp_path}/*.log")
    assert requests(said.splitlines())["node agent"] == {"GET a": 2}


# --- sizes -------------------------------------------------------------------------------------------------


def test_the_size_of_objects_is_that_of_all_in_both_forms():
    one = {"metadata": {"name": "é", "labels": {}}, "ready": True, "none": None, "list": [1, "x"]}
    text = '{"metadata":{"name":"é","labels":{}},"ready":true,"none":null,"list":[1,"x"]}'
    dictionaries = sys.getsizeof(one) + sys.getsizeof(one["metadata"]) + sys.getsizeof({})
    keys = sum(map(sys.getsizeof, ("metadata", "name", "labels", "ready", "none", "list")))
    values = sys.getsizeof("é") + sys.getsizeof(1) + sys.getsizeof("x")
    # A list that was parsed has room for more than is in it.
    assert size([one]).json == len(text.encode())
    assert dictionaries + keys + values < size([one]).python < 2 * (dictionaries + keys + values)
    assert size([one] * 3) == Size(3 * size([one]).json, 3 * size([one]).python)
    assert size([]) == Size(0, 0)


def test_a_name_that_is_in_an_object_twice_is_there_once():
    name, other = "n" * 500, "m" * 500
    apart = size([[{name: None}, {other: None}]]).python
    assert size([[{name: None}, {name: None}]]).python == apart - sys.getsizeof(name)
