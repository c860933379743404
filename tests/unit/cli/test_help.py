"""What the help of groups and commands shows a new user: complete sentences, and usage that works as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from autarky.cli.main import cli, main
from autarky.payload.release import GROUPS as OF_COMPONENTS
from unit.docs.documents import ROOT

WIDTH = 78
"""Of a terminal with 80 columns, as click uses it."""


def groups(group: click.Group, context: click.Context) -> Iterator[click.Context]:
    """The context of this group and of every group below it."""
    yield context
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(command, click.Context(command, info_name=name, parent=context))


GROUPS = [pytest.param(one, id=one.command_path) for one in groups(cli, click.Context(cli, info_name="autarky"))]


def test_there_are_groups_in_groups():
    assert {"autarky", "autarky upgrade", "autarky payload release"} <= {one.id for one in GROUPS}


@pytest.mark.parametrize("context", GROUPS)
def test_every_command_of_a_group_has_its_summary_on_one_line_that_is_not_cut_off(context):
    assert isinstance(context.command, click.Group)
    names = context.command.list_commands(context)
    formatter = click.HelpFormatter(width=WIDTH)
    context.command.format_commands(context, formatter)
    lines = [line for line in formatter.getvalue().splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == names, "one that is too long has a second line"
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


def shown(capsys, *arguments: str) -> str:
    """Without line breaks, which depend on the width."""
    assert main([*arguments, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_help_of_upgrade_has_the_options_of_an_upgrade_to_a_version(capsys):
    own = shown(capsys, "upgrade").partition("Options of autarky upgrade VERSION: ")[2]
    assert own.startswith("--soak"), "the version is no option"
    for option in ("--soak DURATION", "-f, --file FILE", "--cluster NAME", "-o, --output", "--dry-run"):
        assert option in own


@pytest.mark.parametrize("arguments", [["upgrade", "1.37.1"], ["upgrade", "v1.36.4"]])
def test_the_usage_of_upgrade_with_a_version_has_the_version_once_and_before_its_options(arguments, capsys):
    assert "Usage: autarky upgrade VERSION [OPTIONS] Upgrade the" in shown(capsys, *arguments)
    assert "Usage: autarky upgrade VERSION [OPTIONS] | COMMAND [ARGS]... Upgrade the" in shown(capsys, "upgrade")


def test_an_option_before_the_version_is_wrong_usage(capsys):
    """So the usage must not have them there."""
    assert main(["upgrade", "--soak", "24h", "1.37.1"]) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["node", "add"], ["init"]])
def test_every_form_of_a_host_is_explained_wherever_one_is_given(command, capsys):
    said = shown(capsys, *command)
    assert "lab:NAME (a test host of that name), local (this machine) or ssh://[USER@]HOST[:PORT]" in said


def test_every_group_of_components_is_explained(capsys):
    explained = shown(capsys, "payload", "get").partition("Components for: ")[2]
    assert [name for name in OF_COMPONENTS if f"{name} (" not in explained] == []


@pytest.mark.parametrize("context", GROUPS)
def test_every_document_that_a_help_names_exists(context):
    assert isinstance(context.command, click.Group)
    commands = [context.command.get_command(context, name) for name in context.command.list_commands(context)]
    helps = [one.get_help(click.Context(one, parent=context, terminal_width=1000)) for one in commands if one]
    named = set(re.findall(r"\bdocs/[\w.-]*\w", "".join(helps)))
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    assert named or context.command_path not in ("autarky", "autarky backup", "autarky upgrade")
