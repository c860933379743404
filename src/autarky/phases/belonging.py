"""Which cluster a host belongs to, by the host and, if need be, the API (control/hosts/decide/belonging.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autarky import places
from autarky.control.hosts.decide.belonging import Refusal, Said, refuse
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.cluster import Node
from autarky.model.fingerprint import fingerprint
from autarky.phases.context import Context
from autarky.ports import SHORT, Host

CA = f"{places.PKI}/ca.crt"


async def said_by(host: Host, marker: bytes) -> Said:
    """What the host, whose marker was read, says of itself. CommandFailed if its CA file is too long to be one."""
    return Said.of(marker, fingerprint(await host.read(CA, most=SHORT)))


async def refusal(context: Context, name: str, said: Said, *, by_name: bool = False) -> Refusal | None:
    """Why the host of this node must not be touched; None if it belongs to our cluster."""
    known = said.proven is None and await _known_to_api(context, name)
    return refuse(said, context.ours, login=login_command(context, name), known_to_api=known, by_name=by_name)


async def refusals(context: Context, nodes: Iterable[Node], *, by_name: bool = False) -> dict[str, Refusal | None]:
    """Node → why its host must not be touched, None where it is ours. Hosts that are not there, do not answer, or have
    no marker are not among them."""
    found = {}
    for node in nodes:
        host = context.machines.host(node.name) if node.name not in context.absent else None
        marker = await host.read(places.NODE_MARKER, most=SHORT) if host is not None else None
        if host is not None and marker is not None:
            found[node.name] = await refusal(context, node.name, await said_by(host, marker), by_name=by_name)
    return found


def problems(refused: Mapping[str, Refusal | None]) -> list[UserError]:
    """One for each host that must not be touched."""
    found = [(name, one) for name, one in refused.items() if one is not None]
    return [UserError(f"host {name} {one.seen}", fix=one.go_on) for name, one in found]


async def _known_to_api(context: Context, name: str) -> bool:
    """Whether the API has that node. It is our cluster's API: our CA verifies it, and it accepts our certificate."""
    if context.ours.ca is None or not await context.api_answers():
        return False
    try:
        return await context.kube().get("v1", "Node", name) is not None
    except (Unreachable, ApiError):
        return False


def login_command(context: Context, name: str) -> str:
    """The command that fetches the state of the cluster on this node's host."""
    known = {node.name: node.host for node in context.complete.nodes}
    host = known.get(name)
    if host is None or host.driver == "lab":
        return "`autarky login -f FILE`"
    return f"`autarky login {host}`"
