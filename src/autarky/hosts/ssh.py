"""A machine reached by ssh, as root or as a user that may become root by sudo without a password.

Contract: the command travels through standard input, ahead of the program's own input: so it is neither subject to
the quoting rules of the user's login shell nor visible in the process list here. A line with a token of the call
marks the start of the program (whatever a login script has printed before), another one its status. Without that
line the connection broke, and the result is unknown.

A call that takes too long, or is cancelled, kills what it started on the host through a second session; if
that fails too, `timeout` on the host kills it a little later.

Dangers: sshd lets `SESSIONS` sessions and no more share a connection (its default is 10); a lock takes one.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autarky.errors import AutarkyError, Inaccessible, Unreachable
from autarky.hosts import process
from autarky.hosts.openssh import ConnectionLost, Master, explain
from autarky.hosts.process import Input, Said, converse
from autarky.hosts.shell import ENVIRONMENT, ShellHost
from autarky.ports import Completed

SESSIONS = 8
RECONNECT_SECONDS = 30.0
"""How long reconnecting to a machine that was connected before is retried."""
PAUSE = 1.0
TRIES = 3
"""How often a repeatable call is started, if the connection breaks in the middle."""
_KILL_SECONDS = 5.0
_LATER = 5
_NOISE = 1 << 16
"""Bytes that login scripts may print before the program begins."""

# One line without backslashes or line ends: every login shell takes it as it is. The shell reads the line with
# the size byte by byte, `dd` exactly as many bytes; the rest is the program's.
_BOOT = """exec sh -c 'read -r size && eval "$(dd bs=4096 count="$size" iflag=count_bytes,fullblock status=none)"'"""
# Fields of /proc/PID/stat after the name: 4 is the session, 20 the start time. sshd gives each command a session.
_CALL = """\
read -r stat </proc/$$/stat
set -- ${stat##*") "}
session=$4
read -r stat </proc/$session/stat
set -- ${stat##*") "}
set -- "$session" "${20}"
if [ "$(id -u)" = 0 ]; then become=; else become='sudo -n --'; fi
$become sh -c 'echo "TOKEN $1 $2"; shift 2; exec "$@"' sh "$@" ARGV
"""
_STATUS = """printf '\\nTOKEN %s\\n' "$?" >&2
"""
# Ends every process of a session, if that is still the one that was meant.
_KILL = """\
read -r stat <"/proc/$1/stat" || exit 0
set -- "$1" "$2" ${stat##*") "}
[ "${22}" = "$2" ] || exit 0
for file in /proc/[0-9]*/stat; do
  read -r stat <"$file" || continue
  pid=${file%/stat}
  meant=$1
  started=$2
  set -- ${stat##*") "}
  [ "$4" = "$meant" ] && kill -KILL "${pid#/proc/}"
  set -- "$meant" "$started"
done 2>/dev/null
"""


class SshHost(ShellHost):
    """`url` is ssh://[user@]host[:port]; `sockets` a directory for the connection's socket; `config` an
    ssh_config to be used instead of the user's."""

    def __init__(self, name: str, url: str, *, sockets: Path, config: str | None = None) -> None:
        super().__init__(name)
        self._url = url
        self._master = Master(name, url, sockets, config)
        self._sessions = asyncio.Semaphore(SESSIONS)
        self._was_connected = False

    # --- running programs ---

    async def _execute(self, argv: Sequence[str], stdin: Sequence[Input] | None, timeout: float) -> Completed:
        async with self._sessions:
            await self._connect()
            return await self._call(argv, stdin or (), timeout)

    async def _repeatable(self, argv: Sequence[str], stdin: Sequence[Input] | None, timeout: float) -> Completed:
        for _ in range(TRIES - 1):
            with suppress(ConnectionLost):
                return await self._execute(argv, stdin, timeout)
        return await self._execute(argv, stdin, timeout)

    async def _call(self, argv: Sequence[str], stdin: Sequence[Input], timeout: float) -> Completed:
        token = _token()
        limit = ["timeout", "--signal=KILL", str(int(timeout) + _LATER)]
        said = Said()
        try:
            status = await converse(
                self._master.session(_BOOT),
                [_framed(token, [*limit, *_clean(argv)], _STATUS), *stdin],
                said,
                timeout=timeout,
                limit=process.OUTPUT_LIMIT + 1 + _NOISE,
            )
        except TimeoutError as error:
            self._master.doubt()
            await self._kill(token, said)
            raise self._no_answer(argv, timeout) from error
        except asyncio.CancelledError:
            await self._kill(token, said)
            raise
        return self._result(argv, token, status, said)

    def _result(self, argv: Sequence[str], token: str, status: int, said: Said) -> Completed:
        """What the program did, from what was heard; the error to raise where it is not known."""
        stderr = said.stderr.decode(errors="replace")
        begun = _begun(token, said)
        ended = re.search(rf"\n{token} (\d{{1,3}})\n", stderr)
        if ended is not None and begun is not None:
            complaints = stderr[: ended.start()] + stderr[ended.end() :]
            return self._completed(argv, int(ended[1]), bytes(said.stdout[begun.end() :]), complaints)
        if begun is None and "sudo" in stderr:
            raise _not_root(self._name, self._url, stderr[: ended.start()] if ended is not None else stderr)
        self._master.doubt()
        if begun is None and status not in (0, 255):
            raise _no_shell(self._name, self._url, stderr or said.stdout.decode(errors="replace"))
        raise self._lost(argv, begun is not None, stderr)

    def _lost(self, argv: Sequence[str], begun: bool, stderr: str) -> AutarkyError:
        explained = explain(self._name, self._url, stderr)
        if isinstance(explained, Inaccessible):
            return explained
        where = "while it ran" if begun else "before it was seen to start"
        return ConnectionLost(
            f"{self._name}: the connection was lost {where}: {shlex.join(argv)[:120]!r}; what became of it is unknown"
        )

    # --- the connection ---

    async def _connect(self) -> None:
        """Reconnecting is retried for a while, if the machine has answered before."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RECONNECT_SECONDS
        while True:
            try:
                await self._master.ensure()
            except Unreachable:
                if not self._was_connected or loop.time() > deadline:
                    raise
                await asyncio.sleep(PAUSE)
            else:
                self._was_connected = True
                return

    async def _start(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """Not counted by the semaphore, which leaves room for it."""
        await self._connect()
        started = await process.start(self._master.session(_BOOT), stdin=True)
        try:
            await self._begin(started, argv)
        except BaseException:
            await process.end(started)
            raise
        return started

    async def _begin(self, started: asyncio.subprocess.Process, argv: Sequence[str]) -> None:
        assert started.stdin is not None  # noqa: S101 # we asked for pipes
        assert started.stdout is not None  # noqa: S101
        assert started.stderr is not None  # noqa: S101
        token, said = _token(), Said()
        started.stdin.write(_framed(token, _clean(argv)))
        while _begun(token, said) is None:
            line = await started.stdout.readline()
            said.stdout += line
            if not line:
                said.stderr += await started.stderr.read()
                self._result(argv, token, await started.wait(), said)
                raise Unreachable(f"{self._name}: {shlex.join(argv)[:120]!r} did not start")

    async def _kill(self, token: str, said: Said) -> None:
        """Kill what the call had started; if that cannot be done now, `timeout` on the host does it later."""
        begun = _begun(token, said)
        if begun is None:
            return
        argv = ["sh", "-c", _KILL, "sh", begun[1].decode(), begun[2].decode()]
        with suppress(TimeoutError, AutarkyError):
            async with asyncio.timeout(_KILL_SECONDS):
                command = [_framed(_token(), _clean(argv))]
                await converse(self._master.session(_BOOT), command, Said(), timeout=_KILL_SECONDS, limit=_NOISE)


def _token() -> str:
    return f"autarky-{secrets.token_hex(8)}"


def _clean(argv: Sequence[str]) -> list[str]:
    return ["env", "-i", *ENVIRONMENT, *argv]


def _framed(token: str, argv: Sequence[str], then: str = "") -> bytes:
    """What goes ahead of the program's input."""
    script = (_CALL + then).replace("TOKEN", token).replace("ARGV", shlex.join(argv)).encode()
    return f"{len(script)}\n".encode() + script


def _begun(token: str, said: Said) -> re.Match[bytes] | None:
    return re.search(rb"^%s (\d+) (\d+)\n" % token.encode(), said.stdout, re.MULTILINE)


def _not_root(name: str, url: str, said: str) -> Inaccessible:
    """sudo refused, or is not there."""
    words = " ".join(said.split())[-400:]
    return Inaccessible(
        f"{name} ({url}): this user cannot become root: {words}",
        fix="allow it without a password (as root there: echo 'USER ALL=(ALL) NOPASSWD: ALL' "
        ">/etc/sudoers.d/USER), or name root in the file: ssh://root@…",
    )


def _no_shell(name: str, url: str, said: str) -> Inaccessible:
    words = " ".join(said.split())[-400:]
    return Inaccessible(
        f"{name} ({url}): its login shell does not run commands: {words}", fix="give the user a shell, such as /bin/sh"
    )
