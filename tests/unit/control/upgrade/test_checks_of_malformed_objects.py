"""The checks before an upgrade raise for nothing that nodes, tenants or anybody else have written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.slots.decide.report import ANNOTATION
from autarky.control.upgrade.decide import checks_of_apis, checks_of_webhooks
from autarky.control.upgrade.decide.checks import Source, findings
from fakes.changed import changed
from unit.control.upgrade.healthy import HEALTHY, Object
from unit.control.upgrade.test_checks_of_webhooks import NO_ENDPOINT, configuration, expression, rule

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["True", "Fail", "*"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
HOOK = configuration(
    rule(["*"]), namespaceSelector=expression("In", "kube-system"), objectSelector=expression("Exists")
)
API_SERVICE = {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Available", "status": "False"}]}}
BUDGET = {"metadata": {"name": "a", "namespace": "b"}, "status": {"disruptionsAllowed": 0, "expectedPods": 1}}
SLICE = {"endpoints": [{"conditions": {"ready": True}}]}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to everything within."""
    yield path
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


@st.composite
def broken(draw: st.DrawFn, obj: Object) -> Any:
    """The object with other JSON in some place of it."""
    return changed(obj, *draw(st.sampled_from(sorted(places(obj), key=str))), to=draw(JSON))


def objects(obj: Object) -> st.SearchStrategy[list[Any]]:
    return st.lists(broken(obj), max_size=2)


@given(
    broken(dict(HEALTHY.plane or {})),
    objects(dict(HEALTHY.nodes[0])),
    objects(HOOK),
    objects(API_SERVICE),
    broken(dict(HEALTHY.workloads["kube-apiserver"])),
    st.dictionaries(st.text(max_size=3), JSON, max_size=2),
)
def test_whatever_is_in_the_objects_there_are_findings_or_none(
    plane: Any, nodes: list[Any], hooks: list[Any], services: list[Any], workload: Any, labels: dict[str, Any]
) -> None:
    odd = replace(
        HEALTHY,
        plane=plane,
        nodes=nodes,
        webhooks=hooks,
        services=NO_ENDPOINT,
        system_labels=labels,
        api_services=services,
        workloads={**HEALTHY.workloads, "kube-apiserver": workload},
        unseen={Source.METRICS: ""},
    )
    for one in findings(odd):
        assert one.sentence.isprintable()
        assert len(one.sentence) < 2000


@given(JSON)
def test_whatever_an_agent_seems_to_report(said: Any) -> None:
    node = deepcopy(dict(HEALTHY.nodes[0]))
    for value in (said, json.dumps(said)):
        node["metadata"]["annotations"] = {ANNOTATION: value}
        findings(replace(HEALTHY, nodes=[node]))
    node["metadata"]["annotations"] = said
    findings(replace(HEALTHY, nodes=[node]))


@given(broken(HOOK), broken(SLICE), broken(BUDGET), st.lists(st.text()))
def test_whatever_is_read_on_the_way(hook: Any, endpoints: Any, budget: Any, lines: list[str]) -> None:
    checks_of_webhooks.services_of([hook])
    checks_of_webhooks.has_ready_endpoint(endpoints)
    checks_of_apis.blocks_drains(budget)
    checks_of_apis.requested(lines)
    checks_of_apis.stored(lines, {("", "v1", "pods"): ()})


@given(st.text(), st.text())
def test_whatever_a_metric_says(labels: str, value: str) -> None:
    lines = [f"{metric}{labels}}} {value}" for metric in checks_of_apis.METRICS]
    checks_of_apis.requested(lines)
    checks_of_apis.stored(lines, {("", "v1", "pods"): ()})
