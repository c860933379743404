"""The script killed between any two writes, and the machine restarted there: never an unproven kubelet afterwards."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from autarky.control.kubelet.manifests import files
from unit.control.kubelet.kubelet_scene import FORMER, NEW, Node

Prepare = Callable[[Node], None]


def is_proven(node: Node) -> None:
    node.proves("say good")


def keeps_exiting(node: Node) -> None:
    node.proves("")
    node.world(f"exits-{NEW}", "3")
    node.program("journalctl", 'echo "E0801 $(cat "$WORLD/runs")"')


WAYS = [is_proven, keeps_exiting]


def asked(root: Path, prepare: Prepare) -> Node:
    root.mkdir()
    node = Node(root)
    prepare(node)
    node.ask(limit=10)
    return node


def cuts(tmp_path: Path, prepare: Prepare) -> Iterator[tuple[int, Node]]:
    """The same node killed right before each call that changes something."""
    uncut = asked(tmp_path / "uncut", prepare)
    uncut.ok("carry-out")
    calls = uncut.calls()
    assert calls > 25
    for call in range(1, calls + 1):
        node = asked(tmp_path / str(call), prepare)
        assert node.run("carry-out", kill=call).returncode == -signal.SIGKILL
        yield call, node
        shutil.rmtree(node.root)


def over(node: Node) -> None:
    """As systemd does: again, for as long as there is an ask."""
    for _ in range(3):
        if (node.kubelets / "ask").exists():
            node.ok("carry-out")
    assert [name for name in node.left() if not name.startswith(".")] == [], "besides what was never renamed"


@pytest.mark.parametrize("prepare", WAYS)
def test_a_killed_script_goes_on_to_the_same_end(tmp_path, prepare):
    for call, node in cuts(tmp_path, prepare):
        over(node)
        wanted = (NEW, NEW, "good") if prepare is is_proven else (FORMER, FORMER, "back")
        assert (node.current, node.runs, node.result) == wanted, call
        assert node.points_to("previous") == (FORMER if prepare is is_proven else None), call
        if prepare is keeps_exiting:
            assert (node.kubelets / "last-words").read_text() == f"E0801 {NEW}\n", call


@pytest.mark.parametrize("prepare", WAYS)
def test_after_a_restart_of_the_machine_only_what_is_proven_starts(tmp_path, prepare):
    ends = set()
    for call, node in cuts(tmp_path, prepare):
        tried, over_before = (node.kubelets / "trial").exists(), node.read("result")
        node.restarts()
        node.ok("boot")
        started = node.started()
        assert started == node.current == (NEW if node.result == "good" else FORMER), call
        if tried:
            assert node.result in ("good", "back"), call
        before = node.read("result")
        assert over_before in ({}, before), f"{call}: an order with a result is over"
        over(node)
        assert (node.current, node.read("result")) == (started, before), f"{call}: an ask of another boot is none"
        ends.add(node.result)
    assert ends == {None, "good", "back"} if prepare is is_proven else {None, "back"}


def test_the_machine_restarts_again_and_again(tmp_path):
    """At each write of `boot` itself."""
    node = asked(tmp_path / "one", is_proven)
    node.run("carry-out", kill="systemctl restart kubelet")
    assert node.current == NEW
    for call in count(1):
        node.restarts()
        killed = node.run("boot", kill=call).returncode == -signal.SIGKILL
        assert node.started() == FORMER, call
        if not killed:
            break
    assert call > 5
    assert (node.current, node.result) == (FORMER, "back")


@pytest.mark.parametrize("verb", ["boot", "carry-out"])
def test_the_reason_is_that_of_the_way_back_if_it_had_begun(tmp_path, verb):
    node = asked(tmp_path / "one", keeps_exiting)
    node.run("carry-out", kill="systemctl restart kubelet")
    node.restarts()
    node.ok(verb)
    assert node.read("result")["why"] == "the machine restarted before it was proven"
    assert node.read("result")["boot"] == node.boot_id, "who asked in another one sees that it was interrupted"
    node = asked(tmp_path / "two", keeps_exiting)
    node.run("carry-out", kill=f"ln -s {FORMER} {node.kubelets}/.next")
    trial = node.read("trial")
    assert trial["phase"] == "back"
    node.restarts()
    node.ok(verb)
    assert node.read("result")["why"] == "the kubelet has exited 3 times"
    assert node.read("result")["boot"] == trial["boot"] != node.boot_id, "the restart has interrupted nothing"


def test_boot_touches_no_trial_of_its_own_boot(tmp_path):
    """systemd restarts the kubelet for it, and this comes before its start."""
    node = asked(tmp_path / "one", is_proven)
    node.run("carry-out", kill="systemctl restart kubelet")
    node.ok("boot")
    assert (node.current, node.left() - {".next"}) == (NEW, {"trial", "ask", "reserve"})


def test_boot_does_not_wait_for_a_script_that_waits_for_the_kubelet(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    node.run("carry-out", kill="systemctl restart kubelet")
    with Held(node):
        node.ok("boot")
        assert node.started() == NEW
    node.ok("carry-out")
    assert node.result == "good"


def test_boot_looks_again_once_it_has_waited_for_another_that_goes_back(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    node.run("carry-out", kill="systemctl restart kubelet")
    node.restarts()
    (tmp_path / "one/run").mkdir()
    trial = {**node.read("trial"), "order": "second", "boot": node.boot_id}
    (tmp_path / "second").write_bytes(files.written(trial))
    with Held(node, f"sleep 2; mv {tmp_path}/second {node.kubelets}/trial"):
        node.ok("boot")
    assert (node.read("trial")["order"], node.result, node.current) == ("second", None, NEW)


class Held:
    """The script's lock, by another process."""

    def __init__(self, node: Node, does: str = "exec sleep 60") -> None:
        self.command = ["flock", "--no-fork", f"{node.root}/run/kubelet.lock", "sh", "-c", f"echo; {does}"]

    def __enter__(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


# --- `start` -----------------------------------------------------------------------------------------------------


def test_the_kubelet_gets_the_arguments_of_its_generation_as_they_are(tmp_path):
    node = Node(tmp_path)
    (node.kubelets / FORMER / "arguments").write_text("--a=b c\n--d=$HOME\\n 'e'\n\n--last=x")
    bootstrap = f"--bootstrap-kubeconfig={tmp_path}/etc/bootstrap-kubelet.conf"
    config = f"--config={node.kubelets}/{FORMER}/config.json"
    given = ["--a=b c", "--d=$HOME\\n 'e'", "", "--last=x"]
    assert node.ok("start").splitlines() == [FORMER, config, bootstrap, *given]


KEY, AGENT = "etc/pki/ca.key", "etc/manifests/node-agent-standby-1.json"
KUBECONFIG, CERTIFICATE = "etc/kubelet.conf", "pki/kubelet-client-current.pem"
EMBEDDED, BY_PATH = "client-certificate-data: x", "client-certificate: x"


@pytest.mark.parametrize(
    ("there", "needed"),
    [
        ({KEY: "k", AGENT: "{}", KUBECONFIG: EMBEDDED}, False),
        ({KEY: "k", AGENT: "{}", KUBECONFIG: BY_PATH, CERTIFICATE: "pem"}, False),
        ({AGENT: "{}", KUBECONFIG: EMBEDDED}, True),
        ({KEY: "k", KUBECONFIG: EMBEDDED}, True),
        ({KEY: "k", AGENT: "{}"}, True),
        ({KEY: "k", AGENT: "{}", KUBECONFIG: ""}, True),
        ({KEY: "k", AGENT: "{}", KUBECONFIG: BY_PATH}, True),
        ({KEY: "k", AGENT: "{}", KUBECONFIG: BY_PATH, CERTIFICATE: ""}, True),
    ],
)
def test_a_bootstrap_kubeconfig_only_where_no_agent_gives_it_certificates(tmp_path, there, needed):
    node = Node(tmp_path)
    for name, content in there.items():
        (tmp_path / name).write_text(content)
    assert any(line.startswith("--bootstrap-kubeconfig=") for line in node.ok("start").splitlines()) == needed


@pytest.mark.parametrize("lacks", ["link", "arguments"])
def test_a_kubelet_never_starts_without_its_arguments(tmp_path, lacks):
    """It would run pods of its own, apart from any cluster."""
    node = Node(tmp_path)
    (node.kubelets / ("current" if lacks == "link" else f"{FORMER}/arguments")).unlink()
    done = node.run("start")
    assert (done.returncode, done.stdout) == (1, "")


def test_an_unproven_kubelet_that_nobody_looks_after_is_taken_back_after_some_starts(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    node.stage("runtime", runtime="2")
    node.ask(generation="runtime")
    node.run("carry-out", kill="systemctl restart kubelet")
    assert [node.started() for _ in range(5)] == ["runtime"] * 5
    node.happened()
    assert node.started() == FORMER
    assert (node.current, node.result, node.left() - {".next"}) == (FORMER, "back", set())
    assert "nobody looked after it" in node.read("result")["why"]
    assert [line for line in node.happened() if "systemctl" in line] == ["systemctl restart --no-block containerd"]


def test_starts_are_not_counted_while_it_is_looked_after_nor_without_a_trial(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    assert {node.started() for _ in range(7)} == {FORMER}
    node.run("carry-out", kill="systemctl restart kubelet")
    assert {node.started() for _ in range(4)} == {NEW}
    with Held(node):
        assert {node.started() for _ in range(7)} == {NEW}
    assert {node.started() for _ in range(4)} == {NEW}, "counted from the beginning"


def test_the_kubelet_does_not_inherit_the_lock(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    node.run("carry-out", kill="systemctl restart kubelet")
    (node.kubelets / NEW / "kubelet").resolve().write_text("#!/bin/sh\nls /proc/$$/fd\n")
    assert "9" not in node.ok("start").split()


# --- a full disk -------------------------------------------------------------------------------------------------

# The node's directory as a file system of its own: 64 pages, which `fill` leaves some of. Copied back at the end.
SMALL = """\
set -eu
mount -t tmpfs -o size=512k none "$MNT"
cp -a "$KUBELETS/." "$MNT"
mount --bind "$MNT" "$KUBELETS"
case "$LEFT" in *later) ;; *) . "$WORLD/fill" ;; esac
"$@" || status=$?
rm -f "$KUBELETS/filler"
umount "$KUBELETS"
rm -f "$KUBELETS/ask" "$KUBELETS/trial"
cp -a "$MNT/." "$KUBELETS"
exit "${status-0}"
"""
FILL = """\
cat /dev/zero >"$KUBELETS/filler" 2>/dev/null || :
truncate -s "-${LEFT%later}" "$KUBELETS/filler"
"""


def on_a_full_disk(node: Node, left: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    node.world("fill", FILL)
    (node.root / "mnt").mkdir(exist_ok=True)
    node.environment |= {"MNT": f"{node.root}/mnt", "LEFT": left}
    own = ("unshare", "--user", "--map-root-user", "--mount")
    done = node.run(*arguments, within=(*own, "sh", "-c", SMALL, "sh"))
    for name in ("mnt", "filler"):
        shutil.rmtree(node.root / name, ignore_errors=True)
    return done


def test_on_a_disk_without_room_for_the_result_nothing_is_begun(tmp_path):
    """The reserve does not fit; the result does."""
    node = asked(tmp_path / "one", is_proven)
    done = on_a_full_disk(node, "16384", "carry-out")
    assert (done.returncode, node.result) == (0, "refused"), done.stderr
    assert node.read("result")["why"] == "the disk is full"
    assert (node.current, node.runs, node.left()) == (FORMER, FORMER, set())


def test_on_a_disk_without_any_room_the_ask_stays_and_is_dropped_once_stale(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    done = on_a_full_disk(node, "0", "carry-out")
    assert (done.returncode, node.result, node.current) == (1, None, FORMER)
    assert node.uptime == 1005, "systemd starts it again at once"
    assert "ask" in node.left()
    assert "trial" not in node.left()
    node.world("uptime", f"{1000 + files.ASK_SECONDS + 1}.00 1")
    assert on_a_full_disk(node, "0", "carry-out").returncode == 0
    assert (node.result, node.left() & {"ask", "trial"}) == (None, set())


def test_a_disk_that_fills_up_during_a_trial_does_not_hold_up_the_way_back(tmp_path):
    node = asked(tmp_path / "one", is_proven)
    node.world("journal", "E0801 no space left on device")
    node.proves('. "$WORLD/fill"')
    done = on_a_full_disk(node, "0later", "carry-out")
    assert done.returncode == 0, done.stderr
    assert (node.current, node.runs, node.result, node.left()) == (FORMER, FORMER, "back", set())
    assert (node.kubelets / "last-words").exists()


def test_a_result_that_cannot_be_written_restarts_no_kubelet(tmp_path):
    """Each run of the script would, in phase back."""
    node = asked(tmp_path / "one", keeps_exiting)
    real = (tmp_path / "one/shims/sync").read_text()
    node.program(
        "sync", f'case "$1" in *.result) [ "$(cut -d. -f1 "$WORLD/uptime")" -ge 1200 ] || exit 1 ;; esac\n{real}'
    )
    node.ok("carry-out")
    assert (node.result, node.current) == ("back", FORMER)
    assert len([line for line in node.happened() if line == "systemctl restart kubelet"]) == 2


def test_what_cannot_be_written_at_boot_starts_the_former_all_the_same(tmp_path):
    """As on a file system that is read-only after an error."""
    node = asked(tmp_path / "one", is_proven)
    node.run("carry-out", kill="systemctl restart kubelet")
    node.restarts()
    node.program("ln", "exit 1")
    assert node.run("boot").returncode != 0
    assert (node.current, node.started()) == (NEW, FORMER)
