"""Changing the arguments of running etcd members: one member at a time, each healthy again before the next is touched,
and restored if it does not become healthy.

Every control node of the file is looked at, and every worker that a label has made one: by the API, or without it by
what control nodes know. What is on another worker's disk is no member, whatever it looks like.

Contract: safe to be killed at any moment. On the host, FORMER has the static pod from before a change, while that is
under way: it is written before the static pod is replaced and removed after the verdict, and holds what was healthy.
What an interrupted run has left is judged, or restored, by the next one; meanwhile the node's agent starts a member
that has no static pod at all (level 1). Without a quorum there is none to lose: then a live member counts as healthy.

Danger: two static pods of etcd on one host fight for one directory and its ports. The former one has exited before the
new one is written; however that wait ends, a static pod is written.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from autarky import places
from autarky.control.admission.decide import removal
from autarky.control.common.restarted import Verdict
from autarky.control.etcd.decide import restart as etcd_restart
from autarky.control.etcd.decide.restart import Member, Seen
from autarky.control.slots import manifests as standby
from autarky.engine.deadline import poll_until
from autarky.engine.phase import Change
from autarky.errors import Refused, TimedOut, UserError
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.components import ETCD
from autarky.model.files import File
from autarky.parsing import parsed
from autarky.phases import start
from autarky.phases.context import Context, for_each
from autarky.phases.etcd_listed import members_of
from autarky.phases.etcd_pods import manifest_of, static_pods, wanted_member
from autarky.phases.etcd_template import is_changed_by_agents
from autarky.phases.kubelets import kubelet_runs
from autarky.phases.labelled import labelled_by_disks
from autarky.phases.restarted import NotWell, quoted, until_well
from autarky.ports import Host, Object, Progress
from autarky.render.values import SYSTEM

FORMER = places.ETCD_FORMER
LIMIT = 120.0
"""Seconds within which a restarted member must be healthy. It takes some; a slow machine takes longer."""
END_SECONDS = 35.0
"""The kubelet kills it after 30 s."""
RESTORE_UNIT, RESTORE_SECONDS = "autarky-restore-etcd", 90.0
"""Seconds after which a host without a static pod of etcd restores the former one by itself: `up` takes less."""
PATIENCE = 60.0
"""Seconds to wait for a quorum that is not there at first: the machines may have just been powered on."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The change of one node's member. present: path → content of the static pods of etcd on its host.
    former: the one to go back to; under_way: whether a change of an earlier run was interrupted."""

    node: Node
    present: Mapping[str, bytes]
    former: File
    wanted: File
    under_way: bool

    @property
    def is_written(self) -> bool:
        return self.present == {self.wanted.path: self.wanted.content}

    def sentence(self) -> str:
        if self.is_written:
            return f"check the member of etcd on {self.node.name}, whose change was interrupted"
        return f"change the member of etcd on {self.node.name}, and wait until it is healthy: write {self.wanted.path}"


@dataclass(frozen=True, slots=True)
class ChangeEtcd:
    name: str = "change-etcd"
    title: str = "Change etcd's members, one at a time"
    timeout: float = 1800

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(plan.sentence()) for plan in (await _plans(context)).values()]

    async def run(self, context: Context, progress: Progress) -> None:
        left = await _plans(context)
        await for_each([plan.node for plan in left.values()], lambda node: _start_kubelet(context.host(node)))
        members = await _wait_for_quorum(context, progress)
        await _refuse_unknown_members(context, members)
        while left:
            name = etcd_restart.following(left, members or ())
            if members is not None and name not in {member.name for member in members}:
                await context.host(left.pop(name).node).remove([FORMER])  # it has left etcd: its agent stops it
                continue
            why_not = etcd_restart.against(name, members or ())
            if why_not is not None:
                go_on = "bring the others back (see `autarky doctor`), and run `autarky up` again"
                raise Refused(removal.QUORUM, why_not, go_on)
            await _change(context, left.pop(name), progress, serves=members is not None)
            members = await members_of(context)
        for name in [member.name for member in members or () if member.name not in _reachable(context)]:
            progress.note(f"the member of etcd on {name} was left as it is: its host is not in the file, or silent")


async def _refuse_unknown_members(context: Context, members: Sequence[Member] | None) -> None:
    """A ready API has a quorum of etcd behind it, which might not survive the restart of a healthy member."""
    if members is None and await context.api_answers():
        what = "etcd serves the API, but none of its members reports who the members are and whether they are healthy"
        go_on = "see `autarky logs etcd` and `autarky doctor`, and run `autarky up` again"
        raise Refused(removal.UNKNOWN_IS_NOT_DOWN, what, go_on)


def _reachable(context: Context) -> set[str]:
    return {node.name for node in context.present(context.cluster.nodes)}


async def _start_kubelet(host: Host) -> None:
    if not await kubelet_runs(host):
        await start.start_kubelet(host)


# --- what there is, and what should be ------------------------------------------------------------------------------


async def _plans(context: Context) -> dict[str, _Plan]:
    """By node. Empty while etcd does not exist yet: `start-control-plane` creates it; and where the node agents change
    the members."""
    if context.cluster.external_etcd is not None or not context.addresses_known or not context.pki.complete():
        return {}
    if await is_changed_by_agents(context):
        return {}
    found = await for_each(await _with_members(context), lambda node: _plan(context, node))
    plans = {name: plan for name, plan in found.items() if plan is not None}
    return plans if plans and await start.etcd_exists(context) else {}


async def _with_members(context: Context) -> list[Node]:
    """Whose hosts answer and may have one."""
    labelled = context.active_in_api if context.api_seen else (await labelled_by_disks(context))[0]
    nodes = [node for node in context.cluster.nodes if node.control_plane or node.name in labelled]
    return [node for node in context.present(nodes) if context.machines.host(node.name) is not None]


async def _plan(context: Context, node: Node) -> _Plan | None:
    """None if there is nothing to do, or the node has no member; also while a recovery has fenced it."""
    host = context.host(node)
    if await host.read(places.ETCD_FENCE) is not None or await _agent_changes_it(host):
        return None
    present, kept = await static_pods(host), await host.read(FORMER)
    in_place, former = next(filter(None, map(manifest_of, present.values())), None), manifest_of(kept)
    there = in_place or former
    if there is None:
        return None
    # Its version is that of the pod in place: the data may be of it by now, and a former one not start from that.
    wanted, former = wanted_member(context, node, there), former or there
    plan = _Plan(node, present, former, wanted, under_way=kept is not None)
    return None if plan.is_written and not plan.under_way else plan


async def _agent_changes_it(host: Host) -> bool:
    """Its node agent replaces the static pod, and needs no API to go on."""
    noted = await host.read(places.ETCD_CHANGE)
    return noted is not None and b'"over": true' not in noted


# --- one member -----------------------------------------------------------------------------------------------------


async def _change(context: Context, plan: _Plan, progress: Progress, *, serves: bool) -> None:
    """serves: whether etcd has a quorum, by which a member's health is judged."""
    host, name = context.host(plan.node), plan.node.name
    if not plan.under_way:
        await host.write_files([File(FORMER, plan.former.content, 0o600)])
    try:
        await _put(context, host, plan.wanted, progress, serves=serves)
    except NotWell as failure:
        said = await _last_words(host, plan.wanted)
        await _put_back(context, plan, progress, serves=serves)
        raise UserError(
            f"node {name}: its member of etcd is not healthy with {_difference(plan)} ({failure}): it was restored, and"
            f" the members after it were not touched. Its last output:\n{said}",
            fix="correct spec.extraArgs.etcd in the file, and run `autarky up` again",
        ) from failure
    await host.remove([FORMER])
    progress.note(f"the member of etcd on {name} runs with {_difference(plan)}")


async def _put_back(context: Context, plan: _Plan, progress: Progress, *, serves: bool) -> None:
    host, name = context.host(plan.node), plan.node.name
    if plan.former == plan.wanted:
        raise UserError(
            f"node {name}: its member of etcd is not healthy, and a change of it was interrupted. Its last output:\n"
            + await _last_words(host, plan.wanted),
            fix=f"see what else has changed on {name}, and run `autarky up` again",
        )
    try:
        await _put(context, host, plan.former, progress, serves=serves)
    except NotWell as failure:
        raise UserError(
            f"node {name}: its member of etcd is healthy neither with {_difference(plan)} nor as it was before"
            f" ({failure}). Its last output:\n{await _last_words(host, plan.former)}",
            fix=f"see what else has changed on {name}, correct spec.extraArgs.etcd, and run `autarky up` again",
        ) from failure
    await host.remove([FORMER])
    progress.note(f"the member of etcd on {name} was restored")


async def _put(context: Context, host: Host, wanted: File, progress: Progress, *, serves: bool) -> None:
    """Make this the only static pod of etcd, and wait until its member is healthy. Raises NotWell if it is not."""
    present = await static_pods(host)
    others = {path: content for path, content in present.items() if path != wanted.path}
    await _restored_without_us(host)
    await host.remove(list(others))
    if present.get(wanted.path) != wanted.content:
        try:
            await _wait_for_the_end(context, host, wanted, others, progress)
        finally:
            await host.remove([path for path in await static_pods(host) if path != wanted.path])
            await host.write_files([wanted])
    await host.run(["systemctl", "stop", f"{RESTORE_UNIT}.timer"], check=False)

    async def look() -> Verdict:
        return etcd_restart.judge(await _look(host, wanted, others, "/readyz" if serves else "/livez"))

    what = f"the member of etcd on {host.name} is healthy"
    await until_well(what, look, timeout=LIMIT, progress=progress, clock=context.clock)


async def _restored_without_us(host: Host) -> None:
    """Let the host restore the static pod if we are interrupted now: with a single member there is no API, and perhaps
    nothing else to do it. The kubelet's start does the same, since a timer is gone after a reboot."""
    await host.run(["systemctl", "stop", f"{RESTORE_UNIT}.timer"], check=False)
    later = ["systemd-run", "--quiet", "--collect", f"--unit={RESTORE_UNIT}", f"--on-active={RESTORE_SECONDS:.0f}"]
    await host.run([*later, standby.SCRIPT_PATH, "restore-etcd"])


async def _wait_for_the_end(
    context: Context, host: Host, wanted: File, others: Mapping[str, bytes], progress: Progress
) -> None:
    """Until the former member's process exits: the new one would find its ports taken, and be restarted after 10 s."""

    async def ended() -> str | None:
        return "it still runs" if (await _look(host, wanted, others, "/livez")).former else None

    what = f"the former member of etcd on {host.name} has exited"
    with suppress(TimedOut):
        await poll_until(what, ended, timeout=END_SECONDS, progress=progress, clock=context.clock)


def _difference(plan: _Plan) -> str:
    """The arguments that are new, or gone."""
    before, after = (_command(file.content) for file in (plan.former, plan.wanted))
    new = [word for word in after if word not in before]
    gone = [word for word in before if word not in after and word.partition("=")[0] not in _names(new)]
    said = [*new, *(f"no {word.partition('=')[0]}" for word in gone)]
    return ", ".join(said) or "its new static pod"


def _names(words: Sequence[str]) -> set[str]:
    return {word.partition("=")[0] for word in words}


def _command(manifest: bytes) -> list[str]:
    return list(map(str, parsed(manifest)["spec"]["containers"][0]["command"]))


# --- looking --------------------------------------------------------------------------------------------------------

# The pod's uid in its cgroup tells whose etcd process runs: the former one still answers while it shuts down.
LOOK = """\
path=$1 port=$2 logs=$3 new=${4//-/.}; shift 4
for process in /proc/[0-9]*; do
  read -r name <"$process/comm" && [ "$name" = etcd ] && groups=$(<"$process/cgroup") || continue
  [[ $groups =~ pod$new ]] && echo "runs new"
  for former; do [[ $groups =~ pod${former//-/.} ]] && echo "runs former"; done
done 2>/dev/null
echo "starts $(ls "$logs" 2>/dev/null | grep -x '[0-9]*\\.log' | sort -n | tail -n 1)"
exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'GET %s HTTP/1.0\\r\\n\\r\\n' "$path" >&3 &&
  read -t 5 -r line <&3 && echo "says $line"
"""


async def _look(host: Host, wanted: File, others: Mapping[str, bytes], path: str) -> Seen:
    uids = [_uid(content) for content in others.values()]
    argv = ["bash", "-c", LOOK, "bash", path, str(ports.ETCD_HEALTH), _logs(host, wanted), _uid(wanted.content), *uids]
    lines = (await host.run(argv, check=False)).text.splitlines()
    said = {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in lines}
    last_log, answer = said.get("starts", "").removesuffix(".log"), said.get("says", "").split()
    return Seen(
        former="runs former" in lines,
        new="runs new" in lines,
        starts=int(last_log) + 1 if last_log.isdecimal() else 0,
        answers=answer[1] if len(answer) > 1 else "",
    )


def _uid(manifest: bytes) -> str:
    return str(_metadata(manifest).get("uid", "-"))


def _logs(host: Host, manifest: File) -> str:
    """Where the kubelet keeps the log of the member's container; each start has a file of its own."""
    pod = _metadata(manifest.content).get("name")
    return f"/var/log/pods/{SYSTEM}_{pod}-{host.name}_{_uid(manifest.content)}/{ETCD}"


def _metadata(manifest: bytes) -> Object:
    try:
        return dict(parsed(manifest)["metadata"])
    except (ValueError, KeyError, TypeError):
        return {}


LAST_LOG = 'cd "$1" && tail -n 60 "$(ls | grep -x "[0-9]*\\.log" | sort -n | tail -n 1)"'
_GRAVE = re.compile(r'"level":"(warn|error|panic|fatal)"|^Error')


async def _last_words(host: Host, manifest: File) -> str:
    """The last lines of its container's log; only the errors, if there are any. For an unknown flag etcd prints the
    error first, and then its usage."""
    text = (await host.run(["sh", "-c", LAST_LOG, "sh", _logs(host, manifest)], check=False)).text
    lines = [re.sub(r"^\S+ std(out|err) [FP]( |$)", "", line).strip() for line in text.splitlines()]
    lines = [line for line in itertools.takewhile(lambda line: line != "Usage:", lines) if line]
    grave = [line for line in lines if _GRAVE.search(line)]
    return quoted(grave or lines)


# --- all members ----------------------------------------------------------------------------------------------------


async def _wait_for_quorum(context: Context, progress: Progress) -> list[Member] | None:
    """The members, once there is a quorum; None if there is none after a while, so that none can be lost."""
    found: list[Member] | None = None

    async def answers() -> str | None:
        nonlocal found
        found = await members_of(context)
        return None if found is not None else "no member reaches the others"

    try:
        await poll_until("etcd has a quorum", answers, timeout=PATIENCE, progress=progress, clock=context.clock)
    except TimedOut:
        progress.note("etcd has no quorum: its members are changed one after the other, and each only has to be live")
    return found
