"""The script that switches the kubelet's generation: each way a trial ends, and what it refuses."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from autarky.control.kubelet.manifests import files
from autarky.control.slots.manifests import NO_LOCK
from unit.control.kubelet.kubelet_scene import FORMER, NEW, ORDER, Node

RESTART = "systemctl restart kubelet"
WAITS = "say wait 'etcd is down'"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def is_back(node: Node, why: str, *, result: str = "back") -> None:
    assert node.current == node.runs == FORMER
    assert (node.result, node.read("result")["why"]) == (result, why)
    assert node.left() == set()


def restarted(node: Node) -> list[str]:
    return [line.removeprefix("systemctl restart ") for line in node.happened() if line.startswith("systemctl restart")]


def test_what_is_proven_stays(node):
    node.ask()
    node.ok("carry-out")
    assert (node.current, node.points_to("previous"), node.runs) == (NEW, FORMER, NEW)
    assert node.read("result") == {
        "order": ORDER,
        "result": "good",
        "generation": NEW,
        "former": FORMER,
        "boot": "first-boot",
        "why": "",
    }
    assert node.left() == set()
    assert restarted(node) == ["kubelet"], "containerd is the same"


def test_all_that_is_renamed_is_synced_before_and_its_directory_after(node):
    """Else a power cut could leave the link without the trial that says that it is one."""
    node.ask()
    node.proves("say unproven")
    node.ok("carry-out")
    happened = [*node.happened(), ""]
    assert "sync reserve" in happened, "else it may take no room yet"
    renames = [at for at, line in enumerate(happened) if line.startswith("mv ")]
    assert len(renames) >= 6
    for at in renames:
        source = happened[at].split()[2]
        assert happened[at - 1] in (f"sync {source}", f"ln -s {NEW} .next", f"ln -s {FORMER} .next")
        assert happened[at + 1] == "sync ."


def test_what_is_asked_for_again_stays_as_it_was_decided(node):
    node.ask()
    node.proves("say unproven")
    node.ok("carry-out")
    before = node.read("result")
    node.happened()
    node.proves("say good")
    node.ask()
    node.ok("carry-out")
    assert (node.read("result"), node.left()) == (before, set())
    assert restarted(node) == []


def test_another_order_is_a_trial_of_its_own(node):
    node.world("journal", "E0801 bad")
    node.ask()
    node.proves("say unproven 'no heartbeat'")
    node.ok("carry-out")
    assert (node.kubelets / "last-words").exists()
    node.proves('say good "" second')
    node.ask(order="second")
    node.ok("carry-out")
    assert (node.current, node.result, node.read("result")["order"]) == (NEW, "good", "second")
    assert not (node.kubelets / "last-words").exists()


def test_without_a_verdict_it_goes_back_at_the_limit(node):
    node.proves("")
    node.ask(limit=30)
    node.ok("carry-out")
    is_back(node, "it was not proven in time")
    assert 1030 <= node.restarted <= 1031
    assert restarted(node) == ["kubelet", "kubelet"]
    assert node.points_to("previous") is None


def test_the_result_says_what_was_missing(node):
    node.proves("say unproven 'its Node is not Ready'")
    node.ask()
    node.ok("carry-out")
    is_back(node, "it was not proven in time: its Node is not Ready")
    assert 1000 + files.LIMIT <= node.restarted <= node.uptime < 1120


@pytest.mark.parametrize("agent", ["say good '' another", "say Good", "echo verdict good >$KUBELETS/verdict"])
def test_only_the_word_good_for_this_order_is_a_proof(node, agent):
    node.proves(agent)
    node.ask(limit=20)
    node.ok("carry-out")
    assert (node.current, node.result) == (FORMER, "back")


def test_a_verdict_from_before_the_trial_is_none(node):
    """It is about the kubelet of before."""
    (node.kubelets / "verdict").write_bytes(files.written({"order": ORDER, "verdict": "good", "uptime": 999}))
    node.proves("")
    node.ask(limit=20)
    node.ok("carry-out")
    assert node.result == "back"


def test_a_kubelet_that_keeps_exiting_is_not_waited_for(node):
    node.world(f"exits-{NEW}", "1")
    node.proves("")
    node.world("journal", "I0801 starting\nE0801 12:00:00 failed to load configuration\nI0801 bye")
    node.ask()
    node.ok("carry-out")
    is_back(node, "the kubelet has exited 3 times")
    assert node.restarted < 1010
    assert (node.kubelets / "last-words").read_text() == "E0801 12:00:00 failed to load configuration\n"
    assert stat.S_IMODE((node.kubelets / "last-words").stat().st_mode) == 0o600


def test_a_kubelet_that_exits_counts_even_if_its_agent_says_good(node):
    node.world(f"exits-{NEW}", "1")
    node.proves('[ "$(cat "$WORLD/exits")" -lt 3 ] || say good')
    node.ask()
    node.ok("carry-out")
    assert node.result == "back"


def test_last_words_are_bounded_and_all_where_none_is_an_error(node):
    node.proves("")
    node.world("journal", "x" * 10_000)
    node.ask(limit=10)
    node.ok("carry-out")
    assert len((node.kubelets / "last-words").read_bytes()) <= 4096


def test_a_verdict_to_wait_stops_the_clock(node):
    node.proves('if [ "$now" -lt 1200 ]; then say wait; elif [ "$now" -ge 1210 ]; then say good; fi')
    node.ask(limit=20)
    node.ok("carry-out")
    assert node.result == "good"


def test_one_that_is_not_renewed_does_not(node):
    node.proves(f'if [ "$now" -lt 1005 ]; then {WAITS}; fi')
    node.ask(limit=20)
    node.ok("carry-out")
    is_back(node, "it was not proven in time: etcd is down")
    assert 1020 + 5 <= node.restarted <= 1020 + 5 + files.WAIT_SECONDS


def test_there_is_a_ceiling_to_waiting(node):
    node.world("pace", "9")
    node.proves(WAITS)
    node.ask(limit=20)
    node.ok("carry-out")
    is_back(node, "it was not proven in time: etcd is down")
    assert 1000 + files.MOST_SECONDS <= node.restarted <= 1000 + files.MOST_SECONDS + 9


@pytest.mark.parametrize("sick", [f"sick-{FORMER}", f"exits-{FORMER}"])
def test_if_the_former_is_not_healthy_either_the_result_says_so(node, sick):
    node.world(sick, "1")
    node.world(f"exits-{NEW}", "1")
    node.ask()
    node.proves("")
    node.ok("carry-out")
    is_back(
        node,
        "the kubelet has exited 3 times; and with the former generation the kubelet is not healthy, either",
        result="failed",
    )


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ("--v=2\n", "failed"),
        ("--healthz-port=7000\n", "back"),
        ("--healthz-port=0\n", "back"),
        ("--healthz-bind-address=10.0.0.1\n", "back"),
    ],
)
def test_the_former_is_healthy_where_it_answers_and_unknown_is_no_failure(node, arguments, result):
    """Nothing answers on the usual port."""
    (node.kubelets / FORMER / "arguments").write_text(arguments)
    node.world("deaf", "10248\n0")
    node.proves("")
    node.ask(limit=10)
    node.ok("carry-out")
    assert node.result == result


def test_health_is_what_the_kubelets_own_port_says(node, healthy_port):
    """With the real bash."""
    (node.root / "shims/bash").unlink()
    (node.kubelets / FORMER / "arguments").write_text(f"--healthz-port={healthy_port}\n")
    node.proves("")
    node.ask(limit=10)
    node.ok("carry-out")
    assert node.result == "back"


class Healthz(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def healthy_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Healthz) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_what_cannot_be_started_is_taken_back_at_once(node):
    node.world(f"unstartable-{NEW}")
    node.ask()
    node.ok("carry-out")
    is_back(node, "it could not be started")
    assert node.restarted == 1000


def test_another_runtime_is_restarted_first_on_both_ways(node):
    node.stage("runtime", runtime="2")
    node.proves("")
    node.ask(generation="runtime")
    node.ok("carry-out")
    assert node.result == "back"
    assert restarted(node) == ["containerd", "kubelet"] * 2


def test_a_runtime_that_does_not_start_is_taken_back(node):
    node.stage("runtime", runtime="2")
    node.world("no-containerd-runtime")
    node.ask(generation="runtime")
    node.ok("carry-out")
    is_back(node, "it could not be started")


# --- what is not carried out -----------------------------------------------------------------------------------


def nothing_was_touched(node: Node) -> None:
    assert node.current == node.runs == FORMER
    assert restarted(node) == []
    assert node.left() == set()


def spoil(path: Path) -> None:
    if path.is_symlink():
        path.resolve().unlink()
    else:
        path.write_bytes(b"")


@pytest.mark.parametrize("name", [*files.PROGRAMS, files.COMPLETE, files.ARGUMENTS, files.CONFIG])
def test_an_incomplete_generation_is_refused(node, name):
    node.stage("third", runtime="3")
    spoil(node.kubelets / "third" / name)
    node.ask(generation="third")
    node.ok("carry-out")
    nothing_was_touched(node)
    assert (node.result, node.read("result")["why"]) == ("refused", "the generation third is not complete")


@pytest.mark.parametrize("content", [b"\x7fELF broken", bytes(4096), b"#!/bin/sh\nexit 3\n", b"#!/nowhere\n"])
@pytest.mark.parametrize("name", files.RUNTIME)
def test_a_runtime_that_cannot_say_its_version_is_refused(node, name, content):
    node.stage("third", runtime="3")
    (node.kubelets / "third" / name).resolve().write_bytes(content)
    node.ask(generation="third")
    node.ok("carry-out")
    nothing_was_touched(node)
    assert (node.result, node.read("result")["why"]) == ("refused", f"its {name} cannot say its version")


def test_the_runtime_that_is_there_already_is_not_asked(node):
    (node.kubelets / NEW / "runc").resolve().write_bytes(b"#!/bin/sh\nexit 3\n")
    node.proves("say good")
    node.ask()
    node.ok("carry-out")
    assert (node.result, node.current) == ("good", NEW)


def test_a_generation_that_says_that_it_is_another_is_incomplete(node):
    (node.kubelets / NEW).rename(node.kubelets / "renamed")
    node.ask(generation="renamed")
    node.ok("carry-out")
    assert node.result == "refused"


@pytest.mark.parametrize("lacks", ["link", "content"])
def test_without_a_way_back_nothing_is_tried(node, lacks):
    if lacks == "link":
        (node.kubelets / "current").unlink()
    else:
        spoil(node.kubelets / FORMER / files.COMPLETE)
    node.ask()
    node.ok("carry-out")
    assert (node.result, node.left(), restarted(node)) == ("refused", set(), [])


@pytest.mark.parametrize(
    "other",
    [
        {"boot": "boot-before"},
        {"uptime": 1000 - files.ASK_SECONDS - 1},
        {"uptime": 1001},
        {"uptime": "soon"},
        {"limit": files.LEAST_SECONDS - 1},
        {"limit": files.MOST_SECONDS + 1},
        {"limit": "-1"},
        {"limit": "090"},
        {"order": "../x"},
        {"order": ""},
        {"generation": "../new"},
        {"generation": "-f"},
    ],
)
def test_an_ask_that_is_stale_or_no_ask_is_dropped_without_a_result(node, other):
    """Whoever asks looks whether it still may: the API server may be of an earlier version by now."""
    node.ask(**other)
    node.ok("carry-out")
    nothing_was_touched(node)
    assert node.result is None


def test_without_an_ask_there_is_nothing_to_do(node):
    node.ok("carry-out")
    nothing_was_touched(node)
    assert node.result is None


def test_a_trial_of_another_order_comes_first(node):
    """And the other ask is still there for the next run."""
    node.ask()
    node.run("carry-out", kill=RESTART)
    assert node.read("trial")["phase"] == "forth"
    node.ask(order="second")
    node.ok("carry-out")
    assert (node.result, node.read("result")["order"], node.left()) == ("good", ORDER, {"ask"})
    node.proves('say good "" second')
    node.ok("carry-out")
    assert (node.read("result")["order"], node.left()) == ("second", set())


def test_two_scripts_do_not_change_it_at_the_same_time(node):
    held = subprocess.Popen(["flock", f"{node.root}/run/kubelet.lock", "sleep", "30"])
    try:
        while subprocess.run(["flock", "-n", f"{node.root}/run/kubelet.lock", "true"], check=False).returncode == 0:
            pass
        script = node.root / "script"
        script.write_text(script.read_text().replace("need_lock -w 20", "need_lock -w 0"))
        done = node.run("switch", NEW)
        assert (done.returncode, node.current) == (NO_LOCK, FORMER)
        assert "nothing was done" in done.stderr
    finally:
        held.kill()
        held.wait()


# --- `switch` and the rest -------------------------------------------------------------------------------------


def test_the_first_generation_needs_no_trial(node):
    (node.kubelets / "current").unlink()
    node.ok("switch", FORMER)
    assert (node.current, node.points_to("previous")) == (FORMER, None)
    node.ok("switch", NEW)
    assert (node.current, node.points_to("previous")) == (NEW, FORMER)
    assert restarted(node) == []


def test_nothing_is_switched_during_a_trial_nor_to_what_is_incomplete(node):
    spoil(node.kubelets / NEW / files.COMPLETE)
    assert node.run("switch", NEW).returncode == 1
    node.stage("third")
    node.ask(generation="third")
    node.run("carry-out", kill=RESTART)
    assert node.run("switch", FORMER).returncode == 1


@pytest.mark.parametrize("arguments", [[], ["start", "hosted"], ["boot", "x"], ["switch"], ["carry-out", "x"], ["x"]])
def test_what_the_script_does_not_know_it_explains(node, arguments):
    done = node.run(*arguments)
    assert done.returncode == 2
    assert "kubelet-slots carry-out" in done.stderr
