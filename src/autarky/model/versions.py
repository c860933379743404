"""Kubernetes versions and the skew rules between components. stdlib only, no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A released version such as 1.36.4. `str()` gives the form used in image tags: v1.36.4."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read "1.36.4" or "v1.36.4"; raises ValueError for anything else."""
        match = _VERSION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a version such as 1.36.4")
        return cls(*(int(part) for part in match.groups()))

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"
