"""The files between the supervisor of a hosted kubelet and the agent (`manifests.hosted`), and the agent's own notes.

    state/kubelet-hosted.json    {"allowed": {…}, "failed": {…}}    `decide.hosted.Notes`; the agent's alone

Contract: as `on_disk`. What the supervisor of another boot has written, or one that has ended, is as what is absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autarky import places
from autarky.control.common.shapes import mapping, plain
from autarky.control.kubelet.decide import fields
from autarky.control.kubelet.decide.hosted import Allowed, Failed, Hosted, Notes, said
from autarky.control.kubelet.decide.hosted_report import POD
from autarky.control.kubelet.manifests import hosted
from autarky.control.kubelet.manifests.hosted import Verdict
from autarky.control.kubelet.node.on_disk import KubeletFiles, read_before, written_before
from autarky.parsing import parsed
from autarky.store import NOT_UNDERSTOOD

NOTES: Final = f"{places.HOST_ROOT}/state/kubelet-hosted.json"
_MOST: Final = 10**9
_KEPT_FRESH: Final = frozenset({Verdict.MAY, Verdict.WAIT, Verdict.UNPROVEN})
"""The first two count for a while only. By the third the supervisor sees that this agent still looks: one that has died
says nothing of a kubelet."""


@dataclass(frozen=True, slots=True)
class HostedFiles:
    files: KubeletFiles = field(default_factory=KubeletFiles)

    def read(self, boot: str | None, uptime: int) -> Hosted | None:
        """What the supervisor says that runs now; None where none does. OSError."""
        return said(self.files.values(hosted.HOSTED), boot, uptime)

    def verdict_on(self, one: Hosted, boot: str) -> Verdict | None:
        """That is on the disk; None where it is about another try. OSError."""
        there = self.files.values(hosted.VERDICT) or {}
        if any(there.get(key) != value for key, value in _about(one, boot).items()):
            return None
        return Verdict(there["verdict"]) if there.get("verdict") in set(Verdict) else None

    def give_verdict(self, one: Hosted, boot: str, verdict: Verdict, uptime: int, why: str) -> None:
        """boot: a pod, and the number of its try, may be the same after a restart of the machine."""
        words = {**_about(one, boot), "verdict": str(verdict), "why": plain(why)}
        self.files.say(hosted.VERDICT, words, uptime, kept_fresh=verdict in _KEPT_FRESH)

    # --- the agent's notes ---

    def notes(self) -> Notes:
        """OSError."""
        content = self.files.content(NOTES)
        try:
            said = mapping(parsed(content or b"{}"))
        except NOT_UNDERSTOOD:
            return Notes()
        return Notes(_allowed(said.get("allowed")), _failed(said.get("failed")))

    def note(self, notes: Notes) -> None:
        one, failed = notes.allowed, notes.failed
        said: dict[str, Any] = {"allowed": None, "failed": None}
        if one is not None:
            said["allowed"] = {
                "pod": one.pod,
                "try": one.number,
                "boot": one.boot,
                "before": written_before(one.before),
                "begun": list(one.begun),
                "boots": one.boots,
            }
        if failed is not None:
            said["failed"] = {"pod": failed.pod, "version": str(failed.version), "why": failed.why}
        self.files.write(NOTES, (json.dumps(said, indent=2) + "\n").encode())


def _about(one: Hosted, boot: str) -> Mapping[str, str]:
    return {"boot": boot, "pod": one.pod, "try": str(one.number)}


def _allowed(said: Any) -> Allowed | None:
    try:
        pod, boot = fields.fitting(POD, said["pod"]), fields.fitting(fields.WORD, said["boot"])
        begun = tuple(fields.number(one, _MOST) for one in said["begun"])
        number, boots = (fields.number(one, _MOST) for one in (said["try"], said.get("boots", 0)))
        return Allowed(pod, number, boot, read_before(said["before"]), begun, boots)
    except NOT_UNDERSTOOD:
        return None


def _failed(said: Any) -> Failed | None:
    try:
        return Failed(fields.fitting(POD, said["pod"]), fields.version(said["version"]), plain(said["why"]))
    except NOT_UNDERSTOOD:
        return None
