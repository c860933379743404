"""Which writes were acknowledged, and what must therefore be found. Pure.

Every write has a key and value of its own and none overwrites another, so that the loss of any of them
shows, not only that of the last. A write that got no answer, or an error, may have happened or not: nothing
follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping


class Ledger:
    """Objects by name, each with the keys that acknowledged writes put into it."""

    def __init__(self) -> None:
        self._present: dict[str, dict[str, str]] = {}
        self._doubtful: dict[str, dict[str, str]] = {}

    def wrote(self, name: str, data: Mapping[str, str]) -> None:
        """Acknowledged: the object was created or patched, and holds this."""
        self._present.setdefault(name, {}).update(data)

    def deleted(self, name: str) -> None:
        """Acknowledged: the object is gone."""
        self._present.pop(name, None)

    def unsure(self, name: str) -> None:
        """Its creation or deletion had no certain outcome: it may exist or not, and is left alone from now on."""
        self._doubtful[name] = self._present.pop(name, {})

    def settled(self, name: str) -> None:
        """Its loss has been reported: nothing more is expected of it."""
        self._doubtful[name] = {}
        self._present.pop(name, None)

    @property
    def names(self) -> list[str]:
        """The objects of which something is expected, if they are there."""
        return [name for name, data in [*self._present.items(), *self._doubtful.items()] if data]

    def missing(self, name: str, found: Mapping[str, str] | None) -> list[str]:
        """What the object lacks of what was acknowledged, as sentences. `found` is its data; None: it is absent."""
        held = found or {}
        expected = self._present.get(name, {})
        return [f"{name}: {key}={value}" for key, value in expected.items() if held.get(key) != value]

    def lost(self, found: Mapping[str, Mapping[str, str]]) -> list[str]:
        """What all objects that there are lack of what was acknowledged. `found`: name → data."""
        problems = [sentence for name in self._present for sentence in self.missing(name, found.get(name))]
        for name, expected in self._doubtful.items():
            data = found.get(name)
            if data is not None:
                problems += [f"{name}: {key}={value}" for key, value in expected.items() if data.get(key) != value]
        known = self._present.keys() | self._doubtful.keys()
        return problems + [f"{name}: its deletion" for name in found if name not in known]
