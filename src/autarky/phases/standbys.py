"""The revisions of standbys on hosts, as `up` puts them there: which are wanted, missing, or not what runs.

Contract: a standby is complete on every control node, whatever is hosted. Once a node has pivoted, its agent makes
standbys of what has proved itself in the hosted slot, and `up` gives new content to the hosted slot alone: broken
content in both slots, in the minute before the first checkpoint, would take the API down with nothing to go back to.
A single failed look at the API does not change that (rule 2).

Before that, only `up` repairs a standby. Then what the file says now replaces what it said before, also where that is
in place already and does not start: a mistake in the first file must not need a `down`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.control.api_server.manifests import ENCRYPTION_FILE
from autarky.control.checkpoint.manifests import is_checkpoint
from autarky.control.slots import manifests as standby
from autarky.engine.phase import Warn
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER, COMPONENTS, WITH_STANDBY
from autarky.phases.context import Context
from autarky.phases.files import changed_files
from autarky.phases.version_check import live_operator
from autarky.ports import Host

_NONE = "-"
_ENCRYPTION = f"{places.STANDBY}/{API_SERVER}/current/files/{ENCRYPTION_FILE}"


def wanted_revisions(context: Context, node: Node) -> list[standby.Revision]:
    """The standby is complete on every control node, whatever is hosted. On all but the first initial member it is only
    written at first, and put in place when the API has answered for the first time: a kubelet that starts brings up
    what is in place."""
    if not node.control_plane:
        return []
    inputs = context.inputs()
    return [standby.revision(inputs, component) for component in WITH_STANDBY]


async def revisions_to_put(
    context: Context, host: Host, revisions: Sequence[standby.Revision]
) -> list[standby.Revision]:
    """Those that are missing, and those that are to replace another one."""
    others = await _others(host, revisions)
    return _missing(others, kept=await _kept(context, host)) if _missing(others) else []


async def _kept(context: Context, host: Host) -> frozenset[str]:
    """The components whose standby stays as it is. That of an API server also before the pivot where the API answers:
    it may be what answers."""
    hosted = frozenset(c for c in WITH_STANDBY if context.cluster.hosts_level(COMPONENTS[c].level))
    if await has_pivoted(context, host):
        return hosted
    return hosted & {API_SERVER} if await context.api_answers() else frozenset()


async def missing_revisions(host: Host, revisions: Sequence[standby.Revision]) -> list[standby.Revision]:
    """Those that are not the current one; components that the node agent checkpoints are left to it."""
    return _missing(await _others(host, revisions))


def _missing(others: Sequence[tuple[standby.Revision, str]], *, kept: Collection[str] = ()) -> list[standby.Revision]:
    """kept: components that need one, whichever it is."""
    return [r for r, name in others if name == _NONE or not (r.component in kept or is_checkpoint(name))]


async def _others(host: Host, revisions: Sequence[standby.Revision]) -> list[tuple[standby.Revision, str]]:
    """Those that are not the current one, each with the name of that."""
    if not revisions:
        return []
    paths = [f"{places.STANDBY}/{r.component}/current" for r in revisions]
    script = f'for p; do readlink "$p" 2>/dev/null || echo {_NONE}; done'
    current = (await host.run(["sh", "-c", script, "sh", *paths])).text.splitlines()
    return [(r, name) for r, name in zip(revisions, current, strict=True) if r.name != name]


async def recovered_encryption(host: Host) -> str:
    """What a recovery that was cut has given the API server of this host to read with; empty: nothing. Whatever `up`
    puts there next has to read with it as well, until the node has an agent: that makes standbys of the hosted one."""
    content = await host.read(_ENCRYPTION)
    return "" if content is None or await cares_for_its_slots(host) else content.decode(errors="replace")


async def put_revision(host: Host, revision: standby.Revision) -> None:
    """Complete or absent: all files are synced before `current` is switched to them."""
    await host.write_files(await changed_files(host, revision.files))
    await host.run([standby.SCRIPT_PATH, "switch", revision.component, revision.name])


# --- what runs -----------------------------------------------------------------------------------------------------


async def outdated(host: Host) -> list[str]:
    """The components whose standby is in place in another revision than the current one. None where the host's
    script is of a release before this one and does not say."""
    said = await host.run([standby.SCRIPT_PATH, "outdated"], check=False)
    return [component for component in said.text.split() if component in WITH_STANDBY] if said.status == 0 else []


async def renewable(context: Context, host: Host, revisions: Sequence[standby.Revision]) -> frozenset[str]:
    """Those of level 3 that run before the pivot: once the API answers, nothing else that `up` does restarts them. All
    of level 3 may restart at once."""
    controllers = {r.component for r in revisions} - {API_SERVER}
    if not controllers or await has_pivoted(context, host):
        return frozenset()
    return frozenset(controllers)


async def renew_outdated(host: Host, components: Collection[str]) -> None:
    """Restart those of these standbys that are in place and not in their current revision."""
    if not components:
        return
    for component in await outdated(host):
        if component in components:
            await host.run([standby.SCRIPT_PATH, "renew", component])


async def untouched(context: Context, host: Host, node: Node, to_put: Collection[standby.Revision]) -> list[Warn]:
    """What keeps running as it was although the file wants something else: the static pods of levels that are not
    hosted. Nothing rolls them out, and nothing would roll them back. to_put: revisions that will be put there."""
    static = {c for c in WITH_STANDBY if node.control_plane and not context.cluster.hosts_level(COMPONENTS[c].level)}
    if not static:
        return []
    listed = standby.parse_list((await host.run([standby.SCRIPT_PATH, "list"], check=False)).text)
    going = {r.component for r in to_put if listed.get(r.component, (None, ()))[1]}
    return [
        Warn(
            f"{component} on {node.name} goes on with its former arguments, since its level is not hosted; to restart"
            f" it with the new ones, one node at a time, run there: {standby.SCRIPT_PATH} renew {component}",
            in_plan=True,
        )
        for component in sorted(static & going.union(await outdated(host)))
    ]


async def has_pivoted(context: Context, host: Host) -> bool:
    """Whether the node has an agent, and some `up` has come past the pivot, after which it applies the operator. An API
    that does not answer does not say otherwise."""
    if not await cares_for_its_slots(host):
        return False
    return not await context.api_answers() or await operator_exists(context)


async def operator_exists(context: Context) -> bool:
    """Raises Unreachable and ApiError."""
    return await live_operator(context.kube()) is not None


async def in_place(host: Host) -> dict[str, bool]:
    """Component → whether its standby is in place, as far as the host says. Raises Unreachable and CommandFailed."""
    listed = standby.parse_list((await host.run([standby.SCRIPT_PATH, "list"])).text)
    return {component: bool(activations) for component, (_, activations) in listed.items()}


async def active(host: Host) -> frozenset[str]:
    """The components whose standby is in place. Raises as `in_place`."""
    return frozenset(component for component, there in (await in_place(host)).items() if there)


async def cares_for_its_slots(host: Host) -> bool:
    """Whether the node has an agent of its own, from its first standby agent on."""
    return bool(await standby_agents(host))


async def standby_agents(host: Host) -> tuple[str, ...]:
    """The paths of their static pods."""
    present = (await host.run(["ls", places.MANIFESTS], check=False)).text.split()
    return tuple(f"{places.MANIFESTS}/{name}" for name in present if name.startswith(f"{STANDBY_POD}-"))
