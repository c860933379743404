"""The command line of `autarky upgrade`: a version, with options of its own, or a command."""

from __future__ import annotations

from typing import Any

import click

_COMMANDS = ["check", "status", "pause", "resume", "abort", "rollback"]


class ToVersion(click.Command):
    """What is done with a version. Its options come after it: before it they would be the group's, which has none."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # as click has it
        """By the group's name: the version, which leads here, is in the place of a command's name."""
        formatter.write_usage((ctx.parent or ctx).command_path, "VERSION [OPTIONS]")


class VersionOrCommand(click.Group):
    """A version in the place of a subcommand is what to upgrade to. What has no lower-case letters counts as one, so
    that a mistyped version is reported as that. to_version: the command that is called with it."""

    def __init__(self, *args: Any, to_version: click.Command, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.to_version = to_version

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # as click has it
        is_version = cmd_name.lstrip("v")[:1].isdigit() or cmd_name.isupper()
        return self.to_version if is_version else super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:  # as click has it
        name, command, rest = super().resolve_command(ctx, args)
        return (name, command, args) if command is self.to_version else (name, command, rest)

    def list_commands(self, ctx: click.Context) -> list[str]:  # as click has it
        return list(_COMMANDS)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # as click has it
        """The version's as well: no command is listed whose help would have them."""
        super().format_options(ctx, formatter)
        own = [one for one in self.to_version.params if isinstance(one, click.Option)]
        records = [record for one in own if (record := one.get_help_record(ctx)) is not None]
        with formatter.section(f"Options of {ctx.command_path} VERSION"):
            formatter.write_dl(records)
