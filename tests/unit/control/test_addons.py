"""Add-ons: what the rest of the code takes from them, and that it names none of them itself."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import autarky
from autarky.control.addons import ADD_ONS, add_ons_of, needless_images
from autarky.control.addons.flannel import policies
from autarky.control.guards.manifests import all as admission
from autarky.control.guards.manifests.nodes import ORDERS
from autarky.control.hosts.decide.preflight import EVERY_NODE_PORTS
from autarky.model.cluster import Cni
from autarky.model.components import COMPONENTS
from autarky.phases import teardown
from autarky.render import node, objects
from fakes.clusters import a_cluster, inputs_of

PACKAGE = Path(autarky.__file__).parent
WORD_OF_THE_FILE = {PACKAGE / "model/cluster.py", PACKAGE / "config/schema.py"}
OWN = {PACKAGE / "model/components.py", *WORD_OF_THE_FILE, *(PACKAGE / "control/addons/flannel").glob("*.py")}


def test_each_is_in_the_table_of_components_with_an_image():
    assert len({addon.name for addon in ADD_ONS}) == len(ADD_ONS) == 3
    assert all(COMPONENTS[addon.component].image for addon in ADD_ONS)


def test_each_is_applied_by_a_part_of_its_own():
    parts = {part.name: part for part in objects.parts(inputs_of(a_cluster()))}
    for addon in ADD_ONS:
        assert parts[addon.name].manager == f"autarky-{addon.name}"
        assert any(obj["metadata"]["name"] == addon.component for obj in parts[addon.name].objects)


def test_a_cluster_whose_user_brings_the_pod_network_has_nothing_of_ours():
    cluster = replace(a_cluster(), network=replace(a_cluster().network, cni=Cni.NONE))
    assert [one.name for one in add_ons_of(a_cluster())] == ["kube-proxy", "flannel", "coredns"]
    assert [one.name for one in add_ons_of(cluster)] == ["kube-proxy", "coredns"]
    assert needless_images(cluster) == {"flannel"}
    assert needless_images(a_cluster()) == set()
    parts = objects.parts(inputs_of(cluster))
    assert "flannel" not in {part.name for part in parts}
    assert {part.name for part in objects.parts(inputs_of(a_cluster()))} - {part.name for part in parts} == {"flannel"}


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
    sources = [path for path in PACKAGE.rglob("*.py") if path not in OWN]
    assert len(sources) > 300
    assert [str(path.relative_to(PACKAGE)) for path in sources if any("flannel" in text for text in texts(path))] == []


def texts(path: Path):
    """The texts in its code, but for those that only say something about it."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in said:
            yield one.value.lower()
