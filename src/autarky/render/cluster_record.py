"""What control nodes keep of a cluster for its administrators, so that the machine that ran `up` may be lost.

On the disk of initial members, root only; the first file also in the API (ConfigMap kube-system/autarky-cluster):

    /var/lib/autarky/state/cluster.json        the cluster file as applied last, the nodes with their addresses, and the
                                               number that distinguishes a newer record from an older one
    /var/lib/autarky/state/cluster-keys.json   the leaf certificates that `up` renders from, with their keys

Contract: pure. The record has no secret, and nothing specific to the machine that applied it. The keys are those that
control nodes have anyway, in other places; those of administrators and CAs are not among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from autarky import places
from autarky.control.certificates.manifests.specs import ADMINISTRATORS
from autarky.control.cluster_file.decide.records import Record, numbered
from autarky.model.defaults import with_edition
from autarky.model.files import CertSpec, File
from autarky.parsing import parsed
from autarky.render.values import SYSTEM, Credentials, Inputs, Object, metadata, pretty_json

CONFIG_MAP = "autarky-cluster"
FILE_KEY = "cluster.json"
CA_KEY = "ca-sha256"
_OF_THE_MACHINE = (("sshConfig",), ("certificates", "caDirectory"))
"""Paths in the spec that are only meaningful on the machine where the file was applied."""


def portable(document: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster file without what is specific to one machine, and with its edition of defaults."""
    result = deepcopy(with_edition(document))
    for *parents, last in _OF_THE_MACHINE:
        found = result["spec"]
        for parent in parents:
            found = found.get(parent) or {}
        found.pop(last, None)
    return result


def with_machine(document: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    """A portable document again with what is specific to this machine, as another one has it."""
    result = deepcopy(dict(document))
    for *parents, last in _OF_THE_MACHINE:
        found, given = result["spec"], there["spec"]
        for parent in parents:
            found, given = found.setdefault(parent, {}), given.get(parent) or {}
        if last in given:
            found[last] = given[last]
    return result


def record(document: Mapping[str, Any], nodes: bytes, last: Record | None) -> bytes:
    """`nodes`: as the command line remembers them (`members.memory_of`). `last`: the newest record that was seen."""
    return written(numbered(portable(document), dict(sorted(json.loads(nodes).items())), last))


def written(record: Record) -> bytes:
    return pretty_json({"number": record.number, "file": dict(record.file), "nodes": dict(record.nodes)})


def read(content: bytes | None) -> Record | None:
    """None where there is no record, or it cannot be read."""
    try:
        found = json.loads(content or b"")
        number = found.get("number", 0)
        number = number if type(number) is int and number > 0 else 0
        return Record(with_edition(found["file"]), dict(found["nodes"]), number)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def read_config_map(found: Object | None) -> Record | None:
    """None where there is no record, or it cannot be read."""
    data = (found or {}).get("data") or {}
    record = read(str(data.get(FILE_KEY, "")).encode())
    return None if record is None else replace(record, ca=str(data.get(CA_KEY, "")))


def config_map(record: bytes, ca: str | None) -> Object:
    """The record and the fingerprint of the CA, for all who may read it."""
    data = {FILE_KEY: record.decode(), CA_KEY: ca or ""}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(CONFIG_MAP, SYSTEM), "data": data}


def record_file(record: bytes) -> File:
    return File(places.CLUSTER_RECORD, record, 0o600)


def files(inputs: Inputs, specs: Sequence[CertSpec]) -> list[File]:
    """The files of an initial member. `specs`: of the cluster's leaf certificates."""
    if not inputs.record:
        return []
    keys = pretty_json(_keys(inputs.credentials, specs))
    return [record_file(inputs.record), File(places.CLUSTER_KEYS, keys, 0o600)]


def _keys(credentials: Credentials, specs: Sequence[CertSpec]) -> dict[str, str]:
    names = [f"{spec.name}.{end}" for spec in specs if spec.name not in ADMINISTRATORS for end in ("crt", "key")]
    return {name: credentials.text(name) for name in sorted(names)}


def read_keys(content: bytes | None) -> dict[str, bytes]:
    """File name → content; empty where nothing is kept, or it cannot be read."""
    try:
        return {str(name): str(text).encode() for name, text in parsed(content or b"").items()}
    except (ValueError, AttributeError):
        return {}
