"""One test host: its directory on this machine, its power, and its leftovers.

    off ──power_on──▶ booting ──wait_until_booted──▶ on
     ▲                   │                           │
     └───────clear───────┴──────── lose_power ───────┘

Contract: the host's mounts are made in a mount namespace of their own, from which runc starts it. They are
never seen on this machine, and end with the host's last process, whatever killed it. What else a host has
(control groups, network namespace, runc's notes) bears its unique name, and `clear` removes it, whether
or not it was recorded.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from autarky.clock import start_time
from autarky.errors import TimedOut, UserError
from autarky.lab import cgroups, disk, ssh
from autarky.lab.network import LabNetwork
from autarky.lab.spec import effective_mask, granted_capabilities, runtime_spec
from autarky.lab.tools import DIE_WITH_US, tool
from autarky.ports import Progress

Seed = Callable[[Path], Awaitable[None]]
BOOT_SECONDS = 60.0
REPORT_SECONDS = 1.0

# Arguments: lower, upper, work and root directory, disk image, its mount point, and then the command that
# goes on in this namespace. The loop device frees itself: `mount -o loop` asks for that.
_MOUNT_SCRIPT = """\
set -eu
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4"
mount -o loop,noatime "$5" "$6"
cd "$6"
mkdir -p DIRECTORIES
cd /
shift 6
exec "$@"
""".replace("DIRECTORIES", " ".join(disk.DIRECTORIES.values()))


@dataclass(frozen=True, slots=True)
class Machine:
    """`hosts_file` names all hosts of the lab; it is shared by them. `address_index` picks the address."""

    name: str
    directory: Path
    network: LabNetwork
    address_index: int
    hosts_file: Path
    runc: Path
    runc_root: Path

    @property
    def id(self) -> str:
        """Unique on this machine: the name of the container and of its control groups."""
        return self.network.netns(self.name)

    @property
    def image(self) -> Path:
        return self.directory / "disk.img"

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    # --- power ---

    async def power_on(self, base: Path, seed: Seed | None) -> tuple[int, int]:
        """Clear what is left of an earlier run and start; the init process's id and start time."""
        await self.clear()
        await self._prepare_directories(seed)
        await disk.make(self.image)
        await self.network.connect(self.name, self.address_index)
        self._write_spec()
        await self._run(base)
        pid = int((self.directory / "pid").read_text())
        return pid, start_time(pid) or 0

    async def _run(self, base: Path) -> None:
        parts = [base, *(self.directory / part for part in ("upper", "work", "root", "disk.img", "disk"))]
        runc = [str(self.runc), "--root", str(self.runc_root), "run", "--detach"]
        runc += ["--bundle", str(self.directory), "--pid-file", str(self.directory / "pid"), self.id]
        namespace = ["unshare", "--mount", "--propagation", "private", "--"]
        with self.console.open("wb") as console:
            process = await asyncio.create_subprocess_exec(
                *DIE_WITH_US, *namespace, "sh", "-c", _MOUNT_SCRIPT, "sh", *map(str, parts), *runc,
                stdin=asyncio.subprocess.DEVNULL, stdout=console, stderr=console,
            )  # fmt: skip
            try:
                status = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if status != 0:
            raise UserError(f"lab host {self.name} did not start: {self._console_tail()}", fix="see the text above")

    async def wait_until_booted(self, pid: int, started: int, progress: Progress) -> None:
        """Wait until systemd says `running` (or `degraded`, which is reported).

        TimedOut or, when its init process has ended, UserError; both with the console's last lines.
        """
        loop = asyncio.get_running_loop()
        begin = reported = loop.time()
        while (said := await self._systemd_says(pid, started)) not in ("running", "degraded"):
            now = loop.time()
            if now > begin + BOOT_SECONDS:
                raise TimedOut(
                    f"lab host {self.name} did not boot within {BOOT_SECONDS:.0f} s; "
                    f"systemd said {said!r}; its console: {self._console_tail()}"
                )
            if now > reported + REPORT_SECONDS:
                reported = now
                progress.waiting(f"lab host {self.name} has booted", begin + BOOT_SECONDS - now, said)
            await asyncio.sleep(0.05)
        if said == "degraded":
            failed = await tool(*_inside(pid), "systemctl", "--failed", "--plain", "--no-legend", check=False)
            progress.note(f"lab host {self.name} is up, but some of its units failed: {failed.strip()}")

    async def _systemd_says(self, pid: int, started: int) -> str:
        if start_time(pid) != started:
            raise UserError(
                f"lab host {self.name} stopped while it booted; its console: {self._console_tail()}",
                fix="see the text above",
            )
        return (await tool(*_inside(pid), "systemctl", "is-system-running", check=False)).strip()

    def lose_disk(self, pid: int) -> None:
        """From now on nothing that the host writes is kept: what it had not synced is lost."""
        disk.stop(self.image, pid)

    async def clear(self) -> None:
        """Remove everything of the host but its directory: processes, mounts, control groups, network."""
        await cgroups.clear(self.id)
        await disk.wait_until_free(self.image)
        shutil.rmtree(self.runc_root / self.id, ignore_errors=True)
        await self.network.disconnect(self.name)

    # --- what it is made of ---

    async def _prepare_directories(self, seed: Seed | None) -> None:
        for part in ("upper/etc", "work", "root", "disk", "kubelet"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        await _fill_once(self.directory / "containerd", seed)
        etc = self.directory / "upper/etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "resolv.conf").write_text(f"nameserver {self.network.dead_name_server}\n")
        (etc / "machine-id").write_text(uuid.uuid5(uuid.NAMESPACE_DNS, self.id).hex + "\n")
        ssh.give_keys(self.directory.parents[1], self.directory)

    def _write_spec(self) -> None:
        binds = {target: self.directory / "disk" / part for target, part in disk.DIRECTORIES.items()}
        binds |= {f"/var/lib/{part}": self.directory / part for part in ("containerd", "kubelet")}
        binds["/etc/hosts"] = self.hosts_file
        spec = runtime_spec(
            host=self.name,
            cgroup=self.id,
            root=self.directory / "root",
            netns=self.network.netns(self.name),
            binds=binds,
            capabilities=granted_capabilities(effective_mask()),
        )
        (self.directory / "config.json").write_text(json.dumps(spec, indent=1))

    def _console_tail(self) -> str:
        return self.console.read_text(errors="replace")[-1500:].strip()


def _inside(pid: int) -> tuple[str, ...]:
    return ("nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--")


async def _fill_once(directory: Path, seed: Seed | None) -> None:
    """Seed the directory in one rename, so that a killed seeding is done again."""
    if directory.exists():
        return
    temporary = directory.with_name(f".{directory.name}.seeding")
    if temporary.exists():
        await asyncio.to_thread(shutil.rmtree, temporary)
    if seed is None:
        temporary.mkdir()
    else:
        await seed(temporary)
    temporary.rename(directory)
