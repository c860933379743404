"""The watch: on the probe's own ConfigMaps, through every end of a connection, without a missed event.

A watch that ends is resumed from the last resourceVersion it has shown; where the server does not have that
any more (410 Gone) it begins again from a list. Neither is a failure; a missed event is (continuity.py), and
a watch that cannot be resumed in the end.

Dangers: a server that lost power closes nothing. When an acknowledged write's event is late, the
connection counts as dead and the watch is resumed on a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any

from autarky.errors import ApiError, Unreachable
from autarky.parsing import parsed
from autarky.probe import objects
from autarky.probe.continuity import Continuity, Finding
from autarky.probe.endpoint import Endpoint
from autarky.probe.http import Answer, Connection
from autarky.probe.identity import identify
from autarky.probe.outcome import Fault, Kind, Stream
from autarky.probe.run import Run

PAUSE = 0.1
"""Seconds between two attempts to resume."""
LONGEST = 3600
"""Seconds after which the server may end a watch of its own accord: long, so that an end means something."""
_GONE = 410


class Follower:
    """Follows one endpoint's watch from a resourceVersion on, until it is cancelled. Implements writes.Witness."""

    def __init__(self, run: Run, endpoint: Endpoint, position: int) -> None:
        self._run = run
        self._endpoint = endpoint
        self._continuity = Continuity(position)
        self._connection: Connection | None = None
        self._connected = 0.0
        self._ended = 0.0
        self._begun = False
        self._problem = "it has not started yet"
        self.following = asyncio.Event()
        """Set while the server sends events."""

    def wrote(self, name: str, version: int) -> None:
        self._tell(self._continuity.wrote(name, version, self._run.now()))

    def deletes(self, name: str) -> None:
        self._continuity.deletes(name)

    def removed(self, name: str) -> None:
        self._continuity.removed(name, self._run.now())

    async def follow(self) -> None:
        """Watch forever; resume whenever it ends."""
        while True:
            try:
                await self._watch_once()
            except Fault as fault:
                self._problem = str(fault)
            finally:
                self._stopped_following()
                if self._connection is not None:
                    self._connection.close()
            await asyncio.sleep(PAUSE)

    async def begin(self, patience: float) -> None:
        """Wait until it follows; Unreachable when it does not after `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await self.following.wait()
        except TimeoutError:
            raise Unreachable(f"{self._endpoint.url} does not start a watch: {self._problem}") from None

    async def settle(self, deadline: float) -> None:
        """After the last write: wait for its event, at most until `deadline` (loop time), then judge."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self._continuity.oldest is not None or not self.following.is_set():  # noqa: ASYNC110 # no event
                    await asyncio.sleep(PAUSE / 2)
        self._tell(self._continuity.end())
        if not self.following.is_set():
            self._note_how_long_it_was_down()
            self._run.broken(Stream.WATCH, Kind.NOT_RESUMED, self._problem, self._endpoint)

    def cut_if_dead(self) -> None:
        """Give up a connection on which an event is overdue; `follow` then resumes on a new one."""
        oldest = self._continuity.oldest
        if oldest is None or not self.following.is_set() or self._connection is None:
            return
        if self._run.now() - max(oldest, self._connected) > self._run.timeout:
            self._connection.close()

    async def _watch_once(self) -> None:
        until = self._run.now() + self._run.timeout
        connection = self._connection = await self._run.open(self._endpoint, until=until)
        self._run.noticed(self._endpoint, await identify(connection))
        request = objects.watch_own(self._run, self._continuity.position, longest=LONGEST)
        refused = await connection.begin(request, until=until)
        if refused is not None:
            await self._turned_down(refused)
            return
        self._count_beginning()
        async with aclosing(connection.lines()) as lines:
            async for line in lines:
                if not await self._take(_parsed(line, self._endpoint)):
                    return

    def _count_beginning(self) -> None:
        self._run.tally.watch.resumed += self._begun
        self._begun = True
        self._connected = self._run.now()
        self._note_how_long_it_was_down()
        self.following.set()

    def _stopped_following(self) -> None:
        if self.following.is_set():
            self._ended = self._run.now()
            self.following.clear()

    def _note_how_long_it_was_down(self) -> None:
        if self._ended:
            down = self._run.now() - self._ended
            self._run.tally.watch.longest_down = max(self._run.tally.watch.longest_down, down)

    async def _turned_down(self, answer: Answer) -> None:
        self._problem = answer.sentence()
        if answer.status == _GONE:
            await self._relist()

    async def _take(self, event: dict[str, Any]) -> bool:
        """One line of the watch. False when the watch is over."""
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            self._problem = str(obj.get("message"))
            if obj.get("code") == _GONE:
                self._stopped_following()
                await self._relist()
            return False
        version = objects.version_of(obj)
        if kind == "BOOKMARK":
            self._tell(self._continuity.bookmark(version))
            return True
        self._run.tally.watch.events += 1
        acknowledged, findings = self._continuity.event(kind, obj["metadata"]["name"], version)
        self._tell(findings)
        now = self._run.now()
        since = acknowledged if acknowledged is not None else now
        self._run.tally.shown(self._run.unix(since), now - since)
        return True

    async def _relist(self) -> None:
        try:
            answer = await self._run.ask(objects.list_own(self._run), patience=self._run.timeout)
        except ApiError as error:
            self._problem = str(error)
            return
        listing = answer.object()
        shown = {item["metadata"]["name"]: objects.version_of(item) for item in listing.get("items") or []}
        self._tell(self._continuity.relisted(objects.version_of(listing), shown))
        self._run.tally.watch.relisted += 1
        self._begun = False

    def _tell(self, findings: Sequence[Finding]) -> None:
        for kind, detail in findings:
            self._run.broken(Stream.WATCH, kind, detail, self._endpoint)


def _parsed(line: bytes, endpoint: Endpoint) -> dict[str, Any]:
    try:
        event = parsed(line)
        event["type"], event["object"]["metadata"]
    except (ValueError, KeyError, TypeError) as error:
        raise Fault(Kind.MALFORMED, str(endpoint), f"no watch event: {error!r}", begun=True) from error
    found: dict[str, Any] = event
    return found
