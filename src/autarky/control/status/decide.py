"""The status of the ControlPlane object, from what was observed: layers, slots per node, conditions. Pure.

Contract: the same observations give the same status, so that nothing is written while nothing changes; transition
times come from the previous status. What could not be observed (`Unseen`) does not keep anything else from being
reported: its conditions are Unknown, and fields that others act on stay as they were.

What a worker says of itself (its pods' readiness, its certificates) is in the conditions like everything else, but with
reasons of its own: whoever acts on them can leave it out, and one worker stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autarky.control.kubelet.decide import telling
from autarky.model.components import JUDGED_ADD_ONS, KUBELET

Object = dict[str, Any]
NOTHING = "Nothing"
NOT_SEEN = "NotSeen"
SPEC_APPLIED = "SpecApplied"
"""The condition that says what of the spec is not applied yet, and why."""
KUBELETS_CURRENT = "KubeletsCurrent"
"""The condition that says whether each kubelet has what is wanted of it; absent where nothing is."""
WORKERS_NOT_READY = "WorkersNotReady"
"""The reason of Ready where nothing is wrong but what workers say of themselves."""
ADD_ONS_ON_TRIAL = "AddOnsOnTrial"
"""The reason of RolloutsSettled where nothing is on trial but add-ons, or hosted kubelets, which come on top of the
hosts': whoever uses DNS or the pod network could keep them so, and a hosted kubelet may wait for its turn, or be in
force nowhere, forever."""
_HOLD_UP_NOTHING = JUDGED_ADD_ONS | {KUBELET}
WORKERS_NOT_RENEWED = "WorkersNotRenewed"
"""The same of CertificatesCurrent."""
MOST_SENTENCES = 10
SLOW = "DiskIsSlow"
"""The reason of EtcdInShape where nothing else is wrong."""
_OF_ETCD = ("EtcdMembersSettled", "EtcdEvenCount", "EtcdInShape")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that could not be observed. why: a clause."""

    why: str


@dataclass(frozen=True, slots=True)
class Layer:
    """All pods (or kubelets) of one component in one slot: "host", "static", "hosted" or "standby". excused: of those
    that are not ready, how many are known to be on workers, of a component that has its place there."""

    level: int
    component: str
    slot: str
    ready: int
    total: int
    versions: tuple[str, ...]
    excused: int = 0


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """What a control node's agent reports, unchanged: `level`, the lowest hosted one that it follows (None: it reports
    none), and its slots by component."""

    node: str
    ready: bool | None
    level: int | None = None
    slots: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout with a problem. rolled_back: it was rolled back, and no later revision has been healthy."""

    component: str
    sentence: str
    rolled_back: bool


@dataclass(frozen=True, slots=True)
class Unapplied:
    """Something in the spec that has not been applied to the workloads. refused: and will not be unless changed."""

    reason: str
    sentence: str
    refused: bool


@dataclass(frozen=True, slots=True)
class EtcdMembers:
    """The EtcdMembers there are. moving: a sentence for each that is not in its requested state; changing: those of
    them that say of a member more than that it does not answer; even: a warning, or None. refused: why the list in the
    spec is not followed; in_force: the list that is, None while unknown. troubles: a sentence for each of which data or
    disk need a person; only_slow: of all of these nothing is wrong but that their disks are slow."""

    count: int
    moving: tuple[str, ...] = ()
    even: str | None = None
    refused: str = ""
    in_force: Object | None = None
    troubles: tuple[str, ...] = ()
    only_slow: bool = False
    changing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Certificates:
    """What nodes report of theirs. first: the first to expire, a clause; wrong: a sentence for each that has expired,
    or is not renewed; on_workers: the same of workers."""

    first: str
    wrong: tuple[str, ...] = ()
    on_workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """true: None where it could not be observed."""

    type: str
    true: bool | None
    reason: str
    message: str


def status(
    layers: Sequence[Layer] | Unseen,
    nodes: Sequence[NodeSlots] | Unseen,
    rollouts: Sequence[Rollout] | Unseen,
    on_trial: Sequence[str] | Unseen,
    drift: Sequence[str] | Unseen,
    spec: Sequence[Unapplied],
    etcd: EtcdMembers | Unseen | None = None,
    labels: Sequence[str] = (),
    expiry: Certificates | Unseen | None = None,
    *,
    controllers: Mapping[str, Any] | Unseen | None = None,
    version: str = "",
    former_version: str = "",
    upgrade: Object | None = None,
    kubelets: telling.Reported | None = None,
    backups: Sequence[str] | None = None,
    old_defaults: str | Unseen = "",
    generation: int,
    before: Mapping[str, Any],
    now: str,
) -> Object:
    """The complete status. `on_trial`: the components whose revision is not known to be healthy yet, judged or not;
    `drift`: a sentence for each edit by others; `etcd`: None where its members are not described by EtcdMembers;
    `labels`: a sentence for each node that is not yet what its labels say; `expiry`: None where no node reports any;
    `backups`: a sentence for each schedule whose backups are overdue, None where there are no schedules; `controllers`:
    what is reported of level 3 to the node agents; `old_defaults`: a sentence on the new defaults that the cluster
    lacks; `version`: that the control plane has had completely last, `former_version` the one before, and `upgrade`: as
    `control.upgrade.decide.reported` has it; `kubelets`: None where nothing is asked of them; `generation`: of the
    observed spec; `now`: RFC 3339."""
    found = [
        *_conditions(("Ready",), lambda *seen: [_ready(*seen)], layers, nodes),
        *_conditions(("RolloutsSettled",), lambda seen: [_settled(seen)], on_trial),
        *_conditions(("RolledBack", "RolloutFailed"), lambda seen: [_rolled_back(seen), _failed(seen)], rollouts),
        *_conditions(("Drifted",), lambda seen: [_drifted(seen)], drift),
        _applied([*spec, *_refused(etcd)]),
        _as_labelled(labels),
        *_conditions(("StandbysCurrent",), lambda seen: [_current(seen)], nodes),
        *_conditions(_OF_ETCD, lambda seen: [_members(seen), _even(seen), _in_shape(seen)], etcd),
        *_conditions(("CertificatesCurrent",), lambda seen: [_certificates(seen)], expiry),
        *_conditions(("BackupsCurrent",), lambda seen: [_backups(seen)], backups),
        *_conditions(("DefaultsCurrent",), lambda seen: [_defaults(seen)], old_defaults),
        *_conditions((KUBELETS_CURRENT,), lambda seen: [_kubelets(seen)], kubelets),
    ]
    return {
        "observedGeneration": generation,
        **({"version": version} if version else {}),
        **({"formerVersion": former_version} if former_version else {}),
        **({"upgrade": upgrade} if upgrade else {}),
        **({"kubelets": telling.status(kubelets)} if kubelets is not None else {}),
        **_in_force(etcd, before),
        "layers": _kept(before, "layers") if isinstance(layers, Unseen) else _layers(layers),
        "nodes": _kept(before, "nodes") if isinstance(nodes, Unseen) else _nodes(nodes),
        "controllers": before.get("controllers", {}) if isinstance(controllers, Unseen) else dict(controllers or {}),
        "conditions": [_stamped(condition, generation, before, now) for condition in found],
    }


def not_understood(sentence: str, *, generation: int, before: Mapping[str, Any], now: str) -> Object:
    """The status for a spec of which nothing can be applied: as before, since others act on it, except for the
    condition SpecApplied."""
    found = _stamped(Condition(SPEC_APPLIED, False, "NotUnderstood", sentence), generation, before, now)
    others = [one for one in before.get("conditions") or [] if one["type"] != found["type"]]
    return {**before, "observedGeneration": generation, "conditions": [*others, found]}


def _conditions(types: Sequence[str], tell: Callable[..., Sequence[Condition]], *seen: object) -> Sequence[Condition]:
    """The conditions for what was observed; none for None."""
    unseen = next((one for one in seen if isinstance(one, Unseen)), None)
    if unseen is not None:
        return [Condition(name, None, NOT_SEEN, unseen.why) for name in types]
    return () if None in seen else tell(*seen)


def _refused(etcd: EtcdMembers | Unseen | None) -> list[Unapplied]:
    refused = etcd.refused if isinstance(etcd, EtcdMembers) else ""
    return [Unapplied("EtcdMembersRefused", refused, refused=True)] if refused else []


def _in_force(etcd: EtcdMembers | Unseen | None, before: Mapping[str, Any]) -> Object:
    """The operator reads from it which list it followed last."""
    if isinstance(etcd, Unseen):
        return {"etcd": before["etcd"]} if "etcd" in before else {}
    return {"etcd": etcd.in_force} if etcd is not None and etcd.in_force is not None else {}


def _kept(before: Mapping[str, Any], name: str) -> list[Object]:
    found: list[Object] = before.get(name) or []
    return found


def _layers(layers: Sequence[Layer]) -> list[Object]:
    return [_layer(layer) for layer in sorted(layers, key=lambda one: (one.level, one.component, one.slot))]


def _nodes(nodes: Sequence[NodeSlots]) -> list[Object]:
    return [_node(node) for node in sorted(nodes, key=lambda one: one.node)]


def _ready(layers: Sequence[Layer], nodes: Sequence[NodeSlots]) -> Condition:
    away = [f"node {node.node} is not Ready" for node in nodes if not node.ready]
    lacking = [layer for layer in layers if layer.ready < layer.total and layer.slot != "standby"]
    wrong = [*away, *(f"{layer.component} has {layer.ready} of {layer.total} ready" for layer in lacking)]
    if wrong:
        only_workers = not away and all(layer.ready + layer.excused >= layer.total for layer in lacking)
        reason = WORKERS_NOT_READY if only_workers else "NotReady"
        return Condition("Ready", False, reason, "; ".join(sorted(wrong)))
    return Condition("Ready", True, "AllReady", "every component is ready on every node where it runs")


def _settled(on_trial: Sequence[str]) -> Condition:
    if on_trial:
        what = ", ".join(sorted(on_trial))
        message = f"{what}: a new revision is on trial; until it has proved healthy, the last good one is kept"
        reason = ADD_ONS_ON_TRIAL if _HOLD_UP_NOTHING.issuperset(on_trial) else "OnTrial"
        return Condition("RolloutsSettled", False, reason, message)
    return Condition("RolloutsSettled", True, "Judged", "no revision of the control plane or of an add-on is on trial")


def _current(nodes: Sequence[NodeSlots]) -> Condition:
    refused = [
        f"{component} on {node.node}: {slot['refused']}"
        for node in nodes
        for component, slot in node.slots.items()
        if isinstance(slot, Mapping) and slot.get("refused")
    ]
    if refused:
        return Condition("StandbysCurrent", False, "CheckpointRefused", _bounded(sorted(refused)))
    current = (
        "every standby is, or is about to become, a copy of the hosted pod on its node, or of a good one elsewhere"
    )
    return Condition("StandbysCurrent", True, "Current", current)


def _rolled_back(rollouts: Sequence[Rollout]) -> Condition:
    back = [f"{rollout.component}: {rollout.sentence}" for rollout in rollouts if rollout.rolled_back]
    if back:
        return Condition("RolledBack", True, "RevisionFailed", "; ".join(sorted(back)))
    return Condition("RolledBack", False, NOTHING, "no rollout was rolled back since the last healthy one")


def _failed(rollouts: Sequence[Rollout]) -> Condition:
    stuck = [f"{rollout.component}: {rollout.sentence}" for rollout in rollouts if not rollout.rolled_back]
    if stuck:
        return Condition("RolloutFailed", True, "NotRolledBack", "; ".join(sorted(stuck)))
    return Condition("RolloutFailed", False, NOTHING, "no failed rollout is in place")


def _drifted(drift: Sequence[str]) -> Condition:
    if drift:
        return Condition("Drifted", True, "EditedByOthers", _bounded(sorted(drift)))
    return Condition("Drifted", False, NOTHING, "every field has the value that was applied last")


def _applied(spec: Sequence[Unapplied]) -> Condition:
    if not spec:
        return Condition(SPEC_APPLIED, True, "Applied", "the spec is applied to the workloads")
    reason = next((one.reason for one in spec if one.refused), spec[0].reason)
    return Condition(SPEC_APPLIED, False, reason, _bounded([one.sentence for one in spec]))


def _members(etcd: EtcdMembers) -> Condition:
    if etcd.moving:
        return Condition("EtcdMembersSettled", False, "Moving", _bounded(etcd.moving))
    return Condition("EtcdMembersSettled", True, "AsWanted", f"etcd has the requested members ({etcd.count})")


def _even(etcd: EtcdMembers) -> Condition:
    if etcd.even is not None:
        return Condition("EtcdEvenCount", True, "OneMoreOrLess", etcd.even)
    return Condition("EtcdEvenCount", False, NOTHING, "the number of etcd members is odd")


def _in_shape(etcd: EtcdMembers) -> Condition:
    if etcd.troubles:
        return Condition("EtcdInShape", False, SLOW if etcd.only_slow else "NeedsAttention", _bounded(etcd.troubles))
    return Condition(
        "EtcdInShape", True, "InShape", "no member of etcd reports that its data or its disk needs attention"
    )


def _certificates(expiry: Certificates) -> Condition:
    if expiry.wrong or expiry.on_workers:
        reason = "NotRenewed" if expiry.wrong else WORKERS_NOT_RENEWED
        return Condition("CertificatesCurrent", False, reason, _bounded([*expiry.wrong, *expiry.on_workers]))
    return Condition(
        "CertificatesCurrent", True, "Renewed", f"all are renewed automatically; the first to expire is {expiry.first}"
    )


def _backups(overdue: Sequence[str]) -> Condition:
    if overdue:
        return Condition("BackupsCurrent", False, "Overdue", _bounded(overdue))
    return Condition("BackupsCurrent", True, "Current", "the last verified backup of every schedule is recent")


def _defaults(old: str) -> Condition:
    if old:
        return Condition("DefaultsCurrent", False, "OlderEdition", old)
    return Condition("DefaultsCurrent", True, "Newest", "the cluster has the defaults that a new one would get")


def _kubelets(found: telling.Reported) -> Condition:
    if found.is_current:
        return Condition(KUBELETS_CURRENT, True, "Current", "every kubelet has what is wanted of it")
    stopped = bool(found.failed or found.hosted.behind) or any(pool.stopped for pool in found.pools)
    moving = bool(found.changing or found.waits)
    reason = "NotUnderstood" if found.trouble else "Failed" if stopped else "Changing" if moving else "Held"
    return Condition(KUBELETS_CURRENT, False, reason, telling.sentence(found))


def _as_labelled(labels: Sequence[str]) -> Condition:
    if labels:
        return Condition("NodesAsLabelled", False, "Changing", _bounded(sorted(labels)))
    return Condition("NodesAsLabelled", True, "Settled", "the control nodes are exactly the nodes that request it")


def _bounded(sentences: Sequence[str]) -> str:
    """The first sentences and the number of the others: messages of conditions are for people."""
    shown = "; ".join(sentences[:MOST_SENTENCES])
    more = len(sentences) - MOST_SENTENCES
    return f"{shown}; and {more} more" if more > 0 else shown


def _layer(layer: Layer) -> Object:
    return {
        "level": layer.level,
        "component": layer.component,
        "slot": layer.slot,
        "ready": f"{layer.ready}/{layer.total}",
        "versions": list(layer.versions),
    }


def _node(node: NodeSlots) -> Object:
    ready = {True: "True", False: "False", None: "Unknown"}[node.ready]
    level = {} if node.level is None else {"lowestHostedLevel": node.level}
    return {"name": node.node, "ready": ready, **level, "slots": dict(node.slots)}


def _stamped(condition: Condition, generation: int, before: Mapping[str, Any], now: str) -> Object:
    truth = {True: "True", False: "False", None: "Unknown"}[condition.true]
    earlier: list[Object] = before.get("conditions") or []
    old: Object = next((one for one in earlier if one.get("type") == condition.type), {})
    since = old.get("lastTransitionTime") if old.get("status") == truth else None
    return {
        "type": condition.type,
        "status": truth,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
    }
