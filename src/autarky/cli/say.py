"""Output for people: every sentence that quotes hosts, nodes, logs or answers goes through here.

Contract: quoted text cannot control the terminal. Newlines stay, so foreign text that must not start a line has to go
through `one_line`, `sentence` or `columns`. Programs read JSON, which has everything, as ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping

import click


def say(text: str, *, err: bool = False) -> None:
    """On standard output, or error."""
    from autarky.ui.text import printable

    click.echo(printable(text), err=err)


def of_nodes(said: Mapping[str, str]) -> str:
    """ "node n2: no answer; node n3: …", on one line, since some of it is quoted from hosts."""
    from autarky.ui.text import sentence

    return "; ".join(f"node {name}: {sentence(why)}" for name, why in said.items())
