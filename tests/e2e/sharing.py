"""How modules share clusters: in which order they run, and when a cluster is made, made anew and taken down. No cluster
is touched here.

Contract: tests that share a cluster run one right after the other, so that it is taken down before the next one is
made. A module finds it settled: after one with a failure it is made anew, so that the failure of one module takes no
other down with it; one that passes and leaves it unsettled fails itself, at its end. Within a module it is made anew
when it does not settle after a failure.
Dangers: a cluster that is made anew in the middle of a chain has nothing of what the chain did before; but then the
chain has failed already. What a module leaves behind and is no matter of being settled (edits of workloads, events,
objects of its own) the next ones find: ORDER in `shared`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Test = TypeVar("Test")
_log = logging.getLogger(__name__)


def together(
    tests: Sequence[Test],
    place: Callable[[Test], str | None],
    module: Callable[[Test], str],
    order: Mapping[str, Sequence[str]],
) -> list[Test]:
    """Those of one place where its first one stands, and there by their modules as `order` has them; a module that it
    lacks comes last. place: None for a test that shares nothing. Else nothing moves."""
    of_place: dict[str, list[Test]] = {}
    for test in tests:
        name = place(test)
        if name is not None:
            of_place.setdefault(name, []).append(test)

    def rank(name: str, test: Test) -> int:
        known = list(order.get(name, ()))
        return known.index(module(test)) if module(test) in known else len(known)

    sorted_out = {name: sorted(found, key=lambda one: rank(name, one)) for name, found in of_place.items()}
    arranged: list[Test] = []
    for test in tests:
        name = place(test)
        arranged += [test] if name is None else sorted_out.pop(name, [])
    return arranged


@dataclass
class Shared:
    """One cluster. make: brings it up, settled, whatever was there before. settle: AssertionError when it does not.
    remove: takes away whatever there is of it. agree: AssertionError when a module leaves members of etcd that
    differ."""

    make: Callable[[], None]
    settle: Callable[[], None]
    remove: Callable[[], None]
    agree: Callable[[], None]
    _there: bool = field(default=False, init=False)
    _module: str | None = field(default=None, init=False)
    _test_failed: bool = field(default=False, init=False)
    _module_failed: bool = field(default=False, init=False)
    _given_up: str | None = field(default=None, init=False)

    def begin(self, module: str, *, up: bool = True) -> None:
        """Before each test of the module. up: False for one that brings it up itself, with nothing there before."""
        if self._given_up == module:
            raise AssertionError("the shared cluster could not be made, as the first failure of this module says")
        if self._there and not (up and self._goes_on_with(module)):
            self.end()
        if not self._there:
            self._given_up = module
            (self.make if up else self.remove)()
            self._given_up, self._there = None, True
        if module != self._module:
            self._module, self._module_failed = module, False
        self._test_failed = False

    def _goes_on_with(self, module: str) -> bool:
        """Whether it is as it should be, for all that has failed before."""
        if self._module != module:
            return not self._module_failed
        if not self._test_failed:
            return True
        try:
            self.settle()
        except Exception as error:  # a cluster that is not well fails in any way
            _log.warning("the shared cluster is made anew, as it does not settle: %s", error)
            return False
        return True

    def test_failed(self) -> None:
        self._test_failed = self._module_failed = True

    def module_ended(self) -> None:
        """And another one goes on with the cluster. AssertionError when it is not settled, though all has passed, or
        when its members of etcd differ, whatever has failed: they may be why."""
        if self._there and not self._module_failed:
            self.settle()
        if self._there:
            self.agree()

    def last_module_ended(self) -> None:
        try:
            if self._there:
                self.agree()
        finally:
            self.end()

    def end(self) -> None:
        """Nothing is left of it, nor of one that could not be made."""
        if self._there or self._given_up is not None:
            self._there, self._given_up = False, None
            self.remove()
