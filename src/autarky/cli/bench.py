"""`autarky bench`: measure what a client notices."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky.cli.options import cluster_option
from autarky.cli.session import run_async
from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.probe import Rates, Report, Target


@click.group()
def bench() -> None:
    """Measure what a client notices."""


@bench.command(context_settings={"allow_interspersed_args": False})
@cluster_option
@click.option("--kubeconfig", type=click.Path(path_type=Path, exists=True), help="Another cluster's kubeconfig.")
@click.option("--duration", default=30.0, show_default=True, metavar="SECONDS", help="How long, without a COMMAND.")
@click.option("--rate", default=70.0, show_default=True, metavar="PER-SECOND", help="All requests together.")
@click.option("-o", "--output", type=click.Choice(["line", "json"]), default="line", help="How to print the result.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def probe(
    cluster: str | None, kubeconfig: Path | None, duration: float, rate: float, output: str, command: tuple[str, ...]
) -> None:
    """Probe the API with new and kept-alive connections, writes and a watch; say what failed.

    With a COMMAND it runs that and probes until it ends: `autarky bench probe -- kubectl …`. Exits with 0
    when nothing failed, with 1 when something did.
    """
    from autarky.cli.kube import kubeconfig_path
    from autarky.probe import Rates

    target = read_target(kubeconfig or kubeconfig_path(None, cluster))
    rates = Rates(new=rate * 2 / 7, kept=rate * 4 / 7, write=rate / 7)
    report, status = run_async(lambda: _probe(target, rates, duration, command))
    if output == "json":
        click.echo(json.dumps({**report.as_dict(), "command_status": status}, indent=2))
    else:
        for failure in report.failures[:50]:
            click.echo(
                f"{failure.time:.3f} {failure.stream}: {failure.kind} {failure.detail} ({failure.dialled})", err=True
            )
        if status:
            click.echo(f"the command ended with status {status}", err=True)
        click.echo(report.verdict)
    if report.failed:
        raise SystemExit(1)


async def _probe(target: Target, rates: Rates, duration: float, command: tuple[str, ...]) -> tuple[Report, int | None]:
    from autarky.probe import Probe

    status = None
    async with Probe(target, rates=rates) as running:
        if command:
            process = await asyncio.create_subprocess_exec(*(command[1:] if command[0] == "--" else command))
            status = await process.wait()
        else:
            await asyncio.sleep(duration)
    return running.report, status


def read_target(path: Path) -> Target:
    """The server and the identity of a kubeconfig's current context; data or files, certificates or a token."""
    import yaml

    from autarky.net.tls import client_context
    from autarky.probe import Target

    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        ca = _pem(path, cluster, "certificate-authority")
        certificate, key = _pem(path, user, "client-certificate"), _pem(path, user, "client-key")
        tls: ssl.SSLContext = client_context(ca, certificate, key)
    except (KeyError, TypeError, StopIteration, ValueError, OSError, ssl.SSLError, yaml.YAMLError) as error:
        raise UserError(
            f"cannot use this kubeconfig: {type(error).__name__} {error}",
            where=str(path),
            fix="give one with a client certificate, such as `autarky kubeconfig` prints",
        ) from error
    return Target(cluster["server"], tls)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _pem(path: Path, entry: dict[str, Any], key: str) -> bytes:
    """Embedded, or in a file relative to the kubeconfig."""
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    return Path(path.parent, entry[key]).read_bytes()
