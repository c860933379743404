"""What a node's agent does next for an order about its kubelet. Pure.

The agent stages, drains and asks; the host's script switches, waits for the agent's verdict, and goes back without one.
What happens is on the disk before it happens, so that agent, kubelet and machine may be killed anywhere.

Invariants:
- an order with a result is final, and so is every order with a lower number: it is never begun again;
- the script is asked for an order only if the API has just said that this order stands, that the Node reports it to be
  on its way, and that no API server is of an earlier minor than it asks for (rule 4). While the API says nothing,
  nothing begins. So the operator knows of every switch, also where somebody removes the order in the middle of it;
- nothing begins while `up`, etcd, a recovery or a change of the node's role is at work on the node, nor during a
  hand-over of its API server, nor while the script works for somebody else; what cannot be read may be any of these;
- a switch that the script has begun is proven or goes back, whatever is ordered meanwhile;
- only what the script has switched and restarted already (phase `proving`) is judged, for the kubelet of before may
  still run until then;
- no verdict is given where nobody knows what ran before.
"""

from __future__ import annotations

from dataclasses import replace

from autarky.control.common.shapes import some
from autarky.control.common.skew import minor_of
from autarky.control.kubelet.decide import proof, wanted
from autarky.control.kubelet.decide.observed import (
    Asked,
    Decision,
    Final,
    Live,
    Memory,
    OnDisk,
    Outcome,
    Phase,
    Pods,
    Seen,
    Staged,
    Step,
    Trial,
)
from autarky.control.kubelet.decide.order import Order, drains
from autarky.control.kubelet.decide.proof import Verdict
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.upgrade.decide.reported import lowest_version

SPARE, ROOM = 256 * 2**20, 2**20
"""Bytes that stay free on the disk: etcd and the agents write to it as well. And what a switch to a generation that is
there already has to find: the script writes a tenth of that."""
_FULL = "the disk is full"
"""As the script says it."""
FULL_SECONDS = 30.0
"""For so long it is waited for room: what a pod fills is free again when the kubelet has evicted it, 10 s later."""


def decide(seen: Seen, memory: Memory, now: float) -> Decision:
    """The next step. `now`: monotonic seconds."""
    if seen.disk is None:
        return Decision(memory, Step.NOTHING, "what is on the disk cannot be read")
    if (final := _ended(seen, seen.disk)) is not None:
        return Decision(Memory(), Step.REPORT, f"the order ended: {final.state}", _of_last(seen.disk, final), final)
    if seen.disk.ask or seen.disk.trial is not None:
        return _while_the_script_works(seen, seen.disk, memory, now)
    if seen.order is None or is_over(seen.order, seen.disk.last):
        return Decision(Memory(), Step.NOTHING, "nothing is ordered", _of_last(seen.disk, seen.disk.last))
    if seen.ended == seen.order.id:
        return _in_turn(seen.order, seen.disk)
    return _begin(seen, seen.order, seen.disk, memory, now)


def is_over(order: Order, last: Final | None) -> bool:
    """Whether it has a result, or is from before one that has."""
    return last is not None and order.number <= last.number


# --- what the script does, or has done ---------------------------------------------------------------------------


def _ended(seen: Seen, disk: OnDisk) -> Final | None:
    """What is to be noted of the script's result; None where there is nothing new in it, or somebody else's."""
    result, asked, order = disk.result, disk.asked, seen.order
    if result is None:
        return None
    found: Final | None = None
    if asked is not None and asked.order == result.order:
        # A disk that was full just then says nothing of the kubelet: it is tried again as often as what was cut.
        cut = (result.outcome is Outcome.BACK and result.boot != asked.boot) or result.why == _FULL
        found = Final(result.order, asked.number, asked.attempt, _STATES[result.outcome], result.why, interrupted=cut)
    elif order is not None and order.id == result.order:  # the agent's note was lost
        found = Final(order.id, order.number, order.attempt, _STATES[result.outcome], result.why)
    # A result stays until the next one, also when an order after it has been refused.
    is_new = found is not None and (disk.last is None or found.number > disk.last.number)
    return found if is_new else None


def _is_tidied_up(disk: OnDisk) -> bool:
    """Whether what the script works by is left from an order that has ended."""
    works = disk.ask if disk.trial is None else disk.trial.order
    return bool(works) and disk.last is not None and works == disk.last.order


_STATES = {
    Outcome.GOOD: State.DONE,
    Outcome.BACK: State.WENT_BACK,
    Outcome.FAILED: State.WENT_BACK,
    Outcome.REFUSED: State.REFUSED,
}


def _while_the_script_works(seen: Seen, disk: OnDisk, memory: Memory, now: float) -> Decision:
    if _is_tidied_up(disk):
        return Decision(Memory(), Step.NOTHING, "the script is about to end", _of_last(disk, disk.last))
    if disk.trial is not None:
        return _during_trial(seen, disk, disk.trial, memory, now)
    return _wait(seen, disk, memory, State.SWITCHING, "the script has been asked")


def _during_trial(seen: Seen, disk: OnDisk, trial: Trial, memory: Memory, now: float) -> Decision:
    asked = disk.asked
    if trial.phase is not Phase.PROVING:
        sentence = "the script switches it" if trial.phase is Phase.FORTH else "the script goes back"
        return Decision(Memory(), Step.NOTHING, sentence, _on_the_way(seen, disk, State.SWITCHING, sentence))
    if asked is None or asked.order != trial.order:
        ours = seen.order is not None and seen.order.id == trial.order
        sentence = "what ran before is not known: it is not proven" if ours else "the script works for somebody else"
        report = _on_the_way(seen, disk, State.PROVING, sentence)
        verdict = Verdict.UNPROVEN if ours else None
        return Decision(Memory(), Step.PROVE if ours else Step.NOTHING, sentence, report, verdict=verdict)
    if seen.proof is None:
        sentence = "it is not proven: nobody has looked"
        return Decision(memory, Step.NOTHING, sentence, _on_the_way(seen, disk, State.PROVING, ""))
    # With the settings of before the former kubelet would have evicted it as well.
    looked = seen.proof if asked.settings else replace(seen.proof, evicted=frozenset())
    found = proof.decide(looked, asked.before, asked.version, memory.proof, now)
    report = _on_the_way(seen, disk, State.PROVING, found.sentence)
    return Decision(Memory(found.memory), Step.PROVE, found.sentence, report, verdict=found.verdict)


def _in_turn(order: Order, disk: OnDisk) -> Decision:
    """This machine is from before the order ended, as out of a snapshot: whose turn it is, is the operator's to say."""
    why = "it had ended already: this machine is from before that, and gets it in its turn"
    final = Final(order.id, order.number, order.attempt, State.WENT_BACK, why, interrupted=True)
    return Decision(Memory(), Step.REPORT, why, _of_last(disk, final), final)


# --- before the script is asked ------------------------------------------------------------------------------------


def _begin(seen: Seen, order: Order, disk: OnDisk, memory: Memory, now: float) -> Decision:
    memory = memory if order.id in (memory.drained, memory.full) else Memory()
    if order.target.base != disk.base:  # the operator knows of the other one by the report, and orders that
        why = "the order is for another base.json than the node has"
        return _refuse(order, disk, why if disk.base else "the node cannot do it yet: run `autarky up` first")
    if _is_there_already(seen, order, disk):
        final = Final(order.id, order.number, order.attempt, State.DONE, "it was there already")
        return Decision(Memory(), Step.REPORT, final.why, _of_last(disk, final), final)
    if seen.others is None or seen.others:
        why = "; ".join(sorted(seen.others or {"it is not known what else is at work on the node"}))
        return _wait(seen, disk, replace(memory, full=""), State.STAGING, why)
    if not seen.staged.generation:
        return _stage(seen, order, disk, memory, now)
    return _with_generation(seen, order, disk, memory, now)


def _with_generation(seen: Seen, order: Order, disk: OnDisk, memory: Memory, now: float) -> Decision:
    """It is complete on the disk."""
    if why := _lacks_room(seen.staged, ROOM):
        return _without_room(seen, order, disk, memory, now, why)
    memory = replace(memory, full="")
    if drains(order, seen.runs) and (seen.pods is None or seen.pods.left):
        return _drain(seen, order, disk, memory, now)
    return _ask(seen, order, disk, memory)


def _is_there_already(seen: Seen, order: Order, disk: OnDisk) -> bool:
    """What a script could not take back was not proven."""
    if disk.result is not None and disk.result.outcome is Outcome.FAILED:
        return False
    return order.target.digest == disk.target or disk.current == seen.staged.generation != ""


def _stage(seen: Seen, order: Order, disk: OnDisk, memory: Memory, now: float) -> Decision:
    staged = seen.staged
    if staged.trouble:
        return _refuse(order, disk, staged.trouble)
    if why := (lacks := _lacks_room(staged, SPARE)) or staged.full:
        waits = _without_room(seen, order, disk, memory, now, why)
        return replace(waits, step=Step.STAGE) if waits.step is Step.NOTHING and not lacks else waits
    waits = _wait(seen, disk, replace(memory, full=""), State.STAGING, "")
    return replace(waits, step=Step.STAGE, sentence="it is being staged")


def _lacks_room(staged: Staged, spare: int) -> str:
    if staged.free is None or staged.free >= spare:
        return ""
    return f"{_FULL}: {spare // 2**20} MiB are to stay free, and there are {staged.free // 2**20} MiB"


def _without_room(seen: Seen, order: Order, disk: OnDisk, memory: Memory, now: float, why: str) -> Decision:
    """It waits for a while; for a control node that goes down the control plane waits anyhow, and nobody has to ask for
    it again."""
    memory = memory if memory.full else replace(memory, full=order.id, full_since=now)
    down = order.lowers or (disk.version is not None and minor_of(disk.version) > minor_of(order.target.version))
    if now - memory.full_since >= FULL_SECONDS and not (seen.control and down):
        return _refuse(order, disk, why)
    return _wait(seen, disk, memory, State.STAGING, why)


def _drain(seen: Seen, order: Order, disk: OnDisk, memory: Memory, now: float) -> Decision:
    memory = memory if memory.drained else Memory(drained=order.id, since=now)
    pods, is_known = seen.pods or Pods(), seen.pods is not None or not seen.unschedulable
    if not seen.unschedulable:
        what = "waiting until the node takes no new pods"
    else:
        what = f"{some(pods.left)} has to go" + (f": {pods.blocked}" if pods.blocked else "")
    if now - memory.since >= order.request.drain_seconds and is_known:
        if seen.control:  # neither a tenant's pod nor an uncordon may keep all of the control plane from going back
            return _ask(seen, order, disk, memory)
        return _refuse(order, disk, f"the node was not drained within {order.request.drain_seconds} s: {what}")
    waits = _wait(seen, disk, memory, State.DRAINING, what if is_known else "")
    return replace(waits, step=Step.DRAIN) if seen.unschedulable else waits


def _ask(seen: Seen, order: Order, disk: OnDisk, memory: Memory) -> Decision:
    """The last look, and nothing between it and the question."""
    live = seen.live
    if live is None:
        return replace(_wait(seen, disk, memory, State.SWITCHING, ""), step=Step.LOOK, sentence="it is all there")
    why = _why_not_now(order, live)
    if not seen.boot:  # the script drops what names another one
        why = why or "it is not known which boot of the machine this is"
    if why is not None or live.before is None:
        return _wait(seen, disk, memory, State.SWITCHING, "it is not known which pods run" if why is None else why)
    settings = disk.version is None or replace(order.target, version=disk.version).digest != disk.target
    asked = Asked(order.id, order.number, order.attempt, order.target.version, seen.boot, live.before, settings)
    decision = _wait(seen, disk, Memory(), State.SWITCHING, "the script is asked")
    return replace(decision, step=Step.ASK, asked=asked)


def _why_not_now(order: Order, live: Live) -> str | None:
    """A clause; empty where it is only the report that has yet to be written."""
    if live.plane is None or lowest_version(live.plane) is None:
        return "the ControlPlane cannot be understood"
    if live.order != order.id:
        return "the order has just been changed"
    return "" if live.reported != order.id else wanted.refusal(live.plane, order.target.version)


def _refuse(order: Order, disk: OnDisk, why: str) -> Decision:
    final = Final(order.id, order.number, order.attempt, State.REFUSED, why)
    return Decision(Memory(), Step.REFUSE, why, _of_last(disk, final), final)


def _wait(seen: Seen, disk: OnDisk, memory: Memory, state: State, why: str) -> Decision:
    return Decision(memory, Step.NOTHING, why, _on_the_way(seen, disk, state, why))


# --- what is reported --------------------------------------------------------------------------------------------


def _on_the_way(seen: Seen, disk: OnDisk, state: State, why: str) -> Report:
    """Of what the script works on, else of what is ordered. Work for somebody else leaves the last order's end."""
    found: Order | Asked | None = seen.order
    works = disk.ask if disk.trial is None else disk.trial.order
    if works and disk.asked is not None and disk.asked.order == works:
        found = disk.asked
    elif works and (seen.order is None or seen.order.id != works):
        return _of_last(disk, disk.last)
    if found is None:
        return _of_last(disk, disk.last)
    name = found.id if isinstance(found, Order) else found.order
    said = Report(order=name, number=found.number, attempt=found.attempt, state=state, why=why)
    return _with_disk(said, disk)


def _of_last(disk: OnDisk, last: Final | None) -> Report:
    """How the last order ended."""
    if last is None:
        return _with_disk(Report(), disk)
    said = Report(last.order, last.number, last.attempt, last.state, why=last.why, interrupted=last.interrupted)
    return _with_disk(said, disk)


def _with_disk(report: Report, disk: OnDisk) -> Report:
    """With what is in force."""
    return replace(
        report,
        slot="host",
        version=disk.version,
        former=disk.former,
        base=disk.base,
        runtime=disk.runtime,
        target=disk.target,
    )
