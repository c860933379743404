"""The agent is killed right before any of its writes: the next one ends with what was ordered; and before the script
was asked, it was noted for what.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from autarky.control.kubelet.decide.order import Order
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.node import change
from autarky.control.kubelet.node.on_disk import KubeletFiles
from fakes.dying import KILLED, Writes, in_a_child
from unit.control.kubelet.node_scene import NEW, V37, Host, an_order, on_disk, stage


@pytest.fixture(autouse=True)
def _nothing_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it has written."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


class Dying:
    """Ends this process right before the agent's write of that number; the script's are none of these."""

    def __init__(self, number: int) -> None:
        self.left, self.is_the_script = number, False

    def __call__(self, _: int, what: str) -> None:
        self.left -= not self.is_the_script and not what.startswith("fsync")
        if self.left == 0 and not self.is_the_script:
            os._exit(KILLED)

    @contextmanager
    def script(self) -> Iterator[None]:
        self.is_the_script = True
        yield
        self.is_the_script = False


async def until_it_has_ended(host: Host, given: Order, dying: Dying | None = None) -> None:
    """The script does its part; what it writes is on the disk, and the API is that of this process."""
    host.gets(given)
    for _ in range(60):
        await host.passes(beats=True)
        with nullcontext() if dying is None else dying.script():
            the_script_acts(host)
        if host.report is not None and host.report.order == given.id and host.report.is_final:
            await host.passes(2)
            return
    raise AssertionError(f"it has not ended: {host.said}")


def the_script_acts(host: Host) -> None:
    if host.read("trial"):
        host.change_node(runs=V37)
        if host.read("verdict").get("verdict") == "good":
            host.script_ends("good")
    elif host.read("ask"):
        host.script_begins()


def test_killed_at_any_write_the_next_agent_ends_what_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, given = on_disk(tmp_path / "node"), an_order()
    stage(node, NEW)
    seen = set[str]()
    for number in itertools.count(1):
        root = node.with_name(f"at-{number}")
        shutil.copytree(node, root, symlinks=True)
        host = Host(root)
        monkeypatch.setattr(change, "plain_status", host.healthz)

        dying = Dying(number)

        def work(_: Writes, host: Host = host, dying: Dying = dying) -> None:
            asyncio.run(until_it_has_ended(host, given, dying))

        status = in_a_child(root, dying, work)
        assert status in (KILLED, 0)
        seen.add(is_consistent(root, given))
        host.clock.now = 1100.0
        asyncio.run(until_it_has_ended(host, given))
        found = KubeletFiles(root).read()
        assert found is not None
        assert found.disk.version == V37
        assert host.report is not None
        assert host.report.state is State.DONE
        assert (found.disk.ask, found.disk.trial) == ("", None)
        assert not [path for path in (root / "kubelet").iterdir() if path.name.startswith(".") and path.is_file()]
        shutil.rmtree(root)
        if status == 0:
            assert number > 20, "it has hardly written anything"
            break
    assert seen == {"nothing", "asked", "proving", "ended", "noted"}, "each part of a change was cut"


def is_consistent(root: Path, given: Order) -> str:
    """What was under way."""
    found = KubeletFiles(root).read()
    assert found is not None
    disk = found.disk
    if disk.ask or disk.trial is not None:
        assert disk.asked is not None
        assert (disk.asked.order, disk.asked.before.ready) == (given.id, True)
    if disk.last is not None:
        assert disk.result is not None
        assert disk.last.order == disk.result.order
        return "noted"
    if disk.result is not None:
        return "ended"
    return "proving" if disk.trial is not None else "asked" if disk.ask else "nothing"
