"""A target that hangs: the backup ends all the same, and says which one it was."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.agents.backup import dealing, wiring
from autarky.archive import Directory, Part, fresh_identity, pace
from autarky.archive.contents import Contents, EtcdSeen
from autarky.errors import UserError
from autarky.upkeep import backup

CONTENTS = Contents("c", "f", "2026-11-26T00:00:00Z", "n1", "0.1", "v1.37.1", EtcdSeen("3.6.16", "abc", 7, 4, 100))
REQUEST = json.dumps({"verb": "make", "backup": "b"})


class Hung(Directory):
    """It answers when the test is over."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked, self.over = threading.Event(), threading.Event()

    def has(self, name: str) -> bool:
        self.asked.set()
        assert self.over.wait(60)
        return super().has(name)


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    monkeypatch.setattr(dealing, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(dealing, "_LEAVES_SECONDS", 0.05)
    found = Hung(tmp_path / "backups")
    yield found
    found.over.set()


def said(target: Directory, work: Callable[[pace.Paced], object], monkeypatch, tmp_path: Path) -> dict[str, Any]:
    async def make(*_: object) -> dict[str, object]:
        return {"found": await dealing.deal(target, work)}

    monkeypatch.setattr(wiring, "_make", make)
    before = time.monotonic()
    wiring.run(REQUEST, tmp_path / "said")
    assert time.monotonic() - before < 30, "it waited for the thread"
    found: dict[str, Any] = json.loads((tmp_path / "said").read_text())
    return found


def test_what_a_target_answers_is_the_result(tmp_path: Path, monkeypatch) -> None:
    assert said(Directory(tmp_path), lambda target: target.has("said"), monkeypatch, tmp_path) == {"found": False}


def test_what_it_raises_is_said(tmp_path: Path, monkeypatch) -> None:
    def fails(_: object) -> None:
        raise UserError("there is no room")

    assert said(Directory(tmp_path), fails, monkeypatch, tmp_path) == {"error": "there is no room"}


class PanicError(BaseException):
    """What a library in Rust raises that has failed: it is no Exception."""


@pytest.mark.parametrize("failure", [PanicError, SystemExit, StopIteration, asyncio.CancelledError])
async def test_whatever_ends_the_work_in_its_thread_ends_the_wait_for_it(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    """Nobody would ever say how it has ended, and no other backup begin for hours."""

    def fails(_: object) -> None:
        raise failure("index out of range")

    with pytest.raises(RuntimeError, match=f"{failure.__name__}: index out of range"):
        await asyncio.wait_for(dealing.deal(Directory(tmp_path), fails), 10)


def test_a_panic_of_its_library_is_said(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 0.2)

    def fails(target: pace.Paced) -> None:
        with target.asked():
            raise PanicError("index out of range")

    found = said(Directory(tmp_path), fails, monkeypatch, tmp_path)
    assert found["error"].endswith("PanicError: index out of range")


def test_one_that_hangs_is_given_up_and_named(hung: Hung, tmp_path: Path, monkeypatch) -> None:
    """The thread that waits for it cannot be ended: the process was killed, and nobody knew why."""
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 0.2)
    found = said(hung, lambda target: target.has("a"), monkeypatch, tmp_path)
    assert found["error"].startswith(f"{tmp_path / 'backups'}: 0 bytes have come in 0 s")


def test_one_that_hangs_keeps_nobody_from_stopping_it(hung: Hung, tmp_path: Path, monkeypatch) -> None:
    def stop() -> None:
        assert hung.asked.wait(30)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    found = said(hung, lambda target: target.has("a"), monkeypatch, tmp_path)
    assert found["error"].startswith("it was told to stop")


async def test_what_is_half_written_when_it_is_stopped_is_taken_away(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(target: pace.Paced) -> None:
        with target.writing("a") as writer:
            while True:
                writer.write(b"1")
                begun.set()
                go_on.wait(0.01)

    dealt = asyncio.ensure_future(dealing.deal(Directory(tmp_path), work))
    assert await asyncio.to_thread(begun.wait, 30)
    dealt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dealt
    assert list(tmp_path.iterdir()) == []


def asked(verb: str) -> str:
    encryption = {"recipients": [fresh_identity()[1]]}
    more = {"node": "n1", "target": {}, "encryption": encryption, "controlPlane": {}, "file": "f", "beside": []}
    return json.dumps({"verb": verb, "backup": "b", **more})


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose member of etcd gives a snapshot that proves itself."""

    @asynccontextmanager
    async def taken(*_: object) -> AsyncIterator[None]:
        yield None

    async def proved(*_: object) -> None: ...

    (tmp_path / "marker").write_text(json.dumps({"cluster": "demo"}))
    monkeypatch.setattr(places, "NODE_MARKER", str(tmp_path / "marker"))
    monkeypatch.setattr(places, "HOST_ROOT", str(tmp_path))
    monkeypatch.setattr(backup, "snapshot_taken", taken)
    monkeypatch.setattr(wiring, "_proved", proved)
    monkeypatch.setattr(backup, "files_here", lambda _: [])
    monkeypatch.setattr(backup, "archive_of", lambda *_, **__: (CONTENTS, [Part("x", b"1")]))


@pytest.mark.parametrize(("verb", "when"), [("make", "has"), ("make", "reading"), ("remove", "remove")])
def test_the_pod_ends_whenever_its_target_hangs(
    hung: Hung, node: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, when: str
) -> None:
    def hangs(*_: object) -> None:
        assert hung.over.wait(60)
        raise OSError("the test is over")

    target = Directory(tmp_path / "backups")
    monkeypatch.setattr(target, when, hangs)
    monkeypatch.setattr(wiring, "_target", lambda _: target)
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 0.5)
    assert wiring.run(asked(verb), tmp_path / "said") == 1
    assert "no more is waited for" in json.loads((tmp_path / "said").read_text())["error"]


PROGRAM = """
import sys, threading
from pathlib import Path
from autarky.agents.backup import dealing, wiring
from autarky.archive import Directory, pace
pace.PATIENCE_SECONDS, dealing._LOOK_SECONDS, dealing._LEAVES_SECONDS = 0.1, 0.05, 0.05
target = Directory(Path(sys.argv[1]))
target.remove = lambda _: threading.Event().wait()
wiring._target = lambda _: target
request = '{"verb": "remove", "backup": "b", "target": {}, "file": "f"}'
sys.exit(wiring.run(request, Path(sys.argv[1], "said")))
"""


def test_the_process_ends_though_a_thread_of_it_hangs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], timeout=60, check=False, capture_output=True)
    assert done.returncode == 1, done.stderr
    assert "no more is waited for" in (tmp_path / "said").read_text()
