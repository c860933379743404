"""What a move of etcd looks at on a control node, by bash, with a `ctr` of the test's own and processes of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from autarky.phases.migration import looking
from autarky.programs import program

_CTR = """\
#!/bin/bash
cd "${0%/*}"
case $3.$4 in
tasks.ls) cat tasks ;;
containers.ls) # -q FILTER: both labels must match
  while read -r labels name; do [ "$labels" != "$6" ] || echo "$name"; done <containers ;;
*) exit 1 ;;
esac
"""


class Node:
    """Containers are by namespace and name, and run that command line."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self._root, self._stack = root, stack
        self._standby = root / "standby"
        self._standby.mkdir()
        (root / "ctr").write_text(_CTR)
        (root / "ctr").chmod(0o755)
        (root / "tasks").write_text("TASK    PID    STATUS\n")
        (root / "containers").write_text("")

    def runs(self, namespace: str, name: str, *argv: str, status: str = "RUNNING") -> subprocess.Popen[bytes]:
        sleeps = [sys.executable, "-c", "import sys; sys.stdin.read()", *argv]
        process = self._stack.enter_context(subprocess.Popen(sleeps, stdin=subprocess.PIPE))
        self._stack.callback(process.kill)
        labels = f'labels."io.kubernetes.pod.namespace"=={namespace},labels."io.kubernetes.container.name"=={name}'
        with (self._root / "containers").open("a") as file:
            file.write(f"{labels} c{process.pid}\n")
        with (self._root / "tasks").open("a") as file:
            file.write(f"c{process.pid}    {process.pid}    {status}\n")
        return process

    def would_run(self, text: str) -> None:
        (self._standby / "pod.json").write_text(text)

    def said(self, *step: str, timeout: float = 30) -> list[str]:
        script = program(looking.__file__, "look.sh", bin=self._root, standby=self._standby)
        done = subprocess.run(
            ["bash", "-c", script, "look", *step], capture_output=True, text=True, check=True, timeout=timeout
        )
        return done.stdout.splitlines()

    def breaks(self) -> None:
        (self._root / "ctr").write_text("#!/bin/sh\nexit 1\n")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with ExitStack() as stack:
        yield Node(tmp_path, stack)


def dials(url: str) -> Sequence[str]:
    return ("--secure-port=6443", f"--etcd-servers={url}", "--v=1")


def test_what_api_servers_of_the_control_plane_and_the_standby_dial_is_listed(node: Node) -> None:
    node.runs("kube-system", "kube-apiserver", *dials("https://10.0.0.9:2379,https://10.0.0.8:2379"))
    node.would_run('{"command": [\n  "--v=1",\n  "--etcd-servers=https://127.0.0.1:2378",\n]}')
    assert node.said("dialled") == ["https://10.0.0.9:2379,https://10.0.0.8:2379", "https://127.0.0.1:2378"]


def test_a_process_of_somebody_elses_pod_is_none_of_them(node: Node) -> None:
    """It would choose the etcd that is asked, and that the control nodes join."""
    node.runs("default", "kube-apiserver", *dials("http://10.0.0.66:2379"))
    node.runs("kube-system", "kube-scheduler", *dials("http://10.0.0.67:2379"))
    assert node.said("dialled") == []


def test_one_that_has_ended_dials_nothing(node: Node) -> None:
    node.runs("kube-system", "kube-apiserver", *dials("https://10.0.0.9:2379"), status="STOPPED")
    assert node.said("dialled") == []


@pytest.mark.parametrize("step", ["dialled", "ended"])
def test_containers_that_cannot_be_listed_are_not_absent(node: Node, step: str) -> None:
    node.breaks()
    with pytest.raises(subprocess.CalledProcessError):
        node.said(step)


def test_somebody_elses_etcd_is_not_waited_for(node: Node) -> None:
    node.runs("default", "etcd")
    assert node.said("ended", timeout=5) == []


def test_a_member_that_runs_is_waited_for(node: Node) -> None:
    node.runs("kube-system", "etcd")
    with pytest.raises(subprocess.TimeoutExpired):
        node.said("ended", timeout=3)


def test_only_api_servers_of_the_control_plane_that_dial_another_etcd_are_ended(node: Node) -> None:
    wanted = "https://127.0.0.1:2378"
    former = node.runs("kube-system", "kube-apiserver", *dials("https://10.0.0.9:2379"))
    stay = [
        node.runs("kube-system", "kube-apiserver", *dials(wanted)),
        node.runs("theirs", "kube-apiserver", *dials("https://10.0.0.66:2379")),
        node.runs("kube-system", "kube-scheduler"),
    ]
    assert node.said("end", wanted) == []
    assert former.wait(timeout=10) < 0
    assert [one.poll() for one in stay] == [None] * 3


def test_the_standbys_files_are_found_where_they_stay_when_the_next_checkpoint_comes(tmp_path: Path) -> None:
    current = tmp_path / "current"
    for revision, below in (("r1", "files"), ("r2", "files/pki")):
        (tmp_path / revision / below).mkdir(parents=True)
        (tmp_path / revision / below / "etcd-client.crt").touch()
    found = []
    for revision in ("r1", "r2"):
        current.unlink(missing_ok=True)
        current.symlink_to(tmp_path / revision)
        command = looking._FILES.replace(looking.STANDBY, str(current))
        found.append(
            Path(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip())
        )
    assert found == [tmp_path / "r1/files", tmp_path / "r2/files/pki"]
