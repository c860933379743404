from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.drift.decide import applied
from autarky.control.levels.decide import arguments
from autarky.control.levels.decide.arguments import Given, change, changed, give, given_to, refused
from autarky.render.objects import parts
from fakes.clusters import a_cluster, inputs_of

COMMAND = ["main", "--profiling=false", "--port=1"]
_NAMES = st.sampled_from(["profiling", "port", "v", "gates"])
_GIVEN = st.dictionaries(_NAMES, st.sampled_from(["1", "2", "true"]))


def test_what_is_given_is_set_and_what_is_given_no_more_becomes_our_own_again():
    command, record = change(COMMAND, Given(), {"profiling": "true", "v": "4"})
    assert command == ["main", "--profiling=true", "--port=1", "--v=4"]
    assert record == Given({"profiling": "true", "v": "4"}, {"profiling": "false"})
    assert change(command, record, {}) == (COMMAND, Given())


def test_an_edit_of_another_flag_stands():
    edited = ["main", "--profiling=false", "--port=2", "--extra=x"]
    command, _ = change(edited, Given(), {"v": "4"})
    assert command == [*edited, "--v=4"]


def test_a_command_line_that_cannot_be_read_is_left_alone():
    assert change(["main", "--a=1", "--a=2"], Given(), {"v": "4"}) is None


@given(_GIVEN, _GIVEN)
def test_the_way_to_what_is_given_makes_no_difference(first, second):
    straight = change(COMMAND, Given(), second)
    command, record = change(COMMAND, Given(), first)
    around = change(command, record, second)
    assert sorted(straight[0]) == sorted(around[0])
    assert straight[1] == around[1]


@given(_GIVEN)
def test_what_was_given_is_not_given_again(values):
    _, record = change(COMMAND, Given(), values)
    assert changed(record, values) == []


def workload(**extra):
    cluster = a_cluster(extra_args={"kube-scheduler": extra})
    objects = [obj for part in parts(inputs_of(cluster)) for obj in part.objects]
    found = next(obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == ("Deployment", "kube-scheduler"))
    return applied.with_record(found, found)


def test_the_operator_makes_of_a_workload_what_up_would_have_rendered():
    found = give(workload(), "kube-scheduler", {"profiling": "true", "v": "4"})
    rendered = workload(profiling="true", v="4")
    assert given_to(found) == given_to(rendered)
    assert applied.drift_of(found).differences == ()
    command, wanted = (obj["spec"]["template"]["spec"]["containers"][0]["command"] for obj in (found, rendered))
    assert sorted(command) == sorted(wanted)


def test_a_record_that_is_broken_counts_as_nothing_given():
    obj = workload()
    obj["metadata"]["annotations"][arguments.ANNOTATION] = "["
    assert given_to(obj) == Given()


def test_what_tells_the_slots_apart_is_refused():
    assert refused({"v": "4", "secure-port": "1"}) == ["secure-port"]
