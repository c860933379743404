"""`autarky etcd migrate`: move etcd into the cluster, or out of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky.cli.options import confirm, dry_run_option, file_option, output_option, yes_option
from autarky.cli.say import say
from autarky.cli.session import run_async
from autarky.cli.up import ignore_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autarky.model.cluster import Cluster
    from autarky.ports import Host

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Move etcd into the cluster, or out of it.")
@file_option
@output_option
@ignore_option
@dry_run_option
@yes_option
@click.option("--peer-cert", type=_FILE, metavar="FILE", help="Into the cluster, from an etcd with another CA.")
@click.option("--peer-key", type=_FILE, metavar="FILE", help="Its key.")
@click.option("--peer-ca", type=_FILE, metavar="FILE", help="That CA.")
@click.option("--copy", is_flag=True, help="Into the cluster, where members cannot join: with a pause.")
def migrate(
    file: Path | None,
    output: str,
    ignore: Sequence[str],
    dry_run: bool,
    yes: bool,
    peer_cert: Path | None,
    peer_key: Path | None,
    peer_ca: Path | None,
    copy: bool,
) -> None:
    """Move etcd into the cluster, or out of it, while the API serves.

    -f FILE: the cluster file with etcd in its new place: with spec.etcd.external, or without it. The members there
    join, the API servers are rolled to use them, and then those in the old place leave; nothing is copied, and no
    revision is lost. Run it again to resume, also in the other direction.

    Into the cluster, from an etcd of yours with another CA: --peer-cert is a certificate of that CA, for servers and
    clients, with the addresses of all control nodes. They join with it, and have their own at the end.

    Into the cluster, from an etcd of another minor version, or of a CA that gives no such certificate: --copy. The API
    does not answer meanwhile, some 15 s with a small database; --dry-run says how long. If it cannot be completed in
    time, it goes back by itself. Run the same command again if it was interrupted.
    """
    given = [one for one in (peer_cert, peer_key, peer_ca) if one is not None]
    if len(given) not in (0, 3):
        raise click.UsageError("Give --peer-cert, --peer-key and --peer-ca together.")
    if copy and given:
        raise click.UsageError("With --copy no members join: --peer-cert is of no use.")
    of_peers = tuple(one.read_bytes() for one in given)
    if file is None:
        raise click.UsageError("Give the cluster file with etcd in its new place: -f FILE.")
    run_async(lambda: _migrate(file, output, of_peers, ignore, copy=copy, dry_run=dry_run, yes=yes))


async def _migrate(
    file: Path, output: str, of_peers: tuple[bytes, ...], ignore: Sequence[str], *, copy: bool, dry_run: bool, yes: bool
) -> None:
    from autarky.cli.up import bring_up, tell_of_absent
    from autarky.cli.wiring import load_cluster
    from autarky.errors import UserError
    from autarky.model.cluster import Level
    from autarky.phases.migration.judging import JudgeMigration
    from autarky.phases.migration.looking import Migration, Peers
    from autarky.workflows.migrate import inwards, outwards
    from autarky.workflows.up import PHASES

    wanted = load_cluster(file, None)
    into = wanted.external_etcd is None
    if copy and not into:
        raise UserError(
            "etcd is not copied out of the cluster: an etcd of yours takes no snapshot through its API",
            fix="let its members join (docs/etcd.md, Moving etcd), and leave out --copy",
        )
    known = _known(wanted)
    former = next((one for one in known if (one.external_etcd is None) is not into), None)
    if not dry_run:
        confirm(_question(wanted.name, into=into, copy=copy), yes=yes)
    # Where no file says that it was elsewhere, etcd itself is asked all the same: another machine may have begun.
    level = max(wanted.self_hosted, known[0].self_hosted if former is None else Level.API_SERVER)
    migration = Migration(_host_outside(former), Peers(*of_peers) if of_peers else None)
    # Nodes that are left out are reported at the end: a worker that does not answer keeps no step from being taken.
    step = partial(bring_up, output=output, ignore=ignore, skip=(), dry_run=dry_run, by_file=True, tell_absent=False)
    of_etcd = partial(step, command="etcd migrate", moves_etcd=True)
    phases = inwards(migration, copies=copy) if into else outwards()
    if not into and former is not None and former.self_hosted < level and not dry_run:
        # The members stay where they are, and are no longer changed by the agents.
        await of_etcd(replace(former, self_hosted=level), phases=(JudgeMigration(), *PHASES))
    absent = await of_etcd(replace(wanted, self_hosted=level), phases=phases)
    if not dry_run and level != wanted.self_hosted:
        absent = await step(wanted)
    if migration.peers is not None and into and not dry_run:
        say(_what_is_left(), err=True)
    tell_of_absent(absent, dry_run=dry_run)


def _question(name: str, *, into: bool, copy: bool) -> str:
    if not copy:
        return f"Move etcd of cluster {name} {'into' if into else 'out of'} the cluster?"
    return (
        f"Copy etcd of cluster {name} into the cluster? Its API is away meanwhile: some 15 s with a small database"
        " (--dry-run says how long)."
    )


def _what_is_left() -> str:
    """Where the members have joined with a certificate of another CA."""
    from autarky.doctor.diagnosis import RESTARTS_MEMBERS

    return (
        "the members of etcd on the control nodes accept peers by the CA of --peer-ca as well until they are restarted:"
        f" {RESTARTS_MEMBERS}. `autarky doctor` names those that were not"
    )


def _known(wanted: Cluster) -> list[Cluster]:
    """The cluster as this machine knows it: as it was applied last, and what was begun since."""
    from autarky import places
    from autarky.config import loads
    from autarky.errors import UserError
    from autarky.model.defaults import had
    from autarky.payload import default_version, versions_of_files
    from autarky.phases import kept_file

    directory = places.cluster_dir(wanted.name)
    documents = [one for one in kept_file.every(directory) if isinstance(one, dict)]
    if not documents:
        raise UserError(
            f"this machine knows no cluster {wanted.name}", fix="fetch its state with `autarky login`, and run it again"
        )
    source, default, versions = f"a file of cluster {wanted.name}", default_version(), versions_of_files()

    def read(document: dict[str, Any]) -> Cluster:
        return loads(
            json.dumps(document),
            source,
            default_version=default,
            known_versions=versions,
            founded=lambda _: had(document),
        )

    return [read(one) for one in documents]


def _host_outside(former: Cluster | None) -> Callable[[], Host | None]:
    """The test host of the etcd that the cluster leaves."""
    from autarky.cli.wiring import build_context

    node = None if former is None else former.etcd_host
    if former is None or node is None:
        return lambda: None
    machines = build_context(former).machines
    return lambda: machines.host(node.name)
