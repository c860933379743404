"""etcd through its own tools on the host of a member: `etcdctl` with the member's certificate, and `etcdutl`.

Contract: it needs neither the API nor a credential of etcd on the user's machine, only root on one control node. An
error that etcd reports is CommandFailed with its last line; what is not understood is Unreachable.

Dangers: `etcdctl` exits with 1 when an endpoint is not healthy, and still prints why: what it printed counts. Numbers
of 64 bits are numbers in its JSON.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from autarky import places
from autarky.errors import CommandFailed, Conflict, Unreachable
from autarky.etcd.members import Alarm, Membership, MemberStatus, member_of, number, status_of
from autarky.model import patience, ports
from autarky.parsing import parsed
from autarky.ports import Completed, Host

_MARGIN = 5.0
"""Seconds that the program itself may take beyond the time that it gives etcd."""


SECOND_LOCAL = f"https://127.0.0.1:{ports.ETCD_SECOND_CLIENT}"
"""A second member's client URL on its own host."""
_VERIFY = """\
size=$(stat -c %s "$1") && [ "$size" -gt 32 ] || { echo "$1 is no snapshot" >&2; exit 1; }
found=$(head -c $((size - 32)) "$1" | sha256sum | cut -d ' ' -f 1)
[ "$found" = "$(tail -c 32 "$1" | od -An -v -tx1 | tr -d ' \\n')" ] || { echo "$1: its hash is wrong" >&2; exit 1; }
"""


@dataclass(frozen=True, slots=True)
class Place:
    """On a host. local: the client URL of its own member, or several of one etcd, separated by commas. pki, programs:
    directories; ca, certificate, key: files in the former, or paths."""

    local: str = f"https://127.0.0.1:{ports.ETCD_CLIENT}"
    pki: str = places.ETCD_PKI
    programs: str = places.BIN
    ca: str = "ca.crt"
    certificate: str = "server.crt"
    key: str = "server.key"


ROOT = "root"
"""etcd's user that may do everything, and without whom nobody can turn authentication on."""
_AS_ROOT = f"""\
IFS= read -r ETCDCTL_PASSWORD && export ETCDCTL_PASSWORD ETCDCTL_USER={ROOT} && exec "$@"
"""
"""The environment of a process is for root and its own user; its command line is for everybody."""
_GONE = "not found"
"""In what etcd says of a user or a role that it does not have."""


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """Of a snapshot file, whose hash was verified. size in bytes."""

    hash: int
    revision: int
    keys: int
    size: int
    version: str


class EtcdTools:
    """On one host. timeout: seconds that etcd has for one answer, unless a method says otherwise. password: of etcd's
    user `root`, in whose name everything is asked; where authentication is off, etcd does not look at it."""

    def __init__(
        self,
        host: Host,
        timeout: float = patience.MEMBER_LOOK,
        place: Place | None = None,
        *,
        password: str | None = None,
    ) -> None:
        self._host = host
        self._timeout = timeout
        self._place = place or Place()
        self._password = password

    # --- looking ---

    async def membership(self, *, by_quorum: bool = True) -> Membership:
        """by_quorum: as the quorum sees it; else as the member on this host remembers it."""
        consistency = "l" if by_quorum else "s"
        found = _object(await self._ctl(["member", "list", f"--consistency={consistency}"]))
        members = tuple(member_of(one) for one in found.get("members", ()))
        return Membership(number(found.get("header", {}), "cluster_id"), members)

    async def statuses(self, endpoints: Iterable[str]) -> Mapping[str, MemberStatus]:
        """Endpoint → what its member says of itself; those that do not answer are absent."""
        said = await self._each(["endpoint", "status"], endpoints)
        return {one: status_of(row["Status"]) for one, row in said.items() if "header" in row.get("Status", {})}

    async def health(self, endpoints: Iterable[str]) -> Mapping[str, str | None]:
        """Endpoint → None if it answers through its quorum and has no alarm, else why not, in etcd's words."""
        asked = list(endpoints)
        said = await self._each(["endpoint", "health"], asked)
        return {one: _why_unhealthy(said.get(one)) for one in asked}

    async def greets(self, url: str) -> str | None:
        """None if both sides accept each other at the URL of a peer; else why not, in etcdctl's words. A peer speaks
        HTTP/1.1 there, and no gRPC: so etcdctl gets as far as its answer, and no further."""
        done = await self._run(["endpoint", "health"], [url], timeout=self._timeout, check=False)
        if "looked like an HTTP/1.1 header" in done.stderr:
            return None
        _, found, why = done.stderr.partition("connection error: desc = ")
        return why.partition("\n")[0].strip('\\"} ') if found else _last_words(done.stderr) or "it does not answer"

    async def reaches(self, url: str) -> str | None:
        """None if the member there accepts our certificate, and we accept its; else why not, in etcdctl's words. A
        learner as well, which answers little else."""
        done = await self._run(["endpoint", "status"], [url], timeout=self._timeout, check=False)
        return None if done.status == 0 else _last_words(done.stderr) or "it does not answer"

    async def hashes(self, endpoints: Iterable[str], revision: int = 0) -> Mapping[str, int]:
        """Endpoint → the hash of its keys up to the revision (0: the newest of each). Absent: no answer."""
        said = await self._each(["endpoint", "hashkv", f"--rev={revision}"], endpoints)
        return {one: number(row.get("HashKV", {}), "hash") for one, row in said.items()}

    async def _each(self, arguments: Sequence[str], endpoints: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Endpoint → what was printed of it. Side by side: one `etcdctl` asks its endpoints one after the other, and
        each that hangs takes all of the time."""

        async def one(endpoint: str) -> Mapping[str, Any] | None:
            try:
                done = await self._run(arguments, [endpoint], timeout=self._timeout, check=False)
            except Unreachable:
                return None
            found = _parsed(done.text)
            return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else None

        asked = list(dict.fromkeys(endpoints))
        said = await asyncio.gather(*map(one, asked))
        return {endpoint: row for endpoint, row in zip(asked, said, strict=True) if row is not None}

    async def alarms(self) -> tuple[Alarm, ...]:
        found = _object(await self._ctl(["alarm", "list"]))
        return tuple(
            Alarm(number(one, "memberID"), {1: "NOSPACE", 2: "CORRUPT"}.get(number(one, "alarm"), "unknown"))
            for one in found.get("alarms", ())
        )

    async def revision(self) -> int:
        """The newest revision, as the quorum sees it."""
        found = _object(await self._ctl(["get", "revision-of-the-store", "--keys-only"]))
        return number(found.get("header", {}), "revision")

    async def value(self, key: str) -> str:
        """As the quorum sees it; empty where there is none."""
        found = _object(await self._ctl(["get", key]))
        values = [base64.b64decode(one.get("value", "")).decode(errors="replace") for one in found.get("kvs", ())]
        return values[0] if values else ""

    async def count(self, revision: int, *, timeout: float) -> int:
        """How many keys there were at that revision. CommandFailed where it was compacted."""
        asked = ["get", "", "--prefix", "--count-only", f"--rev={revision}"]
        said = await self._ctl(asked, timeout=timeout, form="fields")  # it counts in no other form
        found = re.search(r'^"Count" : (\d+)$', said, re.MULTILINE)
        if found is None:
            raise Unreachable(f"etcdctl says no number of keys: {said[:100]!r}")
        return int(found[1])

    async def has_authentication(self) -> bool:
        """Whether it is on. Then others than `root` may be refused the answer: CommandFailed."""
        return bool(_object(await self._ctl(["auth", "status"])).get("enabled", False))

    async def users(self) -> tuple[str, ...]:
        return tuple(map(str, _object(await self._ctl(["user", "list"])).get("users", ())))

    async def first_keys(self, begin: str, end: str | None, most: int) -> Sequence[str]:
        """The first keys from `begin` on, before `end` (None: all the others), `most` at most."""
        span = [begin, "--from-key"] if end is None else [begin, end]
        found = _object(await self._ctl(["get", *span, "--keys-only", f"--limit={most}"]))
        return [base64.b64decode(one["key"]).decode(errors="replace") for one in found.get("kvs", ())]

    # --- acting ---

    async def put(self, key: str, value: str) -> None:
        """Danger: both stand in the command line, which every user of the host can read."""
        await self._ctl(["put", key, value])

    async def add_learner(self, peer_url: str) -> None:
        """Admit a member without a vote, to be started with an empty directory. CommandFailed where etcd refuses."""
        await self._ctl(["member", "add", "new", "--learner", f"--peer-urls={peer_url}"])

    async def promote(self, member: int) -> None:
        """Give a learner its vote. CommandFailed while it is not in sync."""
        await self._ctl(["member", "promote", f"{member:x}"])

    async def remove(self, member: int) -> None:
        """It ends by itself. CommandFailed where the others would have no quorum."""
        await self._ctl(["member", "remove", f"{member:x}"])

    async def disarm(self) -> None:
        """Clears all alarms. etcd raises one again when its cause is still there."""
        await self._ctl(["alarm", "disarm"])

    async def defragment(self, endpoint: str, *, timeout: float) -> None:
        """The member answers nothing meanwhile."""
        await self._ctl(["defrag"], [endpoint], timeout=timeout)

    async def compact(self, revision: int, *, timeout: float) -> None:
        """Forget all that is older than the revision, and wait until the space is free inside the database."""
        await self._ctl(["compact", "--physical=true", str(revision)], timeout=timeout)

    async def move_leader(self, leader: str, target: int) -> None:
        """leader: the endpoint of the present one, which alone can do it."""
        await self._ctl(["move-leader", f"{target:x}"], [leader])

    async def save_snapshot(self, path: str, *, timeout: float, endpoint: str | None = None) -> None:
        """Of its member to a file on this host, mode 0600, never half under its name; it ends with its hash. endpoint:
        of which member, where there are several."""
        await self._ctl(["snapshot", "save", path], [] if endpoint is None else [endpoint], timeout=timeout)

    async def refuse_all_but(self, password: str) -> None:
        """From when this returns etcd answers nobody but its user `root` with that password: authentication is on,
        which goes through Raft. Conflict where there is such a user already, whose password is not known."""
        if ROOT in await self.users():
            raise Conflict(f"etcd has a user {ROOT} already, who is not ours")
        await self._ctl(["user", "add", ROOT, "--interactive=false"], stdin=password)
        await self._ctl(["user", "grant-role", ROOT, ROOT])
        await self._ctl(["auth", "enable"])

    async def answer_all(self) -> None:
        """Authentication is off, and what `refuse_all_but` has made is gone. Again it changes nothing."""
        await self._ctl(["auth", "disable"])
        for made in ("user", "role"):
            try:
                await self._ctl([made, "delete", ROOT])
            except CommandFailed as error:
                if _GONE not in error.stderr:
                    raise

    async def snapshot_status(self, path: str, *, timeout: float) -> SnapshotStatus:
        """Of a snapshot on this host; CommandFailed if its hash is wrong. `etcdutl snapshot status` itself ignores the
        SHA-256 at the end of the file, so that damage in a free page or in a value would pass."""
        await self._host.run(["sh", "-c", _VERIFY, "sh", path], timeout=timeout)
        done = await self._host.run(
            [f"{self._place.programs}/etcdutl", "snapshot", "status", path, "-w", "json"], timeout=timeout
        )
        found = _object(done.text)
        return SnapshotStatus(
            number(found, "hash"),
            number(found, "revision"),
            number(found, "totalKey"),
            number(found, "totalSize"),
            str(found.get("version", "")),
        )

    # --- running ---

    async def _ctl(
        self,
        arguments: Sequence[str],
        endpoints: Sequence[str] = (),
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        form: str = "json",
    ) -> str:
        asked = endpoints or [self._place.local]
        limit = self._timeout if timeout is None else timeout
        return (await self._run(arguments, asked, timeout=limit, stdin=stdin, form=form)).text

    async def _run(
        self,
        arguments: Sequence[str],
        endpoints: Sequence[str],
        *,
        timeout: float,
        check: bool = True,
        stdin: str | None = None,
        form: str = "json",
    ) -> Completed:
        argv = [
            f"{self._place.programs}/etcdctl",
            f"--endpoints={','.join(endpoints)}",
            f"--command-timeout={timeout:.0f}s",
            f"--cacert={PurePosixPath(self._place.pki, self._place.ca)}",
            f"--cert={PurePosixPath(self._place.pki, self._place.certificate)}",
            f"--key={PurePosixPath(self._place.pki, self._place.key)}",
            *arguments,
            f"--write-out={form}",
        ]
        lines = [] if stdin is None else [stdin]
        if self._password is not None:
            argv, lines = ["sh", "-c", _AS_ROOT, "sh", *argv], [self._password, *lines]
        given = "".join(f"{line}\n" for line in lines).encode() if lines else None
        done = await self._host.run(argv, stdin=given, timeout=timeout + _MARGIN, check=False)
        if check and done.status != 0:
            raise CommandFailed(self._host.name, ["etcdctl", *arguments], done.status, _last_words(done.stderr))
        return done


def _last_words(text: str) -> str:
    """etcdctl logs retries before it says what is wrong, in its last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else ""


def _parsed(text: str) -> Any:
    try:
        return parsed(text.encode())
    except ValueError:
        return None


def _object(text: str) -> Mapping[str, Any]:
    found = _parsed(text)
    if isinstance(found, dict):
        return found
    raise Unreachable(f"etcdctl printed something else than JSON: {text[:100]!r}")


def _why_unhealthy(one: Mapping[str, Any] | None) -> str | None:
    if one is None:
        return "it does not answer"
    return None if one.get("health") else str(one.get("error") or "it is not healthy")
