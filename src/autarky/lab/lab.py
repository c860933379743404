"""A lab: a named set of test hosts on this machine. Create, power off without warning, power on, remove.

Contract: the state file is written before anything it describes is made, and removed after everything
else, so that whatever a killed run left can be found and cleaned: by `ensure`, which recreates a host that does
not run, and by `down`, which leaves nothing. Labs never touch each other: every name is derived from the
lab's directory, so that labs of the same name below two state directories are separate, too.

Dangers: hosts share this machine's kernel, clock and memory; a kernel-wide setting on one applies
to all. One process at a time changes a lab (others wait), but anybody may read it meanwhile.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import shutil
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autarky import places
from autarky.clock import start_time
from autarky.errors import UserError
from autarky.lab import ssh
from autarky.lab.limits import raise_limits
from autarky.lab.machine import Machine, Seed
from autarky.lab.network import MOST_HOSTS, LabNetwork, free_subnet, machine_networks
from autarky.lab.rootfs import base_root
from autarky.lab.tools import refuse_unfit_machine
from autarky.ports import Progress
from autarky.store import waiting_lock, write_private

SUBNETS_LOCK = Path("/run/autarky-labs/subnets.lock")
"""One per machine, whatever the state directory, since all labs share the address pool."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One test host. `pid` and `start_time` identify its init process; zero while it is off."""

    name: str
    address: str
    pid: int
    start_time: int

    @property
    def running(self) -> bool:
        return self.pid > 0 and start_time(self.pid) == self.start_time


@dataclass(frozen=True, slots=True)
class Lab:
    name: str

    @classmethod
    def open(cls, name: str) -> Lab:
        """The lab of that name, whether it exists or not; UserError for an invalid name."""
        refuse_bad_name(name)
        return cls(name)

    @classmethod
    def all(cls) -> list[Lab]:
        root = places.state_dir() / "labs"
        return [cls(path.parent.name) for path in sorted(root.glob("*/lab.json"))]

    @property
    def directory(self) -> Path:
        return places.lab_dir(self.name)

    @property
    def ssh_config(self) -> Path:
        """`ssh -F` this, and a host's name."""
        return self.directory / "ssh_config"

    @property
    def network(self) -> LabNetwork:
        return self._network(self._state())

    def records(self) -> Mapping[str, HostRecord]:
        hosts = self._state().get("hosts", {})
        return {
            name: HostRecord(name, h["address"], h.get("pid", 0), h.get("start_time", 0)) for name, h in hosts.items()
        }

    # --- power ---

    async def ensure(self, hosts: Sequence[str], *, runc: Path, progress: Progress, seed: Seed | None = None) -> None:
        """Create or power on the hosts that do not run, side by side; running ones are left alone.

        `seed` fills a new host's /var/lib/containerd before its first boot. Returns when all have booted.
        """
        for name in hosts:
            refuse_bad_name(name)
        await refuse_unfit_machine(self.directory)
        raise_limits()
        base = await base_root(progress)
        async with self._locked():
            await self._describe_and_connect(hosts, runc)
            await self._clear_what_does_not_run()
            # Before the power: both the user's key and the hosts' own must be there when sshd is.
            ssh.write_config(self.directory, {record.name: record.address for record in self.records().values()})
            await _side_by_side(self._power_on(name, base, seed, progress) for name in hosts)

    async def start(self, *names: str, progress: Progress) -> None:
        """Power on hosts that were cut."""
        self._refuse_unknown(names)
        for name in names:
            if self.records()[name].running:
                raise UserError(f"lab host {name} is running", fix=f"cut it first: autarky lab cut {name}")
        await self.ensure(names, runc=Path(self._state()["runc"]), progress=progress)

    async def cut(self, *names: str) -> None:
        """A power cut of all these hosts at once: links down first, then what was not synced is lost, then
        everything dies."""
        self._refuse_unknown(names)
        async with self._locked():
            records = self.records()
            # Written first: a run that is killed in here has cut the power, and never leaves a host that
            # is recorded as running while its disk is gone.
            self._remember({name: {"pid": 0, "start_time": 0} for name in names})
            await _side_by_side(self.network.unplug(name) for name in names)
            for name in names:
                if records[name].running:
                    self._machine(name).lose_disk(records[name].pid)
            await _side_by_side(self._machine(name).clear() for name in names)

    async def remove(self, *names: str) -> None:
        """Remove these hosts from the lab permanently, with their disks. A new host of the same name starts empty."""
        self._refuse_unknown(names)
        async with self._locked():
            self._remember({name: {"pid": 0, "start_time": 0} for name in names})
            await _side_by_side(self._machine(name).clear() for name in names)
            for name in names:
                await asyncio.to_thread(shutil.rmtree, self.directory / "hosts" / name, ignore_errors=True)
            state = self._state()
            state["hosts"] = {name: entry for name, entry in state["hosts"].items() if name not in names}
            self._write(state)
            self._write_hosts_file()
            ssh.write_config(self.directory, {record.name: record.address for record in self.records().values()})

    async def down(self) -> None:
        """Remove the lab completely: nothing of it stays on this machine but an empty lock file."""
        if not self.directory.exists():
            return
        async with self._locked():
            if not self.directory.exists():  # another process has removed it meanwhile
                return
            if self._state():
                await _side_by_side(self._machine(name).clear() for name in self.records())
                await self.network.remove()
            await asyncio.to_thread(_remove_with_state_last, self.directory)

    # --- steps ---

    async def _describe_and_connect(self, hosts: Sequence[str], runc: Path) -> None:
        """Record what will be made, and make the network, so that others see that the subnet is taken."""
        async with waiting_lock(SUBNETS_LOCK):
            state = self._state() or {"subnet": str(await self._free_subnet()), "hosts": {}, "runc": ""}
            self._add_hosts(state, hosts)
            self._write(state)
            made_again = await self.network.ensure()
        state["runc"] = self._own_runc(runc)
        self._write(state)
        self._write_hosts_file()
        if made_again:
            running = [record.name for record in self.records().values() if record.running]
            await _side_by_side(self.network.plug(name, self._index(name)) for name in running)

    async def _free_subnet(self) -> ipaddress.IPv4Network:
        others = [ipaddress.IPv4Network(lab._state()["subnet"]) for lab in Lab.all()]
        return free_subnet([*others, *await machine_networks()])

    def _add_hosts(self, state: dict[str, Any], hosts: Sequence[str]) -> None:
        known = state["hosts"]
        for name in hosts:
            if name not in known:
                taken = {entry["index"] for entry in known.values()}
                index = next((number for number in range(MOST_HOSTS) if number not in taken), None)
                if index is None:
                    raise UserError(f"lab {self.name} has {MOST_HOSTS} hosts already", fix="use another lab")
                known[name] = {"index": index, "address": self._network(state).address(index)}

    async def _clear_what_does_not_run(self) -> None:
        off = [record.name for record in self.records().values() if not record.running]
        await _side_by_side(self._machine(name).clear() for name in off)

    async def _power_on(self, name: str, base: Path, seed: Seed | None, progress: Progress) -> None:
        """A host that runs may still be booting, if the run that started it was killed."""
        machine, record = self._machine(name), self.records()[name]
        if record.running:
            await machine.wait_until_booted(record.pid, record.start_time, progress)
            return
        pid, started = await machine.power_on(base, seed)
        self._remember({name: {"pid": pid, "start_time": started}})
        await machine.wait_until_booted(pid, started, progress)
        progress.note(f"lab host {name} is up at {record.address}")

    # --- parts ---

    def _machine(self, name: str) -> Machine:
        return Machine(
            name=name,
            directory=self.directory / "hosts" / name,
            network=self.network,
            address_index=self._index(name),
            hosts_file=self._hosts_file,
            runc=Path(self._state()["runc"]),
            runc_root=self.directory / "runc",
        )

    def _index(self, name: str) -> int:
        index: int = self._state()["hosts"][name]["index"]
        return index

    def _network(self, state: Mapping[str, Any]) -> LabNetwork:
        return LabNetwork(str(self.directory), ipaddress.IPv4Network(state["subnet"]))

    @property
    def _hosts_file(self) -> Path:
        return self.directory / "hosts.txt"

    def _write_hosts_file(self) -> None:
        """Into the same file, because running hosts have it mounted. One write, then cut to length: whoever
        reads it meanwhile never finds it empty."""
        lines = ["127.0.0.1 localhost", *(f"{r.address} {r.name}" for r in self.records().values())]
        content = ("\n".join(lines) + "\n").encode()
        descriptor = os.open(self._hosts_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)

    def _own_runc(self, runc: Path) -> str:
        """A copy of its own, so that `start` works when the component store is gone."""
        own = self.directory / "bin" / "runc"
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            temporary = own.with_name(".runc")
            shutil.copy2(runc, temporary)
            temporary.rename(own)
        return str(own)

    def _refuse_unknown(self, names: Sequence[str]) -> None:
        records = self.records()
        for name in names:
            if name not in records:
                known = ", ".join(records) or "none"
                raise UserError(f"lab {self.name} has no host {name}", fix=f"its hosts are: {known}")

    # --- state ---

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.directory / "lab.json").read_text())
        except FileNotFoundError:
            return {}
        return state

    def _write(self, state: Mapping[str, Any]) -> None:
        write_private(self.directory / "lab.json", json.dumps(state, indent=1).encode())

    def _remember(self, fields: Mapping[str, Mapping[str, int]]) -> None:
        state = self._state()
        for name, values in fields.items():
            state["hosts"][name].update(values)
        self._write(state)

    def _locked(self) -> AbstractAsyncContextManager[None]:
        """One process at a time changes a lab; others wait."""
        return waiting_lock(places.state_dir() / "labs" / f".{self.name}.lock")


def refuse_bad_name(name: str) -> None:
    """Names of labs and hosts are DNS labels: they become directories and host names."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is not a valid name for a lab or a host",
            fix="use 1 to 63 of a-z, 0-9 and «-», with a letter or digit at both ends",
        )


async def _side_by_side(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at once; the first failure cancels the rest and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _remove_with_state_last(directory: Path) -> None:
    """In an order in which an interrupted removal is still a lab that `down` finds."""
    for path in directory.iterdir():
        if path.name == "lab.json":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.rmtree(directory)
