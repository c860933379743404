"""Implements ports.Kube: a thin asynchronous client, dicts on the wire.

Contract: absent objects are None; 409 is Conflict; other error statuses are ApiError; no answer is
Unreachable. Nothing is retried here but what is safe to send twice (see net/http.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

from autarky.errors import ApiError, AutarkyError, Conflict, Unreachable
from autarky.kube.resources import KNOWN, Resource
from autarky.net.http import Answer, Endpoints
from autarky.net.tls import client_context
from autarky.ports import Object, WatchEvent

PAGE = 500
WATCH_IDLE = 90.0
"""Seconds without a line before a watch counts as dead; bookmarks come about once a minute."""
_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class KubeClient:
    def __init__(
        self,
        servers: Sequence[str],
        *,
        ca_pem: bytes,
        client_cert_pem: bytes | None = None,
        client_key_pem: bytes | None = None,
        token: str | None = None,
    ) -> None:
        headers = {"Accept": _JSON, "User-Agent": "autarky"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._http = Endpoints(servers, client_context(ca_pem, client_cert_pem, client_key_pem), headers)
        self._discovered: dict[tuple[str, str], Resource] = {}

    # --- reading ---

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        resource = await self._resource(api_version, kind)
        answer = await self._http.request("GET", resource.path(namespace, name))
        return None if answer.status == 404 else _object(answer)

    async def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[Object]:
        resource = await self._resource(api_version, kind)
        items: list[Object] = []
        parameters = {"limit": str(PAGE), **_selectors(labels, fields)}
        while True:
            page = _object(await self._http.request("GET", resource.path(namespace), parameters=parameters))
            items += [{"apiVersion": api_version, "kind": kind, **item} for item in page.get("items") or []]
            token = page["metadata"].get("continue")
            if not token:
                return items
            parameters = {**parameters, "continue": token}

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
    ) -> AsyncIterator[WatchEvent]:
        resource = await self._resource(api_version, kind)
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
            **({"resourceVersion": resource_version} if resource_version is not None else {}),
            **_selectors(labels, fields),
        }
        path = resource.path(namespace)
        async with self._http.stream(path, parameters=parameters, idle_timeout=WATCH_IDLE) as stream:
            if stream.status != 200:
                text = "".join([line async for line in stream.lines])
                _raise(stream.status, text.encode())
            async for line in stream.lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    _raise(event["object"].get("code", 500), json.dumps(event["object"]).encode())
                yield WatchEvent(event["type"], event["object"])

    async def logs(
        self, namespace: str, pod: str, *, container: str | None = None, previous: bool = False, tail: int | None = None
    ) -> str:
        parameters = {"previous": "true"} if previous else {}
        if container is not None:
            parameters["container"] = container
        if tail is not None:
            parameters["tailLines"] = str(tail)
        answer = await self._http.request(
            "GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", parameters=parameters
        )
        if answer.status >= 400:
            _raise(answer.status, answer.body)
        return answer.body.decode(errors="replace")

    async def healthy(self, path: str = "/readyz", *, timeout: float = 2.0) -> str | None:
        try:
            answer = await self._http.request("GET", path, timeout=timeout)
        except AutarkyError as error:
            return str(error)
        if answer.status == 200:
            return None
        return f"{path} answers {answer.status}: {_failed_checks(answer.body)}"

    # --- writing ---

    async def apply(self, obj: Object, *, manager: str, dry_run: bool = False) -> Object:
        parameters = {"fieldManager": manager, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        path = await self._path_of(obj)
        return await self._write("PATCH", path, obj, _APPLY, parameters)

    async def create(self, obj: Object) -> Object:
        resource = await self._resource(obj["apiVersion"], obj["kind"])
        return await self._write("POST", resource.path(obj["metadata"].get("namespace")), obj, _JSON, {})

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
        resource = await self._resource(api_version, kind)
        return await self._write("PATCH", resource.path(namespace, name, subresource), patch, _MERGE, {})

    async def replace(self, obj: Object, *, subresource: str | None = None) -> Object:
        return await self._write("PUT", await self._path_of(obj, subresource), obj, _JSON, {})

    async def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> bool:
        resource = await self._resource(api_version, kind)
        answer = await self._http.request("DELETE", resource.path(namespace, name))
        if answer.status == 404:
            return False
        _object(answer)
        return True

    async def close(self) -> None:
        await self._http.close()

    async def _write(
        self, method: str, path: str, obj: Object, content_type: str, parameters: dict[str, str]
    ) -> Object:
        body = json.dumps(obj).encode()
        return _object(
            await self._http.request(method, path, parameters=parameters, body=body, content_type=content_type)
        )

    # --- paths ---

    async def _path_of(self, obj: Object, subresource: str | None = None) -> str:
        resource = await self._resource(obj["apiVersion"], obj["kind"])
        meta = obj["metadata"]
        return resource.path(meta.get("namespace"), meta["name"], subresource)

    async def _resource(self, api_version: str, kind: str) -> Resource:
        """The table first; discovery for what is not in it, asked again whenever it does not know."""
        key = (api_version, kind)
        if key not in KNOWN and key not in self._discovered:
            root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
            found = _object(await self._http.request("GET", root))
            for entry in found["resources"]:
                if "/" not in entry["name"]:
                    resource = Resource(api_version, entry["name"], entry["namespaced"])
                    self._discovered[(api_version, entry["kind"])] = resource
        try:
            return KNOWN.get(key) or self._discovered[key]
        except KeyError:
            raise ApiError(404, "NotFound", f"the API serves no {kind} in {api_version}") from None


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in selectors.items() if value is not None}


def _object(answer: Answer) -> Object:
    if answer.status >= 400:
        _raise(answer.status, answer.body)
    try:
        found: Object = json.loads(answer.body)
    except ValueError as error:
        raise Unreachable(f"the answer is not JSON: {answer.body[:200]!r}") from error
    return found


def _raise(status: int, body: bytes) -> NoReturn:
    try:
        details = json.loads(body)
        reason, message = details.get("reason", ""), details.get("message", "")
    except (ValueError, AttributeError):
        reason, message = "", body[:500].decode(errors="replace")
    if status == 409:
        raise Conflict(f"{reason}: {message}")
    raise ApiError(status, reason, message)


def _failed_checks(body: bytes) -> str:
    """The lines of a health answer that say what failed."""
    lines = body.decode(errors="replace").splitlines()
    return "; ".join(line for line in lines if line.startswith("[-]")) or "; ".join(lines)[:200]
