"""The part of a recovery that runs on a host, by bash in a directory of the test's own, with programs of the test's own
in place of etcd's. With the real ones: tests/contract/etcd/test_log_of_a_member.py.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky.phases.recovery import state
from autarky.programs import program

OLD, NEW = b"the old data", b"the new data"
ACTS = ("mv", "sync", "install", "rm", "cp")
PLACING = range(1, 10)
"""The acts of one placing are fewer: the last of these does not come."""


@dataclass
class Seat:
    """A host with the data of a member; the new data is complete."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def work(self) -> Path:
        return self.data / "recovery.abc"

    def run(self, *arguments: object, stdin: bytes = b"", acts: Path | None = None) -> subprocess.CompletedProcess[str]:
        """acts: where other programs are, that go before the system's."""
        values = {"bin": self.root / "bin", "member": "https://127.0.0.1:1", "ca": self.root / "ca.crt"}
        script = program(state.__file__, "recover.sh", peer_ca="member/peer-ca.crt", former_key="former", **values)
        argv = ["bash", "-c", script, "recover", *map(str, arguments)]
        path = os.environ["PATH"] if acts is None else f"{acts}:{os.environ['PATH']}"
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=60, env={"PATH": path})
        return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *arguments: object, stdin: bytes = b"") -> list[str]:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def place(self, kept: str = "kept.1", *, acts: Path | None = None) -> subprocess.CompletedProcess[str]:
        return self.run("place", self.data, self.work, kept, acts=acts)

    def found(self) -> dict[str, bytes]:
        """Where each version of the data is, and with which content."""
        return {str(path.parent.relative_to(self.data)): path.read_bytes() for path in self.data.rglob("db")}

    def program(self, name: str, does: str) -> None:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{does}\n")
        path.chmod(0o755)


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    found = Seat(tmp_path)
    (tmp_path / "ca.crt").write_text("CA")
    for directory, content in ((found.data, OLD), (found.work / "new", NEW)):
        (directory / "member").mkdir(parents=True)
        (directory / "member/db").write_bytes(content)
    (found.work / "ready").touch()
    return found


def acts(seat: Seat, number: int, instead: str) -> Path:
    """Programs of which the one that is called as the n-th does something else."""
    directory, count = seat.root / "acts", seat.root / "count"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    count.write_text("0")
    for name in ACTS:
        text = f"""#!/bin/bash
n=$(($(cat {count}) + 1)); echo $n >{count}
[ $n != {number} ] || {{ {instead}; }}
exec {shutil.which(name)} "$@"
"""
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return directory


# --- the two change places ----------------------------------------------------------------------------------------


def test_the_new_data_gets_the_place_of_the_old_which_is_kept(seat: Seat) -> None:
    assert seat.ok("made", seat.data) == ["made abc"]
    [kept] = seat.ok("place", seat.data, seat.work, "kept.1")
    assert kept == f"{seat.data}/kept.1"
    assert seat.found() == {"member": NEW, "kept.1/member": OLD}
    assert Path(kept).stat().st_mode & 0o777 == 0o700
    assert seat.ok("made", seat.data) == ["placed abc"]


def test_placing_it_twice_is_placing_it_once(seat: Seat) -> None:
    seat.place()
    before = sorted(seat.data.rglob("*"))
    again = seat.place("kept.2")
    assert (again.returncode, again.stdout) == (0, f"{seat.data}/kept.1\n")
    assert sorted(seat.data.rglob("*")) == before
    assert seat.found() == {"member": NEW, "kept.1/member": OLD}


CUTS = {
    "before it": "kill -KILL $PPID; exit 1",
    "after it": '"$(type -aP "${0##*/}" | tail -n 1)" "$@"; kill -KILL $PPID',
    "and fails": "exit 1",
}


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("number", PLACING)
def test_rule_5_a_placing_that_is_cut_anywhere_is_finished_by_the_next_one(seat: Seat, number: int, how: str) -> None:
    """Which comes later, so that it would keep the old data under another name."""
    cut = seat.place(acts=acts(seat, number, CUTS[how]))
    assert (cut.returncode == 0) == (number == PLACING[-1])
    assert sorted(seat.found().values()) == sorted([OLD, NEW])
    is_noted = (seat.work / "kept").exists()
    assert is_noted or seat.found().keys() == {"member", "recovery.abc/new/member"}
    assert seat.ok("made", seat.data) == [f"{'placed' if is_noted else 'made'} abc"]
    done = seat.place("kept.2")
    assert done.returncode == 0
    kept = Path(done.stdout.strip())
    assert seat.found() == {"member": NEW, f"{kept.name}/member": OLD}
    assert len(list(seat.data.glob("kept.*"))) == 1


def test_half_of_a_placing_counts_as_placed_so_that_nobody_takes_it_back(seat: Seat) -> None:
    """Killed between the two moves: with the new data gone, the old would be where nobody looks."""
    stop = '[ "$2" != "' + f"{seat.work}/new/member" + '" ] || { kill -KILL $PPID; exit 1; }'
    directory = seat.root / "acts"
    directory.mkdir()
    (directory / "mv").write_text(f'#!/bin/bash\n{stop}\nexec {shutil.which("mv")} "$@"\n')
    (directory / "mv").chmod(0o755)
    assert seat.place(acts=directory).returncode != 0
    assert seat.found() == {"kept.1/member": OLD, "recovery.abc/new/member": NEW}
    assert seat.ok("made", seat.data) == ["placed abc"]
    assert seat.place("kept.2").returncode == 0
    assert seat.found() == {"member": NEW, "kept.1/member": OLD}


def test_old_data_that_was_moved_aside_is_found_where_nothing_is_in_its_place(seat: Seat) -> None:
    """And it is the only one: of several nobody knows which one is meant. With when it was written last: a member that
    has left months ago has it as well, and so has a node whose only member was changed."""
    log = seat.data / "member/wal/0.wal"
    log.parent.mkdir()
    log.touch()
    os.utime(log, (1_700_000_000, 1_700_000_000))
    assert seat.ok("lone", seat.data) == []
    (seat.data / "kept.change").mkdir()
    (seat.data / "member").rename(seat.data / "kept.change/member")
    assert seat.ok("lone", seat.data) == [f"aside 2023-11-14T22:13:20Z {seat.data}/kept.change"]
    (seat.work / "kept").write_text(f"{seat.data}/kept.1\n")
    assert seat.ok("lone", seat.data) == [f"aside 2023-11-14T22:13:20Z {seat.data}/kept.change"]
    (seat.data / "kept.2/member/wal").mkdir(parents=True)
    assert seat.ok("lone", seat.data) == []
    assert seat.ok("lone", seat.root / "none") == []


def test_it_is_said_whether_a_placing_has_moved_it_there(seat: Seat) -> None:
    """And has gone no further, and what it has made is gone."""
    (seat.data / "member/wal").mkdir()
    seat.place()
    shutil.rmtree(seat.data / "member")
    (seat.work / "ready").unlink()
    [said] = seat.ok("lone", seat.data)
    assert said.startswith("cut ")
    assert said.endswith(f"Z {seat.data}/kept.1")


def test_of_several_it_is_the_one_that_a_placing_has_noted(seat: Seat) -> None:
    """A node on which a change of its only member has kept something has two of them."""
    (seat.data / "member/wal").mkdir()
    (seat.data / "kept.change/member/wal").mkdir(parents=True)
    seat.place()
    shutil.rmtree(seat.data / "member")
    [said] = seat.ok("lone", seat.data)
    assert said.startswith("cut ")
    assert said.endswith(f"Z {seat.data}/kept.1")
    other = seat.data / "recovery.other"
    other.mkdir()
    (other / "kept").write_text(f"{seat.data}/kept.change\n")
    assert seat.ok("lone", seat.data) == [], "two placings were cut"
    for noted in (seat.work / "kept", other / "kept"):
        noted.unlink()
    assert seat.ok("lone", seat.data) == [], "nobody knows which one is meant"


def test_what_an_earlier_recovery_has_kept_is_neither_replaced_nor_in_the_way(seat: Seat) -> None:
    """Within the same second, or by a command that always keeps it under one name."""
    (seat.data / "kept.1/member").mkdir(parents=True)
    (seat.data / "kept.1/member/db").write_bytes(b"from before")
    for _ in range(2):
        assert seat.ok("place", seat.data, seat.work, "kept.1") == [f"{seat.data}/kept.1.abc"]
    assert seat.found() == {"member": NEW, "kept.1/member": b"from before", "kept.1.abc/member": OLD}


def test_what_is_not_complete_is_not_placed(seat: Seat) -> None:
    (seat.work / "ready").unlink()
    assert seat.ok("made", seat.data) == []
    assert seat.place().returncode != 0
    assert seat.found() == {"member": OLD, "recovery.abc/new/member": NEW}
    assert not list(seat.data.glob("kept.*"))


def test_on_a_node_without_data_there_is_nothing_to_keep(seat: Seat) -> None:
    """A backup may be restored on any control node."""
    shutil.rmtree(seat.data / "member")
    for _ in range(2):
        assert seat.ok("place", seat.data, seat.work, "kept.1") == [], "which is what it says"
    assert seat.found() == {"member": NEW}


# --- a former member makes room ------------------------------------------------------------------------------------


def test_former_data_is_moved_aside_and_a_new_member_may_start_in_its_place(seat: Seat) -> None:
    seat.ok("aside", seat.data, seat.data / "kept.1")
    assert seat.found()["kept.1/member"] == OLD
    assert [path.name for path in (seat.data / "member").iterdir()] == ["peer-ca.crt"]
    assert (seat.data / "member").stat().st_mode & 0o777 == 0o700


def test_where_there_is_none_a_member_may_start_all_the_same(seat: Seat) -> None:
    shutil.rmtree(seat.data / "member")
    seat.ok("aside", seat.data, seat.data / "kept.1")
    assert (seat.data / "member/peer-ca.crt").read_text() == "CA"
    assert not (seat.data / "kept.1").exists()


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("number", range(1, 7))
def test_rule_3_moving_it_aside_loses_nothing_wherever_it_is_cut(seat: Seat, number: int, how: str) -> None:
    seat.run("aside", seat.data, seat.data / "kept.1", acts=acts(seat, number, CUTS[how]))
    seat.ok("aside", seat.data, seat.data / "kept.2")
    assert [content for path, content in seat.found().items() if path.startswith("kept.")] == [OLD]
    assert (seat.data / "member/peer-ca.crt").read_text() == "CA"


# --- what is made -------------------------------------------------------------------------------------------------

RESTORES = 'mkdir -p new/member && echo "$@" >new/member/db'


def make(seat: Seat) -> subprocess.CompletedProcess[str]:
    arguments = ("n1", "https://192.0.2.11:2380", "demo-abc", "1000", "snapshot.db", "--skip-hash-check")
    return seat.run("make", seat.work, *arguments)


def test_what_is_made_has_the_ca_without_which_no_member_starts_and_is_marked_last(seat: Seat) -> None:
    seat.program("etcdutl", f"[ ! -e ready ] && [ ! -e new ] || exit 1; {RESTORES}")
    assert make(seat).returncode == 0
    said = (seat.work / "new/member/db").read_text()
    assert "--initial-cluster n1=https://192.0.2.11:2380 " in said
    assert said.endswith("--skip-hash-check\n")
    assert (seat.work / "new/member/peer-ca.crt").read_text() == "CA"
    assert seat.ok("made", seat.data) == ["made abc"]


@pytest.mark.parametrize(
    "fails", [f"{RESTORES}; echo its last words >&2; exit 1", "true", f"{RESTORES}; rm ../../ca.crt"]
)
def test_what_cannot_be_made_is_not_marked(seat: Seat, fails: str) -> None:
    """As where it was made before. Also where etcdutl says nothing and has made nothing, or there is no CA."""
    seat.program("etcdutl", fails)
    done = make(seat)
    assert done.returncode != 0
    assert "its last words" in done.stderr or "last words" not in fails
    assert seat.ok("made", seat.data) == []


@pytest.mark.parametrize("step", ["begin", "copy", "make"])
def test_what_was_made_before_is_not_taken_for_complete_when_its_removal_is_cut(seat: Seat, step: str) -> None:
    """The mark goes first: with the mark and without its data it would seem to be in its place already."""
    seat.program("etcdutl", RESTORES)
    directory = seat.root / "acts"
    directory.mkdir()
    first = """if [ -d "$2/new" ]; then set -- "$1" "$2/new"; fi"""  # of a directory, something that is in it
    (directory / "rm").write_text(f'#!/bin/bash\n{first}\n{shutil.which("rm")} "$1" "$2"; kill -KILL $PPID\n')
    (directory / "rm").chmod(0o755)
    arguments = {"begin": (seat.work,), "copy": (seat.data, seat.work), "make": (seat.work, *"abcde")}
    assert seat.run(step, *arguments[step], acts=directory).returncode != 0
    assert seat.ok("made", seat.data) in ([], ["made abc"])


def test_a_recovery_begins_without_what_earlier_ones_have_left(seat: Seat) -> None:
    (seat.data / "recovery.other/new").mkdir(parents=True)
    (seat.work / "ready").unlink()
    seat.ok("begin", seat.data / "recovery.next")
    assert sorted(path.name for path in seat.data.iterdir()) == ["member", "recovery.next"]
    assert list((seat.data / "recovery.next").iterdir()) == []
    assert (seat.data / "recovery.next").stat().st_mode & 0o777 == 0o700


# --- the log ------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_log(seat: Seat) -> Seat:
    """Of three files, and what etcd has allocated for the next one."""
    for number, name in enumerate(("a.wal", "b.wal", "c.wal", "0.tmp")):
        path = seat.data / "member/wal" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([number]) * 100)
    (seat.data / "member/snap").mkdir()
    (seat.data / "member/snap/db").write_bytes(bytes(7000))
    return seat


def test_the_last_two_files_of_a_log_are_read_with_the_sizes_of_what_there_is(with_log: Seat) -> None:
    scratch = with_log.root / "scratch"
    *lines, free = with_log.ok("log", with_log.data, scratch)
    assert lines == ["log b.wal", "log c.wal", "size 7000"]
    assert int(free.removeprefix("free ")) > 0
    assert gzip.decompress((scratch / "c.wal.gz").read_bytes()) == b"\2" * 100
    assert {path.stat().st_mode & 0o777 for path in (scratch, *scratch.iterdir())} == {0o700, 0o600}


def test_where_there_is_no_directory_of_etcd_there_is_nothing(with_log: Seat) -> None:
    """A machine that was replaced."""
    assert with_log.ok("made", with_log.root / "none") == []
    lines = [line.split() for line in with_log.ok("log", with_log.root / "none", with_log.root / "scratch")]
    assert [words for words in lines if len(words) != 2] == []


def test_a_record_is_appended_to_the_copy_which_ends_with_it(with_log: Seat) -> None:
    with_log.ok("copy", with_log.data, with_log.work)
    with_log.ok("append", with_log.work, 40, 8, stdin=b"recorded")
    assert (with_log.work / "old/member/wal/c.wal").read_bytes() == b"\2" * 40 + b"recorded"
    assert (with_log.work / "old/member/wal/b.wal").read_bytes() == b"\1" * 100
    assert (with_log.data / "member/wal/c.wal").read_bytes() == b"\2" * 100, "the old data is only read"


SERVES = """echo "$@" >served; trap 'sleep 0.5; : >written; exit' TERM; while :; do sleep 0.05; done"""
ANSWERS = """
case " $* " in
*" alarm list "*) [ ! -e full ] || echo "memberID:1 alarm:NOSPACE" ;;
*" alarm disarm "*) rm full ;;
*" put former "*) [ ! -e full ] || { echo "database space exceeded" >&2; exit 1; }; printf %s "${@: -1}" >former ;;
*" get former "*) [ ! -e former ] || { cat former; echo; } ;;
*" get nothing "*) [ -e served ] && printf '"%s" : %s\\n' ClusterID 7 MemberID 8 Revision 42 ;;
*" compact "* | *" defrag "*) echo "${@:3}" >>room ;;
esac"""


@pytest.fixture
def copied(with_log: Seat) -> Seat:
    """With programs that speak to an etcd of the copy, and keep what they are given in files."""
    with_log.program("etcd", SERVES)
    with_log.program("etcdctl", ANSWERS)
    with_log.ok("copy", with_log.data, with_log.work)
    return with_log


def test_the_database_is_used_when_the_etcd_that_has_brought_it_up_to_date_has_ended(copied: Seat) -> None:
    """It writes what it has in memory when it is asked to end."""
    assert copied.ok("replay", copied.work, "[]") == ["42"]
    assert (copied.work / "written").exists()
    assert not (copied.work / "former").exists(), "there is nothing to say"


def test_it_says_what_is_replaced_with_what_it_has_said_before(copied: Seat) -> None:
    (copied.work / "former").write_text('["a7", "c1"]')
    assert copied.ok("replay", copied.work, '["c1", "d2"]') == ['["a7", "c1", "d2"]', "42"]
    assert not (copied.work / "room").exists(), "which takes its time"


def test_of_a_full_etcd_the_alarm_is_cleared_and_room_is_made(copied: Seat) -> None:
    """Without a quota meanwhile: it would be full again."""
    (copied.work / "full").touch()
    copied.ok("replay", copied.work, '["c1"]')
    assert (copied.work / "former").read_text() == '["c1"]'
    assert "--quota-backend-bytes=-1" in (copied.work / "served").read_text()
    compacted, defragmented = (copied.work / "room").read_text().splitlines()
    assert compacted.endswith("compact --physical 42")
    assert defragmented.endswith("defrag")


def test_an_etcd_that_takes_no_writes_all_the_same_gives_no_revision_and_etcdctl_says_why(copied: Seat) -> None:
    copied.program("etcdctl", ANSWERS.replace("rm full", ":"))
    (copied.work / "full").touch()
    done = copied.run("replay", copied.work, '["c1"]')
    assert done.returncode != 0
    assert done.stderr.splitlines() == ["database space exceeded"]


def test_a_snapshot_is_unpacked_and_goes(seat: Seat) -> None:
    """The disk has room for two databases, not for three."""
    seat.program("etcdutl", 'mkdir old && echo "$@" >old/said')
    (seat.work / "old").mkdir()
    (seat.work / "snapshot.db").touch()
    seat.ok("unpack", seat.work, seat.work / "snapshot.db")
    assert (seat.work / "old/said").read_text() == f"snapshot restore {seat.work}/snapshot.db --data-dir old\n"
    assert not (seat.work / "snapshot.db").exists()


def test_a_step_uses_the_programs_that_it_is_given(copied: Seat) -> None:
    """Those that the host uses may be of a newer minor than its member, and leave that in what they make."""
    others = copied.root / "store"
    (copied.root / "bin").joinpath("etcd").rename(copied.root / "etcd-1")
    copied.program("etcd", "exit 1")
    copied.program("etcdutl", "exit 1")
    others.mkdir()
    (others / "etcdutl-1").write_text(f"#!/bin/bash\n{RESTORES}\n")
    (others / "etcdutl-1").chmod(0o755)
    words = ("with", copied.root / "etcd-1", others / "etcdutl-1")
    assert copied.ok(*words, "replay", copied.work, "[]") == ["42"]
    shutil.rmtree(copied.work / "new", ignore_errors=True)
    copied.ok(*words, "make", copied.work, *"abcde")
    assert (copied.work / "new/member/db").exists()
    (copied.work / "snapshot.db").touch()
    copied.ok(*words, "unpack", copied.work, copied.work / "snapshot.db")
    assert not (copied.work / "snapshot.db").exists()


def test_of_one_that_is_damaged_it_is_said(seat: Seat) -> None:
    seat.program("etcdutl", "echo its last words >&2; exit 1")
    done = seat.run("unpack", seat.work, seat.work / "snapshot.db")
    assert (done.returncode, done.stderr) == (1, "its last words\n")


def test_of_an_etcd_that_ends_at_once_the_last_lines_are_said(with_log: Seat) -> None:
    with_log.program("etcd", "printf '%s\\n' one two three four; exit 1")
    with_log.program("etcdctl", "exit 1")
    with_log.ok("copy", with_log.data, with_log.work)
    done = with_log.run("replay", with_log.work, "[]")
    assert done.returncode != 0
    assert done.stderr.splitlines() == ["two", "three", "four"]


def test_listing_all_keys_is_not_given_up_after_etcdctls_own_five_seconds(seat: Seat) -> None:
    """Half a million take longer, and without them nobody is shown what a restore takes away."""
    seat.program("etcdctl", 'printf "%s\\n" "$@"')
    seat.ok("keys", seat.root / "keys")
    asked = gzip.decompress((seat.root / "keys/keys.gz").read_bytes()).decode().splitlines()
    assert "--keys-only" in asked
    assert "--command-timeout=10m" in asked
