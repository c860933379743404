"""`autarky payload etcd`: versions of etcd other than that of a Kubernetes release, in the store and on the nodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import cluster_options, dry_run_option, output_option
from autarky.cli.say import of_nodes, say
from autarky.cli.session import operation, run_async, run_phases
from autarky.errors import Unreachable, UserError
from autarky.model.versions import Version

if TYPE_CHECKING:
    from autarky.model.cluster import Cluster

_HEADINGS = ("ETCD", "KIND", "NAME", "SIZE", "SHA256")


@click.group(short_help="Get and push versions of etcd other than that of a release.")
def etcd() -> None:
    """Get and push other versions of etcd than the one of a Kubernetes release."""


def _version(text: str) -> Version:
    """UserError also where this autarky does not know it, before anything is built or asked."""
    from autarky.payload import load_etcd

    try:
        version = Version.parse(text)
    except ValueError as error:
        raise UserError(str(error), fix="write it as 3.7.3") from error
    load_etcd(version)
    return version


# --- the store -----------------------------------------------------------------------------------------


@etcd.command("list", short_help="List the known versions of etcd.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def list_(output: str) -> None:
    """List the versions of etcd that this autarky knows and whether the store has them."""
    from autarky.payload import known_etcd_versions

    versions = known_etcd_versions()
    if output == "json":
        say(json.dumps([row for version in versions for row in _rows(version)], indent=2))
        return
    say(_table(versions))


@etcd.command(short_help="Get VERSIONs of etcd; build what is missing.")
@click.argument("versions", nargs=-1, required=True, metavar="VERSION...")
@output_option
def get(versions: Sequence[str], output: str) -> None:
    """Make sure that these VERSIONs of etcd are in the store: programs and image. What is missing is built."""
    wanted = [_version(text) for text in versions]
    run_async(lambda: _get(wanted, output))
    if output != "json":
        say(_table(wanted))


async def _get(versions: Sequence[Version], output: str) -> None:
    from autarky.payload import get_payload, load_etcd

    for version in versions:
        async with operation(f"get etcd {version}", output) as progress:
            await get_payload(load_etcd(version), progress)


def _rows(version: Version) -> list[dict[str, object]]:
    """As `payload list` has them, with the version of etcd instead of the release and the group."""
    from autarky.payload import load_etcd, stored_artefacts

    fields = ("kind", "name", "sha256", "size")
    found = map(asdict, stored_artefacts(load_etcd(version)))
    return [{"etcd": str(version), **{name: row[name] for name in fields}} for row in found]


def _table(versions: Sequence[Version]) -> str:
    from autarky.ui.tables import columns

    rows = [_cells(row) for version in versions for row in _rows(version)]
    return "\n".join(columns([_HEADINGS, *rows], right=[_HEADINGS.index("SIZE")]))


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    size = f"{int(str(row['size'])) / 1e6:.1f} MB" if row["sha256"] else "-"
    digest = str(row["sha256"] or "not in the store")[:16]
    return (*(str(row[name]) for name in ("etcd", "kind", "name")), size, digest)


# --- the nodes -----------------------------------------------------------------------------------------


@etcd.command(short_help="Put etcd VERSION on every node.")
@click.argument("version")
@cluster_options
@output_option
@dry_run_option
def push(version: str, file: Path | None, cluster: str | None, output: str, dry_run: bool) -> None:
    """Put etcd VERSION on every node: its image, and etcd, etcdctl and etcdutl where they are older.

    Every node gets it, since a label makes any node a control node. No member is restarted: the version of a cluster's
    members is `spec.etcd.version` of its ControlPlane.
    """
    from autarky.cli.wiring import load_cluster

    wanted = _version(version)
    found = load_cluster(file, cluster)
    absent = run_async(lambda: _push(wanted, found, output, dry_run=dry_run))
    left_out = of_nodes(absent)
    if left_out and dry_run:
        say(f"planned without these nodes: {left_out}", err=True)
    elif left_out:
        raise Unreachable(
            f"etcd {wanted} is on every other node, but nodes were left out: {left_out}\n"
            "  fix: run the command again when that is fixed"
        )
    if output != "json" and not dry_run:
        say(f"etcd {wanted} is on every node")


async def _push(version: Version, found: Cluster, output: str, *, dry_run: bool) -> dict[str, str]:
    """Returns the nodes that were left out, with the reasons."""
    from autarky.cli.wiring import build_context
    from autarky.phases.other_etcd import BringEtcd, FindNodes

    context = build_context(found)
    try:
        await run_phases(
            "payload etcd push",
            f"etcd {version} on the nodes of cluster {found.name}",
            (FindNodes(), BringEtcd(version)),
            context,
            directory=context.directory,
            output=output,
            dry_run=dry_run,
            hosts_locked=context.machines.locked,
        )
        return context.absent
    finally:
        await context.close()
