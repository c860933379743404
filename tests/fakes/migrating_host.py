"""Control nodes and a host outside of the cluster, in memory, between which etcd moves: the members of
`fakes.recovering_host`, and the API servers that dial them.

Contract: after every act one etcd serves, and whatever an API server of a control node dials, or would after a rollback
of the operator's, is a member that runs and votes; and no member trusts only its own CA while another one still has a
certificate of the other CA. Else the test fails at that act. A service `etcd` runs a member as a static pod does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.model.facts import HostFacts
from autarky.phases.migration import looking, outwards, peering
from autarky.ports import Completed
from fakes.recovering_host import RecoveringEtcd, RecoveringHost, _json, _said

BALANCER = "https://127.0.0.1:2378"
PEER_CERTIFICATE = f"{etcd.PKI}/peer.crt"


@dataclass
class MigratingEtcd(RecoveringEtcd):
    """strangers: addresses whose members do not accept our certificates as peers. closed: addresses whose members have
    another CA for their clients, by which only the API servers that use them are known. ill: hosts whose members run
    and are not healthy. last_good: what the operator would roll the API servers back to. lent: a certificate for peers
    of another CA, and that CA. elsewhere: rows of the list of members that are on none of these hosts."""

    strangers: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    ill: set[str] = field(default_factory=set)
    last_good: str = ""
    lent: tuple[bytes, bytes] | None = None
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    version: str = ""
    hosted: bool = False
    watched: bool = False
    """Whether the contract is checked."""
    led: list[str] = field(default_factory=list)
    """Who was removed while it led."""
    removed: list[str] = field(default_factory=list)

    def of(self, facts: dict[str, HostFacts]) -> dict[str, Any]:  # type: ignore[override]
        self.hosts = {name: MigratingHost(name, found, etcd=self) for name, found in facts.items()}
        return dict(self.hosts)

    def act(self, host: str, what: str) -> None:
        self.check(f"before {host}: {what}")
        super().act(host, what)

    def check(self, when: str) -> None:
        if not self.watched:
            return
        serving = self.serving()
        assert len(serving) == 1, f"{when}: no etcd serves"
        for host in self.hosts.values():
            dials: frozenset[str] = getattr(host, "dials", frozenset())
            for url in {*dials, *([self.last_good] if dials and self.last_good else [])}:
                assert self.leads_to(host, url) in serving, f"{when}: {host.name} dials {url}, where nobody serves"
        self._check_peers(when)

    def _check_peers(self, when: str) -> None:
        certificate, ca = self.lent or (b"", b"")
        having = [one.name for one in self.hosts.values() if one.files.get(PEER_CERTIFICATE, (b"",))[0] == certificate]
        for host in self.hosts.values() if self.lent is not None and having else ():
            trusted = host.files.get(etcd.PEER_CA, (ca,))[0]
            assert host.runs is None or ca in trusted, f"{when}: {host.name} does not accept {', '.join(having)}"

    def leads_to(self, host: RecoveringHost, url: str) -> int | None:
        """The cluster of a voter that runs there."""
        there = host._asked(f"--endpoints={url}")
        cluster = None if there is None else there.runs
        return cluster if cluster is not None and there is not None and there.name in self.voters[cluster] else None


@dataclass
class MigratingHost(RecoveringHost):
    """dials: what its API servers dial, and its standby would; empty where it has none. agent_is_late: it has not made
    the load balancer lead to etcd yet."""

    dials: frozenset[str] = frozenset()
    agent_is_late: bool = False

    @property
    def pods(self) -> list[bytes]:
        unit = self.files.get(etcd.UNIT_PATH, (b"", 0))[0]
        return [*RecoveringHost.pods.fget(self), *([unit] if unit and "etcd" in self.active_units else [])]  # type: ignore[attr-defined]

    def is_balanced(self) -> bool:
        return not self.agent_is_late and {nllb.ETCD_CLIENT_PATH, nllb.ETCD_CA_PATH} <= self.files.keys()

    def _asked(self, option: str) -> RecoveringHost | None:
        url = option.removeprefix("--endpoints=")
        if not url.startswith(BALANCER):
            return RecoveringHost._asked(self, option.partition(",")[0])
        if not self.is_balanced():
            return None
        return self if self.runs is not None else next((h for h in self.etcd.hosts.values() if h.runs), None)

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        match argv:
            case ["bash", "-c", looking.SCRIPT, "look", "dialled"]:
                return _said(",".join(sorted(self.dials)))
            case ["sh", "-c", outwards._ASIDE, "sh", directory, name]:
                self._act("move the data aside")
                self.rename(f"{directory}/member", f"{directory}/{name}/member")
                return _said()
            case ["sh", "-c", looking._FILES]:
                return _said("/var/lib/autarky/standby/kube-apiserver/current/files/secrets")
            case ["bash", "-c", looking.SCRIPT, "look", "ended"]:
                return _said()
            case ["systemctl", "disable", "--now", "etcd"] | ["systemctl", "stop", "etcd"]:
                done = RecoveringHost._completed(self, argv, stdin)
                self.process = bool(self.pods)
                return done
        return RecoveringHost._completed(self, argv, stdin)

    def _etcdctl(self, argv: Sequence[str]) -> Completed:
        url, arguments = argv[1].removeprefix("--endpoints="), list(argv[6:-1])
        if self._is_closed(url, argv[3].removeprefix("--cacert=")):
            return Completed(1, b"", "Error: context deadline exceeded")
        if arguments == ["endpoint", "health"]:
            return self._health(url, argv[3].removeprefix("--cacert="))
        there = self._asked(argv[1])
        if there is not None and there is not self and self._learns(there) and arguments != ["endpoint", "status"]:
            return Completed(1, b"", "Error: etcdserver: rpc not supported for learner")
        return RecoveringHost._etcdctl(self, argv)

    def _is_closed(self, url: str, ca_file: str) -> bool:
        """Whoever asks with a certificate of the one CA is nobody to members that have the other."""
        clients = {f"https://{address}:2379" for address in self._world.closed}
        return bool(clients) and (url in clients) != ca_file.startswith(f"{places.STANDBY}/")

    def _learns(self, host: RecoveringHost) -> bool:
        return host.runs is not None and host.name in self.etcd.learners.get(host.runs, {})

    def _health(self, url: str, ca_file: str) -> Completed:
        address = url.removeprefix("https://").partition(":")[0]
        if url.endswith(":2380"):
            is_known = address not in self._world.strangers or ca_file == peering.TRUSTED
            why = "frame too large, note that the frame header looked like an HTTP/1.1 header"
            why = why if is_known else "tls: failed to verify certificate: x509: signed by unknown authority"
            return Completed(1, b"", f'"latest balancer error: connection error: desc = \\"{why}\\""')
        there = next((one for one in self.etcd.hosts.values() if one.host_facts.address == address), None)
        healthy = there is not None and there.name not in self._world.ill and there.runs in self.etcd.serving()
        return _json([{"endpoint": url, "health": healthy, "error": "" if healthy else "deadline"}])

    @property
    def _world(self) -> MigratingEtcd:
        assert isinstance(self.etcd, MigratingEtcd)
        return self.etcd

    def _said_by(self, cluster: int, arguments: Sequence[str], *, without_quorum: bool = False) -> Completed | None:
        keys = self.etcd.values[cluster]["keys"]
        match arguments:
            case ["member", "list", _] if self._world.elsewhere:
                done = RecoveringHost._said_by(self, cluster, arguments, without_quorum=without_quorum)
                found = json.loads(done.text if done is not None else "")
                return _json({**found, "members": [*found["members"], *self._world.elsewhere]})
            case ["get", begin, *span, "--keys-only", limit] if limit.startswith("--limit="):
                end = None if span == ["--from-key"] else span[0]
                found = [key for key in sorted(keys) if begin <= key and (end is None or key < end)]
                return _json({"kvs": [{"key": base64.b64encode(key.encode()).decode()} for key in found]})
            case ["endpoint", "status"]:
                voters = self.etcd.voters[cluster]
                status = {"header": {"member_id": 1, "cluster_id": cluster}, "leader": voters.get(self.etcd.leader, 0)}
                return _json([{"Status": {**status, "raftTerm": 2, "version": self._world.version}}])
        return RecoveringHost._said_by(self, cluster, arguments, without_quorum=without_quorum)

    def _started(self, cluster: int) -> set[int]:
        """The ids of members that run."""
        self.etcd.settle()
        found = [host.identity() for host in self.etcd.hosts.values() if host.runs == cluster]
        return {one.member for one in found if one is not None}

    def _row(self, name: str, member: int, learner: bool) -> dict[str, Any]:
        """A member has no name until it has started."""
        found = self.etcd.hosts[name].identity()
        named = name if found is not None and found.member == member else ""
        return {**RecoveringHost._row(self, name, member, learner), "name": named}

    def _is_needed(self, cluster: int, name: str) -> bool:
        """As etcd says (`mayRemoveMember`): one that is not connected may always go, another one only while those that
        are connected are a majority without it."""
        well = self.etcd.running(cluster) - self._world.ill
        rest = set(self.etcd.voters[cluster]) - {name}
        return name in well & set(self.etcd.voters[cluster]) and 2 * len(rest & well) <= len(rest)

    def _changed(self, cluster: int, arguments: Sequence[str]) -> Completed:
        voters = self.etcd.voters[cluster]
        match arguments:
            case ["move-leader", member]:
                heir = next(name for name, one in voters.items() if one == int(member, 16))
                if heir in self._world.ill:
                    return Completed(1, b"", "Error: etcdserver: request timed out, leader transfer took too long")
                self._act("move the leadership")
                self.etcd.leader = heir
            case ["member", "remove", member]:
                learners = self.etcd.learners.setdefault(cluster, {})
                name = next(name for name, one in {**voters, **learners}.items() if one == int(member, 16))
                if self._is_needed(cluster, name):
                    return Completed(1, b"", "Error: etcdserver: unhealthy cluster")
                self._act("remove a member")
                self._world.removed.append(name)
                if name == self.etcd.leader:
                    self._world.led.append(name)
                for listed in (voters, learners):
                    listed.pop(name, None)
            case ["member", "promote", member] if int(member, 16) not in self._started(cluster):
                return Completed(1, b"", "Error: can only promote a learner member which is in sync with leader")
            case _:
                return RecoveringHost._changed(self, cluster, arguments)
        return _json({})
