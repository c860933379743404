"""etcd outside of the cluster: the test host that `up` prepares for the lab form of it, and the check that
any external etcd answers with the certificates given, before anything is built on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import AutarkyError, TimedOut, UserError
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER
from autarky.model.files import File
from autarky.phases.binaries import install_binaries, missing_binaries
from autarky.phases.context import Context
from autarky.phases.files import changed_files
from autarky.ports import Host, Progress
from autarky.render import node as render_node

START_TIMEOUT = 60.0
LOOK = (
    'etcdctl="$1"; root="$2"; shift 2; ca=$(find -L "$root" -name etcd-ca.crt | head -n1); files=$(dirname "$ca")\n'
    '[ -x "$etcdctl" ] && [ -n "$ca" ] || exit 64\n'
    'exec "$etcdctl" --endpoints="$1" --command-timeout=3s --cacert="$ca"'
    ' --cert="$files/etcd-client.crt" --key="$files/etcd-client.key" endpoint health -w json'
)
"""The directory of the API server standby's files depends on their content."""


@dataclass(frozen=True, slots=True)
class PrepareExternalEtcd:
    """Only for the lab form: a test host where etcd runs as a systemd service."""

    name: str = "prepare-external-etcd"
    title: str = "Prepare the external etcd"
    timeout: float = 180

    async def plan(self, context: Context) -> Sequence[Change]:
        node = context.cluster.etcd_host
        if node is None:
            return []
        host = context.machines.host(node.name)
        if host is None or context.payload is None or not context.addresses_known or not context.pki.complete():
            return [Change(f"install etcd on {node.name}")]
        files = await changed_files(host, await _unit_files(context, host, node))
        binaries = await missing_binaries(host, context.payload, render_node.ETCD_TOOLS)
        changes = [Change(f"write {file.path} on {node.name}") for file in files]
        changes += [Change(f"install {path} on {node.name}") for path in binaries]
        if not await is_active(host):
            changes.append(Change(f"start etcd on {node.name}"))
        return changes

    async def run(self, context: Context, progress: Progress) -> None:
        node = context.cluster.etcd_host
        if node is None:
            return
        host = context.machines.host(node.name)
        if host is None:
            raise UserError(f"test host {node.name} does not exist", fix="run `autarky up` from its first phase")
        await install(context, host, progress)
        await put_unit(context, host, node)
        progress.note(f"etcd runs on {node.name}")


async def install(context: Context, host: Host, progress: Progress) -> None:
    """etcd and its tools."""
    wanted = render_node.ETCD_TOOLS
    await install_binaries(host, await missing_binaries(host, context.require_payload(), wanted), progress)


async def put_unit(context: Context, host: Host, node: Node, founding: etcd.Founding | None = None) -> None:
    """With its certificates, running, also after a boot. founding: of a member that is to join; None keeps what it
    has, which only its very first start reads."""
    files = await changed_files(host, await _unit_files(context, host, node, founding))
    await host.write_files(files)
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "enable", "etcd"])
    await host.run(["systemctl", "restart" if files else "start", "etcd"], timeout=START_TIMEOUT)


async def _unit_files(context: Context, host: Host, node: Node, founding: etcd.Founding | None = None) -> list[File]:
    founding = founding or etcd.founding_of_unit(await host.read(etcd.UNIT_PATH))
    return etcd.external_unit_files(context.inputs(), node, founding)


async def is_active(host: Host) -> bool:
    return (await host.run(["systemctl", "is-active", "etcd"], check=False)).text == "active"


@dataclass(frozen=True, slots=True)
class CheckExternalEtcd:
    """From the first control node, as its API server will connect: checks address, CA and client certificate."""

    name: str = "check-external-etcd"
    title: str = "Check the external etcd"
    timeout: float = 60
    needs: tuple[str, ...] = ("prepare-external-etcd",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if context.cluster.external_etcd is None:
            return []
        if await context.api_answers():
            return []  # whatever the API server uses works
        return [Change(f"check that etcd answers at {', '.join(context.cluster.external_etcd.endpoints)}")]

    async def run(self, context: Context, progress: Progress) -> None:
        external = context.cluster.external_etcd
        if external is None:
            return
        host = context.host(context.first)
        files = f"{places.STANDBY}/{API_SERVER}/current/files"
        argv = [f"{places.BIN}/etcdctl", f"--endpoints={','.join(external.endpoints)}", "--command-timeout=3s"]
        argv += [f"--cacert={files}/etcd-ca.crt", f"--cert={files}/etcd-client.crt", f"--key={files}/etcd-client.key"]

        async def answers() -> str | None:
            said = await host.run([*argv, "endpoint", "health"], check=False)
            return None if said.status == 0 else said.stderr.strip()[-400:]

        # A service that was just started may need a moment; a missing one is reported soon.
        try:
            await poll_until(
                "the external etcd answers",
                answers,
                timeout=patience.EXTERNAL_ETCD,
                progress=progress,
                clock=context.clock,
            )
        except TimedOut as error:
            raise UserError(
                f"the external etcd does not answer at {', '.join(external.endpoints)} from {host.name}: {error}",
                fix="make sure that the endpoints in spec.etcd.external can be reached from the control nodes, that "
                "caFile signed its server certificate, and that it accepts certFile and keyFile",
            ) from error


async def seen_health(context: Context) -> Mapping[str, str]:
    """Endpoint → what is wrong with it, "" when it is healthy: as the first control node that can look sees it, with
    the API servers' own client certificate. Empty when none can; never fails."""
    external = context.cluster.external_etcd
    for node in context.present(context.control_nodes) if external is not None else ():
        host = context.machines.host(node.name)
        if host is None or external is None:
            continue
        root = f"{places.STANDBY}/{API_SERVER}/current/files"
        argv = ["bash", "-c", LOOK, "bash", f"{places.BIN}/etcdctl", root, ",".join(external.endpoints)]
        try:
            if found := _healths((await host.run(argv, check=False)).text):
                return found
        except AutarkyError:
            continue
    return {}


def _healths(said: str) -> dict[str, str]:
    """Parse what etcdctl prints; empty if that is not possible."""
    try:
        return {one["endpoint"]: "" if one["health"] else _why(one) for one in json.loads(said)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _why(one: Mapping[str, object]) -> str:
    return str(one.get("error") or "it is not healthy")[:200]
