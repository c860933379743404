"""How the fake API server merges: server-side apply and JSON merge patch, on plain values.

Less than the real thing: fields belong to whoever applied or created them last time, changes by patch and
replace own nothing; and which lists merge by key is known by the list's name, not by a schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

Fields = dict[str, Any]

_KEYS = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""List → the fields that tell its items apart. All other lists are replaced as a whole."""
_DEFAULTS = {"protocol": "TCP"}


def server_side_apply(live: Fields, wanted: Fields, before: Fields, others: Sequence[Fields]) -> Fields:
    """`live` with `wanted` in it, and without what this manager applied `before`, wants no more, and none of
    the `others` has applied."""
    return _apply_map(live, wanted, before, others)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def _apply_map(live: Fields, wanted: Fields, before: Fields, others: Sequence[Fields]) -> Fields:
    result = dict(live)
    for name in before.keys() - wanted.keys():
        theirs = [other[name] for other in others if name in other]
        rest = _apply(name, result.get(name), _nothing_like(before[name]), before[name], theirs)
        if theirs or rest not in (None, {}, []):
            result[name] = rest
        else:
            result.pop(name, None)
    for name, value in wanted.items():
        theirs = [other[name] for other in others if name in other]
        result[name] = _apply(name, result.get(name), value, before.get(name), theirs)
    return result


def _apply(name: str, live: Any, wanted: Any, before: Any, others: Sequence[Any]) -> Any:
    if isinstance(wanted, dict):
        return _apply_map(_dict(live), wanted, _dict(before), [_dict(other) for other in others])
    if isinstance(wanted, list) and name in _KEYS and _are_maps(wanted, live, before):
        return _apply_list(name, live or [], wanted, before or [], others)
    if wanted is None and others:
        return live
    return deepcopy(wanted)


def _apply_list(
    name: str, live: list[Fields], wanted: list[Fields], before: list[Fields], others: Sequence[Any]
) -> Any:
    """As a map from key to item; the order is that of `wanted`, then what others have."""
    by_key = {_key(name, item): item for item in live}
    merged = _apply_map(
        by_key,
        {_key(name, item): item for item in wanted},
        {_key(name, item): item for item in before},
        [{_key(name, item): item for item in other} for other in others if isinstance(other, list)],
    )
    keys = [_key(name, item) for item in wanted]
    return [merged[key] for key in (*keys, *(key for key in merged if key not in keys))]


def _key(name: str, item: Fields) -> str:
    return "/".join(str(item.get(field, _DEFAULTS.get(field, ""))) for field in _KEYS[name])


def _nothing_like(value: Any) -> Any:
    return type(value)() if isinstance(value, dict | list) else None


def _dict(value: Any) -> Fields:
    return value if isinstance(value, dict) else {}


def _are_maps(*lists: Any) -> bool:
    return all(isinstance(item, dict) for items in lists for item in items or [])
