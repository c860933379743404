"""As `stop_after_write`, of what changes etcd: a host's agents, or a command of ours with all that it starts there.

    python stop_after_etcds_write.py INIT_PID COMMAND_PID PATHS WRITES TAKEN DRAW

COMMAND_PID is the command's process on this machine, or 0: then the agents are followed. What a command starts in a
host are its children, so no process is missed. Writes that were not drawn are said as well ("passed NAME", once), so
that one of them can be drawn where none was. `names_of_writes` says how they are named.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, field

from names_of_writes import named
from parts import Draw
from stop_after_write import _FOLLOW_ALL, _INTERRUPT, _SEIZE, Tracer, _ptrace, _say

PASSED = "passed "


@dataclass
class OfEtcd(Tracer):
    command: int = 0
    passed: set[str] = field(default_factory=set)

    def _seize_new(self) -> None:
        """Of a command its first process: all others come to us as its children."""
        if not self.command:
            super()._seize_new()
        elif self.command not in self._followed:
            with suppress(OSError):  # it has ended
                _ptrace(_SEIZE, self.command, 0, _FOLLOW_ALL)
                _ptrace(_INTERRUPT, self.command)
            self._followed.add(self.command)

    def _system_call(self, tid: int) -> str | None:
        made = super()._system_call(tid)
        if made is None:
            return None
        name = named(made)
        if name not in self.passed and self.writes.match(name) and not self.draw.takes(name, self.taken):
            self.passed.add(name)
            _say(f"{PASSED}{name}")
        return name


if __name__ == "__main__":
    _, init_pid, command_pid, paths, writes, taken, draw = sys.argv
    tracer = OfEtcd(
        int(init_pid),
        re.compile(paths),
        re.compile(writes),
        frozenset(json.loads(taken)),
        Draw(**json.loads(draw)),
        command=int(command_pid),
    )
    _say(tracer.first_write_that_is_drawn())
    tracer.bury()
