"""Fencing etcd's members: none of them runs, or is started by anybody, until the recovery lets it.

Contract: the fence is written before a static pod is taken away, so that no crash leaves a member that runs beside the
new etcd; the node agents, `up` and the kubelet's start respect it. Releasing restores what was there: what another
recovery had fenced before stays fenced, and no member starts whose etcd was replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.slots import manifests as standby
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import AutarkyError, CommandFailed, Unreachable, UserError
from autarky.etcd.tools import EtcdTools
from autarky.model.cluster import Node
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_pods import static_pods
from autarky.phases.recovery.choosing import of_replaced
from autarky.phases.recovery.resuming import ABANDON
from autarky.phases.recovery.serving import leader_of
from autarky.phases.recovery.state import OF_FORMER, Fence, Recovery, fence_on, nodes_of, seat_of
from autarky.ports import Host, Progress

END_SECONDS = 60.0
"""The kubelet kills a member after 30 s."""

# An etcd that has one of these very directories, whatever started it: not one of a container host on this machine,
# which has the same path, and no tenant's process of that name. The kernel says so, and no path below /proc/PID/root is
# looked up, where links lead out again: it has a file of the member open, or, before it has opened any, its path to the
# directory is of the same file system and place. Says 1 where there is none.
_KILL = """\
place_of() { # DIRECTORY MOUNTS: device and path there of what these mounts have as the directory
  device='' path='' longest=-1
  while read -r _ _ its_device root point _; do
    case $1/ in "${point%/}/"*) [ ${#point} -ge $longest ] || continue ;; *) continue ;; esac
    longest=${#point} device=$its_device path=${root%/}${1#"${point%/}"}
  done <"$2"
  [ $longest -ge 0 ] && printf '%s %s' "$device" "${path:-/}"
}
is_of_the_member() { # PROCESS DIRECTORY
  [ -z "$here" ] || [ "$(place_of "$2" "/proc/$1/mountinfo")" != "$here" ] || return 0
  [ -n "$files" ] && find -L "/proc/$1/fd" -maxdepth 1 -type f -printf '%D:%i\\n' | grep -qxF -e "$files"
}
found=1
for data; do
  [ -d "$data" ] || continue
  here=$(place_of "$data" /proc/self/mountinfo)
  files=$(find "$data/member" -type f -printf '%D:%i\\n' 2>/dev/null)
  for process in /proc/[0-9]*; do
    read -r name <"$process/comm" && [ "$name" = etcd ] || continue
    tr '\\0' '\\n' <"$process/cmdline" | grep -qx -e "--data-dir=$data" || continue
    is_of_the_member "${process#/proc/}" "$data" && found=0 && kill -KILL "${process#/proc/}"
  done 2>/dev/null
done
exit $found
"""
_DIRECTORIES = (places.ETCD_DATA, etcd.SECOND_DATA)
"""Of its member, and of the second one, which stands in for the only one while that is changed."""
_ABSENT = 3
"""Looks in a row without one, until it counts as ended: the kubelet may be about to start it again."""


@dataclass(frozen=True, slots=True)
class FenceEtcd:
    """No member of the old etcd runs on a control node that answers."""

    recovery: Recovery
    name: str = "fence-etcd"
    title: str = "Fence the members of the old etcd"
    timeout: float = 180

    async def plan(self, context: Context) -> Sequence[Change]:
        if self.recovery.placed:
            return []
        # Also where there is a fence and no static pod: the member may still run, if this was cut.
        stopped = [Change(f"stop etcd on {name}, and let nothing start it") for name in sorted(self.recovery.found)]
        led = [] if self.recovery.current is None else [Change(f"see that {self.recovery.seat} leads etcd until then")]
        return [*led, *stopped]

    async def run(self, context: Context, progress: Progress) -> None:
        fence = self.recovery.fence

        async def one(node: Node) -> None:
            host = context.host(node)
            await _note_earlier(host, node, self.recovery)
            await _write_fence(host, node, fence)
            await host.run([standby.SCRIPT_PATH, "fence-etcd"], timeout=60)
            await _ended(context, host, progress)

        try:
            # The seat, which leads, goes last: whatever the others have acknowledged is in its data, which is kept.
            await _lead_from_seat(context, self.recovery, progress)
            nodes = nodes_of(context, self.recovery)
            await for_each([node for node in nodes if node.name != self.recovery.seat], one)
            await for_each([node for node in nodes if node.name == self.recovery.seat], one)
        except BaseException:
            await release_all(context, self.recovery, progress)
            raise


async def _lead_from_seat(context: Context, recovery: Recovery, progress: Progress) -> None:
    """Where etcd serves. Whoever has been made the leader has all that was acknowledged before, and all that is
    acknowledged later comes from him. If that fails nothing is lost for the new etcd, whose data is of another time."""
    if recovery.current is None:
        return
    try:
        why = await _moved_to(EtcdTools(seat_of(context, recovery)), recovery.seat)
    except (CommandFailed, Unreachable) as error:
        why = str(error)
    if why:
        said = f"{recovery.seat} does not lead etcd, and an undo may lack what the others have acknowledged last"
        progress.note(f"{said}: {why}")


async def _moved_to(tools: EtcdTools, seat: str) -> str:
    """Empty where it leads now, else why it cannot. CommandFailed, Unreachable."""
    membership = await tools.membership()
    leader = await leader_of(tools, membership)
    heir = next((one for one in membership.members if one.name == seat and not one.is_learner), None)
    if leader is None or heir is None:
        return "no leader is known" if leader is None else "it is no member that votes"
    if leader.id != heir.id:
        await tools.move_leader(leader.client_urls[0], heir.id)
    return ""


async def _note_earlier(host: Host, node: Node, recovery: Recovery) -> None:
    """With its static pod in place the member may run: that recovery was cut before it took the pod away."""
    found = await fence_on(host)
    if found is not None and found.recovery != recovery.id and not await static_pods(host):
        recovery.earlier[node.name] = found


async def _write_fence(host: Host, node: Node, fence: Fence) -> None:
    """Its disk may be full, or dying."""
    try:
        await host.write_files([fence.file()])
    except CommandFailed as error:
        raise UserError(
            f"{node.name} cannot be fenced: {error}", fix=f"power {node.name} off, and run the same command again"
        ) from error


async def _ended(context: Context, host: Host, progress: Progress) -> None:
    """A member without a quorum needs seven seconds to stop. It is killed, which its data withstands like a power cut;
    it does not come back, since its static pod is away: but for a moment, where the kubelet has not seen that yet."""

    absent = 0

    async def ended() -> str | None:
        nonlocal absent
        killed = await host.run(["bash", "-c", _KILL, "bash", *_DIRECTORIES], check=False)
        absent = 0 if killed.status == 0 else absent + 1
        return None if absent >= _ABSENT else "it still runs"

    what = f"the member of etcd on {host.name} has exited"
    await poll_until(what, ended, timeout=END_SECONDS, progress=progress, clock=context.clock)


async def release_all(context: Context, recovery: Recovery, progress: Progress) -> None:
    """The old members run again, where the new data is not in its place yet. Never raises AutarkyError."""
    if recovery.placed:
        return
    await asyncio.shield(_release(context, recovery, progress))


async def _release(context: Context, recovery: Recovery, progress: Progress) -> None:
    """What was made goes first: the old etcd may go on, and nobody may take that up later."""
    try:
        await seat_of(context, recovery).run(["rm", "-rf", recovery.work], timeout=60)
    except AutarkyError as error:
        progress.note(f"etcd stays fenced: {recovery.seat}: {error}")
        return
    for node in nodes_of(context, recovery):
        try:
            await _release_on(context.host(node), node, recovery, progress)
        except AutarkyError as error:
            progress.note(f"{node.name}: its member of etcd stays fenced: {error}")


async def _release_on(host: Host, node: Node, recovery: Recovery, progress: Progress) -> None:
    """Only what this recovery has fenced."""
    fence, earlier = await fence_on(host), recovery.earlier.get(node.name)
    if fence is None:
        return
    if fence.recovery == recovery.id and earlier is not None:
        await host.write_files([earlier.file()])
    if fence.recovery != recovery.id or earlier is not None:
        progress.note(f"{node.name} stays fenced, as an earlier recovery has left it: `{ABANDON}` gives that up")
        return
    if node.name in of_replaced(recovery):
        await host.remove(OF_FORMER)
        progress.note(f"{node.name} is not fenced any more, and its etcd, which was replaced, does not start")
        return
    await host.run([standby.SCRIPT_PATH, "release-etcd"], timeout=60)
    if await static_pods(host):
        progress.note(f"the member of etcd on {node.name} runs again, as before")
