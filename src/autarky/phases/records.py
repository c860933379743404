"""The records of the cluster file that control nodes keep, compared with the file that a command works with: two people
may work on one cluster from two machines.

Contract: the disks of all control nodes that answer are read, and the API where it answers; an API that is down or slow
does not skip the check. Which of the records counts is for `control.cluster_file.decide.records`.
"""

from __future__ import annotations

from autarky.control.cluster_file.decide.records import API, Record, cni_in, etcd_is_outside_in, latest
from autarky.control.hosts.decide.belonging import Ours, refuse_api
from autarky.errors import Conflict, UserError
from autarky.model.defaults import edition_in
from autarky.phases import belonging, kept_file
from autarky.phases.context import Context
from autarky.ports import Kube
from autarky.render import cluster_record
from autarky.render.values import SYSTEM


async def of_the_api(kube: Kube) -> Record | None:
    """None where the API has none, or one that cannot be parsed. Unreachable, ApiError."""
    return cluster_record.read_config_map(await kube.get("v1", "ConfigMap", cluster_record.CONFIG_MAP, SYSTEM))


def refuse_another_cluster(record: Record | None, ours: Ours) -> None:
    """UserError where the API's record is that of a cluster with another CA than ours."""
    refused = None if record is None else refuse_api(record.ca, ours)
    if refused is not None:
        raise UserError(f"the API {refused.seen}", fix=refused.go_on)


def refuse_old_file(context: Context) -> None:
    """Conflict where another machine has applied a different file since this one was kept here."""
    if context.known is None or not context.owners:
        return
    for where, record in latest(context.records).items():
        if record.file not in context.known:
            raise Conflict(
                f"another machine has applied another file to the cluster {context.cluster.name} since this one "
                f"was kept here: {'the API' if where == API else f'host {where}'} has it\n"
                f"  fix: {_login(context, where)} fetches that one; `autarky up -f FILE` replaces it"
            )


def refuse_old_defaults(context: Context) -> None:
    """Conflict where another machine has given the cluster another edition of defaults. This machine never knew of it,
    so that a file which names no edition was read with the wrong one."""
    if context.document is None:
        return
    known = [context.cluster.defaults, *map(edition_in, kept_file.kept(context.directory))]
    for where, record in latest(context.records).items():
        has = edition_in(record.file)
        if has not in known:
            raise Conflict(
                f"the cluster {context.cluster.name} has the defaults of edition {has}, as "
                f"{'the API' if where == API else f'host {where}'} says, and the file was read with those of edition "
                f"{context.cluster.defaults}\n  fix: {_login(context, where)} updates this machine; then run it again"
            )


def refuse_another_network(context: Context) -> None:
    """UserError if the file names another pod network than the cluster has: the present one would stay, and with two of
    them neither works. What is kept here counts if a host is the cluster's and none has a record yet. Before, nothing
    of it can be there."""
    recorded: list[object] = [record.file for record in latest(context.records).values()]
    kept = kept_file.applied(context.directory)[:1] if context.owners else []
    wanted = context.cluster.network.cni.value
    for document in recorded or kept:
        had = cni_in(document)
        if had not in (None, wanted):
            raise UserError(
                f"the cluster has network.cni: {had}, and no cluster can change it",
                where="spec.network.cni",
                fix=f"write {had}, or bring up a new cluster",
            )


def refuse_moved_etcd(context: Context) -> None:
    """UserError if the file has etcd in another place than the cluster: an empty one would be made there."""
    if context.moves_etcd:
        return
    wanted = context.cluster.external_etcd is not None
    kept = kept_file.every(context.directory) if context.owners else []
    recorded = [record.file for record in latest(context.records).values()]
    if any(etcd_is_outside_in(document) is (not wanted) for document in (*kept, *recorded)):
        has, asked = ("inside", "outside") if wanted else ("outside", "inside")
        raise UserError(
            f"the cluster's etcd is {has} of the cluster, or on its way from there, and the file has it {asked}",
            where="spec.etcd.external",
            fix="`autarky etcd migrate -f FILE` moves it while the API serves",
        )


def _login(context: Context, where: str) -> str:
    return "`autarky login HOST` (a control node)" if where == API else belonging.login_command(context, where)
