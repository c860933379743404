"""The host driver run for real on this machine, in a directory of the test's own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import stat
from pathlib import Path

import pytest

from autarky.clock import start_time
from autarky.errors import CommandFailed, Unreachable
from autarky.hosts import LabHost, LocalHost, process
from autarky.model.files import File

HOST = LocalHost("here")
BINARY = bytes(range(256)) * 4096 + b"\n\0end without a newline"
"""1 MiB that holds every byte, line ends and headers' look-alikes."""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob(".autarky.*")]


async def test_files_arrive_complete_with_their_modes(tmp_path):
    files = [
        File(f"{tmp_path}/a/plain.txt", b"one\n"),
        File(f"{tmp_path}/a/empty", b"", 0o640),
        File(f"{tmp_path}/a/binary", BINARY, 0o755),
        File(f"{tmp_path}/a/with spaces in it.txt", b"644 3 /etc/passwd\nabc", 0o600),
    ]
    await HOST.write_files(files)
    for file in files:
        assert Path(file.path).read_bytes() == file.content
        assert mode(Path(file.path)) == file.mode
    assert leftovers(tmp_path) == []


async def test_a_directory_made_for_a_secret_is_closed_and_one_for_others_is_open(tmp_path):
    await HOST.write_files([File(f"{tmp_path}/open/a", b"x"), File(f"{tmp_path}/closed/a", b"x", 0o600)])
    assert (mode(tmp_path / "open"), mode(tmp_path / "closed")) == (0o755, 0o700)


async def test_no_more_of_a_file_is_read_than_it_may_have(tmp_path):
    path = tmp_path / "-odd name"
    path.write_bytes(b"0123456789")
    assert await HOST.read(str(path)) == await HOST.read(str(path), most=10) == b"0123456789"
    assert await HOST.read(f"{tmp_path}/absent", most=10) is None
    with pytest.raises(CommandFailed, match="the file has more than 9 bytes"):
        await HOST.read(str(path), most=9)
    with pytest.raises(CommandFailed, match="Is a directory"):
        await HOST.read(str(tmp_path), most=9)
    with pytest.raises(CommandFailed, match="more than 16777216 bytes"):
        await HOST.read("/dev/zero")


async def test_a_file_is_replaced_not_written_into(tmp_path):
    """Whoever has the old file open reads the old content to its end."""
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader:
        await HOST.write_files([File(str(path), b"new", 0o600)])
        assert reader.read() == "old"
    assert (path.read_text(), mode(path)) == ("new", 0o600)


async def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path):
    (tmp_path / "target").write_text("theirs")
    (tmp_path / "link").symlink_to("target")
    await HOST.write_files([File(f"{tmp_path}/link", b"ours")])
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "theirs"


async def test_what_a_killed_writer_left_is_cleared_by_the_next(tmp_path):
    (tmp_path / ".autarky.file").write_text("half of a secr")
    (tmp_path / ".autarky.file").chmod(0o400)
    await HOST.write_files([File(f"{tmp_path}/file", b"complete", 0o644)])
    assert ((tmp_path / "file").read_text(), mode(tmp_path / "file")) == ("complete", 0o644)
    assert leftovers(tmp_path) == []


async def test_files_are_written_in_order_so_that_the_last_one_proves_the_others(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed):
        await HOST.write_files(
            [File(f"{tmp_path}/first", b"1"), File(f"{tmp_path}/file/impossible", b"2"), File(f"{tmp_path}/last", b"3")]
        )
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "last").exists()


async def test_a_stream_that_was_cut_leaves_the_old_file(tmp_path):
    """The connection broke in the middle of a content: the script sees too few bytes."""
    from autarky.hosts.shell import _WRITE_SCRIPT  # noqa: PLC0415 # what a broken connection feeds it cannot be had otherwise

    (tmp_path / "file").write_text("old")
    cut = f"644 1000 {tmp_path}/file\nonly these".encode()
    with pytest.raises(CommandFailed, match="short write"):
        await HOST.run(["sh", "-c", _WRITE_SCRIPT], stdin=cut)
    assert (tmp_path / "file").read_text() == "old"


async def test_digests_are_of_content_and_mode_and_only_of_files_that_exist(tmp_path):
    await HOST.write_files([File(f"{tmp_path}/a b", BINARY, 0o640)])
    found = await HOST.digests([f"{tmp_path}/a b", f"{tmp_path}/absent", str(tmp_path)])
    assert found == {f"{tmp_path}/a b": (hashlib.sha256(BINARY).hexdigest(), 0o640)}
    assert await HOST.digests([]) == {}


async def test_a_file_is_read_as_it_is_and_a_missing_one_is_none(tmp_path):
    (tmp_path / "binary").write_bytes(BINARY)
    (tmp_path / "empty").write_bytes(b"")
    assert await HOST.read(f"{tmp_path}/binary") == BINARY
    assert await HOST.read(f"{tmp_path}/empty") == b""
    assert await HOST.read(f"{tmp_path}/absent") is None
    assert await HOST.read(f"{tmp_path}/absent/deeper") is None
    with pytest.raises(CommandFailed):
        await HOST.read(str(tmp_path))


async def test_removing_passes_over_what_is_absent_and_refuses_directories(tmp_path):
    (tmp_path / "-a").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    await HOST.remove([f"{tmp_path}/-a", f"{tmp_path}/absent", f"{tmp_path}/absent/deeper", f"{tmp_path}/dangling"])
    await HOST.remove([])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    with pytest.raises(CommandFailed):
        await HOST.remove([str(tmp_path)])


async def test_a_big_file_is_pushed_completely(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(BINARY * 5)
    await HOST.push(source, f"{tmp_path}/new/target", mode=0o755)
    assert (tmp_path / "new/target").read_bytes() == BINARY * 5
    assert mode(tmp_path / "new/target") == 0o755
    assert leftovers(tmp_path) == []


async def test_a_push_to_an_impossible_place_says_so(tmp_path):
    (tmp_path / "source").write_bytes(BINARY)
    with pytest.raises(CommandFailed, match="push"):
        await HOST.push(tmp_path / "source", f"{tmp_path}/source/deeper", mode=0o644)


async def test_a_program_gets_its_stdin_and_a_clean_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "leaks")
    assert (await HOST.run(["cat"], stdin=b"through a pipe")).stdout == b"through a pipe"
    assert (await HOST.run(["cat"])).stdout == b""
    assert "SECRET" not in (await HOST.run(["env"])).text


async def test_a_program_that_fails_is_an_error_unless_one_wants_to_look():
    with pytest.raises(CommandFailed, match=r"here: sh -c … sh no ended with status 3: no$") as caught:
        await HOST.run(["sh", "-c", 'echo "$1" >&2; exit 3', "sh", "no"])
    assert caught.value.status == 3
    completed = await HOST.run(["sh", "-c", "echo out; exit 3"], check=False)
    assert (completed.status, completed.text) == (3, "out")


async def test_a_program_that_is_not_there_is_a_failed_command():
    with pytest.raises(CommandFailed, match="no-such-program"):
        await HOST.run(["no-such-program"])


async def test_a_program_that_hangs_is_ended_and_its_state_is_unknown(tmp_path):
    with pytest.raises(Unreachable, match=r"here: sh -c '…' .*gave no answer within 0 s"):
        await HOST.run(["sh", "-c", 'echo $$ >"$1"; exec sleep 60', "sh", f"{tmp_path}/pid"], timeout=0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_program_that_hangs_is_ended_with_all_it_started(tmp_path):
    """Its child holds the output open: to kill the program alone would end nothing, and the wait for it never."""
    script = 'sleep 60 & echo $! >"$1"; wait'
    with pytest.raises(Unreachable):
        await HOST.run(["sh", "-c", script, "sh", f"{tmp_path}/pid"], timeout=0.3)
    child = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_output_without_end_is_a_failure_and_not_an_answer_cut_short(monkeypatch):
    monkeypatch.setattr(process, "OUTPUT_LIMIT", 100_000)
    assert len((await HOST.run(["head", "-c", "100000", "/dev/zero"])).stdout) == 100_000
    with pytest.raises(CommandFailed, match="wrote more than 100000 bytes"):
        await HOST.run(["head", "-c", "100001", "/dev/zero"])


async def test_of_many_complaints_the_last_are_kept():
    script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done >&2"
    said = (await HOST.run(["sh", "-c", script])).stderr
    assert len(said) == process.STDERR_KEPT
    assert said.endswith("line 20000\n")


async def test_both_outputs_and_the_input_may_be_big_at_once():
    big = BINARY * 8
    completed = await HOST.run(["sh", "-c", "tee /dev/stderr"], stdin=big)
    assert completed.stdout == big


async def test_a_program_that_does_not_read_its_input_may_end():
    assert (await HOST.run(["true"], stdin=BINARY * 8)).status == 0


async def test_a_wait_that_is_cancelled_ends_its_program(tmp_path):
    os.mkfifo(tmp_path / "started")
    waiting = asyncio.create_task(HOST.run(["sh", "-c", 'echo $$ >"$1"; exec sleep 60', "sh", f"{tmp_path}/started"]))
    pid = int(await asyncio.to_thread((tmp_path / "started").read_text))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# --- test hosts ------------------------------------------------------------------------------------


async def test_a_test_host_whose_process_has_ended_is_unreachable():
    process = await asyncio.create_subprocess_exec("sleep", "60")
    started = start_time(process.pid)
    assert started is not None
    host = LabHost("n1", process.pid, started, address="192.0.2.11")
    assert host.command(["true"])[:2] == ["nsenter", f"--target={process.pid}"]
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert start_time(process.pid) is None
    with pytest.raises(Unreachable, match="lab host n1 is not running"):
        await host.run(["true"])


async def test_another_process_under_the_same_id_is_not_the_test_host():
    own = start_time(os.getpid())
    assert own is not None
    with pytest.raises(Unreachable):
        await LabHost("n1", os.getpid(), own - 1, address="192.0.2.11").run(["true"])
