"""What every host driver promises, tried on each of them: this machine, a test host entered, and one reached by ssh
as root and as a user with sudo."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys

import pytest

from autarky.errors import CommandFailed, Held, Unreachable
from autarky.hosts import process
from autarky.model.files import File

BINARY = bytes(range(256)) * 4096 + b"\n\0end without a newline"
"""1 MiB that holds every byte, line ends and headers' look-alikes."""


@pytest.fixture
def host(driver):
    return driver()


@pytest.fixture
async def directory(host):
    path = (await host.run(["mktemp", "-d"])).text
    yield path
    await host.run(["rm", "-rf", path])


# --- files -----------------------------------------------------------------------------------------


async def test_files_arrive_complete_with_their_modes_and_are_read_as_they_are(host, directory):
    files = [
        File(f"{directory}/a/plain.txt", b"one\n"),
        File(f"{directory}/a/empty", b"", 0o640),
        File(f'{directory}/a/it\'s "quoted" $HOME \\n.txt', BINARY, 0o600),
    ]
    await host.write_files(files)
    for file in files:
        assert await host.read(file.path) == file.content
    assert await host.digests([*(file.path for file in files), f"{directory}/absent"]) == {
        file.path: (hashlib.sha256(file.content).hexdigest(), file.mode) for file in files
    }
    assert await host.read(f"{directory}/absent") is None
    owners = (await host.run(["stat", "-c", "%U", *(file.path for file in files)])).text
    assert set(owners.split()) == {"root"}


async def test_a_file_without_end_is_not_read(host):
    for most in ({"most": 1000}, {}):
        with pytest.raises(CommandFailed, match=r"/dev/zero.* more than"):
            await host.read("/dev/zero", **most)


async def test_removing_passes_over_what_is_absent(host, directory):
    await host.write_files([File(f"{directory}/-a", b"")])
    await host.remove([f"{directory}/-a", f"{directory}/absent"])
    assert await host.read(f"{directory}/-a") is None


async def test_a_push_is_complete_and_is_not_made_twice(host, directory, tmp_path):
    source, target = tmp_path / "source", f"{directory}/new/target"
    source.write_bytes(BINARY * 5)
    identity = ["stat", "-c", "%i %Y", target]
    await host.push(source, target, mode=0o755)
    assert await host.digests([target]) == {target: (hashlib.sha256(BINARY * 5).hexdigest(), 0o755)}
    first = (await host.run(identity)).text
    await host.push(source, target, mode=0o755)
    assert (await host.run(identity)).text == first
    source.write_bytes(BINARY)
    await host.push(source, target, mode=0o755)
    assert (await host.run(identity)).text != first
    assert await host.read(target) == BINARY


async def test_a_push_to_an_impossible_place_says_so(host, directory, tmp_path):
    (tmp_path / "source").write_bytes(BINARY)
    await host.write_files([File(f"{directory}/file", b"")])
    with pytest.raises(CommandFailed, match="push"):
        await host.push(tmp_path / "source", f"{directory}/file/deeper", mode=0o644)


async def test_a_pull_is_complete_private_and_replaces_what_is_there(host, directory, tmp_path):
    source, target, come = f"{directory}/source", tmp_path / "here/target", list[float]()
    target.parent.mkdir()
    await host.write_files([File(source, BINARY * 20)])
    target.write_bytes(b"old")
    await host.pull(source, target, come.append)
    assert target.read_bytes() == BINARY * 20
    assert target.stat().st_mode & 0o777 == 0o600
    assert come[-1] == len(BINARY) * 20
    assert [path.name for path in target.parent.iterdir()] == ["target"]


async def test_a_pull_of_what_is_not_there_leaves_what_there_is(host, directory, tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with pytest.raises(CommandFailed, match="no such file"):
        await host.pull(f"{directory}/absent", target)
    assert target.read_bytes() == b"old"


async def test_a_pull_of_a_file_that_changes_leaves_nothing_half(host, directory, tmp_path, monkeypatch):
    """As if a host had sent something else than it had said."""
    source, target = f"{directory}/source", tmp_path / "here/target"
    target.parent.mkdir()
    await host.write_files([File(source, b"one")])
    digests = host.digests

    async def others(paths):
        return {path: ("0" * 64, mode) for path, (_, mode) in (await digests(paths)).items()}

    monkeypatch.setattr(host, "digests", others)
    with pytest.raises(CommandFailed, match="has changed, or did not arrive complete"):
        await host.pull(source, target)
    assert list(target.parent.iterdir()) == []


# --- programs --------------------------------------------------------------------------------------


async def test_a_program_gets_its_arguments_and_its_input_as_they_are_and_a_clean_environment(host, monkeypatch):
    monkeypatch.setenv("LC_SECRET", "leaks")
    arguments = ["", "two words", "it's", '"$(id)"', "`id`", "\\n", "line\nbreak", "!", "*", "ü"]
    said = await host.run(["sh", "-c", 'printf "<%s>" "$@"', "sh", *arguments])
    assert said.stdout.decode() == "".join(f"<{argument}>" for argument in arguments)
    assert (await host.run(["cat"], stdin=BINARY)).stdout == BINARY
    assert (await host.run(["cat"])).stdout == b""
    environment = dict(line.split("=", 1) for line in (await host.run(["env"])).text.splitlines())
    assert environment.keys() == {"PATH", "LC_ALL", "HOME"}
    assert (await host.run(["id", "-u"])).text == "0"


async def test_a_program_that_fails_is_an_error_unless_one_wants_to_look(host):
    with pytest.raises(CommandFailed, match=r"sh -c … sh no ended with status 3: no$") as caught:
        await host.run(["sh", "-c", 'echo "$1" >&2; exit 3', "sh", "no"])
    assert caught.value.status == 3
    completed = await host.run(["sh", "-c", "echo out; echo err >&2; exit 255"], check=False)
    assert (completed.status, completed.stdout, completed.stderr) == (255, b"out\n", "err\n")
    with pytest.raises(CommandFailed, match="no-such-program"):
        await host.run(["no-such-program"])


async def test_both_outputs_and_the_input_may_be_big_at_once(host):
    assert (await host.run(["tee", "/dev/stderr"], stdin=BINARY * 4, timeout=60)).stdout == BINARY * 4


async def test_a_program_that_does_not_read_its_input_may_end(host):
    assert (await host.run(["true"], stdin=BINARY * 4)).status == 0


async def test_output_without_end_is_a_failure_and_not_an_answer_cut_short(host, monkeypatch):
    monkeypatch.setattr(process, "OUTPUT_LIMIT", 100_000)
    assert len((await host.run(["head", "-c", "100000", "/dev/zero"])).stdout) == 100_000
    with pytest.raises(CommandFailed, match="wrote more than 100000 bytes"):
        await host.run(["head", "-c", "100001", "/dev/zero"])


async def test_a_program_that_hangs_is_ended_with_all_it_started(host, directory):
    script = 'sleep 600 & echo $! >"$1/child"; echo $$ >"$1/parent"; wait'
    with pytest.raises(Unreachable, match="gave no answer within 2 s"):
        await host.run(["sh", "-c", script, "sh", directory], timeout=2)
    assert await ended(host, directory, "child", "parent")


async def test_a_wait_that_is_cancelled_ends_its_program(host, directory):
    script = 'echo $$ >"$1/pid"; exec sleep 600'
    waiting = asyncio.create_task(host.run(["sh", "-c", script, "sh", directory]))
    await until_there(host, f"{directory}/pid")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await ended(host, directory, "pid")


async def until_there(host, path: str) -> None:
    async with asyncio.timeout(60):
        while (await host.run(["test", "-s", path], check=False)).status != 0:  # noqa: ASYNC110 # that machine can notify nobody here
            await asyncio.sleep(0.05)


async def ended(host, directory, *files: str) -> bool:
    """Whether the processes are gone, or zombies that their parent has not fetched yet."""
    script = 'for f; do s=$(cat "/proc/$(cat "$f")/stat" 2>/dev/null) || continue; set -- ${s##*") "}; echo "$1"; done'
    states = (await host.run(["sh", "-c", script, "sh", *(f"{directory}/{name}" for name in files)])).text
    return set(states.split()) <= {"Z"}


async def test_many_programs_run_side_by_side(host):
    said = await asyncio.gather(*(host.run(["sh", "-c", 'echo "$1"', "sh", str(i)], timeout=90) for i in range(25)))
    assert [completed.text for completed in said] == [str(i) for i in range(25)]


async def test_a_host_says_what_it_is(host):
    facts = await host.facts()
    assert facts.hostname == (await host.run(["hostname"])).text
    assert facts.memory_total > 0


# --- locks -----------------------------------------------------------------------------------------


async def test_of_two_operators_the_second_is_told_who_the_first_is(driver, directory):
    path = f"{directory}/lock"
    async with driver().hold(path, "it's me"):
        with pytest.raises(Held) as caught:
            async with driver().hold(path, "you"):
                raise AssertionError("two of them")
        assert caught.value.holder == "it's me"
    async with driver().hold(path, "you"):
        assert await driver().read(path) == b"you\n"
    assert await driver().read(path) is None


async def test_a_lock_whose_holder_on_the_host_was_killed_is_lost(driver, directory):
    host, path = driver(), f"{directory}/lock"
    async with host.hold(path, "me") as hold:
        lost = asyncio.create_task(hold.lost())
        await asyncio.sleep(0.2)
        assert not lost.done()
        await host.run(["sh", "-c", FIND_AND_KILL, "sh", path])
        async with asyncio.timeout(30):
            await lost
    async with host.hold(path, "me again"):
        pass


FIND_AND_KILL = """\
for fd in /proc/[0-9]*/fd/9; do
  pid=${fd#/proc/}
  [ "$(readlink "$fd")" = "$1" ] && kill -KILL "${pid%%/*}"
done
true
"""

OPERATOR = """\
import asyncio, json, sys
from pathlib import Path
from autarky.hosts import LabHost, LocalHost, SshHost

async def main(driver, arguments, options, path):
    if "sockets" in options:
        options["sockets"] = Path(options["sockets"])
    async with globals()[driver](*arguments, **options).hold(path, "the killed one"):
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*json.loads(sys.argv[1])))
"""


async def test_a_lock_is_open_to_root_alone(driver, directory):
    """Who may read it may hold it, and so keep everybody out. One that an earlier release left open is closed."""
    host, path = driver(), f"{directory}/lock"
    await host.run(["sh", "-c", f"umask 022; : >{path}"])
    async with host.hold(path, "somebody"):
        assert (await host.run(["stat", "-c", "%a", path])).text.strip() == "600"


async def test_the_lock_of_a_killed_operator_is_free(driver, directory, tmp_path):
    path = f"{directory}/lock"
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OPERATOR, json.dumps([*recipe(driver(), tmp_path), path]), stdout=subprocess.PIPE
    )
    assert killed.stdout is not None
    assert await killed.stdout.readline() == b"held\n"
    killed.kill()
    await killed.wait()
    async with asyncio.timeout(20):
        while True:
            try:
                async with driver().hold(path, "the next one"):
                    break
            except Held:
                await asyncio.sleep(0.1)


def recipe(host, tmp_path):
    """How another process makes the same host."""
    name = type(host).__name__
    if name == "LocalHost":
        return name, ["here"], {}
    if name == "LabHost":
        return name, [host.name, host._pid, host._start_time], {"address": host.address}
    config = host._master._common[2]
    return name, [host.name, host._url], {"sockets": str(tmp_path / "killed"), "config": config}
