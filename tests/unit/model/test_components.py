"""The table of components against what else says something of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import autarky
from autarky.model import components, ports
from autarky.model.cluster import Level
from autarky.model.components import COMPONENTS, NAME_LABEL, SLOT_LABEL, labelled

TABLE = Path(components.__file__)
_SPELT = re.compile(rf"""["'{{,]({NAME_LABEL}|{SLOT_LABEL})["'=:]""")


def test_a_component_stands_under_its_own_name_and_what_people_read_is_in_the_order_of_levels():
    assert all(name == component.name for name, component in COMPONENTS.items())
    assert [component.level for component in COMPONENTS.values()] == sorted(
        component.level for component in COMPONENTS.values()
    )
    assert {component.level for component in COMPONENTS.values()} == set(Level)


def test_no_two_components_share_a_port_of_a_host():
    taken = Counter(port for component in COMPONENTS.values() for port in component.ports)
    assert set(taken.values()) == {1}
    assert taken.keys() <= ports.ON_HOSTS


def test_what_has_two_slots_is_the_control_plane_above_etcd():
    assert components.WITH_STANDBY == ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    assert components.LED_BY_LEASE == ("kube-controller-manager", "kube-scheduler")
    assert all(COMPONENTS[name].kind in ("DaemonSet", "Deployment") for name in components.WITH_STANDBY)


def test_a_pod_is_told_by_its_label_and_one_of_nobody_is_nobodys():
    in_pods = [component for component in COMPONENTS.values() if component.kind != "systemd unit"]
    assert len(in_pods) == len(COMPONENTS) - 1
    assert all(labelled({NAME_LABEL: component.label_value}) is component for component in in_pods)
    assert labelled({}) is labelled({NAME_LABEL: "kibana"}) is None


def test_no_pod_passes_for_a_service_of_the_host():
    assert labelled({NAME_LABEL: "containerd"}) is None


def test_a_static_pod_has_one_slot_whatever_its_kubelet_writes_on_it():
    assert COMPONENTS["node-load-balancer"].slot_of({SLOT_LABEL: "made-up"}) == "static"
    assert COMPONENTS["kube-apiserver"].slot_of({SLOT_LABEL: "standby"}) == "standby"
    assert COMPONENTS["kube-flannel"].slot_of({}) == "hosted"


def test_the_label_of_cluster_dns_is_that_of_its_service():
    assert labelled({NAME_LABEL: "kube-dns"}) is COMPONENTS["coredns"]


def test_its_labels_are_spelt_out_in_the_table_and_nowhere_else():
    sources = [path for path in Path(autarky.__file__).parent.rglob("*.py") if path != TABLE]
    spelt = [path for path in sources if _SPELT.search(path.read_text())]
    assert len(sources) > 300
    assert spelt == []
