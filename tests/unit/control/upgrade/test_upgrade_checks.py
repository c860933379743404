"""The checks before an upgrade: all of them together, and those of the ControlPlane's conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.status.decide import ADD_ONS_ON_TRIAL, WORKERS_NOT_READY, WORKERS_NOT_RENEWED
from autarky.control.upgrade.decide.checks import Finding, Requested, Source, findings, refusing
from autarky.control.upgrade.decide.checks_of_nodes import REPORTED_WITHIN
from autarky.control.upgrade.decide.observed import PASSES
from autarky.model.components import API_SERVER
from unit.control.upgrade.healthy import (
    HEALTHY,
    RUNS,
    WANTED,
    Object,
    a_node,
    a_plane,
    condition,
    found,
    only,
    seen,
    short,
    with_condition,
    without_images,
)


def test_a_healthy_cluster_has_no_findings() -> None:
    assert findings(HEALTHY) == []


def test_all_findings_come_at_once_and_errors_first() -> None:
    pressed = with_condition(a_node("w1", control=False, ready="Unknown"), "DiskPressure", "True")
    all_of_them = found(
        plane=a_plane(condition("EtcdInShape", "False", "n1: its disk is slow"), without=("BackupsCurrent",)),
        nodes=[with_condition(a_node("n1"), "DiskPressure", "True"), pressed],
        requested=[Requested("batch", "v1beta1", "cronjobs", (1, 37))],
        budgets=["shop/cart"],
    )
    assert [(one.name, one.warning) for one in all_of_them] == [
        *(("health", False), ("disk", False), ("apis", False)),
        *(("health", True), ("disk", True), ("backup", True), ("budgets", True)),
    ]
    for one in all_of_them:
        assert one.fix


# --- what could not be looked at, and what may pass ------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name", "warning"),
    [
        (Source.PLANE, "health", False),
        (Source.NODES, "health", False),
        (Source.CONTROL_NODES, "health", False),
        (Source.WORKLOADS, "images", False),
        (Source.FILES, "configurations", False),
        (Source.WEBHOOKS, "webhooks", False),
        (Source.METRICS, "apis", False),
        (Source.BUDGETS, "budgets", True),
        (Source.API_SERVICES, "apiservices", True),
    ],
)
def test_a_source_that_was_not_seen_is_a_finding(source: Source, name: str, warning: bool) -> None:
    empty = {"plane": None} if source is Source.PLANE else {}
    one = only(unseen={source: "403 Forbidden:\n no"}, **empty)
    assert short(one) == (name, f"{source} could not be looked at: 403 Forbidden: no", warning)
    assert "`autarky up`" in one.fix


def test_every_source_has_its_words() -> None:
    assert {one.name for one in found(unseen=dict.fromkeys(Source, "x"))} <= {
        *("health", "images", "configurations", "webhooks", "apis", "budgets", "apiservices")
    }


def test_what_may_pass_refuses_nothing_before_its_time() -> None:
    nodes = [without_images(a_node("n1"), WANTED, API_SERVER)]
    late = found(nodes=nodes)
    assert [one.name for one in late] == ["images"]
    assert refusing(late, 0) == []
    assert refusing(late, REPORTED_WITHIN - 0.1) == []
    assert refusing(late, REPORTED_WITHIN) == late
    at_once = Finding("disk", "it is full", "free it")
    assert refusing([*late, at_once], 0) == [*late, at_once], "all of it is said at once"
    assert refusing([replace(at_once, warning=True)], 1000) == []


# --- health ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("Ready", "the control plane is not ready: because"),
        ("RolloutsSettled", "a rollout is not judged yet: because"),
        ("NodesAsLabelled", "control nodes are changing: because"),
    ],
)
@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_condition_that_must_be_true(kind: str, sentence: str, status: str) -> None:
    one = only(plane=a_plane(condition(kind, status, "because")))
    assert short(one) == ("health", sentence, False)
    assert one.patience == PASSES
    assert only(plane=a_plane(without=(kind,))).sentence.endswith(f": no condition {kind} is reported")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("EtcdMembersSettled", "etcd's members are changing: why"), ("EtcdInShape", "etcd needs attention: why")],
)
def test_a_condition_of_etcd_that_must_not_be_false(kind: str, sentence: str) -> None:
    assert short(only(plane=a_plane(condition(kind, "False", "why")))) == ("health", sentence, False)
    unknown = only(plane=a_plane(condition(kind, "Unknown", "why")))
    assert short(unknown) == ("health", f"{kind} is not known: why", True)
    assert found(plane=a_plane(without=(kind,))) == []


def test_a_slow_disk_is_slow_tomorrow_as_well() -> None:
    slow = {**condition("EtcdInShape", "False", "n1: its disk is slow"), "reason": "DiskIsSlow"}
    assert short(only(plane=a_plane(slow))) == ("health", "etcd needs attention: n1: its disk is slow", True)


def test_what_somebody_else_has_written_is_one_line_of_some_length() -> None:
    one = only(plane=a_plane(condition("EtcdInShape", "False", "a\x1b[2J\n" + "b" * 1000)))
    assert one.sentence.startswith("etcd needs attention: a [2J b")
    assert len(one.sentence) < 400


def test_without_a_control_plane_object_nothing_is_known() -> None:
    assert short(only(plane=None)) == ("health", "the cluster has no ControlPlane object", False)


def test_before_the_edit_only_the_present_generation_counts() -> None:
    old = [condition(kind, "True", generation=6) for kind in ("Ready", "RolloutsSettled")]
    one = only(plane=a_plane(*old))
    expected = "the ControlPlane's conditions are of its generation 6, and it is at 7: nobody looks"
    assert short(one) == ("health", expected, False)
    assert one.patience == PASSES


@pytest.mark.parametrize(("generation", "stale"), [(9, True), (8, False), (7, False)])
def test_after_the_edit_those_of_the_generation_before_count(generation: int, stale: bool) -> None:
    """The conditions are of generation 7."""
    edited = a_plane()
    edited["metadata"]["generation"] = generation
    edited["spec"]["version"] = str(WANTED)
    assert [one.sentence.endswith("nobody looks") for one in found(plane=edited)] == [True] * stale


def test_a_spec_that_was_invalid_for_a_while_has_left_old_conditions() -> None:
    """Only SpecApplied is written then, with the new generation."""
    frozen = a_plane(condition("SpecApplied", "False", generation=12))
    frozen["metadata"]["generation"] = 13
    frozen["spec"]["version"] = str(WANTED)
    assert "generation 7, and it is at 13" in only(plane=frozen).sentence


# --- what only workers say -------------------------------------------------------------------------------

AWAY = [a_node("n1"), a_node("n2"), a_node("w1", control=False, ready="Unknown")]


def of_workers(kind: str, reason: str, message: str) -> Object:
    return {**condition(kind, "False", message), "reason": reason}


@pytest.mark.parametrize("nodes", [AWAY, HEALTHY.nodes], ids=["away", "Ready"])
def test_what_is_not_ready_on_workers_only_warns(nodes: list[Object]) -> None:
    said = found(plane=a_plane(of_workers("Ready", WORKERS_NOT_READY, "kube-proxy has 2 of 3 ready")), nodes=nodes)
    expected = [("health", "not everything is ready on workers: kube-proxy has 2 of 3 ready", True)]
    if nodes is AWAY:
        expected.append(("health", "workers that are not Ready, and get the new version when they are: w1", True))
    assert [short(one) for one in said] == expected


def test_an_add_on_on_trial_is_a_warning_and_what_nobody_has_seen_is_not() -> None:
    """A tenant can keep CoreDNS from becoming ready forever; a hosted kubelet may have to wait for as long."""
    on_trial = of_workers("RolloutsSettled", ADD_ONS_ON_TRIAL, "coredns, kubelet")
    for settled, warning in (
        (on_trial, True),
        ({**on_trial, "reason": "OnTrial"}, False),
        ({**on_trial, "status": "Unknown"}, False),
    ):
        one = only(plane=a_plane(settled))
        assert (one.warning, "coredns" in one.sentence) == (warning, True)


@pytest.mark.parametrize("nodes", [AWAY, HEALTHY.nodes], ids=["away", "Ready"])
@pytest.mark.parametrize(("status", "reason"), [("False", "NotReady"), ("False", ""), ("Unknown", WORKERS_NOT_READY)])
def test_what_is_not_ready_for_another_reason_is_an_error(status: str, reason: str, nodes: list[Object]) -> None:
    """Also one of an operator that knows no such reasons."""
    not_ready = {**of_workers("Ready", reason, "not so"), "status": status}
    errors = [one for one in found(plane=a_plane(not_ready), nodes=nodes) if not one.warning]
    assert [one.sentence for one in errors] == ["the control plane is not ready: not so"]


def test_certificates_of_which_only_workers_say_that_they_have_expired_only_warn() -> None:
    message = "kubelet on w1 expired at noon"
    one = only(plane=a_plane(of_workers("CertificatesCurrent", WORKERS_NOT_RENEWED, message)))
    assert short(one) == ("certificates", f"certificates have expired, or are not renewed: {message}", True)
    one = only(plane=a_plane(of_workers("CertificatesCurrent", "NotRenewed", message)))
    assert not one.warning


def test_a_control_node_that_is_away_is_an_error() -> None:
    plane = a_plane(condition("Ready", "False", "not so"))
    nodes = [a_node("n1", ready="False"), a_node("n2"), a_node("w1", control=False)]
    sentences = [one.sentence for one in found(plane=plane, nodes=nodes) if not one.warning]
    assert sentences == ["the control plane is not ready: not so", "control nodes that are not Ready: n1"]


# --- certificates and backups ----------------------------------------------------------------------------


def test_certificates_that_are_not_renewed_are_an_error() -> None:
    one = only(plane=a_plane(condition("CertificatesCurrent", "False", "kubelet on n1 expired at noon")))
    sentence = "certificates have expired, or are not renewed: kubelet on n1 expired at noon"
    assert short(one) == ("certificates", sentence, False)
    unknown = only(plane=a_plane(condition("CertificatesCurrent", "Unknown", "no look")))
    assert short(unknown) == ("certificates", "CertificatesCurrent is not known: no look", True)
    assert found(plane=a_plane(without=("CertificatesCurrent",))) == []


def test_backups_that_are_overdue_are_an_error_and_no_schedule_is_a_warning() -> None:
    overdue = only(plane=a_plane(condition("BackupsCurrent", "False", "nightly: backups are overdue")))
    assert short(overdue) == ("backup", "nightly: backups are overdue", False)
    assert "`autarky backup create --like SCHEDULE`" in overdue.fix
    assert "spec.paused" in overdue.fix
    none = only(plane=a_plane(without=("BackupsCurrent",)))
    assert (none.name, none.warning) == ("backup", True)
    assert none.sentence.startswith("no backup schedule: ")
    assert "`autarky backup create" in none.fix
    unknown = only(plane=a_plane(condition("BackupsCurrent", "Unknown", "no look")))
    assert short(unknown) == ("backup", "BackupsCurrent is not known: no look", True)


def test_the_versions_are_what_the_tests_take_them_for() -> None:
    assert (seen().runs, seen().wanted) == (RUNS, WANTED)
