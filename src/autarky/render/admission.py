"""All policies that hold others to what is theirs: `up` writes them, and the operator puts them back."""

from __future__ import annotations

from autarky.render import guards, reserved, tenants
from autarky.render.values import Object


def objects() -> list[Object]:
    """Each policy before its binding. That of `protection` is not among them: an administrator may take it away."""
    return [*guards.objects(), *reserved.objects(), *tenants.objects()]
