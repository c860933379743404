"""Hosts in memory whose kubelets run the members of etcd that their static pods say: as processes that are well, or end
at once where the arguments are bad.

A quorum is needed for `etcdctl` and for `/readyz`. `stopped` has, for each time that a member lost its static pod,
which others were well in that moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.phases import etcd_change, etcd_listed
from autarky.places import MANIFESTS
from autarky.ports import Completed
from fakes.host import FakeHost


@dataclass(slots=True)
class FakeEtcd:
    """The members of all hosts. bad: whether no member can live with this static pod."""

    bad: Callable[[bytes], bool] = lambda manifest: b"--nonsense" in manifest
    hosts: dict[str, EtcdHost] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    leader: str = "n1"
    learners: frozenset[str] = frozenset()
    stopped: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def of(self, facts: Mapping[str, HostFacts]) -> dict[str, EtcdHost]:
        """A host for each of these nodes."""
        self.hosts = {name: EtcdHost(name, found, etcd=self) for name, found in facts.items()}
        self.addresses = {name: host.host_facts.address for name, host in self.hosts.items()}
        return self.hosts

    def voters(self) -> list[str]:
        return [name for name, host in self.hosts.items() if host.is_member and name not in self.learners]

    def living(self) -> frozenset[str]:
        return frozenset(name for name, host in self.hosts.items() if host.lives)

    def has_quorum(self) -> bool:
        voters = self.voters()
        return len(self.living().intersection(voters)) > len(voters) // 2

    def json_lines(self) -> str:
        quorum, living = self.has_quorum(), self.living()
        names = [name for name, host in self.hosts.items() if host.is_member]
        url = {name: f"https://{self.addresses[name]}:2379" for name in names}
        listed = [
            {"ID": number, "name": name, "clientURLs": [url[name]], "isLearner": name in self.learners}
            for number, name in enumerate(names, 1)
        ]  # fmt: skip
        leader = names.index(self.leader) + 1 if self.leader in names else 0
        health = [{"endpoint": url[name], "health": quorum and name in living} for name in names]
        return "\n".join(map(json.dumps, ({"members": listed}, [{"Status": {"leader": leader}}], health)))


@dataclass(slots=True)
class EtcdHost(FakeHost):
    etcd: FakeEtcd = field(kw_only=True)
    is_member: bool = False
    starts: int = 0
    off: bool = False
    """Its process does not live, whatever its static pod says."""
    slow: bytes | None = None
    """With this in its static pod it is never well."""
    lingers: int = 0
    """For how many looks a process still runs whose static pod is gone."""

    @property
    def manifests(self) -> list[bytes]:
        return [content for path, (content, _) in self.files.items() if path.startswith(f"{MANIFESTS}/etcd-")]

    @property
    def lives(self) -> bool:
        return len(self.manifests) == 1 and not self.etcd.bad(self.manifests[0]) and not self.off

    async def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path.startswith(f"{MANIFESTS}/etcd-"):
                self.etcd.stopped.append((self.name, self.etcd.living() - {self.name}))
        await FakeHost.remove(self, paths)

    async def write_files(self, files: Sequence[File]) -> None:
        await FakeHost.write_files(self, files)
        if any(file.path.startswith(f"{MANIFESTS}/etcd-") for file in files):
            self.log.append(f"{self.lingers} looks before the former has ended")
            self.is_member, self.starts = True, 0

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        match list(argv):
            case ["bash", "-c", etcd_change.LOOK, "bash", path, _port, _logs, _new, *former]:
                if former and self.lingers:
                    self.lingers -= 1
                    return Completed(0, b"runs former\nsays HTTP/1.0 200 OK", "")
                return self._look(path)
            case ["bash", "-c", etcd_listed.MEMBERS, *_]:
                asked = self.lives and self.etcd.has_quorum()
                return Completed(0 if asked else 1, self.etcd.json_lines().encode() if asked else b"", "")
            case ["sh", "-c", etcd_change.LAST_LOG, "sh", _logs]:
                said = (
                    '2026-11-21T12:00:00Z stderr F {"level":"info","msg":"environment","error":"none"}\n'
                    "2026-11-21T12:00:00Z stderr F flag provided but not defined: -nonsense\n"
                    "2026-11-21T12:00:00Z stderr F Usage:\n"
                    "2026-11-21T12:00:00Z stderr F\n"
                    "2026-11-21T12:00:00Z stderr F   etcd [flags]\n"
                    "2026-11-21T12:00:00Z stderr F     Start an etcd server.\n"
                )
                return Completed(0, said.encode(), "")
        return await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)

    def _look(self, path: str) -> Completed:
        if not self.lives:
            self.starts += 1
            return Completed(0, f"starts {self.starts - 1}.log".encode(), "")
        is_slow = self.slow is not None and self.slow in self.manifests[0]
        well = not is_slow and (path == "/livez" or self.etcd.has_quorum())
        said = f"HTTP/1.0 {'200 OK' if well else '503 Service Unavailable'}"
        return Completed(0, f"runs new\nstarts 0.log\nsays {said}".encode(), "")
