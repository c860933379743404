"""One writer per cluster, whoever it is and wherever they run it: a lock on each of its hosts (rule 6).

The lock of `engine.lock` knows the commands of one user on one machine. Two machines that work on the same
hosts meet here: the first one holds a lock on every host for as long as its command runs, the second gets a
Conflict that says who that is.

Contract: every driver holds the lock by the same means (ports.Host.hold). A lock that was lost in the middle
(the connection broke) is taken again; the operation goes on if nobody else had it meanwhile, and is stopped
otherwise. Whoever finds a lock that belongs to a dead command of this very machine waits until the host has
noticed that, too.

Dangers: between the loss of a lock and the end of what was being done there, another command may start. Every
step looks before it acts, so that this costs a failure and no more.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import platform
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autarky.errors import AutarkyError, Conflict, Held, Problems, Unreachable, UserError
from autarky.ports import Clock, Hold, Host

GHOST_SECONDS = 45.0
"""How long a lock may outlive its holder: a host gives up one whose holder has been silent for 30 s."""
AGAIN_SECONDS = 60.0
"""How long a lock that was lost is asked for again."""
PAUSE = 1.0
LONGEST_SHOWN = 300
"""Characters of each text that a host says of a holder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, as it is written on the host. `boot` is this machine's boot id."""

    id: str
    who: str
    boot: str
    pid: int
    command: str
    since: float

    @classmethod
    def this(cls, command: str, now: float) -> Holder:
        """This process; `now` in Unix seconds."""
        who = f"{_user()}@{platform.node()}"
        return cls(uuid.uuid4().hex, who, _boot_id(), os.getpid(), command, now)

    @classmethod
    def parse(cls, text: str) -> Holder | None:
        """None for a text that is incomplete, since its writer has just started, or that no command of ours has
        written: root on the host can write anything."""
        try:
            fields: dict[str, Any] = json.loads(text)
            found = cls(
                str(fields["id"]),
                _shown(fields["who"]),
                str(fields["boot"]),
                int(fields["pid"]),
                _shown(fields["command"]),
                float(fields["since"]),
            )
            datetime.fromtimestamp(found.since, UTC)
        except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
            return None
        return found if 0 < found.pid < 2**31 else None  # any other is several processes, or none

    def text(self) -> str:
        fields = ("id", "who", "boot", "pid", "command", "since")
        return json.dumps({name: getattr(self, name) for name in fields})

    def is_dead(self) -> bool:
        """Whether it was a process of this machine that has exited. Nothing is known of other machines."""
        if not self.boot or self.boot != _boot_id():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


@asynccontextmanager
async def hosts_locked(
    path: str,
    holder: Holder,
    clock: Clock,
    tell: Callable[[str], None],
    *,
    minority: bool = False,
    workers: frozenset[str] = frozenset(),
) -> AsyncIterator[HostLocks]:
    """Locks for the block, none at first; `take` adds hosts. Losing one permanently cancels the block, unless it is of
    `workers`. minority: for what has to work when most hosts are gone. workers: as in HostLocks.

    Raises what `take` raises; and for a lock that was lost, Conflict or Unreachable instead of going on.
    """
    try:
        async with asyncio.TaskGroup() as group:
            locks = HostLocks(path, holder, clock, tell, group, minority, workers)
            try:
                yield locks
            finally:
                await locks.release()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


@dataclass(slots=True)
class HostLocks:
    """The locks that one operation holds."""

    path: str
    holder: Holder
    clock: Clock
    tell: Callable[[str], None]
    _group: asyncio.TaskGroup
    minority: bool = False
    """Go on with the lock on any host. Somebody else may then do the same with the others: the caller has learnt
    that those are off, and has to be safe if they are not."""
    workers: frozenset[str] = frozenset()
    """Hosts that are passed over where all others are locked, whatever keeps us from locking them, and whose locks may
    be lost: whoever is root on a worker could else keep the command from beginning forever, or end it. Empty for a
    command that no worker may be left out of. Another command of ours that has begun has the others, too."""
    _keepers: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def take(self, hosts: Mapping[str, Host]) -> None:
        """Lock those of the hosts that are not locked yet, side by side.

        A host that does not answer is passed over while most of them are locked: whoever holds most of them meets
        everybody else who does. With `minority`, while one is. Raises Conflict when somebody else has one of them,
        and what connecting to them raises: all that the user must fix as one error. Not for `workers`.
        """
        missing = {name: host for name, host in hosts.items() if name not in self._keepers}
        taken = await asyncio.gather(*(self._take_one(*item) for item in missing.items()), return_exceptions=True)
        failures = {name: outcome for name, outcome in zip(missing, taken, strict=True) if outcome is not None}
        silent = [failure for failure in failures.values() if isinstance(failure, Unreachable)]
        all_others = hosts.keys() - self.workers <= self._keepers.keys()
        of_workers = [failure for name, failure in failures.items() if all_others and name in self.workers]
        passed = [one for one in of_workers if isinstance(one, AutarkyError) and one not in silent]
        enough = len(self._keepers) >= 1 if self.minority or passed else 2 * len(self._keepers) > len(hosts)
        if len(silent) + len(passed) < len(failures) or (silent and not enough):
            raise _together([*failures.values()])
        for failure in silent:
            self.tell(f"going on without the lock on a host that does not answer: {failure}")
        for error in passed:
            self._tell_passed(error)

    async def release(self, *names: str) -> None:
        """Give up the locks of these hosts, or of all."""
        keepers = [self._keepers.pop(name) for name in names or tuple(self._keepers) if name in self._keepers]
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await asyncio.wait(keepers)

    def _tell_passed(self, failure: AutarkyError) -> None:
        self.tell(f"going on without the lock on a worker: {str(failure).splitlines()[0]}")

    # --- one host ---

    async def _take_one(self, name: str, host: Host) -> None:
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keepers[name] = self._group.create_task(self._keep(name, host, first), name=f"lock of {name}")
        try:
            await first
        except BaseException:
            await self.release(name)
            raise

    async def _keep(self, name: str, host: Host, first: asyncio.Future[None]) -> None:
        """Hold the lock until it is released. Its first failure is reported through `first`; a later one is raised, or
        only told where it is a worker's."""
        try:
            async with self._held(name, host, again=False) as hold:
                first.set_result(None)
                await hold.lost()
        except AutarkyError as error:
            first.set_exception(error)
            return
        try:
            while True:
                async with self._held(name, host, again=True) as hold:
                    await hold.lost()
        except AutarkyError as error:
            if name not in self.workers:
                raise
            self._keepers.pop(name, None)
            self._tell_passed(error)

    @asynccontextmanager
    async def _held(self, name: str, host: Host, *, again: bool) -> AsyncIterator[Hold]:
        """Take the lock; `again`: it was ours before."""
        deadline = self.clock.monotonic() + (AGAIN_SECONDS if again else GHOST_SECONDS)
        noted = False
        while True:
            holding = host.hold(self.path, self.holder.text())
            try:
                hold = await holding.__aenter__()
                break
            except (Held, Unreachable) as error:
                why = self._why_wait(name, error, again=again)
                if self.clock.monotonic() > deadline:
                    raise _given_up(name, error) from error
            if not noted:
                self.tell(why)
                noted = True
            await self.clock.sleep(PAUSE)
        try:
            yield hold
        finally:
            with suppress(AutarkyError):
                await holding.__aexit__(None, None, None)

    def _why_wait(self, name: str, error: Held | Unreachable, *, again: bool) -> str:
        """What is waited for; raises when waiting would not help."""
        if isinstance(error, Unreachable):
            if again:
                return f"the lock on host {name} was lost; asking for it again: {error}"
            raise error
        other = Holder.parse(error.holder)
        if other is None:
            return f"waiting for the lock on host {name}, which somebody has just taken or given up"
        if other.id == self.holder.id and again:
            return f"the lock on host {name} was lost; waiting until the host has noticed"
        if other.id == self.holder.id:
            raise UserError(f"host {name} is the machine of another node, too", fix="give each node its own machine")
        if other.is_dead():
            return f"waiting until host {name} has noticed that `{other.command}` (pid {other.pid}) is dead"
        raise Conflict(f"host {name} is in use by {_described(other)}") from error


def _given_up(name: str, error: Held | Unreachable) -> AutarkyError:
    if isinstance(error, Unreachable):
        return Unreachable(f"the lock on host {name} was lost: {error}")
    return Conflict(f"host {name} is in use by {_described(Holder.parse(error.holder))}")


def _together(failures: list[BaseException]) -> BaseException:
    """What is wrong with several hosts as one error, when the user must fix all of it."""
    of_the_user = [failure for failure in failures if isinstance(failure, UserError)]
    if len(of_the_user) > 1 and len(of_the_user) == len(failures):
        return Problems("some hosts cannot be used", of_the_user)
    return failures[0]


def _described(holder: Holder | None) -> str:
    """Who holds it, and what to do."""
    if holder is None:
        return "another command that has just started\n  fix: wait for it to end, then run this command again"
    since = datetime.fromtimestamp(holder.since, UTC)
    return (
        f"`{holder.command}` of {holder.who} (pid {holder.pid}) since {since:%Y-%m-%d %H:%M:%S} UTC\n"
        f"  fix: wait for it to end, or stop it on that machine with `kill {holder.pid}`; then run this command again"
        f" (the lock of a machine that is gone expires within {GHOST_SECONDS:.0f} s)"
    )


def _shown(value: object) -> str:
    """In one line: root on the host could else write one that passes for ours (`fix: …`)."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())[:LONGEST_SHOWN]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
