"""All nodes join, in parallel. The kubelet of an initial member has a client certificate of ours and runs already; any
other node gets a token that expires and is valid for its name only, and its kubelet does the rest. A control node that
is not an initial member joins as a worker; its label makes it a control node (`promote`). Each node then gets a
credential with which its kubelet can come back as a worker when its certificate has expired: initial members too, since
they may become workers.

Kubelets that join are started before the hosted components are applied: from then on all nodes are busy with those,
and a kubelet that starts later is Ready much later.

A node that joined before and fails here is left out, like one whose host does not answer: whoever is root there can
make it fail, which must not fail `up`. A new node that fails does fail the phase.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Interface, IPv4Network

from autarky.control.addons import add_ons_of
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import Conflict, TimedOut
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases import balancer_pods, members, renewals
from autarky.phases.admit import admit, plan_admission, wait_until_registered
from autarky.phases.context import Context, for_each_or_left_out
from autarky.phases.files import changed_files
from autarky.phases.kubelets import kubelet_runs
from autarky.phases.objects import ApplyParts
from autarky.phases.start import restart_kubelet, start_kubelet, static_pod_changes
from autarky.phases.version_check import refuse_newer_kubelet
from autarky.ports import SHORT, Host, Progress
from autarky.render import access
from autarky.render.kubeconfig import bootstrap_kubeconfig, bootstrap_token, embeds_certificate
from autarky.render.objects import access_part
from autarky.render.values import SYSTEM

TOKEN_LIFETIME = timedelta(minutes=30)
RANGE_BITS = 24
"""Of a node's range of pod addresses: kube-controller-manager's default."""
STATUS_SECONDS = 45.0
"""For the first status of a Node that a running kubelet did not make: it reports every ten seconds."""
_ALPHABET = string.ascii_lowercase + string.digits
WITHIN = 120.0
"""Seconds within which the kubelet of a node that joined before must be started, or the node is left out: less than the
timeout of the phase."""


@dataclass(frozen=True, slots=True)
class StartJoining:
    name: str = "start-joining"
    title: str = "Start the kubelets that join"
    timeout: float = 180 + balancer_pods.TURNS
    needs: tuple[str, ...] = ("prepare-hosts", "start-control-plane")

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"start the kubelet on {node.name}") for node in _joining(context)]
        differences = await for_each_or_left_out(context, _joining(context), lambda node: _differences(context, node))
        return [Change(sentence) for each in differences.values() for sentence in each]

    async def run(self, context: Context, progress: Progress) -> None:
        await renewals.refuse_former(context, progress)
        await ApplyParts(access_part).run(context, progress)
        await balancer_pods.replace_in_turn(context, _joining(context), progress)
        await for_each_or_left_out(
            context, _joining(context), lambda node: start_joining(context, node), progress, seconds=WITHIN
        )


@dataclass(frozen=True, slots=True)
class JoinNodes:
    name: str = "join-nodes"
    title: str = "Join the nodes"
    timeout: float = patience.most(patience.JOINS, patience.JOINS)
    needs: tuple[str, ...] = ("apply-objects", "start-joining")

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"join node {node.name}") for node in members.that_answer(context)]
        tokens = await for_each_or_left_out(context, _joining(context), lambda node: _token(context.host(node)))
        left = [Change(f"delete the join token of {name}") for name, token in tokens.items() if token is not None]
        bare = [node for node in members.that_answer(context) if tokens.get(node.name) is None]
        due = await for_each_or_left_out(context, bare, lambda node: renewals.due(context, node))
        left += [Change(sentence) for sentence in due.values() if sentence is not None]
        return [*await plan_admission(context, members.that_answer(context)), *left]

    async def run(self, context: Context, progress: Progress) -> None:
        async def one(node: Node) -> None:
            await wait_until_registered(context, node, progress)
            if not node.control_plane:
                await _ask_at_once(context.host(node))
            await admit(context, node, progress)
            if not node.control_plane:
                await _take_token_back(context, context.host(node))
            await renewals.give(context, node)

        await for_each_or_left_out(context, members.that_answer(context), one, progress)


def _joining(context: Context) -> list[Node]:
    return [node for node in members.that_answer(context) if not node.control_plane]


async def _differences(context: Context, node: Node) -> list[str]:
    """What is to be done on the host of a node that joins."""
    host = context.host(node)
    stale, missing = await static_pod_changes(context, host, node)
    sentences = [f"write the static pod {file.path} on {node.name}" for file in missing]
    sentences += [f"remove the static pod {path} on {node.name}" for path in stale]
    sentences += await balancer_pods.plan_replacement(context, node)
    if await _lacks_credentials(host):
        sentences.append(f"give {node.name} a join token")
    if not await kubelet_runs(host):
        sentences.append(f"start the kubelet on {node.name}")
    elif _has_lost_its_node(context, node):
        sentences.append(f"restart the kubelet on {node.name}, whose Node is gone")
    return sentences


def _has_lost_its_node(context: Context, node: Node) -> bool:
    """Of a node whose kubelet runs: it registers once, at its start, and does not notice that its Node was deleted, or
    is not in the backup that was restored."""
    return context.api_seen and node.name not in context.joined


async def start_joining(context: Context, node: Node) -> None:
    """Write the static pods, and a token if the node has no certificate yet; start the kubelet. One that runs must be
    restarted for a token, since it has read its former one when it started, and to register again."""
    host = context.host(node)
    stale, missing = await static_pod_changes(context, host, node)
    lacks, runs = await _lacks_credentials(host), await kubelet_runs(host)
    if not runs or node.name not in context.joined:
        await refuse_newer_kubelet(context)
    await host.remove(stale)
    await host.write_files(await changed_files(host, missing))
    if lacks:
        await _give_token(context, host, node)
    await start_kubelet(host)
    lost = runs and _has_lost_its_node(context, node)
    if lost:
        await _start_over(context, host, node)
    if lost or (runs and lacks):
        await restart_kubelet(host)


async def _start_over(context: Context, host: Host, node: Node) -> None:
    """What has to fit the Node that its kubelet is about to register. The API has no request for the serving
    certificate that it has: it asks for another one. And the API would give the node another range of pod addresses
    than its bridge has: so the Node is made here, with that range; where it is taken, what there is of it goes."""
    await host.remove([f"{agent.KUBELET_PKI}/{kubelet_credentials.SERVING}"])
    for addon in add_ons_of(context.cluster):
        if addon.pod_range:
            said = (await host.run(["sh", "-c", addon.pod_range], check=False)).text
            if await _registered_with(context, node, said):
                continue
            await host.run(["sh", "-c", addon.renumber])


async def _registered_with(context: Context, node: Node, said: str) -> bool:
    """Whether the Node has that range now. Its host says it, which whoever is root there may have forged: it counts
    only within the pod network, and if no other Node has it."""
    try:
        asked = IPv4Interface(said).network
    except ValueError:
        return False
    others = await context.kube().list("v1", "Node")
    taken = [IPv4Network(one) for other in others for one in other["spec"].get("podCIDRs") or () if ":" not in one]
    within = asked.prefixlen == RANGE_BITS and asked.subnet_of(context.cluster.network.pod_cidr)
    if not within or any(asked.overlaps(one) for one in taken):
        return False
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints]
    spec = {"podCIDR": str(asked), "podCIDRs": [str(asked)], "taints": taints}
    try:
        await context.kube().create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}, "spec": spec})
    except Conflict:
        return False
    await _filled_in(context, node)
    return True


async def _filled_in(context: Context, node: Node) -> None:
    """Until its kubelet, which runs, has reported what the node has room for. A kubelet that starts while its Node says
    that there is room for no pod rejects its static pods, and never tries them again."""

    async def look() -> str | None:
        live = await context.kube().get("v1", "Node", node.name)
        allocatable = ((live or {}).get("status") or {}).get("allocatable") or {}
        return None if allocatable.get("pods") else "its Node has no status yet"

    what = f"the kubelet of {node.name} reports what its node has"
    with suppress(TimedOut):
        await poll_until(what, look, timeout=STATUS_SECONDS, progress=context.silence, clock=context.clock)


async def _lacks_credentials(host: Host) -> bool:
    """Whether its kubelet has neither a certificate nor, having joined before, a credential to ask for one. A kubelet
    writes its kubeconfig at its first start, before it has a certificate."""
    kubeconfig = await host.read(kubelet_credentials.KUBELET_KUBECONFIG, most=SHORT)
    if kubeconfig is None:
        return True
    if embeds_certificate(kubeconfig) or await host.read(kubelet_credentials.CURRENT_PATH):
        return False
    asks_with = await host.read(kubelet_credentials.BOOTSTRAP_KUBECONFIG, most=SHORT)
    return asks_with is None or bootstrap_token(asks_with) is not None


async def _give_token(context: Context, host: Host, node: Node) -> None:
    """A new one each time: that of a killed run may have expired, and kube-controller-manager deletes it."""
    token_id, secret = _random(6), _random(16)
    expires = (datetime.now(UTC) + TOKEN_LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")
    await context.kube().create(access.join_token(node, token_id, secret, expires))
    content = bootstrap_kubeconfig(context.pki.files()["ca.crt"], context.cluster.name, f"{token_id}.{secret}")
    await host.write_files([File(kubelet_credentials.BOOTSTRAP_KUBECONFIG, content, 0o600)])


async def _token(host: Host) -> str | None:
    """The id of the token on the host."""
    content = await host.read(kubelet_credentials.BOOTSTRAP_KUBECONFIG, most=SHORT)
    token = None if content is None else bootstrap_token(content)
    return None if token is None else token.partition(".")[0]


async def _ask_at_once(host: Host) -> None:
    """Restart a kubelet that has just got its certificate. Without one all its requests failed, and it retries them
    with growing back-off: no container starts until it has read the Services."""
    if await _token(host) is not None:
        await restart_kubelet(host)


async def _take_token_back(context: Context, host: Host) -> None:
    token_id = await _token(host)
    if token_id is not None:
        await context.kube().delete("v1", "Secret", f"bootstrap-token-{token_id}", SYSTEM)
        await host.remove([kubelet_credentials.BOOTSTRAP_KUBECONFIG])


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
