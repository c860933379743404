"""Pools in the cluster file: what is refused, where and in which words, and that the operator takes all the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky.config import dump
from autarky.control.common import understood
from autarky.control.kubelet.decide import pools as decided
from autarky.errors import Problems
from autarky.model import kubelets
from unit.config.cluster_texts import problem, problems, spec

NODE = "nodes: [{name: n1}]\n"


def text(*pools: object) -> str:
    return f"{NODE}pools: {json.dumps(pools)}\n"


def test_a_pool_is_written_as_in_the_api_with_its_defaults():
    cluster = spec(
        NODE
        + "kubelets: {follow: false, runtime: 'image:1'}\n"
        + "pools:\n"
        + "- name: edge\n"
        + "  nodes: {matchLabels: {kubernetes.io/hostname: n1}}\n"
        + '  version: "1.36.4"\n'
        + "  runtime: image:2\n"
        + "  kubelet: {configuration: {maxPods: 50}}\n"
        + "- {name: control-nodes, nodes: {controlPlane: true}, drain: Always}\n"
    )
    rest = {"atOnce": 1, "drain": "Minor", "drainSeconds": 300}
    edge = {
        "name": "edge",
        "nodes": {"matchLabels": {"kubernetes.io/hostname": "n1"}},
        "order": 1,
        **rest,
        "version": "v1.36.4",
        "runtime": "image:2",
        "kubelet": {"configuration": {"maxPods": 50}},
    }
    control = {"name": "control-nodes", "nodes": {"controlPlane": True}, "order": 2, **rest, "drain": "Always"}
    assert cluster.pools == (edge, control)
    assert (cluster.kubelets_follow, cluster.container_runtime) == (False, "image:1")


def test_without_them_kubelets_follow_and_the_kept_file_stays_as_it_was():
    cluster = spec(NODE)
    assert (cluster.kubelets_follow, cluster.pools) == (True, ())
    assert not dump(cluster)["spec"].keys() & {"kubelets", "pools"}


def test_every_error_has_its_position_and_what_to_do():
    assert problems(
        NODE
        + "kubelets: {folow: true}\n"
        + "pools:\n"
        + "  - name: edge\n"
        + "    order: 1001\n"
        + "    atOnce: 0\n"
        + "    drain: never\n"
        + '    drainSeconds: "5"\n'
        + "    version: 1.36\n"
        + "    kubelet: {configuration: {authentication: {}, maxPods: 5}}\n"
        + "  - name: A B\n"
        + "    nodes: {labels: {}}\n"
    ) == [
        "cluster.yaml:6:14: spec.kubelets.folow: unknown key | did you mean follow?",
        "cluster.yaml:9:14: spec.pools[0].order: 1001 is too large | use 1000 or less",
        "cluster.yaml:10:15: spec.pools[0].atOnce: 0 is too small | use 1 or more",
        "cluster.yaml:11:14: spec.pools[0].drain: 'never' is not one of Never, Minor, Always | did you mean Never?",
        (
            "cluster.yaml:12:21: spec.pools[0].drainSeconds: must be a whole number, not '5'"
            " | write it without quotes, fraction or unit"
        ),
        (
            "cluster.yaml:13:16: spec.pools[0].version: it is the number 1.36, because it is not quoted"
            ' | write the complete version in quotes, such as "1.36.4"'
        ),
        (
            "cluster.yaml:14:33: spec.pools[0].kubelet.configuration.authentication: kubelet.configuration sets"
            " authentication, which is autarky's | leave it out"
        ),
        (
            "cluster.yaml:15:13: spec.pools[1].name: 'A B' is not a DNS label"
            " | use 1 to 63 of a-z, 0-9 and -, with a letter or number at both ends"
        ),
        "cluster.yaml:16:15: spec.pools[1].nodes.labels: unknown key | did you mean matchLabels?",
    ]


EDGE: dict[str, Any] = {"name": "edge", "nodes": {"matchLabels": {"site": "edge"}}}


@pytest.mark.parametrize(
    ("pools", "place"),
    [
        ([EDGE, EDGE], "spec.pools[1].name"),
        ([{"name": "edge"}], "spec.pools[0].nodes"),
        ([{"name": "workers", "nodes": {"controlPlane": True}}], "spec.pools[0].nodes"),
        ([{"name": "control-nodes"}], "spec.pools[0].nodes"),
        ([{**EDGE, "name": "workers"}], "spec.pools[0].nodes"),
        (
            [{"name": "e", "nodes": {"matchLabels": {f"l{n}": "" for n in range(21)}}}],
            "spec.pools[0].nodes.matchLabels",
        ),
        (
            [{**EDGE, "kubelet": {"configuration": {f"s{n}": n for n in range(201)}}}],
            "spec.pools[0].kubelet.configuration",
        ),
        ([{**EDGE, "name": f"edge-{n}"} for n in range(51)], "spec.pools"),
        *(
            ([{**EDGE, "kubelet": {"configuration": {name: "x"}}}], f"spec.pools[0].kubelet.configuration.{name}")
            for name in sorted(kubelets.NOT_OURS)
        ),
    ],
)
def test_what_the_operator_refuses_is_refused_here_in_the_same_words(pools: list[dict[str, Any]], place: str):
    said = (decided.trouble(pools) or "").removeprefix(f"pool {pools[0]['name']}: ")
    assert said
    assert f": {place}: {said} | " in problem(text(*pools))


def test_a_version_that_no_release_file_has_is_refused():
    assert "there is no release file for v1.35.9" in problem(text({**EDGE, "version": "v1.35.9"}))


def test_the_words_for_drains_are_the_operators():
    assert kubelets.DrainName.__args__ == tuple(decided.Drain)  # type: ignore[attr-defined]


small = st.sampled_from(
    ["workers", "control-nodes", "edge", "A", "", True, False, None, 0, 1, 101, 1001, 86401, "v1.36.4"]
)
odd = st.recursive(
    small,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["controlPlane", "matchLabels", "configuration", "kind", "site"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)
anything = st.lists(
    st.fixed_dictionaries({"name": small}, optional=dict.fromkeys(decided._KEYS - {"name"}, odd)), max_size=2
)


@given(anything)
@example([{**EDGE, "order": 0, "atOnce": 100, "drainSeconds": 86400, "version": "1.36.4"}])
@example([{"name": "edge", "nodes": {"matchLabels": {"site": ""}}, "kubelet": {"configuration": {"a": [None]}}}])
def test_what_is_taken_here_the_operator_takes(pools: list[dict[str, Any]]):
    try:
        cluster = spec(text(*pools))
    except Problems:
        return
    assert understood.kubelets({"pools": list(cluster.pools)}) is None
    assert [one.name for one in decided.read(list(cluster.pools))][-2:] == ["workers", "control-nodes"]
