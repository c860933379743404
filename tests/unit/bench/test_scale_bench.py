"""The benchmark with hollow nodes: what is limited, when a size is settled, what its commands must have shown."""

from __future__ import annotations

import argparse
import json

import pytest
from _figures import markdown, table
from _scale import COMMANDS, NODES, PODS, ROWS, SIZES, AtSize, figures, tables
from _scale_looks import CLIENTS, Size
from scale import MOST_NODES, complaint_of, lacking_of, sizes

MIB = 2**20


def at(nodes: int, **other: object) -> AtSize:
    values: dict = {
        "memory": {**dict.fromkeys(ROWS, 100.0), "operator": 100.0 + nodes / 100},
        "processor": dict.fromkeys(ROWS, 0.5 + nodes / 1000),
        "requests": dict.fromkeys(CLIENTS, 20.0),
        "commands": dict.fromkeys(COMMANDS, 0.6),
        "held": {NODES: Size(nodes * 5000, nodes * MIB // 100), PODS: Size(nodes * 9000, nodes * 60_000)},
    }
    for name, changed in other.items():
        values[name] = {**values[name], **changed}  # type: ignore[dict-item]
    return AtSize(nodes, **values)


def found(**other: object):
    """other: of the largest size."""
    return figures([[*(at(nodes) for nodes in SIZES[:-1]), at(SIZES[-1], **other)]])


def missed(**other: object) -> list[str]:
    return [one.name for one in found(**other) if not one.kept]


def test_what_is_as_wanted_is_kept():
    assert missed() == []


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ({"commands": {"status": 1.01}}, "1,000 nodes: autarky status"),
        # A fifth of 100 MiB, and 10 MiB of Nodes.
        ({"memory": {"operator": 100.03 + 30.1}}, "1,000 nodes: memory: operator"),
        ({"memory": {"node agent, hosted": 120.1}}, "1,000 nodes: memory: node agent, hosted"),
        ({"memory": {"node agent, standby": 120.1}}, "1,000 nodes: memory: node agent, standby"),
        # Five times the nodes.
        ({"processor": {"operator": 3.6}}, "from 200 to 1,000 nodes: processor time in a minute: operator"),
        (
            {"processor": {"node agent, hosted": 3.6}},
            "from 200 to 1,000 nodes: processor time in a minute: node agent, hosted",
        ),
        ({"requests": {"operator": 100.5}}, "from 200 to 1,000 nodes: requests in a minute: operator"),
        ({"requests": {"node agent": 100.5}}, "from 200 to 1,000 nodes: requests in a minute: node agent"),
    ],
)
def test_a_limit_that_is_missed_says_so(other, name):
    assert missed(**other) == [name]
    [row] = [line for line in table(found(**other)).splitlines() if f"  {name}  " in line]
    assert row.endswith(": missed")


def test_what_a_watch_of_all_nodes_must_hold_is_the_operators():
    assert missed(memory={"operator": 100.03 + 29.9}) == []
    assert missed(memory={"operator": 130.1}, held={NODES: Size(1, 11 * MIB)}) == []


@pytest.mark.parametrize(
    "other",
    [
        {"memory": {"operator": 200.0}},
        {"commands": {"status": 2.0}},
        {"processor": {"kube-apiserver": 50.0, "etcd": 50.0}},
    ],
)
def test_nothing_is_limited_of_smaller_sizes_nor_of_what_is_not_autarkys(other):
    smaller = figures([[at(3), at(200), at(500, **other), at(1000)]])
    assert [one.name for one in smaller if not one.kept] == []
    assert missed(processor={"etcd": 50.0}, memory={"kube-apiserver": 900.0}) == []


def test_the_smallest_has_nothing_beside_it_and_the_others_have_that():
    by_name = {one.name: one for one in figures([[at(3), at(40)], [at(3), at(40)]])}
    assert by_name["3 nodes: memory: operator"].theirs == (None, None)
    assert by_name["40 nodes: memory: operator"].theirs == by_name["3 nodes: memory: operator"].ours
    assert not any(name.startswith("from ") for name in by_name), "two sizes show no growth"


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("the memory of node agent, standby", {"memory": {"node agent, standby": 0.0}}),
        ("the requests of operator", {"requests": {"operator": 0.0}}),
        ("the time of plan", {"commands": {"plan": 0.0}}),
        ("the size of Nodes", {"held": {NODES: Size(0, 0)}}),
    ],
)
def test_what_was_not_measured_is_not_within_its_limit(what, other):
    with pytest.raises(SystemExit, match=f"with 200 hollow nodes nothing was measured of {what}$"):
        at(200, **other)


def test_a_process_that_was_not_there_is_named():
    values = vars(at(3))
    with pytest.raises(SystemExit, match="the processor time of etcd"):
        AtSize(**{**values, "processor": {one: 1.0 for one in ROWS if one != "etcd"}})


# --- docs/measurements.md ----------------------------------------------------------------------------------


def document(figures) -> str:
    return "\n".join(markdown(head, rows) for head, rows in tables(figures))


def test_the_document_has_a_column_for_each_size_and_what_is_wanted_of_the_largest():
    lines = document(found(commands={"status": 1.25})).splitlines()
    assert lines[0] == "| in 1 round, of nodes | 3 | 200 | 500 | 1,000 | wanted |"
    assert "| autarky status | 0.6 s | 0.6 s | 0.6 s | 1.2 s | at most 1 s: missed |" in lines
    assert "| memory: operator | 100.0 MiB | 102.0 MiB | 105.0 MiB | 110.0 MiB | +10.0, at most +30 MiB |" in lines
    assert "| memory: etcd | 100.0 MiB | 100.0 MiB | 100.0 MiB | 100.0 MiB | – |" in lines
    assert "| requests in a minute: operator, 1,000 beside 200 nodes | 1.00 | at most 5.0 |" in lines
    cells = {line.count("|") for line in lines[: lines.index("")]}
    assert cells == {7}


def test_every_figure_is_in_the_document():
    text = document(found())
    assert text.count(" MiB |") == len(SIZES) * (len(ROWS) + 4) + 3  # and three limits
    assert all(f"autarky {one}" in text for one in COMMANDS)


# --- sizes, Nodes and commands -----------------------------------------------------------------------------


def test_sizes_are_numbers_that_grow():
    assert sizes("3,200,500,1000") == SIZES
    for odd in ("3", "a,b", "200,3", "3,3", "0,5", f"3,{MOST_NODES + 1}", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            sizes(odd)


def node(ready: str = "True", cidr: str = "10.244.1.0/24") -> dict:
    return {"spec": {"podCIDR": cidr}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def daemon_set(desired: int, ready: int) -> dict:
    status = {"desiredNumberScheduled": desired, "numberReady": ready}
    return {"metadata": {"name": "kube-proxy"}, "status": status}


@pytest.mark.parametrize(
    ("nodes", "daemon_sets", "lacking"),
    [
        ([node(), node()], [daemon_set(3, 3), daemon_set(1, 1)], ""),
        ([node()], [daemon_set(3, 3)], "1 of 2 Nodes are Ready and have pod addresses"),
        ([node(), node("Unknown")], [daemon_set(3, 3)], "1 of 2 Nodes are Ready and have pod addresses"),
        ([node(), node(cidr="")], [daemon_set(3, 3)], "1 of 2 Nodes are Ready and have pod addresses"),
        ([node(), node()], [daemon_set(3, 2)], "2 of 3 pods of kube-proxy are Ready"),
        ([node(), node()], [daemon_set(1, 1)], "no DaemonSet has counted the new Nodes"),
    ],
)
def test_a_size_is_settled_when_nodes_and_their_pods_are(nodes, daemon_sets, lacking):
    assert lacking_of(nodes, daemon_sets, 2) == lacking


def status_of(kubelets: int, api: str = "ready") -> str:
    row = {"component": "kubelet", "node": "n1", "health": "ready"}
    rows = [row] * kubelets + [{"component": "etcd", "node": "n1", "health": "not ready"}]
    return json.dumps({"api": api, "rows": rows, "unseen": "", "overdue": []})


def test_what_commands_find_wrong_is_shown():
    assert complaint_of("status", 1, status_of(4), 3) == "etcd on n1"
    assert complaint_of("doctor", 1, '[{"subject": "n1", "what": "is slow"}]', 3) == "n1: is slow"
    assert complaint_of("doctor", 0, "[]", 3) == ""
    assert complaint_of("plan", 0, "", 3) == ""


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("status", 1, ""),
        ("status", 2, status_of(4)),
        ("status", 0, status_of(3)),
        ("status", 1, status_of(4, api="refused")),
        ("doctor", 70, "[]"),
        ("plan", 1, ""),
    ],
)
def test_a_command_that_has_not_done_its_work_has_no_time(command, status, said):
    with pytest.raises((ValueError, KeyError, TypeError)):
        complaint_of(command, status, said, 3)
