"""What kubelets that follow an upgrade are to be started with is judged before its first change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from autarky.control.kubelet.manifests.configuration import base_of
from autarky.control.upgrade.decide.checks import Finding, findings, on_the_way_back, refusing
from autarky.control.upgrade.decide.checks_of_kubelets import KIND
from autarky.control.upgrade.decide.surface import known_surfaces, surface_of
from autarky.model.components import KUBELET
from autarky.model.versions import Version
from fakes.clusters import a_cluster, inputs_of
from unit.control.upgrade.healthy import HEALTHY, RUNS, WANTED, Object, a_plane
from unit.control.upgrade.test_checks_of_malformed_objects import broken

GONE = "event-storage-age-limit"
"""A flag of kubelets that 1.37 lacks."""
GONE_GATE = "SidecarContainers"
HERE = "spec.componentArguments.kubelet of the ControlPlane (extraArgs.kubelet in the cluster file)"


def following(
    arguments: dict[str, Any] | None = None, pools: list[Object] | None = None, *, follow: bool = True
) -> Object:
    plane = a_plane()
    plane["spec"] |= {"kubelets": {"follow": follow}, "componentArguments": {KUBELET: arguments or {}}}
    return plane if pools is None else {**plane, "spec": {**plane["spec"], "pools": pools}}


def a_pool(gates: dict[str, Any], **further: Any) -> Object:
    return {
        "name": "edge",
        "nodes": {"matchLabels": {"site": "edge"}},
        "kubelet": {"configuration": {"featureGates": gates}},
        **further,
    }


def found(plane: Object, **changes: Any) -> list[Finding]:
    """Of these checks; the nodes have no images of kubelets, which is another one's subject."""
    seen = replace(HEALTHY, plane=plane, **changes)
    return [one for one in findings(seen) if one.name in ("commands", "configurations")]


def only(plane: Object) -> Finding:
    [one] = found(plane)
    return one


# --- arguments -----------------------------------------------------------------------------------------------


def test_a_flag_that_the_new_kubelet_lacks_refuses_before_the_first_change_and_says_where_it_is_set() -> None:
    one = only(following({GONE: "default=0", "v": "2"}))
    assert one == Finding(
        "commands",
        f"kubelet v1.37.1 has no flag --{GONE}, and does not start with it",
        f"remove --{GONE} from {HERE} first",
    )
    assert refusing([one], 0) == [one]
    assert on_the_way_back([one]) == [one]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"v": "4", "max-pods": "50"},
        {"feature-gates": "AllAlpha=false"},
        {"v": f"--{GONE}"},
        {"flag-of-nobody": "x"},
    ],
)
def test_what_the_new_kubelet_has_or_the_former_never_had_is_no_finding(arguments: dict[str, str]) -> None:
    assert found(following(arguments)) == []


def test_gates_in_an_argument_are_judged() -> None:
    one = only(following({"feature-gates": f"AllAlpha=false,{GONE_GATE}=true"}))
    assert one.sentence == f"kubelet v1.37.1 does not know the feature gate {GONE_GATE}, and does not start with it"
    assert one.fix == f"remove {GONE_GATE} from --feature-gates in {HERE} first"
    assert not one.warning


def test_kubelets_that_do_not_follow_stay_as_they_are_and_are_not_judged() -> None:
    assert found(following({GONE: "x"}, [a_pool({GONE_GATE: True})], follow=False)) == []


def test_within_a_minor_nothing_is_removed() -> None:
    assert found(following({GONE: "x"}), wanted=RUNS) == []


# --- pools ---------------------------------------------------------------------------------------------------


def test_a_gate_in_the_configuration_of_a_pool_that_the_new_kubelet_lacks_refuses() -> None:
    one = only(following(pools=[a_pool({GONE_GATE: True, "AllAlpha": False})]))
    assert one == Finding(
        "configurations",
        f"kubelet v1.37.1 does not know the feature gate {GONE_GATE}, and does not start with it",
        f"remove {GONE_GATE} from featureGates in kubelet.configuration of pool edge in spec.pools of the ControlPlane"
        " first",
    )
    assert refusing([one], 0) == [one]


def test_a_pool_with_a_version_of_its_own_is_not_judged() -> None:
    own = a_pool({GONE_GATE: True}, version=str(RUNS))
    assert found(following(pools=[own])) == []


def test_arguments_are_not_judged_where_each_pool_has_a_version_of_its_own() -> None:
    pools: list[Object] = [
        {"name": "workers", "version": str(RUNS)},
        {"name": "control-nodes", "nodes": {"controlPlane": True}, "version": str(RUNS)},
    ]
    assert found(following({GONE: "x"}, pools)) == []
    assert len(found(following({GONE: "x"}, pools[:1]))) == 1, "those of control nodes follow"


# --- versions of which nothing is known ----------------------------------------------------------------------


def test_a_version_of_which_nothing_is_known_only_warns() -> None:
    [one] = found(following({GONE: "x"}, [a_pool({"No": True})]), wanted=Version(1, 99, 0))
    assert one.warning
    assert "does not know what v1.99.0 understands" in one.sentence


def test_from_a_version_of_which_nothing_is_known_gates_are_judged() -> None:
    plane = following({GONE: "x", "feature-gates": f"{GONE_GATE}=true"})
    gate, warning = found(plane, runs=Version(1, 35, 4), wanted=WANTED)
    assert f"does not know the feature gate {GONE_GATE}" in gate.sentence
    assert (gate.warning, warning.warning) == (False, True)


def test_what_autarky_starts_kubelets_with_is_understood_by_every_release() -> None:
    cluster = a_cluster()
    base = base_of(inputs_of(cluster), cluster.nodes[0])
    assert f"{base.config['apiVersion']} {base.config['kind']}" == KIND
    for version in known_surfaces():
        surface = surface_of(version)
        assert surface is not None
        assert KIND in surface.configurations[KUBELET]["config"]
        assert base.arguments.keys() <= surface.flags[KUBELET].keys()


# --- whatever is in the object -------------------------------------------------------------------------------


@given(broken(following({GONE: "x", "feature-gates": "A=b"}, [a_pool({GONE_GATE: True})])))
def test_whatever_is_in_the_control_plane_there_are_findings_or_none(plane: Any) -> None:
    for one in findings(replace(HEALTHY, plane=plane)):
        assert one.sentence.isprintable()
        assert len(one.sentence) < 2000
