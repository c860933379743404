"""What a Node says of the change of its kubelet, and of its hosted one (level 0), for people. Pure.

Contract: whoever has a worker may write anything into the annotations: the sentence is short, in one line, and nothing
is raised.
"""

from __future__ import annotations

from autarky.control.common.shapes import mapping
from autarky.control.kubelet.decide import hosted_report, order, report
from autarky.control.kubelet.decide.report import State
from autarky.ports import Object

_SENTENCES = {
    State.STAGING: "{what} is being prepared",
    State.DRAINING: "its pods are evicted for {what}",
    State.SWITCHING: "it is being switched to {what}",
    State.PROVING: "{what} is on trial",
    State.WENT_BACK: "it went back from {what}",
    State.REFUSED: "{what} was refused",
}


_HOSTED = {
    hosted_report.State.WAITING: "the hosted one waits",
    hosted_report.State.REFUSED: "the hosted one may not be in force",
    hosted_report.State.PROVING: "it is on trial",
    hosted_report.State.FAILED: "the hosted one has failed",
}


def hosted(said: hosted_report.Report | None, pod: str) -> str:
    """Why the hosted kubelet is not in force; empty where it is, and where there is none. pod: why its pod has not
    started."""
    if said is None:
        return f"the hosted one has not started: {pod}" if pod else ""
    sentence = _HOSTED.get(said.state, "")
    return f"{sentence}: {said.why}" if sentence and said.why else sentence


def change(node: Object) -> str:
    """What is under way, or why the last change did not stay; empty where neither."""
    metadata = mapping(node.get("metadata"))
    given, said = order.read(metadata), report.read(metadata) or report.Report()
    if given is not None and said.order != given.id and said.number < given.number:
        return f"{given.target.version} is ordered, and its agent has not begun"
    if said.state is None or said.state is State.DONE:
        return ""
    sentence = _SENTENCES[said.state].format(what=_what(said, given))
    return f"{sentence}: {said.why}" if said.why else sentence


def _what(said: report.Report, given: order.Order | None) -> str:
    if given is None or given.id != said.order:
        return "another kubelet"
    switched = said.state in (State.SWITCHING, State.PROVING)
    before = said.former if switched and said.former is not None else said.version
    return "its new settings" if given.target.version == before else str(given.target.version)
