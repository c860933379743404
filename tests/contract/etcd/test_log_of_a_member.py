"""Real logs of three members that were killed, and a new etcd made of what one of them has, by the script for hosts.

A follower that was cut off from its leader has entries that are not marked as committed. Here its log is written once
more without its last states, which is the log that it has when the leader is lost a moment earlier; its database is the
one of before these entries.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky.control.backup.decide.loss import Written
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.decide.recovery import BUMP, Log, choose
from autarky.errors import CommandFailed, Unreachable
from autarky.etcd import EtcdClient, EtcdTools, MemberStatus
from autarky.etcd.data import identity_in, read_identity
from autarky.etcd.log import End, Newest, commits_all, end_of, fields_of, frames
from autarky.etcd.snapshots import intact, tried
from autarky.etcd.tools import Place
from autarky.hosts import LocalHost
from autarky.phases.recovery import state
from autarky.phases.recovery.comparing import read_keys
from autarky.programs import program
from contract.servers import Member, Server, a_member, etcd_pki, linked_programs, running_member
from fakes.etcd_log import ENTRY, Writer, numbers, varint

WRITES = 10
EARLY, LATE, AFTER = "/registry/configmaps/demo/early", "/registry/configmaps/demo/late", "other/after"
NAMES = ("n1", "n2", "n3")
pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]


@dataclass
class Lost:
    """Three members, all of them killed. early: the third one's database from before the late keys; snapshot: with all
    keys, and keys: what the first member said that it has."""

    directory: Path
    programs: Path
    ca: Path
    members: list[Member]
    statuses: Mapping[str, MemberStatus]
    revision: int
    early: Path
    snapshot: Path
    keys: Mapping[str, Written]

    def data(self, name: str) -> Path:
        return self.directory / name / "data"

    def files(self, name: str) -> list[bytes]:
        return files_in(self.data(name))


def files_in(data: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((data / "member/wal").glob("*.wal"))][-2:]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    directory = tmp_path_factory.mktemp("lost-members")
    pki, members = etcd_pki(directory / "pki"), [a_member(name) for name in NAMES]
    programs = linked_programs(directory / "bin", "etcd", "etcdctl", "etcdutl")
    stacks = [ExitStack() for _ in members]
    servers = [Server(member.client, pki) for member in members]
    place = Place(members[0].client, str(pki.directory / "etcd"), str(programs))
    tools, early = EtcdTools(LocalHost("n1"), place=place), directory / "early.db"

    def start(number: int) -> None:
        one = members[number]
        stacks[number].enter_context(running_member(one, members, pki, directory / one.name))

    # A member ends with the thread that has started it.
    with ThreadPoolExecutor(len(members)) as threads:
        list(threads.map(start, range(3)))
        asyncio.run(written(servers[0], EARLY, "other/key"))
        stacks[2].close()
        shutil.copy(directory / "n3/data/member/snap/db", early)
        threads.submit(start, 2).result()
        asyncio.run(written(servers[0], LATE, f"{EARLY}-0"))
        run("keys", directory / "keys", programs=programs, ca=pki.directory / "etcd/ca.crt", member=members[0].client)
        asyncio.run(tools.save_snapshot(str(directory / "snapshot.db"), timeout=30))
        asyncio.run(written(servers[0], AFTER))
        statuses = asyncio.run(tools.statuses(one.client for one in members))
        revision = asyncio.run(tools.revision())
        for stack in stacks:
            stack.close()
    return Lost(
        directory,
        programs,
        pki.directory / "etcd/ca.crt",
        members,
        {one.name: statuses[one.client] for one in members},
        revision,
        early,
        directory / "snapshot.db",
        read_keys(gzip.decompress((directory / "keys/keys.gz").read_bytes())),
    )


async def written(server: Server, prefix: str, *others: str) -> None:
    etcd = server.etcd()
    for key in (*(f"{prefix}-{number}" for number in range(WRITES)), *others):
        await etcd.put(key.encode(), b"x" * 100)
    await etcd.close()


def run(
    *arguments: object,
    programs: Path,
    ca: Path,
    member: str = "https://127.0.0.1:1",
    stdin: bytes = b"",
    status: int = 0,
) -> list[str]:
    """A step of the script; the lines that it prints, or what it says where it fails."""
    values = {"bin": programs, "member": member, "ca": ca, "peer_ca": "member/peer-ca.crt", "former_key": FORMER}
    argv = ["bash", "-c", program(state.__file__, "recover.sh", **values), "recover", *map(str, arguments)]
    done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=120)
    assert done.returncode == status, done.stderr.decode()
    return (done.stderr if status else done.stdout).decode().splitlines()


# --- the end of a log ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_log_of_a_member_that_was_killed_ends_where_the_member_said_it_was(lost: Lost, name: str) -> None:
    status, found = lost.statuses[name], end_of(lost.files(name))
    assert found.newest == Newest(status.raft_term, status.raft_index)
    assert (found.damaged, found.lost) == (0, 0)
    identity = identity_in(lost.files(name)[-1])
    assert identity == read_identity(lost.data(name))
    assert (identity.member, identity.cluster) == (status.member, status.cluster)


def test_a_log_that_the_tests_write_is_etcds_own_byte_for_byte(lost: Lost) -> None:
    [content] = lost.files("n3")
    found = end_of([content])
    assert bytes(log_of(records(content)).content) == content[: found.offset]


def records(content: bytes) -> list[tuple[int, bytes]]:
    """Kind and data of each."""
    found = [fields_of(record) for record, _ in frames(content)]
    return [(int(one[1]), bytes(one.get(3, b""))) for one in found]


def log_of(found: Sequence[tuple[int, bytes]]) -> Writer:
    """The first two begin each file."""
    written = Writer(owner=found[1][1])
    for kind, data in found[2:]:
        written.add(kind, data)
    return written


def unmarked(content: bytes, *, term: int | None = None) -> bytes:
    """The log without the states that mark its late entries as committed. term: theirs, where it is another one."""
    found = records(content)
    late = next(number for number, (kind, data) in enumerate(found) if kind == ENTRY and LATE.encode() in data)
    entries = [data for kind, data in found[late:] if kind == ENTRY]
    entries = entries if term is None else [_of_term(one, term) for one in entries]
    return bytes(log_of([*found[:late], *((ENTRY, one) for one in entries)]).content)


def _of_term(entry: bytes, term: int) -> bytes:
    fields = fields_of(entry)
    data = bytes(fields[4])
    return numbers(int(fields.get(1, 0)), term, int(fields[3])) + b"\x22" + varint(len(data)) + data


def data_of_n3(lost: Lost, directory: Path, content: bytes) -> Path:
    """What is left of it where it had this log, and had not applied its late entries."""
    data = directory / "data"
    (data / "member/wal").mkdir(parents=True)
    (data / "member/snap").mkdir()
    shutil.copy(lost.early, data / "member/snap/db")
    [log] = (lost.data("n3") / "member/wal").glob("*.wal")
    (data / "member/wal" / log.name).write_bytes(content + bytes(1 << 20))
    return data


# --- the script ---------------------------------------------------------------------------------------------------


@dataclass
class Steps:
    """Of a recovery on the host whose data this is."""

    lost: Lost
    data: Path

    @property
    def work(self) -> Path:
        return self.data / "recovery.abc"

    def run(self, *arguments: object, stdin: bytes = b"", status: int = 0) -> list[str]:
        return run(*arguments, programs=self.lost.programs, ca=self.lost.ca, stdin=stdin, status=status)

    def end(self) -> End:
        """Of the copied log, as `log` shows it."""
        scratch = self.data.parent / "scratch"
        lines = [line.split() for line in self.run("log", self.work / "old", scratch)]
        files = [gzip.decompress((scratch / f"{words[1]}.gz").read_bytes()) for words in lines if words[0] == "log"]
        assert files == files_in(self.work / "old")
        assert {words[0] for words in lines} == {"log", "size", "free"}
        return end_of(files)

    def copied(self, *, commits: bool = True) -> int:
        """The revision of a copy that was brought up to date."""
        self.run("copy", self.data, self.work)
        end = self.end()
        if commits:
            record = commits_all(end)
            self.run("append", self.work, end.offset, len(record), stdin=record)
        return int(self.run("replay", self.work, "[]")[-1])

    def make(self, url: str, bump: int, snapshot: str = "old/member/snap/db", status: int = 0) -> list[str]:
        arguments = (self.work, "n3", url, "demo-abc", bump, snapshot, "--skip-hash-check")
        return self.run("make", *arguments, status=status)

    def place(self, kept: str = "kept.1") -> list[Path]:
        """Where the old data is; empty where there was none."""
        return [Path(line) for line in self.run("place", self.data, self.work, kept)]

    def served(self, member: Member) -> Served:
        """By an etcd that is started from the data as it is."""
        pki = etcd_pki(self.lost.ca.parents[1])
        with running_member(member, [member], pki, self.data.parent) as server:
            place = Place(member.client, str(self.lost.ca.parent), str(self.lost.programs))
            return asyncio.run(_asked(server, EtcdTools(LocalHost("n3"), place=place)))


@dataclass
class Served:
    """refused: what etcd says to who asks for what was before."""

    cluster: int
    members: list[str]
    revision: int
    keys: set[str]
    refused: str


async def _asked(server: Server, tools: EtcdTools) -> Served:
    etcd = server.etcd()
    try:
        listed = await tools.membership()
        keys = {one async for one in _keys(etcd)}
        revision = await tools.revision()
        with pytest.raises(CommandFailed) as refused:
            await tools.compact(revision - 1, timeout=30)
        return Served(listed.cluster, [one.name for one in listed.members], revision, keys, str(refused.value))
    finally:
        await etcd.close()


async def _keys(etcd: EtcdClient) -> AsyncIterator[str]:
    for prefix in (EARLY, LATE, AFTER):
        for number in range(WRITES):
            if await etcd.get(f"{prefix}-{number}".encode()) is not None:
                yield f"{prefix}-{number}"


def all_of(*prefixes: str) -> set[str]:
    return {f"{prefix}-{number}" for prefix in prefixes for number in range(WRITES)}


@pytest.fixture
def steps(lost: Lost, tmp_path: Path) -> Steps:
    """The third member, with late entries that nothing marks as committed."""
    [content] = lost.files("n3")
    return Steps(lost, data_of_n3(lost, tmp_path, unmarked(content)))


def test_etcd_forced_to_go_on_alone_drops_what_is_not_marked_as_committed(steps: Steps) -> None:
    """Why there is a record that marks it: these writes had been acknowledged."""
    [content] = steps.lost.files("n3")
    assert end_of([unmarked(content)]).newest == end_of([content]).newest
    assert not end_of([unmarked(content)]).committed
    assert steps.copied(commits=False) == steps.lost.revision - 2 * WRITES - 1


def test_with_the_record_nothing_that_was_acknowledged_is_lost_and_a_new_etcd_has_it(steps: Steps) -> None:
    before = contents(steps.data)
    assert steps.copied() == steps.lost.revision
    assert steps.run("made", steps.data) == []
    assert {path: content for path, content in contents(steps.data).items() if "recovery." not in path} == before
    member = a_member("n3")
    steps.make(member.peer, BUMP)
    assert steps.run("made", steps.data) == ["made abc"]
    [kept] = steps.place()
    assert steps.run("made", steps.data) == ["placed abc"]
    assert (steps.data / "member/peer-ca.crt").read_bytes() == steps.lost.ca.read_bytes()
    assert (steps.data / "member").stat().st_mode & 0o777 == 0o700
    found = steps.served(member)
    assert found.keys == all_of(EARLY, LATE, AFTER)
    assert found.members == ["n3"]
    assert found.revision == steps.lost.revision + BUMP
    assert "has been compacted" in found.refused, "who resumes a watch must list everything again"
    former = read_identity(kept)
    assert former == read_identity(steps.lost.data("n3"))
    assert found.cluster not in (former.cluster, 0)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_entries_of_a_term_whose_state_was_not_written_any_more_are_kept_too(lost: Lost, tmp_path: Path) -> None:
    """A member writes the first entries of a new leader, then its own state with the new term: the power went between
    the two."""
    [content] = lost.files("n3")
    steps = Steps(lost, data_of_n3(lost, tmp_path, unmarked(content, term=40)))
    assert steps.copied() == lost.revision


@pytest.mark.parametrize("length", [20, 190])
@pytest.mark.parametrize("committed", [False, True])
def test_a_torn_record_at_the_end_is_passed_over(lost: Lost, tmp_path: Path, committed: bool, length: int) -> None:
    """The record that commits everything goes there, also where everything is committed: etcd refuses a log that ends
    with a record of which less than a sector is missing."""
    [content] = lost.files("n3")
    found = end_of([content])
    before = unmarked(content) if not committed else content[: found.offset] + commits_all(found)
    index = found.newest.index + 1
    next_ = Writer(end_of([before]).checksum)
    torn = bytes(next_.entry(found.newest.term, index, b"x" * 180).content)[next_.starts[-1] :][:length]
    steps = Steps(lost, data_of_n3(lost, tmp_path, before + torn))
    steps.run("copy", steps.data, steps.work)
    assert steps.end().committed == committed
    assert steps.copied() == lost.revision


def entry_with(content: bytes, key: str) -> tuple[int, int]:
    """(where the record of that entry begins, the entry's number)."""
    start = 0
    for record, behind in frames(content):
        data = bytes(fields_of(record).get(3, b""))
        if fields_of(record)[1] == ENTRY and f"{key}\x12".encode() in data:
            return start, int(fields_of(data)[3])
        start = behind
    raise AssertionError(f"there is no {key}")


def test_a_flipped_bit_is_no_torn_end_and_what_is_behind_it_is_counted(lost: Lost, tmp_path: Path) -> None:
    """All of it had been synced, and acknowledged. etcd itself refuses such a log; without what is behind the bit it
    goes on from before."""
    [content] = lost.files("n3")
    start, number = entry_with(content, f"{LATE}-3")
    flipped = bytearray(content)
    flipped[start + 60] ^= 1
    intact, found = end_of([content]), end_of([bytes(flipped)])
    assert (found.newest.index, found.offset) == (number - 1, start)
    assert found.damaged > 0
    assert found.lost == intact.newest.index - number + 1
    steps = Steps(lost, data_of_n3(lost, tmp_path, bytes(flipped)))
    steps.run("copy", steps.data, steps.work)
    assert "crc" in " ".join(steps.run("replay", steps.work, "[]", status=1)).lower()
    assert steps.end() == found
    # Each entry that is lost here is one write, but for what is not in the store.
    assert lost.revision - found.lost <= steps.copied() < lost.revision - WRITES


def test_a_torn_end_is_no_damage(lost: Lost, tmp_path: Path) -> None:
    """The last batch, of which a sector was not written. etcd passes it over, too."""
    [content] = lost.files("n3")
    found = end_of([content])
    before = content[: found.offset]
    next_ = Writer(found.checksum)
    for number in (1, 2):
        next_.entry(found.newest.term, found.newest.index + number, b"x" * 2000)
    batch = bytearray(before + bytes(next_.content)[next_.starts[2] :])
    sector = (len(before) // 512 + 2) * 512
    batch[sector : sector + 512] = bytes(512)
    torn = end_of([bytes(batch)])
    assert (torn.newest, torn.damaged, torn.offset) == (found.newest, 0, found.offset)
    steps = Steps(lost, data_of_n3(lost, tmp_path, bytes(batch)))
    assert steps.copied() == lost.revision


def test_of_three_members_the_one_is_chosen_that_has_everything_that_two_of_them_acknowledged(lost: Lost) -> None:
    """The third one had been cut off before the last writes; without it none was acknowledged by one alone."""
    [content] = lost.files("n3")
    found = records(content)
    after = next(number for number, (kind, data) in enumerate(found) if kind == ENTRY and AFTER.encode() in data)
    ends = {name: end_of(lost.files(name)) for name in ("n1", "n2")} | {
        "n3": end_of([bytes(log_of(found[:after]).content)])
    }
    logs = [Log(name, 7, end.newest.term, end.newest.index) for name, end in ends.items()]
    assert choose(logs).node in ("n1", "n2")
    assert choose([one for one in logs if one.node != "n1"]).node == "n2"


def test_the_same_is_made_of_a_snapshot(lost: Lost, tmp_path: Path) -> None:
    """Which has its hash, which is verified."""
    steps = Steps(lost, tmp_path / "data")
    steps.data.mkdir()
    steps.run("begin", steps.work)
    shutil.copy(lost.snapshot, steps.work / "snapshot.db")
    member = a_member("n3")
    steps.run("make", steps.work, "n3", member.peer, "demo-abc", 1000, "snapshot.db")
    assert steps.place() == []
    found = steps.served(member)
    assert found.keys == all_of(EARLY, LATE)
    assert found.revision == lost.revision - WRITES + 1000


def test_two_recoveries_of_the_same_data_make_clusters_of_other_ids(lost: Lost, tmp_path: Path) -> None:
    """A member of one of them is never taken for a member of the other."""
    ids = set()
    for token in ("demo-abc", "demo-abd"):
        steps = Steps(lost, tmp_path / token)
        steps.data.mkdir()
        steps.run("begin", steps.work)
        shutil.copy(lost.snapshot, steps.work / "snapshot.db")
        steps.run("make", steps.work, "n3", "https://192.0.2.13:2380", token, 1000, "snapshot.db")
        ids.add(read_identity(steps.work / "new").cluster)
    assert len(ids | {lost.statuses["n3"].cluster}) == 3


# --- what does not work out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["absent", "damaged", "cut off"])
def test_data_that_cannot_be_made_is_not_there_and_etcdutl_says_why(steps: Steps, how: str) -> None:
    """Also where some had been made before."""
    steps.run("begin", steps.work)
    shutil.copy(steps.lost.snapshot, steps.work / "snapshot.db")
    argv = (steps.work, "n3", "https://192.0.2.13:2380", "demo-abc", 1000, "snapshot.db")
    steps.run("make", *argv)
    assert steps.run("made", steps.data) == ["made abc"]
    snapshot = steps.work / "snapshot.db"
    content = bytearray(snapshot.read_bytes())
    snapshot.unlink()
    if how != "absent":
        content[5000] ^= 1
        snapshot.write_bytes(content if how == "damaged" else content[:9000])
    said = steps.run("make", *argv, status=1)
    assert "rror" in said[-1]
    assert steps.run("made", steps.data) == []
    assert not (steps.work / "ready").exists()
    steps.run("place", steps.data, steps.work, "kept.1", status=1)
    assert (steps.data / "member/snap/db").exists()
    assert list(steps.data.glob("kept.*")) == []


def test_a_log_that_etcd_cannot_read_is_said_and_no_etcd_is_left(steps: Steps) -> None:
    steps.run("copy", steps.data, steps.work)
    [log] = (steps.work / "old/member/wal").glob("*.wal")
    content = bytearray(log.read_bytes())
    content[20:60] = b"\xff" * 40
    log.write_bytes(content)
    said = steps.run("replay", steps.work, "[]", status=1)
    assert said
    assert servers_of(steps.work) == []


async def test_an_etcd_that_does_not_answer_is_ended_with_the_time_that_it_has(steps: Steps) -> None:
    steps.run("copy", steps.data, steps.work)
    slow = steps.data.parent / "bin"
    slow.mkdir()
    for name, does in (("etcd", "exec sleep 1000"), ("etcdctl", f": >{steps.work}/asked; exit 1")):
        (slow / name).write_text(f"#!/bin/sh\n{does}\n")
        (slow / name).chmod(0o755)
    script = program(state.__file__, "recover.sh", bin=slow, member="", ca="", peer_ca="", former_key="")
    with pytest.raises(Unreachable, match="gave no answer"):
        await LocalHost("n3").run(["bash", "-c", script, "recover", "replay", str(steps.work), "[]"], timeout=1)
    assert (steps.work / "asked").exists()
    assert servers_of(steps.work) == []


def servers_of(directory: Path) -> list[str]:
    """Processes with this working directory."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            if str((one / "cwd").readlink()) == str(directory):
                found.append(one.name)
        except OSError:
            continue
    return found


def test_a_host_without_data_has_no_log(lost: Lost, tmp_path: Path) -> None:
    steps = Steps(lost, tmp_path / "data")
    steps.data.mkdir()
    [line] = steps.run("log", steps.data, tmp_path / "scratch")
    assert line.split()[0] == "free"
    assert int(line.split()[1]) > 0


# --- what there is, for people ------------------------------------------------------------------------------------


async def test_the_keys_of_a_snapshot_are_those_that_the_member_had(lost: Lost, tmp_path: Path) -> None:
    """With the same figures: so what was written since can be seen. Other keys than those of Kubernetes count not."""
    found: dict[str, Written] = {}
    await tried(
        lost.snapshot,
        tmp_path / "tried",
        lost.programs,
        timeout=60,
        listing=lambda path: found.update(read_keys(path.read_bytes())),
    )
    assert intact(lost.snapshot).size > 0
    assert found == lost.keys
    assert found.keys() == all_of(EARLY, LATE)
    assert [key for key, (created, changed) in found.items() if changed > created] == [f"{EARLY}-0"]
    assert max(changed for _, changed in found.values()) == lost.revision - WRITES
