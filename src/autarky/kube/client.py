"""Implements ports.Kube: a thin asynchronous client, dicts on the wire.

Contract: absent objects are None; 409 is Conflict; other error statuses are ApiError (404 as well, when it
is the kind or the namespace that is absent); no answer is Unreachable. Only requests
that may be done twice are sent again after a lost connection: reads, and server-side apply (net/http.py).

Items of lists carry apiVersion and kind, which the API leaves out, so that they can be written back. What is nested
too deeply in an object is null (parsing.py), so that it cannot break every list; lists are read in pages that are
short in bytes (paging.py), so that long objects delay nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autarky import __version__
from autarky.errors import ApiError, AutarkyError, Unreachable
from autarky.kube import paging
from autarky.kube.errors import error_of, error_of_status, failed_checks, is_about
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.kube.listing import Listing, Slim, complete
from autarky.kube.resources import Resource, Resources
from autarky.model.patience import HEALTH, REQUEST, WATCH_IDLE
from autarky.net.http import Answer, Endpoints, Request
from autarky.net.tls import client_context
from autarky.parsing import parsed
from autarky.ports import Object, WatchEvent

LOG_LIMIT = 64 * 1024
"""Most bytes of a log that are fetched. The kubelet is asked for no more, but not relied upon."""
TEXT_LIMIT, LINES_LIMIT = 256 * 1024 * 1024, 4 * 1024 * 1024
"""Most bytes of a text that are read, and of its lines that are kept."""
_APPLY = "application/apply-patch+yaml"
_JSON = "application/json"
_MERGE = "application/merge-patch+json"

TokenSource = Callable[[], str]


class KubeClient:
    """One client of one cluster, for one identity.

    servers: base URLs of equal API servers; the first that answers is used until it does not.
    ca_pem: what the servers' certificates must be signed by; None: any CA that this machine trusts.
    token: a bearer token, or a function that reads the current one (service account tokens change hourly).
    server_name: the name that the servers' certificates must have, where it is not the URL's host.
    timeout: seconds for one request, failover included.
    patience: seconds for which what may be done twice is tried again while no server can be reached.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        ca_pem: bytes | None,
        client_cert_pem: bytes | None = None,
        client_key_pem: bytes | None = None,
        token: str | TokenSource | None = None,
        server_name: str | None = None,
        timeout: float = REQUEST,
        patience: float = 0.0,
        check_dates: bool = True,
    ) -> None:
        tls = client_context(ca_pem, client_cert_pem, client_key_pem, check_dates=check_dates)
        self._http = Endpoints(servers, tls, server_name=server_name, patience=patience)
        self._token = token
        self._timeout = timeout
        self._resources = Resources(self._resource_list)

    @classmethod
    def from_kubeconfig(cls, path: Path, context: str | None = None) -> KubeClient:
        """The client of a kubeconfig's current (or named) context; UserError says what cannot be used."""
        found = read_kubeconfig(path, context)
        return cls(
            [found.server, *found.others],
            ca_pem=found.ca_pem,
            client_cert_pem=found.client_cert_pem,
            client_key_pem=found.client_key_pem,
            token=found.token,
            server_name=found.server_name,
        )

    async def close(self) -> None:
        await self._http.close()

    # --- reading ---

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        resource = await self._resources.find(api_version, kind)
        answer = await self._call(_reading(resource.object(name, namespace)))
        if answer.status == 404 and is_about(answer.body, name):
            return None
        return self._object(answer, resource)

    async def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        listing = await self.list_at(api_version, kind, namespace=namespace, labels=labels, fields=fields)
        return listing.items

    async def each(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncGenerator[Object, None]:
        resource = await self._resources.find(api_version, kind)
        async for page in self._pages(_reading(resource.collection(namespace), _selectors(labels, fields)), resource):
            for obj in page.items:
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
        """A list with the version that it shows, from which a watch goes on."""
        resource = await self._resources.find(api_version, kind)
        request = _reading(resource.collection(namespace), _selectors(labels, fields))
        repeated = False
        while True:
            try:
                return await self._listed(request, resource, slim)
            except ApiError as error:
                # The version of the first page was compacted while we fetched the others.
                if error.status != 410 or repeated:
                    raise
            repeated = True

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
        """As the port says. A watch from a version begins with a BOOKMARK of that version, as soon as the
        server has accepted it: that is the only sign of life of a collection in which nothing happens."""
        resource = await self._resources.find(api_version, kind)
        parameters = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        if resource_version is not None:
            parameters["resourceVersion"] = resource_version
        request = self._authorized(
            _reading(resource.collection(namespace), parameters | _selectors(labels, fields)),
        )
        async with self._http.stream(request, idle_timeout=WATCH_IDLE) as stream:
            if stream.status != 200:
                body = b"\n".join([line async for line in stream.lines])
                self._object(Answer(stream.status, {}, body), resource)
            if resource_version is not None:
                yield WatchEvent("BOOKMARK", _bookmark(resource, resource_version))
            async for line in stream.lines:
                yield _event(line, request)

    async def logs(
        self, namespace: str, pod: str, *, container: str | None = None, previous: bool = False, tail: int | None = None
    ) -> str:
        parameters = {"limitBytes": str(LOG_LIMIT)}
        if container is not None:
            parameters["container"] = container
        if previous:
            parameters["previous"] = "true"
        if tail is not None:
            parameters["tailLines"] = str(tail)
        path = Resource("v1", "Pod", "pods", namespaced=True).object(pod, namespace, "log")
        answer = await self._call(replace(_reading(path, parameters), most=LOG_LIMIT))
        if answer.status != 200:
            raise error_of(answer.status, answer.body)
        return answer.body.decode(errors="replace")

    async def lines(self, path: str, beginnings: Collection[str]) -> Sequence[str]:
        request = self._authorized(replace(_reading(path), headers={"accept": "text/plain"}))
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._http.stream(request, idle_timeout=self._timeout) as stream,
            ):
                if stream.status != 200:
                    raise error_of(stream.status, b"\n".join([line async for line in stream.lines]))
                return await _beginning(stream.lines, tuple(one.encode() for one in beginnings), request)
        except TimeoutError as error:
            raise Unreachable(f"{request} was not answered within {self._timeout:g} s") from error

    async def healthy(self, path: str = "/readyz", *, timeout: float = HEALTH) -> str | None:
        try:
            answer = await self._call(_reading(path), timeout, patience=0.0)
        except AutarkyError as error:
            return str(error)
        return None if answer.status == 200 else f"{path} says {answer.status}: {failed_checks(answer.body)}"

    # --- writing ---

    async def apply(self, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        parameters = {"fieldManager": manager, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        resource, path = await self._place(obj)
        return await self._write(resource, _writing("PATCH", path, obj, _APPLY, parameters, resend=True))

    async def create(self, obj: Object) -> Object:
        resource = await self._resources.find(obj["apiVersion"], obj["kind"])
        path = resource.collection(obj["metadata"].get("namespace"))
        return await self._write(resource, _writing("POST", path, obj))

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
        resource = await self._resources.find(api_version, kind)
        path = resource.object(name, namespace, subresource)
        return await self._write(resource, _writing("PATCH", path, patch, _MERGE))

    async def replace(self, obj: Object, *, subresource: str | None = None) -> Object:
        resource, path = await self._place(obj, subresource)
        return await self._write(resource, _writing("PUT", path, obj))

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
        resource = await self._resources.find(api_version, kind)
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": str(grace_seconds)}
        path = resource.object(name, namespace)
        request = Request("DELETE", path, grace) if as_read is None else _deleting(path, as_read, grace)
        answer = await self._call(request)
        if answer.status == 404 and is_about(answer.body, name):
            return False
        if answer.status >= 300:  # else it is the object that goes, however long it is
            self._object(answer, resource)
        return True

    async def evict(self, namespace: str, pod: str) -> bool:
        resource = Resource("v1", "Pod", "pods", namespaced=True)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        # A budget that forbids it answers Retry-After; waiting is up to the caller, who has other pods to evict.
        request = _writing("POST", resource.object(pod, namespace, "eviction"), eviction)
        answer = await self._call(replace(request, waits=False))
        if answer.status == 404 and is_about(answer.body, pod):
            return False
        self._object(answer, resource)
        return True

    # --- requests and answers ---

    async def _place(self, obj: Object, subresource: str | None = None) -> tuple[Resource, str]:
        """The object's resource and its path."""
        resource = await self._resources.find(obj["apiVersion"], obj["kind"])
        meta = obj["metadata"]
        return resource, resource.object(meta["name"], meta.get("namespace"), subresource)

    async def _listed(self, request: Request, resource: Resource, slim: Slim) -> Listing:
        items, version = list[Object](), ""
        async for page in self._pages(request, resource):
            items += map(slim, page.items)
            version = page.resource_version
        return Listing(items, version)

    async def _pages(self, request: Request, resource: Resource) -> AsyncGenerator[Listing, None]:
        """All pages of a list, all of the version of the first, each of them gone before the next one is read. Between
        two of them everybody else has a turn."""
        size, more = paging.FIRST, ""
        while True:
            parameters = {"limit": str(size), **request.parameters} | ({"continue": more} if more else {})
            answer = await self._call(replace(request, parameters=parameters, most=paging.most_bytes(size)))
            if paging.is_too_long(size, len(answer.body)):
                size = paging.smaller(size)
                continue
            page, more = self._page(answer, resource)
            yield page
            page.items.clear()  # the receiver may still hold a reference to the page
            if not more:
                return
            size = paging.following(size, len(answer.body))

    def _page(self, answer: Answer, resource: Resource) -> tuple[Listing, str]:
        """And what is to be said to get the next one; "" after the last."""
        found = self._object(answer, resource)
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        meta = found["metadata"]
        return Listing([{**kind, **item} for item in found["items"]], meta["resourceVersion"]), meta.get(
            "continue"
        ) or ""

    async def _write(self, resource: Resource, request: Request) -> Object:
        return self._object(await self._call(request), resource)

    async def _resource_list(self, path: str) -> Object | None:
        answer = await self._call(_reading(path))
        return None if answer.status == 404 else _json(answer)

    async def _call(self, request: Request, timeout: float | None = None, *, patience: float | None = None) -> Answer:
        seconds = timeout if timeout is not None else self._timeout
        return await self._http.request(self._authorized(request), timeout=seconds, patience=patience)

    def _authorized(self, request: Request) -> Request:
        headers = {"accept": _JSON, "user-agent": f"autarky/{__version__}", **request.headers}
        token = self._token() if callable(self._token) else self._token
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return replace(request, headers=headers)

    def _object(self, answer: Answer, resource: Resource) -> Object:
        """The object of a good answer; raises what a bad one means."""
        if answer.status == 404:
            self._resources.forget(resource.api_version, resource.kind)
        return _json(answer)


def _json(answer: Answer) -> Object:
    if answer.status >= 300:
        raise error_of(answer.status, answer.body)
    try:
        found: Object = parsed(answer.body)
    except ValueError as error:
        # A captive portal or a load balancer's page: whoever answered, it was not the API.
        raise Unreachable(f"the answer is not JSON: {answer.body[:100]!r}") from error
    return found


def _reading(path: str, parameters: Mapping[str, str] | None = None) -> Request:
    return Request("GET", path, parameters or {}, resend=True)


def _writing(
    method: str,
    path: str,
    content: Object,
    content_type: str = _JSON,
    parameters: Mapping[str, str] | None = None,
    *,
    resend: bool = False,
) -> Request:
    body = json.dumps(content, separators=(",", ":")).encode()
    return Request(method, path, parameters or {}, {"content-type": content_type}, body, resend)


def _deleting(path: str, as_read: Object, parameters: Mapping[str, str]) -> Request:
    """Of this object only, as it was read. What it owns goes with it, also where the API's default is to orphan it."""
    meta = as_read["metadata"]
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
    }
    return _writing("DELETE", path, options, parameters=parameters)


async def _beginning(lines: AsyncIterator[bytes], beginnings: tuple[bytes, ...], request: Request) -> list[str]:
    read, kept, found = 0, 0, list[str]()
    async for line in lines:
        read += len(line) + 1
        if line.startswith(beginnings):
            kept += len(line)
            found.append(line.decode(errors="replace"))
        if read > TEXT_LIMIT or kept > LINES_LIMIT:
            raise Unreachable(f"the answer to {request} is too long to be read")
    return found


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in selectors.items() if value is not None}


def _bookmark(resource: Resource, resource_version: str) -> Object:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return kind | {"metadata": {"resourceVersion": resource_version}}


def _event(line: bytes, request: Request) -> WatchEvent:
    try:
        event: dict[str, Any] = parsed(line)
        kind, obj = event["type"], event["object"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"the answer to {request} broke off within an event") from error
    if kind == "ERROR":
        raise error_of_status(obj) or ApiError(500, "Unknown", "the watch ended with an error that says nothing")
    return WatchEvent(kind, obj)
