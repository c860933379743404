"""Which levels of a cluster are hosted: `selfHosted`, read and written here and nowhere else.

Contract: `HostedLevels.parse` takes the texts in TEXTS and no other; `str` gives the same text back.

Danger: the first digit of a text is not the lowest hosted level. `02-4` hosts the kubelet and not etcd.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Level(IntEnum):
    """The layers of a cluster; `selfHosted: N-4` hosts level N and all above it."""

    KUBELET = 0
    ETCD = 1
    API_SERVER = 2
    CONTROLLERS = 3
    ADD_ONS = 4


@dataclass(frozen=True, slots=True)
class HostedLevels:
    """lowest: the lowest hosted level apart from the kubelet; all above it are hosted too. kubelet: whether that is."""

    lowest: Level
    kubelet: bool = False

    @classmethod
    def parse(cls, text: str) -> HostedLevels:
        """What `str` gives; raises ValueError for anything else."""
        if text not in _READ:
            raise ValueError(f"{text!r} does not say which levels are hosted: one of {', '.join(TEXTS)}")
        return _READ[text]

    def __str__(self) -> str:
        """As users write it; raises ValueError for what has no text."""
        if self not in _WRITTEN:
            raise ValueError(f"levels that cannot be written: {self.lowest!r}, kubelet: {self.kubelet}")
        return _WRITTEN[self]

    def hosts(self, level: Level) -> bool:
        return self.kubelet if level is Level.KUBELET else self.lowest <= level


_READ: Final = {
    "0-4": HostedLevels(Level.ETCD, kubelet=True),
    "02-4": HostedLevels(Level.API_SERVER, kubelet=True),
    "1-4": HostedLevels(Level.ETCD),
    "2-4": HostedLevels(Level.API_SERVER),
    "3-4": HostedLevels(Level.CONTROLLERS),
    "4": HostedLevels(Level.ADD_ONS),
}
_WRITTEN: Final = {levels: text for text, levels in _READ.items()}
TEXTS: Final = tuple(_READ)
"""Of `selfHosted`: every one that is understood."""
