"""What the others do, for each of the many nodes that wait for their turn. Pure; for `turns`. `Once` also
for `takeovers`.

Contract: whoever waits asks about all places but its own, and most of them would get the same answers. Each answer is
found once, and again only after somebody has got a turn: while kubelets wait somebody looks each second, and to go
through all places for each of a thousand nodes would take longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from autarky.control.common.shapes import some
from autarky.control.kubelet.decide.order import drains
from autarky.control.kubelet.decide.standing import Place, Standing, stoppers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HaveTurns:
    """Of a pool, as one of them or one that waits sees it."""

    number: int
    late: int
    names: str


class Once:
    """Answers, each found once until `forget`."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Any] = {}

    def __call__(self, question: tuple[Any, ...], look: Callable[[], T]) -> T:
        if question not in self._found:
            self._found[question] = look()
        answer: T = self._found[question]
        return answer

    def forget(self) -> None:
        self._found.clear()


class Beside:
    """The places of one pass. `give` replaces the one that gets its turn."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = list(places)
        self._index = {place.node.name: number for number, place in enumerate(places)}
        self._stoppers = stoppers(places)  # who has failed gets no turn: this stays as it is
        self._once = Once()

    def give(self, place: Place) -> None:
        self.places[self._index[place.node.name]] = place
        self._once.forget()

    def that_stop(self, place: Place) -> str:
        """Their names, of one that has not failed itself."""
        return self._once(("stop", *place.stopped_as), lambda: _names(self._stoppers(place)))

    def that_come_before(self, place: Place, *, held: bool) -> str:
        """Their names. held: whether control nodes let workers go first."""
        with_workers = held or not place.node.control

        def look() -> str:
            claiming = (one for one in self.places if with_workers or one.node.control)
            return _names([one for one in claiming if one.comes_before(place)])

        return self._once(("before", with_workers, place.goes_down, place.node.pool.order), look)

    def with_turn(self, place: Place) -> HaveTurns:
        """The others of its pool."""
        pool = place.node.pool.name
        if place.standing is Standing.HAS_TURN:  # few: an order of theirs is replaced
            return _have_turns([one for one in self._of_pool(pool) if one is not place])
        return self._once(("turns of", pool), lambda: _have_turns(self._of_pool(pool)))

    def control_nodes(self, place: Place) -> list[Place]:
        """The others."""
        control = self._once(("control",), lambda: [one for one in self.places if one.node.control])
        return [one for one in control if one is not place]

    def is_alone(self, place: Place) -> bool:
        """Whether nobody could take what a drain evicts."""
        return self._others_that(_takes_pods_now if place.node.control else _could_take_pods, place) == 0

    def that_could_take_pods(self, place: Place) -> str:
        """The names of the others that could, where none of them does so now."""
        if self._others_that(_takes_pods_now, place):
            return ""
        able = self._that(_could_take_pods)
        if _could_take_pods(place):  # itself the only one that might take them now
            return _names([one for one in able if one is not place])
        return self._once(("able",), lambda: _names(able))

    def _of_pool(self, name: str) -> list[Place]:
        def look() -> dict[str, list[Place]]:
            found: dict[str, list[Place]] = {}
            for one in self.places:
                if one.standing is Standing.HAS_TURN:
                    found.setdefault(one.node.pool.name, []).append(one)
            return found

        return self._once(("turns",), look).get(name, [])

    def _others_that(self, does: Callable[[Place], bool], place: Place) -> int:
        return len(self._that(does)) - does(place)

    def _that(self, does: Callable[[Place], bool]) -> list[Place]:
        return self._once(("that", does), lambda: [one for one in self.places if does(one)])


def _have_turns(places: Sequence[Place]) -> HaveTurns:
    return HaveTurns(len(places), sum(1 for one in places if one.late), _names(places))


def _could_take_pods(place: Place) -> bool:
    return place.node.takes_pods and not place.node.away and not place.late


def _takes_pods_now(place: Place) -> bool:
    order = place.node.order
    is_emptied = place.under_way and (order is None or drains(order, place.node.runs))
    return _could_take_pods(place) and place.node.ready and not is_emptied


def _names(places: Sequence[Place]) -> str:
    return some(one.node.name for one in places)
