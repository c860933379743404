"""A node with two kubelets, and the script that runs the one of a pod in place of the host's, for real by sh.

Locks, processes, signals, the mount of the lock and time are real; systemd, the kubelets and the node's agent are the
test's own. A kubelet locks its --lock-file as the real one does, which hears no TERM while it waits there, and then
takes a second lock as the one in force: who does not get that soon (a process that ends releases both, in any order)
is one of two.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, RLock, Thread
from typing import Any

from autarky import places
from autarky.control import kubelet
from autarky.control.kubelet.manifests import files
from autarky.model import ports
from autarky.programs import program

POD, VERSION = "b3f1-77", "v1.36.4"
NAMESPACE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
KUBELET = """\
#!{python} -IS
import fcntl, os, signal, socket, sys, time
world, version, host_port, port = {world!r}, {version!r}, {host_port}, {port}
if sys.argv[1:] == ["--version"]:
    sys.exit(print("Kubernetes", version))
options = dict(one[2:].partition("=")[::2] for one in sys.argv[1:])
own = int(options.get("healthz-port", host_port))
slot = "hosted" if own == port else "host"
has = lambda what: os.path.exists(f"{{world}}/{{what}}-{{slot}}")
if has("exits"):
    sys.exit("Error: unknown flag: --no")
force = os.open(f"{{world}}/in-force", os.O_RDWR | os.O_CREAT)
if "lock-file" in options:
    while has("slow"):
        time.sleep(0.1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fcntl.flock(os.open(options["lock-file"], os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if has("stays") else signal.SIG_DFL)
for last in (*[False] * 50, True):
    try:
        fcntl.flock(force, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except OSError:
        time.sleep(0.01)
    if last:
        open(f"{{world}}/two", "w").write(slot)
server = socket.create_server((options.get("healthz-bind-address", "127.0.0.1"), own))
server.settimeout(0.1)
since = time.monotonic()
while not (has("dies") and time.monotonic() > since + 0.3):
    try:
        one, _ = server.accept()
    except TimeoutError:
        continue
    if not has("deaf"):
        one.recv(99)
        one.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nok")
        one.close()
"""
SYSTEMCTL = """\
#!{python} -IS
import socket, sys
with socket.create_connection(("127.0.0.1", {port})) as one:
    one.sendall(" ".join(sys.argv[1:]).encode() + b"\\n")
    status, _, said = one.makefile().read().partition(" ")
print(said, end="")
sys.exit(int(status))
"""


MOST_NOBODY_SECONDS = 3.0
"""How long nobody is in force at a hand-over: much less, and one that waits for a TERM to be heard takes longer."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@dataclass
class Systemd:
    """kubelet.service. calls: of systemctl that change something."""

    command: list[str]
    stop_command: list[str]
    environment: Mapping[str, str]
    calls: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _wanted: bool = False
    _jobs: RLock = field(default_factory=RLock)
    _over: Event = field(default_factory=Event)

    def serve(self) -> int:
        """The port that its systemctl asks."""
        systemd = self

        class Request(StreamRequestHandler):
            def handle(self) -> None:
                status, said = systemd.asked(self.rfile.readline().decode().split())
                self.wfile.write(f"{status} {said}".encode())

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Request)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        Thread(target=self._restarts, daemon=True).start()
        return int(self._server.server_address[1])

    def end(self) -> None:
        self._over.set()
        self._wanted = False
        self.kill(signal.SIGKILL)  # who waits for it to stop has the lock
        with self._jobs:
            self.kill(signal.SIGKILL)
            if self._process is not None:
                self._process.wait()
        self._server.shutdown()
        self._server.server_close()

    @property
    def pid(self) -> int:
        one = self._process
        return one.pid if one is not None and one.poll() is None else 0

    def kill(self, with_signal: signal.Signals) -> None:
        if pid := self.pid:
            os.kill(pid, with_signal)

    def asked(self, words: list[str]) -> tuple[int, str]:
        if words[0] not in ("show", "is-active"):
            self.calls.append(" ".join(words))
        match words:
            case ["show", "kubelet", "--property=MainPID", "--value"]:
                return 0, f"{self.pid}\n"
            case ["show", "kubelet", "--property=NRestarts", "--value"]:
                return 0, "0\n"
            case ["is-active", *quiet, "kubelet"]:
                state = "active" if self.pid else "activating" if self._wanted else "inactive"
                return (0 if self.pid else 3), "" if quiet else f"{state}\n"
            case ["reset-failed", "kubelet"]:
                return 0, ""
            case ["kill", "--signal=KILL", "kubelet"]:
                self.kill(signal.SIGKILL)
            case ["--no-block", "restart" | "start" as verb, "kubelet"]:
                Thread(target=getattr(self, verb), daemon=True).start()
            case ["restart" | "stop" | "start" as verb, "kubelet"]:
                getattr(self, verb)()
            case _:
                return 1, ""
        return 0, ""

    def start(self) -> None:
        with self._jobs:
            self._wanted = True
            if not self.pid and not self._over.is_set():
                self._process = subprocess.Popen(
                    self.command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )

    def stop(self) -> None:
        with self._jobs:
            self._wanted = False
            if (one := self._process) is not None and self.pid:
                subprocess.run([*self.stop_command, str(one.pid)], env=self.environment, check=False)
                self.kill(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    one.wait(60)
                self.kill(signal.SIGKILL)
                one.wait()

    def restart(self) -> None:
        with self._jobs:
            self.stop()
            self.start()

    def _restarts(self) -> None:
        while not self._over.wait(0.1):
            with self._jobs:
                if self._wanted:
                    self.start()


@dataclass
class Agent:
    """What it says to each state of a try: nothing where there is no word for it. heard: state, try and why."""

    kubelets: Path
    says: dict[str, str] = field(default_factory=lambda: {"waiting": "may", "proving": "good"})
    why: str = ""
    heard: list[tuple[str, str, str]] = field(default_factory=list)
    kept_fresh: tuple[str, ...] = ("may", "wait", "unproven")
    _said: tuple[str, str, str] | None = None

    def look(self) -> None:
        one = read(self.kubelets / "hosted")
        if not one:
            return
        state, number = one["state"], one["try"]
        if (state, number, one["why"]) not in self.heard[-1:]:
            self.heard.append((state, number, one["why"]))
        verdict = self.says.get(state, "")
        if verdict and ((state, number, verdict) != self._said or verdict in self.kept_fresh):
            self._said = (state, number, verdict)
            self.say(verdict)

    def say(self, verdict: str, **other: object) -> None:
        one = read(self.kubelets / "hosted")
        said = {key: one[key] for key in ("boot", "pod", "try")}
        (self.kubelets / ".said").write_bytes(
            files.written({**said, "verdict": verdict, "uptime": uptime(), "why": self.why, **other})
        )
        (self.kubelets / ".said").rename(self.kubelets / "hosted-verdict")


def read(path: Path) -> dict[str, str]:
    try:
        return files.parse(path.read_bytes())
    except FileNotFoundError:
        return {}


def uptime() -> int:
    return int(float(Path("/proc/uptime").read_text().split()[0]))


@dataclass
class Scene:
    """The host's kubelet runs, as it does before there is a lock. values: with which the script is rendered."""

    root: Path
    values: dict[str, object] = field(default_factory=dict)
    supervisors: list[subprocess.Popen[bytes]] = field(default_factory=list)
    may_be_two: bool = False
    gaps: list[float] = field(default_factory=list)
    """How long nobody was in force, each time."""

    def __post_init__(self) -> None:
        for name in ("kubelet", "store", "run", "world", "shims", "image", f"pods/kube-system_kubelet_{POD}/kubelet"):
            (self.root / name).mkdir(parents=True)
        self.port, self.host_port = free_port(), free_port()
        for path in ("image/kubelet", "store/kubelet"):
            self._program(path, KUBELET.format(world=str(self.world), version=VERSION, **self._ports(), **_PYTHON))
        for name in files.RUNTIME:
            self._program(f"store/{name}", "#!/bin/sh\n")
        self.generation("now")
        (self.kubelets / "current").symlink_to("now")
        slots = self.moved(files.script().content.decode())
        port = f"hosted_port={ports.KUBELET_HOSTED_HEALTH}"
        self._program("slots", slots.replace(port, f"hosted_port={self.port}"))
        self._program("hosted", self._rendered())
        environment = os.environ | {"PATH": f"{self.root}/shims:{os.environ['PATH']}", "POD_UID": POD}
        self.environment = environment
        slots_path = str(self.root / "slots")
        self.systemd = Systemd([slots_path, "start"], [slots_path, "stop"], environment)
        self._program("shims/systemctl", SYSTEMCTL.format(port=self.systemd.serve(), **_PYTHON))
        self.agent = Agent(self.kubelets)
        (self.world / "in-force").touch()
        self._over = Event()
        self.systemd.start()
        until(lambda: self.in_force)
        self._watch = Thread(target=self._look, daemon=True)
        self._watch.start()

    @property
    def kubelets(self) -> Path:
        return self.root / "kubelet"

    @property
    def world(self) -> Path:
        return self.root / "world"

    @property
    def lock(self) -> Path:
        return self.root / "run" / Path(files.LOCK).name

    def generation(self, name: str, arguments: str = "--v=2\n") -> None:
        (self.kubelets / name).mkdir(exist_ok=True)
        for program_ in files.PROGRAMS:
            if not (link := self.kubelets / name / program_).is_symlink():
                link.symlink_to(f"../../store/{program_}")
        (self.kubelets / name / files.CONFIG).write_text("{}\n")
        (self.kubelets / name / files.ARGUMENTS).write_text(arguments)
        (self.kubelets / name / files.COMPLETE).write_bytes(files.written({"generation": name}))

    def moved(self, text: str) -> str:
        for path, name in ((files.KUBELETS, "kubelet"), (places.RUN, "run"), (places.PKI, "pki")):
            text = text.replace(path, f"{self.root}/{name}")
        return text

    def _ports(self) -> dict[str, int]:
        return {"host_port": self.host_port, "port": self.port}

    def _rendered(self) -> str:
        usual: dict[str, object] = {
            "kubelets": self.kubelets,
            "run": self.root / "run",
            "lock": self.lock,
            "slots": self.root / "slots",
            "image_path": self.root / "image/kubelet",
            **self._ports(),
            "most_exits": 2,
            "limit": 30,
            "ceiling": 60,
            "wait_seconds": 3,
            "beat_seconds": 1,
            "look_seconds": 1,
            "hung_seconds": 4,
            "start_seconds": 8,
            "forget_seconds": 600,
        }
        text = program(kubelet.__file__, "kubelet-hosted.sh", **usual | self.values)
        return text.replace("/var/log/pods", f"{self.root}/pods")

    def _program(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)
        (self.root / path).chmod(0o755)

    def mark(self, name: str) -> Path:
        """How kubelets of a slot behave: exits (at once), slow (to come to the lock, as
        long as the mark is there), dies (soon), deaf, stays (whatever TERM says)."""
        (self.world / name).touch()
        return self.world / name

    # --- the supervisor ---

    def supervise(self) -> subprocess.Popen[bytes]:
        """It is the first process of its container itself."""
        start = ["sh", "-c", 'exec sh "$0" $$', str(self.root / "hosted")]
        log = (self.root / "log").open("ab")
        one = subprocess.Popen([*NAMESPACE, *start], env=self.environment, stdout=log, stderr=log)
        log.close()
        self.supervisors.append(one)
        return one

    def takes_over(self) -> int:
        """The pid of its kubelet, once that is proven."""
        if not self.supervisors:
            self.supervise()
        until(self.is_hosted)
        return self.in_force

    def is_hosted(self) -> bool:
        """And the host's is on standby."""
        now = self.in_force
        is_own = now != 0 and now == _number(self.root / "run/kubelet-hosted")
        return is_own and self.state == "proven" and self.is_on_standby(self.systemd.pid)

    def is_with_host(self) -> bool:
        return self.systemd.pid != 0 and self.in_force == self.systemd.pid

    @property
    def said(self) -> dict[str, str]:
        return read(self.kubelets / "hosted")

    @property
    def state(self) -> str:
        return self.said.get("state", "")

    # --- the locks ---

    @property
    def in_force(self) -> int:
        """The pid; 0 where none is."""
        return next(iter(_locks(self.world / "in-force")), 0)

    def is_on_standby(self, pid: int) -> bool:
        return pid in _locks(self.lock, waiting=True)

    def _look(self) -> None:
        nobody_since = None
        while not self._over.wait(0.02):
            self.agent.look()
            if self.in_force:
                if nobody_since is not None:
                    self.gaps.append(time.monotonic() - nobody_since)
                nobody_since = None
            elif nobody_since is None:
                nobody_since = time.monotonic()

    def end(self) -> None:
        self._over.set()
        self._watch.join()
        children = [_number(self.root / "run/kubelet-hosted")]
        for one in self.supervisors:
            one.kill()
            one.wait()
        self.systemd.end()
        for pid in {*children, *_locks(self.world / "in-force"), *_locks(self.lock), *_locks(self.lock, waiting=True)}:
            with suppress(ProcessLookupError):
                if pid > 1 and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
        assert self.may_be_two or not (self.world / "two").exists(), "two kubelets were in force at the same time"


_PYTHON = {"python": sys.executable}


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _locks(path: Path, *, waiting: bool = False) -> list[int]:
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return []
    arrow = "-> " if waiting else ""
    return [
        int(found)
        for found in re.findall(
            rf"^\d+: *{arrow}FLOCK +ADVISORY +WRITE (\d+) \S+:{inode} ", Path("/proc/locks").read_text(), re.MULTILINE
        )
    ]


def slots(scene: Scene, *arguments: str) -> None:
    """The script that switches the host's kubelet."""
    subprocess.run([scene.root / "slots", *arguments], env=scene.environment, check=True, timeout=60)


@contextmanager
def stranger(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody who wants the lock, too."""
    one = subprocess.Popen(["flock", str(path), "sleep", "600"], start_new_session=True)
    try:
        yield one
    finally:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
