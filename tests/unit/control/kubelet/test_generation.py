"""Generations of kubelets: what they are made of, and how that is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.manifests import generation
from autarky.control.kubelet.manifests.files import ARGUMENTS, CONFIG
from autarky.control.kubelet.manifests.generation import Base
from autarky.model.versions import Version

BASE = Base(
    {"maxPods": 110, "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi"}}, {"node-ip": "x"}
)
VERSION = Version.parse("v1.37.1")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
)


def target(**given: Any) -> Target:
    return Target(VERSION, "b", **given)


def test_what_is_wanted_wins_and_leaves_the_rest_as_it_is():
    wanted = target(config={"evictionHard": {"nodefs.available": "5%"}, "podPidsLimit": 9}, arguments={"v": "4"})
    made = generation.made(BASE, wanted)
    assert json.loads(made[CONFIG]) == {
        "maxPods": 110,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "5%"},
        "podPidsLimit": 9,
    }
    assert made[ARGUMENTS] == b"--node-ip=x\n--v=4\n"
    assert generation.made(BASE, target(arguments={"node-ip": "y"}))[ARGUMENTS] == b"--node-ip=y\n"


def test_a_generation_says_what_it_was_made_of():
    wanted = target(runtime="image:1", arguments={"v": "4"})
    found = generation.read(generation.made(BASE, wanted)[generation.MADE_OF])
    assert found == generation.MadeOf(wanted.digest, VERSION, "b", "image:1")


@pytest.mark.parametrize("value", ["a\nb", "a\0b"])
def test_an_argument_that_is_no_line_makes_no_generation(value):
    with pytest.raises(ValueError, match="one line"):
        generation.made(BASE, target(arguments={"v": value}))


def test_a_base_is_read_as_it_was_written_and_has_a_digest_of_its_own():
    content = generation.base_file(BASE).content
    assert generation.read_base(content) == BASE
    other = generation.base_file(Base({}, {})).content
    assert len({generation.base_digest(one) for one in (content, other, None)}) == 3


@given(JSON, st.binary())
def test_nothing_that_is_read_raises(value, noise):
    for content in (json.dumps(value).encode(), json.dumps({"config": value, "arguments": value}).encode(), noise):
        assert (generation.read_base(content) is None) == (generation.base_digest(content) == "")
        generation.read(content)
