"""`autarky doctor`: what is wrong, in order of cause."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import cluster_options
from autarky.cli.say import say
from autarky.cli.session import run_async

if TYPE_CHECKING:
    from autarky.doctor.diagnosis.finding import Finding


LONGEST = 2_000
"""Characters of one line. JSON has more."""


@click.command()
@cluster_options
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
def doctor(file: Path | None, cluster: str | None, output: str) -> None:
    """Diagnose the cluster: list what is wrong, causes before effects, with the evidence and the next command to run.

    Read-only. Works with the API up, half up or down. Exits with 1 if something is wrong.
    """
    findings = run_async(lambda: _examine(file, cluster))
    if output == "json":
        say(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        say(as_text(findings))
    if findings:
        raise SystemExit(1)


async def _examine(file: Path | None, name: str | None) -> list[Finding]:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.doctor.diagnosis import diagnose
    from autarky.doctor.evidence import evidence

    context = build_context(load_cluster(file, name, any_release=True))
    try:
        return diagnose(await evidence(context))
    finally:
        await context.close()


def as_text(findings: list[Finding]) -> str:
    from autarky.ui.text import cut, one_line

    if not findings:
        return "nothing is wrong"
    lines = []
    for number, one in enumerate(findings, 1):
        said = (f"{one.subject}: {one.what}", one.evidence, one.next)
        what, evidence, then = (cut(one_line(words), LONGEST) for words in said)
        lines += [f"{number}. {what}", f"   seen: {evidence}", f"   next: {then}"]
    return "\n".join(lines)
