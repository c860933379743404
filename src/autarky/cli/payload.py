"""`autarky payload`: the components of a release, in the store on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from autarky.cli.options import output_option
from autarky.cli.session import operation, run_async
from autarky.errors import UserError
from autarky.model.versions import Version


@click.group()
def payload() -> None:
    """Get, list and check the components of a release."""


def _versions(texts: Sequence[str]) -> list[Version]:
    from autarky.payload import default_version

    try:
        return [Version.parse(text) for text in texts] or [default_version()]
    except ValueError as error:
        raise UserError(str(error), fix="write it as 1.36.4") from error


@payload.command()
@click.argument("versions", nargs=-1, metavar="[VERSION]...")
@click.option(
    "--group",
    "groups",
    multiple=True,
    type=click.Choice(["cluster", "test", "bench", "conformance"]),
    help="What for: cluster (what `up` needs), test, bench, conformance. Default: cluster and test.",
)
@output_option
def get(versions: Sequence[str], groups: Sequence[str], output: str) -> None:
    """Get components from the store in a moment, else build them (minutes, once)."""
    groups = groups or ("cluster", "test")
    run_async(lambda: _get(_versions(versions), groups, output))
    if output != "json":
        for version in _versions(versions):
            click.echo(_table(version, groups))


async def _get(versions: Sequence[Version], groups: Sequence[str], output: str) -> None:
    from autarky.payload import get_payload, load_release

    for version in versions:
        async with operation(f"get the components of Kubernetes {version}", output) as progress:
            await get_payload(load_release(version), progress, groups=groups)


@payload.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def list_(output: str) -> None:
    """What the store holds of each known release."""
    from autarky.payload import known_versions

    if output == "json":
        click.echo(json.dumps([row for version in known_versions() for row in _rows(version)], indent=2))
        return
    for version in known_versions():
        click.echo(_table(version))


def _rows(version: Version) -> list[dict[str, object]]:
    from autarky.payload import load_release, stored_artefacts

    return [{"release": str(version), **asdict(artefact)} for artefact in stored_artefacts(load_release(version))]


def _table(version: Version, groups: Sequence[str] = ()) -> str:
    """Of those groups, or of all."""
    lines = [f"{'RELEASE':9}{'KIND':8}{'NAME':25}{'VERSION':20}{'GROUP':12}{'SIZE':>9}  SHA256"]
    for row in _rows(version):
        if groups and row["group"] not in groups:
            continue
        size = f"{int(str(row['size'])) / 1e6:.1f} MB" if row["sha256"] else "-"
        digest = str(row["sha256"] or "not in the store")[:16]
        lines.append(
            f"{row['release']:9}{row['kind']:8}{row['name']:25}{row['version']:20}{row['group']:12}{size:>9}  {digest}"
        )
    return "\n".join(lines)


@payload.command()
@output_option
def verify(output: str) -> None:
    """Read every blob of the store and compare it with its digest; damaged ones are removed."""
    damaged = run_async(lambda: _verify(output))
    if damaged:
        short = ", ".join(digest[:16] for digest in damaged)
        raise UserError(f"{len(damaged)} damaged: {short}", fix="autarky payload get (they were removed)")
    click.echo("every blob of the store is what its name says")


async def _verify(output: str) -> list[str]:
    from autarky.payload import verify_store

    async with operation("verify the store", output) as progress:
        return await verify_store(progress)


@payload.command()
@output_option
def prune(output: str) -> None:
    """Remove what no known release needs any more: older builds, layers, image directories of labs."""
    freed = run_async(lambda: _prune(output))
    click.echo(f"freed {freed / 1e6:.0f} MB")


async def _prune(output: str) -> int:
    from autarky.payload import prune_store

    async with operation("prune the store", output) as progress:
        return await prune_store(progress)


@payload.command()
@click.argument("version")
@click.option("--cluster", metavar="NAME", help="The cluster; default: the only one there is.")
@output_option
def push(version: str, cluster: str | None, output: str) -> None:
    """Put the images of a release on every node, so that `kubectl set image` works with no registry."""
    run_async(lambda: _push(_versions([version])[0], cluster, output))
    click.echo(f"the images of Kubernetes {version.removeprefix('v')} are on every node")


async def _push(version: Version, name: str | None, output: str) -> None:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.payload import get_payload, load_release
    from autarky.phases.prepare import push_images

    context = build_context(load_cluster(None, name))
    try:
        async with operation(f"push Kubernetes {version} to every node", output) as progress:
            pushed = await get_payload(load_release(version), progress)
            await push_images(context, pushed, progress)
    finally:
        await context.close()
