"""The trial of a snapshot, by programs of the test's own. With the real ones: tests/contract/etcd/test_snapshots.py."""

from __future__ import annotations

from pathlib import Path

from autarky.etcd import snapshots

ETCDCTL = """\
case "$*" in
*--count-only*) printf '"Revision" : 7\\n"Count" : 3\\n' ;;
*) printf '%s\\n' "$@" ;;
esac
"""


async def test_its_keys_are_listed_for_as_long_as_the_trial_may_take(tmp_path: Path) -> None:
    """etcdctl's own limit is five seconds, in which half a million are not listed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, does in {"etcdutl": "exit 0", "etcd": "exec sleep 60", "etcdctl": ETCDCTL}.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    listed: list[str] = []
    tried = await snapshots.tried(
        tmp_path / "snapshot.db",
        tmp_path / "tried",
        programs,
        timeout=30,
        listing=lambda keys: listed.extend(keys.read_text().splitlines()),
    )
    assert tried == snapshots.Tried(7, 3)
    [limit] = [word for word in listed if word.startswith("--command-timeout=")]
    assert limit.endswith("h")
