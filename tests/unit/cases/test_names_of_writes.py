"""A write has the same name each time it is made, and another one where it says something else: else a cut after it
would be drawn again and again, or never.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autarky.phases.migration.marking import Mark
from e2e.names_of_writes import named, says

MARK = Mark("0123456789ab", "n1", "ab12", ("https://192.0.2.5:2379",), {"n1": '{"opened": true}'}, "secret")
COPY = "/var/lib/autarky/state/etcd-copy.json"


@pytest.mark.parametrize(
    ("one", "another", "name"),
    [
        ("recovery.0123456789ab/new", "recovery.ba9876543210/new", "recovery.*/new"),
        ("copy.0123456789ab/snapshot.db", "copy.ba9876543210/snapshot.db", "copy.*/snapshot.db"),
        ("kept.20261130T101010Z/member", "kept.20261201T000000Z.0123456789ab/member", "kept.*/member"),
        (
            "member/wal/0000000000000002-00000000000186a1.wal",
            "member/wal/0000000000000003-000000000003d0a1.wal",
            "member/wal/*.wal",
        ),
        ("member/snap/0000000000000004-0000000000027113.snap", "member/snap/*.snap", "member/snap/*.snap"),
    ],
)
def test_what_differs_from_run_to_run_is_a_star(one: str, another: str, name: str) -> None:
    wanted = f"fsync /var/lib/etcd/{name}"
    assert named(f"fsync /var/lib/etcd/{one}") == named(f"fsync /var/lib/etcd/{another}") == wanted


def test_what_is_the_same_in_each_run_is_left_as_it_is() -> None:
    for write in ("rename /var/lib/etcd/member", "create /var/lib/etcd/recovery.*/etcdutl.log", f"rename {COPY}"):
        assert named(write) == write


def test_the_mark_of_a_copy_is_another_write_when_the_pause_begins_and_when_it_is_decided() -> None:
    made = [MARK, replace(MARK, paused=1.5), replace(MARK, paused=1.5, opened=True)]
    assert [says(COPY, one.file().content.decode()) for one in made] == ["", " paused", " opened"]


def test_a_verdict_and_a_failed_trial_of_a_kubelet_say_what_they_are() -> None:
    assert says("/run/hosted-verdict", "pod a\nverdict good\n") == " good"
    allowed, failed = {"pod": "a"}, {"pod": "a"}
    note = json.dumps({"allowed": allowed, "failed": failed}, indent=1)
    assert says("/s/kubelet-hosted.json", note) == " failed"
    assert says("/s/kubelet-hosted.json", note.replace('"a"', '"b"', 1)) == ""


def test_other_files_have_their_path_alone() -> None:
    assert says("/var/lib/autarky/state/etcd-copied.json", MARK.file().content.decode()) == ""
