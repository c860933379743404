"""Changing the settings of running kubelets, or their program, another version: applied with a restart, one node at a
time, and reverted if the kubelet is not healthy with them.

A restart harms no pod: the unit stops the kubelet's process only (KillMode=process), and the kubelet finds its pods
again. `standby boot`, which the unit runs first, does nothing while the hosted API server answers on its port.

On the host: SETTLED has the digest of the settings with which the kubelet was last seen healthy (or was first started);
FORMER has the settings before a change, the program that ran, and whether the Node was Ready with them, from before the
change until after the verdict. `prepare` has put the new program on the host; the link to it is changed with the
settings. Which one runs, its process says.

Contract: safe to be killed at any moment. While FORMER exists, there is no verdict yet: the kubelet is restarted and
judged, whatever the other files say. Settings that were not judged never become SETTLED, except those of a kubelet that
starts for the first time. A kubelet that starts in the middle of an interrupted change (by itself, or because its host
does) starts with the former settings as soon as `up` has seen its host.

Danger: a host of an older release has no SETTLED, and may have settings that its kubelet never read: its kubelet is
restarted once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from autarky import places
from autarky.control.common.pods import is_ready
from autarky.control.common.restarted import Verdict
from autarky.control.hosts.decide.kubelet_restart import Seen, judge
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change, Warn
from autarky.errors import ApiError, TimedOut, Unreachable, UserError
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases import members
from autarky.phases.binaries import STORE, point_links, stored
from autarky.phases.context import Context, for_each_or_left_out, left_out_since
from autarky.phases.restarted import NotWell, quoted, until_well
from autarky.phases.version_check import refuse_newer_kubelet
from autarky.ports import Host, Progress
from autarky.render import node as render_node
from autarky.render.values import Inputs

SETTLED = f"{places.HOST_ROOT}/state/kubelet-settings"
FORMER = f"{places.HOST_ROOT}/state/kubelet-former.json"
"""One file, so that it is complete or does not exist."""
PATHS = (render_node.KUBELET_CONFIG, render_node.KUBELET_UNIT)
KNOWN_SECONDS, READY_SECONDS = 60.0, 30.0
"""How long the API is asked whether a Node is Ready, and how long it may take a Node to become Ready."""
WITHIN = 120.0
"""Seconds for a look at one worker that joined before; it is left out after that."""
LIMIT = 120.0
"""Seconds within which a restarted kubelet must be healthy. It renews its lease every 10 s; a slow machine is late."""


@dataclass(frozen=True, slots=True)
class Former:
    """The settings before a change, and whether the Node was Ready with them. program: the path of the one that ran;
    empty where none did, or nobody knows."""

    files: tuple[File, ...]
    ready: bool
    program: str = ""

    def written(self) -> bytes:
        said = {file.path: file.content.decode(errors="surrogateescape") for file in self.files}
        return json.dumps({"files": said, "ready": self.ready, "program": self.program}).encode()


def read_former(content: bytes) -> Former:
    """With no files if it cannot be read: even then it says that a change is under way."""
    try:
        said = json.loads(content)
        files = [
            File(path, said["files"][path].encode(errors="surrogateescape")) for path in PATHS if path in said["files"]
        ]
        program = said.get("program")
        return Former(tuple(files), bool(said["ready"]), program if isinstance(program, str) else "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Former((), ready=False)


@dataclass(frozen=True, slots=True)
class ConfigureKubelets:
    name: str = "configure-kubelets"
    title: str = "Apply changed settings of kubelets"
    timeout: float = 1800

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not context.addresses_known or context.payload is None or not context.pki.complete():
            return []
        before = set(context.absent)
        changes = await _changes(context)
        found = [Change(f"restart the kubelet of {name} {why}; no pod is touched") for name, why in changes.items()]
        return [*found, *left_out_since(context, before)]

    async def run(self, context: Context, progress: Progress) -> None:
        """Workers first: a mistake should reach the kubelets of control nodes last. So any failure after a kubelet got
        its settings stops the phase, even a host that no longer answers: the settings may be the reason. A rollback may
        be asked for between any two of them."""
        changes = await _changes(context, progress)
        for node in sorted(nodes_that_answer(context), key=lambda node: (node.control_plane, node.name)):
            if node.name in changes:
                await refuse_newer_kubelet(context)
                await apply(context, node, progress)


async def _changes(context: Context, progress: Progress | None = None) -> dict[str, str]:
    """Node → why its kubelet is to be restarted. A worker whose host fails here is left out."""
    look = partial(_unsettled, context)
    found = await for_each_or_left_out(context, nodes_that_answer(context), look, progress, seconds=WITHIN)
    return {name: why for name, why in found.items() if why}


def nodes_that_answer(context: Context) -> list[Node]:
    return [members.as_it_joins(node) for node in context.present(context.cluster.nodes)]


def settings(inputs: Inputs, node: Node) -> list[File]:
    """What the kubelet reads at its start, and we may change."""
    return [file for file in render_node.kubelet_files(inputs, node) if file.path in PATHS]


def settled(files: Sequence[File]) -> File:
    """The record that the kubelet runs with these settings."""
    return File(SETTLED, f"{_digest(files)}\n".encode())


def _digest(files: Sequence[File]) -> str:
    return sha256(b"\0".join(file.content for file in sorted(files, key=lambda file: file.path))).hexdigest()


async def kubelet_runs(host: Host) -> bool:
    return (await host.run(["systemctl", "is-active", "kubelet"], check=False)).text == "active"


async def files_at_start(host: Host, wanted: Sequence[File]) -> list[File]:
    """The settings to write before the kubelet of this host is started. A kubelet that runs gets new settings, and the
    restart for them, once the cluster serves; one that does not run must be able to start.
    """
    former, there, mark = await _former(host), await _read(host, PATHS), await host.read(SETTLED)
    if render_node.KUBELET_UNIT not in {file.path for file in there}:
        return [settled(wanted), *wanted]  # there is nothing to go back to: the mark comes first
    if former is None:
        return [] if await kubelet_runs(host) else list(wanted)
    if mark == settled(there).content:
        return []
    if former.files and mark in (None, settled(former.files).content):
        return list(former.files)
    return [] if await kubelet_runs(host) else list(wanted)


async def program_at_start(host: Host, wanted: str) -> str:
    """The program that the kubelet's link is to point to before the kubelet of this host is started; empty where it may
    stay: it does already, or the kubelet runs, and gets the new one with a restart that is judged."""
    link = (await host.run(["sh", "-c", _LINK, "sh", render_node.BINARIES["kubelet"]])).text.strip()
    former = await _former(host)
    if link != "-" and await kubelet_runs(host):
        return ""
    wanted = former.program if former is not None and former.program.startswith(f"{STORE}/") else wanted
    return "" if link == wanted else wanted


async def _unsettled(context: Context, node: Node) -> str:
    """Why the kubelet is to be restarted, as a clause; "" if it need not be. One that does not run is looked at as
    well: its settings may be why it does not."""
    host = context.machines.host(node.name)
    if host is None or await host.read(render_node.KUBELET_UNIT) is None:
        return ""
    wanted = settings(context.inputs(), node)
    different = [file.path for file in wanted if await host.read(file.path) != file.content]
    if different:
        return f"with its new settings ({', '.join(different)})"
    if await host.read(FORMER) is not None:
        return "with its settings, which have not been verified"
    if await program_that_runs(host) not in ("", _program(context)):
        return f"with its new program (Kubernetes {context.require_payload().release.kubernetes})"
    return "" if await host.read(SETTLED) == settled(wanted).content else "with its settings, which it has not read yet"


def _program(context: Context) -> str:
    """Where its program is, of the version that is wanted."""
    return stored(context.require_payload().binaries["kubelet"])


async def program_that_runs(host: Host) -> str:
    """Where the program of the kubelet that runs is; empty where none runs, and for one that was removed since."""
    found = (await host.run(["sh", "-c", PROGRAM], check=False)).text.strip()
    return "" if found.endswith(" (deleted)") else found


# --- a change --------------------------------------------------------------------------------------------------


async def apply(context: Context, node: Node, progress: Progress) -> None:
    """Restart the node's kubelet with its settings and the payload's program, which is on the host. UserError where it
    is not healthy then; it has the former ones again."""
    host, wanted = context.host(node), settings(context.inputs(), node)
    former = await _keep_former(context, node, progress)
    try:
        await _restart_with(context, node, wanted, _program(context), progress, was_ready=former.ready)
    except NotWell as failure:
        said = await _last_words(host)
        await _take_back(context, node, former, progress)
        raise UserError(
            f"node {node.name}: its kubelet is not healthy with the new settings ({failure}), so that it has the former"
            f" ones again. Its last output:\n{said}",
            fix="correct spec.extraArgs.kubelet (or what else was changed) in the file, and run `autarky up` again",
        ) from failure
    await host.write_files([settled(wanted)])
    await host.remove([FORMER])
    progress.note(f"the kubelet of {node.name} runs with its new settings")


async def _keep_former(context: Context, node: Node, progress: Progress) -> Former:
    """What to go back to: after an interrupted change what that had kept, unless the present settings were judged
    since. Otherwise a node that its new settings made NotReady would count as NotReady before. Raises TimedOut, with
    nothing written, if the API does not say."""
    host = context.host(node)
    there, kept = await _read(host, PATHS), await _former(host)
    judged_since = await host.read(SETTLED) == settled(there).content and (kept is None or kept.files != tuple(there))
    if kept is not None and kept.files and not judged_since:
        return kept
    former = Former(tuple(there), await _was_ready(context, node, progress), await program_that_runs(host))
    await host.write_files([File(FORMER, former.written(), 0o600)])
    return former


async def _was_ready(context: Context, node: Node, progress: Progress) -> bool:
    """Before the change. If its kubelet runs, the Node gets some time: all machines may have just been powered on."""

    async def known() -> str | None:
        return "the API does not say" if await _is_ready(context, node) is None else None

    async def ready() -> str | None:
        return None if await _is_ready(context, node) else "it is not"

    what = f"whether the Node {node.name} is Ready"
    await poll_until(f"it is known {what}", known, timeout=KNOWN_SECONDS, progress=progress, clock=context.clock)
    if not await kubelet_runs(context.host(node)):
        return False
    try:
        what = f"the Node {node.name} is Ready, before the settings of its kubelet change"
        await poll_until(what, ready, timeout=READY_SECONDS, progress=progress, clock=context.clock)
    except TimedOut:
        return False
    return True


async def _former(host: Host) -> Former | None:
    """None if no change is under way. A file that cannot be read says only that one is."""
    content = await host.read(FORMER)
    return None if content is None else read_former(content)


async def _read(host: Host, paths: Sequence[str]) -> list[File]:
    found = [(path, await host.read(path)) for path in paths]
    return [File(path, content) for path, content in found if content is not None]


async def _take_back(context: Context, node: Node, former: Former, progress: Progress) -> None:
    try:
        await _restart_with(context, node, former.files, former.program, progress, was_ready=former.ready)
    except NotWell as failure:
        said = await _last_words(context.host(node))
        raise UserError(
            f"node {node.name}: its kubelet is healthy neither with its new settings nor with the former ones"
            f" ({failure}). Its last output:\n{said}",
            fix=f"see `autarky logs kubelet`, and what else has changed on {node.name}",
        ) from failure
    await context.host(node).remove([FORMER])
    progress.note(f"the kubelet of {node.name} has its former settings again")


async def _restart_with(
    context: Context, node: Node, files: Sequence[File], program: str, progress: Progress, *, was_ready: bool
) -> None:
    """Raises NotWell where the kubelet is not healthy afterwards. program: empty for what the link points to."""
    host = context.host(node)
    await host.write_files(files)
    if program.startswith(f"{STORE}/"):
        await point_links(host, {render_node.BINARIES["kubelet"]: program})
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "restart", "kubelet"], timeout=90)
    # A restart during one of systemd's own does not reset its count, which is that of the other settings.
    await host.run(["systemctl", "reset-failed", "kubelet"], check=False)
    before = ""

    async def look() -> Verdict:
        nonlocal before
        beat = await _heartbeat(context, node)
        before = before or beat  # the first that is seen may be from before the restart
        return judge(await _look(context, node, heard=bool(beat) and beat != before), was_ready=was_ready)

    what = f"the kubelet of {node.name} is healthy with its settings"
    await until_well(what, look, timeout=LIMIT, progress=progress, clock=context.clock)


# --- looking -----------------------------------------------------------------------------------------------------


_LINK = 'readlink "$1" || echo -'
PROGRAM = 'readlink "/proc/$(systemctl show kubelet --property=MainPID --value)/exe"'
_STATE = "systemctl show kubelet --property=ActiveState,NRestarts"
_HEALTH = 'exec 3<>/dev/tcp/127.0.0.1/{port} && printf "GET /healthz HTTP/1.0\\r\\n\\r\\n" >&3 && timeout 5 cat <&3'
_ERROR = re.compile(r"^[EF]\d{4} |\berr=|^Error")
"""klog's errors, and those of the command line."""
_JOURNAL = ("journalctl", "_SYSTEMD_UNIT=kubelet.service", "--lines=60", "--no-pager", "--output=cat")


async def _look(context: Context, node: Node, *, heard: bool) -> Seen:
    host = context.host(node)
    said = (await host.run(_STATE.split(), check=False)).text.splitlines()
    state = dict(line.split("=", 1) for line in said if "=" in line)
    return Seen(
        active=state.get("ActiveState") == "active",
        restarts=_count(state.get("NRestarts", "")),
        healthy=await _is_healthy(context, host),
        heartbeat=heard,
        ready=bool(await _is_ready(context, node)),
    )


def _count(text: str) -> int:
    """0 if it is not a number."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else 0


async def _is_healthy(context: Context, host: Host) -> bool | None:
    """None if the user's arguments disable the port, or move it off the loopback address."""
    given = context.cluster.extra_args.get("kubelet", {})
    port = str(given.get("healthz-port", ports.KUBELET_HEALTH))
    if port == "0" or "healthz-bind-address" in given:
        return None
    said = await host.run(["bash", "-c", _HEALTH.format(port=port)], check=False)
    return " 200 " in said.text.partition("\r\n")[0] + " "


async def _heartbeat(context: Context, node: Node) -> str:
    """When the node's kubelet last renewed its lease, as it wrote it; only whether it changes counts."""
    try:
        lease = await context.kube().get("coordination.k8s.io/v1", "Lease", node.name, "kube-node-lease")
    except (Unreachable, ApiError):
        return ""
    return str((lease or {}).get("spec", {}).get("renewTime", ""))


async def _is_ready(context: Context, node: Node) -> bool | None:
    """None if the API does not say."""
    try:
        live = await context.kube().get("v1", "Node", node.name)
    except (Unreachable, ApiError):
        return None
    return live is not None and is_ready(live)


async def _last_words(host: Host) -> str:
    """The kubelet's last log lines, quoted; only the errors, if there are any."""
    lines = [line.strip() for line in (await host.run(list(_JOURNAL), check=False)).text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return quoted(errors or lines)
