"""The checks before an upgrade: what clients ask for, what is stored, budgets, and aggregated APIs."""

from __future__ import annotations

import pytest

from autarky.control.upgrade.decide.checks_of_apis import METRICS, blocks_drains, requested, stored
from autarky.control.upgrade.decide.observed import Requested, Stored
from autarky.model.versions import Version
from autarky.render.values import MANAGED_BY
from unit.control.upgrade.healthy import PATCH, RUNS, WANTED, Object, a_plane, found, only, seen, short

CRON = Requested("batch", "v1beta1", "cronjobs", (1, 37))


def line(value: str = "1", **labels: str) -> str:
    given = {
        "group": "batch",
        "removed_release": "1.37",
        "resource": "cronjobs",
        "subresource": "",
        "version": "v1beta1",
    }
    text = ",".join(f'{name}="{label}"' for name, label in {**given, **labels}.items())
    return f"apiserver_requested_deprecated_apis{{{text}}} {value}"


# --- requests --------------------------------------------------------------------------------------------


def test_an_api_that_is_still_asked_for_and_is_removed_is_an_error() -> None:
    one = only(requested=[CRON, CRON])
    expected = "clients still ask for cronjobs of batch/v1beta1, which v1.37.1 does not serve any more"
    assert short(one) == ("apis", expected, False)
    assert "rollout restart ds/kube-apiserver" in one.fix
    core = only(requested=[Requested("", "v1", "endpoints", (1, 36))])
    assert core.sentence.startswith("clients still ask for endpoints of v1, ")


@pytest.mark.parametrize("removed", [(1, 38), (2, 0)])
def test_one_that_is_removed_later_is_not(removed: tuple[int, int]) -> None:
    assert found(requested=[Requested("batch", "v1beta1", "cronjobs", removed)]) == []


@pytest.mark.parametrize("wanted", [PATCH, Version(1, 35, 4)])
def test_nothing_is_removed_within_a_minor_or_on_the_way_back(wanted: Version) -> None:
    old = Requested("batch", "v1beta1", "cronjobs", (1, 25))
    assert "apis" not in [one.name for one in found(requested=[old], wanted=wanted)]
    assert [one.name for one in found(requested=[old])] == ["apis"]


def test_the_metric_is_read() -> None:
    assert requested([line()]) == [CRON]
    assert requested([line(version="v1", group="", resource="endpoints", removed_release="1.40")]) == [
        Requested("", "v1", "endpoints", (1, 40))
    ]
    assert line().startswith(METRICS)


@pytest.mark.parametrize(
    "odd",
    [
        line("0"),
        line("NaN"),
        line("one"),
        line(removed_release=""),
        line(removed_release="next"),
        line(removed_release="9999999999.1"),
        line().replace("_apis", "_apis_total"),
        line()[:-4],
        "",
        "# HELP apiserver_requested_deprecated_apis {} 1",
    ],
)
def test_other_lines_are_skipped(odd: str) -> None:
    assert requested([odd]) == []


# --- objects ---------------------------------------------------------------------------------------------


def test_objects_that_no_version_serves_are_an_error() -> None:
    one = only(stored=[Stored("scheduling.k8s.io", "v1alpha2", "workloads", 3)])
    expected = "there are 3 workloads of scheduling.k8s.io/v1alpha2, and v1.37.1 serves them in no version"
    assert short(one) == ("apis", expected, False)
    assert one.fix.startswith("`kubectl get workloads.v1alpha2.scheduling.k8s.io -A` shows them")
    core = only(stored=[Stored("", "v1", "things", 1)])
    assert core.sentence.startswith("there are 1 things of v1, ")
    assert core.fix.startswith("`kubectl get things -A`")


def test_objects_stored_in_a_version_that_cannot_be_read_are_an_error_also_where_another_one_is_served() -> None:
    versions = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3")
    one = only(stored=[Stored("scheduling.k8s.io", "v1alpha2", "workloads", 3, versions)])
    expected = (
        "there are 3 workloads of scheduling.k8s.io/v1alpha2, and v1.37.1 cannot read what is stored in that version"
    )
    assert short(one) == ("apis", expected, False)
    assert one.fix.startswith("`kubectl get workloads.v1alpha2.scheduling.k8s.io -A` shows them")
    assert one.fix.endswith("write them after the upgrade in scheduling.k8s.io/v1beta1")


def test_objects_that_are_not_there_are_none() -> None:
    assert found(stored=[Stored("scheduling.k8s.io", "v1alpha2", "podgroups", 0)]) == []


def test_objects_that_could_not_be_counted_may_be_there() -> None:
    """An API server whose etcd did not answer says -1."""
    one = only(stored=[Stored("scheduling.k8s.io", "v1alpha2", "podgroups", None)])
    expected = (
        "the API server could not count the podgroups of scheduling.k8s.io/v1alpha2; if there are any, v1.37.1 serves"
        " them in no version"
    )
    assert short(one) == ("apis", expected, False)
    assert one.fix.startswith("check again in a minute; `kubectl get podgroups.v1alpha2.scheduling.k8s.io -A` shows")


def test_objects_are_counted_by_the_api_server() -> None:
    others = ("scheduling.k8s.io/v1beta1",)
    lost = {("scheduling.k8s.io", "v1alpha2", "workloads"): others, ("scheduling.k8s.io", "v1alpha2", "podgroups"): ()}
    lines = [
        'apiserver_resource_objects{group="scheduling.k8s.io",resource="workloads"} 3',
        'apiserver_resource_objects{group="scheduling.k8s.io",resource="podgroups"} -1',
        'apiserver_resource_objects{group="",resource="pods"} 1.2e+01',
        'apiserver_resource_objects{group="",resource="nodes"} 0',
    ]
    not_known = Stored("scheduling.k8s.io", "v1alpha2", "podgroups", None)
    assert stored(lines, lost) == [Stored("scheduling.k8s.io", "v1alpha2", "workloads", 3, others), not_known]
    assert stored(lines, {("", "v1", "pods"): (), ("", "v1", "nodes"): ()}) == [Stored("", "v1", "pods", 12)]
    assert stored(lines, {("", "v1", "not-served"): ()}) == []
    for value in ("+Inf", "NaN"):
        line = f'apiserver_resource_objects{{group="",resource="pods"}} {value}'
        assert stored([line], {("", "v1", "pods"): ()}) == [Stored("", "v1", "pods", None)]
    assert lines[0].startswith(METRICS)


# --- budgets and aggregated APIs -------------------------------------------------------------------------


def budget(name: str, allowed: int, expected: int, namespace: str = "shop", **labels: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "status": {"disruptionsAllowed": allowed, "expectedPods": expected},
    }


def test_a_budget_that_allows_nothing_now_warns() -> None:
    assert blocks_drains(budget("cart", 0, 2)) == "shop/cart"
    assert blocks_drains(budget("cart", 1, 2)) is None
    assert blocks_drains(budget("cart", 0, 0)) is None
    assert blocks_drains({"metadata": {"name": "new", "namespace": "shop"}}) is None
    one = only(budgets=[f"shop/b{number}" for number in range(7)])
    assert (one.name, one.warning) == ("budgets", True)
    assert one.sentence.startswith(
        "PodDisruptionBudgets that allow no disruption now: shop/b0, shop/b1, shop/b2, shop/b3, shop/b4 and 2 more;"
    )


def test_the_budgets_of_autarky_itself_are_left_out_and_no_others() -> None:
    assert blocks_drains(budget("etcd-quorum-guard", 0, 1, "kube-system", **MANAGED_BY)) is None
    assert blocks_drains(budget("mine", 0, 1, "kube-system")) == "kube-system/mine"
    assert blocks_drains(budget("like-it", 0, 1, "shop", **MANAGED_BY)) == "shop/like-it"


def api_service(name: str, available: str) -> Object:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Available", "status": available}]}}


def test_an_aggregated_api_that_is_away_warns() -> None:
    services = [api_service("v1beta1.metrics.example", "False"), api_service("v1.apps", "True"), {"metadata": {}}]
    one = only(api_services=services)
    expected = "APIServices that are not available: v1beta1.metrics.example; clients that ask for all APIs get errors"
    assert short(one) == ("apiservices", expected, True)


def test_the_wanted_version_is_the_next_minor() -> None:
    assert seen().wanted == WANTED == Version(1, 37, 1)


@pytest.mark.parametrize(
    ("wanted", "pools", "drained"),
    [
        (WANTED, None, "control-nodes, workers"),
        (WANTED, [{"name": "workers", "drain": "Never"}], "control-nodes"),
        (PATCH, None, ""),
        (PATCH, [{"name": "workers", "drain": "Always"}], "workers"),
        (WANTED, "no pools", ""),
    ],
)
def test_where_kubelets_follow_it_names_the_pools_that_are_drained(wanted, pools, drained) -> None:
    plane = {**a_plane(), "spec": {"version": str(RUNS), "kubelets": {"follow": True}, "pools": pools}}
    (one,) = [one for one in found(wanted=wanted, plane=plane, budgets=["shop/b"]) if one.name == "budgets"]
    assert one.warning
    assert "shop/b" in one.sentence
    assert (f"kubelets of pools {drained} are drained for it" in one.sentence) is bool(drained)
