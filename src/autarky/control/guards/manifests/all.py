"""All policies that restrict others to what is theirs: `up` writes them, and the operator restores them."""

from __future__ import annotations

from autarky.control.addons import ADD_ONS
from autarky.control.guards.manifests import nodes as guards
from autarky.control.guards.manifests import reserved, tenants
from autarky.render.values import Object


def objects() -> list[Object]:
    """Each policy before its binding. That of `protection` is not among them: an administrator may remove it."""
    return [
        *guards.objects(),
        *(obj for addon in ADD_ONS for obj in addon.policies()),
        *reserved.objects(),
        *tenants.objects(),
    ]
