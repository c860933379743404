"""The images of the store in a real containerd: imported, copied as a lab host's, run; and killed on the way."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autarky import places
from autarky.errors import UserError
from autarky.payload import (
    Payload,
    containerd_template,
    copy_template,
    default_version,
    get_payload,
    load_release,
    template,
)
from autarky.payload.disk import remove_tree
from autarky.payload.programs import run_tool
from fakes.heard_progress import HeardProgress

SOME = ("agent", "haproxy", "kube-proxy", "kube-scheduler", "pause")
USERS_CACHE = os.environ.get("XDG_CACHE_HOME", "")
RUNTIME = ("containerd-shim-runc-v2", "runc")


@pytest.fixture(scope="module")
def payload() -> Payload:
    try:
        found = asyncio.run(get_payload(load_release(default_version()), HeardProgress(), sources=("store",)))
    except UserError as error:
        pytest.fail(f"{error}; run `autarky payload get`")
    return only(found, *SOME)


def only(payload: Payload, *images: str) -> Payload:
    return replace(payload, images={name: payload.images[name] for name in images})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache directory; hundreds of megabytes come and go in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield places.cache_dir() / "containerd-templates"
    remove_tree(tmp_path)


@asynccontextmanager
async def running(payload: Payload, root: Path) -> AsyncIterator[Sequence[str]]:
    """containerd on a host's directory; how to call ctr."""
    async with template._containerd(payload, root) as ctr:
        yield ctr


async def listed(ctr: Sequence[str]) -> dict[str, str]:
    return await template._listed(list(ctr))


@pytest.fixture
def path_with_runtime(payload: Payload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in RUNTIME:
        (directory / name).symlink_to(payload.binaries[name].path)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


@pytest.mark.contract
@pytest.mark.usefixtures("path_with_runtime")
async def test_a_host_made_from_the_template_has_the_images_and_runs_them(payload, cache, tmp_path):
    await copy_template(await containerd_template(payload, HeardProgress()), tmp_path / "host")
    async with running(payload, tmp_path / "host") as ctr:
        assert await listed(ctr) == {i.reference: i.manifest_digest for i in payload.images.values()}
        check = await run_tool([*ctr, "images", "check", "--quiet"])
        assert {i.reference for i in payload.images.values()} <= set(check.split())

        async def run(image: str, *argv: str) -> str:
            options = ["--rm", "--net-host", "--cgroup", f"autarky-test-{os.getpid()}"]
            return await run_tool([*ctr, "run", *options, payload.images[image].reference, f"test-{image}", *argv])

        assert str(payload.release.kubernetes) in await run("kube-scheduler", "kube-scheduler", "--version")
        assert "HAProxy version 2.6" in await run("haproxy", "haproxy", "-v")
        assert "nftables v" in await run("kube-proxy", "nft", "--version")
        program = "import autarky, ssl; print(autarky.__cached__, len(ssl.create_default_context().get_ca_certs()))"
        compiled, _, authorities = (await run("agent", "python3", "-c", program)).splitlines()[-1].partition(" ")
        assert compiled.endswith("/dist-packages/autarky/__pycache__/__init__.cpython-311.opt-2.pyc")
        assert int(authorities) > 100


@pytest.mark.contract
async def test_a_changed_set_of_images_costs_only_what_changed(payload, cache):
    first = await containerd_template(only(payload, "pause", "agent"), HeardProgress())
    reported = HeardProgress()
    second = await containerd_template(only(payload, "pause", "haproxy"), reported)
    assert reported.steps == [("importing images", 0, 1), ("importing images", 1, 1)]
    blobs = {path.name for path in second.glob("io.containerd.content.v1.content/blobs/sha256/*")}
    shared = payload.images["pause"].manifest_digest.removeprefix("sha256:")
    assert shared in blobs
    assert payload.images["agent"].manifest_digest.removeprefix("sha256:") not in blobs
    async with running(payload, second) as ctr:
        assert set(await listed(ctr)) == {payload.images[name].reference for name in ("pause", "haproxy")}
    async with running(payload, first) as ctr:
        assert set(await listed(ctr)) == {payload.images[name].reference for name in ("pause", "agent")}


@pytest.mark.contract
async def test_a_template_is_made_once(payload, cache):
    made = await containerd_template(only(payload, "pause"), HeardProgress())
    reported = HeardProgress()
    assert await containerd_template(only(payload, "pause"), reported) == made
    assert reported.steps == []


@pytest.mark.contract
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.7])
async def test_a_kill_in_the_middle_leaves_no_process_and_no_mount_and_is_made_good(payload, cache, seconds):
    script = (
        f"# {cache}: by this, a child that has not yet begun its own program is known\n"
        f"import os; cache = os.environ['XDG_CACHE_HOME']; os.environ['XDG_CACHE_HOME'] = {USERS_CACHE!r}\n"
        "import asyncio, dataclasses as d; from autarky.payload import *\n"
        "from fakes.heard_progress import HeardProgress\n"
        "p = asyncio.run(get_payload(load_release(default_version()), HeardProgress(), sources=('store',)))\n"
        "os.environ['XDG_CACHE_HOME'] = cache\n"
        f"p = d.replace(p, images={{name: p.images[name] for name in {SOME!r}}})\n"
        "asyncio.run(containerd_template(p, HeardProgress()))"
    )
    state = await asyncio.to_thread(kill_when_importing, script, cache, seconds)
    assert await asyncio.to_thread(stay_gone, cache, state) == []
    assert str(cache) not in Path("/proc/mounts").read_text()
    final = await containerd_template(only(payload, "pause"), HeardProgress())
    assert {path.name for path in cache.iterdir()} == {final.name, "lock"}
    assert not state.exists()


def kill_when_importing(script: str, cache: Path, seconds: float) -> Path:
    """Kill the script that long after it began to start containerd; the directory of containerd's sockets.

    The dead script's own children may still be on their way: see `stay_gone`."""
    path = f"{Path(__file__).parents[2]}:{os.environ.get('PYTHONPATH', '')}"
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path})
    while not (cache / ".state").is_symlink():
        assert process.poll() is None
        time.sleep(0.01)
    state = (cache / ".state").readlink()
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return state


def stay_gone(cache: Path, state: Path) -> list[str]:
    """The processes of a killed script that are left: none as soon as two looks in a row found none, or after a minute.

    One that only just started has to load its libraries before it can see that its parent is dead, and the disk may be
    busy with hundreds of megabytes. One look is not enough: between fork and exec a child has the script's command
    line, and while it is in exec it has none at all."""
    deadline = time.monotonic() + 60
    looks_without = 0
    while looks_without < 2 and time.monotonic() < deadline:
        looks_without = 0 if processes_with(cache, state) else looks_without + 1
        time.sleep(0.1)
    return processes_with(cache, state)


def processes_with(cache: Path, state: Path) -> list[str]:
    """The command lines that name one of the paths (the script's own does, and so its children's until they exec),
    with the state of each process and where in the kernel it waits."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(cache) in line or str(state) in line:
                run_state = re.search(r"State:.*", (file.parent / "status").read_text())
                found.append(f"{line} {run_state and run_state[0]} in {(file.parent / 'wchan').read_text()}")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
