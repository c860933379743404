"""What the operator stores of each component: its last good template, the objects that it needs, what was rolled back.

One Secret per component, `autarky-last-good-COMPONENT`: the revisions that Kubernetes keeps do not contain Secrets,
and a running server hides until its restart that one was deleted.

Of kube-proxy, an add-on or an agent also the template that `autarky up` had applied, by its record
(`drift.decide.applied`), which goes back, too: beside that of a release that failed, what the next `up` finds would
pass for edits, and stay.

Contract: complete or absent: everything is in one object, written at once. Content that cannot be parsed counts as
absent: then nothing is rolled back until a revision has been healthy. So does a Secret that is not ours, by label and
type.

Dangers: the copies hold private keys. They are never logged, and only this operator reads the Secret. Objects in it
are created with the operator's rights: so only those that the template references are.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from autarky.control.base.own_objects import write
from autarky.control.drift.decide.applied import is_editable
from autarky.control.rollout.decide.failures import Record
from autarky.control.rollout.manifests import FAILURES, TEMPLATE, TYPE, failures_from, is_last_good, secret_name
from autarky.errors import UserError
from autarky.parsing import parsed
from autarky.ports import Kube, Object
from autarky.render.values import SYSTEM, metadata

LARGEST = (1 << 20) - (16 << 10)
"""Bytes of content: the API admits 1 MiB in a Secret. The rest is for failures that are recorded later."""
NAMED = 3
"""How many of the objects that are too large together a message names."""
Reference = tuple[str, str]
"""(kind, name) of a Secret or ConfigMap."""


@dataclass(frozen=True, slots=True)
class LastGood:
    """template: of the revision `record.good`; objects: the Secrets and ConfigMaps that it references; applied: the
    template as it was applied, edits apart; None where that is not known, or does not go back."""

    record: Record = field(default_factory=Record)
    template: Object | None = field(default=None, repr=False)
    objects: tuple[Object, ...] = field(default=(), repr=False)
    applied: Object | None = field(default=None, repr=False)

    def with_record(self, record: Record) -> LastGood:
        return replace(self, record=record)


async def load(kube: Kube, component: str) -> LastGood:
    """What is stored, or nothing."""
    secret = await kube.get("v1", "Secret", secret_name(component), SYSTEM)
    if secret is None or not is_last_good(secret):
        return LastGood()
    try:
        return _decoded(secret.get("data") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return LastGood()


async def save(kube: Kube, component: str, kept: LastGood) -> None:
    """Store all of it in one write. Conflict when somebody else writes at the same time."""
    meta, data = metadata(secret_name(component), SYSTEM), _encoded(kept)
    live = await kube.get("v1", "Secret", meta["name"], SYSTEM)
    await write(kube, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": TYPE, "data": data}, live)


async def collect(kube: Kube, record: Record, template: Object, applied: Object | None = None) -> LastGood:
    """The template with copies of the Secrets and ConfigMaps that it requires. UserError names a missing one, or the
    largest ones where all together exceed LARGEST."""
    copies: list[Object] = []
    for kind, name in sorted(set(references(template))):
        live = await kube.get("v1", kind, name, SYSTEM)
        if live is None:
            raise UserError(f"{kind} {name} is missing, and its next start needs it", fix=f"create {kind} {name}")
        copies.append(_copy(live))
    kept = LastGood(record, template, tuple(copies), applied)
    if (size := _size(kept)) > LARGEST:
        raise UserError(
            f"with the Secrets and ConfigMaps that it references it has {size >> 10} KiB, and a Secret holds at most"
            f" {LARGEST >> 10} KiB: {_largest(copies)}",
            fix="mark large ones as optional (optional: true), or mount their content from the host",
        )
    return kept


def _size(kept: LastGood) -> int:
    """Bytes, as the API counts them."""
    return sum(len(base64.b64decode(content)) for content in _encoded(kept).values())


def _largest(copies: list[Object]) -> str:
    sizes = sorted(((len(json.dumps(copy)), copy["kind"], copy["metadata"]["name"]) for copy in copies), reverse=True)
    return ", ".join(f"{kind} {name} has {size >> 10} KiB" for size, kind, name in sizes[:NAMED])


async def restore(kube: Kube, kept: LastGood) -> list[str]:
    """Create those of the kept objects that are missing; a sentence for each that still differs."""
    for copy in kept.objects:
        if await kube.get("v1", copy["kind"], copy["metadata"]["name"], SYSTEM) is None:
            await kube.create(copy)
    return await differing(kube, kept)


async def differing(kube: Kube, kept: LastGood) -> list[str]:
    """A sentence for each of the kept objects that has changed. Nothing overwrites it: its present content may be
    intended, and an immutable object would have to be deleted first. What is made to be edited has not gone wrong by an
    edit."""
    return [sentence for copy in kept.objects if (sentence := await _difference(kube, copy))]


async def edited(kube: Kube, kept: LastGood) -> list[str]:
    """Those that are made to be edited, and differ: "ConfigMap coredns"."""
    found = []
    for copy in kept.objects:
        live = await kube.get("v1", copy["kind"], copy["metadata"]["name"], SYSTEM) if is_editable(copy) else None
        if live is not None and not _same_content(live, copy):
            found.append(f"{copy['kind']} {copy['metadata']['name']}")
    return found


def _same_content(live: Object, copy: Object) -> bool:
    return all((live.get(part) or {}) == (copy.get(part) or {}) for part in ("data", "binaryData"))


async def _difference(kube: Kube, copy: Object) -> str:
    name = f"{copy['kind']} {copy['metadata']['name']}"
    live = await kube.get("v1", copy["kind"], copy["metadata"]["name"], SYSTEM)
    if live is None:
        return f"{name} is missing: restore it"
    if is_editable(live):
        return ""
    if not _same_content(live, copy):
        return f"the content of {name} differs from that of the last good revision: restore it"
    return ""


def _copy(live: Object) -> Object:
    parts = ("apiVersion", "kind", "type", "immutable", "data", "binaryData")
    meta = {"name": live["metadata"]["name"], "namespace": SYSTEM, "labels": live["metadata"].get("labels") or {}}
    return {**{part: live[part] for part in parts if part in live}, "metadata": meta}


# --- what a template references ------------------------------------------------------------------------


def references(template: Object) -> Iterator[Reference]:
    """The Secrets and ConfigMaps without which the template's pods do not start."""
    spec = template["spec"]
    for volume in spec.get("volumes") or []:
        yield from _of_volume(volume)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        for source in container.get("envFrom") or []:
            yield from _named("Secret", source.get("secretRef"))
            yield from _named("ConfigMap", source.get("configMapRef"))
        for variable in container.get("env") or []:
            value = variable.get("valueFrom") or {}
            yield from _named("Secret", value.get("secretKeyRef"))
            yield from _named("ConfigMap", value.get("configMapKeyRef"))


def _of_volume(volume: Object) -> Iterator[Reference]:
    yield from _named("Secret", volume.get("secret"), "secretName")
    yield from _named("ConfigMap", volume.get("configMap"))
    for source in (volume.get("projected") or {}).get("sources") or []:
        yield from _named("Secret", source.get("secret"))
        yield from _named("ConfigMap", source.get("configMap"))


def _named(kind: str, reference: Any, key: str = "name") -> Iterator[Reference]:
    if reference and not reference.get("optional") and reference.get(key):
        yield kind, reference[key]


# --- on the wire ---------------------------------------------------------------------------------------


def _encoded(kept: LastGood) -> dict[str, str]:
    record = kept.record
    documents: dict[str, Any] = {
        "revision": record.good,
        "current": record.current,
        "start.json": record.start,
        FAILURES: [asdict(failure) for failure in record.failures],
        TEMPLATE: kept.template,
        "objects.json": list(kept.objects),
        **({} if kept.applied is None else {"applied.json": kept.applied}),
    }
    return {
        name: base64.b64encode(json.dumps(document, sort_keys=True).encode()).decode()
        for name, document in documents.items()
    }


def _decoded(data: dict[str, str]) -> LastGood:
    if not data:
        return LastGood()
    documents = {name: parsed(base64.b64decode(content)) for name, content in data.items()}
    failures = failures_from(documents[FAILURES])
    record = Record(documents["revision"], failures, documents["current"], _start_in(documents))
    if record.good is not None and documents[TEMPLATE] is None:
        raise ValueError("a good revision without its template")
    template, objects = documents[TEMPLATE], tuple(documents["objects.json"])
    if not {_reference(obj) for obj in objects} <= set(references(template) if template is not None else ()):
        raise ValueError("copies of objects that the template does not reference")
    applied = documents.get("applied.json")
    return LastGood(record, template, objects, applied if isinstance(applied, dict) else None)


def _start_in(documents: dict[str, Any]) -> float | None:
    """None where an operator of an earlier release wrote the record."""
    start = documents.get("start.json")
    if not isinstance(start, int | float) or isinstance(start, bool):
        return None
    return float(start) if start >= 0 else None


def _reference(copy: Object) -> Reference | None:
    """None for an object that cannot be a copy of ours."""
    meta = copy["metadata"]
    return (copy["kind"], meta["name"]) if (copy["apiVersion"], meta["namespace"]) == ("v1", SYSTEM) else None
