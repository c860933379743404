"""A loop of cuts cuts after the writes that are made until all is over: later ones are nobody's, and stop no agent."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from e2e import parts
from e2e.parts import Draw

EARLY, LATE = "create /var/lib/etcd/member", "rename /var/lib/autarky/state/etcd-members.json"
BETWEEN = "fsync /var/lib/etcd/member"


@pytest.fixture
def cuts_of_etcd(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the scenarios have it, which find each other beside themselves."""
    monkeypatch.syspath_prepend(str(Path(parts.__file__).parent))
    return importlib.import_module("cuts_of_etcd")


@dataclass
class World:
    """A node, its agent, the tracer that follows it, and somebody who writes to the API."""

    module: ModuleType
    draw: Draw
    name: str = "t"
    on: bool = True
    said: list[str] = field(default_factory=list)
    """What was done to the node."""
    acknowledged: list[int] = field(default_factory=list)
    over: bool = False
    as_the_writer_begins: Callable[[], None] = lambda: None
    as_the_writer_ends: Callable[[], None] = lambda: None
    in_chains: bool = False
    _traced: Any = None
    _taken: list[str] = field(default_factory=list)

    def writes(self, name: str) -> None:
        """The agent does. After one that is drawn it stands still, until its node has no power or no tracer."""
        if self._traced is None:
            return
        assert self._traced.cut_after is None, f"the agent stands still and does not come to {name}"
        if self.draw.takes(name, self._taken):
            self._traced.cut_after = name
        else:
            self._traced.passed.append(name)

    @contextmanager
    def stopped_after_write(
        self, _cluster: object, _node: str, _command: int, share: Any, taken: list[str]
    ) -> Iterator[Any]:
        self.draw, self._taken, self._traced = share.draw, list(taken), self.module.Traced()
        try:
            yield self._traced
        finally:
            self._traced = None

    def autarky(self, _lab: str, verb: str, *_argv: str) -> None:
        assert self.on is (verb == "cut"), f"`lab {verb}` is refused"
        self.on = not self.on
        self.over = self.over or self.on  # with no help
        self.said.append(verb)

    def announce(self) -> None: ...

    def announcements_end(self) -> None: ...

    def wait(self, what: str, condition: Callable[[], object], **_bounds: float) -> None:
        assert condition(), f"waited until {what}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.acknowledged.append(len(self.acknowledged))
        self.as_the_writer_begins()
        yield
        self.as_the_writer_ends()

    def cuts(self, begin: Callable[[], object], check: Callable[[], object]) -> list[str]:
        """After which writes."""
        made = self.module.cut_after_writes_of_agents(
            self,
            self.module.Share("", self.draw, 1000 if self.in_chains else 1, self.in_chains),
            node="n1",
            begin=begin,
            over=lambda: self.over,
            check=check,
            writer=self,
            seconds=1,
        )
        return [write for _, _, write in made]


@pytest.fixture
def world(cuts_of_etcd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> World:
    """Nothing is drawn of it: so the first pass has no cut, and for the next one a write of that pass is drawn."""
    made = World(cuts_of_etcd, Draw("", 10**9, (), 1))

    class Client:
        def __init__(self, _cluster: object) -> None: ...

        def answers(self) -> bool:
            return made.on

    monkeypatch.setattr(cuts_of_etcd, "_stopped_after_write", made.stopped_after_write)
    monkeypatch.setattr(cuts_of_etcd, "Client", Client)
    return made


def test_what_is_written_while_the_outcome_is_checked_stops_no_agent(world: World) -> None:
    """In a pass without a cut, too: a check may have the agents work, and waits for them."""
    world.draw = Draw("", 10**9, (f"{LATE}$",))

    def begin() -> None:
        world.writes(EARLY)
        world.over = True

    def check() -> None:
        assert world.on
        for _ in range(2):
            world.writes(LATE)

    assert world.cuts(begin, check) == [EARLY]
    assert world.said == ["cut", "start"]


def test_a_write_after_the_last_look_is_not_taken_for_a_cut(world: World) -> None:
    """The writer takes a moment to end. Then it is drawn again, and a pass in which it comes in time has its cut."""
    world.draw = Draw("", 10**9, (f"{LATE}$",))
    passes = 0

    def begin() -> None:
        nonlocal passes
        passes += 1
        if passes == 1:
            world.as_the_writer_ends = lambda: world.writes(LATE)
        else:
            world.as_the_writer_ends = lambda: None
            world.writes(LATE)
        world.over = True

    assert world.cuts(begin, lambda: None) == [LATE]
    assert (passes, world.said) == (2, ["cut", "start"])


def test_in_a_chain_what_goes_on_is_cut_again_until_a_pass_has_no_write_that_was_not(world: World) -> None:
    """And its outcome is judged at the end of a chain: after the last cut, and where a pass had none."""
    world.draw, world.in_chains = Draw("", 1, ()), True
    left, checked = list[str](), list[int]()

    def begin() -> None:
        left.extend([EARLY, BETWEEN, LATE])
        go_on()

    def go_on() -> None:
        """It makes one write after the other, and stands still after one that is drawn."""
        while left and (world._traced is None or world._traced.cut_after is None):
            world.writes(left.pop(0))
        world.over = not left

    world.as_the_writer_begins = go_on

    assert world.cuts(begin, lambda: checked.append(len(world.said))) == [EARLY, BETWEEN, LATE]
    assert world.said == ["cut", "start"] * 3
    assert checked == [6, 6]
