"""The probe's objects in the cluster: ConfigMaps in a namespace of the probe's own.

Everything has the label LABEL with the run's id. The run deletes its objects in the end; what a killed run
has left behind is deleted by a later one (`prepare`). The namespace stays: another probe may be using it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from autarky.errors import AutarkyError
from autarky.probe.http import Answer, Request
from autarky.probe.ledger import Ledger
from autarky.probe.outcome import Kind, Stream
from autarky.probe.run import Run

LABEL = "autarky.dev/probe"
LEFTOVER_AGE = timedelta(hours=1)
"""A running probe's objects live for seconds, but for an outage; older ones belong to a probe that was killed."""
MERGE = "application/merge-patch+json"
_MANAGER = "fieldManager=autarky-probe"

# --- requests ----------------------------------------------------------------------------------------


def create(run: Run, name: str, data: dict[str, str]) -> Request:
    meta = {"name": name, "labels": {LABEL: run.id}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    return Request("POST", f"{_config_maps(run)}?{_MANAGER}", json.dumps(obj).encode())


def patch(run: Run, name: str, data: dict[str, str], *, of: int = 0) -> Request:
    """Refused (409) when the object no longer has the resourceVersion `of`; 0: whichever it has."""
    wanted: dict[str, Any] = {"data": data}
    if of:
        wanted["metadata"] = {"resourceVersion": str(of)}
    return Request("PATCH", f"{_config_maps(run)}/{name}?{_MANAGER}", json.dumps(wanted).encode(), MERGE)


def get(run: Run, name: str) -> Request:
    """Read from etcd, by its quorum."""
    return Request("GET", f"{_config_maps(run)}/{name}")


def delete(run: Run, name: str) -> Request:
    return Request("DELETE", f"{_config_maps(run)}/{name}")


def list_own(run: Run) -> Request:
    """As new as etcd's last revision, but it may come from the server's watch cache."""
    return Request("GET", f"{_config_maps(run)}?{_selected(run.id)}")


def watch_own(run: Run, version: int, *, longest: int) -> Request:
    """From this resourceVersion on, with bookmarks; the server ends it after `longest` seconds."""
    query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds={longest}&resourceVersion={version}"
    return Request("GET", f"{_config_maps(run)}?{query}&{_selected(run.id)}")


def version_of(obj: dict[str, Any]) -> int:
    """The resourceVersion of an object or list; 0 where it has none."""
    text = str((obj.get("metadata") or {}).get("resourceVersion") or "")
    return int(text) if text.isdecimal() else 0


def _config_maps(run: Run) -> str:
    return f"/api/v1/namespaces/{run.namespace}/configmaps"


def _selected(run_id: str) -> str:
    return f"labelSelector={quote(f'{LABEL}={run_id}', safe='')}"


# --- before and after --------------------------------------------------------------------------------


async def prepare(run: Run, *, patience: float) -> int:
    """Make the namespace, clear what killed probes left, and return the resourceVersion to watch from.

    Raises Unreachable and ApiError.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": run.namespace}}
    make = Request("POST", f"/api/v1/namespaces?{_MANAGER}", json.dumps(namespace).encode())
    await run.ask(make, patience=patience, expected=(201, 409))
    everyones = Request("GET", f"{_config_maps(run)}?labelSelector={quote(LABEL, safe='')}")
    listing = await run.ask(everyones, patience=patience)
    await _clear_leftovers(run, listing)
    return version_of(listing.object())


async def verify(run: Run, ledger: Ledger, *, patience: float) -> None:
    """Nothing that was acknowledged may be lost.

    A cache of the API server could hide that etcd has lost something: what must be there is read one by one.
    """
    try:
        listing = await run.ask(list_own(run), patience=patience)
        found = {item["metadata"]["name"]: item.get("data") or {} for item in listing.object().get("items") or []}
        for name in ledger.names:
            answer = await run.ask(get(run, name), patience=patience, expected=(200, 404))
            found.pop(name, None)
            if answer.ok:
                found[name] = answer.object().get("data") or {}
    except AutarkyError as error:
        run.broken(Stream.WRITES, Kind.UNVERIFIED, str(error))
        return
    for sentence in ledger.lost(found):
        run.broken(Stream.WRITES, Kind.LOST, sentence)


async def clean_up(run: Run, *, patience: float) -> None:
    """Delete the run's objects. Where that fails a later run does it."""
    with suppress(AutarkyError):
        await run.ask(Request("DELETE", f"{_config_maps(run)}?{_selected(run.id)}"), patience=patience)


async def _clear_leftovers(run: Run, listing: Answer) -> None:
    """Ages are by the server's clock on both sides."""
    try:
        now = parsedate_to_datetime(listing.headers["date"])
    except (KeyError, ValueError):
        return
    metas = [item["metadata"] for item in listing.object().get("items") or []]
    old = [meta for meta in metas if now - datetime.fromisoformat(meta["creationTimestamp"]) > LEFTOVER_AGE]
    for run_id in sorted({meta["labels"][LABEL] for meta in old}):
        with suppress(AutarkyError):
            request = Request("DELETE", f"{_config_maps(run)}?{_selected(run_id)}")
            await run.ask(request, patience=run.timeout)
