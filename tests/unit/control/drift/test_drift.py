"""Three values of each field: applied, wanted, live."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.drift.decide import applied
from autarky.control.drift.decide.owners import ABSENT, State, compare, join_flags, split_flags, text_of, without
from autarky.render.objects import agent_parts, parts
from fakes.clusters import a_cluster, inputs_of

INPUTS = inputs_of(a_cluster(controls=3))
RECORDED = [obj for part in [*parts(INPUTS), *agent_parts(INPUTS)] for obj in part.objects if applied.is_recorded(obj)]


def pod(**fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "a:1", "command": ["main", "--port=1", "--quiet"], **fields}
    return {"spec": {"containers": [container], "nodeSelector": {"role": ""}}}


def container(obj: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = obj["spec"]["containers"][0]
    return found


def states(comparison) -> dict[str, State]:
    return {one.field: one.state for one in comparison.differences}


# --- what is no difference --------------------------------------------------------------------------


@pytest.mark.parametrize("obj", RECORDED, ids=lambda obj: obj["metadata"]["name"])
def test_what_is_live_as_it_was_applied_has_not_drifted(obj):
    ours = applied.projection(obj)
    assert compare(ours, ours, copy.deepcopy(ours)).differences == ()
    assert compare(ours, ours, ours).merged == ours


def test_defaults_that_the_api_fills_in_and_empty_values_that_it_leaves_out_are_no_drift():
    ours = pod(env=[], probe={"delay": 0, "path": "/"}, readOnly=False)
    live = pod(probe={"path": "/", "scheme": "HTTP"}, terminationMessagePath="/dev/termination-log")
    live["spec"]["dnsPolicy"] = "Default"
    assert compare(ours, ours, live).differences == ()


def test_the_order_of_flags_and_of_named_items_means_nothing():
    live = pod(command=["main", "--quiet", "--port=1"])
    assert compare(pod(), pod(), live).differences == ()


# --- what is one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        (lambda c: c.update(image="a:2"), "image", "a:2"),
        (lambda c: c["command"].append("--v=3"), "command[--v]", "3"),
        (lambda c: c["command"].remove("--quiet"), "command[--quiet]", "(not set)"),
        (lambda c: c.update(command=["other", "--port=1", "--quiet"]), "command[program]", '["other"]'),
        (lambda c: c.update(command=["sh", "-c", "main"]), "command", '["sh", "-c", "main"]'),
        (lambda c: c.update(env=[{"name": "A", "value": "b"}]), "env[A]", '{"name": "A", "value": "b"}'),
    ],
)
def test_an_edit_is_drift_and_stands(change, field, value):
    ours = pod(env=[])
    live = copy.deepcopy(ours)
    change(container(live))
    found = compare(ours, ours, live)
    assert [(one.field, one.state, text_of(one.live)) for one in found.differences] == [
        (f"spec.containers[main].{field}", State.DRIFTED, value)
    ]
    assert compare(found.merged, found.merged, live).drifted == (() if "env" not in field else found.drifted)


def test_a_node_selector_is_ours_as_a_whole_also_where_it_is_empty():
    live = pod()
    live["spec"]["nodeSelector"] = {"other": "x"}
    found = states(compare(pod(), pod(), live))
    assert found == {"spec.nodeSelector.role": State.DRIFTED, "spec.nodeSelector.other": State.DRIFTED}
    del live["spec"]["nodeSelector"]
    assert states(compare(pod(), pod(), live)) == {"spec.nodeSelector": State.DRIFTED}


def test_fields_that_were_never_ours_are_not_looked_at():
    live = pod()
    live["metadata"] = {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}
    live["spec"]["hostname"] = "x"
    assert compare(pod(), pod(), live).differences == ()


# --- a changed wanted value --------------------------------------------------------------------------


def test_what_is_newly_wanted_is_applied_over_an_edit_and_other_edits_stand():
    live = pod(image="edited", command=["main", "--port=9", "--quiet"])
    found = compare(pod(), pod(image="a:2"), live)
    assert states(found) == {
        "spec.containers[main].image": State.CHANGED,
        "spec.containers[main].command[--port]": State.DRIFTED,
    }
    assert container(found.merged)["image"] == "a:2"
    assert "--port=9" in container(found.merged)["command"]


def test_what_is_newly_wanted_and_live_already_makes_only_the_record_old():
    found = compare(pod(), pod(image="a:2"), pod(image="a:2"))
    assert states(found) == {"spec.containers[main].image": State.AGREED}
    assert not found.up_to_date


def test_what_is_wanted_no_more_goes():
    found = compare(pod(), pod(command=["main", "--port=1"]), pod())
    assert container(found.merged)["command"] == ["main", "--port=1"]
    assert states(found) == {"spec.containers[main].command[--quiet]": State.CHANGED}


def test_a_container_that_somebody_removed_stays_removed_until_it_is_wanted_again():
    live = {"spec": {"containers": [], "nodeSelector": {"role": ""}}}
    assert compare(pod(), pod(), live).merged["spec"]["containers"] == []
    assert container(compare(pod(), pod(image="a:2"), live).merged) == container(pod(image="a:2"))


def test_what_others_have_added_can_be_taken_out():
    live = pod(env=[{"name": "A", "value": "b"}])
    live["spec"]["containers"].append({"name": "side"})
    container(live)["command"].append("--v=3")
    found = compare(pod(env=[]), pod(env=[]), live)
    unlisted = [one.path for one in found.differences if one.wanted is ABSENT]
    assert without(live, unlisted) == pod(env=[])


# --- properties --------------------------------------------------------------------------------------

_VALUES = st.sampled_from(["1", "2", "3"])
_FLAGS = st.dictionaries(st.sampled_from(["--a", "--b", "--c"]), _VALUES | st.just(True))
_PODS = st.builds(
    lambda image, flags, env, selector, replicas: {
        "spec": {
            "replicas": replicas,
            "nodeSelector": selector,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": join_flags({"": ["main"], **flags}),
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                }
            ],
        }
    },
    _VALUES,
    _FLAGS,
    st.dictionaries(st.sampled_from("ABC"), _VALUES),
    st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["", "1"])),
    st.integers(1, 3),
)


@given(_PODS, _PODS, _PODS)
def test_applying_what_was_merged_leaves_nothing_to_apply(before, wanted, live):
    merged = compare(before, wanted, live).merged
    again = compare(wanted, wanted, merged)
    assert again.up_to_date


@given(_PODS, _PODS)
def test_without_a_new_wanted_value_nothing_is_applied_and_nothing_of_the_live_object_changes(ours, live):
    found = compare(ours, ours, live)
    assert found.up_to_date
    covered = compare(found.merged, found.merged, live)
    assert {one.field for one in covered.differences} <= {
        one.field for one in found.differences if one.wanted is ABSENT
    }


@given(_PODS, _PODS, _PODS)
def test_a_field_is_changed_only_if_its_own_wanted_value_has_changed(before, wanted, live):
    for one in compare(before, wanted, live).differences:
        assert (one.state is State.DRIFTED) == (one.applied == one.wanted)


@given(_PODS, _PODS)
def test_on_an_unedited_object_what_is_merged_is_what_is_wanted(before, wanted):
    assert compare(before, wanted, before).merged == wanted


@given(_PODS, _PODS)
def test_comparing_changes_none_of_its_inputs(ours, live):
    copies = copy.deepcopy((ours, live))
    compare(ours, ours, live)
    assert (ours, live) == copies


@given(_FLAGS)
def test_a_command_line_is_the_same_after_it_was_split(flags):
    words = join_flags({"": ["main"], **flags})
    assert join_flags(split_flags(words)) == words


@pytest.mark.parametrize("words", [["sh", "-c", "x"], ["main", "--a=1", "--a=2"], ["main", "--a", "1"], [1]])
def test_a_command_line_of_another_form_is_compared_as_a_whole(words):
    assert split_flags(words) is None


# --- the record --------------------------------------------------------------------------------------


def test_the_record_survives_the_wire_and_one_that_is_broken_counts_as_none():
    obj = RECORDED[0]
    live = applied.with_record(obj, obj)
    assert applied.record_of(live) == applied.projection(obj)
    live["metadata"]["annotations"][applied.ANNOTATION] = "{"
    assert applied.record_of(live) is None
    assert applied.drift_of(live) is None
