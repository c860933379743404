"""One hosted workload and its pods, read from the watched objects into what `decide.verdict` judges.

Only pods that a controller created, and standbys on control nodes, are considered: a worker's kubelet may give its
static pods any label, image and readiness.

A node agent has to act, too, by its own report: its probes are answered by whichever agent of the node acts, so that
one that hangs is Ready.

A hosted kubelet that waits for its turn, or may not be in force on its node, says nothing about its revision, and is
not Ready. On a control node one that waits has yet to prove it, though: what workers say makes no revision good.

The pods of a revision are found by the name that the controllers gave it: that of the ControllerRevision or
ReplicaSet with the wanted template. While there is none, the controllers have not observed the template yet.

Which pod leads follows from its host and by elimination: the identity in a lease is the host's name and a random
part, and both slots of a component on one node have the same host name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autarky.control.base.operator_view import View, current
from autarky.control.common.pods import has_ended, is_owned_by, is_ready, is_what_it_says, node_of
from autarky.control.common.shapes import image_of, within
from autarky.control.common.skew import NO_IMAGES, breaks_skew, image_version, minor_of
from autarky.control.kubelet.decide import hosted_report
from autarky.control.rollout.decide.good_revision import revision_of
from autarky.control.rollout.decide.limits import seconds_to_ready
from autarky.control.rollout.decide.observed import Leader, Lease, Observed, Pod
from autarky.control.rollout.operator.trouble import has_never_run, trouble_of
from autarky.control.slots.decide.report import acting_agent
from autarky.model import components
from autarky.model.cluster import Level
from autarky.model.components import (
    API_SERVER,
    COMPONENTS,
    HOSTED,
    KUBE_PROXY,
    KUBELET,
    LED_BY_LEASE,
    NODE_AGENT,
    SLOT_LABEL,
    STANDBY,
    WITH_STANDBY,
    Component,
)
from autarky.ports import Object
from autarky.render.values import SYSTEM, is_ours

_HASH_LABELS = {"DaemonSet": "controller-revision-hash", "Deployment": "pod-template-hash"}


TWO_SLOTS = tuple(COMPONENTS[name] for name in WITH_STANDBY)
JUDGED = tuple(COMPONENTS[name] for name in components.JUDGED)
"""Components whose rollouts are judged and rolled back."""


def workload(view: View, component: Component) -> Object | None:
    source = view.daemon_sets if component.kind == "DaemonSet" else view.deployments
    return source.items.get((SYSTEM, component.name))


def judged_workload(view: View, component: Component) -> Object | None:
    """What is judged of the component. An add-on of that name may be somebody else's, who brings it for theirs."""
    live = workload(view, component)
    return live if live is None or not is_add_on(component) or is_ours(live) else None


def is_add_on(component: Component) -> bool:
    return component.level is Level.ADD_ONS


def only_control_nodes_judge(view: View, component: Component) -> bool:
    """Whether pods on workers say nothing about its revision. No agent of theirs keeps a control plane alive, or
    reports that it acts. On the way down a minor the API servers wait for kube-proxy, which must not be newer (rule 4):
    what workers say must not keep a control plane from going back."""
    if component.name != KUBE_PROXY:
        return component.name == NODE_AGENT
    servers = workload(view, COMPONENTS[API_SERVER])
    has = None if servers is None else image_version(image_of(servers["spec"]["template"], API_SERVER))
    wanted = image_version(f"{API_SERVER}:{within(view.control_plane, 'spec', 'version')}")
    return has is not None and wanted is not None and minor_of(has) > minor_of(wanted)


def _is_anywhere(component: Component) -> bool:
    """Whether any node may have any number of its pods. (Which operator leads says nothing about the others: the one
    that looks is the one that leads.)"""
    return component.kind == "Deployment" and component.name not in LED_BY_LEASE


def observe(
    view: View, component: Component, live: Object, *, etcd_up: bool, level_3: Mapping[str, str] = NO_IMAGES
) -> Observed:
    """The workload and its pods as they are now. level_3: component → image, beside which an API server must fit."""
    template = live["spec"]["template"]
    name = controllers_name(view, component, live)
    pods = _of(view, component)
    owners = _owners(view, component, live)
    new = [pod for pod in pods if _is_of(pod, owners, component, name) and not _ends(pod)]
    anywhere = _is_anywhere(component)
    if anywhere:  # its controller has made others for those that have ended, and leaves these as they are
        new = [pod for pod in new if not has_ended(pod)]
    nodes, ending, trusted = _ready_nodes(view, template), _ending(pods), control_nodes(view)
    if only_control_nodes_judge(view, component):
        nodes &= trusted
    idle = _idle(view, new) if component.name == KUBELET else {}
    refused = frozenset(node for node, state in idle.items() if state is hosted_report.State.REFUSED)
    nodes -= refused | (idle.keys() - trusted)
    seen = [pod for pod in new if pod["spec"].get("nodeName") in nodes - idle.keys()]
    hosted = _with_hosted(pods)
    bare = nodes - hosted if component.kind == "DaemonSet" else frozenset()
    if _has_all(live, hosted):  # an affinity keeps it from the others
        nodes, bare = nodes - (bare - trusted), bare & trusted
    # A pod that never ends on a worker keeps no controller from making others.
    could_make = anywhere or not ending or bool(bare & trusted)
    return Observed(
        revision=revision_of(template),
        known=name is not None and _is_current(view, component),
        etcd_up=etcd_up,
        nodes=nodes,
        pods=tuple(_judged(view, pod, component, trusted) for pod in seen),
        skew=_skew(view, component, template, level_3),
        lease=_lease(view, component, pods, new) if component.name in LED_BY_LEASE else None,
        ending=ending if component.kind == "DaemonSet" else frozenset(),
        bare=bare,
        replicas=live["spec"].get("replicas", 1) if anywhere else None,
        made=len(new) if anywhere else 0,
        due=not new and bool(nodes) and could_make and _makes_pods(live),
        trusted=None if component in TWO_SLOTS else trusted,
        idle=nodes & idle.keys(),
        refused=refused,
        by_two=component.name == KUBELET and not nodes & trusted,
    )


def _makes_pods(live: Object) -> bool:
    """Whether its controller makes them by itself."""
    by_hand = (live["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"
    return live["spec"].get("replicas", 1) != 0 and not by_hand and "deletionTimestamp" not in live["metadata"]


def _is_current(view: View, component: Component) -> bool:
    kind = (
        [view.daemon_sets, view.daemon_set_revisions]
        if component.kind == "DaemonSet"
        else [view.deployments, view.replica_sets]
    )
    leases = [view.leases[component.name]] if component.name in LED_BY_LEASE else []
    return current([view.nodes, view.pods, *kind, *leases])


# --- revisions -----------------------------------------------------------------------------------------


def controllers_name(view: View, component: Component, live: Object) -> str | None:
    """What the controllers call the wanted template, as a label of its pods; None until they have observed it."""
    if live.get("status", {}).get("observedGeneration", 0) < live["metadata"]["generation"]:
        return None
    label, wanted = _HASH_LABELS[component.kind], _essence(live["spec"]["template"])
    source = view.daemon_set_revisions if component.kind == "DaemonSet" else view.replica_sets
    for owned in source.items.values():
        if is_owned_by(owned, frozenset({live["metadata"]["uid"]})) and _essence(_template_in(owned)) == wanted:
            name: str | None = owned["metadata"].get("labels", {}).get(label)
            return name
    return None


def _template_in(owned: Object) -> Object:
    spec = owned["data"]["spec"] if owned["kind"] == "ControllerRevision" else owned["spec"]
    template: Object = spec["template"]
    return template


def _essence(template: Any) -> Any:
    """A template without what the controllers add to it, and without empty fields, which come and go."""
    labels = {
        key: value
        for key, value in (template.get("metadata", {}).get("labels") or {}).items()
        if key not in _HASH_LABELS.values()
    }
    annotations = template.get("metadata", {}).get("annotations")
    return _without_nothing({"labels": labels, "annotations": annotations, "spec": template["spec"]})


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(item) for key, item in value.items() if item not in (None, {}, [])}
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value


# --- pods and nodes ------------------------------------------------------------------------------------


def control_nodes(view: View) -> frozenset[str]:
    """Those with the active label."""
    return view.active_nodes


def pods_of(view: View, component: Component, slot: str) -> list[Object]:
    """All pods of the component in that slot, of all revisions."""
    return [pod for pod in _of(view, component) if _label(pod, SLOT_LABEL) == slot]


def _of(view: View, component: Component) -> list[Object]:
    """All pods of the component, of both slots and all revisions; not those that a worker's kubelet only claims."""
    where = control_nodes(view)
    return [pod for pod in view.pods_named(component.label_value) if is_what_it_says(pod, where)]


def _owners(view: View, component: Component, live: Object) -> frozenset[str]:
    """The uids of the owners of the workload's pods: the DaemonSet itself, or the Deployment's ReplicaSets."""
    if component.kind == "DaemonSet":
        return frozenset({live["metadata"]["uid"]})
    sets = [one for one in view.replica_sets.items.values() if is_owned_by(one, frozenset({live["metadata"]["uid"]}))]
    return frozenset(one["metadata"]["uid"] for one in sets)


def _is_of(pod: Object, owners: frozenset[str], component: Component, name: str | None) -> bool:
    return name is not None and _label(pod, _HASH_LABELS[component.kind]) == name and is_owned_by(pod, owners)


def is_of(pod: Object, live: Object) -> bool:
    """Whether the DaemonSet owns the pod."""
    return is_owned_by(pod, frozenset({live["metadata"]["uid"]}))


def _label(obj: Object, key: str) -> str | None:
    return (obj["metadata"].get("labels") or {}).get(key)


def _ending(pods: Iterable[Object]) -> frozenset[str]:
    """The nodes on which a hosted pod terminates: a DaemonSet's next pod is created when it is gone."""
    return frozenset(
        pod["spec"].get("nodeName", "") for pod in pods if _ends(pod) and _label(pod, SLOT_LABEL) != STANDBY
    )


def _has_all(live: Object, hosted: frozenset[str | None]) -> bool:
    """Whether there is a pod of the DaemonSet on as many nodes as its controller wants it on."""
    wanted = (live.get("status") or {}).get("desiredNumberScheduled")
    return wanted is not None and len(hosted - {None}) >= wanted


def _with_hosted(pods: Iterable[Object]) -> frozenset[str | None]:
    """The nodes with a hosted pod, in whatever state."""
    return frozenset(node_of(pod) for pod in pods if _label(pod, SLOT_LABEL) != STANDBY)


def _ends(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _judged(view: View, pod: Object, component: Component, trusted: frozenset[str]) -> Pod:
    """trusted: the nodes whose figures on how long a start takes count."""
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    start = seconds_to_ready(pod, component.name) if node in trusted else None
    ready, trouble = is_ready(pod), trouble_of(pod)
    if ready and component.name == NODE_AGENT and not _acts(view, pod):
        ready, trouble = False, "another agent acts on the node"
    said = _hosted_kubelet(view, pod) if component.name == KUBELET else None
    if said is not None and said.state is hosted_report.State.FAILED:
        ready, trouble = False, said.why or trouble
    elif said is not None and said.state is hosted_report.State.PROVING:  # it may yet fail, however well it looks
        ready = False
    return Pod(name, node, ready, trouble, has_never_run(pod), start, _is_anywhere(component))


def _acts(view: View, pod: Object) -> bool:
    """Whether this agent acts on its node, unless the one that does is of a release that does not say."""
    node = view.nodes.items.get((None, pod["spec"]["nodeName"]))
    return node is not None and acting_agent(node) in ("", pod["metadata"]["uid"])


def _hosted_kubelet(view: View, pod: Object) -> hosted_report.Report | None:
    """What its node reports of this very pod's kubelet."""
    node = view.nodes.items.get((None, pod["spec"].get("nodeName", "")))
    said = None if node is None else hosted_report.read(node["metadata"])
    return said if said is not None and said.pod == pod["metadata"]["uid"] else None


def _idle(view: View, pods: Iterable[Object]) -> dict[str, hosted_report.State]:
    """The nodes whose hosted kubelet, of one of these pods, is not even to be tried now."""
    found = [(pod, said) for pod in pods if (said := _hosted_kubelet(view, pod)) is not None]
    idle = (hosted_report.State.WAITING, hosted_report.State.REFUSED)
    return {pod["spec"]["nodeName"]: said.state for pod, said in found if said.state in idle}


def _ready_nodes(view: View, template: Object) -> frozenset[str]:
    """The Ready nodes that the template's selector admits. (Ours tolerates every taint.)"""
    return frozenset(node["metadata"]["name"] for node in view.ready_nodes if selects(template, node))


def selects(template: Object, node: Object) -> bool:
    """Whether the template's selector admits the node."""
    selector = template["spec"].get("nodeSelector") or {}
    return bool(selector.items() <= (node["metadata"].get("labels") or {}).items())


# --- versions ------------------------------------------------------------------------------------------


def _skew(view: View, component: Component, template: Object, level_3: Mapping[str, str]) -> str:
    """How the template breaks rule 4 beside the API servers that serve now, and beside level 3. The rule is not about
    add-ons, which have versions of their own."""
    if is_add_on(component):
        return ""
    running = [image_of(pod, API_SERVER) for pod in _that_serve(view)]
    image = image_of(template, component.name)
    return breaks_skew(component.name, image, running, is_api_server=component.name == API_SERVER, level_3=level_3)


def is_in_place(view: View, component: Component, image: str) -> bool:
    """Whether that image is wanted, or runs in a hosted pod that is not terminating; False while that is unknown."""
    live = workload(view, component)
    if live is None or not current([view.deployments, view.pods]):
        return False
    stay = [pod for pod in pods_of(view, component, "hosted") if not _ends(pod)]
    return image in {image_of(one, component.name) for one in (live["spec"]["template"], *stay)}


def _that_serve(view: View) -> list[Object]:
    """The API servers of control nodes to which requests go. A standby beside a Ready hosted one gets none: right after
    a rollout it is about to be withdrawn, and still of the previous version. Upgrading the next component then breaks
    nothing."""
    where = control_nodes(view)
    ready = [pod for pod in _of(view, COMPONENTS[API_SERVER]) if is_ready(pod) and pod["spec"].get("nodeName") in where]
    hosted = [pod for pod in ready if _label(pod, SLOT_LABEL) == HOSTED]
    covered = {pod["spec"].get("nodeName") for pod in hosted}
    return hosted + [pod for pod in ready if pod["spec"].get("nodeName") not in covered]


# --- leases --------------------------------------------------------------------------------------------


def _lease(view: View, component: Component, pods: Iterable[Object], new: Iterable[Object]) -> Lease:
    spec = view.leases[component.name].items.get((SYSTEM, component.name), {}).get("spec", {})
    holder, version = spec.get("holderIdentity") or "", f"{spec.get('holderIdentity')} {spec.get('renewTime')}"
    there = _on_host(view, holder.rpartition("_")[0], [pod for pod in pods if _has_processes(pod)])
    names = {pod["metadata"]["name"] for pod in new}
    others = [pod for pod in there if pod["metadata"]["name"] not in names]
    if not holder or not there:
        return Lease(Leader.OTHER, version, free=not holder)
    if not others:
        return Lease(Leader.NEW, version)
    stay = {_label(pod, SLOT_LABEL) for pod in others if not _ends(pod)}
    leaders = {"hosted": Leader.OLD, "standby": Leader.STANDBY}
    found = next((leader for slot, leader in leaders.items() if slot in stay), Leader.OTHER)
    return Lease(found, version)


def _has_processes(pod: Object) -> bool:
    """Whether the pod may have a process that leads: also when it is terminating, or its state is not known."""
    return pod.get("status", {}).get("phase") in (None, "Running", "Unknown")


def _on_host(view: View, host: str, pods: list[Object]) -> list[Object]:
    """The pods on the node of that host name; all of them, when no node is known by it."""
    known = host.casefold()
    if not any(name.casefold() == known for _, name in view.nodes.items):
        return pods
    return [pod for pod in pods if pod["spec"].get("nodeName", "").casefold() == known]
