"""`autarky login`: work on a cluster that another machine brought up, also when that machine is lost."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky import places
from autarky.cli.options import file_option, output_option
from autarky.cli.session import LOCK, run_async, run_phases
from autarky.errors import Problems, Unreachable, UserError

if TYPE_CHECKING:
    from autarky.control.cluster_file.decide.records import Record
    from autarky.model.cluster import Cluster
    from autarky.phases.context import Context
    from autarky.phases.login import Fetched
    from autarky.ports import Host


@click.command()
@click.argument("host", required=False)
@file_option
@click.option(
    "--ssh-config", type=click.Path(exists=True, dir_okay=False, resolve_path=True), help="The ssh_config to use."
)
@output_option
def login(host: str | None, file: Path | None, ssh_config: str | None, output: str) -> None:
    """Fetch a cluster's state from a control node: HOST ([USER@]NAME, ssh://…, local), or one listed in FILE.

    Fetches the cluster file as last applied, and a kubeconfig with an administrator certificate for this machine,
    signed on the control node. The cluster's private keys stay there. Afterwards this machine can do everything
    that the machine can that brought the cluster up.
    """
    if (host is None) == (file is None):
        raise click.UsageError("Name a HOST, or give the cluster file with -f FILE.")
    run_async(lambda: _login(host, file, ssh_config, output))


async def _login(name: str | None, file: Path | None, ssh_config: str | None, output: str) -> None:
    from autarky.cli.wiring import load_cluster

    wanted = load_cluster(file, None, any_release=True) if file is not None else None
    ssh_config = ssh_config or (wanted.ssh_config if wanted is not None else None)
    async with _control_node(name, wanted, ssh_config) as (host, fetched):
        if wanted is not None and wanted.name != fetched.cluster:
            what = f"{file} describes cluster {wanted.name}, but host {host.name} belongs to cluster {fetched.cluster}"
            raise UserError(what)
        found, applied = await _fetch(host, fetched, wanted, ssh_config, output)
    if wanted is not None:  # read again: the defaults of the cluster are known now
        _compare(load_cluster(file, None, any_release=True), applied, file)
    if output != "json":
        click.echo(_how_to_use(found.name))


async def _fetch(
    host: Host, fetched: Fetched, wanted: Cluster | None, ssh_config: str | None, output: str
) -> tuple[Cluster, bytes]:
    """Write into the cluster's directory, under its lock: the cluster, and its file as last applied."""
    from autarky.cli.wiring import connect
    from autarky.engine.lock import exclusive
    from autarky.phases import login
    from autarky.pki import PkiStore
    from autarky.workflows.login import phases

    directory = places.cluster_dir(fetched.cluster)
    pki = PkiStore(directory / "pki")
    await login.refuse_another_ca(pki, fetched)
    record = fetched.record
    if record is None:
        with exclusive(directory / LOCK, "autarky login", now=time.time()):
            await login.sign_administrators(host, pki, fetched.ca, timedelta(days=365))
        record = await login.record_of_the_api(lambda servers, one: connect(directory, servers, one), fetched)
    context = _context(_cluster(record, ssh_config, wanted))
    _take(context, context.cluster, record)
    try:
        await run_phases(
            "login",
            f"cluster {fetched.cluster}",
            phases(host, fetched, lambda newer: _take(context, _cluster(newer, ssh_config, wanted), newer)),
            context,
            output=output,
            directory=directory,
            hosts_locked=lambda _command, _tell: nullcontext(),
        )
    finally:
        await context.close()
    return context.cluster, context.file_content


def _cluster(record: Record, ssh_config: str | None, wanted: Cluster | None) -> Cluster:
    """The cluster of the record, with the settings that belong to this machine, which may not know its release."""
    import json

    from autarky.config import loads
    from autarky.payload import default_version

    where = "the record of the cluster on its control node"
    found = loads(json.dumps(record.file), where, default_version=default_version(), known_versions=None)
    directory = wanted.certificates.ca_directory if wanted is not None else None
    return replace(found, ssh_config=ssh_config, certificates=replace(found.certificates, ca_directory=directory))


def _context(found: Cluster) -> Context:
    from autarky.cli.wiring import build_context

    return build_context(found)


def _take(context: Context, found: Cluster, record: Record) -> None:
    """Put the cluster of the record into the context, with its addresses and initial members, and the nodes that are
    not in the file."""
    from autarky.config import dump
    from autarky.phases.members import nodes_of
    from autarky.render.values import pretty_json

    known = nodes_of(record.nodes)
    members = tuple(
        replace(node, address=known[node.name].address, initial_member=known[node.name].initial_member)
        if node.name in known
        else node
        for node in found.nodes
    )
    context.cluster = replace(found, nodes=members)
    names = {node.name for node in found.nodes}
    context.unlisted = tuple(node for name, node in known.items() if name not in names)
    context.file_content = pretty_json(dump(found))


@asynccontextmanager
async def _control_node(
    name: str | None, wanted: Cluster | None, ssh_config: str | None
) -> AsyncIterator[tuple[Host, Fetched]]:
    """The named host, or the first control node of the file that can sign, and what it says."""
    from autarky.phases.login import fetch

    if name is not None:
        host = _named(name, ssh_config)
        try:
            yield host, await fetch(host)
        finally:
            await host.close()
        return
    assert wanted is not None  # noqa: S101 # for mypy: one of both is given
    context = _context(wanted)
    try:
        yield await _first(context)
    finally:
        await context.close()


def _named(name: str, ssh_config: str | None) -> Host:
    from autarky.hosts import LocalHost, SshHost

    if name == "local":
        return LocalHost(name)
    if name.startswith("lab:"):
        raise UserError("a test host can only be found through its cluster's file", fix="autarky login -f FILE")
    url = name if name.startswith("ssh://") else f"ssh://{name}"
    return SshHost(url.removeprefix("ssh://"), url, sockets=places.state_dir() / "ssh", config=ssh_config)


async def _first(context: Context) -> tuple[Host, Fetched]:
    from autarky.phases.login import fetch

    problems: list[UserError] = []
    # Not the workers: what a worker says about the cluster and its CA proves nothing. A control node that was made by
    # a label is asked only when it is named.
    for node in context.cluster.control_nodes:
        host = context.machines.host(node.name)
        if host is None:
            problems.append(UserError(f"the machine of node {node.name} ({node.host}) is not running"))
            continue
        try:
            return host, await fetch(host)
        except UserError as error:
            problems.append(error)
        except Unreachable as error:
            problems.append(UserError(str(error)))
    raise Problems(f"no host of the cluster {context.cluster.name} could be asked", problems)


def _compare(wanted: Cluster, applied: bytes, file: Path | None) -> None:
    """Warn if the file is not the one that was applied last."""
    import json

    from autarky.config import dump
    from autarky.render.cluster_record import portable

    if portable(dump(wanted)) != portable(json.loads(applied)):
        click.echo(
            f"{file} is not what was applied last; see `autarky plan -f {file}`, and {places.cluster_dir(wanted.name)}"
            "/cluster.json for that",
            err=True,
        )


def _how_to_use(name: str) -> str:
    return f"cluster {name} is known here: {places.cluster_dir(name)}\n\n  autarky status --cluster {name}"
