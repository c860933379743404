"""Workloads whose pods the policies for tenants would refuse are reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.guards.decide import (
    ANTI_AFFINITY,
    HOST_PORTS,
    INSTEAD,
    KINDS,
    MOST_IMPORTANT,
    MOST_NAMESPACES,
    MOST_OF_A_NAMESPACE,
    MOST_OTHERS,
    NAMESPACE_LABEL,
    POLICIES,
    PRIORITIES,
    Refused,
    Rules,
    refused,
    sentences_beforehand,
)
from autarky.control.guards.manifests import tenants
from autarky.control.guards.manifests.policies import BINDING, POLICY
from autarky.model import ports
from contract.kube.test_tenants import KEEPS_AWAY

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CRITICAL, ORDINARY = "system-node-critical", "ordinary"
VALUES = {CRITICAL: 2_000_001_000, ORDINARY: MOST_IMPORTANT}
IMPORTANT = {"priorityClassName": CRITICAL}
HERE, ELSEWHERE = "storage", "kube-system"


def a_class(name: str, value: int, *, default: bool = False) -> Object:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, "globalDefault": default}


CLASSES = [a_class(name, value) for name, value in VALUES.items()]


def a_namespace(name: str, **labels: str) -> Object:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": {NAMESPACE_LABEL: name, **labels}}}


def a_binding(name: str, policy: str, *actions: str, **matched: Object) -> Object:
    spec = {"policyName": policy, "validationActions": list(actions or ("Deny",)), "matchResources": matched}
    return {"kind": BINDING, "metadata": {"name": name}, "spec": spec}


def a_workload(pod: Object, kind: str = "DaemonSet", namespace: str = HERE, name: str = "csi", **more: Any) -> Object:
    """more: of its spec."""
    template: Object = {"template": {"metadata": {"labels": {"app": name}}, "spec": pod}}
    spec = {"jobTemplate": {"spec": template}} if kind == "CronJob" else template
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {**spec, **more}}


def away(terms: list[Object]) -> Object:
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def reported(*workloads: Object, classes: list[Object] = CLASSES, bindings: tuple[Object, ...] = ()) -> list[str]:
    """The policies, each with its workload, by everything else as it is usual."""
    rules = Rules(classes, [a_namespace(HERE, tier="trusted"), a_namespace("other")], bindings)
    return [f"{one.policy}: {one.workload}" for one in refused(workloads, rules)]


REFUSED = f"{PRIORITIES}: DaemonSet csi"


# --- by what is in the template -----------------------------------------------------------------------


@given(value=st.integers(-(10**9), 2 * MOST_IMPORTANT) | st.integers(MOST_IMPORTANT - 1, MOST_IMPORTANT + 1))
def test_a_class_is_refused_above_what_somebody_may_make(value: int):
    assert reported(a_workload(IMPORTANT), classes=[a_class(CRITICAL, value)]) == [REFUSED] * (value > MOST_IMPORTANT)


@given(
    values=st.lists(st.sampled_from([5, MOST_IMPORTANT, MOST_IMPORTANT + 1, 2 * MOST_IMPORTANT])),
    named=st.sampled_from(["", ORDINARY, CRITICAL]),
)
def test_without_a_class_of_its_own_a_pod_has_the_lowest_of_the_default_ones(values: list[int], named: str):
    defaults = [a_class(f"default-{number}", value, default=True) for number, value in enumerate(values)]
    pod = {"priorityClassName": named} if named else {}
    priority = VALUES[named] if named else min(values, default=0)
    assert reported(a_workload(pod), classes=[*CLASSES, *defaults]) == [REFUSED] * (priority > MOST_IMPORTANT)


def test_a_number_without_its_class_and_a_class_that_is_not_there_are_for_others_to_refuse():
    assert reported(a_workload({"priority": 2 * MOST_IMPORTANT})) == []
    assert reported(a_workload(IMPORTANT), classes=[a_class("default", 2 * MOST_IMPORTANT, default=True)]) == []


@pytest.mark.parametrize("what", KEEPS_AWAY)
def test_the_anti_affinity_that_a_real_api_server_refuses_is_told(what: str):
    workload = a_workload(away(KEEPS_AWAY[what]), namespace="default")
    assert reported(workload) == [f"{ANTI_AFFINITY}: DaemonSet csi"]


OWN = st.fixed_dictionaries(
    {"topologyKey": st.just("kubernetes.io/hostname")},
    optional={"namespaces": st.lists(st.just(HERE)), "labelSelector": st.just({}), "namespaceSelector": st.none()},
)
OTHERS = OWN.flatmap(
    lambda term: st.sampled_from(
        [
            {**term, "namespaceSelector": {}},
            {**term, "namespaceSelector": {"matchLabels": {"a": "b"}}},
            {**term, "namespaces": [ELSEWHERE]},
            {**term, "namespaces": [HERE, ELSEWHERE]},
        ]
    )
)


@given(before=st.lists(OWN), reaching=st.lists(OTHERS, max_size=2), after=st.lists(OWN))
def test_anti_affinity_is_refused_if_any_term_reaches_another_namespace(
    before: list[Object], reaching: list[Object], after: list[Object]
):
    workload = a_workload(away([*before, *reaching, *after]))
    assert reported(workload) == [f"{ANTI_AFFINITY}: DaemonSet csi"] * bool(reaching)


def test_what_is_only_preferred_or_is_affinity_keeps_nobody_away():
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}
    requested = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    assert reported(a_workload({"affinity": {"podAntiAffinity": requested, "podAffinity": {REQUIRED: [term]}}})) == []


def test_it_is_said_what_in_the_template_is_refused():
    pods = [
        IMPORTANT,
        {},
        away([{"namespaceSelector": {}}]),
        away([{"namespaces": [HERE, "a", "b"]}]),
    ]
    workloads = [a_workload(pod, name=f"w{number}") for number, pod in enumerate(pods)]
    found = refused(workloads, Rules([*CLASSES, a_class("low", 1_500_000_000, default=True)], [], []))
    whys = {one.workload.removeprefix("DaemonSet "): one.why for one in found if one.policy == PRIORITIES}
    assert (whys["w0"], whys["w1"]) == (
        "priorityClassName system-node-critical (2000001000)",
        "no priorityClassName, and the default is low (1500000000)",
    )
    assert [one.why for one in found if one.policy == ANTI_AFFINITY] == [
        "required podAntiAffinity with a namespaceSelector",
        "required podAntiAffinity with pods of namespace a, b",
    ]


@given(others=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True))
def test_of_many_namespaces_that_it_reaches_the_first_are_named_and_the_others_counted(others: list[str]):
    found = refused([a_workload(away([{"namespaces": [HERE, *others]}]))], Rules(CLASSES, [], []))
    rest = len(others) - MOST_OTHERS
    named = ", ".join(others[:MOST_OTHERS]) + (f" and {rest} more" if rest > 0 else "")
    assert [one.why for one in found] == [f"required podAntiAffinity with pods of namespace {named}"]


A_PORT = st.integers(1, 65535) | st.sampled_from(sorted(ports.ON_HOSTS))


def with_ports(containers: list[int], first: list[int], **more: Any) -> Object:
    def listening(numbers: list[int]) -> list[Object]:
        return [{"name": f"c{number}", "ports": [{"containerPort": 80, "hostPort": number}]} for number in numbers]

    return {"containers": [{"name": "none"}, *listening(containers)], "initContainers": listening(first), **more}


@given(st.lists(A_PORT, max_size=6), st.lists(A_PORT, max_size=6), st.sampled_from([HERE, ELSEWHERE]))
def test_a_port_of_the_control_plane_is_refused_in_every_namespace(own: list[int], first: list[int], where: str):
    taken = sorted({*own, *first} & ports.ON_HOSTS)
    found = refused([a_workload(with_ports(own, first), namespace=where)], Rules(CLASSES, [], []))
    rest = f" and {len(taken) - MOST_OTHERS} more" if len(taken) > MOST_OTHERS else ""
    why = f"hostPort {', '.join(map(str, taken[:MOST_OTHERS]))}{rest}"
    assert found == [Refused(HOST_PORTS, where, "DaemonSet csi", why)] * bool(taken)


def test_a_pod_in_its_nodes_network_takes_no_port_by_naming_it():
    assert reported(a_workload(with_ports([ports.NLLB_API], [], hostNetwork=True))) == []
    assert reported(a_workload(with_ports([ports.NLLB_API], [], hostNetwork=False))) == [f"{HOST_PORTS}: DaemonSet csi"]


# --- by the workload ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_that_has_pods_made_is_told_outside_of_kube_system(kind: str):
    both = {**IMPORTANT, **away([{"namespaceSelector": {}}])}
    assert reported(a_workload(both, kind)) == [f"{PRIORITIES}: {kind} csi", f"{ANTI_AFFINITY}: {kind} csi"]
    assert reported(a_workload(both, kind, "kube-system")) == []


@pytest.mark.parametrize(
    ("owner", "is_told"),
    [
        pytest.param({"apiVersion": "apps/v1", "kind": "Deployment", "controller": True}, False, id="a Deployment"),
        pytest.param({"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}, False, id="a CronJob"),
        pytest.param({"apiVersion": "apps/v1", "kind": "Deployment"}, True, id="one that does not control it"),
        pytest.param({"apiVersion": "x/v1", "kind": "Storage", "controller": True}, True, id="an operator's resource"),
        pytest.param({"apiVersion": "x/v1", "kind": "Deployment", "controller": True}, True, id="another group's"),
    ],
)
def test_what_another_workload_has_made_is_told_as_that_one(owner: Object, is_told: bool):
    workload = a_workload(IMPORTANT, "ReplicaSet")
    workload["metadata"]["ownerReferences"] = [owner]
    assert bool(reported(workload)) == is_told


@pytest.mark.parametrize(
    ("kind", "status", "is_told"),
    [("Job", "True", False), ("Job", "False", True), ("DaemonSet", "True", True)],
)
@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_a_job_that_has_ended_is_not_told(kind: str, status: str, is_told: bool, end: str):
    workload = {**a_workload(IMPORTANT, kind), "status": {"conditions": [{"type": end, "status": status}]}}
    assert bool(reported(workload)) == is_told


def test_a_job_that_has_not_ended_yet_is_told():
    suspended = {"conditions": [{"type": "Suspended", "status": "True"}]}
    assert reported({**a_workload(IMPORTANT, "Job"), "status": suspended}) == [f"{PRIORITIES}: Job csi"]


@pytest.mark.parametrize(
    ("kind", "replicas", "is_told"), [("ReplicaSet", 0, False), ("ReplicaSet", 1, True), ("Deployment", 0, True)]
)
def test_an_old_revision_is_not_told_and_what_may_be_scaled_up_again_is(kind: str, replicas: int, is_told: bool):
    assert bool(reported(a_workload(IMPORTANT, kind, replicas=replicas))) == is_told


# --- exceptions ---------------------------------------------------------------------------------------


def but(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


@given(excepted=st.sets(st.sampled_from([HERE, "other", "unlisted"])))
def test_a_namespace_is_excepted_by_the_binding_and_no_other_is(excepted: set[str]):
    workloads = [a_workload(IMPORTANT, namespace=name) for name in (HERE, "other", "unlisted")]
    binding = a_binding(PRIORITIES, PRIORITIES, namespaceSelector=but(NAMESPACE_LABEL, "NotIn", *excepted, "nowhere"))
    found = refused(workloads, Rules(CLASSES, [a_namespace(HERE), a_namespace("other")], [binding]))
    assert {one.namespace for one in found} == {HERE, "other", "unlisted"} - excepted


@pytest.mark.parametrize(
    ("selector", "is_told"),
    [
        ({}, True),
        ({"matchLabels": {"tier": "trusted"}}, True),
        ({"matchLabels": {"tier": "x"}}, False),
        ({"matchLabels": {"tier": "trusted", "a": "b"}}, False),
        (but("tier", "In", "x", "trusted"), True),
        (but("tier", "In", "x"), False),
        (but("tier", "NotIn", "trusted"), False),
        (but("absent", "In", "x"), False),
        (but("absent", "NotIn", "x"), True),
        (but("tier", "Exists"), True),
        (but("absent", "Exists"), False),
        (but("tier", "DoesNotExist"), False),
        (but("absent", "DoesNotExist"), True),
        ({"matchLabels": {"tier": "x"}, **but("tier", "Exists")}, False),
        ({"matchLabels": {"tier": "trusted"}, **but("tier", "DoesNotExist")}, False),
    ],
    ids=str,
)
def test_a_binding_is_about_the_namespaces_that_it_selects(selector: Object, is_told: bool):
    assert bool(
        reported(a_workload(IMPORTANT), bindings=(a_binding(PRIORITIES, PRIORITIES, namespaceSelector=selector),))
    ) == (is_told)


@pytest.mark.parametrize(("value", "is_told"), [("csi", True), ("x", False)])
def test_a_binding_is_about_the_pods_that_it_selects(value: str, is_told: bool):
    selected = a_binding(PRIORITIES, PRIORITIES, objectSelector={"matchLabels": {"app": value}})
    assert bool(reported(a_workload(IMPORTANT), bindings=(selected,))) == is_told


NOWHERE = but(NAMESPACE_LABEL, "In", "nowhere")


@pytest.mark.parametrize(
    ("bindings", "is_told"),
    [
        pytest.param((), True, id="it was deleted, and comes back"),
        pytest.param((a_binding(PRIORITIES, PRIORITIES, "Audit"),), False, id="switched off"),
        pytest.param((a_binding(PRIORITIES, PRIORITIES, "Audit", "Deny"),), True, id="it also denies"),
        pytest.param((a_binding(ANTI_AFFINITY, ANTI_AFFINITY, "Audit"),), True, id="another policy is switched off"),
        pytest.param((a_binding(PRIORITIES, "x", "Deny"),), True, id="one of its name is of another policy"),
        pytest.param(
            (a_binding(PRIORITIES, PRIORITIES, "Audit"), a_binding("mine", "x")), False, id="another policy denies"
        ),
        pytest.param(
            (a_binding("mine", PRIORITIES, namespaceSelector=NOWHERE),), True, id="one's own replaces none of ours"
        ),
        pytest.param(
            (a_binding(PRIORITIES, PRIORITIES, "Audit"), a_binding("mine", PRIORITIES)), True, id="one's own denies"
        ),
        pytest.param(
            (a_binding(PRIORITIES, PRIORITIES, namespaceSelector=NOWHERE), a_binding("mine", PRIORITIES, "Warn")),
            False,
            id="none denies here",
        ),
    ],
)
def test_what_some_binding_of_the_policy_denies_is_refused(bindings: tuple[Object, ...], is_told: bool):
    assert reported(a_workload(IMPORTANT), bindings=bindings) == [REFUSED] * is_told


def test_as_rendered_the_bindings_except_nobody():
    """And the policies go by what is judged here."""
    rendered = tenants.objects()
    bindings = tuple(obj for obj in rendered if obj["kind"] == BINDING)
    both = a_workload({**IMPORTANT, **away([{"namespaceSelector": {}}])})
    assert reported(both, bindings=bindings) == reported(both) != []
    selected = {
        obj["metadata"]["name"]: obj["spec"]["matchConstraints"].get("namespaceSelector")
        for obj in rendered
        if obj["kind"] == POLICY and obj["metadata"]["name"] in POLICIES
    }
    outside = but(NAMESPACE_LABEL, "NotIn", "kube-system")
    assert selected == {PRIORITIES: outside, ANTI_AFFINITY: outside, HOST_PORTS: None}


@given(order=st.permutations(range(6)))
def test_they_come_by_policy_namespace_and_name(order: list[int]):
    pods = [IMPORTANT, away([{"namespaceSelector": {}}])]
    workloads = [
        a_workload(pods[number % 2], namespace=("a", "b", "a")[number // 2], name=f"w{number}") for number in order
    ]
    found = [
        (one.policy, one.namespace, one.workload.removeprefix("DaemonSet "))
        for one in refused(workloads, Rules(CLASSES, [], []))
    ]
    assert found == [
        (policy, *where)
        for policy, numbers in ((PRIORITIES, (0, 4, 2)), (ANTI_AFFINITY, (1, 5, 3)))
        for where in zip("aab", (f"w{number}" for number in numbers), strict=True)
    ]


# --- of policies that come ------------------------------------------------------------------------------


def lost(policy: str, namespace: str, name: str) -> Refused:
    return Refused(policy, namespace, f"DaemonSet {name}", "a reason")


@given(new=st.sets(st.sampled_from([PRIORITIES, ANTI_AFFINITY])))
def test_beforehand_only_what_a_new_policy_refuses_is_told_with_the_way_out(new: set[str]):
    found = [lost(PRIORITIES, "storage", "csi"), lost(PRIORITIES, "storage", "x"), lost(ANTI_AFFINITY, "web", "lonely")]
    policies = [policy for policy in (PRIORITIES, ANTI_AFFINITY) if policy in new]
    names = {
        PRIORITIES: "[namespace storage] DaemonSet csi has a reason; DaemonSet x has a reason.",
        ANTI_AFFINITY: "[namespace web] DaemonSet lonely has a reason.",
    }
    for policy, sentence in zip(policies, sentences_beforehand(found, new), strict=True):
        assert f"the policy {policy} is new" in sentence
        assert names[policy] in sentence
        assert INSTEAD[policy] in sentence
        assert sentence.endswith("or except the namespace (docs/security.md)")


@given(namespaces=st.integers(1, 2 * MOST_NAMESPACES), made=st.integers(1, 3 * MOST_OF_A_NAMESPACE))
def test_beforehand_whoever_has_many_workloads_hides_no_other_namespace(namespaces: int, made: int):
    spaces = [f"n{number:03}" for number in range(namespaces)]
    found = [lost(PRIORITIES, space, f"d{number}") for space in spaces for number in range(made)]
    [reported] = sentences_beforehand(found, {PRIORITIES})
    named = spaces[:MOST_NAMESPACES]
    assert [space for space in spaces if f"[namespace {space}]" in reported] == named
    assert reported.count("DaemonSet ") == len(named) * min(made, MOST_OF_A_NAMESPACE)
    assert reported.count(f" and {made - MOST_OF_A_NAMESPACE} more") >= (
        len(named) if made > MOST_OF_A_NAMESPACE else 0
    )
    assert (f" and {namespaces - MOST_NAMESPACES} more. Before" in reported) == (namespaces > MOST_NAMESPACES)
