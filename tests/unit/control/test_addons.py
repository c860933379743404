"""Add-ons: what the rest of the code takes from them, and that it names none of them itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import autarky
from autarky.control import addons
from autarky.control.addons import ADD_ONS, add_ons_of, images_for_upgrade, images_of
from autarky.control.addons.flannel import policies
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests.nodes import ORDERS
from autarky.control.hosts.decide.preflight import EVERY_NODE_PORTS
from autarky.model.cluster import Cni, Level
from autarky.model.components import COMPONENTS, IMAGES, JUDGED, JUDGED_ADD_ONS
from autarky.phases import teardown
from autarky.render import node, objects
from fakes.clusters import a_cluster, inputs_of

PACKAGE = Path(autarky.__file__).parent
FLANNEL, RELEASES = PACKAGE / "control/addons/flannel", PACKAGE / "payload/releases"
ITS_LINES = {
    "control/addons/__init__.py": ("from autarky.control.addons import ", "ADD_ONS: "),
    "model/cluster.py": ('FLANNEL = "flannel"', "CniName = ", "UNNAMED_CNI: "),
    # Its row: the host drivers remove its links and `status` knows its pods, and neither may import an add-on. Nor may
    # whoever judges rollouts.
    "model/components.py": ("FLANNEL: ", "FLANNEL, Level.ADD_ONS"),
}
"""Where it is listed, and the words of the cluster file: the lines there that may name it, by a part of each."""


def test_each_is_in_the_table_of_components_with_an_image():
    assert len({addon.name for addon in ADD_ONS}) == len(ADD_ONS) == 3
    assert all(COMPONENTS[addon.component].image for addon in ADD_ONS)


def test_the_rollouts_of_each_are_judged():
    assert {addon.component for addon in ADD_ONS} <= set(JUDGED)
    assert {
        addon.component for addon in ADD_ONS if COMPONENTS[addon.component].level is Level.ADD_ONS
    } == JUDGED_ADD_ONS


def test_each_is_applied_by_a_part_of_its_own():
    parts = {part.name: part for part in objects.parts(inputs_of(a_cluster()))}
    for addon in ADD_ONS:
        assert parts[addon.name].manager == f"autarky-{addon.name}"
        assert any(obj["metadata"]["name"] == addon.component for obj in parts[addon.name].objects)


def without_pod_network():
    return replace(a_cluster(), network=replace(a_cluster().network, cni=Cni.NONE))


def test_a_cluster_whose_user_brings_the_pod_network_has_nothing_of_ours():
    cluster = without_pod_network()
    assert [one.name for one in add_ons_of(a_cluster())] == ["kube-proxy", "flannel", "coredns"]
    assert [one.name for one in add_ons_of(cluster)] == ["kube-proxy", "coredns"]
    parts = objects.parts(inputs_of(cluster))
    assert "flannel" not in {part.name for part in parts}
    assert {part.name for part in objects.parts(inputs_of(a_cluster()))} - {part.name for part in parts} == {"flannel"}


def test_nodes_get_the_images_of_the_add_ons_that_their_cluster_has_and_of_no_other():
    assert sorted(images_of(a_cluster())) == sorted(IMAGES)
    assert set(IMAGES) - set(images_of(without_pod_network())) == {"flannel"}
    assert set(images_of(without_pod_network())) < set(IMAGES)


def test_the_image_in_which_a_kubelet_comes_is_brought_by_an_upgrade_and_where_its_level_is_hosted():
    for cluster in (a_cluster(), without_pod_network()):
        assert "kubelet" not in images_of(cluster)
        hosting = replace(cluster, hosts_kubelet=True)
        with_it = (*images_of(cluster), "kubelet")
        assert images_for_upgrade(cluster) == images_for_upgrade(hosting) == images_of(hosting) == with_it


def test_it_may_have_images_besides_that_of_its_component(monkeypatch):
    more = [replace(one, images=(*one.images, "sidecar")) if one.cni is Cni.FLANNEL else one for one in ADD_ONS]
    monkeypatch.setattr(addons, "ADD_ONS", tuple(more))
    assert set(images_of(a_cluster())) - set(IMAGES) == {"sidecar"}
    assert "sidecar" not in images_of(without_pod_network())


def test_an_image_that_another_add_on_needs_as_well_is_there_once_whoever_is_left_out(monkeypatch):
    sharing = [replace(one, images=(*one.images, "flannel")) if one.name == "coredns" else one for one in ADD_ONS]
    monkeypatch.setattr(addons, "ADD_ONS", tuple(sharing))
    for cluster in (a_cluster(), without_pod_network()):
        assert sorted(images_of(cluster)) == sorted(IMAGES)


def test_it_names_all_images_that_its_pods_use():
    inputs = inputs_of(a_cluster())
    for addon in ADD_ONS:
        specs = [obj["spec"]["template"]["spec"] for obj in addon.objects(inputs) if "template" in obj.get("spec", {})]
        used = {c["image"] for spec in specs for c in (*spec["containers"], *spec.get("initContainers", ()))}
        assert used == {inputs.images[name] for name in addon.images}


def test_preflight_asks_for_its_ports_and_hosts_load_its_modules():
    for addon in ADD_ONS:
        assert set(addon.ports) <= set(EVERY_NODE_PORTS)
        assert set(addon.modules) <= set(node.MODULES)
    assert node.MODULES == ("overlay", "br_netfilter", "vxlan", "nf_conntrack", "nf_tables")


def test_down_takes_away_what_it_leaves():
    for addon in ADD_ONS:
        assert all(f" {one}" in teardown._CLEAN for one in (*addon.tables, *addon.paths))
    assert "for link in cni0 flannel.1; do" in teardown._CLEAN
    assert "for table in kube-proxy flannel-ipv4 flannel-ipv6; do" in teardown._CLEAN


def test_its_policies_are_put_up_and_its_orders_are_guarded():
    names = {obj["metadata"]["name"] for obj in admission.objects()}
    assert {policies.REPORT, policies.ADDRESSES, policies.TUNNELS} <= names
    [orders] = [
        obj
        for obj in admission.objects()
        if obj["metadata"]["name"] == ORDERS and obj["kind"] == "ValidatingAdmissionPolicy"
    ]
    for addon in ADD_ONS:
        for prefix in addon.node_annotations:
            assert f"key.startsWith('{prefix}')" in orders["spec"]["matchConditions"][0]["expression"]


def test_nobody_else_names_flannel():
    """Neither in code nor in comments, of any language: whoever needs something of it takes it from its `AddOn`."""
    sources = [path for path in PACKAGE.rglob("*") if path.is_file() and not passed_over(path)]
    assert len(sources) > 300
    assert {".py", ".pyi", ".sh", ".lua", ".proto"} <= {path.suffix for path in sources}
    named = {(str(path.relative_to(PACKAGE)), line) for path in sources for line in lines_naming("flannel", path)}
    assert {place for place, _ in named} == ITS_LINES.keys()
    assert {(place, line) for place, line in named if not any(part in line for part in ITS_LINES[place])} == set()


def passed_over(path: Path) -> bool:
    return "__pycache__" in path.parts or any(path.is_relative_to(own) for own in (FLANNEL, RELEASES))


def lines_naming(word: str, path: Path) -> list[str]:
    return [line.strip() for line in path.read_text().splitlines() if word in line.lower()]
