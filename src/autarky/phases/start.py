"""The temporary control plane: etcd and load balancers on all initial members, and as static pods on the first of
them the standbys of levels 2 and 3.

One API server is enough at first: the others find it through their load balancers, and each starts its hosted
one right away. A standby on each of them would cost as much processor as the hosted control plane itself, and would
be taken away half a minute later.

Contract: after it, the API answers through a control node's load balancer. On a cluster that is already up it does
nothing: then the hosted slots serve, and starting standbys is the node agents' decision. In a cluster
that is down the standbys of all nodes are activated: each may be the one that works. What is in place already stays,
but for an API server where the node has no agent yet: it may be what does not start, and nobody else would repair it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files as generations
from autarky.control.slots import manifests as standby
from autarky.engine.deadline import NotYet, poll_until
from autarky.engine.phase import Change
from autarky.model import patience
from autarky.model.cluster import Node
from autarky.model.components import API_SERVER, ETCD, LOAD_BALANCER, WITH_STANDBY
from autarky.model.files import File
from autarky.phases import balancer_pods, standbys
from autarky.phases.binaries import point_links
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import manifest_of, static_pods, wanted_member
from autarky.phases.files import changed_files
from autarky.phases.hosts import FOUNDED
from autarky.phases.kubelets import kubelet_runs
from autarky.ports import SHORT, Host, Progress
from autarky.render import node as render_node
from autarky.render.kubeconfig import embeds_certificate

API_TIMEOUT = patience.API_STARTS
"""Seconds from the kubelet's start to a ready API: a few usually, more on a loaded machine."""
LOOKS, BETWEEN_LOOKS = 3, 8.0
"""Before a cluster counts as down."""


@dataclass(frozen=True, slots=True)
class StartControlPlane:
    name: str = "start-control-plane"
    title: str = "Start the temporary control plane"
    timeout: float = patience.most(API_TIMEOUT) + balancer_pods.TURNS
    needs: tuple[str, ...] = ("prepare-hosts",)

    async def plan(self, context: Context) -> Sequence[Change]:
        if not context.addresses_known or not context.pki.complete():
            return [Change(f"start the temporary control plane on {n.name}") for n in context.cluster.initial_members]
        changes: list[Change] = []
        begins = await _beginning(context)
        for node in context.present(context.cluster.initial_members):
            changes += [Change(sentence) for sentence in await self._differences(context, node, begins)]
        if not changes and not await context.api_answers():
            changes.append(Change("activate the standby control plane, since the API does not answer"))
        return changes

    async def _differences(self, context: Context, node: Node, begins: Begins) -> list[str]:
        host = context.machines.host(node.name)
        if host is None:
            return [f"start the temporary control plane on {node.name}"]
        sentences = []
        if await host.read(kubelet_credentials.KUBELET_KUBECONFIG) is None:
            sentences.append(f"write the kubelet's first credentials on {node.name}")
        if await _will_end(host):
            sentences.append(f"let the kubelet of {node.name} renew its certificate with the newest one that it has")
        stale, missing = await static_pod_changes(context, host, node, founding=await begins(host))
        sentences += [f"remove the static pod {path} on {node.name}" for path in stale]
        sentences += [f"write the static pod {file.path} on {node.name}" for file in missing]
        sentences += await balancer_pods.plan_replacement(context, node)
        if not await kubelet_runs(host):
            sentences.append(f"start the kubelet on {node.name}")
        if await host.read(FOUNDED) is None:
            sentences.append(f"note on {node.name} that the cluster exists")
        return sentences

    async def run(self, context: Context, progress: Progress) -> None:
        initial_members = context.present(context.cluster.initial_members)
        temporary = () if await _api_answers(context) else initial_members if context.founded else (context.first,)
        begins = await _beginning(context)
        await balancer_pods.replace_in_turn(context, initial_members, progress)

        async def one(node: Node) -> None:
            founding = await begins(context.host(node))
            await self._start(context, node, progress, with_standbys=node in temporary, founding=founding)

        await for_each(initial_members, one)
        await wait_for_api(context, progress)
        await for_each(initial_members, lambda node: _note_founded(context, node))

    async def _start(
        self, context: Context, node: Node, progress: Progress, *, with_standbys: bool, founding: bool
    ) -> None:
        host = context.host(node)
        if await host.read(kubelet_credentials.KUBELET_KUBECONFIG) is None:
            first, kubeconfig = kubelet_credentials.first_credentials(context.inputs(), node)
            await host.write_files([first])
            await point_links(host, kubelet_credentials.FIRST_LINK)
            await host.write_files([kubeconfig])
        if await _will_end(host):
            await host.write_files([kubelet_credentials.kubelet_kubeconfig(context.inputs(), node)])
            await restart_kubelet(host)
        stale, missing = await static_pod_changes(context, host, node, founding=founding)
        await host.remove(stale)
        if founding and render_node.has_etcd(context.inputs(), node):
            await host.run(["install", "-d", "-m", "700", places.ETCD_DATA, etcd.MEMBER_DIRECTORY])
            await host.write_files(await changed_files(host, etcd.beginning(context.inputs())))
        await host.write_files(missing)
        if with_standbys:
            await _start_standbys(context, host, node)
        await start_kubelet(host)
        progress.note(f"the kubelet of {node.name} runs")


async def _api_answers(context: Context) -> bool:
    """For an existing cluster one look is not enough: while etcd elects a leader, the API is not ready for a moment."""
    for number in range(LOOKS if context.founded else 1):
        if number:
            await context.clock.sleep(BETWEEN_LOOKS)
        if await context.api_answers():
            return True
    return False


async def _start_standbys(context: Context, host: Host, node: Node) -> None:
    """Where the node has no agent yet, no API server of it ever served in both slots: then it starts as the file wants
    it now, whatever is in place. With an agent, what is in place has served, and may be about to serve again (etcd may
    be what is down): it stays."""
    if not await standbys.cares_for_its_slots(host):
        of_api = [r for r in standbys.wanted_revisions(context, node) if r.component == API_SERVER]
        for revision in await standbys.missing_revisions(host, of_api):
            await standbys.put_revision(host, revision)
        await standbys.renew_outdated(host, [API_SERVER])
    for component in WITH_STANDBY:
        await host.run([standby.SCRIPT_PATH, "activate", component])


async def _will_end(host: Host) -> bool:
    """Whether its kubelet will one day fail to renew its certificate: earlier releases wrote its first certificate into
    its kubeconfig, and it asks with that one. Only where it has rotated its own since."""
    kubeconfig = await host.read(kubelet_credentials.KUBELET_KUBECONFIG, most=SHORT)
    if kubeconfig is None or not embeds_certificate(kubeconfig):
        return False
    return all([await host.read(path) is not None for path in kubelet_credentials.FIRST_LINK])


async def _note_founded(context: Context, node: Node) -> None:
    """From here on a kubelet that starts brings up the standby, and the cluster is never bootstrapped again."""
    host = context.host(node)
    for revision in await standbys.revisions_to_put(context, host, standbys.wanted_revisions(context, node)):
        await standbys.put_revision(host, revision)
    await host.write_files([File(FOUNDED, b"")])


async def wait_for_api(context: Context, progress: Progress) -> None:
    kube = context.kube()

    async def answers() -> NotYet | None:
        said = await kube.healthy("/readyz")
        return None if said is None else NotYet(said, said)  # what control nodes say: which checks still fail

    await poll_until(
        "the API answers through the load balancer",
        answers,
        timeout=API_TIMEOUT,
        still=patience.STILL,
        progress=progress,
        clock=context.clock,
    )


async def static_pod_changes(
    context: Context, host: Host, node: Node, *, founding: bool = False
) -> tuple[list[str], list[File]]:
    """(manifests of older generations, manifests to write) of the permanent static pods.

    founding: whether etcd may start here as a new cluster, since it is nowhere yet. The members of an existing one are
    changed one at a time (`etcd_change`), and so are load balancers that serve (`balancer_pods`).
    """
    present = (await host.run(["ls", places.MANIFESTS], check=False)).text.split()
    pods = render_node.static_pods(context.inputs(), node)
    if not founding:
        pods.pop(ETCD, None)
    elif ETCD in pods:
        there = next(filter(None, map(manifest_of, (await static_pods(host)).values())), None)
        pods |= {} if there is None else {ETCD: wanted_member(context, node, there)}
    if await balancer_pods.former_pods(host, pods[LOAD_BALANCER].path):
        del pods[LOAD_BALANCER]
    keep = {file.path for file in pods.values()}
    stale = [
        f"{places.MANIFESTS}/{name}"
        for name in present
        for component in pods
        if name.startswith(f"{component}-") and f"{places.MANIFESTS}/{name}" not in keep
    ]
    return stale, await changed_files(host, list(pods.values()))


async def etcd_exists(context: Context) -> bool:
    """Whether the cluster's etcd exists. From then on a node that has no member gets one by joining: one that started
    from scratch under its old id would have forgotten its votes and acknowledged writes."""
    return await _is_founded(context) or await context.api_answers()


async def _is_founded(context: Context) -> bool:
    """By what the hosts remember."""
    if context.founded:
        return True
    initial_members = context.present(context.cluster.initial_members)
    remembered = await for_each(initial_members, lambda node: context.host(node).read(places.MEMBERS_FILE))
    return any(content is not None for content in remembered.values())


Begins = Callable[[Host], Awaitable[bool]]


async def _beginning(context: Context) -> Begins:
    """Whether etcd may start on an initial member's host as a new cluster. Where the first `up` was interrupted between
    two initial members, the others may have a quorum and the API may answer: this member is still one of them, and has
    never run."""
    founded, answers = await _is_founded(context), await context.api_answers()

    async def begins(host: Host) -> bool:
        return not founded and (not answers or await _never_had_etcd(host))

    return begins


async def _never_had_etcd(host: Host) -> bool:
    there = (await host.run(["ls", etcd.MEMBER_DIRECTORY], check=False)).text.split()
    return not there and not await static_pods(host)


async def start_kubelet(host: Host) -> None:
    """Enable, which makes systemd reload its units, and start; a running kubelet is left alone."""
    await host.run(["systemctl", "enable", "--now", "kubelet"], timeout=60)


async def restart_kubelet(host: Host) -> None:
    """Whichever slot is in force: of a hosted one the host's takes over, and starts with what is on the disk now."""
    await host.run(["systemctl", "restart", "kubelet"], timeout=60)
    await host.run([generations.SCRIPT_PATH, "aside"], timeout=60)
