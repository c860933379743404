"""Whether a watch shows every acknowledged write, once and in order. Pure.

What a watch promises: from the resourceVersion where it began, or resumed, every change comes as one event,
in the order of resourceVersions; a bookmark says that everything up to it has come. Versions are compared as
numbers, as etcd counts them. An acknowledgement may come before or after its event.

A watch that can only begin again from a list (410 Gone) shows states, not events: what the list shows counts
as seen. An acknowledged write that a later one had covered by then, as the list says itself, or a deletion, was
overtaken, which is not a missed one: where the only server was killed, nobody could have been shown it, and
a client has the newest state all the same. A list that lacks a write which nothing has covered is a stale one.
"""

from __future__ import annotations

from collections.abc import Mapping

from autarky.probe.outcome import Kind

Finding = tuple[Kind, str]


class Continuity:
    """One watch, from `position` (the resourceVersion where it begins) on.

    Each method returns what it shows to be broken. `at` is the time of an acknowledgement, in seconds of any
    clock; `oldest` gives it back.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        self._awaited: dict[int, tuple[str, float]] = {}
        self._early: set[int] = set()
        self._removals: dict[str, float] = {}
        self._early_removals: set[str] = set()
        self._live: set[str] = set()
        self._leaving: set[str] = set()

    @property
    def oldest(self) -> float | None:
        """When the oldest acknowledgement came whose event has not; None when nothing is awaited."""
        return min([*(at for _, at in self._awaited.values()), *self._removals.values()], default=None)

    def wrote(self, name: str, version: int, at: float) -> list[Finding]:
        """A creation or a patch was acknowledged with this resourceVersion."""
        if version in self._early:
            self._early.discard(version)
        elif version <= self.position:
            return [_missed(version, f"the watch had passed it at {self.position}")]
        else:
            self._awaited[version] = (name, at)
        return []

    def deletes(self, name: str) -> None:
        """A deletion is about to be sent; whether it is acknowledged or not, a list need not have the object."""
        self._leaving.add(name)

    def removed(self, name: str, at: float) -> None:
        """A deletion was acknowledged. Its version is not reported, so its event is recognised by the name."""
        if name in self._early_removals:
            self._early_removals.discard(name)
        else:
            self._removals[name] = at

    def event(self, kind: str, name: str, version: int) -> tuple[float | None, list[Finding]]:
        """An event came. Also returns when it was acknowledged, if that is known already."""
        if version <= self.position:
            return None, [(Kind.DISORDER, f"{kind} {name} at version {version} after version {self.position}")]
        found = self._pass(version - 1)
        self.position = version
        if kind == "DELETED":
            return self._shown_removal(name), found
        self._live.add(name)
        return self._shown(version), found

    def bookmark(self, version: int) -> list[Finding]:
        """Everything up to this version has come."""
        self.position = max(self.position, version)
        return self._pass(version)

    def relisted(self, version: int, objects: Mapping[str, int]) -> list[Finding]:
        """The watch began again from a list at `version`. `objects`: name → version."""
        for shown in objects.values():
            if shown > self.position:
                self._shown(shown)
        found = self._overtaken(version, objects)
        for name in (self._live | self._removals.keys()) - objects.keys():
            self._shown_removal(name)
        self._live = set(objects)
        self._leaving &= objects.keys()
        return found + self.bookmark(version)

    def _overtaken(self, version: int, objects: Mapping[str, int]) -> list[Finding]:
        """What a list at this version need not show: what another write or a deletion has covered."""
        found = []
        for awaited, (name, _) in sorted(self._awaited.items()):
            covered = objects[name] > awaited if name in objects else name in self._leaving
            if awaited <= version and covered:
                del self._awaited[awaited]
                found.append(
                    (Kind.OVERTAKEN, f"the event of version {awaited}: a list at {version} shows what came later")
                )
        return found

    def end(self) -> list[Finding]:
        """Nothing more will come."""
        missed = [_missed(version, "it never came") for version in sorted(self._awaited)]
        missed += [(Kind.MISSED, f"the deletion of {name}: it never came") for name in self._removals]
        self._awaited.clear()
        self._removals.clear()
        return missed

    def _shown(self, version: int) -> float | None:
        if version in self._awaited:
            return self._awaited.pop(version)[1]
        self._early.add(version)
        return None

    def _shown_removal(self, name: str) -> float | None:
        self._live.discard(name)
        self._leaving.discard(name)
        if name in self._removals:
            return self._removals.pop(name)
        self._early_removals.add(name)
        return None

    def _pass(self, version: int) -> list[Finding]:
        """The watch has come to this version: what was awaited up to it will not come any more."""
        passed = [awaited for awaited in self._awaited if awaited <= version]
        for awaited in passed:
            del self._awaited[awaited]
        return [_missed(awaited, f"the watch passed it and came to {version}") for awaited in passed]


def _missed(version: int, how: str) -> Finding:
    return Kind.MISSED, f"the event of version {version}: {how}"
