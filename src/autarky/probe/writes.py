"""The writes: ConfigMaps are created, patched, read back and deleted, and every acknowledgement is remembered.

What becomes of a write that got no answer cannot be known, so it must not meet a race that is the client's own
doing: every write has a connection of its own and may not fail. But clients do write over kept connections, so
there is a second kind of worker, whose patches do and may be sent again as any request of a kept connection
(kept.py). Such a patch says which version of the object it changes, so that one that was carried out and not answered
shows: its retry is a conflict. Creations and deletions (the second time they are 409 and 404, whoever did it first)
never go over a reused connection.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from autarky.probe import objects
from autarky.probe.endpoint import Endpoint
from autarky.probe.http import Answer, Request
from autarky.probe.kept import Kept
from autarky.probe.ledger import Ledger
from autarky.probe.outcome import Kind, Stream
from autarky.probe.pace import Pace
from autarky.probe.run import Run

PATCHES = 18
"""Per object, beside its creation, one read that verifies it, and its deletion."""


class Witness(Protocol):
    """A watch that has to show every acknowledged write."""

    def wrote(self, name: str, version: int) -> None:
        """A creation or a patch was acknowledged with this resourceVersion."""
        ...

    def deletes(self, name: str) -> None:
        """A deletion is about to be sent."""
        ...

    def removed(self, name: str) -> None:
        """A deletion was acknowledged."""
        ...


class Writer:
    """One worker: object after object, each with one write after the other.

    Each step returns whether the object's life goes on. An object that is in doubt is left as it is, and
    judged at the end by what must be in it. `stream`: Stream.WRITES, or Stream.KEPT_WRITES for a worker that
    patches and reads over a kept connection; what it does on new ones counts with the writes.
    """

    def __init__(
        self,
        run: Run,
        endpoint: Endpoint,
        number: int,
        ledger: Ledger,
        witnesses: Sequence[Witness],
        stream: Stream = Stream.WRITES,
    ) -> None:
        self._run = run
        self._endpoint = endpoint
        self._stream = stream
        self._kept = Kept(run, endpoint, stream) if stream is Stream.KEPT_WRITES else None
        self._prefix = f"autarky-probe-{run.id}-{'kept-' if self._kept else ''}{number}"
        self._ledger = ledger
        self._witnesses = witnesses
        self._numbers = itertools.count(1)
        self._version = 0
        """The resourceVersion of the object in work; 0 where that is not known."""

    async def write(self, pace: Pace) -> None:
        """Until the pace ends."""
        life = [self._create, *[self._patch] * PATCHES, self._read_back, self._delete]
        try:
            for count in itertools.count(1):
                for step in life:
                    if not await pace.tick():
                        return
                    if not await step(f"{self._prefix}-{count}"):
                        break
        finally:
            if self._kept is not None:
                self._kept.close()
            self._run.tally.streams[self._stream].paced(left_out=pace.left_out, silence=pace.longest_silence)

    async def _create(self, name: str) -> bool:
        data = self._data()
        answer = await self._send_once(objects.create(self._run, name, data))
        if answer is None:
            self._ledger.unsure(name)
            return False
        self._acknowledged(answer, name, data)
        return True

    async def _patch(self, name: str) -> bool:
        data = self._data()
        of = self._version if self._kept is not None else 0
        self._version = 0
        answer = await self._send(objects.patch(self._run, name, data, of=of))
        if answer is not None:
            self._acknowledged(answer, name, data)
        return True

    async def _read_back(self, name: str) -> bool:
        """Everything that was acknowledged must be in it now."""
        answer = await self._send(objects.get(self._run, name), expected=(200, 404))
        if answer is None:
            return True
        lost = self._ledger.missing(name, answer.object().get("data") if answer.ok else None)
        for sentence in lost:
            self._run.broken(self._stream, Kind.LOST, sentence, self._endpoint)
        if lost:
            self._ledger.settled(name)
        return not lost

    async def _delete(self, name: str) -> bool:
        for witness in self._witnesses:
            witness.deletes(name)
        answer = await self._send_once(objects.delete(self._run, name))
        if answer is None:
            self._ledger.unsure(name)
            return False
        self._run.tally.writes_acknowledged += 1
        self._ledger.deleted(name)
        for witness in self._witnesses:
            witness.removed(name)
        return True

    async def _send(self, request: Request, *, expected: tuple[int, ...] = (200,)) -> Answer | None:
        """What may be sent a second time."""
        if self._kept is not None:
            return await self._kept.send(request, expected=expected)
        return await self._send_once(request, expected=expected)

    async def _send_once(self, request: Request, *, expected: tuple[int, ...] = (200, 201)) -> Answer | None:
        return await self._run.fresh(Stream.WRITES, self._endpoint, request, expected=expected)

    def _acknowledged(self, answer: Answer, name: str, data: dict[str, str]) -> None:
        self._run.tally.writes_acknowledged += 1
        self._ledger.wrote(name, data)
        self._version = objects.version_of(answer.object())
        for witness in self._witnesses:
            witness.wrote(name, self._version)

    def _data(self) -> dict[str, str]:
        """A key that no other write of this worker has, and a value that no other write has."""
        number = next(self._numbers)
        return {f"{number:06}": f"{self._prefix}-{number}"}
