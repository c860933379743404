"""Control nodes in memory whose etcd is lost, recovered or restored: what `recover.sh`, the standby's script and
`etcdctl` do there, on files, and the members that their kubelets and agents run.

Contract: the steps of `recover.sh` change what they change on a real host (test_recover_script.py in
tests/unit/phases/recovery, tests/contract/etcd/test_log_of_a_member.py), and so do fencing and releasing
(tests/unit/control/slots/test_standby_etcd.py). A member runs where there is a static pod and data; a cluster answers
where a majority of its voters run. A database is JSON: the revision, the keys, and which etcd has led it alone.

`cut` makes the n-th act on any host (from 0) fail: see Cut. Looks are no acts. `acts` has all of them.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from autarky import places
from autarky.control.etcd.decide.lineage import FORMER, former_of
from autarky.control.slots import manifests as standby
from autarky.errors import Unreachable
from autarky.etcd.data import Identity, identity_in
from autarky.model.etcd_members import peer_url
from autarky.model.facts import HostFacts
from autarky.model.files import File
from autarky.phases.migration import looking
from autarky.phases.recovery import state
from autarky.places import ETCD_DATA, ETCD_FENCE, ETCD_FENCED, MANIFESTS
from autarky.ports import Completed
from fakes.etcd_log import Writer, numbers
from fakes.host import FakeHost

LOG, DATABASE = "member/wal/0.wal", "member/snap/db"
LOOKS = ("made", "log", "lone")
"""Steps of `recover.sh` that change nothing."""


class Cut(Enum):
    """What becomes of the command at its n-th act."""

    KILLED = "nothing more comes from it: each later look and act fails"
    LOST = "the connection breaks just before it: the command sees that, and goes on with other hosts"
    UNANSWERED = "it is done, and the connection breaks before its answer"


@dataclass
class RecoveringEtcd:
    """All members. voters: of each cluster, by name; learners: those without a vote; values: what each cluster has."""

    hosts: dict[str, RecoveringHost] = field(default_factory=dict)
    voters: dict[int, dict[str, int]] = field(default_factory=dict)
    learners: dict[int, dict[str, int]] = field(default_factory=dict)
    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    leader: str = "n1"
    hosted: bool = True
    """Whether agents look after members."""
    acts: list[str] = field(default_factory=list)
    cut: int | None = None
    how: Cut = Cut.KILLED
    is_cut: bool = False
    boots: tuple[int, str] | None = None
    """After which act the power of which host fails for a moment."""
    stays_off: bool = False
    """Whether that host comes back only when the command has ended."""
    _ids: int = 1000

    def new_id(self) -> int:
        """Of a member: none comes back."""
        self._ids += 1
        return self._ids

    def of(self, facts: Mapping[str, HostFacts]) -> dict[str, RecoveringHost]:
        self.hosts = {name: RecoveringHost(name, found, etcd=self) for name, found in facts.items()}
        return self.hosts

    def on_again(self) -> None:
        """A person starts another command."""
        self.cut, self.is_cut, self.acts, self.boots = None, False, [], None

    # --- what runs ---

    def running(self, cluster: int) -> set[str]:
        return {name for name, host in self.hosts.items() if host.runs == cluster}

    def serving(self) -> list[int]:
        """Clusters that have a quorum: never more than one."""
        self.settle()
        found = [
            cluster
            for cluster, voters in self.voters.items()
            if 2 * len(self.running(cluster) & set(voters)) > len(voters)
        ]
        assert len(found) <= 1, f"two clusters serve: {[f'{one:x}' for one in found]}"
        return found

    def settle(self) -> None:
        """What kubelets and agents do meanwhile."""
        for name, host in self.hosts.items():
            if host.off:
                continue
            host.process = host.process or host.starts
            found = host.identity()
            if host.pods and found is None:
                self._first_start(name, host)
            elif found is not None and host.pods and found.cluster not in self.values:
                self.values[found.cluster] = json.loads(host.files[f"{ETCD_DATA}/{DATABASE}"][0])
                self.voters[found.cluster] = {name: found.member}

    def _first_start(self, name: str, host: RecoveringHost) -> None:
        for cluster, learners in self.learners.items():
            if name in learners:
                host.has_data(cluster, learners[name], self.values[cluster])

    def agents_look(self) -> None:
        """A member of a former cluster leaves, and joins the one that serves."""
        for cluster in self.serving() if self.hosted else ():
            former = former_of(self.values[cluster]["keys"].get(FORMER))
            for name, host in self.hosts.items():
                found = host.identity()
                if host.off or ETCD_FENCE in host.files or (found is not None and found.cluster not in former):
                    continue
                host.take_away_pods()
                host.process = False
                host.rename(f"{ETCD_DATA}/member", f"{ETCD_DATA}/kept.by-agent")
                self.voters[cluster][name] = member = self.new_id()
                host.has_data(cluster, member, self.values[cluster])
                host.notes(cluster)
                host.files[f"{MANIFESTS}/etcd-agent.json"] = (b'{"by": "agent"}', 0o600)
                host.process = True

    # --- acts ---

    def act(self, host: str, what: str) -> None:
        number = len(self.acts)
        if self.boots is not None and number == self.boots[0] + 1:
            self._power_cut(self.hosts[self.boots[1]])
        self.acts.append(f"{host}: {what}")
        if number == self.cut and self.how is not Cut.UNANSWERED:
            self.is_cut = True
            raise Unreachable(f"{host} did not answer")

    def _power_cut(self, host: RecoveringHost) -> None:
        if self.stays_off:
            host.off, host.process = True, False
        else:
            host.boot()

    def answered(self, host: str) -> None:
        """After an act, or a look."""
        if self.cut is not None and len(self.acts) > self.cut and self.how is Cut.UNANSWERED and not self.is_cut:
            self.is_cut = True
            raise Unreachable(f"{host} did not answer")


@dataclass
class RecoveringHost(FakeHost):
    """off: its machine is. cut_off: it runs, and does not answer to us. no_route: nor do other hosts reach its member.
    fails: step or program → what it says when it fails. free: bytes."""

    etcd: RecoveringEtcd = field(kw_only=True)
    off: bool = False
    cut_off: bool = False
    no_route: bool = False
    process: bool = False
    processes_beside: list[str] = field(default_factory=list)
    """The directories of further members that run here."""
    fails: dict[str, str] = field(default_factory=dict)
    free: int = 10**12
    dialled: frozenset[str] = frozenset()
    """What its API servers use as etcd, where a command asks that."""
    restarted: list[str] = field(default_factory=list)
    made_with: str = ""
    """The version of the etcd of the last step; empty where it says none."""

    # --- for tests ---

    @property
    def pods(self) -> list[bytes]:
        return [content for path, (content, _) in sorted(self.files.items()) if path.startswith(f"{MANIFESTS}/etcd-")]

    @property
    def starts(self) -> bool:
        """Whether a kubelet gets a member to run: an older minor than has written its data does not."""
        database = self.files.get(f"{ETCD_DATA}/{DATABASE}")
        wrote = "" if database is None else json.loads(database[0]).get("etcd", "")
        return bool(self.pods) and (not wrote or _minor_of_pod(self.pods[-1]) >= _minor(wrote))

    @property
    def runs(self) -> int | None:
        """The cluster whose member runs here."""
        found = self.identity()
        return found.cluster if self.process and not self.off and found is not None else None

    def identity(self, data: str = ETCD_DATA) -> Identity | None:
        found = self.files.get(f"{data}/{LOG}")
        with suppress(ValueError):
            return None if found is None else identity_in(found[0])
        return None

    def has_data(
        self, cluster: int, member: int, values: Mapping[str, Any], *, entries: int = 5, term: int = 1, commits: int = 0
    ) -> None:
        """commits: how many of the last entries are not marked as committed."""
        log = Writer(owner=numbers(member, cluster))
        for index in range(1, entries + 1):
            log.entry(term, index)
        log.state(term, entries - commits)
        self.files[f"{ETCD_DATA}/{LOG}"] = (bytes(log.content), 0o600)
        self.files[f"{ETCD_DATA}/{DATABASE}"] = (json.dumps(values).encode(), 0o600)

    def notes(self, cluster: int) -> None:
        """Its agent, which looks every half minute, whose data is here."""
        self.files[places.ETCD_CLUSTER] = (f"{cluster:x}\n".encode(), 0o600)

    def boot(self) -> None:
        """After a power cut: before the kubelet starts nothing of etcd runs on a fenced host; soon after it, the member
        leaves an etcd of which another one says that it has replaced it."""
        self.off = self.process = False
        self._take_fenced_pods_away()
        noted = self.files.get(places.ETCD_CLUSTER, (b"", 0))[0].decode().strip()
        said = [former_of(self.etcd.values[one]["keys"].get(FORMER)) for one in self.etcd.serving()]
        if noted and any(int(noted, 16) in one for one in said):
            self.take_away_pods()
            self.process = False

    def take_away_pods(self) -> None:
        for path in [path for path in self.files if path.startswith(f"{MANIFESTS}/etcd-")]:
            del self.files[path]

    def rename(self, old: str, new: str) -> None:
        for path in self._below(old):
            self.files[new + path.removeprefix(old)] = self.files.pop(path)

    def _below(self, directory: str) -> list[str]:
        return [path for path in self.files if path.startswith(f"{directory}/")]

    def left(self) -> set[str]:
        """The names below the data directory."""
        return {path.removeprefix(f"{ETCD_DATA}/").partition("/")[0] for path in self._below(ETCD_DATA)}

    # --- ports.Host ---

    def _there(self) -> None:
        if self.off or self.cut_off or (self.etcd.is_cut and self.etcd.how is Cut.KILLED):
            raise Unreachable(f"{self.name} does not answer")

    def _act(self, what: str) -> None:
        self.etcd.act(self.name, what)
        FakeHost._act(self, what)

    async def facts(self) -> HostFacts:
        self._there()
        return await FakeHost.facts(self)

    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        self._there()
        return await FakeHost.read(self, path, most=most)

    async def write_files(self, files: Sequence[File]) -> None:
        self._there()
        await FakeHost.write_files(self, files)
        self.etcd.answered(self.name)

    async def remove(self, paths: Sequence[str]) -> None:
        self._there()
        await FakeHost.remove(self, paths)
        self.etcd.answered(self.name)

    async def push(self, source: Path, path: str, *, mode: int) -> None:
        self._there()
        await FakeHost.push(self, source, path, mode=mode)
        self.etcd.answered(self.name)

    async def pull(self, path: str, target: Path, progress: Callable[[float], None] | None = None) -> None:
        self._there()
        await FakeHost.pull(self, path, target, progress)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        self._there()
        done = await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)
        self.etcd.answered(self.name)
        return done

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        match argv:
            case ["bash", "-c", looking.SCRIPT, "look", "dialled"]:
                return _said("\n".join(sorted(self.dialled)))
            case ["bash", "-c", state.SCRIPT, "recover", "with", etcd, etcdutl, step, *arguments]:
                assert {etcd, etcdutl} <= self.files.keys(), "programs that are not there"
                done = self._step(step, arguments, stdin, etcd)
            case ["bash", "-c", state.SCRIPT, "recover", step, *arguments]:
                done = self._step(step, arguments, stdin)
            case ["bash", "-c", script, "bash", *directories] if "kill -KILL" in script:
                done = self._kill(directories)
            case [standby.SCRIPT_PATH, ("fence-etcd" | "release-etcd") as verb]:
                done = self._fencing(verb)
            case ["rm", "-rf", *directories]:
                done = self._remove_all(directories)
            case [program, *_] if program == f"{places.BIN}/etcdctl":
                done = self._etcdctl(argv)
            case _:
                done = FakeHost._completed(self, argv, stdin)
        return done

    # --- the standby's script, and processes ---

    def _fencing(self, verb: str) -> Completed:
        self._act(verb)
        if verb in self.fails:
            return Completed(1, b"", self.fails[verb])
        if verb == "fence-etcd":
            self._take_fenced_pods_away()
            return _said()
        if ETCD_FENCE in self.files and ETCD_FENCED in self.files:
            name = json.loads(self.files[ETCD_FENCED][0])["metadata"]["name"]
            self.files[f"{MANIFESTS}/{name}.json"] = self.files[ETCD_FENCED]
            self.process = self.starts
        for path in (ETCD_FENCE, ETCD_FENCED):
            self.files.pop(path, None)
        return _said()

    def _take_fenced_pods_away(self) -> None:
        if ETCD_FENCE in self.files and self.pods:
            self.files[ETCD_FENCED] = (self.pods[-1], 0o600)
            self.take_away_pods()

    def _kill(self, directories: Sequence[str]) -> Completed:
        beside = [one for one in self.processes_beside if one in directories]
        for one in beside:
            self._act(f"kill etcd in {one}")
            self.processes_beside.remove(one)
        if not self.process:
            return Completed(0 if beside else 1, b"", "")
        self._act("kill etcd")
        self.process = self.starts
        return _said()

    def _remove_all(self, directories: Sequence[str]) -> Completed:
        for directory in directories:
            if not directory.startswith((f"{places.HOST_ROOT}/scratch", f"{places.RUN}/")):
                self._act(f"rm -rf {directory}")
            self.files.pop(directory, None)
            for path in self._below(directory):
                del self.files[path]
        return _said()

    # --- recover.sh ---

    def _step(self, step: str, arguments: Sequence[str], stdin: bytes, etcd: str = f"{places.BIN}/etcd") -> Completed:
        """etcd: the program that it uses."""
        self.made_with = self._etcds_version(etcd)
        if step in self.fails:
            if step not in LOOKS:
                self._act(step)
            return Completed(1, b"", self.fails[step])
        done: Completed = getattr(self, f"_{step}_step")(arguments, stdin)
        return done

    def _made_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        lines = []
        for path in [
            path for path in self.files if path.startswith(f"{ETCD_DATA}/recovery.") and path.endswith("/ready")
        ]:
            work = path.removesuffix("/ready")
            word = "made" if self._below(f"{work}/new/member") and f"{work}/kept" not in self.files else "placed"
            lines.append(f"{word} {work.partition('recovery.')[2]}")
        return _said(*lines)

    def _log_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        data, scratch = arguments
        lines = []
        if f"{data}/{LOG}" in self.files:
            self.files[f"{scratch}/0.wal.gz"] = (gzip.compress(self.files[f"{data}/{LOG}"][0]), 0o600)
            lines = ["log 0.wal", f"size {len(self.files[f'{data}/{DATABASE}'][0])}"]
        return _said(*lines, f"free {self.free}")

    def _lone_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        [data] = arguments
        found = sorted(name for name in self.left() if name.startswith("kept."))
        noted = [content.decode() for path, (content, _) in self.files.items() if path.endswith("/kept")]
        cut = [name for name in found if f"{data}/{name}" in noted]
        if len(cut or found) != 1 or self._below(f"{data}/member"):
            return _said()
        [kept] = cut or found
        return _said(f"{'cut' if cut else 'aside'} 2026-06-01T00:00:00Z {data}/{kept}")

    def _begin_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        self._act("begin")
        for name in [name for name in self.left() if name.startswith("recovery.")]:
            for path in self._below(f"{ETCD_DATA}/{name}"):
                del self.files[path]
        return _said()

    def _copy_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        self._begin_step(arguments, stdin)
        self._act("copy")
        data, work = arguments
        assert self.process is False or data != ETCD_DATA, "the data of a member that runs is copied"
        for path in self._below(f"{data}/member"):
            self.files[f"{work}/old{path.removeprefix(data)}"] = self.files[path]
        return _said()

    def _append_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        work, offset, length = arguments
        self._act("append")
        assert len(stdin) == int(length)
        log = f"{work}/old/{LOG}"
        self.files[log] = (self.files[log][0][: int(offset)] + stdin, 0o600)
        return _said()

    def _unpack_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        work, snapshot = arguments
        self._act("unpack")
        self.files[f"{work}/old/{DATABASE}"] = self.files.pop(snapshot)
        return _said()

    def _replay_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        """What is replaced is written in spite of any alarm."""
        work, former = arguments
        self._act("replay")
        found = json.loads(self.files[f"{work}/old/{DATABASE}"][0])
        known = former_of(found["keys"].get(FORMER))
        if not former_of(former) <= known:
            ids = sorted(former_of(former) | known)
            keys = {**found["keys"], FORMER: json.dumps([f"{one:x}" for one in ids])}
            found = {**found, "keys": keys, "revision": found["revision"] + 1}
        if self.made_with:
            found = {**found, "etcd": self.made_with}
        self.files[f"{work}/old/{DATABASE}"] = (json.dumps(found).encode(), 0o600)
        return _said(*filter(None, [found["keys"].get(FORMER)]), str(found["revision"]))

    def _make_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        work, name, _, token, bump, snapshot, *_ = arguments
        self._act("make")
        found = json.loads(self.files[f"{work}/{snapshot}" if not snapshot.startswith("/") else snapshot][0])
        cluster = int(sha256(token.encode()).hexdigest()[:12], 16)
        log = Writer(owner=numbers(cluster % 9973 + 1, cluster)).entry(1, 1).state(1, 1)
        new = {**found, "revision": found["revision"] + int(bump), "token": token, "name": name}
        self.files[f"{work}/new/{LOG}"] = (bytes(log.content), 0o600)
        self.files[f"{work}/new/{DATABASE}"] = (json.dumps(new).encode(), 0o600)
        self.files[f"{work}/ready"] = (b"", 0o600)
        return _said()

    def _place_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        data, work, kept = arguments
        self._act("place")
        assert f"{work}/ready" in self.files
        wanted = f"{data}/{kept}" + (f".{work.partition('recovery.')[2]}" if self._below(f"{data}/{kept}") else "")
        noted = self.files.setdefault(f"{work}/kept", (wanted.encode(), 0o600))[0].decode()
        if self._below(f"{work}/new/member"):
            assert (self.pods, self.process) == ([], False), "a member runs on what is moved away"
            self.rename(f"{data}/member", f"{noted}/member")
            self.rename(f"{work}/new/member", f"{data}/member")
        return _said(noted) if self._below(f"{noted}/member") else _said()

    def _aside_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        data, kept = arguments
        self._act("aside")
        self.rename(f"{data}/member", f"{kept}/member")
        self.process = False
        return _said()

    def _restart_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        self._act(f"restart {' '.join(arguments)}")
        return _said()

    def _keys_step(self, arguments: Sequence[str], stdin: bytes) -> Completed:
        cluster = self._answering()
        if cluster is None:
            return Completed(1, b"", "connection refused")
        keys = [
            {"key": base64.b64encode(key.encode()).decode(), "create_revision": 1, "mod_revision": 1}
            for key in self.etcd.values[cluster]["keys"]
        ]
        self.files[f"{arguments[0]}/keys.gz"] = (gzip.compress(json.dumps({"kvs": keys}).encode()), 0o600)
        return _said()

    # --- etcdctl ---

    def _answering(self) -> int | None:
        """The cluster of this host's own member, if that has a quorum."""
        return self.runs if self.runs in self.etcd.serving() and self.runs is not None else None

    def _etcdctl(self, argv: Sequence[str]) -> Completed:
        self.etcd.agents_look()
        member, arguments = self._asked(argv[1]), argv[6:-1]
        cluster = None if member is None else member._answering()
        if member is not None and member.runs is not None and cluster is None and arguments == ["endpoint", "status"]:
            return self._said_by(member.runs, arguments, without_quorum=True) or _said()
        if cluster is None:
            return Completed(1, b"", "Error: context deadline exceeded")
        found = self._said_by(cluster, arguments)
        return self._changed(cluster, arguments) if found is None else found

    def _asked(self, option: str) -> RecoveringHost | None:
        """The one whose member is meant: this host's own, or one by its address; None where it cannot be reached."""
        address = option.removeprefix("--endpoints=https://").removesuffix(":2379")
        if address in ("127.0.0.1", self.host_facts.address):
            return self
        found = [one for one in self.etcd.hosts.values() if one.host_facts.address == address]
        return next((one for one in found if not one.no_route), None)

    def _said_by(self, cluster: int, arguments: Sequence[str], *, without_quorum: bool = False) -> Completed | None:
        """None: this is no question."""
        values, voters = self.etcd.values[cluster], self.etcd.voters[cluster]
        learners = self.etcd.learners.get(cluster, {})
        match arguments:
            case ["member", "list", _]:
                rows = [self._row(name, one, name in learners) for name, one in {**voters, **learners}.items()]
                return _json({"header": {"cluster_id": cluster}, "members": rows})
            case ["endpoint", "status"]:
                leader = 0 if without_quorum else voters.get(self.etcd.leader, 0)
                status = {"header": {"member_id": 1, "cluster_id": cluster}, "leader": leader}
                return _json([{"Status": status}])
            case ["get", "revision-of-the-store", "--keys-only"]:
                return _json({"header": {"revision": values["revision"]}})
            case ["get", key]:
                found = values["keys"].get(key)
                kvs = [] if found is None else [{"value": base64.b64encode(found.encode()).decode()}]
                return _json({"kvs": kvs})
        return None

    def _changed(self, cluster: int, arguments: Sequence[str]) -> Completed:
        values, voters = self.etcd.values[cluster], self.etcd.voters[cluster]
        learners = self.etcd.learners.setdefault(cluster, {})
        match arguments:
            case ["put", *_] if "put" in self.fails:
                return Completed(1, b"", f"Error: {self.fails['put']}")
            case ["put", key, value]:
                self._act(f"put {key}")
                values["keys"][key] = value
                values["revision"] += 1
            case ["move-leader", _] if "move-leader" in self.fails:
                return Completed(1, b"", f"Error: {self.fails['move-leader']}")
            case ["move-leader", member]:
                self._act("move the leadership")
                heir = next(name for name, one in voters.items() if one == int(member, 16))
                self.etcd.hosts[heir].has_data(cluster, voters[heir], values)  # no other one is elected
                self.etcd.leader = heir
            case ["member", "add", _, "--learner", url]:
                self._act("add a learner")
                address = url.removeprefix("--peer-urls=")
                name = next(n for n, host in self.etcd.hosts.items() if peer_url(host.host_facts.address) == address)
                learners[name] = self.etcd.new_id()
            case ["member", "promote", member]:
                self._act("promote")
                self.etcd.settle()
                name = next((name for name, one in learners.items() if one == int(member, 16)), "")
                if name not in self.etcd.running(cluster):
                    return Completed(1, b"", "Error: can only promote a learner member which is in sync with leader")
                voters[name] = learners.pop(name)
            case _:
                raise AssertionError(f"the fake etcd does not know {arguments}")
        return _json({})

    def _row(self, name: str, member: int, learner: bool) -> dict[str, Any]:
        address = self.etcd.hosts[name].host_facts.address
        urls = {"peerURLs": [peer_url(address)], "clientURLs": [f"https://{address}:2379"]}
        return {"ID": member, "name": name, **urls, "isLearner": learner}


def _said(*lines: str) -> Completed:
    return Completed(0, "\n".join(lines).encode(), "")


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def _minor_of_pod(pod: bytes) -> tuple[int, ...]:
    """Of its image; of one that an agent has written, any."""
    found = re.search(rb'"image": *"[^"]*:([0-9]+\.[0-9]+)\.', pod)
    return (99,) if found is None else _minor(found[1].decode())


def _json(found: object) -> Completed:
    return Completed(0, json.dumps(found).encode(), "")
