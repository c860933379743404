"""The table of components against what else says something of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import autarky
from autarky.model import components, ports
from autarky.model.cluster import Level
from autarky.model.components import COMPONENTS, NAME_LABEL, SLOT_LABEL, labelled

TABLE = Path(components.__file__)


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
    for component in COMPONENTS.values():
        assert labelled({NAME_LABEL: component.label_value}) is component
    assert labelled({}) is labelled({NAME_LABEL: "kibana"}) is None
    assert labelled({NAME_LABEL: "kube-dns"}) is COMPONENTS["coredns"]


def test_its_labels_are_spelt_out_in_the_table_and_nowhere_else():
    sources = [path for path in Path(autarky.__file__).parent.rglob("*.py") if path != TABLE]
    spelt = [path for path in sources if any(f'"{label}"' in path.read_text() for label in (NAME_LABEL, SLOT_LABEL))]
    assert len(sources) > 300
    assert spelt == []
