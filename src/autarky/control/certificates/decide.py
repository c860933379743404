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
class Reported:
    """ends: certificate → when it expires. trouble: certificate → why it is not renewed, a clause."""

    ends: Mapping[str, datetime] = field(default_factory=dict)
    trouble: Mapping[str, str] = field(default_factory=dict)

    @property
    def first(self) -> tuple[str, datetime] | None:
        """The one that expires first."""
        return min(self.ends.items(), key=lambda one: (one[1], one[0]), default=None)


def text(reported: Reported) -> str:
    """The annotation."""
    ends = {name: stamp(end) for name, end in sorted(reported.ends.items())}
    trouble = {name: why[:_MOST] for name, why in sorted(reported.trouble.items())}
    return json.dumps({"ends": ends, **({"trouble": trouble} if trouble else {})}, ensure_ascii=False)


def read(metadata: Mapping[str, Any]) -> Reported | None:
    """What a Node's annotation reports; None where it cannot be parsed. The node writes it itself: not trusted."""
    said = (metadata.get("annotations") or {}).get(ANNOTATION) or ""
    try:
        found = json.loads(said)
        ends = {name: _time(end) for name, end in _named(found["ends"])}
        return Reported(ends, {name: _plain(str(why)[:_MOST]) for name, why in _named(found.get("trouble") or {})})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _named(reported: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Only entries whose key can be a certificate's name."""
    return ((name, value) for name, value in islice(reported.items(), _LEAVES) if _NAME.fullmatch(name))


def _plain(text: str) -> str:
    """It is shown on terminals and in conditions."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def wrong(nodes: Mapping[str, Reported], now: datetime) -> list[str]:
    """A sentence for each certificate that has expired, or that should have been renewed and was not."""
    return [sentence for node, reported in sorted(nodes.items()) for sentence in _wrong(node, reported, now)]


def _wrong(node: str, reported: Reported, now: datetime) -> Iterable[str]:
    ended = sorted(name for name, end in reported.ends.items() if end <= now)
    for name in sorted({*ended, *reported.trouble}):
        why = f": {reported.trouble[name]}" if name in reported.trouble else ""
        end = reported.ends.get(name)
        until = "" if end is None else f" expired at {stamp(end)}" if end <= now else f" expires at {stamp(end)}"
        yield f"{name} on {node}{until or ' does not exist'}{why}"


def earliest(nodes: Mapping[str, Reported]) -> tuple[str, str, datetime] | None:
    """(node, certificate, end) of the one that expires first."""
    found: Sequence[tuple[datetime, str, str]] = [
        (first[1], node, first[0]) for node, reported in nodes.items() if (first := reported.first) is not None
    ]
    if not found:
        return None
    end, node, name = min(found)
    return node, name, end


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(value: object) -> datetime:
    return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
