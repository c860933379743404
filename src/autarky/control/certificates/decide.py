"""What nodes report about the certificates on their disks, and what follows from it. Pure.

A control node's agent renews its certificates at two thirds of their life; kubelets renew their own. So a certificate
near its expiry is one that could not be renewed, and that is reported: which, when it expires, and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any

ANNOTATION = "autarky.dev/certificates"
"""On a Node, by its own agent: when its certificates expire, and why one is not renewed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]{0,63}")
_MOST, _LEAVES = 300, 40
"""Most characters of a reason, and most certificates: a node reports them, and may make them up."""


@dataclass(frozen=True, slots=True)
class Told:
    """ends: certificate → when it expires. trouble: certificate → why it is not renewed, a clause."""

    ends: Mapping[str, datetime] = field(default_factory=dict)
    trouble: Mapping[str, str] = field(default_factory=dict)

    @property
    def first(self) -> tuple[str, datetime] | None:
        """The one that expires first."""
        return min(self.ends.items(), key=lambda one: (one[1], one[0]), default=None)


def text(told: Told) -> str:
    """The annotation."""
    ends = {name: stamp(end) for name, end in sorted(told.ends.items())}
    trouble = {name: why[:_MOST] for name, why in sorted(told.trouble.items())}
    return json.dumps({"ends": ends, **({"trouble": trouble} if trouble else {})}, ensure_ascii=False)


def read(metadata: Mapping[str, Any]) -> Told | None:
    """What a Node's annotation reports; None where it cannot be parsed. The node writes it itself: not trusted."""
    said = (metadata.get("annotations") or {}).get(ANNOTATION) or ""
    try:
        found = json.loads(said)
        ends = {name: _time(end) for name, end in _named(found["ends"])}
        return Told(ends, {name: _plain(str(why)[:_MOST]) for name, why in _named(found.get("trouble") or {})})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _named(told: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Only entries whose key can be a certificate's name."""
    return ((name, value) for name, value in islice(told.items(), _LEAVES) if _NAME.fullmatch(name))


def _plain(text: str) -> str:
    """It is shown on terminals and in conditions."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def wrong(nodes: Mapping[str, Told], now: datetime) -> list[str]:
    """A sentence for each certificate that has expired, or that should have been renewed and was not."""
    return [sentence for node, told in sorted(nodes.items()) for sentence in _wrong(node, told, now)]


def _wrong(node: str, told: Told, now: datetime) -> Iterable[str]:
    ended = sorted(name for name, end in told.ends.items() if end <= now)
    for name in sorted({*ended, *told.trouble}):
        why = f": {told.trouble[name]}" if name in told.trouble else ""
        end = told.ends.get(name)
        until = "" if end is None else f" expired at {stamp(end)}" if end <= now else f" expires at {stamp(end)}"
        yield f"{name} on {node}{until or ' does not exist'}{why}"


def earliest(nodes: Mapping[str, Told]) -> tuple[str, str, datetime] | None:
    """(node, certificate, end) of the one that expires first."""
    found: Sequence[tuple[datetime, str, str]] = [
        (first[1], node, first[0]) for node, told in nodes.items() if (first := told.first) is not None
    ]
    if not found:
        return None
    end, node, name = min(found)
    return node, name, end


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(value: object) -> datetime:
    return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
