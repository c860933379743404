"""The checks before an upgrade: standbys, disks and images, as nodes report them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autarky.control.slots.decide.report import ANNOTATION
from autarky.control.upgrade.decide.checks import on_the_way_back
from autarky.control.upgrade.decide.checks_of_nodes import MOST_LISTED, MOST_NAMES
from autarky.control.upgrade.decide.observed import Source
from autarky.control.upgrade.decide.reported import IMAGES_PLACED_UNTIL, not_placed, placed
from autarky.control.upgrade.decide.steps import ORDER
from autarky.model.components import API_SERVER, KUBE_PROXY, SCHEDULER
from autarky.model.versions import Version
from unit.control.upgrade.healthy import (
    HEALTHY,
    PATCH,
    RUNS,
    WANTED,
    Object,
    a_node,
    a_plane,
    a_workload,
    found,
    image,
    only,
    short,
    with_condition,
    with_slots,
    without_images,
)

WORKER = a_node("w1", control=False)

# --- standbys (rule 11) ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        ({"version": "v1.35.9"}, "kube-scheduler is of v1.35.9, and the control plane of v1.36.4"),
        ({"version": "v1.36.3"}, "kube-scheduler is of v1.36.3, and the control plane of v1.36.4"),
        ({"slot": "hosted"}, "kube-scheduler reports no version"),
        (
            {"version": "latest", "refused": "it mounts\na socket"},
            "kube-scheduler reports no version: it mounts a socket",
        ),
        ({"version": "v1.35.9", "refused": "so"}, "kube-scheduler is of v1.35.9, and the control plane of v1.36.4: so"),
    ],
)
@pytest.mark.parametrize("wanted", [WANTED, Version(1, 35, 4)])
def test_no_other_minor_while_a_standby_is_not_of_the_version_that_runs(
    slot: Object, said: str, wanted: Version
) -> None:
    behind = with_slots(a_node("n2"), kube_scheduler=slot)
    [one] = [one for one in found(nodes=[a_node("n1"), behind, WORKER], wanted=wanted) if one.name == "standbys"]
    assert short(one) == ("standbys", f"on n2 the standby of {said} (rule 11)", False)


def test_a_standby_that_has_followed_a_step_by_hand_is_not_behind() -> None:
    ahead = with_slots(a_node("n1"), kube_scheduler={"version": str(WANTED)})
    assert found(nodes=[ahead]) == []


def test_a_patch_may_come_while_a_standby_is_behind() -> None:
    behind = with_slots(a_node("n1"), kube_scheduler={"version": "v1.36.3"})
    assert [one.name for one in found(nodes=[behind], wanted=PATCH)] == ["images"]


def test_nodes_with_the_same_trouble_are_named_together_and_workers_have_no_standbys() -> None:
    silent = [a_node(f"n{number}") for number in range(7)]
    for node in silent:
        node["metadata"]["annotations"] = {}
    said = [one.sentence for one in found(nodes=[*silent, WORKER]) if one.name == "standbys"]
    assert len(said) == 3
    assert said[0] == "on n0, n1, n2, n3, n4 and 2 more the standby of kube-apiserver reports no version (rule 11)"


@pytest.mark.parametrize("odd", ["[", "[]", '{"slots": 3}', "null", 7, {"a": 1}])
def test_a_report_that_cannot_be_read_reports_nothing(odd: Any) -> None:
    node = a_node("n1")
    node["metadata"]["annotations"][ANNOTATION] = odd
    assert [one.name for one in found(nodes=[node])] == ["standbys"] * 3


# --- control nodes without a Node ---------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [WANTED, Version(1, 35, 4)])
def test_no_other_minor_while_a_control_node_is_gone_that_may_come_back(wanted: Version) -> None:
    [one] = [one for one in found(control_nodes=frozenset({"n1", "n7", "n8"}), wanted=wanted) if one.name == "health"]
    said = "n7, n8 may come back as it was (rules 4 and 11): its Node is gone, and it was not removed"
    assert short(one) == ("health", said, False)
    assert one.fix == "`autarky node remove n7`, or switch it on"
    assert on_the_way_back([one])[0].warning
    within = found(control_nodes=frozenset({"n1", "n7"}), wanted=PATCH)
    assert within == found(wanted=PATCH)
    unseen = found(control_nodes=frozenset({"n7"}), nodes=[], unseen={Source.NODES: "no answer"}, wanted=wanted)
    assert not [one for one in unseen if "n7" in one.sentence], "of no Node anything is known"


# --- disks -----------------------------------------------------------------------------------------------


def test_a_full_disk_is_an_error_on_control_nodes_and_a_warning_on_workers() -> None:
    full = with_condition(a_node("n1"), "DiskPressure", "True")
    assert short(only(nodes=[full, WORKER])) == ("disk", "control nodes with DiskPressure: n1", False)
    worker = with_condition(WORKER, "DiskPressure", "True")
    assert short(only(nodes=[a_node("n1"), worker])) == ("disk", "workers with DiskPressure: w1", True)


def test_a_disk_that_is_not_known_to_be_full_is_no_finding() -> None:
    assert found(nodes=[with_condition(a_node("n1"), "DiskPressure", "Unknown")]) == []


# --- images ----------------------------------------------------------------------------------------------

LATE = "(as kubelets report it, up to a minute late)"


def test_an_image_that_was_not_pushed_is_named_with_its_nodes() -> None:
    lacks = [without_images(a_node(name), WANTED, API_SERVER, SCHEDULER) for name in ("n1", "n2")]
    one = only(nodes=[*lacks, WORKER])
    references = f"{image(API_SERVER, WANTED)}, {image(SCHEDULER, WANTED)}"
    assert short(one) == ("images", f"images that are not on n1, n2: {references} {LATE}", False)
    assert one.fix == "`autarky payload push 1.37.1`"
    assert one.patience > 60


def test_every_node_needs_kube_proxy_and_workers_nothing_else() -> None:
    lacks = without_images(WORKER, WANTED, *ORDER)
    one = only(nodes=[a_node("n1"), lacks])
    assert short(one) == ("images", f"images that are not on w1: {image(KUBE_PROXY, WANTED)} {LATE}", True)
    assert one.fix == "`autarky payload push 1.37.1`"
    assert [one for one in on_the_way_back([one]) if not one.warning] == []


def test_an_image_that_control_nodes_and_workers_lack_is_an_error_that_names_all() -> None:
    one = only(nodes=[without_images(a_node("n1"), WANTED, KUBE_PROXY), without_images(WORKER, WANTED, KUBE_PROXY)])
    assert short(one) == ("images", f"images that are not on n1, w1: {image(KUBE_PROXY, WANTED)} {LATE}", False)
    assert not on_the_way_back([one])[0].warning


def cut(node: Object) -> Object:
    """As many images as a kubelet lists at most."""
    node["status"]["images"] += [{"names": [f"x:{number}"]} for number in range(MOST_LISTED)]
    node["status"]["images"] = node["status"]["images"][:MOST_LISTED]
    return node


def with_many_names(node: Object) -> Object:
    node["status"]["images"].append({"names": [f"x:{number}" for number in range(MOST_NAMES)]})
    return node


def without_list(node: Object) -> Object:
    del node["status"]["images"]
    return node


@pytest.mark.parametrize(
    "unknown",
    [
        cut,
        with_many_names,
        without_list,
        lambda node: without_images(node, RUNS, API_SERVER),
        lambda node: with_condition(node, "Ready", "Unknown"),
    ],
    ids=["50 images", "5 names", "no list", "the one that runs is not in it", "the node does not report"],
)
def test_a_list_that_may_not_be_complete_says_nothing(unknown: Any) -> None:
    node = unknown(without_images(a_node("n1"), WANTED, API_SERVER))
    assert "images" not in [one.name for one in found(nodes=[node])]


def test_one_image_less_than_the_most_is_a_complete_list() -> None:
    node = cut(without_images(a_node("n1"), WANTED, API_SERVER))
    node["status"]["images"].pop()
    assert only(nodes=[node]).name == "images"


def with_workload(reference: str, policy: str = "IfNotPresent") -> dict[str, Any]:
    """kube-apiserver comes from there, and n1 has the image that runs and no other."""
    node = without_images(a_node("n1"), WANTED, API_SERVER)
    node["status"]["images"].append({"names": [reference]})
    return {"nodes": [node], "workloads": {**HEALTHY.workloads, API_SERVER: a_workload(API_SERVER, reference, policy)}}


@pytest.mark.parametrize(
    ("reference", "registry", "looked_for"),
    [
        ("mirror.example:5000/k/kube-apiserver:v1.36.4", "mirror.example:5000", "mirror.example:5000/k/kube-apiserver"),
        ("docker-style/kube-apiserver:v1.36.4", "its registry", "docker-style/kube-apiserver"),
    ],
)
def test_an_image_of_somebody_elses_registry_is_a_warning(reference: str, registry: str, looked_for: str) -> None:
    one = only(**with_workload(reference))
    sentence = f"images that are not on n1, and must be pulled: {looked_for}:{WANTED} {LATE}"
    assert short(one) == ("images", sentence, True)
    assert one.fix == f"see that {registry} has them"


def test_the_pull_policy_says_whether_an_image_must_be_there() -> None:
    reference = "mirror.example:5000/kube-apiserver:v1.36.4"
    assert found(**with_workload(reference, "Always")) == []
    never = only(**with_workload(reference, "Never"))
    assert (never.warning, never.fix) == (False, "`autarky payload push 1.37.1`")


def test_a_digest_is_not_part_of_what_is_looked_for() -> None:
    reference = f"{image(API_SERVER, RUNS)}@sha256:00"
    by_digest = with_workload(reference)
    by_digest["nodes"][0]["status"]["images"][-1] = {"names": ["registry.k8s.io/kube-apiserver@sha256:00"]}
    by_digest["nodes"] = [without_images(by_digest["nodes"][0], RUNS, API_SERVER)]
    assert only(**by_digest).sentence == f"images that are not on n1: {image(API_SERVER, WANTED)} {LATE}"


def test_a_workload_without_its_container_is_not_looked_for() -> None:
    odd = replace(HEALTHY, workloads={API_SERVER: {"spec": {}}}, nodes=[without_images(a_node("n1"), WANTED, *ORDER)])
    assert found(nodes=odd.nodes, workloads=odd.workloads) == []


# --- images that a command has put there -----------------------------------------------------------------


def created(node: Object, at: str) -> Object:
    return {**node, "metadata": {**node["metadata"], "creationTimestamp": at}}


def said_of(*nodes: Object, version: Version = WANTED) -> Object:
    plane = a_plane()
    plane["metadata"]["annotations"] = placed(version, nodes)
    return plane


def test_what_a_command_has_put_there_is_there_before_a_kubelet_reports_it() -> None:
    old = created(without_images(a_node("n1"), WANTED, *ORDER), "2026-11-01T08:00:00Z")
    young = created(without_images(WORKER, WANTED, *ORDER), "2026-11-02T08:00:00Z")
    assert found(nodes=[old, young], plane=said_of(old, young)) == []
    assert [one.name for one in found(nodes=[old, young], plane=said_of(old, young, version=PATCH))] == ["images"] * 2


def test_a_node_that_came_later_is_judged_by_what_it_reports_itself() -> None:
    """Nobody has put the images there, however long ago that was said of the others."""
    there = created(without_images(a_node("n1"), WANTED, *ORDER), "2026-11-01T08:00:00Z")
    plane = said_of(there)
    came = created(without_images(a_node("n2"), WANTED, *ORDER), "2026-11-01T08:00:01Z")
    one = only(nodes=[there, came], plane=plane)
    assert (one.name, one.warning) == ("images", False)
    assert one.sentence.startswith("images that are not on n2: ")
    assert found(nodes=[there, created(a_node("n2"), "2026-11-01T08:00:01Z")], plane=plane) == []


@pytest.mark.parametrize("until", [None, "", "soon", 7, "2026-11-01T08:00:00"])
def test_where_a_command_has_not_said_of_which_nodes_it_speaks_all_are_judged(until: Any) -> None:
    """That of an earlier release never took it back."""
    node = created(without_images(a_node("n1"), WANTED, API_SERVER), "2026-11-01T08:00:00Z")
    plane = said_of(node)
    plane["metadata"]["annotations"][IMAGES_PLACED_UNTIL] = until
    assert only(nodes=[node], plane=plane).name == "images"
    plane["metadata"]["annotations"] = not_placed()
    assert only(nodes=[node], plane=plane).name == "images"


# --- the image that a kubelet comes in --------------------------------------------------------------------


def following(**annotations: Any) -> Object:
    plane = a_plane()
    metadata = {**plane["metadata"], "annotations": annotations}
    return {**plane, "metadata": metadata, "spec": {"version": str(RUNS), "kubelets": {"follow": True}}}


def with_kubelet_image(node: Object, version: Version = WANTED) -> Object:
    images = [*node["status"]["images"], {"names": [f"autarky.dev/kubelet:{version}"]}]
    return {**node, "status": {**node["status"], "images": images}}


def test_a_kubelets_image_that_is_not_there_warns_also_of_control_nodes() -> None:
    """Nothing of the control plane needs it."""
    nodes = [with_kubelet_image(a_node("n1")), a_node("n2"), with_kubelet_image(WORKER, RUNS)]
    one = only(plane=following(), nodes=nodes)
    sentence = "the image of kubelets, autarky.dev/kubelet:v1.37.1, is not on n2, w1: their kubelets stay behind"
    assert short(one) == ("images", sentence, True)
    assert one.fix == "`autarky upgrade 1.37.1` brings it, and so does `autarky payload push 1.37.1`"
    assert found(plane=following(), nodes=list(map(with_kubelet_image, nodes))) == []


def test_where_kubelets_do_not_follow_nobody_needs_it() -> None:
    assert found(nodes=[a_node("n1")]) == []


@pytest.mark.parametrize("why", ["empty", "cut", "cut names", "placed", "it runs", "not ready"])
def test_nothing_is_said_of_an_image_that_may_be_there(why: str) -> None:
    node, annotations = a_node("n1"), {}
    listed = [*node["status"]["images"]]
    if why == "empty":
        node["status"]["images"] = []
        assert [one.name for one in found(plane=following(), nodes=[node])] == []
        return
    if why == "cut":
        listed += [{"names": [f"x{number}"]} for number in range(MOST_LISTED)]
    if why == "cut names":
        listed += [{"names": [f"x{number}" for number in range(MOST_NAMES)]}]
    if why == "placed":
        node["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
        annotations = placed(WANTED, [node])
    if why == "it runs":
        node["status"]["nodeInfo"] = {"kubeletVersion": str(WANTED)}
    if why == "not ready":
        node = a_node("w1", control=False, ready="False")
    node["status"]["images"] = listed
    said = found(plane=following(**annotations), nodes=[a_node("n2"), node])
    assert [one.sentence.split(" is not on ")[1] for one in said if one.name == "images"] == [
        "n2: their kubelets stay behind"
    ]
