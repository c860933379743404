"""Killing a member of etcd on its host, by bash, with processes of the test's own that are named like it: that of this
directory is found, and nothing else, whatever a tenant makes its own process look like.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from autarky.phases.recovery.fencing import _KILL

SHELL = Path(shutil.which("dash") or "/bin/sh").resolve()
ROOT_ONLY = pytest.mark.usefixtures("as_root")  # who enters another root, or mounts anything
OPENS, OPENS_NOTHING = 'exec 9<>"$1"; read -r _', "read -r _"
"""What the process does: it waits until its standard input ends."""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a member."""
    found = tmp_path / "var-lib-etcd"
    for name in ("snap/db", "wal/0.wal"):
        (found / "member" / name).parent.mkdir(parents=True)
        (found / "member" / name).touch()
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def make(
        says: Path | str, does: str = OPENS_NOTHING, *, opens: str = "", name: str = "etcd", within: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """says: which directory its command line has. within: the program that starts it elsewhere."""
        program = tmp_path / name
        if not program.exists():
            shutil.copy(SHELL, program)
        argv = [*within, str(program), "-c", f"echo; {does}", "etcd", opens, f"--data-dir={says}"]
        one = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == b"\n", "it did not start"
        time.sleep(0.05)
        return one

    yield make
    for one in started:
        one.kill()
        one.communicate()


def kill(*data: Path) -> int:
    return subprocess.run(["bash", "-c", _KILL, "bash", *data], capture_output=True, check=False, timeout=60).returncode


def has_ended(one: subprocess.Popen[bytes]) -> bool:
    try:
        return one.wait(1) == -9
    except subprocess.TimeoutExpired:
        return False


def test_where_nothing_is_named_like_it_there_is_none(data: Path, start: Start) -> None:
    other = start(data, name="etcdctl")
    assert kill(data) == 1
    assert kill(data / "none") == 1
    assert not has_ended(other)


@pytest.mark.parametrize("file", ["snap/db", "wal/0.wal"])
def test_one_that_has_a_file_of_the_member_open_is_killed(data: Path, start: Start, file: str) -> None:
    member = start(data, OPENS, opens=str(data / "member" / file))
    assert kill(data) == 0
    assert has_ended(member)
    assert kill(data) == 1


def test_so_is_one_that_has_not_opened_any_yet(data: Path, start: Start) -> None:
    """It is about to."""
    member = start(data)
    assert kill(data) == 0
    assert has_ended(member)


def test_so_is_a_second_one_with_its_own_directory(data: Path, start: Start) -> None:
    """Also where there is none of the first one."""
    (data / "second/member").mkdir(parents=True)
    second = start(data / "second")
    assert kill(data) == 1
    assert kill(data, data / "second") == 0
    assert has_ended(second)
    both = [start(data), start(data / "second")]
    assert kill(data, data / "second") == 0
    assert all(map(has_ended, both))
    assert kill(data, data / "second") == 1
    assert kill(data / "none", data / "second") == 1


def test_one_with_another_directory_goes_on(data: Path, start: Start) -> None:
    others = [
        start(data / "second"),
        start(f"{data}2"),
        start(data, OPENS, opens=str(data / "member/snap/db"), name="e"),
    ]
    assert kill(data) == 1
    assert not any(map(has_ended, others))


@pytest.fixture
def tenant(tmp_path: Path, data: Path) -> Path:
    """The root of a container: its image has the path as an absolute link, which leads out of it for all others."""
    root = tmp_path / "image"
    needed = subprocess.run(["ldd", SHELL], capture_output=True, text=True, check=False).stdout.split()
    for path in (Path(word) for word in needed if word.startswith("/")):
        (root / path.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.relative_to("/"))
    (root / tmp_path.relative_to("/")).mkdir(parents=True)
    shutil.copy(SHELL, root / tmp_path.relative_to("/") / "etcd")
    (root / data.relative_to("/")).symlink_to(data)
    return root


@ROOT_ONLY
def test_a_tenants_process_whose_image_links_to_the_directory_goes_on(data: Path, start: Start, tenant: Path) -> None:
    """As its own root has it, the link leads to nothing; as /proc/PID/root has it, to etcd's directory."""
    one = start(data, within=["chroot", str(tenant)])
    through = Path(f"/proc/{one.pid}/root") / data.relative_to("/")
    assert through.stat().st_ino == data.stat().st_ino, "the trick does not work any more: the test shows nothing"
    assert [kill(data) for _ in range(3)] == [1, 1, 1]
    assert not has_ended(one)


def mounted(source: Path, target: Path) -> list[str]:
    """Starts a program with its own mounts."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.fail("this machine allows no mounts")
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(source), str(target)]


@ROOT_ONLY
def test_one_of_a_container_host_that_has_another_directory_there_goes_on(
    data: Path, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "theirs/member").mkdir(parents=True)
    one = start(data, within=mounted(tmp_path / "theirs", data))
    assert kill(data) == 1
    assert not has_ended(one)


@ROOT_ONLY
@pytest.mark.parametrize("does", [OPENS, OPENS_NOTHING])
def test_that_of_a_container_with_the_directory_mounted_is_killed(
    data: Path, start: Start, tmp_path: Path, does: str
) -> None:
    """At the same path, as in etcd's static pod; the host may have it from elsewhere."""
    one = start(data, does, opens=str(data / "member/snap/db"), within=mounted(data, data))
    assert kill(data) == 0
    assert has_ended(one)
