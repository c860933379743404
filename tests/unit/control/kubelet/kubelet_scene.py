"""A node's disk with two generations of its kubelet, and the script that switches them, run for real by sh.

systemd, the journal, the kubelets and time are programs of the test's own, in front of the real ones in PATH: `sleep`
moves the clock on and then lets `agent` (a piece of shell) act; what a kubelet does depends on the generation that is
current as systemd restarts it. Each call of a program that changes something is counted, and the script with all that
it has started is killed (as by a power cut) right before one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from autarky import places
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.kubelet.manifests import files

CHANGING = ("head", "ln", "mv", "rm", "sync", "systemctl")
FORMER, NEW = "former", "new"
ORDER = "0123456789abcdef"

# A kubelet that exits is counted since `reset-failed`, at each look.
SYSTEMCTL = """\
case "$1 $2" in
"restart kubelet")
  readlink "$KUBELETS/current" >"$WORLD/runs"
  cp "$WORLD/uptime" "$WORLD/restarted"
  [ ! -e "$WORLD/unstartable-$(cat "$WORLD/runs")" ] ;;
"restart containerd") [ ! -e "$WORLD/no-containerd-$(readlink "$KUBELETS/current")" ] ;;
"reset-failed kubelet") echo 0 >"$WORLD/exits" ;;
"show kubelet")
  exits=$(cat "$WORLD/exits")
  if [ -e "$WORLD/exits-$(cat "$WORLD/runs")" ]; then exits=$((exits + $(cat "$WORLD/exits-$(cat "$WORLD/runs")"))); fi
  echo "$exits" | tee "$WORLD/exits" ;;
"is-active --quiet") [ ! -e "$WORLD/sick-$(cat "$WORLD/runs")" ] ;;
esac
"""
SLEEP = """\
read -r now _ <"$WORLD/uptime"
now=$((${now%%.*} + $1 * $(cat "$WORLD/pace")))
echo "$now.50 1.00" >"$WORLD/uptime"
. "$WORLD/agent"
"""
SHIM = """\
case "$1" in show | is-active) ;; *)
read -r calls <"$WORLD/calls"
calls=$((calls + 1))
echo "$calls" >"$WORLD/calls"
case "$KILL" in "$calls" | "${0##*/} $*") kill -9 "-$GROUP" 0 ;; esac
echo "${0##*/} $*" >>"$WORLD/log" ;;
esac
"""
SAYS = """\
say() {
  printf 'order %s\\nverdict %s\\nuptime %s\\nwhy %s\\n' "${3-$ORDER}" "$1" "$now" "${2-}" \\
    >"$KUBELETS/.said" && /bin/mv "$KUBELETS/.said" "$KUBELETS/verdict"
}
grep -q '^phase proving' "$KUBELETS/trial" 2>/dev/null || return 0
"""
PROVES = "say good"


@dataclass
class Node:
    """FORMER is current; NEW has another kubelet, and the same runtime."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("kubelet", "run", "world", "shims", "store", "etc/pki", "etc/manifests", "pki"):
            (self.root / name).mkdir(parents=True)
        for name in CHANGING:
            self.program(name, SHIM + (SYSTEMCTL if name == "systemctl" else f'exec {shutil.which(name)} "$@"\n'))
        self.program("sleep", SLEEP)
        self.program("journalctl", 'cat "$WORLD/journal"')
        self.program("bash", 'grep -qsx "$3" "$WORLD/deaf" || echo "HTTP/1.0 200 OK"')
        for name, content in {"runs": FORMER, "exits": "0", "calls": "0", "journal": "", "pace": "1"}.items():
            self.world(name, content)
        self.world("uptime", "1000.50 1.00")
        self.world("boot_id", "first-boot")
        self.proves(PROVES)
        self.environment = {
            "PATH": f"{self.root}/shims:{os.environ['PATH']}",
            "WORLD": f"{self.root}/world",
            "KUBELETS": str(self.kubelets),
            "ORDER": ORDER,
            "KILL": "",
        }
        (self.root / "script").write_text(self.moved(files.script().content.decode()))
        for name in (FORMER, NEW):
            self.stage(name)
        (self.kubelets / "current").symlink_to(FORMER)

    @property
    def kubelets(self) -> Path:
        return self.root / "kubelet"

    def program(self, name: str, text: str) -> None:
        path = self.root / "shims" / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)

    def world(self, name: str, content: str = "") -> None:
        (self.root / "world" / name).write_text(f"{content}\n")

    def happened(self) -> list[str]:
        """The calls of programs that change something, since the last look."""
        log = self.root / "world/log"
        lines = log.read_text().replace(f"{self.kubelets}/", "").replace(str(self.kubelets), ".").splitlines()
        log.write_text("")
        return lines

    def proves(self, agent_: str) -> None:
        """What the agent does each time that the script sleeps, in phase `proving`."""
        self.world("agent", SAYS + agent_)

    def moved(self, text: str) -> str:
        for path, name in (
            (files.KUBELETS, "kubelet"),
            (places.RUN, "run"),
            (agent.KUBELET_PKI, "pki"),
            (places.KUBERNETES, "etc"),
            ("/proc/uptime", "world/uptime"),
            ("/proc/sys/kernel/random/boot_id", "world/boot_id"),
        ):
            assert path in text
            text = text.replace(path, f"{self.root}/{name}")
        return text

    def stage(self, name: str, *, runtime: str = "1", arguments: str = "--v=2\n") -> None:
        """A complete generation. Its kubelet says which one it is, and what it was started with."""
        directory = self.kubelets / name
        directory.mkdir()
        for program in files.PROGRAMS:
            stored = self.root / "store" / f"{program}-{name if program == 'kubelet' else runtime}"
            stored.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n')
            stored.chmod(0o755)
            (directory / program).symlink_to(f"../../store/{stored.name}")
        (directory / files.CONFIG).write_text("{}\n")
        (directory / files.ARGUMENTS).write_text(arguments)
        (directory / files.COMPLETE).write_bytes(files.written({"generation": name}))

    def ask(self, **other: object) -> None:
        usual = {"order": ORDER, "generation": NEW, "boot": self.boot_id, "uptime": self.uptime, "limit": files.LIMIT}
        (self.kubelets / "ask").write_bytes(files.written(usual | other))

    @property
    def uptime(self) -> int:
        return int((self.root / "world/uptime").read_text().split(".")[0])

    @property
    def restarted(self) -> int:
        """The uptime when systemd restarted the kubelet last."""
        return int((self.root / "world/restarted").read_text().split(".")[0])

    @property
    def boot_id(self) -> str:
        return (self.root / "world/boot_id").read_text().strip()

    def restarts(self) -> None:
        """The machine: another boot, and nothing left in /run."""
        self.world("boot_id", self.boot_id + "-next")
        self.world("uptime", "5.00 1.00")
        shutil.rmtree(self.root / "run")

    def run(
        self, *arguments: str, kill: int | str = "", within: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """kill: right before that call of a program that changes something, by its number or as it is."""
        self.world("calls", "0")
        (self.root / "world/log").touch()
        start = 'export GROUP=$$; exec sh "$0" "$@"'
        return subprocess.run(
            [*within, "sh", "-c", start, f"{self.root}/script", *arguments],
            env=self.environment | {"KILL": str(kill)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            start_new_session=True,
        )

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def calls(self) -> int:
        return int((self.root / "world/calls").read_text())

    def points_to(self, name: str) -> str | None:
        link = self.kubelets / name
        return str(link.readlink()) if link.is_symlink() else None

    @property
    def current(self) -> str | None:
        return self.points_to("current")

    @property
    def runs(self) -> str:
        """The generation that systemd has restarted the kubelet with."""
        return (self.root / "world/runs").read_text().strip()

    def read(self, name: str) -> dict[str, str]:
        path = self.kubelets / name
        return files.parse(path.read_bytes()) if path.exists() else {}

    @property
    def result(self) -> str | None:
        return self.read("result").get("result")

    def left(self) -> set[str]:
        """What is there besides generations, links and the result."""
        names = {path.name for path in self.kubelets.iterdir() if not path.is_dir()}
        return names - {"result", "last-words", "current", "previous"}

    def started(self) -> str:
        """The generation of the kubelet that `start` becomes."""
        return self.ok("start").splitlines()[0]
