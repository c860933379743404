"""Where etcd is, and which members the API servers dial: read from the hosts, which need no API for it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from autarky import places
from autarky.engine.deadline import NotYet, poll_until
from autarky.errors import CommandFailed, Refused, Unreachable
from autarky.etcd.members import Member, Membership
from autarky.etcd.tools import EtcdTools, Place
from autarky.model import patience, ports
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER
from autarky.model.etcd_members import peer_url
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.ports import Host, Progress
from autarky.programs import program
from autarky.render.values import SYSTEM

ALL_ARE_THERE = "unknown is not down"
THROUGH_BALANCER = f"https://127.0.0.1:{ports.NLLB_ETCD}"
ROLL_SECONDS = patience.PIVOT
STANDBY = f"{places.STANDBY}/{API_SERVER}/current"
SCRIPT = program(__file__, "look.sh", bin=places.BIN, standby=STANDBY)
_FILES = f'find -L "$(readlink -f {STANDBY})" -name etcd-client.crt -exec dirname {{}} \\; | head -n 1'
"""The directory of the standby's files: a checkpoint has them deeper. Not by way of the link, which the next checkpoint
sets: the one before stays."""


@dataclass(frozen=True, slots=True)
class Peers:
    """By what members of the cluster and members outside accept each other, where these have another CA: a certificate
    of that CA for the addresses of the control nodes, its key, and that CA. PEM."""

    certificate: bytes
    key: bytes
    ca: bytes


@dataclass(slots=True)
class Migration:
    """What the phases of one run share. outside: the test host of an etcd outside, None where that is not ours. peers:
    None where both have one CA."""

    outside: Callable[[], Host | None]
    peers: Peers | None = None


async def on_control_node(host: Host, step: str, *arguments: str) -> str:
    """What a step of the host's part prints. CommandFailed has its name."""
    done = await host.run(["bash", "-c", SCRIPT, "look", step, *arguments], timeout=60, check=False)
    if done.status != 0:
        raise CommandFailed(host.name, ["look", step], done.status, done.stderr.strip())
    return done.text


async def dialled(host: Host) -> frozenset[str]:
    """The URLs of etcd that the API servers of this host use, now or as the standby."""
    said = await on_control_node(host, "dialled")
    return frozenset(url for line in said.splitlines() for url in line.split(",") if url)


async def await_rollout(context: Context, urls: Iterable[str], progress: Progress) -> None:
    """Until all API servers, and all standbys, dial only these. A standby follows when the hosted one has been healthy
    for a while."""
    wanted = frozenset(urls)

    async def rolled() -> NotYet | None:
        try:
            found = await for_each(context.control_nodes, lambda node: dialled(context.host(node)))
        except CommandFailed as error:  # containerd may be starting
            return NotYet(str(error))
        left = {name: urls - wanted for name, urls in found.items() if not urls or urls - wanted}
        if not left:
            return await _goes_back(context, wanted)
        said = "; ".join(f"{name} still uses {', '.join(sorted(urls)) or 'none'}" for name, urls in left.items())
        return NotYet(said, -len(left))

    await poll_until(
        "all API servers and their standbys use the new place of etcd",
        rolled,
        timeout=ROLL_SECONDS,
        still=patience.STEP,
        progress=progress,
        clock=context.clock,
        interval=2.0,
    )


async def _goes_back(context: Context, wanted: frozenset[str]) -> NotYet | None:
    """To which template the operator would roll a bad one back."""
    secret = await context.kube().get("v1", "Secret", f"autarky-last-good-{API_SERVER}", SYSTEM)
    kept = base64.b64decode(((secret or {}).get("data") or {}).get("template.json") or "").decode(errors="replace")
    if "--etcd-servers=" not in kept or any(f"--etcd-servers={url}" in kept for url in wanted):
        return None
    return NotYet("the operator would still roll the API servers back to the old place", "last good")


async def inside(context: Context) -> EtcdTools | None:
    """By a member on a control node that answers through its quorum; None where there is none."""
    for node in context.present(context.control_nodes):
        host = context.machines.host(node.name)
        if host is not None and await static_pods(host):
            tools = EtcdTools(host)
            if await _answers(tools):
                return tools
    return None


async def by_standby(context: Context) -> EtcdTools | None:
    """As the API servers' standby on a control node does, with its certificate."""
    for node in context.present(context.control_nodes):
        host = context.machines.host(node.name)
        place = None if host is None else await place_of_standby(host)
        if host is not None and place is not None and await _answers(tools := EtcdTools(host, place=place)):
            return tools
    return None


async def place_of_standby(host: Host) -> Place | None:
    """Where etcd is outside of the cluster, by the standby of its API server, which may be all that is left of it. A
    URL without TLS would switch it off for all that stand beside it."""
    try:
        found = await dialled(host)
    except CommandFailed:
        return None
    others = sorted(url for url in found - {THROUGH_BALANCER} if url.startswith("https://"))
    if not others:
        return None
    directory = (await host.run(["sh", "-c", _FILES], check=False)).text.strip()
    return Place(",".join(others), directory, ca="etcd-ca.crt", certificate="etcd-client.crt", key="etcd-client.key")


async def _answers(tools: EtcdTools) -> bool:
    return await why_silent(tools) is None


async def why_silent(tools: EtcdTools) -> str | None:
    """None where it answers through its quorum."""
    try:
        await tools.membership()
    except (CommandFailed, Unreachable) as error:
        return str(error)
    return None


async def anyhow(context: Context) -> EtcdTools:
    """Refused where no member answers: etcd is moved only while it serves."""
    found = await inside(context) or await by_standby(context)
    if found is None:
        raise Refused(
            ALL_ARE_THERE,
            "no member of etcd answers a control node",
            "see `autarky doctor` and `autarky status`, and run the same command again when the API serves",
        )
    return found


def on_nodes(context: Context, membership: Membership) -> Mapping[int, Node]:
    """Member id → the control node that it runs on (`judging` refuses members outside at addresses of nodes)."""
    by_url = {peer_url(node.address): node for node in context.complete.control_nodes if node.address is not None}
    found = {one.id: next((by_url[url] for url in one.peer_urls if url in by_url), None) for one in membership.members}
    return {id_: node for id_, node in found.items() if node is not None}


def serves_at(member: Member, endpoints: Iterable[str]) -> bool:
    """Whether these name it, by address and port."""
    return bool({_place(url) for url in member.client_urls} & {_place(url) for url in endpoints})


def _place(url: str) -> tuple[str | None, int | None]:
    found = urlsplit(url)
    return found.hostname, found.port
