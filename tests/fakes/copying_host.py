"""The hosts of `fakes.migrating_host`, between which etcd is copied instead: with etcd's authentication, the standbys
of API servers, and a client that writes whenever it can.

Contract: at no act do two etcds take writes, and what a client was acknowledged is in the etcd that takes them in the
end; else the test fails. An API server of the hosted slot comes back whenever it is ended, as its kubelet does it, and
uses what its template says.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from autarky import places
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.etcd import tools
from autarky.model.components import API_SERVER
from autarky.model.facts import HostFacts
from autarky.phases.migration import judging_copy, looking, outwards, returning
from autarky.ports import Completed
from fakes.kube import FakeKube
from fakes.migrating_host import BALANCER, MigratingEtcd, MigratingHost
from fakes.recovering_host import RecoveringHost, _json, _said

_STANDBY = f"{places.STANDBY}/{API_SERVER}"
_REFUSED = Completed(1, b"", "Error: etcdserver: permission denied")


@dataclass
class CopyingEtcd(MigratingEtcd):
    """hangs: members that are copied do not answer. lags: so many snapshots lack something. loses: all of them lack a
    key, which their revision does not show. size: of the database, in bytes. leaks: it answers everybody all the same.
    puts_back: what the standby uses that an agent puts back, once, when there is a new one. acknowledged: what a client
    has written."""

    hangs: bool = False
    lags: int = 0
    size: int = 0
    leaks: bool = False
    loses: bool = False
    puts_back: str = ""
    acknowledged: set[str] = field(default_factory=set)

    def of(self, facts: dict[str, HostFacts]) -> dict[str, Any]:  # type: ignore[override]
        self.hosts = {name: CopyingHost(name, found, etcd=self) for name, found in facts.items()}
        return dict(self.hosts)

    def serving(self) -> list[int]:
        self.settle()
        return [
            cluster
            for cluster, voters in self.voters.items()
            if 2 * len(self.running(cluster) & set(voters)) > len(voters)
        ]

    def settle(self) -> None:
        MigratingEtcd.settle(self)
        for host in self.hosts.values():
            if self.hangs and host.name != "store":
                host.process = False

    def open(self) -> list[int]:
        """Those that take writes of anybody."""
        return [cluster for cluster in self.serving() if not self.values[cluster].get("on")]

    def check(self, when: str) -> None:
        if not self.watched:
            return
        taking = self.open()
        assert len(taking) <= 1, f"{when}: {[f'{one:x}' for one in taking]} take writes"
        self.write(taking)

    def write(self, taking: Sequence[int]) -> None:
        """A client, by each API server that can."""
        for host in self.hosts.values():
            for url in host.uses:  # type: ignore[attr-defined]
                if (cluster := self.leads_to(host, url)) in taking and cluster is not None:
                    key = f"/registry/written/{len(self.acknowledged)}"
                    self.values[cluster]["keys"][key] = "1"
                    self.values[cluster]["revision"] += 1
                    self.acknowledged.add(key)

    def api_serves(self) -> bool:
        taking = self.open()
        return any(self.leads_to(host, url) in taking for host in self.hosts.values() for url in host.uses)  # type: ignore[attr-defined]


class CopyingKube(FakeKube):
    world: CopyingEtcd

    async def healthy(self, path: str = "/readyz", *, timeout: float = 1) -> str | None:
        serves = self.world.api_serves()
        if self.world.puts_back and serves and self.world.values[min(self.world.values)].get("on"):
            for host in self.world.hosts.values():
                if host.name != "store":
                    host.put_standby(self.world.puts_back)  # type: ignore[attr-defined]
            self.world.puts_back = ""
            return "it is starting"
        return None if serves else "etcd does not answer"


@dataclass
class CopyingHost(MigratingHost):
    """hosted: what the API server in the hosted slot uses; empty where there is none."""

    hosted: str = ""

    @property
    def uses(self) -> set[str]:
        """What the API servers that run here use."""
        active = {self.of_standby(self.in_place[API_SERVER])} if self.activations.get(API_SERVER) else set[str]()
        return {url for url in (self.hosted, *active) if url}

    def of_standby(self, revision: str | None = None) -> str:
        revision = revision or self.links.get(f"{_STANDBY}/current", "")
        pod = self.files.get(f"{_STANDBY}/{revision}/pod.json", (b"", 0))[0].decode()
        return pod.partition("--etcd-servers=")[2].partition('"')[0]

    def put_standby(self, url: str) -> None:
        """As the node's agent makes one."""
        name = f"checkpoint-{sha256(url.encode()).hexdigest()[:10]}"
        pod = f'{{\n  "kind": "Pod", "command": ["--etcd-servers={url}"]\n}}\n'
        self.disk.write(f"{_STANDBY}/{name}/pod.json", pod.encode(), 0o600)
        self.disk.link(f"{_STANDBY}/current", name)

    @property
    def pods(self) -> list[bytes]:
        return list(MigratingHost.pods.fget(self))  # type: ignore[attr-defined]

    def is_balanced(self) -> bool:
        found = nllb.parse(self.files.get(nllb.CONFIG_PATH, (b"", 0))[0].decode())
        return MigratingHost.is_balanced(self) and found is not None and bool(found.etcd)

    def _asked(self, option: str) -> RecoveringHost | None:
        if not option.removeprefix("--endpoints=").startswith(BALANCER):
            return MigratingHost._asked(self, option)
        found = nllb.parse(self.files.get(nllb.CONFIG_PATH, (b"", 0))[0].decode())
        addresses = {one.address for one in found.etcd} if found is not None and self.is_balanced() else set()
        return next((host for host in self.etcd.hosts.values() if host.host_facts.address in addresses), None)

    @property
    def _copies(self) -> CopyingEtcd:
        assert isinstance(self.etcd, CopyingEtcd)
        return self.etcd

    # --- programs ---

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        match argv:
            case ["sh", "-c", tools._AS_ROOT, "sh", *rest]:
                password, _, given = stdin.decode().partition("\n")
                return self._ctl(rest, password, given.strip())
            case [program, *_] if program == f"{places.BIN}/etcdctl":
                return self._ctl(argv, None, stdin.decode().strip())
            case ["sh", "-c", outwards._ASIDE, "sh", *_] | ["bash", "-c", looking.SCRIPT, "look", "ended"]:
                self.process = bool(self.pods) and self.process
        return self._of_a_copy(argv) or MigratingHost._completed(self, argv, stdin)

    def _of_a_copy(self, argv: list[str]) -> Completed | None:
        said = _said()
        match argv:
            case [program, "snapshot", "status", path, *_] if program == f"{places.BIN}/etcdutl":
                said = _json({"revision": json.loads(self.files[path][0])["revision"], "hash": 1, "totalKey": 1})
            case ["sh", "-c", tools._VERIFY, "sh", path]:
                assert path in self.files
            case ["bash", "-c", looking.SCRIPT, "look", "dialled"]:
                said = _said(",".join(sorted({*self.uses, self.of_standby()} - {""})))
            case ["bash", "-c", looking.SCRIPT, "look", "end", _]:
                self._act("end what uses the former etcd")
            case ["sh", "-c", returning.REMOVE, "sh", directory, work]:
                self._remove_copy(directory, work)
            case ["sh", "-c", judging_copy._FREE, "sh", _]:
                said = _said(str(self.free))
            case _:
                return None
        return said

    def _remove_copy(self, directory: str, work: str) -> None:
        self._act("remove what was copied")
        if f"{work}/ready" in self.files and not self._below(f"{work}/new/member"):
            assert not self.pods, "a member runs on what is removed"
            for path in self._below(f"{directory}/member"):
                del self.files[path]
            self.process = False
        unmarked = 'rm -f "$2/ready"' in returning.REMOVE.partition('rm -rf "$2"')[0]
        for what in [[f"{work}/ready"] if unmarked else [], self._below(f"{work}/new"), self._below(work)]:
            self._act("remove a part of the copy")  # power may go between any two files
            for path in what:
                self.files.pop(path, None)

    def _ctl(self, argv: Sequence[str], password: str | None, given: str) -> Completed:
        member, arguments = self._asked(argv[1].partition(",")[0]), list(argv[6:-1])
        cluster = None if member is None else member._answering()
        values = {} if cluster is None else self.etcd.values[cluster]
        if values.get("on") and not self._copies.leaks and password != values["users"].get(tools.ROOT):
            return _REFUSED
        found = None if cluster is None else self._looked(values, arguments) or self._changes(values, arguments, given)
        return found or self._etcdctl(argv)

    def _looked(self, values: dict[str, Any], arguments: list[str]) -> Completed | None:
        match arguments:
            case ["auth", "status"]:
                return _json({"enabled": values.get("on", False)})
            case ["user", "list"]:
                return _json({"users": sorted(values.get("users", {}))})
            case ["alarm", "list"]:
                return _json({"alarms": values.get("alarms", [])})
            case ["get", "", "--prefix", "--count-only", _]:
                return _said(f'"Count" : {len(values["keys"])}')
        return None

    def _changes(self, values: dict[str, Any], arguments: list[str], given: str) -> Completed | None:
        users = values.setdefault("users", {})
        match arguments:
            case ["user", "add", name, "--interactive=false"]:
                self._act("add the user")
                assert name not in users
                users[name] = given
            case ["user", "grant-role", name, _]:
                self._act("grant the role")
                assert name in users
            case ["auth", "enable"]:
                self._act("refuse everybody")
                assert tools.ROOT in users
                values["on"] = True
            case ["auth", "disable"]:
                self._act("answer everybody")
                values["on"] = False
            case ["user" | "role" as what, "delete", name]:
                self._act(f"delete the {what}")
                assert not values.get("on"), "etcd refuses that"
                if what == "role" or users.pop(name, None) is None:
                    return Completed(1, b"", f"Error: etcdserver: {what} name not found")
            case ["snapshot", "save", path]:
                self._act("save a snapshot")
                self._save(path, values)
            case _:
                return None
        return _json({})

    def _said_by(self, cluster: int, arguments: Sequence[str], *, without_quorum: bool = False) -> Completed | None:
        found = MigratingHost._said_by(self, cluster, arguments, without_quorum=without_quorum)
        if found is None or arguments != ["endpoint", "status"]:
            return found
        [row] = json.loads(found.stdout)
        row["Status"]["dbSize"] = self._copies.size
        row["Status"]["header"]["revision"] = self.etcd.values[cluster]["revision"]
        return _json([row])

    def _save(self, path: str, values: dict[str, Any]) -> None:
        found = copy.deepcopy(values)
        if self._copies.loses:
            found["keys"].popitem()
        if self._copies.lags:
            self._copies.lags -= 1
            found["revision"] -= 1
            found["keys"].popitem()
        self.files[path] = (json.dumps(found).encode(), 0o600)
