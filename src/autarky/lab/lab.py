"""A lab: a named set of test hosts on this machine. Create, power off without warning, power on, remove.

Contract: the state file is written before anything it describes is made, so that whatever a killed run
left can be found and cleaned: by `ensure`, which makes a host anew when it does not run, and by `down`,
which leaves nothing. Labs never touch each other: every name is derived from the lab's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import shutil
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autarky import places
from autarky.errors import UserError
from autarky.lab import disk
from autarky.lab.network import LabNetwork, free_subnet, machine_networks, short_hash
from autarky.lab.rootfs import base_root
from autarky.lab.spec import effective_mask, granted_capabilities, runtime_spec
from autarky.lab.tools import refuse_missing_tools, tool
from autarky.ports import Progress
from autarky.store import waiting_lock, write_private

Seed = Callable[[Path], Awaitable[None]]
BOOT_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One test host. `pid` and `start_time` identify its init process; zero while it is off."""

    name: str
    address: str
    pid: int
    start_time: int

    @property
    def running(self) -> bool:
        return self.pid > 0 and _start_time(self.pid) == self.start_time


@dataclass(frozen=True, slots=True)
class Lab:
    name: str

    @classmethod
    def open(cls, name: str) -> Lab:
        """The lab of that name, whether it exists or not."""
        return cls(name)

    @classmethod
    def all(cls) -> list[Lab]:
        root = places.state_dir() / "labs"
        return [cls(path.parent.name) for path in sorted(root.glob("*/lab.json"))]

    @property
    def directory(self) -> Path:
        return places.lab_dir(self.name)

    @property
    def network(self) -> LabNetwork:
        return LabNetwork(self.name, ipaddress.IPv4Network(self._state()["subnet"]))

    def records(self) -> Mapping[str, HostRecord]:
        hosts = self._state().get("hosts", {})
        return {
            name: HostRecord(name, h["address"], h.get("pid", 0), h.get("start_time", 0)) for name, h in hosts.items()
        }

    # --- making ---

    async def ensure(self, hosts: Sequence[str], *, runc: Path, progress: Progress, seed: Seed | None = None) -> None:
        """Create or power on the hosts that do not run, side by side; running ones are left alone.

        `seed` fills a new host's /var/lib/containerd before its first boot.
        """
        refuse_missing_tools()
        base = await base_root(progress)
        async with self._locked():
            await self._describe(hosts, runc)
            await self.network.ensure_bridge()
            off = [name for name in hosts if not self.records()[name].running]
            try:
                async with asyncio.TaskGroup() as group:
                    for name in off:
                        group.create_task(self._boot(name, base, seed, progress), name=f"boot {name}")
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None

    async def start(self, name: str, *, progress: Progress) -> None:
        """Power on a host that was cut."""
        self._known(name)
        if self.records()[name].running:
            raise UserError(f"lab host {name} is running", fix=f"cut it first: autarky lab cut {name}")
        await self.ensure([name], runc=Path(self._state()["runc"]), progress=progress)

    async def cut(self, name: str) -> None:
        """A power cut: link down first, then everything dies, and what was not synced is lost."""
        self._known(name)
        async with self._locked():
            await self.network.unplug(name)
            await self._runc("kill", self._id(name), "KILL", check=False)
            image = self._host_directory(name) / "disk.img"
            survived = await disk.snapshot(image)
            await self._clear(name)
            survived.replace(image)
            self._remember(name, pid=0, start_time=0)

    async def down(self) -> None:
        """Remove the lab whole: nothing of it stays on this machine."""
        if not (self.directory / "lab.json").exists():
            shutil.rmtree(self.directory, ignore_errors=True)
            return
        async with self._locked():
            for name in self.records():
                await self._clear(name)
            await self.network.remove()
            await asyncio.to_thread(shutil.rmtree, self.directory)

    # --- one host ---

    async def _boot(self, name: str, base: Path, seed: Seed | None, progress: Progress) -> None:
        await self._clear(name)
        directory = self._host_directory(name)
        await self._prepare_directories(name, directory, seed)
        await self.network.connect(name, self._state()["hosts"][name]["index"])
        await self._mount(directory, base)
        self._write_spec(name, directory)
        console = (directory / "console.log").open("wb")
        with console:
            process = await asyncio.create_subprocess_exec(
                *self._runc_command("run", "--detach", "--bundle", str(directory), self._id(name)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
            status = await process.wait()
        if status != 0:
            log = (directory / "console.log").read_text(errors="replace")[-1500:]
            raise UserError(f"lab host {name} did not start: {log}", fix="see the text above; runc gave it")
        state = json.loads(await self._runc("state", self._id(name)))
        self._remember(name, pid=state["pid"], start_time=_start_time(state["pid"]) or 0)
        await self._wait_until_booted(name, state["pid"], progress)
        progress.note(f"lab host {name} is up at {self.records()[name].address}")

    async def _prepare_directories(self, name: str, directory: Path, seed: Seed | None) -> None:
        for part in ("upper/etc", "work", "root", "kubelet"):
            (directory / part).mkdir(parents=True, exist_ok=True)
        await _fill_once(directory / "containerd", seed)
        etc = directory / "upper/etc"
        (etc / "hostname").write_text(f"{name}\n")
        (etc / "resolv.conf").write_text(f"nameserver {self.network.dead_name_server}\n")
        lines = ["127.0.0.1 localhost", *(f"{r.address} {r.name}" for r in self.records().values())]
        (etc / "hosts").write_text("\n".join(lines) + "\n")
        (etc / "machine-id").write_text(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.name}/{name}").hex + "\n")

    async def _mount(self, directory: Path, base: Path) -> None:
        await disk.attach(directory / "disk.img", directory / "disk")
        options = f"lowerdir={base},upperdir={directory / 'upper'},workdir={directory / 'work'}"
        await tool("mount", "-t", "overlay", "overlay", "-o", options, str(directory / "root"))

    def _write_spec(self, name: str, directory: Path) -> None:
        binds = {target: directory / "disk" / part for target, part in disk.DIRECTORIES.items()}
        binds |= {f"/var/lib/{part}": directory / part for part in ("containerd", "kubelet")}
        spec = runtime_spec(
            lab=self.name,
            host=name,
            root=directory / "root",
            netns=self.network.netns(name),
            binds=binds,
            capabilities=granted_capabilities(effective_mask()),
        )
        (directory / "config.json").write_text(json.dumps(spec, indent=1))

    async def _wait_until_booted(self, name: str, pid: int, progress: Progress) -> None:
        """Until systemd says `running` (or `degraded`, which is told)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BOOT_TIMEOUT
        while True:
            command = ["nsenter", f"--target={pid}", "--mount", "--pid", "--cgroup", "--net", "--ipc", "--uts", "--"]
            said = (await tool(*command, "systemctl", "is-system-running", check=False)).strip()
            if said == "running":
                return
            if said == "degraded":
                failed = await tool(*command, "systemctl", "--failed", "--plain", "--no-legend", check=False)
                progress.note(f"lab host {name} is up, but some of its units failed: {failed.strip()}")
                return
            if loop.time() > deadline:
                log = (self._host_directory(name) / "console.log").read_text(errors="replace")[-1500:]
                raise UserError(f"lab host {name} did not boot within {BOOT_TIMEOUT:.0f} s: {log}")
            await asyncio.sleep(0.1)

    async def _clear(self, name: str) -> None:
        """Take down whatever there is of the host but its directory: processes, mounts, network."""
        directory = self._host_directory(name)
        await self._runc("delete", "--force", self._id(name), check=False)
        await _unmount_below(directory)
        for line in (await tool("losetup", "--noheadings", "-O", "NAME,BACK-FILE", check=False)).splitlines():
            device, _, backing = line.strip().partition(" ")
            if backing.strip().startswith(f"{directory}/"):
                await tool("losetup", "--detach", device, check=False)
        await self.network.disconnect(name)

    # --- names and state ---

    def _id(self, name: str) -> str:
        return f"autarky-{short_hash(self.name)}-{name}"

    def _host_directory(self, name: str) -> Path:
        return self.directory / "hosts" / name

    def _runc_command(self, *argv: str) -> list[str]:
        return [self._state()["runc"], "--root", str(self.directory / "runc"), *argv]

    async def _runc(self, *argv: str, check: bool = True) -> str:
        return await tool(*self._runc_command(*argv), check=check)

    def _known(self, name: str) -> None:
        if name not in self.records():
            known = ", ".join(self.records()) or "none"
            raise UserError(f"lab {self.name} has no host {name}", fix=f"its hosts are: {known}")

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.directory / "lab.json").read_text())
        except FileNotFoundError:
            return {}
        return state

    def _write(self, state: Mapping[str, Any]) -> None:
        write_private(self.directory / "lab.json", json.dumps(state, indent=1).encode())

    def _remember(self, name: str, **fields: int) -> None:
        state = self._state()
        state["hosts"][name].update(fields)
        self._write(state)

    async def _describe(self, hosts: Sequence[str], runc: Path) -> None:
        """Write down what will be made, before it is made."""
        state = self._state()
        if "subnet" not in state:
            async with waiting_lock(places.state_dir() / "labs" / ".subnets.lock"):
                others = [ipaddress.IPv4Network(lab._state()["subnet"]) for lab in Lab.all()]
                subnet = free_subnet([*others, *await machine_networks()])
                state = {"subnet": str(subnet), "hosts": {}, "runc": ""}
                self._write(state)
        state["runc"] = self._own_runc(runc)
        network = LabNetwork(self.name, ipaddress.IPv4Network(state["subnet"]))
        for name in hosts:
            if name not in state["hosts"]:
                taken = {host["index"] for host in state["hosts"].values()}
                index = next(i for i in range(200) if i not in taken)
                state["hosts"][name] = {"index": index, "address": network.address(index)}
        self._write(state)

    def _own_runc(self, runc: Path) -> str:
        """A copy of its own, so that `down` works when the component store is gone."""
        own = self.directory / "bin" / "runc"
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            temporary = own.with_name(f".runc-{os.getpid()}")
            shutil.copy2(runc, temporary)
            temporary.rename(own)
        return str(own)

    def _locked(self) -> AbstractAsyncContextManager[None]:
        """One process at a time changes a lab; others wait."""
        return waiting_lock(places.state_dir() / "labs" / f".{self.name}.lock")


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


async def _unmount_below(directory: Path) -> None:
    """Unmount everything at or below the directory, innermost first."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount_point in sorted((m for m in mounts if m.startswith(f"{directory}/")), reverse=True):
        await tool("umount", "--lazy", mount_point, check=False)


def _start_time(pid: int) -> int | None:
    """The process's start in clock ticks (field 22 of /proc/PID/stat), or None when there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
