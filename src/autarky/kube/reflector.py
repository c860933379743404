"""A live copy of one collection: list, then watch, forever, through every outage.

Contract:
- `run` never ends by itself: whatever the API does, it is tried again, after a jittered pause that grows from
  FIRST_PAUSE to LONGEST_PAUSE. It raises only unexpected errors, and cancellation. The caller keeps the former
  from stopping other tasks, and runs it again: then everything is listed again, since an event may have been lost;
  until that is done, `error` says that the copy is not current.
- A watch that ended resumes where it was, so nothing is missed; if the server has compacted that version
  (410), everything is listed again. Either way `on_change` is called after each change of the copy.
- An outage leaves the copy as it was. Readers judge its age: `age` counts from the last
  sign of life (list, event, bookmark, end of a watch), of which one comes every WATCH_SECONDS while all is well.

Danger: the copy is shared, not deep-copied: readers must not change the objects in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NoReturn

from autarky.errors import ApiError, AutarkyError
from autarky.kube.listing import Lister, Slim, complete
from autarky.model.patience import WATCH
from autarky.ports import Clock, Object, WatchEvent

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
"""Seconds. Short, since what reads the copy may be what brings the API back; one request in 5 s is no load."""
QUICK_END = 1.0
"""A watch that ends with nothing said within so many seconds has failed, however politely: a server that
shuts down does that, and would otherwise be asked again without any pause."""

WATCH_SECONDS = WATCH
"""Less than the silence after which the client gives a watch up: where nothing happens no bookmarks come
either (none is sent that says nothing new, and for Events none at all), and such a watch shall end in peace."""

Key = tuple[str | None, str]
"""(namespace, name)"""


def _nothing() -> None: ...


def _anything(_: Object) -> bool:
    return True


def _always(_before: Object, _after: Object) -> bool:
    return True


def _unnoticed(_: Object) -> None: ...


@dataclass(slots=True)
class Reflector:
    """Run it as a task; read `items`, `synced`, `age` and `error` at any time.

    on_change: called in the event loop after each change; typically the `set` of an asyncio.Event.
    on_news: called after it, unless one object has only replaced its former version, and is no news beside that.
    accepts: whether an object can be understood; one that cannot counts as absent.
    slim: what of an object is kept, and all that `accepts` and `on_object` are given of it.
    on_object: called with each version of each object that is heard of, however soon another one comes.
    jitter: a factor for each pause, from the range [0.5, 1].
    """

    kube: Lister
    clock: Clock
    api_version: str
    kind: str
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None
    on_change: Callable[[], None] = _nothing
    on_news: Callable[[], None] = _nothing
    is_news: Callable[[Object, Object], bool] = _always
    accepts: Callable[[Object], bool] = _anything
    slim: Slim = complete
    on_object: Callable[[Object], None] = _unnoticed
    watch_seconds: int = WATCH_SECONDS
    jitter: Callable[[], float] = lambda: random.uniform(0.5, 1)  # noqa: S311 # spreads load, guards nothing
    error: str | None = None
    """The last attempt's error; None while list and watch work."""
    _items: dict[Key, Object] = field(default_factory=dict)
    _refused: dict[Key, Object] = field(default_factory=dict)
    _version: str | None = None
    _last_heard: float | None = None
    _failures: int = 0
    _forgotten: int = 0
    """How often in a row the server did not know the version that it had just returned."""

    # --- what readers see ---

    @property
    def items(self) -> Mapping[Key, Object]:
        """The copy, by namespace and name. Empty until the first list; see `synced`."""
        return self._items

    @property
    def refused(self) -> Mapping[Key, Object]:
        """Objects that exist and are not accepted."""
        return self._refused

    @property
    def synced(self) -> bool:
        """Whether everything has been listed at least once."""
        return self._last_heard is not None

    @property
    def age(self) -> float:
        """Seconds since the last sign that the copy is current; infinite before the first list."""
        return self.clock.monotonic() - self._last_heard if self._last_heard is not None else float("inf")

    # --- the loop ---

    async def run(self) -> NoReturn:
        while True:
            try:
                if self._version is None:
                    await self._relist()
                await self._follow()
            except AutarkyError as error:
                self._fail(error)
            except Exception as error:  # see the contract
                self.error, self._version = f"{type(error).__name__}: {error}", None
                raise
            if self._failures:
                await self.clock.sleep(self._pause())

    async def _relist(self) -> None:
        listing = await self.kube.list_at(
            self.api_version,
            self.kind,
            namespace=self.namespace,
            labels=self.labels,
            fields=self.fields,
            slim=self.slim,
        )
        self._items, self._refused = {}, {}
        for item in listing.items:
            self._keep(item)
        self._version = listing.resource_version
        self._hear()  # no success yet: a list that is forgotten at once must not be repeated without end
        self.on_change()
        self.on_news()

    async def _follow(self) -> None:
        """One watch, from the version that is known to its end."""
        begin = self.clock.monotonic()
        watch = self.kube.watch(
            self.api_version,
            self.kind,
            namespace=self.namespace,
            labels=self.labels,
            fields=self.fields,
            resource_version=self._version,
            timeout_seconds=self.watch_seconds,
        )
        version = self._version
        async with aclosing(watch) as events:
            async for event in events:
                self._take(event)
        self._hear()
        if self._version == version and self.clock.monotonic() - begin < QUICK_END:
            self._failures += 1
        else:
            self._succeed()

    def _take(self, event: WatchEvent) -> None:
        self._hear()
        version = event.object["metadata"]["resourceVersion"]
        if version != self._version:
            self._version = version
            self._succeed()
        if event.type == "BOOKMARK":
            return
        key = _key(event.object)
        before = self._items.pop(key, None) or self._refused.pop(key, None)
        after = None if event.type == "DELETED" else self.slim(event.object)
        if after is not None:
            self._keep(after)
        self.on_change()
        if before is None or after is None or self.is_news(before, after):
            self.on_news()

    def _keep(self, obj: Object) -> None:
        self.on_object(obj)
        (self._items if self.accepts(obj) else self._refused)[_key(obj)] = obj

    def _hear(self) -> None:
        self._last_heard = self.clock.monotonic()
        self.error = None

    def _fail(self, error: AutarkyError) -> None:
        self.error = str(error)
        self._failures += 1
        if isinstance(error, ApiError) and error.status == 410:
            # A server that was restarted remembers nothing: usual after an outage, and no reason to wait long.
            self._version = None
            self._forgotten += 1
            self._failures = self._forgotten

    def _succeed(self) -> None:
        self._failures = self._forgotten = 0

    def _pause(self) -> float:
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 10)) * self.jitter())


def _key(obj: Object) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace"), meta["name"]
