"""The Secret in which the operator keeps a component's last good revision: its name, and the template in it. Pure.

Contract: what cannot be read, or is not ours, is as if it were absent.

Danger: the same Secret has copies of private keys, which only the operator needs (`rollout.operator.last_good`).
"""

from __future__ import annotations

import base64
from typing import Any

from autarky.parsing import parsed
from autarky.render.values import is_ours

Object = dict[str, Any]
TYPE = "autarky.dev/last-good"
TEMPLATE = "template.json"


def secret_name(component: str) -> str:
    return f"autarky-last-good-{component}"


def is_last_good(secret: Object | None) -> bool:
    return secret is not None and is_ours(secret) and secret.get("type") == TYPE


def template_in(secret: Object | None) -> Object | None:
    """The template of the last good revision; None where there is none."""
    if secret is None or not is_last_good(secret):
        return None
    try:
        found = parsed(base64.b64decode((secret.get("data") or {})[TEMPLATE]))
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("spec"), dict) else None
