"""What is known of a process that was restarted with other settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """well; failed; or neither, while waiting for `missing`."""

    well: bool
    failed: bool
    missing: str = ""
