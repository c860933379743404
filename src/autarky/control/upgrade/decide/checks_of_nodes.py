"""Checks before an upgrade: what nodes report of their standbys, their disks, their images, and of themselves. Pure.

A worker can only say something of itself, and whatever it says is a warning: it stops no upgrade, and no way back.

The image that a kubelet comes in is a warning as well, also of a control node: its node refuses the order until it
has it, and the control plane goes on without.

Images. Those of the hosted components are on a node before it starts, under their upstream names, and never pulled:
autarky's are built by itself, and what a registry gives for the same name is something else, if there is a registry at
all; while it is being pulled the node has no pod, and its standby cannot be made. So an upstream name that is not on a
control node is an error. Any other name was chosen by somebody who serves it: then it is a warning, and none where the
image is pulled at each start anyway.

How far `status.images` of a Node can be relied on (kubelet 1.36 and 1.37, pkg/kubelet/images/image_gc_manager.go and
kubelet_node_status.go). The kubelet asks the runtime for its images every 30 s, and compares its status with what the
API has every 10 s (nodeStatusUpdateFrequency), with what that last list said; a difference is written at once, and not
only every five minutes. So an image is in it some 40 s after a push. It lists at most 50 images (nodeStatusMaxImages,
which an administrator may change), the largest first, with at most 5 names each, digests before tags. A list that is
cut proves nothing by what it lacks, nor does one without the image that runs now, since that must be on the node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autarky.control.common.shapes import (
    condition,
    container_of,
    items,
    labels_of,
    mapping,
    name_of,
    plain,
    some,
    text,
    texts,
    within,
)
from autarky.control.common.skew import minor_of, repository_of
from autarky.control.kubelet.decide import wanted as wanted_of_kubelets
from autarky.control.kubelet.manifests import files
from autarky.control.slots.decide import report as slots
from autarky.control.upgrade.decide import steps
from autarky.control.upgrade.decide.observed import PASSES, Finding, Seen, Source
from autarky.control.upgrade.decide.reported import images_are_placed, parsed
from autarky.model.components import KUBE_PROXY, WITH_STANDBY
from autarky.model.versions import Version
from autarky.render.values import CONTROL_PLANE_ACTIVE

UPSTREAM = "registry.k8s.io"
MOST_LISTED, MOST_NAMES = 50, 5
"""Images, and names of one, in a Node's status."""
REPORTED_WITHIN = 90.0
"""Seconds until a Node's status has an image that was pushed: twice of what the kubelet takes."""


def is_control_node(node: Mapping[str, Any]) -> bool:
    return CONTROL_PLANE_ACTIVE in labels_of(node)


def is_ready(node: Mapping[str, Any]) -> bool:
    return condition(node, "Ready").get("status") == "True"


# --- standbys --------------------------------------------------------------------------------------------


def standbys(seen: Seen) -> Iterator[Finding]:
    """Rule 11, in either direction: a standby that is not of the version that runs would be two minors away from the
    one that is wanted. One that is of the wanted version already follows a step that somebody took by hand."""
    if minor_of(seen.runs) == minor_of(seen.wanted):
        return
    nodes = defaultdict[str, list[str]](list)
    for node in filter(is_control_node, seen.nodes):
        for component in WITH_STANDBY:
            if (trouble := _of_standby(_slot(node, component), seen)) is not None:
                nodes[f"{component} {trouble}"].append(name_of(node))
    for what, names in nodes.items():
        yield Finding(
            "standbys",
            f"on {some(names)} the standby of {what} (rule 11)",
            "wait until it is made: StandbysCurrent in `kubectl describe controlplane cluster` says what prevents that",
            patience=PASSES,
        )


def _slot(node: Mapping[str, Any], component: str) -> Mapping[str, Any]:
    annotations = dict(mapping(within(node, "metadata", "annotations")))
    said = slots.read({"metadata": {"annotations": annotations}})
    return mapping(within(said, "slots", component))


def _of_standby(slot: Mapping[str, Any], seen: Seen) -> str | None:
    """What is wrong with it, a clause."""
    version = parsed(slot.get("version"))
    if version in (seen.runs, seen.wanted):
        return None
    refused = plain(slot.get("refused"))
    why = f": {refused}" if refused else ""
    if version is None:
        return f"reports no version{why}"
    return f"is of {version}, and the control plane of {seen.runs}{why}"


# --- readiness and disks -----------------------------------------------------------------------------------


def readiness(seen: Seen) -> Iterator[Finding]:
    """A rollout leaves out a worker that is not Ready."""
    control, workers = _names([node for node in seen.nodes if not is_ready(node)])
    if control:
        fix = "`autarky doctor` says why; a node that does not come back: `autarky node remove`"
        yield Finding("health", f"control nodes that are not Ready: {some(control)}", fix, patience=PASSES)
    if workers:
        sentence = f"workers that are not Ready, and get the new version when they are: {some(workers)}"
        yield Finding("health", sentence, "`autarky doctor` says why", warning=True)


def forgotten(seen: Seen) -> Iterator[Finding]:
    """Control nodes without a Node, for another minor: the upgrade would wait for them in its middle (`steps`)."""
    lost = seen.control_nodes - set(map(name_of, seen.nodes))
    if lost and Source.NODES not in seen.unseen and minor_of(seen.runs) != minor_of(seen.wanted):
        sentence, fix = steps.of_lost(lost)
        yield Finding("health", sentence, fix, patience=PASSES)


def disk(seen: Seen) -> Iterator[Finding]:
    pressed = [node for node in seen.nodes if condition(node, "DiskPressure").get("status") == "True"]
    for names, warning in zip(_names(pressed), (False, True), strict=True):
        if names:
            what = "workers" if warning else "control nodes"
            fix = "free space there: `df -h` on the node; until then its kubelet removes images, and evicts pods"
            yield Finding("disk", f"{what} with DiskPressure: {some(names)}", fix, warning)


def _names(nodes: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Of the control nodes, and of the workers."""
    found = [[name_of(node) for node in nodes if is_control_node(node) == control] for control in (True, False)]
    return found[0], found[1]


# --- images ------------------------------------------------------------------------------------------------


def kubelet_images(seen: Seen) -> Iterator[Finding]:
    """Where kubelets follow. A list that is cut, or empty, proves nothing."""
    if not wanted_of_kubelets.follows(mapping(seen.plane)):
        return
    image = files.image_of(seen.wanted)
    judged = [node for node in seen.nodes if not images_are_placed(seen.plane, seen.wanted, node)]
    without = [node for node in judged if is_ready(node) and _is_known_without(node, image, seen.wanted)]
    if without:
        version = str(seen.wanted).removeprefix("v")
        sentence = (
            f"the image of kubelets, {image}, is not on {some(map(name_of, without))}: their kubelets stay behind"
        )
        fix = f"`autarky upgrade {version}` brings it, and so does `autarky payload push {version}`"
        yield Finding("images", sentence, fix, warning=True, patience=REPORTED_WITHIN)


def _is_known_without(node: Mapping[str, Any], image: str, wanted: Version) -> bool:
    """A kubelet that has the version already needs none."""
    listed = _listed(node)
    is_cut = not listed or len(listed) >= MOST_LISTED or any(len(one) >= MOST_NAMES for one in listed)
    has = parsed(within(node, "status", "nodeInfo", "kubeletVersion")) == wanted
    return not has and not is_cut and image not in {name for one in listed for name in one}


def images(seen: Seen) -> Iterator[Finding]:
    judged = [node for node in seen.nodes if not images_are_placed(seen.plane, seen.wanted, node)]
    lacking = defaultdict[tuple[str, str, bool], list[str]](list)
    for component, live in seen.workloads.items():
        container = container_of(within(live, "spec", "template"), component)
        image, policy = text(container.get("image")), container.get("imagePullPolicy")
        nodes = (node for node in judged if is_ready(node) and (component == KUBE_PROXY or is_control_node(node)))
        without = [node for node in nodes if _lacks(node, image, seen.wanted)]
        if without and policy != "Always":
            source = "" if policy == "Never" else _source(repository_of(image))
            key = some(map(name_of, without)), source, not any(map(is_control_node, without))
            lacking[key].append(f"{repository_of(image)}:{seen.wanted}")
    for (nodes_named, source, only_workers), references in lacking.items():
        yield _finding(nodes_named, plain(", ".join(sorted(references))), source, seen.wanted, only_workers)


def _finding(nodes: str, references: str, source: str, wanted: Version, only_workers: bool) -> Finding:
    late = "as kubelets report it, up to a minute late"
    if source:
        sentence = f"images that are not on {nodes}, and must be pulled: {references} ({late})"
        return Finding("images", sentence, f"see that {source} has them", warning=True, patience=REPORTED_WITHIN)
    version = str(wanted).removeprefix("v")
    sentence = f"images that are not on {nodes}: {references} ({late})"
    fix = f"`autarky payload push {version}`"
    return Finding("images", sentence, fix, warning=only_workers, patience=REPORTED_WITHIN)


def _listed(node: Mapping[str, Any]) -> list[Sequence[str]]:
    """The names of each image that its kubelet lists."""
    return [texts(mapping(one).get("names")) for one in items(within(node, "status", "images"))]


def _source(repository: str) -> str:
    """The registry that an image may be pulled from; empty where it is only pushed."""
    if repository.startswith(f"{UPSTREAM}/"):
        return ""
    host, slash, _ = repository.partition("/")
    return plain(host) if slash and set(".:") & set(host) else "its registry"


def _lacks(node: Mapping[str, Any], image: str, wanted: Version) -> bool:
    """Whether the node is known not to have the image of that version, by a list that is complete."""
    listed = _listed(node)
    names = {name for one in listed for name in one}
    repository = repository_of(image)
    if not repository or f"{repository}:{wanted}" in names or len(listed) >= MOST_LISTED:
        return False
    if any(len(one) >= MOST_NAMES for one in listed):
        return False  # one of them may have that name, too
    digest = image.partition("@")[2]
    return image.partition("@")[0] in names or bool(digest and f"{repository}@{digest}" in names)
