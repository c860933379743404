"""Whether etcd can be moved: refused before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.engine.phase import Change
from autarky.errors import Refused, UserError
from autarky.etcd.members import Member, Membership
from autarky.etcd.tools import EtcdTools
from autarky.model.cluster import Level, Node
from autarky.model.components import API_SERVER
from autarky.model.etcd_members import SECOND_SUFFIX, unusable_names
from autarky.payload import etcd_version
from autarky.phases import hosts
from autarky.phases.context import Context
from autarky.phases.etcd_joining import address_of, names_refused
from autarky.phases.etcd_pods import static_pods
from autarky.phases.migration import judging_copy
from autarky.phases.migration.looking import ALL_ARE_THERE, anyhow, inside, on_nodes
from autarky.phases.migration.marking import find_mark, kept_here, under_way
from autarky.ports import Object, Progress
from autarky.render.values import SYSTEM

PREFIX = "/registry"
OVERRIDES = "etcd-servers-overrides"
ONLY_OURS = "the cluster's etcd holds nothing but the cluster"
NEVER_BY_ITSELF = "no etcd is replaced by itself"
VERSIONS = "members of one etcd are at most one minor apart, and none goes back"
_OURS = (f"{FORMER.partition('/')[0]}/", "compact_rev_key")
"""Keys beside those of the API servers: of autarky, and the API servers' own, which has no prefix."""
_MOST = 20


@dataclass(frozen=True, slots=True)
class JudgeMigration:
    """copies: whether it is to be copied into the cluster, instead of members that join."""

    copies: bool = False
    name: str = "judge-migration"
    title: str = "Check that etcd can be moved"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.api_seen:
            await hosts.look(context)
        if not context.founded and not context.api_seen:
            raise UserError(f"there is no cluster {context.cluster.name} yet", fix="bring it up with `autarky up`")
        mark = await find_mark(context)
        if mark is None or not mark.opened:
            _refuse_absent(context)
        _refuse_unsupported(context)
        if mark is not None:
            if not self.copies:
                raise under_way(mark)
            context.brings_api_back = mark.opened
            return []  # it was judged when it began, and the API may be down since
        if not await context.api_answers():
            raise Refused(ALL_ARE_THERE, "the API does not answer", "see `autarky doctor`, and run it again then")
        _refuse_prefix(context)
        await _refuse_overrides(context)
        tools = await anyhow(context)
        await _refuse_mistakable(context, tools)
        if await inside(context) is None:
            await _refuse_strange_keys(tools)
            await _refuse_replaced_by_itself(tools)
            await (judging_copy.refuse(context, tools) if self.copies else _refuse_unfit_members(context, tools))
        elif self.copies:
            await judging_copy.refuse_joined(context, tools)
        return []

    async def run(self, context: Context, progress: Progress) -> None:
        """There is never anything to run."""


def _refuse_absent(context: Context) -> None:
    """One that is off would come back with a standby that dials the old place."""
    away = [node.name for node in context.control_nodes if node.name in context.absent]
    if away and kept_here(context).exists():
        raise Refused(
            ALL_ARE_THERE,
            f"a copy of etcd was begun, and {', '.join(away)} does not answer",
            "power it on, and run the same command again. If the node where it began is lost, the etcd outside still"
            f" has what was acknowledged: `etcdctl auth disable` as user root opens it, with the password in"
            f" {kept_here(context)}; remove that file then",
        )
    if away:
        seen = "; ".join(f"{name} does not answer: {context.absent[name]}" for name in away)
        raise Refused(ALL_ARE_THERE, seen, "power it on, or take it out with `autarky node remove`, and run it again")


def _refuse_unsupported(context: Context) -> None:
    """Only control nodes that created the cluster have what a member needs by `up`; and API servers that are static
    pods permanently (levels 3 and 4) are rolled by nobody."""
    first = {node.name for node in context.cluster.initial_members}
    unlisted = {node.name for node in context.unlisted if node.control_plane}
    if others := sorted((set(context.active_in_api) | unlisted) - first):
        raise UserError(
            f"{', '.join(others)} became a control node after the cluster was created: moving etcd with such nodes is"
            " not built yet",
            fix="make it a worker again (docs/control-nodes.md), move etcd, and make it a control node then",
        )
    if not context.cluster.hosts_level(Level.API_SERVER):
        raise UserError(
            f"with selfHosted {context.cluster.self_hosted_text} nobody rolls the API servers: moving etcd there is not"
            " built yet",
            where="spec.selfHosted",
            fix='set selfHosted: "2-4", apply it with etcd where it is, and move it then',
        )


async def _refuse_mistakable(context: Context, tools: EtcdTools) -> None:
    """Members that would be taken for those of nodes."""
    members = (await tools.membership()).members
    ours = on_nodes(context, Membership(0, members))
    # A worker says itself which address it has, and no member is looked for there.
    nodes = {text for node in context.complete.control_nodes for text in (node.name, node.address)}
    for one in members:
        if one.name.endswith(SECOND_SUFFIX):
            raise UserError("the only member of etcd is being changed", fix="wait until that is done, and run it again")
        is_ours = one.id in ours and (not one.name or await _has_pod(context, ours[one.id]))
        if not is_ours and {address_of(one), one.name} & nodes:
            raise UserError(
                f"the member {one.name!r} of etcd is none of the cluster's, and has the address of a control node, or"
                " its name",
                fix="add a member to that etcd elsewhere, under another name, let this one leave, and run it again",
            )


async def _has_pod(context: Context, node: Node) -> bool:
    """A member that is not started by the node's kubelet is somebody else's, though it is on the same machine."""
    host = context.machines.host(node.name)
    return host is not None and bool(await static_pods(host))


def _refuse_prefix(context: Context) -> None:
    asked = context.cluster.extra_args.get(API_SERVER, {}).get("etcd-prefix", PREFIX)
    if "/" + asked.strip("/") != PREFIX:
        raise UserError(
            f"the API servers keep their objects under {asked}: what autarky does with etcd, in backups and recoveries,"
            f" expects them under {PREFIX}",
            where="spec.extraArgs.kube-apiserver.etcd-prefix",
            fix="leave etcd where it is",
        )


async def _refuse_overrides(context: Context) -> None:
    """Kinds that have an etcd of their own would be left there, and our certificates are not for that one."""
    live = await context.kube().get("apps/v1", "DaemonSet", API_SERVER, SYSTEM)
    flags = [word.partition("=")[0] for word in _command_of(live)]
    if OVERRIDES in context.cluster.extra_args.get(API_SERVER, {}) or f"--{OVERRIDES}" in flags:
        raise UserError(
            f"the API servers have --{OVERRIDES}: some kinds are in another etcd, and moving these is not built",
            where=f"spec.extraArgs.kube-apiserver.{OVERRIDES}",
            fix="leave etcd where it is",
        )


def _command_of(live: Object | None) -> list[str]:
    containers = [] if live is None else live["spec"]["template"]["spec"].get("containers") or []
    return [str(word) for one in containers for word in (*(one.get("command") or ()), *(one.get("args") or ()))]


async def _refuse_strange_keys(tools: EtcdTools) -> None:
    """An etcd that others use as well: they would lose it when its members leave, and a restore of the cluster would
    set them back."""
    keys = [*await tools.first_keys("!", f"{PREFIX}/", _MOST), *await tools.first_keys(f"{PREFIX}0", None, _MOST)]
    strange = [key for key in keys if not key.startswith(_OURS)]
    if strange:
        raise Refused(
            ONLY_OURS,
            f"etcd has keys of others than the API servers (prefix {PREFIX}), the first of them {strange[0]!r}",
            "give them an etcd of their own, delete these keys, and run it again",
        )


async def _refuse_replaced_by_itself(tools: EtcdTools) -> None:
    """No recovery writes that. A member that finds its own cluster there may take itself for one of a former etcd."""
    cluster = (await tools.membership()).cluster
    if cluster in former_of(await tools.value(FORMER)):
        raise Refused(
            NEVER_BY_ITSELF,
            f"the key {FORMER} of etcd names the cluster of this etcd itself, {cluster:x}, as one that was replaced",
            f"find out who wrote it, delete it with `etcdctl del {FORMER}`, and run it again",
        )


async def _refuse_unfit_members(context: Context, tools: EtcdTools) -> None:
    membership = await tools.membership()
    _refuse_unusable_names(context, membership)
    await _refuse_versions(context, tools, membership.members)


def _refuse_unusable_names(context: Context, membership: Membership) -> None:
    """They go into the arguments of the members that join, and into the load balancers' configuration."""
    ours, unusable = on_nodes(context, membership), unusable_names(one.name for one in membership.members)
    outside = [one for one in membership.members if one.id not in ours and not one.is_learner]
    if wrong := [one for one in outside if one.name in unusable]:
        raise names_refused(wrong)


async def _refuse_versions(context: Context, tools: EtcdTools, members: Sequence[Member]) -> None:
    ours = str(etcd_version(context.release)).removeprefix("v")
    said = await tools.statuses([url for one in members for url in one.client_urls])
    for url, one in said.items():
        if _minor(one.version) != _minor(ours):
            raise Refused(
                VERSIONS,
                f"the member at {url} runs etcd {one.version}, and the control nodes would run {ours}",
                f"change the version there first, to {_minor(ours)}, or ours (spec.etcd.version), and run it again",
            )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
