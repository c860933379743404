from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from autarky.errors import CommandFailed, UserError
from autarky.payload.programs import in_thread, pip_install, run_tool, side_by_side


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def lives(pid: str) -> bool:
    """Whether the process runs; a dead one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends_soon(pid: str) -> bool:
    deadline = time.monotonic() + 60
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


async def test_output_and_errors_come_back_in_order():
    assert await run_tool(sh("echo one; echo two >&2; echo three")) == "one\ntwo\nthree"


async def test_only_the_last_lines_are_kept_and_each_is_seen():
    seen: list[str] = []
    assert (await run_tool(sh("seq 1 500"), on_line=seen.append)).splitlines()[0] == "461"
    assert len(seen) == 500


async def test_lines_that_were_understood_are_not_in_the_error():
    with pytest.raises(CommandFailed, match="ended with status 3: broken") as caught:
        await run_tool(sh("echo package; echo broken; echo package; exit 3"), on_line=lambda line: line == "package")
    assert "package" not in caught.value.stderr


async def test_a_line_of_half_a_megabyte_is_no_trouble():
    assert len(await run_tool([sys.executable, "-c", "print('x' * 500_000)"])) == 500_000


async def test_the_environment_is_added_to_ours(monkeypatch):
    monkeypatch.setenv("OURS", "a")
    assert await run_tool(sh('echo "$OURS$THEIRS"'), env={"THEIRS": "b"}) == "ab"


@pytest.mark.parametrize(
    "line", ["write /cache/x: no space left on device", "tar: x: Cannot write: No space left on device"]
)
async def test_a_tool_on_a_full_disk_is_explained_with_the_place_it_names(line):
    with pytest.raises(UserError, match=r"sh found no space left on the disk: .*x.*\n  fix: free some"):
        await run_tool(sh(f"echo '{line}'; exit 1"))


async def test_a_cancelled_tool_leaves_no_process_behind():
    children: asyncio.Queue[str] = asyncio.Queue()
    tool = asyncio.create_task(run_tool(sh("sleep 60 & echo $!; wait"), on_line=children.put_nowait))
    child = await children.get()
    tool.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tool
    assert ends_soon(child)


async def test_the_first_failure_alone_is_raised_and_ends_the_others():
    ended: list[str] = []

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("long")
            raise

    async def broken() -> None:
        await asyncio.sleep(0)
        raise UserError("broken")

    with pytest.raises(UserError, match="broken"):
        await side_by_side([long(), broken(), *(long() for _ in range(5))])
    assert "long" in ended


async def test_two_jobs_run_at_once_and_no_more():
    running, most = 0, 0

    async def job() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    await side_by_side(job() for _ in range(6))
    assert most == 2


async def test_a_thread_is_waited_for_when_it_is_cancelled(tmp_path):
    def work() -> None:
        time.sleep(0.05)
        (tmp_path / "done").touch()

    task = asyncio.create_task(in_thread(work))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "done").exists()


async def test_a_list_whose_hashes_do_not_match_is_not_installed(tmp_path):
    """No network: the package is a directory's wheel, and pip compares before it installs."""
    wheel = tmp_path / "pkg-1.0-py3-none-any.whl"
    wheel.write_bytes(b"not what was locked")
    lock = tmp_path / "lock"
    lock.write_text(f"pkg==1.0 --hash=sha256:{'0' * 64}\n")
    options = ["--no-index", f"--find-links={tmp_path}"]
    with pytest.raises(CommandFailed, match=r"(?i)hash"):
        await pip_install(lock, tmp_path / "target", scratch=tmp_path, options=options)
    assert not list((tmp_path / "target").glob("*"))


async def test_without_pip_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip is missing .*\n  fix: .* -m ensurepip"):
        await pip_install(tmp_path / "lock", tmp_path / "target", scratch=tmp_path)
