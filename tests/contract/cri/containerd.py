"""A real containerd of the test's own: its directories, its socket, its processes, its /run.

It runs in a PID and a mount namespace whose first process reads this test's commands: when the pipe ends,
however this process ends, the kernel kills everything in there (the shims as well) and drops every mount.
What can be left after a SIGKILL is a temporary directory and an empty cgroup.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

import pytest

from autarky.cri.client import CriClient
from autarky.errors import AutarkyError
from autarky.payload import Image, Store, default_version, find_binary, load_release
from autarky.payload.artefacts import stored_image
from autarky.payload.disk import remove_tree
from autarky.payload.oci import Entry, ImageConfig, Layer, write_archive, write_layer

START_LIMIT = 60.0
"""Seconds to answer; one or two are usual."""
SMALL = "example.org/small:1"
"""An image that nothing runs."""
_INIT = """\
mount -t tmpfs none /run
while read -r word; do
  case $word in
  start) "$1" --config "$2" >>"$3" 2>&1 </dev/null & ;;
  stop) kill $! && wait $! ;;
  kill) kill -9 $! && wait $! ;;
  freeze) kill -STOP $! ;;
  thaw) kill -CONT $! ;;
  esac
  echo done
done
"""
_CONFIG = """\
version = 3
root = '{directory}/root'
state = '{directory}/state'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.internal.v1.opt',
  'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.btrfs',
  'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.erofs',
  'io.containerd.snapshotter.v1.native', 'io.containerd.snapshotter.v1.zfs']
[grpc]
address = '{directory}/sock'
[ttrpc]
address = '{directory}/sock.ttrpc'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{directory}/cni']
conf_dir = '{directory}/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
runtime_path = '{shim}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{runc}'
SystemdCgroup = false
"""


@dataclass(frozen=True)
class Containerd:
    """`pause` and SMALL are its images. Its pods belong into `cgroup`."""

    directory: Path
    process: subprocess.Popen[str]
    ctr: Path
    pause: str

    @property
    def socket(self) -> str:
        return str(self.directory / "sock")

    @property
    def cgroup(self) -> str:
        return f"/{self.directory.name}"

    def tell(self, word: str) -> None:
        """start, stop, kill, freeze or thaw it; returns when that is done, which is before it answers."""
        reported, answer = _pipes(self.process)
        reported.write(f"{word}\n")
        reported.flush()
        assert answer.readline() == "done\n", f"no containerd any more: {self.log}"

    def images(self, *arguments: str) -> None:
        """`ctr images …`"""
        command = [str(self.ctr), "--address", str(self.socket), "--namespace", "k8s.io", "images", *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    async def wait_until_it_answers(self) -> None:
        cri = CriClient(self.socket)
        end = time.monotonic() + START_LIMIT
        try:
            while (seen := await _health(cri)) is not None:
                if time.monotonic() > end:
                    pytest.fail(f"containerd does not answer: {seen}; its log ends:\n{self.log}")
                await asyncio.sleep(0.05)
        finally:
            await cri.close()

    async def keep_only_its_images(self) -> None:
        """Removes what a test has left besides `pause` and SMALL, until CRI lists these two, by their names.

        CRI hears of a change by containerd's API a moment later, and gives each image its id as another name: that
        one is there before the first name is listed, and stays where only the first one is removed.
        """
        cri, ours = CriClient(self.socket), {(self.pause,), (SMALL,)}
        try:
            async with asyncio.timeout(START_LIMIT):
                while (found := {image.tags: image.id for image in await cri.images()}).keys() != ours:
                    if found.keys() > ours:
                        names = [name for tags in found.keys() - ours for name in (found[tags], *tags)]
                        await asyncio.to_thread(self.images, "rm", "--sync", *names)
                    await asyncio.sleep(0.02)
        finally:
            await cri.close()

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else "no log"


async def _health(cri: CriClient) -> str | None:
    try:
        await cri.pods()
    except AutarkyError as error:
        return str(error)
    return None


@contextmanager
def running_containerd() -> Iterator[Containerd]:
    """From when it answers and has its images to the end of the block."""
    if os.geteuid() != 0:
        pytest.fail("containerd needs root; fix: run the contract tests as root")
    program, ctr, pause = _binary("containerd"), _binary("ctr"), _pause_image()
    directory = Path(tempfile.mkdtemp(prefix="autarky-cri-"))  # short, as sockets need it
    config, log = directory / "config.toml", directory / "log"
    config.write_text(_config(directory, pause.reference))
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*apart, "sh", "-c", _INIT, "sh", str(program), str(config), str(log)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    containerd = Containerd(directory, process, ctr, pause.reference)
    try:
        containerd.tell("start")
        asyncio.run(containerd.wait_until_it_answers())
        containerd.images("import", "--local", str(pause.archive))
        containerd.images("import", "--local", str(_small_image(directory)))
        asyncio.run(containerd.keep_only_its_images())
        yield containerd
    finally:
        for pipe in _pipes(process):
            pipe.close()
        process.wait()
        _remove_cgroups(directory.name)
        remove_tree(directory)


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def _binary(name: str) -> Path:
    release = load_release(default_version())
    binary = find_binary(release, name)
    if binary is None:
        pytest.fail(f"{name} of {release.kubernetes} is not in the store; fix: run `autarky payload get`")
    return binary.path


def _pause_image() -> Image:
    release = load_release(default_version())
    (spec,) = (image for image in release.images if image.name == "pause")
    image = stored_image(Store(), release, spec)
    if image is None:
        pytest.fail(f"the pause image of {release.kubernetes} is not in the store; fix: run `autarky payload get`")
    return image


def _config(directory: Path, pause: str) -> str:
    shim, runc = _binary("containerd-shim-runc-v2"), _binary("runc")
    return _CONFIG.format(directory=directory, pause=pause, shim=shim, runc=runc)


def _small_image(directory: Path) -> Path:
    layer, archive = directory / "small.layer", directory / "small.tar"
    write_layer(layer, [Entry("small", 0o644, content=b"small")])
    content = layer.read_bytes()
    write_archive(archive, ImageConfig(SMALL, ["/small"]), [Layer(layer, sha256(content).hexdigest(), len(content))])
    return archive


def _remove_cgroups(name: str) -> None:
    """The directory of our pods in every hierarchy, with what killed pods have left in it."""
    root = Path("/sys/fs/cgroup")
    for top in (root / name, *root.glob(f"*/{name}")):
        for path in sorted(top.glob("**/"), reverse=True):
            with suppress(FileNotFoundError):
                path.rmdir()
