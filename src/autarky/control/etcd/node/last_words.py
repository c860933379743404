"""What a process of etcd said before it ended, for whoever must correct its arguments, or judge its data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from autarky.errors import AutarkyError
from autarky.model.runtime import Container, ContainerStatus
from autarky.ports import Cri

_LINES = 200
"""Of the beginning: for an unknown flag etcd prints the error first, and then its usage."""
_MOST = 600
"""Letters."""
_GRAVE = re.compile(r'"level":"(error|panic|fatal)"|^Error|flag provided but not defined')
_OF_THE_RUNTIME = re.compile(r"^\S+ std(out|err) [FP] ?")


async def last_words(cri: Cri, containers: Iterable[Container]) -> str:
    """A clause with the last error that the newest of them logged; empty where none can be read."""
    for one in sorted(containers, key=lambda one: one.created, reverse=True):
        try:
            status = await cri.container_status(one.id)
            lines = logged(status)[:_LINES] if status is not None else []
        except (AutarkyError, OSError):
            continue
        if grave := [line for line in lines if _GRAVE.search(line)]:
            return f"; it said: {grave[-1][:_MOST]}"
    return ""


def logged(status: ContainerStatus) -> list[str]:
    """The lines of one run of a container. OSError."""
    text = Path(status.log_path).read_text(errors="replace")
    return [_OF_THE_RUNTIME.sub("", line) for line in text.splitlines()]
