"""The script that runs a pod's kubelet in place of the host's: how it takes over, and what gives the lock back.

After each of these `Scene.end` looks whether two kubelets were ever in force.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autarky.control.kubelet.manifests import files
from unit.control.kubelet.hosted_scene import (
    MOST_NOBODY_SECONDS,
    NAMESPACE,
    POD,
    VERSION,
    Scene,
    free_port,
    slots,
    stranger,
    until,
    uptime,
)

Scenes = Callable[..., Scene]


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[Scenes]:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.fail("no mount namespaces here")
    made = []

    def make(**values: object) -> Scene:
        made.append(Scene(tmp_path / "node", values))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    return scenes()


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_away(scene: Scene) -> bool:
    return scene.state == "away" and scene.is_with_host()


def is_waiting(scene: Scene) -> bool:
    return scene.state == "waiting" and scene.is_with_host()


def states(scene: Scene) -> list[str]:
    return [state for state, _, _ in scene.agent.heard]


# --- it takes over ---------------------------------------------------------------------------------------------


def test_it_takes_over_and_the_hosts_waits_for_the_lock(scene: Scene) -> None:
    began = uptime()
    pid = scene.takes_over()
    said = scene.said
    assert began <= int(said.pop("try")) <= int(said.pop("uptime")) <= uptime()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert said.pop("behind") in ("yes", "no"), "no, until it has looked again"
    assert said == {"boot": boot, "pod": POD, "version": VERSION, "state": "proven", "why": ""}
    until(lambda: states(scene) == ["waiting", "proving", "proven"])
    arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    here = [f"--lock-file={scene.lock}", "--healthz-bind-address=127.0.0.1", f"--healthz-port={scene.port}"]
    assert arguments[-4:-1] == here
    assert {"--v=2", f"--config={scene.kubelets}/now/config.json"} <= set(arguments), "as the host's current generation"
    assert max(scene.gaps, default=0.0) < MOST_NOBODY_SECONDS
    mounts = Path(f"/proc/{scene.supervisors[0].pid}/mounts").read_text()
    assert f" {scene.lock} " in mounts, "it cannot be removed there"
    assert (scene.lock.stat().st_mode & 0o777, scene.lock.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_until_it_may_nothing_is_touched(scene: Scene) -> None:
    scene.agent.says = {}
    host = scene.in_force
    scene.supervise()
    until(lambda: scene.state == "waiting")
    first = int(scene.said["uptime"])
    until(lambda: int(scene.said["uptime"]) >= first + 2)  # it says that it lives
    assert (scene.in_force, scene.lock.exists(), scene.systemd.calls) == (host, False, [])


@pytest.mark.parametrize("other", [{"pod": "another"}, {"try": 1}, {"boot": "before"}])
@pytest.mark.parametrize("verdict", ["may", "good"])
def test_a_verdict_of_another_start_is_none(scene: Scene, verdict: str, other: dict[str, object]) -> None:
    scene.agent.says = {} if verdict == "may" else {"waiting": "may"}
    state = "waiting" if verdict == "may" else "proving"
    scene.supervise()
    until(lambda: scene.state == state)
    scene.agent.say(verdict, **other)
    time.sleep(2)
    assert scene.state == state
    assert verdict == "good" or scene.systemd.calls == []


def test_one_that_may_not_start_any_more_waits(scene: Scene) -> None:
    scene.agent.says = {"waiting": "stay"}
    scene.supervise()
    until(lambda: scene.state == "waiting")
    time.sleep(1.5)
    assert is_waiting(scene)


# --- one of them ends --------------------------------------------------------------------------------------------


def test_if_it_is_killed_the_hosts_is_in_force_and_it_comes_back_as_another_try(scene: Scene) -> None:
    first, number = scene.takes_over(), int(scene.said["try"])
    scene.agent.says = {"proving": "good"}
    os.kill(first, signal.SIGKILL)
    until(lambda: is_waiting(scene))
    assert int(scene.said["try"]) == number + 1
    scene.agent.says["waiting"] = "may"
    assert scene.takes_over() != first
    assert max(scene.gaps, default=0.0) < MOST_NOBODY_SECONDS


def test_one_that_is_stopped_or_hangs_is_ended(scene: Scene) -> None:
    first = scene.takes_over()
    os.kill(first, signal.SIGSTOP)
    until(lambda: not alive(first))
    second = scene.takes_over()
    assert {why for _, _, why in scene.agent.heard if why} == {"it has not answered for 4 s"}
    deaf = scene.mark("deaf-hosted")
    until(lambda: not alive(second))
    deaf.unlink()
    until(lambda: is_away(scene))
    assert scene.said["why"] == "it has not answered for 4 s", "the second exit is one too many here"


def test_the_hosts_may_end_at_any_time(scene: Scene) -> None:
    pid = scene.takes_over()
    for how in (signal.SIGKILL, signal.SIGSTOP):
        standby = scene.systemd.pid
        scene.systemd.kill(how)
        until(lambda: scene.systemd.pid not in (0, standby) and scene.is_on_standby(scene.systemd.pid))  # noqa: B023
    began = time.monotonic()
    scene.systemd.restart()
    until(lambda: scene.is_on_standby(scene.systemd.pid))
    assert time.monotonic() - began < 5, "one that waits for the lock is not waited for"
    assert (scene.is_hosted(), scene.in_force) == (True, pid)
    assert max(scene.gaps[1:], default=0.0) < 0.5, "the table of locks is not read in one moment"


def waits_for_the_lock(scene: Scene) -> int:
    """The pid of its kubelet, beside a host's that does not give the lock up."""
    scene.lock.touch()
    scene.mark("stays-host")
    scene.systemd.restart()
    until(scene.is_with_host)
    scene.supervise()
    until(lambda: "--no-block restart kubelet" in scene.systemd.calls)
    return int((scene.root / "run/kubelet-hosted").read_text())


def test_a_host_that_does_not_give_up_the_lock_is_killed(scene: Scene) -> None:
    pid = waits_for_the_lock(scene)
    (scene.world / "stays-host").unlink()
    until(scene.is_hosted)
    assert (scene.in_force, scene.systemd.calls[-1]) == (pid, "kill --signal=KILL kubelet")


def test_it_is_not_killed_for_one_that_has_ended(scene: Scene) -> None:
    pid = waits_for_the_lock(scene)
    scene.agent.says = {}
    os.kill(pid, signal.SIGKILL)
    until(lambda: scene.state == "waiting")
    assert (scene.is_with_host(), scene.systemd.calls[-1]) == (True, "--no-block restart kubelet")


def test_one_that_waits_for_the_lock_is_not_given_time_to_end(scene: Scene) -> None:
    """It does not hear a TERM."""
    pid = waits_for_the_lock(scene)
    began = time.monotonic()
    scene.supervisors[0].terminate()
    scene.supervisors[0].wait()
    assert (time.monotonic() - began < 3.5, alive(pid), scene.is_with_host()) == (True, False, True)


def test_a_killed_supervisor_leaves_a_kubelet_that_the_next_one_ends(scene: Scene) -> None:
    first = scene.takes_over()
    scene.supervisors[0].kill()
    scene.supervisors[0].wait()
    inode = scene.lock.stat().st_ino
    scene.supervise()
    until(lambda: scene.in_force != first and scene.is_hosted())
    assert (alive(first), scene.lock.stat().st_ino) == (False, inode)


def test_two_pods_do_not_run_at_the_same_time(scene: Scene) -> None:
    pid, before = scene.takes_over(), scene.systemd.calls.copy()
    second = scene.supervise()
    time.sleep(1.5)
    assert (scene.in_force, scene.systemd.calls) == (pid, before)
    second.terminate()
    second.wait(5)
    assert scene.said["state"] == "proven", "that is the other one's"
    scene.supervise()
    time.sleep(0.5)
    scene.supervisors[0].terminate()
    scene.supervisors[0].wait(15)
    until(lambda: scene.in_force != pid and scene.is_hosted())


# --- the lock ----------------------------------------------------------------------------------------------------


def test_a_lock_that_was_removed_is_replaced(scene: Scene) -> None:
    first = scene.takes_over()
    scene.lock.unlink()
    until(lambda: scene.in_force != first and scene.is_hosted())
    until(lambda: scene.agent.heard[-1] == ("proven", scene.said["try"], ""))
    assert max(scene.gaps, default=0.0) < MOST_NOBODY_SECONDS
    log = (scene.root / "log").read_text()
    assert "it was replaced" in log


def test_one_that_takes_the_lock_of_the_hosts_is_left_with_the_former_one(scene: Scene) -> None:
    """It was in the queue after its kubelet, and before the host's."""
    scene.takes_over()
    with stranger(scene.lock) as other:
        until(lambda: scene.is_on_standby(other.pid))
        scene.systemd.restart()  # behind the stranger
        until(lambda: scene.is_on_standby(scene.systemd.pid))
        scene.agent.says = {"proving": "good"}
        os.kill(scene.in_force, signal.SIGKILL)
        until(lambda: scene.in_force == 0)
        until(lambda: is_waiting(scene))
        assert other.poll() is None
        scene.agent.says["waiting"] = "may"
        until(scene.is_hosted)


# --- it may not stay ---------------------------------------------------------------------------------------------


def test_when_it_is_terminated_the_hosts_is_in_force(scene: Scene) -> None:
    pid = scene.takes_over()
    scene.supervisors[0].terminate()
    assert scene.supervisors[0].wait(5) == 0
    until(scene.is_with_host)
    assert (alive(pid), scene.said) == (False, {})
    assert max(scene.gaps, default=0.0) < MOST_NOBODY_SECONDS


def test_one_that_is_terminated_as_it_waits_leaves_nothing(scene: Scene) -> None:
    scene.agent.says = {}
    one = scene.supervise()
    until(lambda: scene.state == "waiting")
    one.terminate()
    assert (one.wait(5), scene.said, scene.is_with_host()) == (0, {}, True)


def test_one_that_is_told_to_leave_waits_and_the_hosts_is_in_force(scene: Scene) -> None:
    scene.takes_over()
    number = int(scene.said["try"])
    for state, says in (("proven", {"proven": "leave"}), ("proving", {"waiting": "may", "proving": "leave"})):
        scene.agent.says = says
        until(lambda: int(scene.said.get("try", 0)) > number)  # noqa: B023
        scene.agent.says = {}
        until(lambda: is_waiting(scene))
        assert state in states(scene)
        number = int(scene.said["try"])


def test_it_stays_where_no_kubelet_of_the_hosts_would_be_in_force(scene: Scene) -> None:
    pid = scene.takes_over()
    exits = scene.mark("exits-host")
    scene.systemd.kill(signal.SIGKILL)
    scene.agent.says = {"proven": "leave"}
    until(lambda: scene.said["why"] == "the host's kubelet does not wait for the lock")
    time.sleep(2)
    assert (scene.in_force, scene.state) == (pid, "proven")
    exits.unlink()
    until(lambda: is_waiting(scene))


def test_one_that_nobody_judges_steps_aside_and_has_not_failed(scenes: Scenes) -> None:
    scene = scenes(limit=3, wait_seconds=2, most_exits=1)
    scene.agent.says = {"waiting": "may"}
    scene.supervise()
    until(lambda: scene.state == "proving")
    scene.agent.says = {}
    until(lambda: is_waiting(scene))
    assert scene.said["why"] == ""
    scene.agent.says = {"waiting": "may", "proving": "good"}
    scene.takes_over()


def test_a_kubelet_of_the_hosts_that_is_slow_to_start_is_not_started_again(scenes: Scenes) -> None:
    scene = scenes(start_seconds=40)
    slow, began, silent = scene.mark("slow-host"), time.monotonic(), 0
    scene.supervise()
    until(lambda: "restart kubelet" in scene.systemd.calls)
    while time.monotonic() < began + 23:  # more than has to do where it has come to the lock
        silent = max(silent, uptime() - int(scene.said["uptime"]))
        time.sleep(0.2)
    assert (scene.systemd.calls, scene.state) == (["restart kubelet"], "waiting")
    slow.unlink()
    until(scene.is_hosted)
    assert scene.systemd.calls == ["restart kubelet", "--no-block restart kubelet"]
    assert silent <= 3, "it is not taken for one that has ended"


@pytest.mark.parametrize("name", ["ask", "trial"])
def test_it_steps_aside_while_the_hosts_generation_changes(scene: Scene, name: str) -> None:
    pid = scene.takes_over()
    (scene.kubelets / name).touch()
    until(lambda: is_waiting(scene))
    time.sleep(1.5)
    assert (is_waiting(scene), alive(pid)) == (True, False), "also where it is allowed"
    (scene.kubelets / name).unlink()
    scene.takes_over()


def test_a_change_that_begins_during_its_trial_is_no_fault_of_its_own(scene: Scene) -> None:
    scene.agent.says = {"waiting": "may"}
    scene.supervise()
    for _ in range(3):
        until(lambda: scene.state == "proving" and scene.in_force != scene.systemd.pid)
        (scene.kubelets / "trial").touch()
        until(lambda: is_waiting(scene))
        (scene.kubelets / "trial").unlink()


# --- it fails ----------------------------------------------------------------------------------------------------


def fails(scene: Scene, words: str = "") -> None:
    (scene.root / f"pods/kube-system_kubelet_{POD}/kubelet/0.log").write_text(
        f"2026-11-29T08:00:00Z stderr F I1129 08:00:00 starting\n2026-11-29T08:00:00Z stderr F {words}\n"
    )
    scene.supervise()


def test_one_whose_arguments_are_wrong_never_touches_the_hosts(scene: Scene) -> None:
    scene.mark("exits-hosted")
    fails(scene, "Error: unknown flag: --no")
    until(lambda: scene.lock.exists() and scene.is_with_host())
    until(lambda: is_away(scene))
    assert scene.said["why"] == "it did not come to wait for the lock: Error: unknown flag: --no"
    assert scene.systemd.calls == ["restart kubelet"], "that is for it to wait for the lock, which there was not before"
    until(lambda: states(scene) == ["waiting", "proving"] * 2 + ["away"])
    scene.agent.say("may")
    time.sleep(1.5)
    assert is_away(scene), "it is not tried again"


def test_one_that_exits_again_and_again_is_given_up(scene: Scene) -> None:
    scene.mark("dies-hosted")
    scene.agent.says = {"waiting": "may"}
    fails(scene, "E1129 08:00:00.1 1 run.go:72] err=no disk")
    until(lambda: is_away(scene))
    assert scene.said["why"] == "it has exited: E1129 08:00:00.1 1 run.go:72] err=no disk"
    assert len({number for _, number, _ in scene.agent.heard}) == 2


def test_exits_of_long_ago_do_not_count(scenes: Scenes) -> None:
    scene = scenes(forget_seconds=1)
    for _ in range(2):
        pid = scene.takes_over()
        time.sleep(3.5)
        os.kill(pid, signal.SIGKILL)
        until(lambda: scene.in_force != pid)  # noqa: B023
    scene.takes_over()


def test_one_that_is_not_proven_in_time_is_away_at_once(scenes: Scenes) -> None:
    scene = scenes(limit=3)
    scene.agent.says, scene.agent.why = {"waiting": "may", "proving": "unproven"}, "its Node is not Ready"
    began = time.monotonic()
    scene.supervise()
    until(lambda: is_away(scene))
    assert scene.said["why"] == "it was not proven in time: its Node is not Ready"
    assert time.monotonic() - began > 3
    assert len({number for _, number, _ in scene.agent.heard}) == 1


def test_while_the_api_is_away_the_clock_stands_still_and_in_the_end_it_is_the_hosts_turn(scenes: Scenes) -> None:
    """Which says nothing of the pod's: it waits for another try."""
    scene = scenes(limit=3, ceiling=6)
    scene.agent.says = {"proving": "wait"}
    scene.supervise()
    until(lambda: scene.state == "waiting")
    first = scene.said["try"]
    scene.agent.say("may")
    until(lambda: scene.state == "proving")
    began = time.monotonic()
    until(lambda: scene.said["try"] != first)
    assert time.monotonic() - began > 5
    until(scene.is_with_host)
    assert (scene.state, scene.said["why"]) == ("waiting", "")


def test_what_allowed_a_start_a_while_ago_allows_none(scene: Scene) -> None:
    (scene.kubelets / "ask").touch()
    scene.agent.says, scene.agent.kept_fresh = {"waiting": "may", "proving": "good"}, ()
    scene.supervise()
    until(lambda: scene.state == "waiting")
    time.sleep(5)
    (scene.kubelets / "ask").unlink()
    time.sleep(3)
    assert scene.state == "waiting"
    scene.agent.say("may")
    until(scene.is_hosted)


def test_a_hosts_that_somebody_has_stopped_is_started(scene: Scene) -> None:
    scene.takes_over()
    scene.systemd.stop()
    until(lambda: scene.systemd.pid and scene.is_on_standby(scene.systemd.pid))
    scene.systemd.stop()
    scene.supervisors[-1].terminate()
    until(scene.is_with_host)


def test_where_the_hosts_does_not_wait_for_the_lock_the_pods_gives_way(scene: Scene) -> None:
    """Two would be in force: somebody has given kubelet.service a command of their own."""
    scene.takes_over()
    scene.may_be_two = True
    scene.systemd.command = [str(scene.root / "kubelet/now/kubelet")]
    scene.systemd.kill(signal.SIGKILL)
    until(lambda: "the host's kubelet does not wait for the lock" in (scene.root / "log").read_text())


def test_arguments_cannot_take_the_lock_away(scene: Scene) -> None:
    arguments = scene.kubelets / "now/arguments"
    given = arguments.read_text()
    arguments.write_text(f"{given}--exit-on-lock-contention=true\n--lock-file=/tmp/other\n")
    scene.takes_over()
    for pid in (scene.systemd.pid, int((scene.root / "run/kubelet-hosted").read_text())):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        assert [one for one in words if "lock" in one] == [f"--lock-file={scene.lock}"]


def test_a_verdict_to_wait_counts_while_it_is_fresh(scenes: Scenes) -> None:
    scene = scenes(limit=2, ceiling=600)
    scene.agent.says = {"waiting": "may", "proving": "wait"}
    scene.supervise()
    until(lambda: scene.state == "proving")
    time.sleep(4)
    assert scene.state == "proving"
    scene.agent.says = {}
    until(lambda: is_waiting(scene))


# --- the host's, while it is in force ----------------------------------------------------------------------------


def test_the_hosts_is_killed_where_it_hangs(scene: Scene) -> None:
    scene.agent.says = {}
    scene.supervise()
    until(lambda: scene.state == "waiting")
    hangs, deaf = scene.systemd.pid, scene.mark("deaf-host")
    until(lambda: not alive(hangs))
    deaf.unlink()
    until(scene.is_with_host)


@pytest.mark.parametrize("argument", ["--healthz-port=0", "--healthz-port={port}", "--healthz-bind-address=127.0.0.2"])
def test_one_that_answers_elsewhere_is_not(scene: Scene, argument: str) -> None:
    scene.agent.says = {}
    scene.generation("now", argument.format(port=free_port()) + "\n")
    scene.systemd.restart()
    scene.supervise()
    until(lambda: scene.state == "waiting")
    time.sleep(9)
    assert scene.systemd.calls == []


# --- the host's, where it does not start -------------------------------------------------------------------------


def breaks(scene: Scene) -> None:
    """The host's, behind the pod's in force: as by a drop-in of somebody's."""
    scene.mark("exits-host")
    scene.systemd.kill(signal.SIGKILL)
    until(lambda: scene.said["behind"] == "gone")


def test_it_says_whether_the_hosts_waits_behind_it(scene: Scene) -> None:
    scene.takes_over()
    until(lambda: scene.said["behind"] == "yes")
    breaks(scene)
    (scene.world / "exits-host").unlink()
    until(lambda: scene.said["behind"] == "yes")


def test_while_it_waits_it_says_whether_the_hosts_runs_at_all(scene: Scene) -> None:
    """Which has the lock then, and does not wait for it."""
    last = scene.takes_over()
    breaks(scene)
    scene.agent.says, said = {}, set()
    os.kill(last, signal.SIGKILL)
    until(lambda: scene.state == "waiting")
    for _ in range(150):  # whenever it is looked at: the host's is started all the time
        said.add(scene.said["behind"])
        time.sleep(0.02)
    assert said == {"gone"}
    (scene.world / "exits-host").unlink()
    until(lambda: scene.said["behind"] == "no")
    assert scene.is_with_host()


def test_one_that_is_slow_to_come_to_the_lock_is_not_there_yet_and_has_its_time(scenes: Scenes) -> None:
    scene = scenes(start_seconds=12)
    last = scene.takes_over()
    breaks(scene)
    scene.agent.says = {}
    slow, exits = scene.mark("slow-host"), scene.world / "exits-host"
    os.kill(last, signal.SIGKILL)
    exits.unlink()
    until(lambda: scene.state == "waiting" and scene.systemd.pid)
    pid = scene.systemd.pid
    time.sleep(6)  # more than one that hangs gets
    assert (scene.systemd.pid, scene.said["behind"]) == (pid, "gone")
    slow.unlink()
    until(lambda: scene.said["behind"] == "no")
    assert scene.in_force == pid


def test_no_change_of_the_hosts_generation_ends_it_where_no_kubelet_would_be_left(scene: Scene) -> None:
    pid = scene.takes_over()
    breaks(scene)
    scene.generation("next", "--v=3\n")
    order = {
        "order": "0" * 16,
        "generation": "next",
        "boot": scene.said["boot"],
        "limit": files.LEAST_SECONDS,
        "uptime": uptime(),
    }
    (scene.kubelets / "ask").write_bytes(files.written(order))
    time.sleep(3)  # the supervisor sees it
    slots(scene, "carry-out")
    assert not (scene.kubelets / "ask").exists(), "it is dropped, and nothing has been tried"
    assert (scene.in_force, scene.state, (scene.kubelets / "current").readlink().name) == (pid, "proven", "now")
    (scene.world / "exits-host").unlink()
    until(lambda: scene.is_on_standby(scene.systemd.pid))
    (scene.kubelets / "ask").write_bytes(files.written(order | {"uptime": uptime()}))
    argv = [str(scene.root / "slots"), "carry-out"]
    with subprocess.Popen(argv, env=scene.environment, start_new_session=True) as script:
        try:
            until((scene.kubelets / "trial").exists)
            until(lambda: (scene.kubelets / "current").readlink().name == "next")
        finally:
            os.killpg(script.pid, signal.SIGKILL)


def test_where_the_hosts_does_not_start_it_starts_without_it_however_often_it_ends(scene: Scene) -> None:
    """Two exits are too many here where the host's is there."""
    last = scene.takes_over()
    breaks(scene)
    for _ in range(3):
        os.kill(last, signal.SIGKILL)
        until(lambda: scene.in_force not in (0, last), 60)  # noqa: B023
        until(lambda: scene.state == "proven")
        last = scene.in_force
        assert last == int((scene.root / "run/kubelet-hosted").read_text())
    (scene.world / "exits-host").unlink()
    until(scene.is_hosted)


@pytest.mark.parametrize("says", ["unproven", "leave", ""])
def test_one_that_is_all_there_is_goes_on_whatever_is_said_of_it(scenes: Scenes, says: str) -> None:
    """Nobody can prove it, it may not be in force any more, or nobody says anything: no kubelet would be worse."""
    scene = scenes(limit=6, ceiling=12, wait_seconds=8)
    first = scene.takes_over()
    breaks(scene)
    scene.agent.says = {"waiting": "may", "proving": says}
    os.kill(first, signal.SIGKILL)
    until(lambda: scene.state == "proving" and scene.in_force not in (0, first), 60)
    pid = scene.in_force
    time.sleep(15)
    assert (scene.in_force, scene.state, scene.said["behind"]) == (pid, "proving", "gone")
    (scene.world / "exits-host").unlink()
    until(lambda: is_away(scene) if says == "unproven" else is_waiting(scene) or scene.in_force != pid)


def test_what_has_waited_for_the_lock_for_long_asks_again(scenes: Scenes) -> None:
    """Meanwhile it may not any more."""
    scene = scenes(start_seconds=40)
    slow = scene.mark("slow-host")
    scene.supervise()
    until(lambda: "restart kubelet" in scene.systemd.calls)
    scene.agent.says = {"waiting": "stay"}
    time.sleep(1)
    slow.unlink()
    until(lambda: int(scene.said["try"]) > 0 and is_waiting(scene))
    time.sleep(3)
    assert is_waiting(scene)
    assert "proving" not in states(scene)
