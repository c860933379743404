"""A recovery on new machines that was cut before the old machines were forgotten: `up` does not go on with it.

Contract: it only looks. Until then every credential of an old machine is good, and nobody could distinguish from them
what joins: only the same `recover` knows what to forget. What hosts have noted says whether that is done, since neither
etcd nor an API need answer; and no node has an agent before it is.
"""

from __future__ import annotations

from autarky import places
from autarky.errors import Refused
from autarky.model.cluster import Node
from autarky.parsing import parsed
from autarky.phases import standbys
from autarky.phases.context import Context, for_each
from autarky.phases.recovery.machines import BEGUN
from autarky.phases.recovery.resuming import OWN_COMMAND
from autarky.phases.recovery.state import Recovered
from autarky.ports import SHORT, Host


async def refuse_unfinished(context: Context) -> None:
    """By what control nodes of the file have noted that answer."""
    found = await for_each(context.present(context.cluster.control_nodes), lambda node: _is_unfinished(context, node))
    names = sorted(name for name, unfinished in found.items() if unfinished)
    if names:
        raise Refused(
            OWN_COMMAND,
            f"`autarky recover` has begun etcd on {', '.join(names)}, and was interrupted: what the backup says of the"
            " old machines is not forgotten yet, and their credentials would be good",
            "run the same `autarky recover --from FILE` again",
        )


async def _is_unfinished(context: Context, node: Node) -> bool:
    host = context.machines.host(node.name)
    begun = None if host is None else await host.read(BEGUN, most=SHORT)
    if host is None or begun is None or await standbys.cares_for_its_slots(host):
        return False
    return not await _is_noted(host, begun)


async def _is_noted(host: Host, begun: bytes) -> bool:
    recovered = Recovered.read(await host.read(places.ETCD_RECOVERED, most=SHORT))
    try:
        return recovered is not None and int(str(parsed(begun)["cluster"]), 16) in recovered.replaced
    except (ValueError, KeyError, TypeError):
        return False
