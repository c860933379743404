"""`autarky schema`: the JSON Schema of the cluster file, for editors and checks."""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of the cluster file.

    YAML editors can check and complete a file that starts with
    `# yaml-language-server: $schema=PATH`.
    """
    from autarky.config import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
