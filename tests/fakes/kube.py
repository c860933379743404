"""An API server in memory, for tests of what uses ports.Kube. The contract tests (tests/contract/kube) hold
it to what the real one does.

It keeps versions, uids, generations, finalizers, watches with their history, custom resource definitions, and
server-side apply (see merging.py). It does not validate, default, authorize or run controllers: a Deployment
stays what it is until the test writes its status.

For tests: `outage` makes every call fail and every watch break off; `unhealthy` is what `healthy` says;
`pod_logs` is what `logs` returns, and `metrics` what /metrics has; `put` writes an object as a controller would, status
included.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncGenerator, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from autarky.errors import ApiError, Conflict, Unreachable
from autarky.kube import Listing
from autarky.kube.listing import Slim, complete
from autarky.kube.resources import BUILT_IN, Resource
from autarky.model.patience import HEALTH
from autarky.ports import Object, WatchEvent
from fakes.merging import merge_patch, server_side_apply
from fakes.selecting import selects

FIRST_VERSION = 100
"""What is older is forgotten: a watch from there is answered 410."""
Key = tuple[str, str, str | None, str]
"""apiVersion, kind, namespace, name"""


@dataclass(frozen=True, slots=True)
class _Change:
    version: int
    key: Key
    before: Object | None
    after: Object | None


_MOMENT = 0.001
"""Seconds. A timer fires within the resolution of its loop's clock, and what is left then would be waited for without
an end: a clock that goes only while nobody waits for less than that would stand still."""


@dataclass(slots=True)
class FakeKube:
    outage: str | None = None
    unhealthy: str | None = None
    pod_logs: dict[tuple[str, str], str] = field(default_factory=dict)
    metrics: str = "# TYPE process_open_fds gauge\nprocess_open_fds 1\n"
    _objects: dict[Key, Object] = field(default_factory=dict)
    _applied: dict[Key, dict[str, Object]] = field(default_factory=dict)
    """Manager → what it applied last."""
    _history: list[_Change] = field(default_factory=list)
    _version: int = FIRST_VERSION
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        for name in ("default", "kube-system"):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    # --- for tests ---

    def put(self, obj: Object) -> Object:
        """Create or replace the object as it is."""
        return self._store(self._key(obj), deepcopy(obj))

    def set_outage(self, sentence: str | None) -> None:
        """Begin (or with None end) an outage; open watches break off at once."""
        self.outage = sentence
        self._notify()

    # --- reading ---

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        await self._arrive()
        self._resource(api_version, kind).object(name, namespace)
        return deepcopy(self._objects.get((api_version, kind, namespace, name)))

    async def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        return (await self.list_at(api_version, kind, namespace=namespace, labels=labels, fields=fields)).items

    async def each(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncGenerator[Object, None]:
        for obj in await self.list(api_version, kind, namespace=namespace, labels=labels, fields=fields):
            yield obj

    async def list_at(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        slim: Slim = complete,
    ) -> Listing:
        await self._arrive()
        self._resource(api_version, kind).collection(namespace)
        keys = sorted(
            (key for key in self._objects if _in_collection(key, api_version, kind, namespace)),
            key=lambda key: (key[2] or "", key[3]),
        )
        found = [self._objects[key] for key in keys if selects(self._objects[key], labels, fields)]
        return Listing([slim(obj) for obj in deepcopy(found)], str(self._version))

    async def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        resource_version: str | None = None,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[WatchEvent, None]:
        listing = await self.list_at(api_version, kind, namespace=namespace, labels=labels, fields=fields)
        if resource_version is None:
            seen = int(listing.resource_version)
            for item in listing.items:
                yield WatchEvent("ADDED", item)
        else:
            seen = int(resource_version)
            if seen < FIRST_VERSION:
                raise ApiError(410, "Expired", f"too old resource version: {seen} ({FIRST_VERSION})")
            yield WatchEvent("BOOKMARK", _bookmark(api_version, kind, resource_version))
        end = asyncio.get_running_loop().time() + timeout_seconds
        while True:
            for change in [change for change in self._history if change.version > seen]:
                seen = change.version
                if _in_collection(change.key, api_version, kind, namespace):
                    event = _event(change, labels, fields)
                    if event is not None:
                        yield event
            left = end - asyncio.get_running_loop().time()
            if left <= _MOMENT:
                return
            await self._change(left)
            self._check_outage()

    async def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str | None = None,  # all containers of a pod say the same
        previous: bool = False,
        tail: int | None = None,
    ) -> str:
        await self._arrive()
        if (namespace, pod) not in self.pod_logs:
            raise _absent("pods", pod)
        lines = self.pod_logs[(namespace, pod)].splitlines(keepends=True)
        return "".join(lines[-tail:] if tail is not None else lines)

    async def lines(self, path: str, beginnings: Collection[str]) -> Sequence[str]:
        await self._arrive()
        if path != "/metrics":
            raise ApiError(404, "NotFound", "404 page not found")
        return [line for line in self.metrics.splitlines() if line.startswith(tuple(beginnings))]

    async def healthy(self, path: str = "/readyz", *, timeout: float = HEALTH) -> str | None:
        return self.outage or self.unhealthy

    # --- writing ---

    async def apply(self, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        await self._arrive()
        key = self._writable(obj)
        live = self._objects.get(key)
        self._check_version(live, obj)
        wanted = _as_stored(obj)
        applied = self._applied.get(key, {})
        others = [fields for name, fields in applied.items() if name != manager]
        merged = server_side_apply(deepcopy(live or {}), wanted, applied.get(manager, {}), others)
        if dry_run:
            return merged
        self._applied.setdefault(key, {})[manager] = wanted
        return self._store(key, self._keep_status(key, live, merged))

    async def create(self, obj: Object) -> Object:
        await self._arrive()
        obj = _as_stored(obj)
        if "name" not in obj["metadata"]:
            obj["metadata"]["name"] = obj["metadata"]["generateName"] + uuid.uuid4().hex[:5]
        key = self._writable(obj)
        if key in self._objects:
            raise Conflict(f'AlreadyExists: {key[1]} "{key[3]}" already exists')
        self._applied[key] = {"": deepcopy(obj)}
        return self._store(key, self._keep_status(key, None, obj))

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        patch: Object,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        await self._arrive()
        key, live = self._existing(api_version, kind, namespace, name)
        self._check_version(live, patch)
        merged = merge_patch(deepcopy(live), patch)
        if subresource is not None:
            merged = {**live, "status": merged.get("status")}
            return self._store(key, merged)
        return self._store(key, self._keep_status(key, live, _as_stored(merged)))

    async def replace(self, obj: Object, *, subresource: str | None = None) -> Object:
        await self._arrive()
        meta = obj["metadata"]
        key, live = self._existing(obj["apiVersion"], obj["kind"], meta.get("namespace"), meta["name"])
        self._check_version(live, obj)
        if subresource is not None:
            return self._store(key, {**deepcopy(live), "status": deepcopy(obj.get("status"))})
        kept = {name: live["metadata"][name] for name in ("uid", "creationTimestamp")}
        new = _as_stored(obj)
        new["metadata"] |= kept
        return self._store(key, self._keep_status(key, live, new))

    async def evict(self, namespace: str, pod: str) -> bool:
        return await self.delete("v1", "Pod", pod, namespace)

    async def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        as_read: Object | None = None,
    ) -> bool:
        await self._arrive()
        self._resource(api_version, kind).object(name, namespace)
        key = (api_version, kind, namespace, name)
        live = self._objects.get(key)
        if live is None:
            return False
        if as_read is not None and any(
            live["metadata"][one] != as_read["metadata"][one] for one in ("uid", "resourceVersion")
        ):
            raise Conflict("Conflict: the UID or the ResourceVersion in the precondition is another one")
        if live["metadata"].get("finalizers"):
            doomed = deepcopy(live)
            doomed["metadata"].setdefault("deletionTimestamp", _now())
            if grace_seconds is not None:
                doomed["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
            self._store(key, doomed)
        else:
            self._remove(key)
        return True

    async def close(self) -> None: ...

    # --- the store ---

    def _store(self, key: Key, obj: Object) -> Object:
        """Write what differs, with the metadata that the server owns."""
        before = self._objects.get(key)
        meta = obj["metadata"] = dict(obj["metadata"])
        meta.pop("resourceVersion", None)
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", _now())
        if "spec" in obj:
            meta["generation"] = _generation(before, obj)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self._remove(key)
        if before is None or _without_version(before) != _without_version(obj):
            self._version += 1
            meta["resourceVersion"] = str(self._version)
            self._objects[key] = obj
            self._record(key, before, obj)
        return deepcopy(self._objects[key])

    def _remove(self, key: Key) -> Object:
        before = self._objects.pop(key)
        self._applied.pop(key, None)
        self._version += 1
        before = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self._version)}}
        self._record(key, before, None)
        return deepcopy(before)

    def _record(self, key: Key, before: Object | None, after: Object | None) -> None:
        self._history.append(_Change(self._version, key, deepcopy(before), deepcopy(after)))
        self._notify()

    def _notify(self) -> None:
        self._wake.set()
        self._wake = asyncio.Event()

    async def _change(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes in the moment of the change.
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    # --- checks ---

    async def _arrive(self) -> None:
        """A request takes a turn of the event loop, as every real one does."""
        await asyncio.sleep(0)
        self._check_outage()

    def _check_outage(self) -> None:
        if self.outage is not None:
            raise Unreachable(self.outage)

    def _resource(self, api_version: str, kind: str) -> Resource:
        resource = BUILT_IN.get((api_version, kind)) or self._custom(api_version, kind)
        if resource is None:
            raise ApiError(404, "NotFound", f"the API serves no {kind} in {api_version}")
        return resource

    def _custom(self, api_version: str, kind: str) -> Resource | None:
        definition = self._definition(api_version, kind)
        if definition is None:
            return None
        spec = definition["spec"]
        return Resource(api_version, kind, spec["names"]["plural"], spec["scope"] == "Namespaced")

    def _definition(self, api_version: str, kind: str) -> Object | None:
        for (_, owner, _, _), obj in self._objects.items():
            if owner == "CustomResourceDefinition" and obj["spec"]["names"]["kind"] == kind:
                group = obj["spec"]["group"]
                if api_version in [f"{group}/{version['name']}" for version in obj["spec"]["versions"]]:
                    return obj
        return None

    def _key(self, obj: Object) -> Key:
        meta = obj["metadata"]
        self._resource(obj["apiVersion"], obj["kind"]).object(meta["name"], meta.get("namespace"))
        return obj["apiVersion"], obj["kind"], meta.get("namespace"), meta["name"]

    def _writable(self, obj: Object) -> Key:
        key = self._key(obj)
        namespace = key[2]
        if namespace is not None and ("v1", "Namespace", None, namespace) not in self._objects:
            raise _absent("namespaces", namespace)
        return key

    def _existing(self, api_version: str, kind: str, namespace: str | None, name: str) -> tuple[Key, Object]:
        resource = self._resource(api_version, kind)
        resource.object(name, namespace)
        key = (api_version, kind, namespace, name)
        if key not in self._objects:
            raise _absent(resource.plural, name)
        return key, self._objects[key]

    def _check_version(self, live: Object | None, wanted: Object) -> None:
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version is not None and (live is None or live["metadata"]["resourceVersion"] != version):
            raise Conflict("Conflict: the object has been modified; please apply your changes to the latest version")

    def _keep_status(self, key: Key, live: Object | None, obj: Object) -> Object:
        """Where status is a subresource, only writes of the subresource change it."""
        definition = self._definition(key[0], key[1])
        versions = definition["spec"]["versions"] if definition is not None else []
        if definition is not None and not any("status" in (v.get("subresources") or {}) for v in versions):
            return obj
        status = (live or {}).get("status")
        rest = {name: value for name, value in obj.items() if name != "status"}
        return {**rest, "status": status} if status is not None else rest


def _in_collection(key: Key, api_version: str, kind: str, namespace: str | None) -> bool:
    return key[:2] == (api_version, kind) and (namespace is None or key[2] == namespace)


def _event(change: _Change, labels: str | None, fields: str | None) -> WatchEvent | None:
    """As a watcher with these selectors sees it: what matches no more has gone."""
    was = change.before is not None and selects(change.before, labels, fields)
    if change.after is not None and selects(change.after, labels, fields):
        return WatchEvent("MODIFIED" if was else "ADDED", deepcopy(change.after))
    if not was or change.before is None:
        return None
    last = deepcopy(change.after or change.before)
    last["metadata"]["resourceVersion"] = str(change.version)
    return WatchEvent("DELETED", last)


def _bookmark(api_version: str, kind: str, version: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": version}}


def _as_stored(obj: Object) -> Object:
    """A copy as the server keeps it: a Secret's stringData becomes data; the version asked for is no field."""
    copy = deepcopy(obj)
    copy["metadata"].pop("resourceVersion", None)
    plain: dict[str, str] = copy.pop("stringData", None) or {}
    if plain:
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in plain.items()}
        copy["data"] = {**(copy.get("data") or {}), **encoded}
    return copy


def _generation(before: Object | None, obj: Object) -> int:
    if before is None:
        return 1
    old: int = before["metadata"].get("generation", 1)
    return old + 1 if before.get("spec") != obj["spec"] else old


def _without_version(obj: Object) -> dict[str, Any]:
    meta = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": meta}


def _absent(plural: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{plural} "{name}" not found')


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
