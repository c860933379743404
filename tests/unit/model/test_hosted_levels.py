"""What `selfHosted` says, read and written in one place."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.config import json_schema, rules
from autarky.config.schema import SpecPart
from autarky.control.common import understood
from autarky.model.levels import TEXTS, HostedLevels, Level
from autarky.render.crds import control_plane_crd
from fakes.clusters import a_cluster

HOSTED = {
    "0-4": {0, 1, 2, 3, 4},
    "02-4": {0, 2, 3, 4},
    "1-4": {1, 2, 3, 4},
    "2-4": {2, 3, 4},
    "3-4": {3, 4},
    "4": {4},
}


def cluster_of(text: str):
    levels = HostedLevels.parse(text)
    return replace(a_cluster(levels.lowest), hosts_kubelet=levels.kubelet)


@pytest.mark.parametrize("text", HOSTED)
def test_each_text_names_the_levels_that_are_hosted(text):
    assert {int(level) for level in Level if HostedLevels.parse(text).hosts(level)} == HOSTED[text]
    assert {int(level) for level in Level if cluster_of(text).hosts_level(level)} == HOSTED[text]


@pytest.mark.parametrize(
    ("text", "lowest"),
    [("0-4", Level.ETCD), ("1-4", Level.ETCD), ("02-4", Level.API_SERVER), ("2-4", Level.API_SERVER)],
)
def test_the_lowest_level_is_that_apart_from_the_kubelet(text, lowest):
    assert HostedLevels.parse(text).lowest is lowest
    assert cluster_of(text).self_hosted is lowest


@given(st.sampled_from(TEXTS))
def test_a_text_is_read_back(text):
    assert str(HostedLevels.parse(text)) == cluster_of(text).self_hosted_text == text


@given(st.builds(HostedLevels, st.sampled_from(Level), st.booleans()))
def test_what_can_be_written_is_read_back_and_nothing_else_can_be_written(levels):
    if levels.lowest is Level.KUBELET or (levels.kubelet and levels.lowest > Level.API_SERVER):
        with pytest.raises(ValueError, match="cannot be written"):
            str(levels)
    else:
        assert HostedLevels.parse(str(levels)) == levels


@given(st.text("01234-", max_size=5) | st.text(max_size=5))
def test_nothing_else_is_read(text):
    if text not in HOSTED:
        with pytest.raises(ValueError, match="one of 0-4, 02-4, 1-4"):
            HostedLevels.parse(text)


def test_file_and_definition_take_the_same_texts():
    assert get_args(SpecPart.model_fields["self_hosted"].annotation) == TEXTS
    assert json_schema()["$defs"]["SpecPart"]["properties"]["selfHosted"]["enum"] == [*TEXTS]
    spec = control_plane_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["selfHosted"]["enum"] == [*TEXTS]
    planes = [{"spec": {"version": "v1.37.1", "selfHosted": text}} for text in TEXTS]
    assert [understood.control_plane(plane) for plane in planes] == [None] * len(TEXTS)


@pytest.mark.parametrize("text", TEXTS)
def test_an_etcd_outside_of_the_cluster_goes_with_every_level_that_leaves_etcd_out(text):
    external = SimpleNamespace(lab=None)
    spec: Any = SimpleNamespace(self_hosted=text, etcd=SimpleNamespace(external=external), nodes=[])
    wrong = [one.fix for one in rules._etcd_outside_of_the_cluster(spec)]
    assert wrong == {"0-4": ['use selfHosted: "02-4"'], "1-4": ['use selfHosted: "2-4"']}.get(text, [])
