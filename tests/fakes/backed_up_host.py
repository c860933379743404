"""A host whose member of etcd is backed up: what `etcdctl` says there, and the snapshot that it writes.

Contract: as tests/contract/upkeep/test_backup_of_a_member.py finds it with real members. A snapshot is JSON: the
revision of this member, however far that is behind. `saved` counts them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field

from autarky import places
from autarky.places import BIN
from autarky.ports import Completed
from fakes.host import FakeHost


@dataclass
class BackedUpHost(FakeHost):
    """answers: whether its member runs. quorum: the revision that it reaches; None: it reaches no quorum. own: the
    revision that it has itself. entry: (term, index) of its log. alarms: as etcd numbers them, 2 is CORRUPT."""

    answers: bool = True
    quorum: int | None = 500
    own: int = 500
    entry: tuple[int, int] = (3, 900)
    alarms: Sequence[int] = ()
    plane: str = ""
    """What etcd has of the ControlPlane."""
    saved: int = 0
    asked: list[str] = field(default_factory=list)

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        match argv:
            case ["rm", "-rf", directory]:
                for path in [path for path in self.files if path.startswith(f"{directory}/")]:
                    del self.files[path]
                return Completed(0, b"", "")
            case ["df", *_]:
                return Completed(0, f"Avail Size\n{10**12} {10**12}\n".encode(), "")
            case ["sh", "-c", script, "sh", "/"] if "tar --create" in script:
                return Completed(0, bytes(10240), "")
            case [program, *_] if program == f"{BIN}/etcdctl":
                return self._etcdctl(argv[6:-1])
        return FakeHost._completed(self, argv, stdin)

    def _etcdctl(self, arguments: Sequence[str]) -> Completed:
        self.asked.append(" ".join(arguments))
        if not self.answers:
            return _failed("connection refused")
        found = self._alone(arguments)
        if found is None and self.quorum is None:
            return _failed("context deadline exceeded")
        return _json(self._by_quorum(arguments) if found is None else found)

    def _alone(self, arguments: Sequence[str]) -> object | None:
        """None: the member asks others."""
        match arguments:
            case ["endpoint", "status"]:
                header = {"member_id": 1, "cluster_id": 0xC1, "revision": self.own}
                leader = 0 if self.quorum is None else 1
                term, index = self.entry
                names = {1: "NOSPACE", 2: "CORRUPT"}
                errors = [f"memberID:1 alarm:{names[one]} " for one in self.alarms]
                status = {"header": header, "leader": leader, "version": "3.6.16", "dbSize": 100, "errors": errors}
                return [{"Status": {**status, "raftTerm": term, "raftIndex": index}}]
            case ["member", "list", "--consistency=s"]:
                return {"header": {"cluster_id": 0xC1}, "members": [{"ID": 1, "name": self.name}]}
            case ["snapshot", "save", path]:
                self.saved += 1
                self.files[path] = (json.dumps({"revision": self.own}).encode(), 0o600)
                return {}
        return None

    def _by_quorum(self, arguments: Sequence[str]) -> object:
        match arguments:
            case ["get", "revision-of-the-store", "--keys-only"]:
                return {"header": {"revision": self.quorum}}
            case ["get", key] if key.endswith("/controlplanes/cluster"):
                return {"kvs": [{"value": b64encode(self.plane.encode()).decode()}]} if self.plane else {}
            case ["alarm", "list"]:
                return {"alarms": [{"memberID": 1, "alarm": one} for one in self.alarms]}
        raise AssertionError(f"the fake etcd does not know {arguments}")

    @property
    def left(self) -> list[str]:
        """In the directory for snapshots."""
        return [path for path in self.files if path.startswith(f"{places.HOST_ROOT}/scratch/")]


def _failed(why: str) -> Completed:
    return Completed(1, b"", f"Error: {why}")


def _json(found: object) -> Completed:
    return Completed(0, json.dumps(found).encode(), "")
