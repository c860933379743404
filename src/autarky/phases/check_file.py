"""Checking the cluster file against the existing cluster: a change that is not possible is refused before anything is
written, in the cluster's directory or on the hosts.

Contract: looks at hosts and API, as far as they answer. `hosts.CheckHosts` looks at hosts that are powered on later,
and refuses the same; `CheckFileAgain` looks at an API that answers later, before anything is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from autarky.control.cluster_file.decide import defaults
from autarky.control.cluster_file.decide.records import API
from autarky.engine.phase import Change, Kept, Warn
from autarky.errors import Conflict, Unreachable
from autarky.phases import etcd_asked, hosts, kept_file, members
from autarky.phases.context import Context, external_etcd_files
from autarky.phases.migration.marking import refuse_under_way
from autarky.phases.own_add_ons import refuse_ours
from autarky.phases.records import (
    refuse_another_cluster,
    refuse_another_network,
    refuse_moved_etcd,
    refuse_old_defaults,
    refuse_old_file,
)
from autarky.phases.recovery.unfinished import refuse_unfinished
from autarky.ports import Progress


@dataclass(frozen=True, slots=True)
class CheckFile:
    """Refuse a file that the cluster cannot follow, else keep it."""

    name: str = "check-file"
    title: str = "Check the file against the cluster"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        refuse_unusable_credentials(context)
        refuse_ours(context)
        await hosts.look(context)
        refuse_old_defaults(context)
        if not context.moves_etcd:
            await refuse_under_way(context)
        if context.upgrades:  # `recover` itself goes on with what it has begun
            await refuse_unfinished(context)
        await etcd_asked.refuse_impossible(context)
        context.file_waits = not context.all_seen
        return [*kept_file.changes(context, all_seen=context.all_seen), *_missed_defaults(context)]

    async def run(self, context: Context, progress: Progress) -> None:
        kept_file.keep(context, all_seen=context.all_seen)


def _missed_defaults(context: Context) -> list[Warn]:
    """New defaults are for new clusters; the user reads which of them this cluster does not have."""
    if context.document is None:
        return []
    number = context.cluster.defaults
    lacking = defaults.missed_by(context.document, number)
    return [Warn(defaults.sentence(number, lacking), in_plan=True)] if lacking else []


def refuse_unusable_credentials(context: Context) -> None:
    """UserError if the user's own CAs, the CAs that are kept, or an external etcd's certificates are unusable."""
    external = context.cluster.external_etcd
    external_etcd_files(context.cluster)
    context.pki.refuse_unusable(
        context.cluster.certificates, datetime.now(UTC), etcd=external is None or external.lab_host is not None
    )


@dataclass(frozen=True, slots=True)
class CheckFileAgain:
    """If the API was down when the run began: what it has of the cluster is compared now, before the first object is
    applied. The run stops if it has rendered for other nodes than the cluster has."""

    name: str = "check-file-again"
    title: str = "Check the file against the API"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change | Kept]:
        if context.api_seen or not await context.api_answers():
            return []
        rendered, reported = context.complete.nodes, context.unlisted
        if not await _api_says(context):
            raise Unreachable("the API is up, but does not say which nodes are in the cluster; run this again")
        refuse_another_cluster(context.records.get(API), context.ours)
        refuse_old_file(context)
        refuse_another_network(context)
        refuse_moved_etcd(context)
        refuse_old_defaults(context)
        await etcd_asked.refuse_impossible(context)
        others = [node.name for node in context.complete.nodes if node not in rendered]
        if others:
            raise Conflict(
                f"the API was down when this run began, and has other nodes than the run was prepared for: "
                f"{', '.join(others)}\n  fix: run the same command again, which now knows them from the start"
            )
        return [hosts.taken_out(node) for node in context.unlisted if node not in reported]

    async def run(self, context: Context, progress: Progress) -> None:
        """There is never anything to run."""


async def _api_says(context: Context) -> bool:
    """Whether the API has said which nodes are in the cluster; the context has them then."""
    await members.learn(context)
    return context.api_seen
