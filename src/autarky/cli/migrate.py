"""`autarky etcd migrate`: move etcd into the cluster, or out of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import confirm, dry_run_option, file_option, output_option, yes_option
from autarky.cli.session import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from autarky.model.cluster import Cluster
    from autarky.ports import Host

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@file_option
@output_option
@dry_run_option
@yes_option
@click.option("--peer-cert", type=_FILE, metavar="FILE", help="Into the cluster, from an etcd with another CA.")
@click.option("--peer-key", type=_FILE, metavar="FILE", help="Its key.")
@click.option("--peer-ca", type=_FILE, metavar="FILE", help="That CA.")
def migrate(
    file: Path | None,
    output: str,
    dry_run: bool,
    yes: bool,
    peer_cert: Path | None,
    peer_key: Path | None,
    peer_ca: Path | None,
) -> None:
    """Move etcd into the cluster, or out of it, while the API serves.

    -f FILE: the cluster file with etcd in its new place: with spec.etcd.external, or without it. The members there
    join, the API servers are rolled to use them, and then those in the old place leave; nothing is copied, and no
    revision is lost. Run it again to resume, also in the other direction.

    Into the cluster, from an etcd of yours with another CA: --peer-cert is a certificate of that CA, for servers and
    clients, with the addresses of all control nodes. They join with it, and have their own at the end.
    """
    given = [one for one in (peer_cert, peer_key, peer_ca) if one is not None]
    if len(given) not in (0, 3):
        raise click.UsageError("Give --peer-cert, --peer-key and --peer-ca together.")
    of_peers = tuple(one.read_bytes() for one in given)
    if file is None:
        raise click.UsageError("Give the cluster file with etcd in its new place: -f FILE.")
    run_async(lambda: _migrate(file, output, of_peers, dry_run=dry_run, yes=yes))


async def _migrate(file: Path, output: str, of_peers: tuple[bytes, ...], *, dry_run: bool, yes: bool) -> None:
    from autarky.cli.up import bring_up
    from autarky.cli.wiring import load_cluster
    from autarky.model.cluster import Level
    from autarky.phases.migration.looking import Migration, Peers
    from autarky.workflows.migrate import inwards, outwards

    wanted = load_cluster(file, None)
    former = _former(wanted)
    if former is not None:
        into = wanted.external_etcd is None
        if not dry_run:
            confirm(f"Move etcd of cluster {wanted.name} {'into' if into else 'out of'} the cluster?", yes=yes)
        apart = max(wanted.self_hosted, Level.API_SERVER)
        if not into and former.self_hosted < apart and not dry_run:
            # The members stay where they are, and are no longer changed by the agents.
            await bring_up(replace(former, self_hosted=apart), output, (), (), dry_run=False, by_file=True)
        migration = Migration(_host_outside(former), Peers(*of_peers) if of_peers else None)
        phases = inwards(migration) if into else outwards(migration)
        await bring_up(
            replace(wanted, self_hosted=apart),
            output,
            (),
            (),
            dry_run=dry_run,
            by_file=True,
            phases=phases,
            command="etcd migrate",
            moves_etcd=True,
        )
        if dry_run or apart == wanted.self_hosted:
            return
    await bring_up(wanted, output, (), (), dry_run=dry_run, by_file=True)


def _former(wanted: Cluster) -> Cluster | None:
    """The cluster as it was applied last, if its etcd is in the other place, or may not have left it yet."""
    from autarky import places
    from autarky.config import loads
    from autarky.control.cluster_file.decide.records import etcd_is_outside_in
    from autarky.errors import UserError
    from autarky.model.defaults import had
    from autarky.payload import default_version, versions_of_files
    from autarky.phases import kept_file

    applied = kept_file.applied(places.cluster_dir(wanted.name))
    if not any(isinstance(document, dict) for document in applied):
        raise UserError(
            f"this machine knows no cluster {wanted.name}", fix="fetch its state with `autarky login`, and run it again"
        )
    outside = wanted.external_etcd is not None
    found = next((one for one in applied if etcd_is_outside_in(one) is (not outside)), None)
    if found is None:
        return None
    return loads(
        json.dumps(found),
        f"the file that cluster {wanted.name} was brought up with",
        default_version=default_version(),
        known_versions=versions_of_files(),
        founded=lambda _: had(found),
    )


def _host_outside(former: Cluster) -> Callable[[], Host | None]:
    """The test host of the etcd that the cluster leaves."""
    from autarky.cli.wiring import build_context

    node = former.etcd_host
    if node is None:
        return lambda: None
    machines = build_context(former).machines
    return lambda: machines.host(node.name)
