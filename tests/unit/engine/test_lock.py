from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from autarky.engine.lock import exclusive
from autarky.errors import Conflict, UserError

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def test_the_second_one_is_told_who_holds_the_lock_since_when_and_what_to_do(tmp_path):
    with (
        exclusive(tmp_path / "lock", "autarky up", now=NOW),
        pytest.raises(Conflict) as caught,
        exclusive(tmp_path / "lock", "autarky down", now=NOW),
    ):
        pass
    pid = os.getpid()
    assert str(caught.value) == (
        f"{tmp_path} is in use by `autarky up` (pid {pid}) since 2027-01-15 08:00:00 UTC\n"
        f"  fix: wait for it to end, or stop it with `kill {pid}`; then run this command again"
    )


def test_the_lock_is_free_again_after_the_block_and_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), exclusive(tmp_path / "lock", "autarky up", now=NOW):
        raise RuntimeError
    with exclusive(tmp_path / "lock", "autarky up", now=NOW):
        pass


def test_the_lock_ends_with_a_process_that_is_killed(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from autarky.engine.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'autarky up', now=0.0):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(Conflict, match=rf"`autarky up` \(pid {other.pid}\)"),
            exclusive(tmp_path / "lock", "autarky up", now=NOW),
        ):
            pass
        other.kill()
        other.wait()
    with exclusive(tmp_path / "lock", "autarky up", now=NOW):
        pass


def test_a_program_that_was_started_meanwhile_does_not_keep_the_lock(tmp_path):
    with exclusive(tmp_path / "lock", "autarky up", now=NOW):
        child = subprocess.Popen(["sleep", "60"])
    try:
        with exclusive(tmp_path / "lock", "autarky up", now=NOW):
            pass
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "command": "x", "since": 1e99}'])
def test_a_holder_that_has_not_yet_written_who_it_is_still_holds(tmp_path, text):
    path = tmp_path / "lock"
    with exclusive(path, "autarky up", now=NOW):
        path.write_text(text)
        with (
            pytest.raises(Conflict, match="another command that has just started"),
            exclusive(path, "autarky down", now=NOW),
        ):
            pass


def test_the_lock_can_be_taken_again_when_its_directory_is_moved_away_while_it_is_held(tmp_path):
    directory = tmp_path / "cluster"
    with exclusive(directory / "lock", "autarky down", now=NOW):
        directory.rename(tmp_path / "kept")
        with exclusive(directory / "lock", "autarky up", now=NOW):
            assert "autarky up" in (directory / "lock").read_text()


def test_the_lock_file_is_private(tmp_path):
    with exclusive(tmp_path / "cluster" / "lock", "autarky up", now=NOW):
        assert stat.S_IMODE((tmp_path / "cluster" / "lock").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "cluster").stat().st_mode) == 0o700


def test_a_place_that_cannot_be_written_is_the_users_to_fix(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"cannot open the lock file .*\n  fix: "),
        exclusive(tmp_path / "file" / "lock", "autarky up", now=NOW),
    ):
        pass
