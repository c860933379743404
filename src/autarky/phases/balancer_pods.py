"""Another generation of the load balancer's static pod: started beside the one that serves, which goes once the new one
has answered (rule 1); one node after the other.

Both listen on the same ports: HAProxy binds them with SO_REUSEPORT, and the kernel spreads new connections over all
that listen. What one that ends has not accepted yet, it passes on to the other (`tcp_migrate_req`). The new one also
takes over the path of the master's socket, by a rename, so that the node agent reloads that one from then on; HAProxy
leaves the path alone when it ends, and when it cannot use its configuration.

Contract: safe to be killed at any moment: both are left, which serve, and the next run goes on. If the new one does not
answer in time, it is removed, the former one serves as before, and TimedOut is raised. Where no kubelet runs, nothing
is done here: nobody would start the new one.

Danger: HAProxy cannot pass sessions on. Those through the former one (watches, an API server's with etcd) end with it,
and their clients connect again at once, to the new one. And a new one that begins to listen at the very moment when it
is given up has the master's socket: then the agent cannot reload the former one, and says so; `up` again, when the
cause is repaired, or a restart of the former one, ends that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.engine.deadline import poll_until
from autarky.errors import TimedOut
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.components import LOAD_BALANCER
from autarky.model.files import File
from autarky.phases.context import Context, for_each_or_left_out
from autarky.phases.files import changed_files
from autarky.phases.kubelets import kubelet_runs
from autarky.ports import Host, Progress
from autarky.programs import program
from autarky.render.node import manifest
from autarky.render.values import Object

LIMIT = 90.0
"""Seconds within which a new one must answer. It takes a few; a slow machine takes longer."""
END_SECONDS = 60.0
"""For the former one's end. Its kubelet sees that the manifest is gone within 20 s, and kills it after 30 s more."""
TURN = LIMIT + END_SECONDS + 30.0
"""For all of it on a worker that joined before, or it is left out."""
TURNS = 1800.0
"""For all nodes of a phase, one after the other. What is left after that is done by the next run."""
CONNECTIONS = 24
"""If all are answered while both listen, the new one answers: none of them reaches it once in sixteen million times."""
LOOK = program(__file__, "balancer-look.sh", ours=nllb.MASTER_ARGUMENT)


async def former_pods(host: Host, wanted: str) -> list[str]:
    """The manifests of other generations than the wanted one's (a path), where a kubelet runs, so that they serve."""
    present = (await host.run(["ls", places.MANIFESTS], check=False)).text.split()
    paths = [f"{places.MANIFESTS}/{name}" for name in present if name.startswith(f"{LOAD_BALANCER}-")]
    others = [path for path in paths if path != wanted]
    return others if others and await kubelet_runs(host) else []


async def plan_replacement(context: Context, node: Node) -> list[str]:
    """What `replace_in_turn` would do on a node whose host is known."""
    former, (_, wanted) = await _former(context, node), _wanted(context, node)
    where = f"on {node.name} beside the former one, and remove that once the new one answers: {', '.join(former)}"
    return [f"write the static pod {wanted.path} {where}"] if former else []


async def replace_in_turn(context: Context, nodes: Sequence[Node], progress: Progress) -> None:
    """Of the nodes where another generation serves. A worker that joined before and fails is left out; the failure of
    any other node is raised, and the nodes after it are not touched."""
    found = await for_each_or_left_out(context, nodes, lambda node: _former(context, node), progress)
    for node in nodes:
        if found.get(node.name):
            await for_each_or_left_out(
                context, [node], lambda one: _replace(context, one, progress), progress, seconds=TURN
            )


async def _former(context: Context, node: Node) -> list[str]:
    return await former_pods(context.host(node), _wanted(context, node)[1].path)


async def _replace(context: Context, node: Node, progress: Progress) -> None:
    host, (pod, wanted) = context.host(node), _wanted(context, node)
    former = await former_pods(host, wanted.path)
    await host.write_files(await changed_files(host, [wanted]))
    try:
        await _until_it_answers(context, host, pod, progress)
    except TimedOut as error:
        await host.remove([wanted.path])
        raise TimedOut(
            f"node {node.name}: the new load balancer was removed, and the former one stays: {error};"
            f" `journalctl -u kubelet` on {node.name} says why; then run `autarky up` again"
        ) from error
    await host.remove(former)
    await _until_the_former_ended(context, host, pod, progress)
    progress.note(f"the load balancer of {node.name} was replaced")


def _wanted(context: Context, node: Node) -> tuple[Object, File]:
    """The pod and its manifest."""
    pod = nllb.pod(context.inputs(), node)
    return pod, manifest(pod)


async def _until_it_answers(context: Context, host: Host, pod: Object, progress: Progress) -> None:
    async def missing() -> str | None:
        seen = await _look(host, pod)
        if "answers" in seen:
            return None
        return "it listens, and not every connection is answered" if "listens" in seen else "it does not listen"

    what = f"the new load balancer of {host.name} answers"
    await poll_until(what, missing, timeout=LIMIT, progress=progress, clock=context.clock)


async def _until_the_former_ended(context: Context, host: Host, pod: Object, progress: Progress) -> None:
    """Before the next node's begins. One that does not end in time harms nothing: both listen."""

    async def missing() -> str | None:
        return "it still runs" if "former" in await _look(host, pod) else None

    what = f"the former load balancer of {host.name} has ended"
    with suppress(TimedOut):
        await poll_until(what, missing, timeout=END_SECONDS, progress=progress, clock=context.clock)


async def _look(host: Host, pod: Object) -> Sequence[str]:
    given = ["/proc", str(ports.NLLB_HEALTH), pod["metadata"]["uid"], str(CONNECTIONS)]
    return (await host.run(["bash", "-c", LOOK, "bash", *given], check=False)).text.split()
