"""Checks before an upgrade: what the ControlPlane's conditions say of the cluster. Pure.

Conditions are of a generation of the object, but they describe the cluster and not the spec. Those of the generation
before are therefore as good where the spec asks for the wanted version already: that edit has made the new generation,
and the operator makes the checks before it writes a status for it. Where the spec does not ask for it yet (the command,
before its edit), the operator has had all the time to look, and only the current generation counts. Older ones are left
over from when an operator looked last, or from before a spec that was invalid for a while: nothing but SpecApplied is
written then.

What only workers say of themselves has reasons of its own in the conditions (`control.status.decide`), and is a warning
here: it stops nothing. The steps judge pods themselves, and one worker cannot block them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autarky.control.common.shapes import condition, number, plain, within
from autarky.control.status.decide import ADD_ONS_ON_TRIAL, SLOW, WORKERS_NOT_READY, WORKERS_NOT_RENEWED
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.observed import PASSES, Finding, Seen, Source
from autarky.render.crds import CONTROL_PLANE

_DESCRIBE = f"`kubectl describe controlplane {CONTROL_PLANE}` says more"
_WAIT = f"wait: `kubectl wait --for=condition={{}} controlplane/{CONTROL_PLANE} --timeout=10m`"
REQUIRED = {
    "Ready": ("the control plane is not ready", "`autarky doctor` says what to do"),
    "RolloutsSettled": ("a rollout is not judged yet", _WAIT.format("RolloutsSettled")),
    "NodesAsLabelled": ("control nodes are changing", _WAIT.format("NodesAsLabelled")),
}
"""Type of a condition that must be True → (what it means that it is not, what to do)."""
NOT_FALSE = {
    "EtcdMembersSettled": ("etcd's members are changing", _WAIT.format("EtcdMembersSettled")),
    "EtcdInShape": ("etcd needs attention", "do what it says first; `autarky etcd status` shows the members"),
}
"""The same for conditions that are absent where etcd is not described by EtcdMembers."""
_OTHERS = ("CertificatesCurrent", "BackupsCurrent")


def health(seen: Seen) -> Iterator[Finding]:
    if Source.PLANE in seen.unseen:
        return
    if seen.plane is None:
        yield Finding("health", "the cluster has no ControlPlane object", "run `autarky up`, which makes it")
        return
    yield from _stale(seen.plane, seen)
    for kind, (what, fix) in REQUIRED.items():
        found = condition(seen.plane, kind)
        if found.get("status") == "False" and found.get("reason") == WORKERS_NOT_READY:
            sentence = f"not everything is ready on workers: {_message(found, kind)}"
            yield Finding("health", sentence, "`autarky doctor` says what to do", warning=True)
        elif found.get("status") == "False" and found.get("reason") == ADD_ONS_ON_TRIAL:
            yield Finding("health", f"{what}: {_message(found, kind)}", fix, warning=True)
        elif found.get("status") != "True":
            yield Finding("health", f"{what}: {_message(found, kind)}", fix, patience=PASSES)
    for kind, (what, fix) in NOT_FALSE.items():
        found = condition(seen.plane, kind)
        if found.get("status") == "False":
            # A disk that is slow today is so tomorrow: it delays an upgrade, and does not make it fail.
            slow = found.get("reason") == SLOW
            yield Finding("health", f"{what}: {_message(found, kind)}", fix, patience=PASSES, warning=slow)
        else:
            yield from _unknown(found, "health", kind)


def certificates(seen: Seen) -> Iterator[Finding]:
    found = condition(seen.plane, "CertificatesCurrent")
    if found.get("status") == "False":
        fix = "`autarky status` shows it, and `kubectl -n kube-system logs` of its node's agent says why"
        sentence = f"certificates have expired, or are not renewed: {_message(found, 'CertificatesCurrent')}"
        yield Finding("certificates", sentence, fix, warning=found.get("reason") == WORKERS_NOT_RENEWED)
    else:
        yield from _unknown(found, "certificates", "CertificatesCurrent")


def backup(seen: Seen) -> Iterator[Finding]:
    """There need not be a schedule. Only a backup that a schedule asks for makes it current: one made by hand is as
    good, but then the schedule must be paused while whatever keeps it from working is repaired."""
    if Source.PLANE in seen.unseen or seen.plane is None:
        return
    found = condition(seen.plane, "BackupsCurrent")
    if not found:
        sentence = "no backup schedule: what the new version has written to etcd, only a backup takes back"
        fix = "`autarky backup create --to FILE --recipient age1…` makes one"
        yield Finding("backup", sentence, fix, warning=True)
    elif found.get("status") == "False":
        fix = (
            "`kubectl get backupschedules` says why; or run `autarky backup create --like SCHEDULE`, and pause that"
            " schedule (spec.paused) until it works"
        )
        yield Finding("backup", _message(found, "BackupsCurrent"), fix)
    else:
        yield from _unknown(found, "backup", "BackupsCurrent")


def _stale(plane: Mapping[str, Any], seen: Seen) -> Iterator[Finding]:
    """The conditions that are used have all been written together."""
    used = (condition(plane, kind) for kind in (*REQUIRED, *NOT_FALSE, *_OTHERS))
    of = [number(one.get("observedGeneration")) for one in used if one]
    now = number(within(plane, "metadata", "generation"))
    edits = 1 if reported.wanted_version(plane) == seen.wanted else 0
    if of and min(of) < now - edits:
        sentence = f"the ControlPlane's conditions are of its generation {min(of)}, and it is at {now}: nobody looks"
        fix = "wait for some seconds; else `kubectl -n kube-system logs deploy/autarky-operator` says why"
        yield Finding("health", sentence, fix, patience=PASSES)


def _unknown(found: Mapping[str, Any], check: str, kind: str) -> Iterator[Finding]:
    """For a condition that must not be False: the operator could not look."""
    if found.get("status") == "Unknown":
        yield Finding(check, f"{kind} is not known: {_message(found, kind)}", _DESCRIBE, warning=True)


def _message(found: Mapping[str, Any], kind: str) -> str:
    if not found:
        return f"no condition {kind} is reported"
    return plain(found.get("message")) or f"{kind} is {plain(found.get('status')) or 'not known'}"
