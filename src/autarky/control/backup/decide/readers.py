"""What API servers can read of what is stored, by their encryption configuration. Pure.

An API server writes a resource with the first provider that its configuration has for it, and reads it with any of
them. What is stored begins with the provider's kind and its key's name: another key of that name does not read it. A
resource of which the configuration says nothing is stored as it is, and read only if it is: that is the provider
`identity`, which a configuration that names the resource has only where it says so.

Contract: returns for any content, and never raises. What is returned has no key, but a digest of each (rule 7).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from autarky.control.common.shapes import items, mapping, plain, text, texts

IDENTITY = "identity"
_WITH_KEYS = ("aescbc", "aesgcm", "secretbox")
_KMS = "kms"
_ALL = "*.*"
_DIGEST = " sha256:"
_DIGITS = 16
MOST_NOTED = 16 * 1024
"""Characters of what a host notes of it: a person has written a few hundred."""


@dataclass(frozen=True, slots=True)
class Rule:
    """resources: as the configuration names them, also by patterns. providers: for these, the one that writes first;
    with the name of the key and a digest of it."""

    resources: tuple[str, ...]
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Readers:
    """Without rules nothing is encrypted. unknown: the file that has the rules, where these are not known."""

    rules: tuple[Rule, ...] = ()
    unknown: str = ""


def readers_of(document: object) -> Readers | None:
    """document: an EncryptionConfiguration. None where it cannot be understood."""
    rules = [_rule(entry) for entry in items(mapping(document).get("resources"))]
    known = [rule for rule in rules if rule is not None]
    return Readers(tuple(known)) if known and len(known) == len(rules) else None


def lacking(data: Readers, by: Readers) -> Mapping[str, Sequence[str]]:
    """Provider → the resources that may be stored with it in the data, and that these readers cannot read then. Empty
    also where that is not known (`is_known`)."""
    if by.unknown:
        return {}
    if data.unknown:  # something is encrypted
        return {} if by.rules else {f"what {data.unknown} names": [_ALL]}
    found: dict[str, list[str]] = {}
    named = {resource for one in (*data.rules, *by.rules) for resource in one.resources}
    for resource in sorted({*named, _ALL}):
        able = _providers(by, resource)
        for provider in _providers(data, resource):
            if provider not in able:
                found.setdefault(provider, []).append(resource)
    return found


def is_known(data: Readers, by: Readers) -> bool:
    """Whether `lacking` says all."""
    return not (by.unknown and (data.rules or data.unknown)) and not (data.unknown and by.rules)


def writing(readers: Readers) -> Readers:
    """With what they write: each resource with the first provider."""
    return Readers(tuple(Rule(one.resources, one.providers[:1]) for one in readers.rules), readers.unknown)


def sentence(lacks: Mapping[str, Sequence[str]]) -> str:
    """Each provider with its resources; no key, and no digest."""
    return ", ".join(f"{_shown(provider)} ({', '.join(resources)})" for provider, resources in lacks.items())


def noted(readers: Readers) -> dict[str, Any]:
    """For a file of a host, which is not to become large by it: then it says nothing."""
    rules = [{"resources": list(one.resources), "providers": list(one.providers)} for one in readers.rules]
    said = {"rules": rules, "unknown": readers.unknown}
    return said if len(json.dumps(said)) <= MOST_NOTED else {}


def read(said: object) -> Readers | None:
    """What was noted; None where that is nothing."""
    if not isinstance(said, Mapping) or "rules" not in said:
        return None
    rules = [Rule(tuple(texts(one.get("resources"))), tuple(texts(one.get("providers")))) for one in _mappings(said)]
    return Readers(tuple(rules), text(said.get("unknown")))


def _mappings(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [mapping(one) for one in items(said["rules"])]


# --- a configuration ------------------------------------------------------------------------------------------------


def _rule(entry: object) -> Rule | None:
    resources = tuple(plain(one) for one in texts(mapping(entry).get("resources")))
    listed = [_listed(one) for one in items(mapping(entry).get("providers"))]
    providers = tuple(provider for found in listed for provider in found)
    return Rule(resources, providers) if resources and listed and all(listed) else None


def _listed(provider: object) -> list[str]:
    """One for each of its keys; empty where it cannot be understood."""
    if not isinstance(provider, Mapping) or len(provider) != 1:
        return []
    [(kind, said)] = provider.items()
    if kind == IDENTITY:
        return [IDENTITY]
    name = plain(mapping(said).get("name"))
    if kind == _KMS:
        return [f"{_KMS} {plain(mapping(said).get('apiVersion')) or 'v1'} {name!a}"] if name else []
    keys = items(mapping(said).get("keys")) if kind in _WITH_KEYS else ()
    found = [_key(text(kind), mapping(one)) for one in keys]
    return [one for one in found if one] if all(found) else []


def _key(kind: str, key: Mapping[str, Any]) -> str:
    name, secret = text(key.get("name")), "".join(text(key.get("secret")).split())
    digest = sha256(f"{kind}\0{name}\0{secret}".encode(errors="replace")).hexdigest()[:_DIGITS]
    return f"{kind} {plain(name)!a}{_DIGEST}{digest}" if name and secret else ""


def _shown(provider: str) -> str:
    return "the provider identity" if provider == IDENTITY else provider.rpartition(_DIGEST)[0] or provider


# --- a resource -----------------------------------------------------------------------------------------------------


def _providers(readers: Readers, resource: str) -> tuple[str, ...]:
    """The first rule that covers it counts. resource: a pattern stands for what is named nowhere else."""
    rules = (one for one in readers.rules if any(_covers(pattern, resource) for pattern in one.resources))
    return next((one.providers for one in rules), (IDENTITY,))


def _covers(pattern: str, resource: str) -> bool:
    """`*.GROUP` are all of a group, and `*.` those of the core group."""
    group = resource.partition(".")[2]
    return pattern in (resource, _ALL) or (pattern.startswith("*.") and pattern.removeprefix("*.") == group)
