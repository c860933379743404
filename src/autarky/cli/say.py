"""What commands tell people: the one way out for sentences that have words of hosts, nodes, logs or answers in them.

Contract: whoever wrote these words commands no terminal by them. Newlines stay, so that a foreign word that must not
begin a line is given through `one_line`, `sentence` or `columns`. Programs read JSON, which has everything, as ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping

import click


def say(text: str, *, err: bool = False) -> None:
    """On standard output, or error."""
    from autarky.ui.text import printable

    click.echo(printable(text), err=err)


def of_nodes(said: Mapping[str, str]) -> str:
    """ "node n2: no answer; node n3: …", on one line: some of it is the hosts' own words."""
    from autarky.ui.text import sentence

    return "; ".join(f"node {name}: {sentence(why)}" for name, why in said.items())
