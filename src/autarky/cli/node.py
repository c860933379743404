"""`autarky node`: add, remove and list the nodes of a cluster.

Contract: a cluster has a file of its own (`cluster.json` in its directory), which `-f FILE` replaces at each `up`.
These commands change that one. Users who keep a FILE of their own must change that as well; a message says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky import places
from autarky.cli.options import HOST_FORMS, cluster_options, dry_run_option, output_option, yes_option
from autarky.cli.say import say
from autarky.cli.session import run_async, run_phases
from autarky.errors import Problems, UserError

if TYPE_CHECKING:
    from autarky.model.cluster import Cluster, Node
    from autarky.phases.context import Context

_HEADINGS = ("NODE", "HOST", "ADDRESS", "ROLE", "ETCD", "STATE")


@click.group()
def node() -> None:
    """Add, remove and list nodes."""


# --- add ---------------------------------------------------------------------------------------------------


@node.command(short_help="Add a node to the cluster.")
@cluster_options
@click.argument("name")
@click.option("--host", required=True, metavar="HOST", help=f"The machine: {HOST_FORMS}.")
@click.option("--control-plane", is_flag=True, help="Make it a control node, with an etcd member.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label for the Node (repeatable).")
@output_option
@dry_run_option
def add(
    file: Path | None,
    cluster: str | None,
    name: str,
    host: str,
    control_plane: bool,
    labels: Sequence[str],
    output: str,
    dry_run: bool,
) -> None:
    """Add a node to the cluster: the same as `autarky up` with one more node in the file."""
    from autarky.cli.up import bring_up

    entry = {
        "name": name,
        "host": host,
        "roles": ["control-plane", "worker"] if control_plane else ["worker"],
        "labels": dict(_pair(label) for label in labels),
    }
    wanted = with_node(_cluster(file, cluster), entry)
    run_async(lambda: bring_up(wanted, output, (), (), dry_run=dry_run, by_file=file is not None))
    if file is not None and not dry_run:
        say(f"{file} does not have node {name}: add it, or the next `up -f` reports an unlisted node", err=True)


def _pair(label: str) -> tuple[str, str]:
    key, equals, value = label.partition("=")
    if not equals:
        raise UserError(f"{label!r} is not a label", fix="write KEY=VALUE")
    return key, value


def with_node(cluster: Cluster, entry: dict[str, Any]) -> Cluster:
    """The cluster with one more node, validated like the file; UserError says what is wrong with it.

    Unchanged if it has exactly that node already, so that an interrupted `add` can be run again.
    """
    name = entry["name"]
    there = next((node for node in cluster.nodes if node.name == name), None)
    try:
        grown = _judged(cluster, f"with node {name}", [*_entries(cluster, without=name), entry])
    except Problems:
        if there is None:
            raise
    else:
        if there is None:
            return grown
        if there == replace(grown.node(name), address=there.address):
            return cluster
    fix = f"see `autarky node list`; to replace it, run `autarky node remove {name}` first"
    raise UserError(f"a different node named {name} already exists, on {there.host}", fix=fix)


def without_node(cluster: Cluster, name: str) -> Cluster:
    """The cluster with one node less, validated like the file, since every later command reads it so; Problems says
    what is wrong with it. Not validated without a control node: that removal is refused as unsafe later."""
    if not any(node.control_plane and node.name != name for node in cluster.nodes):
        return replace(cluster, nodes=tuple(node for node in cluster.nodes if node.name != name))
    return _judged(cluster, f"without node {name}", _entries(cluster, without=name))


def _entries(cluster: Cluster, *, without: str) -> list[dict[str, Any]]:
    from autarky.config import dump

    return [node for node in dump(cluster)["spec"]["nodes"] if node["name"] != without]


def _judged(cluster: Cluster, what: str, nodes: Sequence[dict[str, Any]]) -> Cluster:
    """The cluster with these nodes, if the rules of the file allow them."""
    import json

    from autarky.config import dump, loads
    from autarky.payload import default_version, known_versions

    document = dump(cluster)
    document["spec"]["nodes"] = nodes
    where = f"the cluster {cluster.name} {what}"
    return loads(json.dumps(document), where, default_version=default_version(), known_versions=known_versions())


# --- remove --------------------------------------------------------------------------------------------------


@node.command(short_help="Remove a node from the cluster.")
@cluster_options
@click.argument("name")
@click.option("--dead", is_flag=True, help="The machine is permanently gone: do not contact its host.")
@click.option("--drain", is_flag=True, help="Drain the node first, respecting disruption budgets.")
@click.option("--purge", is_flag=True, help="Delete the etcd data and CA keys on its host instead of keeping them.")
@output_option
@dry_run_option
@yes_option
def remove(
    file: Path | None,
    cluster: str | None,
    name: str,
    dead: bool,
    drain: bool,
    purge: bool,
    output: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove a node from the cluster: its roles, its etcd member, the files on its host, its API objects.

    Refused if etcd would lose its quorum, for the last control node, and with --dead while the node still answers
    (a worker: while its host does). A worker's membership is revoked first. Never start a machine again
    that was removed with --dead: it still has the cluster's keys.
    """
    from autarky.cli.options import confirm

    found = _cluster(file, cluster)
    if not dry_run:
        confirm(f"Take node {name} out of the cluster {found.name}?", yes=yes)
    by_file = file is not None
    run_async(
        lambda: _remove(found, name, output, dead=dead, drain=drain, purge=purge, dry_run=dry_run, by_file=by_file)
    )
    if dry_run:
        return
    if dead:
        say(f"never start the machine of {name} again before its disk is wiped", err=True)
    if file is not None and any(each.name == name for each in found.nodes):
        say(f"{file} still has node {name}: take it out, or the next `up -f` joins it again", err=True)


async def _remove(
    found: Cluster, name: str, output: str, *, dead: bool, drain: bool, purge: bool, dry_run: bool, by_file: bool
) -> None:
    from autarky.cli.wiring import build_context
    from autarky.phases.members import with_remembered
    from autarky.phases.removal import known_node
    from autarky.workflows.remove import phases

    everything = with_remembered(found, places.cluster_dir(found.name))
    context = build_context(everything, gone=[name] if dead else [])
    workers = [node.name for node in everything.workers]
    try:
        gone = known_node(context, name)
        write = prepare_removal(context, found, gone, by_file=by_file)
        await run_phases(
            "node remove",
            f"node {name} of cluster {found.name}",
            phases(gone, dead=dead, drain=drain, purge=purge, write=write),
            context,
            output=output,
            dry_run=dry_run,
            directory=context.directory,
            hosts_locked=partial(context.machines.locked, passes_workers=workers),
        )
    finally:
        await context.close()


def prepare_removal(context: Context, found: Cluster, gone: Node, *, by_file: bool) -> Callable[[], None] | None:
    """Tell the phases about the files. Returns what writes the cluster's own file without the node; None if it does not
    have the node. by_file: `found` is from a FILE that the user named, which may say anything about the other nodes."""
    from autarky.config import dump
    from autarky.phases import kept_file
    from autarky.render.values import pretty_json

    own = _own_file(context) if by_file else found
    context.document = dump(_without(found, gone))
    context.known = None if by_file else kept_file.known(context)
    if own is None or all(node.name != gone.name for node in own.nodes):
        return None
    left = pretty_json(dump(_without(own, gone)))
    return lambda: kept_file.take_out(context.directory, gone.name, left)


def _own_file(context: Context) -> Cluster | None:
    from autarky.phases import kept_file

    path = context.directory / kept_file.NAME
    return _cluster(path, None) if path.exists() else None


def _without(found: Cluster, gone: Node) -> Cluster:
    return without_node(found, gone.name) if any(node.name == gone.name for node in found.nodes) else found


# --- list ----------------------------------------------------------------------------------------------------


@node.command("list", short_help="List the nodes of the file and of the cluster.")
@cluster_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def list_nodes(file: Path | None, cluster: str | None, output: str) -> None:
    """List the nodes of the file and of the cluster: machine, address, role, etcd member, state."""
    import json

    from autarky.ui.tables import columns

    rows = run_async(lambda: _rows(_cluster(file, cluster, any_release=True)))
    if output == "json":
        say(json.dumps([dict(zip(map(str.lower, _HEADINGS), row, strict=True)) for row in rows], indent=2))
        return
    say("\n".join(columns([_HEADINGS, *rows])))


async def _rows(found: Cluster) -> list[tuple[str, ...]]:
    from autarky.cli.wiring import build_context
    from autarky.status.nodes import gather

    context = build_context(found)
    try:
        return [(row.name, row.host, row.address, row.role, row.etcd, row.state) for row in await gather(context)]
    finally:
        await context.close()


def _cluster(file: Path | None, name: str | None, *, any_release: bool = False) -> Cluster:
    from autarky.cli.wiring import load_cluster

    return load_cluster(file, name, any_release=any_release)
