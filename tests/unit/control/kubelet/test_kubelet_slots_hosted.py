"""The script that starts and switches the host's kubelet, beside that of a pod: the lock, and who steps aside."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autarky.control.kubelet.manifests import files
from unit.control.kubelet.hosted_scene import MOST_NOBODY_SECONDS, NAMESPACE, Scene, read, slots, until, uptime
from unit.control.kubelet.kubelet_scene import FORMER, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.fail("no mount namespaces here")
    one = Scene(tmp_path / "node", {"most_exits": 1})
    yield one
    one.end()


# --- how it is started -------------------------------------------------------------------------------------------


def lock_of(node: Node, *arguments: str) -> list[str]:
    said = node.ok("start", *arguments).splitlines()
    return [one.removeprefix(f"--lock-file={node.root}/run/") for one in said if one.startswith("--lock-file=")]


def test_it_has_a_lock_as_soon_as_another_one_may_run_in_this_boot(node: Node) -> None:
    """One that does not wait for it would run beside the pod's; without a pod none opens a file that nobody needs."""
    name = Path(files.LOCK).name
    assert lock_of(node) == []
    (node.kubelets / "hosted").write_bytes(files.written({"boot": "boot-before"}))
    assert lock_of(node) == []
    (node.kubelets / "hosted").write_bytes(files.written({"boot": node.boot_id}))
    assert lock_of(node) == [name]
    (node.kubelets / "hosted").unlink()
    (node.root / "run" / name).touch()
    assert lock_of(node) == [name]
    (node.kubelets / FORMER / "arguments").write_text("--v=2\n--lock-file=/other\n--healthz-port=9")
    assert node.ok("start").splitlines()[-1] == f"--lock-file={node.root}/run/{name}", "the last one counts"


def test_that_of_a_pod_has_the_hosts_settings_and_a_port_of_its_own(node: Node) -> None:
    (node.root / "run" / Path(files.LOCK).name).touch()
    (node.kubelets / FORMER / "arguments").write_text("--v=2\n--healthz-port=9\n")
    program = node.root / "store/of-the-pod"
    program.write_text('#!/bin/sh\nprintf "%s\\n" hosted "$@"\n')
    program.chmod(0o755)
    host, hosted = node.ok("start").splitlines(), node.ok("start", "hosted", str(program)).splitlines()
    assert (host[0], hosted[0]) == (FORMER, "hosted")
    assert hosted[1:] == [*host[1:], "--healthz-bind-address=127.0.0.1", "--healthz-port=10247"]


# --- who ends ----------------------------------------------------------------------------------------------------


def test_the_hosts_is_ended_at_once_only_where_it_waits_for_the_lock(scene: Scene) -> None:
    in_force, standby = scene.takes_over(), scene.systemd.pid
    slots(scene, "stop", str(in_force))
    slots(scene, "stop", str(standby))
    until(lambda: scene.systemd.pid not in (0, standby))
    assert scene.in_force == in_force


def test_it_says_who_has_the_lock_and_who_waits_for_it(scene: Scene) -> None:
    in_force, standby = scene.takes_over(), scene.systemd.pid

    def says(pid: int) -> str:
        argv = [str(scene.root / "slots"), "lock", str(pid)]
        return subprocess.run(argv, env=scene.environment, check=True, capture_output=True, text=True).stdout

    assert [says(pid) for pid in (in_force, standby, os.getpid(), 2**22 + 1)] == ["held\n", "awaited\n", "", ""]


def test_everybodys_locks_are_not_read(scene: Scene) -> None:
    """A pod may have hundreds of thousands, and reading them takes minutes then."""
    reads = scene.world / "reads"
    grep = scene.root / "shims/grep"
    grep.write_text(f'#!/bin/sh\ncase "$*" in */proc/locks*) touch {reads} ;; esac\nexec /bin/grep "$@"\n')
    grep.chmod(0o755)
    pid, standby = scene.takes_over(), scene.systemd.pid
    scene.systemd.restart()
    until(lambda: scene.is_on_standby(scene.systemd.pid))
    scene.systemd.kill(signal.SIGSTOP)
    until(lambda: scene.systemd.pid != standby and scene.is_on_standby(scene.systemd.pid))
    assert (scene.in_force, reads.exists()) == (pid, False)


def test_no_settings_are_switched_with_no_trial_beside_that_of_a_pod(scene: Scene) -> None:
    scene.generation("next", "--v=3\n")
    scene.takes_over()
    scene.systemd.stop()  # as it looks to who asks for the host's alone
    argv = [str(scene.root / "slots"), "switch", "next"]
    assert subprocess.run(argv, env=scene.environment, check=False).returncode == 1
    assert (scene.kubelets / "current").readlink().name == "now"
    slots(scene, "hosted")
    scene.supervisors[0].terminate()
    scene.supervisors[0].wait(15)
    assert subprocess.run([argv[0], "hosted"], env=scene.environment, check=False).returncode == 1
    slots(scene, "switch", "next")
    assert (scene.kubelets / "current").readlink().name == "next"


def test_that_of_a_pod_steps_aside(scene: Scene) -> None:
    pid = scene.takes_over()
    slots(scene, "aside")
    until(scene.is_with_host)
    assert max(scene.gaps, default=0.0) < MOST_NOBODY_SECONDS
    slots(scene, "aside")
    assert (scene.is_with_host(), scene.in_force != pid) == (True, True), "there is none"


def test_who_has_its_number_by_now_is_left_alone(scene: Scene) -> None:
    """The host's kubelet, or anything else."""
    for said in (str(scene.in_force), str(os.getpid()), "1", "-1", "", "0", "x"):
        (scene.root / "run/kubelet-hosted").write_text(f"{said}\n")
        slots(scene, "aside")
    assert scene.is_with_host()


def test_one_that_is_stopped_is_killed(scene: Scene) -> None:
    pid = scene.takes_over()
    scene.supervisors[0].kill()  # it would do it, too
    os.kill(pid, signal.SIGSTOP)
    slots(scene, "aside")
    until(scene.is_with_host)


def asked(scene: Scene) -> subprocess.Popen[bytes]:
    """The script that carries a change out."""
    scene.generation("next", f"--v=3\n--healthz-port={scene.host_port}\n")
    scene.generation("now", f"--v=2\n--healthz-port={scene.host_port}\n")
    boot = scene.said["boot"]
    ask = {"order": "0f", "generation": "next", "boot": boot, "uptime": uptime(), "limit": 10}
    (scene.kubelets / "ask").write_bytes(files.written(ask))
    return subprocess.Popen([scene.root / "slots", "carry-out"], env=scene.environment)


def test_a_change_does_not_wait_for_its_supervisor(scene: Scene) -> None:
    scene.takes_over()
    scene.supervisors[0].kill()
    script = asked(scene)
    until(scene.is_with_host)
    (scene.kubelets / "verdict").write_bytes(files.written({"order": "0f", "verdict": "good", "uptime": uptime()}))
    assert script.wait(40) == 0
    assert (scene.is_with_host(), (scene.kubelets / "current").readlink().name) == (True, "next")


@pytest.mark.parametrize(("verdict", "current"), [("good", "next"), ("", "now")])
def test_the_hosts_next_generation_is_proven_by_itself_and_the_pods_comes_back(
    scene: Scene, verdict: str, current: str
) -> None:
    first = scene.takes_over()
    script = asked(scene)
    until(lambda: read(scene.kubelets / "trial").get("phase") == "proving")
    until(lambda: scene.state != "proven")
    time.sleep(1.5)
    assert (scene.is_with_host(), scene.state) == (True, "waiting"), (
        "the host's is judged, and the pod's has not failed"
    )
    assert b"--v=3" in Path(f"/proc/{scene.in_force}/cmdline").read_bytes()
    if verdict:
        (scene.kubelets / "verdict").write_bytes(files.written({"order": "0f", "verdict": verdict, "uptime": uptime()}))
    assert script.wait(40) == 0
    until(lambda: scene.is_hosted() and scene.in_force != first)
    assert (scene.kubelets / "current").readlink().name == current
    assert (f"--v={3 if current == 'next' else 2}\0").encode() in Path(f"/proc/{scene.in_force}/cmdline").read_bytes()
