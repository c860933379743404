"""All policies that restrict others to what is theirs: `up` writes them, and the operator restores them."""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.addons import ADD_ONS, AddOn
from autarky.control.guards.manifests import nodes as guards
from autarky.control.guards.manifests import reserved, tenants
from autarky.render.values import Object


def objects(addons: Sequence[AddOn] = ADD_ONS) -> list[Object]:
    """For a cluster with these add-ons, each policy before its binding. That of `protection` is not among them: an
    administrator may remove it."""
    return [
        *guards.objects(addons),
        *(obj for addon in addons for obj in addon.policies()),
        *reserved.objects(),
        *tenants.objects(),
    ]
