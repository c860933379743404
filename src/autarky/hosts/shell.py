"""A host as "run argv there, with stdin": everything else is built on that and shared by all drivers.

The host needs a POSIX shell, coreutils, util-linux and systemd; no Python. Files travel as one stream to
one small script, in one round trip. Content never appears in argv, secrets least of all.

Contract: a call that takes too long, or is cancelled, kills what it started, on the host as well: the
program and all it forked, unless they made a session of their own. Nothing else is ever killed.

Dangers: an interrupted process leaves temporary names (`.autarky.*`) in a directory; they are never
read, and the next write of the same file replaces them. Two writers of one file at a time are not
provided for (rule 6: one writer per node).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from autarky.errors import CommandFailed, Unreachable
from autarky.hosts import process
from autarky.hosts.facts import FACTS_SCRIPT, parse_facts
from autarky.hosts.held import Holding, hold
from autarky.hosts.process import Input, Said, converse
from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.ports import Completed
from autarky.store import file_digest

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = (f"PATH={PATH}", "LC_ALL=C", "HOME=/root")
SHA256_DIGITS = 64
_MODE = re.compile("[0-7]{1,6}")
PUSH_SECONDS = 60.0
PULL_SECONDS = 60.0
"""Without a byte, until a pull is given up."""
SLOWEST_PUSH = 256 * 1024
"""Bytes per second: a push that is slower than that after its first minute is given up."""

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
  [ ! -e "$temporary" ] && [ ! -L "$temporary" ] || rm -f "$temporary"
  ( umask 077; : >"$temporary" )
  chmod "$mode" "$temporary"
  dd bs=65536 count="$size" iflag=count_bytes,fullblock status=none >>"$temporary"
  [ "$(stat -c %s "$temporary")" = "$size" ] || { echo "short write of $path" >&2; exit 1; }
  sync "$temporary"
  mv -f -T "$temporary" "$path"
  sync "$directory"
done
"""
# "DIGEST  PATH" and then "MODE PATH" of each file that is there, each with a NUL behind it. Two processes for all: `up`
# asks for some hundred files. What vanishes in between is not there.
_DIGEST_SCRIPT = """\
for path; do
  shift
  [ ! -f "$path" ] || set -- "$@" "$path"
done
[ $# = 0 ] || { sha256sum --zero -- "$@"; stat --dereference --printf='%a %n\\0' -- "$@"; } || :
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
        """Unreachable if the host is known to be gone; a driver that cannot know does nothing."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        completed = await self._execute(argv, None if stdin is None else [stdin], timeout)
        return self._checked(argv, completed) if check else completed

    async def _execute(self, argv: Sequence[str], stdin: Sequence[Input] | None, timeout: float) -> Completed:
        """Run it once, to its end."""
        said = Said()
        try:
            status = await converse(self._command(argv), stdin, said, timeout=timeout, limit=process.OUTPUT_LIMIT + 1)
        except TimeoutError as error:
            raise self._no_answer(argv, timeout) from error
        if status != 0:
            self._refuse_absent()  # the power was lost while the program ran: that is no answer of the program
        return self._completed(argv, status, bytes(said.stdout), said.stderr.decode(errors="replace"))

    async def _repeatable(self, argv: Sequence[str], stdin: Sequence[Input] | None, timeout: float) -> Completed:
        """As `_execute`, for what may be done twice: a driver may repeat it if its connection breaks."""
        return await self._execute(argv, stdin, timeout)

    async def _start(self, argv: Sequence[str]) -> asyncio.subprocess.Process:
        """Start a long-running program, with its pipes."""
        return await process.start(self._command(argv), stdin=True)

    async def _ask(self, argv: Sequence[str], stdin: Sequence[Input] | None = None, timeout: float = 30.0) -> Completed:
        """Repeatable, and successful."""
        return self._checked(argv, await self._repeatable(argv, stdin, timeout))

    def _no_answer(self, argv: Sequence[str], timeout: float) -> Unreachable:
        command = shlex.join(_without_scripts(argv))[:200]
        return Unreachable(f"{self._name}: {command} gave no answer within {timeout:.0f} s")

    def _completed(self, argv: Sequence[str], status: int, stdout: bytes, stderr: str) -> Completed:
        if len(stdout) > process.OUTPUT_LIMIT:
            what = f"wrote more than {process.OUTPUT_LIMIT} bytes"
            raise CommandFailed(self._name, _without_scripts(argv), status, what)
        return Completed(status, stdout, stderr)

    def _checked(self, argv: Sequence[str], completed: Completed) -> Completed:
        if completed.status != 0:
            raise CommandFailed(self._name, _without_scripts(argv), completed.status, completed.stderr)
        return completed

    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        limit = process.OUTPUT_LIMIT if most is None else most
        argv = ["sh", "-c", '[ -e "$1" ] || exit 44; head -c "$2" -- "$1"', "sh", path, str(limit + 1)]
        completed = await self._repeatable(argv, None, 30)
        if completed.status == 44:
            return None
        if completed.status != 0:
            raise CommandFailed(self._name, ["cat", path], completed.status, completed.stderr)
        if len(completed.stdout) > limit:
            raise CommandFailed(self._name, ["cat", path], completed.status, f"the file has more than {limit} bytes")
        return completed.stdout

    async def digests(self, paths: Sequence[str]) -> Mapping[str, tuple[str, int]]:
        if not paths:
            return {}
        said = (await self._ask(["sh", "-c", _DIGEST_SCRIPT, "sh", *paths])).stdout.decode(errors="surrogateescape")
        digests, modes = dict[str, str](), dict[str, int]()
        for line in said.split("\0")[:-1]:
            value, _, path = line.partition(" ")
            if len(value) == SHA256_DIGITS:
                digests[path.removeprefix(" ")] = value
            elif _MODE.fullmatch(value):  # what is neither says nothing of any file
                modes[path] = int(value, 8)
        return {path: (digests[path], modes[path]) for path in paths if path in digests and path in modes}

    async def write_files(self, files: Sequence[File]) -> None:
        if not files:
            return
        stream = b"".join(f"{file.mode:o} {len(file.content)} {file.path}\n".encode() + file.content for file in files)
        await self._ask(["sh", "-c", _WRITE_SCRIPT], [stream], 60)

    async def remove(self, paths: Sequence[str]) -> None:
        if paths:
            await self._ask(["sh", "-c", _REMOVE_SCRIPT, "sh", *paths])

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        if await self._has(source, path, mode):
            return
        size = source.stat().st_size
        argv = ["sh", "-c", _PUSH_SCRIPT, "sh", path, f"{mode:o}", str(size)]
        completed = await self._repeatable(argv, [source], PUSH_SECONDS + size / SLOWEST_PUSH)
        if completed.status != 0:
            raise CommandFailed(self._name, ["push", path], completed.status, completed.stderr)

    async def pull(self, path: str, target: Path, progress: Callable[[float], None] | None = None) -> None:
        seen = (await self.digests([path])).get(path)
        if seen is None:
            raise CommandFailed(self._name, ["pull", path], 1, "there is no such file")
        temporary = target.with_name(f".autarky.{target.name}")
        try:
            digest = await self._receive(path, temporary, progress)
            if digest != seen[0]:
                raise CommandFailed(self._name, ["pull", path], 1, "it has changed, or did not arrive complete")
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    async def _receive(self, path: str, target: Path, progress: Callable[[float], None] | None) -> str:
        """Its digest. There is no time limit while something arrives."""
        program = await self._start(["cat", "--", path])
        assert program.stdout is not None  # noqa: S101 # we asked for pipes
        digest, come = hashlib.sha256(), 0
        try:
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                while chunk := await self._chunk(program.stdout, path):
                    digest.update(chunk)
                    file.write(chunk)
                    come += len(chunk)
                    if progress is not None:
                        progress(come)
                file.flush()
                os.fsync(file.fileno())
        finally:
            await process.end(program)
        return digest.hexdigest()

    async def _chunk(self, stream: asyncio.StreamReader, path: str) -> bytes:
        try:
            async with asyncio.timeout(PULL_SECONDS):
                return await stream.read(1 << 20)
        except TimeoutError as error:
            raise self._no_answer(["cat", path], PULL_SECONDS) from error

    async def _has(self, source: Path, path: str, mode: int) -> bool:
        """Whether the same content is there: hashing it on both sides costs less than sending it."""
        seen = (await self.digests([path])).get(path)
        return seen is not None and seen == (await asyncio.to_thread(file_digest, source), mode)

    @asynccontextmanager
    async def hold(self, path: str, holder: str) -> AsyncIterator[Holding]:
        async with hold(self._name, self._start, path, holder) as holding:
            yield holding

    async def facts(self) -> HostFacts:
        said = (await self._ask(["sh", "-c", FACTS_SCRIPT])).stdout.decode(errors="replace")
        try:
            return parse_facts(said)
        except Unreachable as error:
            raise Unreachable(f"{self._name}: {error}") from error

    async def close(self) -> None:
        return None


def _without_scripts(argv: Sequence[str]) -> list[str]:
    """For messages: our scripts do not help a reader, their arguments do."""
    return ["sh", "-c", "…", *argv[3:]] if list(argv[:2]) == ["sh", "-c"] else list(argv)
