"""Small texts that all renderers share: durations, quoted text, outcomes."""

from __future__ import annotations

from autarky.engine.events import Drifted, OperationEnded, PhaseEnded

LONGEST_CELL = 500
LONGEST_SENTENCE = 2000
"""Characters of quoted text in tables and lines for people. JSON has all of it."""


def duration(seconds: float) -> str:
    """ "0.1 s", "42.0 s", "2 min 05 s", "1 h 02 min"."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def printable(text: str) -> str:
    """Blank out what may control the user's terminal, change the text direction or fail to encode: control characters,
    invisible marks, lone surrogates. Newlines stay."""
    return "".join(c if c == "\n" or c.isprintable() else " " for c in text)


def one_line(text: str) -> str:
    """The text with its lines and runs of blanks joined."""
    return " ".join(printable(text).split())


def sentence(text: str) -> str:
    """Untrusted text as one line of readable length. JSON has all of it."""
    return cut(one_line(text), LONGEST_SENTENCE)


def cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def count(number: int, noun: str) -> str:
    """ "1 change", "3 changes"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(done: float, total: float) -> str:
    """ "40 %", or nothing if the total is not known."""
    return f"{min(1.0, done / total):.0%}".replace("%", " %") if total > 0 else ""


def drift(event: Drifted) -> str:
    """ "left as it is: DaemonSet kube-system/x: spec.y is 2, ours was 1 (kubectl-edit, 2026-11-21T10:00:00Z)"."""
    who = ", ".join(filter(None, (event.manager, event.since)))
    sentence = f"left as it is: {event.subject}: {event.field} is {event.live}, ours was {event.ours}"
    return f"{sentence} ({who})" if who else sentence


def phase_end(event: PhaseEnded) -> str:
    """ "changed in 12.3 s", "failed after 3.2 s", "skipped"."""
    if event.outcome == "skipped":
        return "skipped"
    return _ended(event.outcome, event.seconds)


def operation_end(event: OperationEnded) -> str:
    """ "changed in 12.3 s (5 changes)", "failed after 3.2 s"."""
    changes = f" ({count(event.changes, 'change')})" if event.outcome in ("changed", "planned") else ""
    return _ended(event.outcome, event.seconds) + changes


def _ended(outcome: str, seconds: float) -> str:
    word = "after" if outcome in ("failed", "interrupted") else "in"
    return f"{outcome} {word} {duration(seconds)}"
