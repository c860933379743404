"""What the doctor says of one thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """what: one sentence. evidence: what was seen. next: the command to continue with."""

    subject: str
    what: str
    evidence: str
    next: str
