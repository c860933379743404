"""`autarky completion`: shell completion of commands, options and cluster names."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  source <(autarky completion bash)
    zsh:   source <(autarky completion zsh)
    fish:  autarky completion fish | source
    """
    from click.shell_completion import get_completion_class

    from autarky.cli.main import COMPLETE_VARIABLE, cli

    kind = get_completion_class(shell)
    if kind is None:
        raise TypeError(f"click completes no {shell}")
    click.echo(kind(cli, {}, "autarky", COMPLETE_VARIABLE).source())
