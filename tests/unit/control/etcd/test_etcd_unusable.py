"""Whether a member's data is of no use, by what its process said: etcd's own words, and nothing less clear."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.unusable import Peer, judge

MINE, SECOND, THIRD = 0x8E9E05C52164694D, 0x91BC3C398FB3C146, 0xFD422379FDA50E48
URLS = {MINE: "https://192.0.2.11:2380", SECOND: "https://192.0.2.12:2380", THIRD: "https://192.0.2.13:2380"}
VOTERS = [Peer(one, f"n{number}", (url,)) for number, (one, url) in enumerate(URLS.items(), 1)]
STARTS = '{"level":"info","ts":"2026-11-27T07:00:00.000000Z","caller":"embed/etcd.go:138","msg":"configuring"}'
CHECK_FAILED = json.dumps({"level": "error", "msg": "checkInitialHashKV failed"}, separators=(",", ":"))
INCONSISTENT = (
    '{"level":"fatal","ts":"2026-11-27T07:00:01.000000Z","caller":"etcdmain/etcd.go:183","msg":"discovery failed",'
    f'"error":"{MINE:x} found data inconsistency with peers"}}'
)


def differs(other: int, own_hash: int = 1, its_hash: int = 2, compacted: int = 5, its: int = 5) -> str:
    """As etcd 3.6 logs it: it does not know the id of the other."""
    said = {
        "level": "warn",
        "msg": "found different hash values from remote peer",
        "local-member-id": f"{MINE:x}",
        "local-member-revision": 9,
        "local-member-compact-revision": compacted,
        "local-member-hash": own_hash,
        "remote-peer-id": "0",
        "remote-peer-endpoints": [URLS.get(other, f"https://192.0.2.1{other}:2380")],
        "remote-peer-revision": 11,
        "remote-peer-compact-revision": its,
        "remote-peer-hash": its_hash,
    }
    return json.dumps(said, separators=(",", ":"))


def ended(*lines: str) -> list[str]:
    return [STARTS, *lines, CHECK_FAILED, INCONSISTENT]


def test_keys_that_differ_from_those_of_two_others_which_agree() -> None:
    assert "n2, n3, which agree" in judge(MINE, VOTERS, ended(differs(SECOND), differs(THIRD)))


@pytest.mark.parametrize(
    "lines",
    [
        ended(),
        ended(differs(SECOND)),
        ended(differs(SECOND), differs(THIRD, its_hash=3)),
        ended(differs(SECOND), differs(THIRD, its=6)),
        ended(differs(SECOND), differs(4)),
        ended(differs(SECOND), differs(THIRD)[:-1]),
        ended(differs(SECOND), differs(MINE)),
        [STARTS, differs(SECOND), differs(THIRD)],
    ],
    ids=["none", "one", "of two minds", "compacted apart", "no voter", "cut off", "itself", "goes on"],
)
def test_rule_2_whoever_else_may_be_wrong_it_is_not_condemned(lines: list[str]) -> None:
    assert judge(MINE, VOTERS, lines) == ""


def test_of_two_members_nobody_can_tell_which_one_is_right() -> None:
    assert judge(MINE, VOTERS[:2], ended(differs(SECOND))) == ""


def test_of_five_two_others_are_no_quorum() -> None:
    five = [*VOTERS, *(Peer(one, f"n{one}", (f"https://192.0.2.1{one}:2380",)) for one in (4, 5))]
    assert judge(MINE, five, ended(differs(SECOND), differs(THIRD))) == ""
    assert judge(MINE, five, ended(differs(SECOND), differs(THIRD), differs(4))) != ""


@pytest.mark.parametrize(
    "last",
    [
        '{"level":"fatal","msg":"failed to read WAL, cannot be repaired","error":"walpb: crc mismatch"}',
        '{"level":"panic","msg":"failed to open database","error":"invalid database"}',
        '{"level":"panic","msg":"failed to open database","error":"checksum error"}',
        '{"level":"panic","msg":"failed to recover v3 backend from snapshot","error":"…"}',
        '{"level":"panic","msg":"tocommit(9) is out of range. Was the raft log corrupted, truncated, or lost?"}',
        "panic: assertion failed: Page expected to be: 7, but self identifies as 4702394921427289928",
        "panic: invalid page type: 7: 4141",
        "panic: freepages: failed to get all reachable pages (page 7: multiple references)",
    ],
)
def test_what_etcd_cannot_read_is_of_no_use_also_where_it_has_compared_nothing(last: str) -> None:
    assert last[:60] in judge(MINE, VOTERS, [STARTS, last, "goroutine 1 [running]:"])


@pytest.mark.parametrize(
    "last",
    [
        '{"level":"fatal","msg":"failed to read WAL, cannot be repaired","error":"read: input/output error"}',
        '{"level":"panic","msg":"failed to open database","error":"write: no space left on device"}',
        '{"level":"fatal","msg":"discovery failed","error":"listen tcp 127.0.0.1:2380: bind: address already in use"}',
        '{"level":"warn","msg":"failed to read a snap file","error":"snap: crc mismatch"}',
        "Error: unknown flag: --nonsense",
    ],
)
def test_rule_2_a_disk_or_a_mistake_says_nothing_about_the_data(last: str) -> None:
    assert judge(MINE, VOTERS, [STARTS, last]) == ""


def test_rule_2_on_a_disk_that_is_full_nothing_is_believed() -> None:
    lost = "panic: invalid page type: 7: 4141"
    assert judge(MINE, VOTERS, [lost, '{"level":"fatal","msg":"x","error":"no space left on device"}']) == ""


@given(st.lists(st.text() | st.sampled_from([differs(SECOND), '{"level":"panic"', INCONSISTENT, "[1]", "null"])))
def test_whatever_is_logged_it_is_read(lines: list[str]) -> None:
    judge(MINE, VOTERS, lines)
