"""The Secret in which the operator keeps a component's last good revision: its name, and what others read of it. Pure.

Contract: what cannot be read, or is not ours, is as if it were absent.

Danger: the same Secret has copies of private keys, which only the operator needs (`rollout.operator.last_good`).
"""

from __future__ import annotations

import base64
from dataclasses import fields
from typing import Any

from autarky.control.rollout.decide.failures import Failure
from autarky.parsing import parsed
from autarky.render.values import is_ours

Object = dict[str, Any]
TYPE = "autarky.dev/last-good"
TEMPLATE, FAILURES = "template.json", "failures.json"


def secret_name(component: str) -> str:
    return f"autarky-last-good-{component}"


def is_last_good(secret: Object | None) -> bool:
    return secret is not None and is_ours(secret) and secret.get("type") == TYPE


def template_in(secret: Object | None) -> Object | None:
    """The template of the last good revision; None where there is none."""
    found = _document(secret, TEMPLATE)
    return found if isinstance(found, dict) and isinstance(found.get("spec"), dict) else None


def failure_in(secret: Object | None, revision: str) -> Failure | None:
    """That of the revision, where it was rolled back."""
    try:
        found = failures_from(_document(secret, FAILURES) or [])
    except (TypeError, AttributeError):
        return None
    return next((one for one in found if one.revision == revision), None)


def failures_from(document: Any) -> tuple[Failure, ...]:
    """An operator of a later release may have written more of each."""
    known = {one.name for one in fields(Failure)}
    return tuple(Failure(**{name: value for name, value in one.items() if name in known}) for one in document)


def _document(secret: Object | None, name: str) -> Any:
    if secret is None or not is_last_good(secret):
        return None
    try:
        return parsed(base64.b64decode((secret.get("data") or {})[name]))
    except (ValueError, KeyError, TypeError):
        return None
