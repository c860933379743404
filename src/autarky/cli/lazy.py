"""A click group whose commands are imported when they are called, not before.

Contract: help, completion and the suggestion of near names come from the table alone, so that they are
fast, and work when the module of some command cannot be imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is ("package.module:attribute"), and its line in the help."""

    target: str
    help: str


class LazyGroup(click.Group):
    """See the module's contract. `table`: heading → name → command, in the order of the help."""

    def __init__(self, *args: Any, table: Mapping[str, Mapping[str, LazyCommand]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table
        self.lazy = {name: command for section in table.values() for name, command in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # as click has it
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # as click has it
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.lazy[cmd_name].target} is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=list(self.lazy), ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # as click has it
        width = max(len(name) for name in self.lazy)
        for heading, section in self.table.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", command.help) for name, command in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=command.help)
            for name, command in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]
