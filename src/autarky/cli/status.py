"""`autarky status` and `autarky logs`: what runs where, and its logs; both work with the API down."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import cluster_options
from autarky.cli.say import say
from autarky.cli.session import run_async
from autarky.errors import AutarkyError, UserError
from autarky.model.cluster import Level
from autarky.model.components import COMPONENTS

if TYPE_CHECKING:
    from autarky.model.cluster import Node
    from autarky.phases.context import Context
    from autarky.status.look import Row, Status

WATCH_SECONDS = 2.0
_HEADINGS = ("LEVEL", "COMPONENT", "NODE", "SLOT", "VERSION", "HEALTH", "DETAIL")
_LOG = re.compile(r"/var/log/pods/kube-system_[^/]+/[^/]+/[^/]+\.log")
"""The path comes from a host, which may say anything."""


@click.command()
@cluster_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
@click.option("-w", "--watch", is_flag=True, help="Refresh every two seconds until interrupted.")
def status(file: Path | None, cluster: str | None, output: str, watch: bool) -> None:
    """Show levels 0-4 with the slot, version and health of each component on each node.

    Exits with 1 if something is not healthy.
    """
    while watch:
        found = run_async(lambda: _status(file, cluster))
        click.clear()  # does nothing if standard output is not a terminal
        say(json.dumps(found.as_dict()) if output == "json" else table(found))
        time.sleep(WATCH_SECONDS)
    found = run_async(lambda: _status(file, cluster))
    say(json.dumps(found.as_dict(), indent=2) if output == "json" else table(found))
    if not found.healthy:
        raise SystemExit(1)


async def _status(file: Path | None, name: str | None) -> Status:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.status.look import gather

    context = build_context(load_cluster(file, name, any_release=True))
    try:
        return await gather(context)
    finally:
        await context.close()


def table(found: Status) -> str:
    """The status as aligned columns."""
    from autarky.ui.tables import columns
    from autarky.ui.text import one_line

    rows = [
        (str(row.level), row.component, row.node, row.slot, row.version, row.health, _detail(row)) for row in found.rows
    ]
    head = f"cluster {found.cluster}  Kubernetes {found.version}  self-hosted {found.self_hosted}"
    absent = [f"node {name} does not answer: {why}" for name, why in found.absent.items()]
    unseen = [f"not all pods could be looked at: {found.unseen}"] if found.unseen else []
    sentences = [f"{head}  API: {one_line(found.api)}", *map(one_line, [*absent, *unseen, *_certificates(found)])]
    return "\n".join([*sentences, "", *columns([_HEADINGS, *rows])])


def _detail(row: Row) -> str:
    return "; ".join(filter(None, (row.detail, row.change)))


def _certificates(found: Status) -> list[str]:
    """What is wrong with certificates; otherwise which one expires first."""
    if found.overdue:
        return list(found.overdue)
    ends = [(end, name, node) for node, reported in found.certificates.items() for name, end in reported.items()]
    if not ends:
        return []
    end, name, node = min(ends)
    return [f"certificates renew themselves; the first to expire: {name} on {node}, {end}"]


@click.command()
@cluster_options
@click.argument("component", type=click.Choice(COMPONENTS))
@click.option("--node", metavar="NAME", help="Only this node; default: all nodes that run it.")
@click.option("--tail", default=100, show_default=True, metavar="LINES", help="How many lines from the end.")
def logs(file: Path | None, cluster: str | None, component: str, node: str | None, tail: int) -> None:
    """Show the end of a component's log on each node. Reads it on the hosts, so it works with the API down too."""
    run_async(lambda: _logs(file, cluster, component, node, tail))


async def _logs(file: Path | None, name: str | None, component: str, only: str | None, tail: int) -> None:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.ui.text import one_line

    context = build_context(load_cluster(file, name, any_release=True))
    try:
        nodes = _chosen(context, only)
        found = False
        for node in nodes:
            for title, text in await _read(context, node, component, tail):
                found = True
                say(f"==> {one_line(title)} on {node.name} <==\n{text}")
    finally:
        await context.close()
    if not found:
        raise UserError(
            f"no log of {component} on {', '.join(n.name for n in nodes)}",
            fix="see `autarky status` for what runs where",
        )


def _chosen(context: Context, only: str | None) -> Sequence[Node]:
    nodes = [node for node in context.cluster.nodes if only in (None, node.name)]
    if not nodes:
        names = ", ".join(node.name for node in context.cluster.nodes)
        raise UserError(f"there is no node {only}", fix=f"its nodes are: {names}")
    return nodes


async def _read(context: Context, node: Node, component: str, tail: int) -> list[tuple[str, str]]:
    """(title, text) of each log of the component on the node: the newest file of each of its containers, and of what
    is a unit of the host its journal."""
    host = context.machines.host(node.name)
    if host is None:
        raise UserError(f"the machine of node {node.name} is not running", fix="power it on, then try again")
    found = []
    if COMPONENTS[component].level is Level.KUBELET:
        journal = await host.run(["journalctl", "-u", component, "-n", str(tail), "--no-pager", "-o", "cat"])
        found.append((component, journal.text))
    script = 'for log in $(ls -tr /var/log/pods/kube-system_"$1"-*/*/*.log 2>/dev/null); do echo "$log"; done'
    paths = (await host.run(["sh", "-c", script, "sh", component])).text.splitlines()
    newest = {path.rsplit("/", 1)[0]: path for path in paths if _LOG.fullmatch(path)}
    try:
        return found + [
            (path.split("_")[1], (await host.run(["tail", "-n", str(tail), path])).text) for path in newest.values()
        ]
    except AutarkyError as error:
        raise UserError(f"the log disappeared while it was read: {error}", fix="try again") from error
