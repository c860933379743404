"""Whether an object of ours in the API is valid. Pure.

The API server validates writes (`render/crds.py`, `control/etcd/manifests/members.py`), but an object may have been
stored before the definition had a rule, or under another definition. An invalid object counts as absent, and nothing
follows from absence (rule 10): a guess might take a level or a member away.

Contract: each function returns for any JSON, and never raises.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from autarky.control.kubelet.decide import pools
from autarky.model import levels
from autarky.model.cluster import MOST_SOAK_SECONDS
from autarky.model.defaults import FIRST
from autarky.model.etcd_members import ETCD_VERSION

Object = dict[str, Any]
VERSION = r"^v\d+\.\d+\.\d+$"
ASKED = r"^[!-~]{0,64}$"
"""Of `spec.kubelets`."""
MEMBER_ID = r"^[0-9a-f]{0,16}$"
"""As etcdctl prints it; empty: none."""
REVISION = r"^[0-9a-f]{0,16}$"
LEAST_QUOTA, MOST_QUOTA = 16 * 2**20, 64 * 2**30
"""Bytes. etcd itself warns above 8 GiB, which its own documents call the most for normal use."""
_REVISIONS = ("revision", "turn", "failedRevision")
_TEXTS = ("memberID", "lostMemberID", "vacatedMemberID")


def control_plane(obj: Object) -> str | None:
    """What is invalid in a ControlPlane, as a clause; None when it is valid."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return "it has no spec"
    for path, good in {
        "version": _matches(VERSION, spec.get("version")),
        "selfHosted": isinstance(spec.get("selfHosted"), str) and spec["selfHosted"] in levels.TEXTS,
        "componentArguments": _are_arguments(spec.get("componentArguments") or {}),
        "rollback": _is_rollback(spec.get("rollback", {})),
        "defaults": _is_edition(spec.get("defaults", FIRST)),
        "etcd": _is_etcd(spec.get("etcd", {})),
        "paused": isinstance(spec.get("paused", False), bool),
        "upgrade": _is_upgrade(spec.get("upgrade") or {}),
    }.items():
        if not good:
            return f"spec.{path} is {_shown(spec.get(path))}"
    return None


def kubelets(spec: Mapping[str, Any]) -> str | None:
    """What is invalid in a ControlPlane's spec of what is for kubelets alone, as a clause; None when it is valid. All
    the rest is followed meanwhile, and kubelets stay as they are."""
    said = spec.get("kubelets")
    if said is not None and not isinstance(said, Mapping):
        return f"spec.kubelets is {_shown(said)}"
    follow, asked = (said or {}).get("follow", False), (said or {}).get("asked", "")
    if not isinstance(follow, bool):
        return f"spec.kubelets.follow is {_shown(follow)}"
    if not _matches(ASKED, asked):
        return f"spec.kubelets.asked is {_shown(asked)}"
    runtime = (said or {}).get("runtime")
    if runtime is not None and not pools.reference(runtime):
        return f"spec.kubelets.runtime is {_shown(runtime)}"
    clause = pools.trouble(spec.get("pools"))
    return None if clause is None else f"spec.pools is not valid: {clause}"


def etcd_member(obj: Object) -> str | None:
    """The same for an EtcdMember."""
    spec, status = obj.get("spec"), obj.get("status") or {}
    if not isinstance(spec, dict) or not _is_address(spec.get("address")):
        return "spec.address is not an IPv4 address"
    if spec.get("state", "Member") not in ("Member", "Removed"):
        return f"spec.state is {_shown(spec.get('state'))}"
    if not isinstance(status, dict):
        return "its status is not an object"
    if not _matches(REVISION, spec.get("revision") or ""):
        return f"spec.revision is {_shown(spec.get('revision'))}"
    odd = [key for key in _TEXTS if not _matches(MEMBER_ID, status.get(key) or "")]
    odd += [key for key in _REVISIONS if not _matches(REVISION, status.get(key) or "")]
    texts = ("phase", "message", "vacating", "failure", "trouble")
    odd += [key for key in texts if not isinstance(status.get(key, ""), str)]
    odd += [] if _is_second(status.get("second")) else ["second"]
    return f"status.{odd[0]} is {_shown(status.get(odd[0]))}" if odd else None


def _is_second(value: object) -> bool:
    """The part of a status about a second member."""
    if value is None:
        return True
    texts = ("phase", "message", "vacating")
    return (
        isinstance(value, Mapping)
        and all(isinstance(value.get(key, ""), str) for key in texts)
        and all(_matches(MEMBER_ID, value.get(key) or "") for key in ("memberID", "vacatedMemberID"))
    )


def is_control_plane(obj: Object) -> bool:
    return control_plane(obj) is None


def is_etcd_member(obj: Object) -> bool:
    return etcd_member(obj) is None


def without_odd_status(obj: Object) -> Object:
    """The ControlPlane with a status that can be read: an invalid one is emptied, and the operator writes a new one."""
    status = obj.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else None
    if isinstance(conditions, list) and all(_is_condition(one) for one in conditions):
        return obj
    return {**obj, "status": {}} if "status" in obj else obj


def _is_condition(one: object) -> bool:
    return isinstance(one, dict) and all(
        isinstance(one.get(key), str) for key in ("type", "status", "lastTransitionTime")
    )


def _matches(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) is not None


def _are_arguments(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(given, Mapping) and all(isinstance(one, str) for one in given.values()) for given in value.values()
    )


def _is_rollback(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    limit = value.get("limitSeconds", 90)
    return isinstance(value.get("enabled", True), bool) and type(limit) in (int, float) and 0 < limit < 10**9


def _is_upgrade(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    seconds = value.get("soakSeconds", 0)
    return type(seconds) is int and 0 <= seconds <= MOST_SOAK_SECONDS


def _is_edition(value: object) -> bool:
    """An edition unknown here belongs to a newer release."""
    return type(value) is int and value >= FIRST


def _is_etcd(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    members, seconds = value.get("members"), value.get("replaceAfterSeconds", 600)
    if type(seconds) is not int or seconds <= 0:
        return False
    version, quota = value.get("version"), value.get("quotaBytes")
    if version is not None and not _matches(ETCD_VERSION, version):
        return False
    if quota is not None and (type(quota) is not int or not LEAST_QUOTA <= quota <= MOST_QUOTA):
        return False
    return "members" not in value or (
        isinstance(members, list) and bool(members) and all(isinstance(name, str) and name for name in members)
    )


def _is_address(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(ipaddress.IPv4Address(value))
    except ValueError:
        return False


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
