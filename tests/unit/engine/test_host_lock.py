"""Locks on hosts that live in memory, in time that the event loop owns."""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autarky.engine.host_lock import GHOST_SECONDS, Holder, hosts_locked
from autarky.errors import AutarkyError, CommandFailed, Conflict, Held, Problems, Unreachable, UserError
from fakes.clock import LoopClock

pytestmark = pytest.mark.looptime

US = replace(Holder.this("autarky up", 1_800_000_000.0), who="anna@here")
THEM = Holder("their-id", "bert@there", "another-boot", 42, "autarky down", 1_800_000_000.0)


@dataclass
class Hold:
    gone: asyncio.Event

    async def lost(self) -> None:
        await self.gone.wait()


@dataclass
class Machine:
    """`holder` has the lock; `silent` is what it says instead of answering."""

    holder: str | None = None
    silent: Exception | None = None
    held: Hold | None = None
    taken: int = 0

    @asynccontextmanager
    async def hold(self, _path, holder):
        if self.silent is not None:
            raise self.silent
        if self.holder is not None:
            raise Held("n1", self.holder)
        self.holder, self.held, self.taken = holder, Hold(asyncio.Event()), self.taken + 1
        try:
            yield self.held
        finally:
            if self.holder == holder and not self.held.gone.is_set():
                self.holder = None

    def lose(self, holder: str | None = None) -> None:
        """The connection breaks; somebody else has the lock then."""
        assert self.held is not None
        self.holder = holder
        self.held.gone.set()


def as_hosts(machines: dict[str, Machine]) -> dict[str, Any]:
    return dict(machines)


@dataclass
class Operation:
    machines: dict[str, Machine]
    reported: list[str] = field(default_factory=list)

    async def run(self, seconds: float = 0.0) -> str:
        async with hosts_locked("/run/lock", US, LoopClock(), self.reported.append) as locks:
            await locks.take(as_hosts(self.machines))
            assert all(Holder.parse(machine.holder) == US for machine in self.machines.values())
            await asyncio.sleep(seconds)
        assert all(machine.holder is None for machine in self.machines.values())
        return "done"


async def test_all_hosts_are_locked_for_the_operation_and_free_after_it():
    assert await Operation({"n1": Machine(), "n2": Machine()}).run() == "done"


async def test_a_host_that_is_added_in_the_middle_is_locked_once():
    first, second = Machine(), Machine()
    async with hosts_locked("/run/lock", US, LoopClock(), print) as locks:
        await locks.take(as_hosts({"n1": first}))
        await locks.take(as_hosts({"n1": first, "n2": second}))
        assert (first.taken, second.taken) == (1, 1)
        await locks.release("n1", "no-such")
        assert (first.holder, second.holder) == (None, US.text())


async def test_whoever_comes_second_is_told_who_the_first_is_and_what_to_do():
    operation = Operation({"n1": Machine(), "n2": Machine(THEM.text())})
    with pytest.raises(Conflict) as caught:
        await operation.run()
    said = str(caught.value)
    assert "host n2 is in use by `autarky down` of bert@there (pid 42) since 2027-01-15 08:00:00 UTC" in said
    assert "kill 42" in said
    assert operation.machines["n1"].holder is None
    assert asyncio.get_running_loop().time() == 0


async def test_the_lock_of_a_dead_command_of_this_machine_is_waited_for(looptime):
    dead = replace(US, id="earlier", pid=2**22 + 1)
    operation = Operation({"n1": Machine(dead.text())})
    asyncio.get_running_loop().call_later(20, setattr, operation.machines["n1"], "holder", None)
    assert await operation.run() == "done"
    assert operation.reported == [f"waiting until host n1 has noticed that `autarky up` (pid {dead.pid}) is dead"]
    assert looptime == 20


async def test_a_live_command_of_this_machine_is_not_waited_for():
    with pytest.raises(Conflict, match=f"kill {os.getpid()}"):
        await Operation({"n1": Machine(replace(US, id="another").text())}).run()


async def test_a_lock_of_which_nobody_says_whose_it_is_is_waited_for_but_not_for_ever(looptime):
    with pytest.raises(Conflict, match="another command that has just started"):
        await Operation({"n1": Machine("")}).run()
    assert GHOST_SECONDS < looptime < GHOST_SECONDS + 3


async def test_one_machine_under_two_names_is_refused_at_once():
    machine = Machine()
    with pytest.raises(UserError, match="the machine of another node"):
        await Operation({"n1": machine, "n2": machine}).run()


async def test_a_host_that_does_not_answer_fails_the_operation_at_once(looptime):
    with pytest.raises(Unreachable, match=r"^no route$"):
        await Operation({"n1": Machine(silent=Unreachable("no route"))}).run()
    assert looptime == 0


async def test_a_host_of_several_that_does_not_answer_is_passed_over_and_told():
    machines = {"n1": Machine(), "n2": Machine(), "n3": Machine(silent=Unreachable("n3: no answer"))}
    reported: list[str] = []
    async with hosts_locked("/run/lock", US, LoopClock(), reported.append) as locks:
        await locks.take(as_hosts(machines))
        assert [name for name, machine in machines.items() if machine.holder] == ["n1", "n2"]
    assert reported == ["going on without the lock on a host that does not answer: n3: no answer"]


async def test_half_of_the_hosts_is_too_few_since_somebody_else_may_have_the_others():
    machines = {"n1": Machine(), "n2": Machine(silent=Unreachable("n2: no answer"))}
    with pytest.raises(Unreachable, match="n2: no answer"):
        await Operation(machines).run()
    assert machines["n1"].holder is None


async def test_one_host_of_three_is_enough_for_what_has_to_work_without_the_others():
    machines = {"n1": Machine(), **{name: Machine(silent=Unreachable(f"{name}: no answer")) for name in ("n2", "n3")}}
    async with hosts_locked("/run/lock", US, LoopClock(), print, minority=True) as locks:
        await locks.take(as_hosts(machines))
        assert machines["n1"].holder is not None


async def test_none_of_three_is_not():
    machines = {name: Machine(silent=Unreachable(f"{name}: no answer")) for name in ("n1", "n2", "n3")}
    with pytest.raises(AutarkyError, match="no answer"):
        async with hosts_locked("/run/lock", US, LoopClock(), print, minority=True) as locks:
            await locks.take(as_hosts(machines))


async def test_a_host_that_does_not_answer_hides_no_conflict_on_another():
    machines = {"n1": Machine(), "n2": Machine(silent=Unreachable("no answer")), "n3": Machine(holder=THEM.text())}
    with pytest.raises((Conflict, Unreachable)):
        await Operation(machines).run()


async def test_what_the_user_must_fix_on_several_hosts_is_reported_at_once():
    wrong = [Machine(silent=UserError(f"key {n}", fix="repair it")) for n in range(2)]
    with pytest.raises(Problems, match=r"some hosts cannot be used \(2\)"):
        await Operation({"n1": wrong[0], "n2": wrong[1], "n3": Machine()}).run()


async def test_a_lock_that_was_lost_is_taken_again_and_the_operation_goes_on():
    operation = Operation({"n1": Machine()})
    asyncio.get_running_loop().call_later(10, operation.machines["n1"].lose)
    assert await operation.run(60) == "done"
    assert operation.machines["n1"].taken == 2


async def test_a_host_that_has_not_noticed_the_loss_is_waited_for():
    machine = Machine()
    operation = Operation({"n1": machine})
    loop = asyncio.get_running_loop()
    loop.call_later(10, lambda: machine.lose(US.text()))
    loop.call_later(40, setattr, machine, "holder", None)
    assert await operation.run(60) == "done"
    assert operation.reported == ["the lock on host n1 was lost; waiting until the host has noticed"]


async def test_an_operation_ends_when_somebody_else_took_the_lock_that_it_lost(looptime):
    operation = Operation({"n1": Machine()})
    asyncio.get_running_loop().call_later(10, lambda: operation.machines["n1"].lose(THEM.text()))
    with pytest.raises(Conflict, match="bert@there"):
        await operation.run(600)
    assert looptime == 10


async def test_an_operation_ends_when_its_host_does_not_come_back(looptime):
    operation = Operation({"n1": Machine()})
    machine = operation.machines["n1"]
    loop = asyncio.get_running_loop()
    loop.call_later(9, setattr, machine, "silent", Unreachable("no route"))
    loop.call_later(10, machine.lose)
    with pytest.raises(Unreachable, match="the lock on host n1 was lost: no route"):
        await operation.run(600)
    assert 70 < looptime < 75


async def test_the_operations_own_failure_is_told_as_it_is():
    machine = Machine()

    async def operation() -> None:
        async with hosts_locked("/run/lock", US, LoopClock(), print) as locks:
            await locks.take(as_hosts({"n1": machine}))
            raise Unreachable("etcd")

    with pytest.raises(Unreachable, match=r"^etcd$"):
        await operation()
    assert machine.holder is None


def test_a_holder_is_read_as_it_was_written_and_half_of_one_is_nobody():
    assert Holder.parse(US.text()) == US
    assert [Holder.parse(text) for text in ("", "{", "[]", "7", '{"id": "x"}')] == [None] * 5


@pytest.mark.parametrize(
    "odd", [{"pid": 1e400}, {"pid": -1}, {"pid": 0}, {"pid": 10**12}, {"since": 1e300}, {"since": 1e400}]
)
def test_a_holder_that_no_command_of_ours_has_written_is_nobody(odd):
    """Who is root on a host writes what it wants there: such numbers would end the command, or mean all processes."""
    assert Holder.parse(json.dumps({**json.loads(US.text()), **odd})) is None
    assert Holder.parse("[" * 100_000) is None


def test_only_of_this_machine_is_a_process_known_to_be_dead():
    assert replace(US, pid=2**22 + 1).is_dead()
    assert not US.is_dead()
    assert not replace(THEM, pid=2**22 + 1).is_dead()
    assert not replace(US, boot="", pid=2**22 + 1).is_dead()


def passing(workers: set[str], said: list[str]):
    return hosts_locked("/run/lock", US, LoopClock(), said.append, workers=frozenset(workers))


NO_LOCK = CommandFailed("w1", ["flock", "/run/lock"], 2, "sh: 1: cannot create /run/lock: Is a directory")
NO_ENTRY = UserError("w1: it accepts none of the keys that ssh has", fix="give it your key")
SPOILED = [
    pytest.param(lambda: Machine(THEM.text()), "host w1 is in use by `autarky down`", id="held"),
    pytest.param(lambda: Machine(US.text()), "host w1 is the machine of another node, too", id="held by us, it says"),
    pytest.param(lambda: Machine("no holder"), "host w1 is in use by another command", id="held by nobody"),
    pytest.param(lambda: Machine(silent=NO_LOCK), "w1: flock /run/lock ended with status 2", id="no lock"),
    pytest.param(lambda: Machine(silent=NO_ENTRY), "w1: it accepts none of the keys", id="no entry"),
]
"""What root on a worker can do to its lock."""


@pytest.mark.parametrize(("spoiled", "why"), SPOILED)
async def test_a_worker_whose_lock_somebody_has_is_passed_over_where_all_others_are_locked(spoiled, why):
    said: list[str] = []
    machines = {"n1": Machine(), "w1": spoiled(), "w2": Machine()}
    async with passing({"w1", "w2"}, said) as locks:
        await locks.take(as_hosts(machines))
        assert (machines["n1"].taken, machines["w1"].taken, machines["w2"].taken) == (1, 0, 1)
    assert machines["w1"].holder == spoiled().holder
    line = said[-1]
    assert line.startswith(f"going on without the lock on a worker: {why}")
    assert "\n" not in line


@pytest.mark.parametrize(("spoiled", "why"), SPOILED)
async def test_a_host_that_is_none_of_these_workers_is_not_passed_over_for_any_of_it(spoiled, why):
    with pytest.raises(AutarkyError, match=re.escape(why)):
        async with passing({"n1"}, []) as locks:
            await locks.take(as_hosts({"n1": Machine(), "w1": spoiled()}))


async def test_a_worker_that_takes_its_lock_back_stops_nothing(looptime):
    said: list[str] = []
    machines = {"n1": Machine(), "w1": Machine()}
    async with passing({"w1"}, said) as locks:
        await locks.take(as_hosts(machines))
        machines["w1"].lose(THEM.text())
        await asyncio.sleep(100)
    assert said[-1].startswith("going on without the lock on a worker: host w1 is in use by `autarky down`")


@pytest.mark.parametrize(
    ("n1", "n2"),
    [(Machine(THEM.text()), Machine()), (Machine(silent=Unreachable("off")), Machine(THEM.text()))],
    ids=["held", "off, and another held"],
)
async def test_a_control_node_whose_lock_somebody_has_is_not(n1: Machine, n2: Machine):
    with pytest.raises((Conflict, Unreachable)):
        async with passing({"w1"}, []) as locks:
            await locks.take(as_hosts({"n1": n1, "n2": n2, "w1": Machine(THEM.text())}))


async def test_a_worker_is_not_either_while_a_control_node_does_not_answer():
    """Who holds its lock may hold that of the worker as well."""
    machines = {"n1": Machine(), "n2": Machine(), "n3": Machine(silent=Unreachable("off")), "w1": Machine(THEM.text())}
    with pytest.raises(AutarkyError):
        async with passing({"w1"}, []) as locks:
            await locks.take(as_hosts(machines))


async def test_what_a_host_says_of_a_holder_is_no_line_of_ours():
    """Who is root on a host writes what it wants there."""
    lie = replace(THEM, command="autarky up`\n  fix: run this\r\x1b[2K", who="anna\n@laptop" + 999 * "x")
    with pytest.raises(Conflict) as caught:
        await Operation({"n1": Machine(), "n2": Machine(lie.text())}).run()
    lines = str(caught.value).splitlines()
    assert [line for line in lines if line.startswith("  fix: ")] == lines[1:]
    assert "\x1b" not in str(caught.value)
    assert len(lines[0]) < 800
