"""Whose processor time it was."""

from __future__ import annotations

import json

import pytest
from _memory import Process
from _timeline_usage import (
    AGENTS,
    BENCH,
    COMMAND,
    MACHINE,
    OTHERS,
    RUNTIME,
    UNSEEN,
    Seen,
    component,
    read_looks,
    report,
    title,
    usage,
)

GROUP, HOSTS = "autarky-1-n1", {"autarky-1-n1": "n1"}
AGENT = "python3 -m autarky.agents.node "
KINDS = [
    ("n1", "kube-apiserver", "", "kube-apiserver"),
    ("n1", "kube-controller", "", "kube-controller-manager"),
    ("n1", "containerd-shim", "", RUNTIME),
    ("n1", "runc:[2:INIT]", "", RUNTIME),
    ("n1", "python3", AGENT, AGENTS),
    ("n1", "python3", "python3 -m autarky.agents.operator ", "operator"),
    ("n1", "systemd", "", OTHERS),
    ("n1", "coredns", "", OTHERS),
    (MACHINE, "python3", "/x/python -m autarky up -f a.yaml ", COMMAND),
    (MACHINE, "kubectl", "", BENCH),
    (MACHINE, "python3", "python /x/bench/timeline.py up ", BENCH),
    # Another cluster's, which should not be there, is no part of this one.
    ("autarky-2-n1", "kube-apiserver", "", OTHERS),
]


def seen(where, name, words="", container="", slot="-"):
    return Seen(where, container, Process(None, name, slot, words))


@pytest.mark.parametrize(("where", "name", "words", "wanted"), KINDS)
def test_every_process_belongs_to_a_component(where, name, words, wanted):
    assert component(seen(where, name, words), ["n1"]) == wanted


def test_a_process_in_a_pod_is_called_by_its_program_and_its_pod():
    pods = {"c1": "kube-apiserver-x7"}
    assert title(seen("n1", "kube-apiserver", container="c1"), pods) == "kube-apiserver in kube-apiserver-x7"
    assert title(seen("n1", "python3", AGENT, slot="standby"), pods) == "node agent, standby"
    assert title(seen("n1", "agnhost"), pods) == "agnhost"


def test_a_line_that_was_not_written_to_its_end_is_left_out():
    assert read_looks('{"at": 1}\n{"at": 2}\n{"at"') == [{"at": 1}, {"at": 2}]


# --- look by look ---------------------------------------------------------------------------------


def look(at, used, *, seen=(), busy=None, usage=0.0, stalled=0.0, waited=None, stolen=0.0):
    line = {"at": at, "seen": list(seen), "used": list(used.items()), "busy": at if busy is None else busy}
    line |= {"stolen": stolen, "stalled": stalled, "usage": {GROUP: usage} if usage is not None else {}}
    return json.loads(json.dumps(line | ({"waited": list(waited.items())} if waited is not None else {})))


ETCD, KUBELET = ["7:1", GROUP, "c7", "etcd", "-", ""], ["8:1", GROUP, "", "kubelet", "-", ""]
LATE = ["9:1", GROUP, "", "kube-proxy", "-", ""]


def test_what_was_used_before_the_first_look_is_not_of_this_run_and_what_a_new_process_used_is():
    looks = [look(10, {"7:1": 100.0}, seen=[ETCD]), look(11, {"7:1": 100.5, "9:1": 0.25}, seen=[LATE])]
    (step,) = usage(looks, HOSTS, {}, 10.0).steps
    assert (step.begin, step.end, step.used) == (10, 11, {"etcd": 0.5, "kube-proxy": 0.25, UNSEEN: 0.25})


def test_an_area_is_processors_on_average_whatever_the_time_between_two_looks():
    looks = [look(10, {"7:1": 0.0}, seen=[ETCD]), look(10.5, {"7:1": 0.5}), look(12.5, {"7:1": 1.5})]
    found = usage(looks, HOSTS, {}, 0.0)
    assert [step.used["etcd"] for step in found.steps] == [1.0, 0.5]
    assert [(user.what, user.seconds) for user in found.users] == [("etcd", 1.5)]


def test_what_lies_before_the_clock_starts_is_left_out_but_was_used():
    looks = [look(8, {"7:1": 0.0}, seen=[ETCD]), look(9, {"7:1": 1.0}), look(10, {"7:1": 1.25})]
    found = usage(looks, HOSTS, {}, 9.5)
    assert [user.seconds for user in found.users] == [0.25]
    assert [step.begin for step in found.steps] == [9]


def test_what_the_machine_did_and_no_process_has_is_given_to_none_of_them():
    looks = [look(10, {"7:1": 0.0}, seen=[ETCD], busy=50.0), look(11, {"7:1": 0.5}, busy=51.75)]
    assert usage(looks, HOSTS, {}, 0.0).steps[0].used == {"etcd": 0.5, UNSEEN: 1.25}


def test_the_time_that_something_waited_is_a_share_of_the_step():
    looks = [look(10, {}, stalled=4.0), look(12, {}, stalled=5.0), look(13, {}, stalled=None)]
    assert [step.stalled for step in usage(looks, HOSTS, {}, 0.0).steps] == [0.5, None]


def test_those_that_used_most_come_first_with_all_processes_of_a_name_together():
    second = ["17:1", GROUP, "", "kubelet", "-", ""]
    looks = [look(1, {"7:1": 0.0, "8:1": 0.0, "17:1": 0.0}, seen=[ETCD, KUBELET, second])]
    looks.append(look(2, {"7:1": 0.75, "8:1": 0.5, "17:1": 0.5}))
    users = usage(looks, HOSTS, {"c7": "etcd-n1"}, 0.0).users
    assert [(user.where, user.what, user.seconds, user.processes) for user in users] == [
        ("n1", "kubelet", 1.0, 2),
        ("n1", "etcd in etcd-n1", 0.75, 1),
    ]


def test_what_a_process_waited_is_what_was_added_since_the_first_look_though_its_threads_end():
    looks = [
        look(1, {"7:1": 0.0}, seen=[ETCD], waited={"7:1": 5.0}),
        look(2, {"7:1": 1.0, "9:1": 0.5}, seen=[LATE], waited={"7:1": 7.0, "9:1": 3.0}),
        look(3, {"7:1": 2.0}, waited={"7:1": 6.0}),
    ]
    found = usage(looks, HOSTS, {}, 0.0)
    assert {user.what: user.waited for user in found.users} == {"etcd": 2.0, "kube-proxy": 3.0}


def test_a_host_that_boots_again_begins_at_nothing():
    looks = [look(1, {}, usage=90.0), look(2, {}, usage=None), look(3, {}, usage=0.5), look(4, {}, usage=2.0)]
    assert usage(looks, HOSTS, {}, 0.0).by_host == {"n1": (2.0, 0.0)}
    looks = [look(1, {}, usage=90.0), look(2, {}, usage=0.5), look(3, {}, usage=2.0)]
    assert usage(looks, HOSTS, {}, 0.0).by_host == {"n1": (2.0, 0.0)}


def test_the_report_names_ten_and_says_what_a_hypervisor_took():
    many = [[f"{n}:1", GROUP, "", f"program{n:02}", "-", ""] for n in range(12)]
    looks = [look(1, {key[0]: 0.0 for key in many}, seen=many)]
    looks.append(look(2, {f"{n}:1": 1.0 + n for n in range(12)}, busy=99.0, usage=80.0, stolen=0.5))
    lines = report(usage(looks, HOSTS, {}, 0.0))
    named = [line.rpartition(": ")[2] for line in lines if "n1: " in line]
    assert named == [f"program{n:02}" for n in range(11, 1, -1)]
    assert " 80.00 s  used by host n1, of which processes were seen to use 78.00 s" in lines
    assert "  0.50 s  taken by a hypervisor: other runs will differ" in lines


def test_no_look_is_no_usage():
    assert usage([], HOSTS, {}, 0.0).steps == []
