"""The kubelet's files on this node: those that the host's script and the agent write for each other
(`manifests.files`), and the agent's own notes.

    state/kubelet-order.json    {"asked": {…}, "last": {…}}    `observed.Asked` and `observed.Final`; the agent's alone

Contract: each write is one rename (of the ask: one link, which never replaces another ask), and durable on return. What
cannot be understood in a file is as what is absent; a file that cannot be read raises OSError, which is never taken for
"nothing". A node without base.json or script has none of this (`read`: None).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from autarky import places
from autarky.control.common.shapes import mapping, plain
from autarky.control.kubelet.decide import fields, observed, proof
from autarky.control.kubelet.decide.observed import Asked, OnDisk, Outcome, Phase, Result, Trial
from autarky.control.kubelet.decide.order import ID, MOST_NUMBER, Target
from autarky.control.kubelet.decide.proof import Verdict
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.manifests import files, generation
from autarky.control.kubelet.manifests.generation import Base
from autarky.model import ports
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.store import NOT_UNDERSTOOD, sync_directory, write_private

NOTES: Final = "state/kubelet-order.json"
FORMER_OF_UP: Final = "state/kubelet-former.json"
"""Exists while an `up` that switches kubelets by itself is in the middle of it (`phases.former_settings`)."""
FRESH_SECONDS: Final = 3
"""A verdict that stops the script's clock is written again when it is older, long before `files.WAIT_SECONDS`."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""As the script's `is_name`."""
_READY: Final = ".ask.ready"
"""An ask that is complete, and not asked yet."""
_NO_ORDER: Final = "-"
"""Stands for the order of an ask that names none: until the script has dropped it, it is one."""


@dataclass(frozen=True, slots=True)
class Found:
    disk: OnDisk
    base: Base


@dataclass(frozen=True, slots=True)
class KubeletFiles:
    """root: of autarky's files on this node."""

    root: Path = Path(places.HOST_ROOT)

    # --- reading ---

    def proving_since(self) -> float | None:
        """When (seconds since the epoch) the script wrote that it waits for a proof: the former kubelet has ended by
        then. None where nobody knows."""
        try:
            return self._at(files.TRIAL).stat().st_mtime
        except OSError:
            return None

    def read(self) -> Found | None:
        """None where this node cannot change its kubelet. OSError."""
        content = self.content(files.BASE)
        base = generation.read_base(content) if content is not None else None
        if content is None or base is None or not self._at(files.SCRIPT_PATH).exists():
            return None
        # Against the order in which the script writes them: with a result comes what it has led to.
        ask, trial, result = self._ask(), _trial(self.values(files.TRIAL)), _result(self.values(files.RESULT))
        current, previous = self._link(files.CURRENT), self._link(files.PREVIOUS)
        now, before = self._made_of(current), self._made_of(previous)
        asked, last = self._notes()
        disk = OnDisk(
            base=generation.base_digest(content),
            current=current,
            former=None if before is None else before.version,
            ask=ask,
            trial=trial,
            result=result,
            asked=asked,
            last=last,
        )
        if now is not None:
            disk = replace(disk, target=now.digest, version=now.version, runtime=now.runtime)
        return Found(disk, base)

    def is_changed_by_up(self) -> bool:
        return (self.root / FORMER_OF_UP).exists()

    def generation_of(self, target: Target) -> str:
        """One that is complete on the disk and was made of this; empty where there is none. Where the runtime stays, it
        has to be the one that the node uses now, which may have changed since."""
        names = [name for link in (files.CURRENT, files.PREVIOUS) if (name := self._link(link))]
        directory = self._at(files.KUBELETS)
        there = sorted(path.name for path in directory.iterdir() if path.is_dir() and _NAME.fullmatch(path.name))
        wanted = (name for name in dict.fromkeys([*names, *there]) if self._is_made_of(name, target))
        return next((name for name in wanted if self._is_complete(name)), "")

    def has_in_use(self, name: str, programs: Collection[str]) -> bool:
        """Whether these programs of the generation are those that the node uses."""
        return all(_real(self._in(name, one)) == _real(self.root / "bin" / one) for one in programs)

    def health_port(self) -> int | None:
        """Of the kubelet in force, on loopback; None where its arguments close it or move it elsewhere, as the script
        has it. 0 where they name none that there can be: nobody answers there."""
        lines = (self._bytes(self._in(self._link(files.CURRENT), files.ARGUMENTS)) or b"").decode(errors="replace")
        given = [line.partition("=")[2] for line in lines.splitlines() if line.startswith("--healthz-port=")]
        if given[-1:] == ["0"] or "\n--healthz-bind-address=" in f"\n{lines}":
            return None
        port = given[-1] if given else str(ports.KUBELET_HEALTH)
        return int(port) if re.fullmatch("[0-9]{1,5}", port) else 0

    def _is_made_of(self, name: str, target: Target) -> bool:
        made_of = self._made_of(name)
        if made_of is None or made_of.digest != target.digest:
            return False
        return bool(target.runtime) or self.has_in_use(name, files.RUNTIME)

    def _is_complete(self, name: str) -> bool:
        """As the script sees it."""
        mark = files.parse(self._bytes(self._in(name, files.COMPLETE)) or b"")
        if mark.get("generation") != name:
            return False
        programs = [self._in(name, one) for one in files.PROGRAMS]
        settings = [self._in(name, one) for one in (files.ARGUMENTS, files.CONFIG)]
        return all(os.access(path, os.X_OK) for path in programs) and all(map(_has_content, [*programs, *settings]))

    def _made_of(self, name: str) -> generation.MadeOf | None:
        return generation.read(self._bytes(self._in(name, generation.MADE_OF))) if name else None

    def _ask(self) -> str:
        values = self.values(files.ASK)
        return "" if values is None else values.get("order") or _NO_ORDER

    def _link(self, path: str) -> str:
        """The name that it points to; empty where there is none."""
        try:
            name = str(self._at(path).readlink())
        except FileNotFoundError:
            return ""
        return name if _NAME.fullmatch(name) else ""

    def values(self, path: str) -> Mapping[str, str] | None:
        """Of the KEY VALUE lines in it; None where it does not exist."""
        content = self.content(path)
        return None if content is None else files.parse(content)

    def content(self, path: str) -> bytes | None:
        """path: as on the host. None where it does not exist."""
        return self._bytes(self._at(path))

    def _bytes(self, path: Path) -> bytes | None:
        with suppress(FileNotFoundError):
            return path.read_bytes()
        return None

    # --- writing ---

    def note_asked(self, asked: Asked) -> None:
        self._note(asked, self._notes()[1])

    def note_final(self, final: observed.Final) -> None:
        self._note(self._notes()[0], final)
        for left in (_READY, f".{_READY}.*"):  # by an agent that was killed
            for path in self._at(files.KUBELETS).glob(left):
                path.unlink(missing_ok=True)

    def ask(self, order: str, generation_: str, boot: str, uptime: int) -> bool:
        """Ask the script; False where somebody else has asked it meanwhile."""
        content = files.written(
            {"order": order, "generation": generation_, "boot": boot, "uptime": uptime, "limit": files.LIMIT}
        )
        ask = self._at(files.ASK)
        ready = ask.with_name(_READY)
        self._write(ready, content)
        try:
            os.link(ready, ask)
        except FileExistsError:
            return False
        finally:
            ready.unlink()
        sync_directory(ask.parent)
        return True

    def give_verdict(self, order: str, verdict: Verdict, uptime: int, why: str) -> None:
        said = {"order": order, "verdict": str(verdict), "why": plain(why)}
        self.say(files.VERDICT, said, uptime, kept_fresh=verdict is Verdict.WAIT)

    def say(self, path: str, said: Mapping[str, str], uptime: int, *, kept_fresh: bool) -> None:
        """Written where it says something new: a sync each second would be felt by etcd on the same disk."""
        there = dict(self.values(path) or {})
        since = there.pop("uptime", "")
        is_fresh = not kept_fresh or (since.isdecimal() and 0 <= uptime - int(since) < FRESH_SECONDS)
        if there != said or not is_fresh:
            self.write(path, files.written({**said, "uptime": uptime}))

    def write(self, path: str, content: bytes) -> None:
        """path: as on the host."""
        self._write(self._at(path), content)

    def _write(self, path: Path, content: bytes) -> None:
        for left in path.parent.glob(f".{path.name}.*"):  # by an agent that was killed
            left.unlink(missing_ok=True)
        write_private(path, content)

    # --- the agent's notes ---

    def _notes(self) -> tuple[Asked | None, observed.Final | None]:
        try:
            content = (self.root / NOTES).read_bytes()
        except FileNotFoundError:
            return None, None
        try:
            said = mapping(parsed(content))
        except NOT_UNDERSTOOD:
            return None, None
        return _asked(said.get("asked")), _final(said.get("last"))

    def _note(self, asked: Asked | None, last: observed.Final | None) -> None:
        said = {
            "asked": None if asked is None else _written_asked(asked),
            "last": None if last is None else _written_final(last),
        }
        self._write(self.root / NOTES, (json.dumps(said, indent=2) + "\n").encode())

    # --- where they are ---

    def _at(self, path: str) -> Path:
        return self.root / PurePosixPath(path).relative_to(places.HOST_ROOT)

    def _in(self, name: str, file: str) -> Path:
        return self._at(files.KUBELETS) / name / file


def _real(path: Path) -> str:
    return os.path.realpath(path)


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _trial(values: Mapping[str, str] | None) -> Trial | None:
    """Without an order, or a generation to go back to, the script takes it for none. In a phase that it does not know,
    it goes back."""
    if not values or not values.get("order") or not _NAME.fullmatch(values.get("former", "")):
        return None
    known = values.get("phase") in (Phase.FORTH, Phase.PROVING)
    return Trial(values["order"], Phase(values["phase"]) if known else Phase.BACK)


def _result(values: Mapping[str, str] | None) -> Result | None:
    if not values or not values.get("order") or values.get("result") not in set(Outcome):
        return None
    return Result(values["order"], Outcome(values["result"]), values.get("boot", ""), plain(values.get("why", "")))


def written_before(before: proof.Before) -> dict[str, Any]:
    return {"ready": before.ready, "sandboxes": dict(before.sandboxes), "pods": dict(before.pods)}


def read_before(said: Any) -> proof.Before:
    """Raises one of NOT_UNDERSTOOD. Agents of 0.1 have written no pods."""
    sandboxes, pods = (
        {str(key): str(value) for key, value in found.items()} for found in (said["sandboxes"], said.get("pods", {}))
    )
    return proof.Before(said["ready"] is True, sandboxes, pods)


def _written_asked(asked: Asked) -> dict[str, Any]:
    return {
        "order": asked.order,
        "number": asked.number,
        "attempt": asked.attempt,
        "version": str(asked.version),
        "boot": asked.boot,
        "before": written_before(asked.before),
        "settings": asked.settings,
    }


def _asked(said: Any) -> Asked | None:
    try:
        number, attempt = (fields.number(said[key], MOST_NUMBER) for key in ("number", "attempt"))
        version, boot = Version.parse(said["version"]), fields.fitting(fields.WORD, said["boot"])
        before = read_before(said["before"])
        order, settings = fields.fitting(ID, said["order"]), said.get("settings") is not False
        return Asked(order, number, attempt, version, boot, before, settings)
    except NOT_UNDERSTOOD:
        return None


def _written_final(final: observed.Final) -> dict[str, Any]:
    return {
        "order": final.order,
        "number": final.number,
        "attempt": final.attempt,
        "state": str(final.state),
        "why": final.why,
        "interrupted": final.interrupted,
    }


def _final(said: Any) -> observed.Final | None:
    try:
        number, attempt = (fields.number(said[key], MOST_NUMBER) for key in ("number", "attempt"))
        state, interrupted = State(said["state"]), said["interrupted"] is True
        order, why = fields.fitting(ID, said["order"]), plain(said["why"])
    except NOT_UNDERSTOOD:
        return None
    return observed.Final(order, number, attempt, state, why, interrupted) if state.is_final else None
