"""What is left on control nodes while no API server serves: what `control.upgrade.decide.offline` judges.

Contract: it only looks, through the hosts, and at etcd through them. A host that cannot be looked at is silent, with
the reason: nothing is done there. Whether nothing serves is asked of every API server by its own port as well: what a
load balancer does not find is not down (rule 2). Workers are looked at before that, and not for long: how old that
answer is when something is done is not theirs to say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autarky import places
from autarky.control.api_server.manifests import READY_PATH
from autarky.control.checkpoint.manifests import images_of_pod
from autarky.control.common import emulation
from autarky.control.common.shapes import image_of
from autarky.control.common.skew import image_version
from autarky.control.slots import manifests as standby_files
from autarky.control.upgrade.decide import offline
from autarky.control.upgrade.decide.offline import Cluster, Plane, Revision, Seen, Standby
from autarky.errors import AutarkyError, CommandFailed, Unreachable, UserError
from autarky.etcd.tools import EtcdTools, Place
from autarky.model import ports
from autarky.model.cluster import Level, Node
from autarky.model.components import API_SERVER, WITH_STANDBY
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.phases import expiry
from autarky.phases.context import Context
from autarky.phases.hosts import observe, refuse_foreign_hosts
from autarky.phases.labelled import find_labelled
from autarky.phases.prepare import CTR, present_images
from autarky.phases.version_check import newest_kubelet
from autarky.ports import Host, Object
from autarky.render import crds

DOWN_SECONDS, LOOK_SECONDS = 15.0, 3.0
"""For how long nothing has answered before anything is judged: a load balancer that reloads, or an API server that is
replaced, is gone for less. Between two looks."""
WORKERS_SECONDS = 5.0
"""For all workers together: what they say is only a warning."""
PLANE_KEY = f"/registry/{crds.GROUP}/controlplanes/{crds.CONTROL_PLANE}"
API_PORTS = (ports.API_HOSTED, ports.API_STANDBY, ports.API_STANDBY_SPARE)
STORES = ("etcd-servers", "etcd-prefix", "etcd-servers-overrides", "encryption-provider-config")
"""The flags that say where the data is, and how to read it: a revision with other ones is of another time."""
_LINKS = frozenset({"current", "previous"})
_KEYS = (".crt", ".key", ".pub")
_RENEWED = "etcd-client."
"""Of an etcd outside, by its owner: the former one may be valid still, and nothing serves anyway."""
_NEEDED_LEAVES = ("apiserver", "apiserver-etcd-client")
_BALANCED_ETCD = f"https://127.0.0.1:{ports.NLLB_ETCD}"
_CONTAINERS = f'labels."io.kubernetes.pod.namespace"==kube-system,labels."io.kubernetes.container.name"=={API_SERVER}'
_OF_STANDBYS = f'{_CONTAINERS},labels."io.kubernetes.pod.name"~={API_SERVER}-standby'


@dataclass(frozen=True, slots=True)
class Container:
    """Of an API server. version: None where its image has lost its name."""

    hosted: bool
    running: bool
    version: Version | None


@dataclass(frozen=True, slots=True)
class Found:
    """containers: node → its API servers' containers. silent: control node → why its host could not be looked at.
    workers: those that answer → the version that their kubelets say."""

    cluster: Cluster
    containers: Mapping[str, Sequence[Container]] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    workers: Mapping[str, Version] = field(default_factory=dict)


async def look(context: Context, *, accepts_kubelets: bool, watched: bool = False) -> Found:
    """UserError and Unreachable where nothing may be done. watched: whether nothing has answered for long enough."""
    await observe(context)
    await refuse_foreign_hosts(context, leave_out_workers=True)
    _refuse_unfit(context)
    await find_labelled(context, api=False)
    await _refuse_an_answer(context)
    nodes = [node for node in context.present(context.control_nodes) if node.name in context.owners]
    if not nodes:
        raise Unreachable("; ".join(["no control node's host answers", *_silent(context).values()]))
    workers = await _workers(context)
    plane = await _plane(context, nodes)  # before its servers: without etcd they are ready, and serve nobody
    await refuse_what_serves(context, 0.0 if watched else DOWN_SECONDS)
    said = await asyncio.gather(*(_try(context.host(node)) for node in nodes))
    looks = {node.name: one for node, one in zip(nodes, said, strict=True) if not isinstance(one, str)}
    failed = {node.name: one for node, one in zip(nodes, said, strict=True) if isinstance(one, str)}
    if not looks:
        raise Unreachable("; ".join(f"{name}: {why}" for name, why in failed.items()))
    expired = await _expired(context)
    seen = {name: replace(one, trouble=expired.get(name, "")) for name, (one, _) in looks.items()}
    return Found(
        Cluster(seen, plane, accepts_kubelets),
        {name: containers for name, (_, containers) in looks.items()},
        {name: why for name, why in {**_silent(context), **failed}.items() if name not in looks},
        workers,
    )


def _refuse_unfit(context: Context) -> None:
    if not context.cluster.hosts_level(Level.API_SERVER):
        raise UserError(
            "the API servers of this cluster are not hosted, and were not upgraded through the API",
            fix="`autarky doctor` says why the API does not answer",
        )
    if not context.pki.complete("super-admin") or not context.servers:
        raise UserError("this machine lacks the cluster's keys or addresses", fix="run `autarky login HOST`")


def _silent(context: Context) -> dict[str, str]:
    """Control node → why its host does not count, where nothing else is known of it."""
    why = "its host has nothing of this cluster"
    return {node.name: context.absent.get(node.name, why) for node in context.control_nodes}


# --- nothing serves --------------------------------------------------------------------------------------------------


async def _refuse_an_answer(context: Context) -> None:
    if await context.api_answers():
        raise UserError("the API answers", fix="run the same command again: it goes back through the API")


async def refuse_what_serves(context: Context, seconds: float = 0.0) -> None:
    """UserError where an API server is ready at any moment of this time; once it is always asked."""
    end = context.clock.monotonic() + seconds
    while True:
        await _refuse_an_answer(context)
        if own := await _ready_servers(context):
            raise UserError(
                f"API servers are ready, but not through the load balancers: {', '.join(own)}",
                fix="`autarky doctor` says what is wrong with the load balancers",
            )
        if (left := end - context.clock.monotonic()) <= 0:
            return
        await context.clock.sleep(min(LOOK_SECONDS, left))


async def _ready_servers(context: Context) -> list[str]:
    """By their own ports, without etcd."""
    nodes = [node for node in context.complete.nodes if node.control_plane or node.name in context.labelled]
    asked = [(node, port) for node in nodes if node.address is not None for port in API_PORTS]
    said = await asyncio.gather(*(_is_ready(context, node, port) for node, port in asked))
    return [f"{node.name} (port {port})" for (node, port), is_ready in zip(asked, said, strict=True) if is_ready]


async def _is_ready(context: Context, node: Node, port: int) -> bool:
    kube = context.connect([f"https://{node.address}:{port}"], "super-admin")
    try:
        return await kube.healthy(READY_PATH) is None
    finally:
        await kube.close()


# --- etcd ------------------------------------------------------------------------------------------------------------


async def _plane(context: Context, nodes: Sequence[Node]) -> Plane | None:
    """As etcd's quorum has it; None where it says nothing of use. UserError where there is no quorum. An etcd outside
    is not asked."""
    if context.cluster.external_etcd is not None:
        return None
    said = ""
    for node in nodes:
        for url in (Place().local, _BALANCED_ETCD):
            tools = EtcdTools(context.host(node), place=Place(local=url))
            try:
                await tools.revision()
                found = await tools.value(PLANE_KEY)
            except AutarkyError as error:
                said = str(error)
            else:
                return _plane_in(found)
    raise UserError(
        f"etcd does not answer by its quorum, so that no API server of any version could serve: {said}",
        fix="if it does not come back by itself: `autarky etcd recover-quorum`",
    )


def _plane_in(text: str) -> Plane | None:
    """None for what is encrypted, or damaged."""
    try:
        return offline.plane_of(parsed(text))
    except ValueError:
        return None


# --- one host --------------------------------------------------------------------------------------------------------


async def _try(host: Host) -> tuple[Seen, Sequence[Container]] | str:
    """Or why it could not be looked at."""
    try:
        return await _seen_on(host)
    except (CommandFailed, Unreachable) as error:
        return str(error)


async def _seen_on(host: Host) -> tuple[Seen, Sequence[Container]]:
    images = await present_images(host)
    if images is None:
        raise Unreachable(f"{host.name}: its container runtime does not answer")
    listed = standby_files.parse_list((await host.run([standby_files.SCRIPT_PATH, "list"])).text)
    outdated = (await host.run([standby_files.SCRIPT_PATH, "outdated"])).text.split()
    standbys = {}
    for component in WITH_STANDBY:
        current, activations = listed.get(component, (None, ()))
        revisions = await _revisions(host, component, current, images)
        previous = await _previous(host, component)
        standbys[component] = Standby(current, previous, revisions, bool(activations), component in outdated)
    containers = await _containers(host, images)
    runs = frozenset(one.version for one in containers if one.version is not None)
    return Seen(standbys, runs, await newest_kubelet(host)), containers


async def _previous(host: Host, component: str) -> str | None:
    script = 'for p; do readlink "$p" 2>/dev/null || echo -; done'
    said = (await host.run(["sh", "-c", script, "sh", f"{places.STANDBY}/{component}/previous"])).text.strip()
    return None if said in ("", "-") else said


async def _revisions(host: Host, component: str, current: str | None, images: Mapping[str, str]) -> dict[str, Revision]:
    """The complete ones, whichever link leads to them. One that cannot be understood is as none."""
    pods: dict[str, Object] = {}
    for name in set(await _names(host, f"{places.STANDBY}/{component}")) - _LINKS:
        content = await host.read(f"{places.STANDBY}/{component}/{name}/pod.json")
        pod = None if content is None else _pod(content, component)
        if pod is not None:
            pods[name] = pod
    base = pods.get(current or "")
    found = {}
    for name, pod in pods.items():
        trouble = _lacking(pod, images)
        if base is not None and name != current:
            trouble = trouble or _other_stores(component, pod, base)
            trouble = trouble or await _other_keys(host, component, name, str(current))
        flags = emulation.given(pod, component)
        emulates = flags[0] if len(flags) == 1 else ""
        found[name] = Revision(image_version(image_of(pod, component)), trouble, emulates)
    return found


def _pod(content: bytes, component: str) -> Object | None:
    try:
        pod: Object = json.loads(content)
        complete = standby_files.is_complete(content) and bool(images_of_pod(pod) and image_of(pod, component))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return pod if complete else None


def _lacking(pod: Object, images: Mapping[str, str]) -> str:
    lacks = [image for image in images_of_pod(pod) if image not in images]
    return f"the node lacks {', '.join(lacks)}" if lacks else ""


def _other_stores(component: str, pod: Object, base: Object) -> str:
    """How it would look for the data in another place, or with other keys, than the one from after it."""
    if component != API_SERVER:
        return ""
    before, now = _flags(pod), _flags(base)
    differs = [f"--{flag}" for flag in STORES if before.get(flag) != now.get(flag)]
    return f"it has another {', '.join(differs)} than the current one" if differs else ""


def _flags(pod: Object) -> dict[str, str]:
    words = [
        str(word)
        for one in pod["spec"]["containers"]
        if one["name"] == API_SERVER
        for word in (*one.get("command", ()), *one.get("args", ()))
    ]
    pairs = (word[2:].partition("=") for word in words if word.startswith("--"))
    return {flag: value for flag, _, value in pairs}


async def _other_keys(host: Host, component: str, name: str, current: str) -> str:
    """Whether a key or a certificate that both have has changed in between: clients would not trust it any more."""
    before, now = await _keys(host, component, name), await _keys(host, component, current)
    differs = sorted(key for key in before.keys() & now.keys() if before[key] != now[key])
    return f"its {', '.join(differs)} is not the one of today" if differs else ""


async def _keys(host: Host, component: str, revision: str) -> dict[str, str]:
    """Name → digest, of the files of a revision, which lie in one directory, or in one for each volume."""
    root = f"{places.STANDBY}/{component}/{revision}/files"
    paths = []
    for name in await _names(host, root):
        inside = [name] if name.endswith(_KEYS) else [f"{name}/{one}" for one in await _names(host, f"{root}/{name}")]
        paths += [f"{root}/{one}" for one in inside if one.endswith(_KEYS)]
    paths = [path for path in paths if not path.rpartition("/")[2].startswith(_RENEWED)]
    return {path.rpartition("/")[2]: digest for path, (digest, _) in (await host.digests(paths)).items()}


async def _names(host: Host, directory: str) -> list[str]:
    """None of a file, and of what is not there."""
    listing = await host.run(["ls", directory], check=False)
    return [name for name in listing.text.split() if "/" not in name] if listing.status == 0 else []


async def _containers(host: Host, images: Mapping[str, str]) -> list[Container]:
    """As far as the runtime says. Those that have ended are there until their kubelet removes them."""
    rows = (await host.run([*CTR, "containers", "ls", _CONTAINERS], check=False)).text.splitlines()[1:]
    standbys = (await host.run([*CTR, "containers", "ls", "-q", _OF_STANDBYS], check=False)).text.split()
    tasks = [line.split() for line in (await host.run([*CTR, "tasks", "ls"], check=False)).text.splitlines()[1:]]
    running = {words[0] for words in tasks if words[-1:] == ["RUNNING"]}
    listed = [words for words in map(str.split, rows) if len(words) > 1]
    return [Container(one[0] not in standbys, one[0] in running, _version(one[1], images)) for one in listed]


def _version(image: str, images: Mapping[str, str]) -> Version | None:
    """A container may name its image by its digest: then by another name of the same."""
    same = [name for name, digest in images.items() if digest == images.get(image)] if image in images else []
    return next((found for one in (image, *same) if (found := image_version(one)) is not None), None)


# --- all of them -----------------------------------------------------------------------------------------------------


async def _expired(context: Context) -> dict[str, str]:
    """Control node → which of its certificates have expired, a clause: no API server would serve with them."""
    now, said = datetime.now(UTC), {}
    for name, disk in (await expiry.on_disks(context)).items():
        ended = [one for one in _NEEDED_LEAVES if one in disk.ends and disk.ends[one] <= now]
        if ended:
            said[name] = f"its certificate {' and '.join(ended)} has expired, without which no API server serves"
    return said


async def _workers(context: Context) -> dict[str, Version]:
    """Worker that answers in time → the version that its kubelet says."""
    control = {node.name for node in context.control_nodes}
    nodes = [node for node in context.present(context.cluster.nodes) if node.name in context.owners]
    found: dict[str, Version] = {}

    async def ask(node: Node) -> None:
        with suppress(AutarkyError):
            if (version := await newest_kubelet(context.host(node))) is not None:
                found[node.name] = version

    with suppress(TimeoutError):
        async with asyncio.timeout(WORKERS_SECONDS), asyncio.TaskGroup() as group:
            for node in nodes:
                if node.name not in control:
                    group.create_task(ask(node))
    return found
