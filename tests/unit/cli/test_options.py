from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from autarky import places
from autarky.cli.options import cluster_options, confirm, dry_run_option, output_option, yes_option
from autarky.errors import UserError


@click.command()
@cluster_options
@output_option
@dry_run_option
@yes_option
def command(file: Path | None, cluster: str | None, output: str, dry_run: bool, yes: bool) -> None:
    click.echo(repr((file, cluster, output, dry_run, yes)))


def run(*arguments: str):
    return CliRunner().invoke(command, arguments)


def test_without_options_nothing_is_named():
    assert run().output == "(None, None, 'auto', False, False)\n"


def test_the_file_must_be_there(tmp_path):
    (tmp_path / "cluster.yaml").write_text("")
    assert run("-f", str(tmp_path / "cluster.yaml")).output.startswith("(PosixPath(")
    missing = run("-f", str(tmp_path / "cluste.yaml"))
    assert missing.exit_code == 2
    assert "does not exist" in missing.output
    assert run("-f", str(tmp_path)).exit_code == 2


@pytest.mark.parametrize("swapped", [False, True])
def test_a_file_and_a_name_exclude_each_other(tmp_path, swapped):
    (tmp_path / "cluster.yaml").write_text("")
    options = [["-f", str(tmp_path / "cluster.yaml")], ["--cluster", "one"]]
    first, second = reversed(options) if swapped else options
    result = run(*first, *second)
    assert result.exit_code == 2
    assert "exclude each other" in result.output


def test_names_of_clusters_are_completed():
    for name in ("one", "two"):
        places.cluster_dir(name).mkdir(parents=True)
        (places.cluster_dir(name) / "cluster.json").write_text("{}")
    option = next(parameter for parameter in command.params if parameter.name == "cluster")
    with click.Context(command) as context:
        assert [item.value for item in option.shell_complete(context, "t")] == ["two"]


def test_an_output_that_does_not_exist_is_refused():
    assert run("-o", "xml").exit_code == 2
    assert run("-o", "json", "--dry-run", "-y").output == "(None, None, 'json', True, True)\n"


def test_yes_answers_every_question():
    confirm("delete it?", yes=True)


def test_a_question_that_nobody_can_answer_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UserError, match=r"delete it\?\n  fix: say --yes"):
        confirm("delete it?", yes=False)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked_on_standard_error(monkeypatch, capsys, answer):
    terminal = io.StringIO(f"{answer}\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", terminal)
    if answer == "y":
        confirm("delete it?", yes=False)
    else:
        with pytest.raises(click.Abort):
            confirm("delete it?", yes=False)
    captured = capsys.readouterr()
    assert "delete it?" in captured.err
    assert captured.out == ""
