"""The file that this machine keeps, and what the cluster may have while a command was stopped on its way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.config import default_cluster, dump
from autarky.model.cluster import Level
from autarky.payload import default_version, known_versions
from autarky.phases import kept_file
from autarky.render.cluster_record import portable
from autarky.render.values import pretty_json


def of_level(level):
    made = default_cluster(default_version=default_version(), known_versions=known_versions())
    return dump(replace(made, self_hosted=Level(level), ssh_config="/home/anna/.ssh/config", defaults=1))


@pytest.fixture
def keep(tmp_path):
    return lambda level: kept_file.write(tmp_path / "here", pretty_json(of_level(level)))


@pytest.fixture
def known(make_context, tmp_path):
    def found(level):
        context = make_context()
        context.directory, context.document = tmp_path / "here", of_level(level)
        return [document["spec"]["selfHosted"] for document in kept_file.known(context)]

    return found


def test_nothing_is_known_but_what_is_wanted_before_the_first_up(known):
    assert known(2) == ["2-4"]


def test_a_command_that_is_stopped_on_its_way_can_be_run_again(keep, known, tmp_path):
    keep(1)
    kept_file.settle(tmp_path / "here")
    keep(3)
    keep(3)
    assert set(known(3)) == {"3-4", "1-4"}, "the cluster may have either"


def test_after_an_up_that_ended_well_only_what_it_applied_is_known(keep, known, tmp_path):
    keep(1)
    keep(3)
    kept_file.settle(tmp_path / "here")
    assert known(4) == ["4", "3-4"]


def test_what_is_of_this_machine_is_no_difference():
    assert "anna" not in str(portable(of_level(1)))


def test_files_that_a_release_without_editions_has_kept_are_those_of_the_first(make_context, tmp_path):
    directory = tmp_path / "here"
    directory.mkdir()
    kept, before = (portable(of_level(level)) for level in (3, 1))
    for document in (kept, before):
        del document["spec"]["defaults"]
    (directory / "cluster.json").write_bytes(pretty_json(kept))
    (directory / "cluster.before.json").write_bytes(pretty_json([before]))
    context = make_context()
    context.directory = directory
    assert kept_file.known(context) == [portable(of_level(3)), portable(of_level(1))]


def test_a_kept_file_that_is_damaged_is_not_known(keep, known, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here/cluster.json").write_text("{")
    (tmp_path / "here/cluster.before.json").write_text("[")
    assert known(2) == ["2-4"]
    keep(2)
