"""Driving autarky as a user does: the command line, on lab clusters of the tests' own.

Everything lies below a state directory of its own, at a fixed place, so that what a killed run left is
found and cleaned by the next, and a user's clusters are never touched. The component store is shared.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol
from unittest.mock import patch

from autarky.hosts import LabHost
from autarky.lab import Lab
from autarky.lab.tools import DIE_WITH_US
from autarky.payload import default_version, find_binary, load_release
from cases.claims import claim

STATE = Path.home() / ".local/state/autarky-tests"
LANE = os.environ.get("AUTARKY_LANE", "")
"""Ends the names of clusters: scenarios of two checkouts that have the same ones run side by side."""
COMMAND = [sys.executable, "-m", "autarky"]
UP_SECONDS = 600.0
KUBECTL_SECONDS = 120.0
LONGEST_PAUSE = 2.0
AS_A_CLIENT = (*DIE_WITH_US, "nice", "-n", "-10")
"""The beginning of the command line of a client that measures. It goes before everything else here, as one with a
processor of its own would: on a busy machine it would measure how long its own handshakes wait for one."""
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
Show = Callable[[str], None]


class Tree(Protocol):
    """Another checkout, whose commands are run (`earlier`): how they begin, and what they need in the environment."""

    @property
    def command(self) -> list[str]: ...

    @property
    def variables(self) -> dict[str, str]: ...


def environment(tree: Tree | None = None) -> dict[str, str]:
    of_tree = {} if tree is None else tree.variables
    return {**os.environ, "XDG_STATE_HOME": str(STATE), "NO_COLOR": "1", **of_tree}


@cache
def kubectl_of_the_default_version() -> str:
    found = find_binary(load_release(default_version()), "kubectl")
    assert found is not None, "kubectl is not in the store: `autarky payload get`"
    return str(found.path)


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str


@dataclass
class Announcement:
    """The test itself does something that clients may notice; in Unix seconds."""

    since: float
    until: float = math.inf


@dataclass
class TestCluster:
    """One cluster by its name; its file is written from a dict. tree: whose commands drive it, if not this one's."""

    __test__ = False
    up_seconds: ClassVar[float] = UP_SECONDS
    kubectl_seconds: ClassVar[float] = KUBECTL_SECONDS
    """For each command. More where the machines are slow (`vm.ClusterOnMachine`)."""
    name: str
    spec: Mapping[str, Any]
    tree: Tree | None = None
    directory: Path = field(init=False)
    announcements: list[Announcement] = field(default_factory=list, init=False, repr=False)
    before_it_goes: Callable[[], None] | None = field(default=None, init=False, repr=False)
    """What is to be looked at before it is taken down, whoever does that first. It goes whatever that raises."""

    def __post_init__(self) -> None:
        self.directory = STATE / "autarky/clusters" / self.name

    @property
    def file(self) -> Path:
        path = STATE / f"{self.name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "apiVersion": "autarky.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": self.name},
            "spec": self.spec,
        }
        path.write_text(json.dumps(document))
        return path

    # --- commands ---

    @property
    def command(self) -> list[str]:
        return COMMAND if self.tree is None else self.tree.command

    def autarky(self, *argv: str, timeout: float | None = None, check: bool = True) -> Ended:
        done = subprocess.run(
            [*self.command, *argv],
            env=environment(self.tree),
            capture_output=True,
            text=True,
            timeout=timeout or self.up_seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"autarky {' '.join(argv)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
            )
        return Ended(done.returncode, done.stdout, done.stderr)

    def up(self, *argv: str, check: bool = True) -> Ended:
        return self.autarky("up", "-f", str(self.file), "-o", "plain", *argv, check=check)

    def down(self) -> None:
        """Take it down, and whatever a killed run left of its lab; nothing that another run works on. Every scenario
        begins with it."""
        claim(self.name, STATE)
        known, lab = self.directory / "cluster.json", STATE / "autarky/labs" / self.name / "lab.json"
        try:
            if self.before_it_goes is not None and (known.exists() or lab.exists()):
                self.before_it_goes()
        finally:
            if known.exists():
                self.autarky("down", "-f", str(self.file), "--yes", "-o", "plain", timeout=self.kubectl_seconds)
            if lab.exists():
                self.autarky("lab", "down", self.name, timeout=120)

    def cut_at_once(self, *hosts: str) -> None:
        """Their power, as `autarky lab cut` does it, without its start: in that second the state goes by that was
        waited for. Until somebody says otherwise clients may notice."""
        self.announce()
        with patch.dict(os.environ, environment()):
            asyncio.run(Lab.open(self.name).cut(*hosts))

    def kubectl(
        self, *argv: str, stdin: str | None = None, check: bool = True, variables: Mapping[str, str] | None = None
    ) -> str:
        """What it says on standard output. `variables`: of its environment, beside the usual ones."""
        done = subprocess.run(
            [*self._kubectl, *argv],
            env={**environment(self.tree), **(variables or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=self.kubectl_seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(argv)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    @property
    def _kubectl(self) -> list[str]:
        """Where there is one API server to ask, the program that `autarky kubectl` looks up, with the file that it
        would give to it: scenarios ask thousands of times, and to look takes the processor for longer than to ask."""
        if self.tree is not None or len(self.spec.get("nodes", ())) != 1:
            return [*self.command, "kubectl", "--cluster", self.name]
        return [kubectl_of_the_default_version(), f"--kubeconfig={self.directory}/kubeconfig"]

    def kubectl_error(self, *argv: str) -> str:
        """What a command that may fail says on standard error; empty when it did not fail."""
        done = subprocess.run(
            [*self._kubectl, *argv],
            env=environment(self.tree),
            capture_output=True,
            text=True,
            timeout=self.kubectl_seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.stderr if done.returncode else ""

    def shell(self, host: str, command: str) -> str:
        """As `autarky lab shell` does it, without its start."""
        found = json.loads((STATE / "autarky/labs" / self.name / "lab.json").read_text())["hosts"][host]
        entered = LabHost(host, found["pid"], found["start_time"], address=found["address"])
        argv = entered.command(["sh", "-c", command])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{command} on {host} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Also of a cluster that is not well, where the command ends with more than 0."""
        ended = self.autarky("status", "--cluster", self.name, "-o", "json", check=False)
        if not ended.stdout:
            raise AssertionError(f"autarky status ended with {ended.status}: {ended.stderr}")
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    # --- announcing ---

    def announce(self) -> Announcement:
        """From now on clients may notice what the test does; until it, or `announcements_end`, says otherwise."""
        self.announcements.append(Announcement(time.time()))
        return self.announcements[-1]

    @contextmanager
    def announced(self, tail: float) -> Iterator[None]:
        """The same for a block and so many seconds after it."""
        announcement = self.announce()
        try:
            yield
        finally:
            announcement.until = time.time() + tail

    def announcements_end(self) -> None:
        for announcement in self.announcements:
            announcement.until = min(announcement.until, time.time())

    # --- looking ---

    def wait(self, what: str, condition: Any, seconds: float = 60, *, pause: float = 0.3) -> None:
        """Until `condition()` is true; fails with its last value. pause: seconds between two looks, or as long as a
        look has taken, `LONGEST_PAUSE` at most: on a busy machine they would take the processors from what is waited
        for. A look that takes longer has waited itself, for a machine that is off."""
        deadline = time.monotonic() + seconds
        last = None
        while (began := time.monotonic()) < deadline:
            last = condition()
            if last:
                return
            time.sleep(max(pause, min(LONGEST_PAUSE, time.monotonic() - began)))
        raise AssertionError(f"waited {seconds:.0f} s until {what}; last seen: {last!r}")

    def api_answers(self) -> bool:
        """kubectl's own patience with a server that is off is 30 s: who waits would look twice in a minute."""
        return self.kubectl("get", "--raw", "/readyz", "--request-timeout=5s", check=False) == "ok"

    def host_process(self, host: str) -> int:
        """The host's first process, as this machine sees it."""
        lab = json.loads((STATE / "autarky/labs" / self.name / "lab.json").read_text())
        return int(lab["hosts"][host]["pid"])

    def has_host(self, host: str) -> bool:
        """Whether its test host is there already: the first `up` makes it."""
        lab = STATE / "autarky/labs" / self.name / "lab.json"
        return lab.exists() and "pid" in json.loads(lab.read_text())["hosts"].get(host, {})

    def static_pods(self, host: str) -> list[str]:
        return sorted(self.shell(host, "ls /etc/kubernetes/manifests").split())

    @contextmanager
    def probed(
        self, seconds: float = 1800, *, inside: str | None = None, rate: float = 200
    ) -> Iterator[list[dict[str, Any]]]:
        """Probe the API during the block; the report is in the list afterwards, with what was `announced`. Fails when
        the probe, which lasts for `seconds`, has ended before the block. `inside`: from that host, through its own load
        balancer. `rate`: requests a second. The probe is this tree's, whose ever the cluster is."""
        reports: list[dict[str, Any]] = []
        argv = [*COMMAND, "bench", "probe", "--cluster", self.name, "-o", "json", f"--rate={rate}"]
        if inside is not None:
            network = ["nsenter", f"--target={self.host_process(inside)}", "--net", "--"]
            argv = [*network, *argv, "--server", "https://127.0.0.1:6443"]
        argv = [*AS_A_CLIENT, *argv, "--", "sleep", str(seconds)]
        process = subprocess.Popen(
            argv,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            # The probe starts its command when all its streams run: on a busy machine that takes seconds.
            self.wait("the probe runs", lambda: _children(process.pid) or process.poll() is not None)
            assert process.poll() is None, f"the probe did not begin: {process.communicate()[1]}"
            yield reports
            # It asks while its command runs, and lives on for seconds without asking.
            assert _children(process.pid), "the probe's load has ended before what it was to watch"
            report = _report_of(process)
        finally:  # nothing here may hide why the block has failed
            _end_probe(process)
        reports.append({**report, "announced": [(each.since, each.until) for each in self.announcements]})
        self.announcements_end()  # what nobody ended was meant for this probe


def _report_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """End a probe that still asks, and read what it says."""
    _end_children(process)
    stdout, stderr = process.communicate(timeout=60)
    assert stdout, stderr
    report: dict[str, Any] = json.loads(stdout)
    assert report["command_status"] == -signal.SIGTERM, "the probe's load has ended before what it was to watch"
    return report


def _end_probe(process: subprocess.Popen[str]) -> None:
    """Whatever state it is in; in order if it can, so that it leaves no objects behind."""
    if process.poll() is not None:
        return
    _end_children(process)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _end_children(process: subprocess.Popen[str]) -> None:
    """The `sleep`, and so the probe."""
    for child in _children(process.pid):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def one_node(**spec: Any) -> dict[str, Any]:
    return {"nodes": [{"name": "n1", "host": "lab"}], **spec}


def _begun(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *argv],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_when(argv: Sequence[str], happened: Callable[[], object]) -> int:
    """Start the command and SIGKILL it when this returns; its status (negative when it was killed)."""
    process = _begun(argv)
    try:
        happened()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def kill_at(argv: Sequence[str], seconds: float) -> int:
    """Start the command and SIGKILL it after some seconds; its status (negative when it was killed)."""
    process = _begun(argv)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()
