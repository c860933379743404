"""A host as "run argv there, with stdin": everything else is built on that, so that all drivers share it.

The host needs a POSIX shell, coreutils, util-linux and systemd; no Python. Files travel as one stream to
one small script, in one round trip. Content never appears in argv, secrets least of all.

Contract: a call that takes too long, or is cancelled, ends what it started, on the host as well: the
program and all it forked, unless they made a session of their own. Nothing else is ever killed.

Dangers: a process that is cut off leaves temporary names (`.autarky.*`) in a directory; they are never
read, and the next write of the same file replaces them. Two writers of one file at a time are not
provided for (rule 6: one writer per node).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from autarky.errors import CommandFailed, Unreachable
from autarky.hosts.facts import FACTS_SCRIPT, parse_facts
from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.ports import Completed

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = (f"PATH={PATH}", "LC_ALL=C", "HOME=/root")
OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes of standard output that are kept; a program that writes more has failed, never been cut short."""
END_SECONDS = 2.0
STDERR_KEPT = 64 * 1024
"""Bytes of standard error that are kept: the last ones, which say why."""

# stdin: for each file a header line "MODE SIZE PATH" and then SIZE bytes. The shell reads a line from a pipe
# byte by byte and `dd` exactly `count` bytes, so that neither takes what belongs to the other. The mode is
# set before the content.
_WRITE_SCRIPT = """\
set -eu
while IFS=' ' read -r mode size path; do
  directory=${path%/*}
  if [ ! -d "$directory" ]; then
    case "$mode" in *00) mkdir -p -m 700 "$directory" ;; *) mkdir -p "$directory" ;; esac
  fi
  temporary=$directory/.autarky.${path##*/}
  rm -f "$temporary"
  ( umask 077; : >"$temporary" )
  chmod "$mode" "$temporary"
  dd bs=65536 count="$size" iflag=count_bytes,fullblock status=none >>"$temporary"
  [ "$(stat -c %s "$temporary")" = "$size" ] || { echo "short write of $path" >&2; exit 1; }
  sync "$temporary"
  mv -f -T "$temporary" "$path"
  sync "$directory"
done
"""
_DIGEST_SCRIPT = """\
for path; do
  [ -f "$path" ] || continue
  printf '%s %s %s\\n' "$(sha256sum <"$path" | cut -c1-64)" "$(stat -Lc %a "$path")" "$path"
done
"""
# The directory is synced as well: a static pod that was taken away must not come back with the power.
_REMOVE_SCRIPT = """\
set -eu
for path; do
  [ -e "$path" ] || [ -L "$path" ] || continue
  rm -f -- "$path"
  sync "${path%/*}/"
done
"""
_PUSH_SCRIPT = """\
set -eu
mkdir -p "${1%/*}"
temporary=${1%/*}/.autarky.${1##*/}
rm -f "$temporary"
( umask 077; : >"$temporary" )
cat >>"$temporary"
[ "$(stat -c %s "$temporary")" = "$3" ] || { echo "short write of $1" >&2; exit 1; }
chmod "$2" "$temporary"
sync "$temporary"
mv -f -T "$temporary" "$1"
sync "${1%/*}"
"""


class ShellHost:
    """Implements ports.Host over `_command`, which a driver gives."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def _command(self, argv: Sequence[str]) -> list[str]:
        """The local command line that runs `argv` on the host; Unreachable when there is no such host."""
        raise NotImplementedError

    def _refuse_absent(self) -> None:
        """Unreachable when the host is known to be gone; a driver that cannot know says nothing."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        completed = await self._execute(argv, stdin, timeout)
        if check and completed.status != 0:
            raise CommandFailed(self._name, _without_scripts(argv), completed.status, completed.stderr)
        return completed

    async def _execute(self, argv: Sequence[str], stdin: bytes | Path | None, timeout: float) -> Completed:
        process = await asyncio.create_subprocess_exec(
            *self._command(argv),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A process group of its own: a driver's child (nsenter) forks, and its death alone ends nothing.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout):
                stdout, stderr = await _converse(process, stdin)
        except TimeoutError as error:
            raise Unreachable(
                f"{self._name}: {shlex.join(_without_scripts(argv))[:200]} gave no answer within {timeout:.0f} s"
            ) from error
        finally:
            if process.returncode is None:
                await _end(process)
        status = process.returncode or 0
        if status != 0:
            self._refuse_absent()  # the power went while the program ran: that is no answer of the program
        if len(stdout) > OUTPUT_LIMIT:
            raise CommandFailed(self._name, _without_scripts(argv), status, f"wrote more than {OUTPUT_LIMIT} bytes")
        return Completed(status, stdout, stderr.decode(errors="replace"))

    async def read(self, path: str) -> bytes | None:
        completed = await self.run(["sh", "-c", '[ -e "$1" ] || exit 44; cat "$1"', "sh", path], check=False)
        if completed.status == 44:
            return None
        if completed.status != 0:
            raise CommandFailed(self._name, ["cat", path], completed.status, completed.stderr)
        return completed.stdout

    async def digests(self, paths: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        if not paths:
            return {}
        lines = (await self.run(["sh", "-c", _DIGEST_SCRIPT, "sh", *paths])).text.splitlines()
        found = (line.split(" ", 2) for line in lines)
        return {path: (digest, int(mode, 8)) for digest, mode, path in found}

    async def write_files(self, files: Sequence[File]) -> None:
        if not files:
            return
        stream = b"".join(f"{file.mode:o} {len(file.content)} {file.path}\n".encode() + file.content for file in files)
        await self.run(["sh", "-c", _WRITE_SCRIPT], stdin=stream, timeout=60)

    async def remove(self, paths: Sequence[str]) -> None:
        if paths:
            await self.run(["sh", "-c", _REMOVE_SCRIPT, "sh", *paths])

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        argv = ["sh", "-c", _PUSH_SCRIPT, "sh", path, f"{mode:o}", str(source.stat().st_size)]
        completed = await self._execute(argv, source, 600)
        if completed.status != 0:
            raise CommandFailed(self._name, ["push", path], completed.status, completed.stderr)

    async def facts(self) -> HostFacts:
        return parse_facts((await self.run(["sh", "-c", FACTS_SCRIPT])).stdout.decode(errors="replace"))

    async def close(self) -> None:
        return None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program with all it forked. Bounded: asyncio also waits for the pipes, and a daemon that left
    the group may hold them for ever."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await process.wait()


async def _converse(process: asyncio.subprocess.Process, stdin: bytes | Path | None) -> tuple[bytes, bytes]:
    """Feed standard input and collect both outputs, all at once: one full pipe must not stop the others."""
    assert process.stdout is not None  # noqa: S101 # we asked for pipes
    assert process.stderr is not None  # noqa: S101
    async with asyncio.TaskGroup() as group:
        stdout = group.create_task(_head(process.stdout, OUTPUT_LIMIT + 1), name="stdout")
        stderr = group.create_task(_tail(process.stderr, STDERR_KEPT), name="stderr")
        if process.stdin is not None and stdin is not None:
            group.create_task(_feed(process.stdin, stdin), name="stdin")
    await process.wait()
    return stdout.result(), stderr.result()


async def _head(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The first bytes; the rest is read and dropped, so that the program comes to its end."""
    kept = bytearray()
    while chunk := await stream.read(1 << 16):
        kept += chunk[: limit - len(kept)]
    return bytes(kept)


async def _tail(stream: asyncio.StreamReader, limit: int) -> bytes:
    """The last bytes."""
    kept = bytearray()
    while chunk := await stream.read(1 << 16):
        kept += chunk
        del kept[:-limit]
    return bytes(kept)


async def _feed(pipe: asyncio.StreamWriter, content: bytes | Path) -> None:
    """Send it and close; a big file is never whole in memory."""
    try:
        if isinstance(content, bytes):
            pipe.write(content)
            await pipe.drain()
        else:
            with content.open("rb") as file:  # a local file in the page cache; reads do not block for long
                while chunk := file.read(1 << 20):
                    pipe.write(chunk)
                    await pipe.drain()
        pipe.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the other side ended early; its status and stderr say why


def _without_scripts(argv: Sequence[str]) -> list[str]:
    """For messages: a script of ours is no help to a reader, its arguments are."""
    return ["sh", "-c", "…", *argv[3:]] if list(argv[:2]) == ["sh", "-c"] else list(argv)
