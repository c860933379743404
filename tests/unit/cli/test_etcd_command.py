"""`autarky etcd`: what it prints of members and asks etcd for, with hosts in memory whose `etcdctl` answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.cli import etcd as command
from autarky.cli.main import main
from autarky.etcd import tools
from autarky.ports import Completed
from autarky.upkeep.etcd import Etcd
from fakes.clock import LoopClock
from fakes.host import FakeHost

MIB = 1024 * 1024
SNAPSHOT = b"all keys"


@dataclass
class Member:
    """figures: term, applied, size, size in use, quota."""

    id: int
    figures: tuple[int, int, int, int, int]
    version: str = "3.6.16"
    learner: bool = False
    silent: bool = False

    def status(self, leader: int) -> dict[str, Any]:
        names = ("raftTerm", "raftAppliedIndex", "dbSize", "dbSizeInUse", "dbSizeQuota")
        figures = dict(zip(names, self.figures, strict=True))
        return {
            "header": {"member_id": self.id, "cluster_id": 0xC1},
            "leader": leader,
            "version": self.version,
            **figures,
        }


@dataclass
class World:
    """n2 leads. acts: what was asked of etcd beyond looks, with the member that was asked."""

    members: dict[str, Member]
    leader: int = 0xB2
    alarms: list[tuple[str, int]] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    refuses: str = ""

    def address(self, name: str) -> str:
        return f"192.0.2.1{name[1:]}"

    @property
    def quorum(self) -> bool:
        voters = [one for one in self.members.values() if not one.learner]
        return 2 * len([one for one in voters if not one.silent]) > len(voters)

    def asked(self, host: str, endpoint: str) -> str:
        return next((name for name in self.members if self.address(name) in endpoint), host)


@dataclass
class MemberHost(FakeHost):
    world: World = field(kw_only=True)

    def _completed(self, argv: list[str], stdin: bytes) -> Completed:
        match argv:
            case [program, endpoint, _, _, _, _, *arguments, "--write-out=json"] if program.endswith("/etcdctl"):
                return self._etcdctl(self.world.asked(self.name, endpoint), arguments)
            case [program, "snapshot", "status", path, "-w", "json"] if program.endswith("/etcdutl"):
                size = len(self.files[path][0])
                return _json(
                    {"hash": 0xAB12, "revision": 4711, "totalKey": 1234, "totalSize": size, "version": "3.6.0"}
                )
            case ["sh", "-c", tools._VERIFY, "sh", path]:
                return Completed(0 if self.files[path][0] == SNAPSHOT else 1, b"", "its hash is wrong")
        return FakeHost._completed(self, argv, stdin)

    def _etcdctl(self, name: str, arguments: Sequence[str]) -> Completed:
        world = self.world
        by_quorum = arguments[:2] != ["endpoint", "status"] and "--consistency=s" not in arguments
        if world.members[name].silent or (by_quorum and not world.quorum):
            return Completed(1, b"", "Error: context deadline exceeded")
        found = self._looked(name, arguments)
        return self._done(name, arguments) if found is None else _json(found)

    def _looked(self, name: str, arguments: Sequence[str]) -> object:
        """None: this is no look."""
        world = self.world
        match arguments:
            case ["member", "list", _]:
                return {"header": {"cluster_id": 0xC1}, "members": [self._row(one) for one in world.members]}
            case ["endpoint", "status"]:
                return [{"Status": world.members[name].status(world.leader if world.quorum else 0)}]
            case ["endpoint", "health"]:
                return [{"health": not world.alarms}]
            case ["alarm", "list"]:
                kinds = {"NOSPACE": 1, "CORRUPT": 2}
                return {"alarms": [{"memberID": one, "alarm": kinds[kind]} for kind, one in world.alarms]}
            case ["get", "revision-of-the-store", "--keys-only"]:
                return {"header": {"revision": 5000}}
        return None

    def _done(self, name: str, arguments: Sequence[str]) -> Completed:
        world, member = self.world, self.world.members[name]
        world.acts.append(f"{name}: {' '.join(arguments)}")
        if world.refuses:
            return Completed(1, b"", f"Error: {world.refuses}")
        match arguments:
            case ["alarm", "disarm"]:
                world.alarms.clear()
            case ["defrag"]:
                term, applied, _, in_use, quota = member.figures
                member.figures = (term, applied, in_use, in_use, quota)
            case ["move-leader", target]:
                world.leader = int(target, 16)
            case ["snapshot", "save", path]:
                self.files[path] = (SNAPSHOT, 0o600)
        return _json({})

    def _row(self, name: str) -> dict[str, Any]:
        member, address = self.world.members[name], self.world.address(name)
        urls = {"peerURLs": [f"https://{address}:2380"], "clientURLs": [f"https://{address}:2379"]}
        return {"ID": member.id, "name": name, **urls, "isLearner": member.learner}


def _json(found: object) -> Completed:
    return Completed(0, json.dumps(found).encode(), "")


@pytest.fixture
def world() -> World:
    return World(
        {
            "n1": Member(0xA1, (7, 81_234, 300 * MIB, 120 * MIB, 2048 * MIB)),
            "n2": Member(0xB2, (7, 81_240, 310 * MIB, 121 * MIB, 2048 * MIB)),
            "n3": Member(0xC3, (7, 81_239, 305 * MIB, 122 * MIB, 2048 * MIB)),
        }
    )


@pytest.fixture(autouse=True)
def hosts(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, MemberHost]:
    found = {name: MemberHost(name, world=world) for name in world.members}

    @asynccontextmanager
    async def of_hosts(*_: object) -> AsyncIterator[Etcd]:
        yield Etcd(found, {name: world.address(name) for name in found}, LoopClock())

    monkeypatch.setattr(command, "_etcd", of_hosts)
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The exit code, and what is on standard output and error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main(["etcd", *map(str, arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return run


# --- looking -----------------------------------------------------------------------------------------


def test_the_table_of_the_status_has_each_figure_below_its_heading(run) -> None:
    code, said, _ = run("status")
    assert code == 0
    assert said == (
        "MEMBER  ID  ROLE    VERSION  TERM  APPLIED       SIZE     IN USE  QUOTA  HEALTH\n"
        "n1      a1  voter   3.6.16      7   81,234  300.0 MiB  120.0 MiB    15%  healthy\n"
        "n2      b2  leader  3.6.16      7   81,240  310.0 MiB  121.0 MiB    15%  healthy\n"
        "n3      c3  voter   3.6.16      7   81,239  305.0 MiB  122.0 MiB    15%  healthy\n"
    )


def test_the_status_shows_what_is_wrong_and_exits_with_1(run, world: World) -> None:
    world.members["n3"].silent = True
    world.members["n4"] = Member(0xD4, (7, 60, 10 * MIB, 9 * MIB, 0), version="3.7.3", learner=True)
    world.alarms = [("NOSPACE", 0xA1), ("CORRUPT", 0xA1)]
    code, said, _ = run("status")
    assert code == 1
    rows = [line.split(maxsplit=3) for line in said.partition("\n\n")[0].splitlines()]
    assert [row[:3] for row in rows[1:]] == [
        ["n1", "a1", "voter"], ["n2", "b2", "leader"], ["n3", "c3", "voter"], ["n4", "d4", "learner"],
    ]  # fmt: skip
    assert rows[1][3].endswith("15%  alarm NOSPACE; alarm CORRUPT")
    assert rows[3][3] == "it does not answer", "of one that says nothing there are no figures"
    assert rows[4][3].split() == ["3.7.3", "7", "60", "10.0", "MiB", "9.0", "MiB", "healthy"]
    for sentence in ("n3: it does not answer", "n1: alarm NOSPACE", "n4 is 81,180 entries behind"):
        assert sentence in said.splitlines()


def test_the_status_as_json_has_numbers_and_is_the_same(run, world: World) -> None:
    world.alarms = [("NOSPACE", 0xA1)]
    code, said, _ = run("status", "-o", "json")
    found = json.loads(said)
    assert code == 1
    assert (found["cluster"], found["quorum"], found["healthy"]) == ("c1", True, False)
    assert found["findings"] == ["n1: alarm NOSPACE"]
    first, second, _ = found["members"]
    assert first == {
        "name": "n1", "address": "192.0.2.11", "id": "a1", "url": "https://192.0.2.11:2379",
        "learner": False, "leads": False, "version": "3.6.16",
        "term": 7, "applied": 81_234, "size": 300 * MIB, "in_use": 120 * MIB, "quota": 2048 * MIB,
        "alarms": ["NOSPACE"], "error": None, "healthy": False,
    }  # fmt: skip
    assert (second["leads"], second["healthy"]) == (True, True)


def test_without_a_quorum_the_status_exits_with_1_and_says_so(run, world: World) -> None:
    for name in ("n1", "n3"):
        world.members[name].silent = True
    code, said, _ = run("status")
    assert code == 1
    assert "etcd has no quorum: nothing can be written, and the API does not answer" in said
    assert json.loads(run("status", "-o", "json")[1])["quorum"] is False


def test_where_nobody_answers_the_nodes_are_named_all_the_same(run, world: World) -> None:
    for member in world.members.values():
        member.silent = True
    code, said, _ = run("members")
    assert code == 0
    assert said.splitlines()[1].split() == ["n1", "192.0.2.11", "unknown", "unknown"]
    assert run("status")[0] == 1


MEMBERS = [
    {"member": "n1", "id": "a1", "address": "192.0.2.11", "role": "voter", "started": "yes"},
    {"member": "n2", "id": "b2", "address": "192.0.2.12", "role": "leader", "started": "yes"},
    {"member": "n3", "id": "c3", "address": "192.0.2.13", "role": "voter", "started": "unknown"},
]


def test_the_members_are_the_same_in_the_table_and_as_json(run, world: World) -> None:
    world.members["n3"].silent = True
    code, said, _ = run("members")
    assert code == 0
    assert said == (
        "MEMBER  ID  ADDRESS     ROLE    STARTED\n"
        "n1      a1  192.0.2.11  voter   yes\n"
        "n2      b2  192.0.2.12  leader  yes\n"
        "n3      c3  192.0.2.13  voter   unknown\n"
    )
    assert json.loads(run("members", "-o", "json")[1]) == MEMBERS


def test_a_list_that_is_not_the_quorums_says_so(run, world: World) -> None:
    for name in ("n1", "n3"):
        world.members[name].silent = True
    _, said, _ = run("members")
    assert said.splitlines()[-1] == "etcd has no quorum: this is what one member remembers, or the file says"


def test_each_alarm_is_a_row(run, world: World) -> None:
    assert run("alarm") == (0, "MEMBER  ALARM\n", "")
    assert json.loads(run("alarm", "-o", "json")[1]) == []
    world.alarms = [("NOSPACE", 0xC3), ("CORRUPT", 0xC3), ("NOSPACE", 0xA1)]
    assert run("alarm")[1] == "MEMBER  ALARM\nn1      NOSPACE\nn3      NOSPACE\nn3      CORRUPT\n"
    assert json.loads(run("alarm", "-o", "json")[1]) == [
        {"member": "n1", "alarm": "NOSPACE"},
        {"member": "n3", "alarm": "NOSPACE"},
        {"member": "n3", "alarm": "CORRUPT"},
    ]
    assert world.acts == []


# --- looking after it ----------------------------------------------------------------------------------

ACTS = pytest.mark.parametrize(
    ("arguments", "acts", "said"),
    [
        (
            ["defrag"],
            ["n1: defrag", "n3: defrag", "n2: defrag"],
            "n2: its database had 325,058,560 bytes, and has 126,877,696",
        ),
        (["defrag", "n3"], ["n3: defrag"], "n3: its database had 319,815,680 bytes, and has 127,926,272"),
        (["compact"], ["n1: compact --physical=true 4000"], "revisions up to 4,000 of 5,000 are forgotten"),
        (["compact", "--keep", "9"], ["n1: compact --physical=true 4991"], "revisions up to 4,991 of 5,000"),
        (["compact", "--keep", "5000"], [], "nothing to forget: the newest revision is 5,000"),
        (["move-leader", "n3"], ["n2: move-leader c3"], "the leadership moved from n2 to n3"),
        (["move-leader", "n2"], [], "n2 leads already"),
        (["alarm", "--disarm"], ["n1: alarm disarm"], "cleared: NOSPACE of n3"),
    ],
)


@ACTS
@pytest.mark.parametrize("output", ["plain", "json"])
def test_what_is_asked_of_etcd_and_what_is_said_of_it(run, world: World, arguments, acts, said, output) -> None:
    world.alarms = [("NOSPACE", 0xC3)] if "--disarm" in arguments else []
    code, out, err = run(*arguments, "-o", output)
    assert code == 0
    assert world.acts == acts
    if output == "plain":
        assert said in out + err
        return
    events = [json.loads(line) for line in out.splitlines()]
    assert [one["kind"] for one in (events[0], events[-1])] == ["operation-started", "operation-ended"]
    assert any(said in str(one.get("text", one)) for one in events if one["kind"] == "note")


def test_where_there_is_no_alarm_none_is_cleared(run, world: World) -> None:
    code, out, err = run("alarm", "--disarm", "-o", "plain")
    assert (code, world.acts) == (0, [])
    assert "there is no alarm" in out + err


@pytest.mark.parametrize(
    "arguments", [["defrag"], ["compact"], ["move-leader", "n2"], ["alarm", "--disarm"], ["snapshot", "SNAPSHOT"]]
)
def test_without_a_quorum_nothing_is_asked_of_etcd(run, world: World, tmp_path: Path, arguments: list[str]) -> None:
    for name in ("n1", "n3"):
        world.members[name].silent = True
    code, _, err = run(*[str(tmp_path / "one") if word == "SNAPSHOT" else word for word in arguments])
    assert code != 0
    assert "etcd has no quorum" in err
    assert world.acts == []


@pytest.mark.parametrize("arguments", [["defrag", "n1", "n9"], ["move-leader", "n9"]])
def test_a_member_that_there_is_not_is_refused_and_the_others_are_named(run, world: World, arguments) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "etcd has no member n9" in err
    assert "n1, n2, n3" in err
    assert world.acts == []


# --- snapshots ----------------------------------------------------------------------------------------


def test_a_snapshot_comes_from_the_follower_that_has_most_and_leaves_nothing_on_its_host(
    run, world: World, hosts: dict[str, MemberHost], tmp_path: Path
) -> None:
    target = tmp_path / "one"
    code, out, err = run("snapshot", target, "-o", "plain")
    assert code == 0
    assert target.read_bytes() == SNAPSHOT
    assert target.stat().st_mode & 0o777 == 0o600, "it has all Secrets"
    assert world.acts == [f"n3: snapshot save {places.HOST_ROOT}/scratch/one.db"]
    assert "1,234 keys, revision 4,711, hash ab12" in out + err
    assert "this is no backup" in err
    assert not [path for path in hosts["n3"].files if "scratch" in path]


def test_a_snapshot_that_fails_leaves_nothing_either(
    run, world: World, hosts: dict[str, MemberHost], tmp_path: Path
) -> None:
    world.refuses = "etcdserver: no space left on device"
    path = f"{places.HOST_ROOT}/scratch/one.db.part"
    hosts["n3"].files[path] = (b"half of it", 0o600)
    code, _, err = run("snapshot", tmp_path / "one")
    assert code != 0
    assert "no space left on device" in err
    assert "this is no backup" not in err
    assert path not in hosts["n3"].files
    assert not (tmp_path / "one").exists()


def test_a_file_is_replaced_only_with_force_and_a_directory_must_be_there(run, world: World, tmp_path: Path) -> None:
    target = tmp_path / "one"
    target.write_text("before")
    code, _, err = run("snapshot", target)
    assert (code, target.read_text(), world.acts) == (2, "before", [])
    assert "--force" in err
    code, _, err = run("snapshot", tmp_path / "none" / "one")
    assert (code, world.acts) == (2, [])
    assert "there is no directory" in err
    assert run("snapshot", target, "--force")[0] == 0
    assert target.read_bytes() == SNAPSHOT
