"""etcd through its JSON gateway (the HTTP form of the v3 API), with client certificates.

Contract: an error that etcd reports is ApiError with the word of its gRPC code as the reason; no answer is
Unreachable. Only reading is sent again after a lost connection.

Dangers: the gateway dials etcd with the member's *server* certificate, which must therefore be good for
clients too; where it is not, every call fails with «Unavailable». With several endpoints any member may
answer: what is asked of one member (`status`) needs a client of that one alone. 64-bit numbers come as
strings, and are turned into numbers here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autarky.errors import ApiError, AutarkyError, Unreachable
from autarky.etcd.members import Alarm, KeysHash, Member, Membership, MemberStatus, member_of, number, status_of
from autarky.model.patience import REQUEST
from autarky.net.http import Answer, Endpoints, Request
from autarky.net.tls import client_context
from autarky.parsing import parsed

_CODES = (
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)
"""Status codes of gRPC by number (grpc.io/docs/guides/status-codes)."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key with the revision in which it was written last. cluster: whose member says so; 0 if it does not say."""

    key: bytes
    value: bytes = field(repr=False)
    mod_revision: int
    cluster: int


class EtcdClient:
    """endpoints: base URLs of members ("https://10.0.0.1:2379"); the first that answers is used. timeout: seconds for
    one request; change_timeout: for what changes something and so waits for a majority of the disks, where that is
    another time."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        ca_pem: bytes,
        client_cert_pem: bytes,
        client_key_pem: bytes,
        timeout: float = REQUEST,
        change_timeout: float | None = None,
    ) -> None:
        self._http = Endpoints(endpoints, client_context(ca_pem, client_cert_pem, client_key_pem))
        self._timeout = timeout
        self._change_timeout = timeout if change_timeout is None else change_timeout

    async def close(self) -> None:
        await self._http.close()

    # --- members ---

    async def status(self) -> MemberStatus:
        found = await self._read("/v3/maintenance/status")
        return status_of(found)

    async def members(self) -> tuple[Member, ...]:
        """All members, as the quorum sees them (a linearizable read)."""
        return (await self.membership()).members

    async def membership(self) -> Membership:
        """The same with the cluster's id. A learner refuses (FailedPrecondition)."""
        found = await self._read("/v3/cluster/member/list", {"linearizable": True})
        members = tuple(member_of(member) for member in found.get("members", ()))
        return Membership(number(found["header"], "cluster_id"), members)

    async def add_learner(self, peer_url: str) -> Member:
        """Admit a member without a vote, which may then be started with an empty directory.

        ApiError where etcd refuses: FailedPrecondition for a second learner (`--max-learners`) or a peer URL that
        a member has, Unavailable until enough voters have been connected for five seconds
        (`--strict-reconfig-check`), NotFound within the second in which a member was removed from that URL: an id is
        made of URL and second, and none comes back.
        """
        found = await self._write("/v3/cluster/member/add", {"peerURLs": [peer_url], "isLearner": True})
        return member_of(found["member"])

    async def promote(self, member: int) -> None:
        """Give a learner its vote. ApiError FailedPrecondition while it is not in sync with the leader."""
        await self._write("/v3/cluster/member/promote", {"ID": str(member)})

    async def remove(self, member: int) -> None:
        """Remove a member permanently: its id never comes back, and its process exits. ApiError NotFound where
        there is none of that id, Unavailable or FailedPrecondition where the rest would have no quorum.

        Danger: the leader may be removed, which costs an election: move the leadership first.
        """
        await self._write("/v3/cluster/member/remove", {"ID": str(member)})

    async def move_leader(self, target: int) -> None:
        """Move the leadership to another voter. Ask only the leader itself."""
        await self._write("/v3/maintenance/transfer-leadership", {"targetID": str(target)})

    async def healthy(self, *, timeout: float = 2.0) -> str | None:
        """None when a member serves linearizable reads and has no alarm, else a short sentence. Never raises."""
        try:
            answer = await self._http.request(Request("GET", "/health", resend=True), timeout=timeout)
            found = _json(answer)
        except AutarkyError as error:
            return str(error)
        if answer.status == 200 and found.get("health") == "true":
            return None
        return f"/health says {answer.status}: {found.get('reason') or found.get('message') or 'unhealthy'}"

    # --- upkeep ---

    async def alarms(self) -> tuple[Alarm, ...]:
        found = await self._read("/v3/maintenance/alarm", {"action": "GET"})
        return tuple(Alarm(number(one, "memberID"), str(one.get("alarm", "NONE"))) for one in found.get("alarms", ()))

    async def disarm(self, alarm: Alarm) -> None:
        """Clear one alarm. etcd raises NOSPACE again with the next write if there still is no space."""
        wanted = {"action": "DEACTIVATE", "memberID": str(alarm.member), "alarm": alarm.kind}
        await self._write("/v3/maintenance/alarm", wanted)

    async def compact(self, revision: int, *, timeout: float) -> None:
        """Forget what was before this revision, and wait until the member that answers has done so. ApiError OutOfRange
        where that was done before, or the revision does not exist yet."""
        wanted = {"revision": str(revision), "physical": True}
        await self._call("/v3/kv/compaction", wanted, timeout, resend=False)

    async def defragment(self, *, timeout: float) -> None:
        """Give the free pages of this member's database back to its disk. Ask only the member itself: it answers
        nothing else meanwhile, and goes on if the answer is not waited for."""
        await self._call("/v3/maintenance/defragment", {}, timeout, resend=False)

    async def keys_hash(self, revision: int, *, timeout: float) -> KeysHash:
        """Of this member's keys at that revision. ApiError OutOfRange where it does not have that revision: not yet, or
        not any more. It reads the entire database."""
        found = await self._call("/v3/maintenance/hashkv", {"revision": str(revision)}, timeout, resend=True)
        return KeysHash(number(found, "hash"), number(found, "hash_revision"), number(found, "compact_revision"))

    # --- keys ---

    async def get(self, key: bytes) -> KeyValue | None:
        found = await self._read("/v3/kv/range", {"key": _encoded(key)})
        if not found.get("kvs"):
            return None
        kv = found["kvs"][0]
        value = base64.b64decode(kv.get("value", ""))
        cluster = number(found.get("header", {}), "cluster_id")
        return KeyValue(base64.b64decode(kv["key"]), value, number(kv, "mod_revision"), cluster)

    async def put(self, key: bytes, value: bytes) -> None:
        await self._write("/v3/kv/put", {"key": _encoded(key), "value": _encoded(value)})

    # --- requests ---

    async def _read(self, path: str, wanted: Mapping[str, object] | None = None) -> dict[str, Any]:
        return await self._call(path, wanted or {}, self._timeout, resend=True)

    async def _write(self, path: str, wanted: Mapping[str, object]) -> dict[str, Any]:
        return await self._call(path, wanted, self._change_timeout, resend=False)

    async def _call(self, path: str, wanted: Mapping[str, object], timeout: float, *, resend: bool) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        request = Request("POST", path, headers=headers, body=json.dumps(wanted).encode(), resend=resend)
        answer = await self._http.request(request, timeout=timeout)
        found = _json(answer)
        if answer.status != 200:
            raise ApiError(
                answer.status, _reason(found), str(found.get("message") or found.get("error") or "no message")
            )
        return found


def _json(answer: Answer) -> dict[str, Any]:
    try:
        found = parsed(answer.body)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    raise Unreachable(f"the server that answered ({answer.status}) is not etcd: {answer.body[:100]!r}")


def _reason(found: Mapping[str, Any]) -> str:
    code = found.get("code", 2)
    return _CODES[code] if isinstance(code, int) and code < len(_CODES) else "Unknown"


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
