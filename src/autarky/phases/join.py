"""All nodes join, side by side. A founder's kubelet brings a client certificate of ours and runs already; any other
node gets a token that expires and is good for its name only, and its kubelet does the rest. A control node that is
none of the founders joins as a worker; its label makes a control node of it (`promote`)."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from autarky.engine.phase import Change
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases import members
from autarky.phases.admit import admit, plan_admission
from autarky.phases.context import Context, for_each
from autarky.phases.prepare import changed_files
from autarky.phases.start import kubelet_runs, start_kubelet, static_pod_changes
from autarky.ports import Host, Progress
from autarky.render import access
from autarky.render import node as render_node
from autarky.render.kubeconfig import bootstrap_kubeconfig
from autarky.render.values import SYSTEM

TOKEN_LIFETIME = timedelta(minutes=30)
_ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class JoinNodes:
    name: str = "join-nodes"
    title: str = "Join the nodes"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change]:
        nodes = _nodes(context)
        joining = [node for node in nodes if not node.control_plane]
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"join node {node.name}") for node in nodes]
        differences = await for_each(joining, lambda node: _differences(context, node))
        return [*await plan_admission(context, nodes), *(Change(s) for each in differences.values() for s in each)]

    async def run(self, context: Context, progress: Progress) -> None:
        async def one(node: Node) -> None:
            await (admit if node.control_plane else join)(context, node, progress)

        await for_each(_nodes(context), one)


def _nodes(context: Context) -> list[Node]:
    return [members.as_it_joins(node) for node in context.present(context.cluster.nodes)]


async def _differences(context: Context, node: Node) -> list[str]:
    """What is to be done on the host of a node that joins."""
    host = context.host(node)
    stale, missing = await static_pod_changes(context, host, node)
    sentences = [f"write the static pod {file.path} on {node.name}" for file in missing]
    sentences += [f"remove the static pod {path} on {node.name}" for path in stale]
    if not await kubelet_runs(host):
        sentences.append(f"start the kubelet on {node.name}")
    return sentences


async def join(context: Context, node: Node, progress: Progress) -> None:
    """Static pods, token, kubelet, admission; then the token is taken back."""
    host = context.host(node)
    stale, missing = await static_pod_changes(context, host, node)
    await host.remove(stale)
    await host.write_files(await changed_files(host, missing))
    token_id = None
    if await host.read(render_node.KUBELET_KUBECONFIG) is None:
        token_id = await _give_token(context, host, node)
    await start_kubelet(host)
    await admit(context, node, progress)
    if token_id is not None:
        await context.kube().delete("v1", "Secret", f"bootstrap-token-{token_id}", SYSTEM)
        await host.remove([render_node.BOOTSTRAP_KUBECONFIG])


async def _give_token(context: Context, host: Host, node: Node) -> str:
    """A fresh token each time: one of a killed run may have expired; kube-controller-manager cleans it up."""
    token_id, secret = _random(6), _random(16)
    expires = (datetime.now(UTC) + TOKEN_LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ")
    await context.kube().create(access.join_token(node, token_id, secret, expires))
    content = bootstrap_kubeconfig(context.pki.files()["ca.crt"], context.cluster.name, f"{token_id}.{secret}")
    await host.write_files([File(render_node.BOOTSTRAP_KUBECONFIG, content, 0o600)])
    return token_id


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
