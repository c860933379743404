"""Files out of images that a real containerd has imported."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import subprocess
import tarfile
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from autarky.control.kubelet.node.staging import Source, Staging, Wanted
from autarky.cri.image_files import ImageFileReader
from autarky.errors import Unreachable, UserError
from autarky.payload import default_version, find_binary, load_release
from autarky.payload.oci import Entry, ImageConfig, Layer, write_archive, write_layer
from autarky.ports import ImageFiles
from autarky.store import file_digest
from contract.cri.conftest import RealNode
from contract.cri.containerd import SMALL
from fakes.image_files import FakeImageFiles

PROGRAMS = "example.org/programs:1"
LARGE = 100 * 2**20


@pytest.fixture
async def reader(real_node: RealNode) -> AsyncIterator[ImageFileReader]:
    reader = ImageFileReader(real_node.containerd.socket)
    yield reader
    await reader.close()


def a_layer(path: Path, *entries: Entry) -> Layer:
    write_layer(path, entries)
    return Layer(path, file_digest(path), path.stat().st_size)


async def bring(node: RealNode, archive: Path) -> None:
    await asyncio.to_thread(node.containerd.images, "import", "--local", str(archive))


async def remove(node: RealNode, name: str) -> None:
    await asyncio.to_thread(node.containerd.images, "rm", "--sync", name)


async def content(reader: ImageFileReader, reference: str, *paths: str) -> dict[str, bytes]:
    found = await reader.find(reference, paths)
    files = {path: bytearray() for path in paths}
    await reader.read(found, {path: files[path].extend for path in paths})
    assert {path: file.size for path, file in found.files.items()} == {p: len(f) for p, f in files.items()}
    return {path: bytes(file) for path, file in files.items()}


async def test_files_of_an_image_are_read_and_a_later_layer_wins(
    real_node: RealNode, reader: ImageFileReader, tmp_path: Path
) -> None:
    below = a_layer(
        tmp_path / "below", Entry("bin/kubelet", 0o755, content=b"old"), Entry("bin/runc", 0o755, content=b"r" * 5000)
    )
    above = a_layer(tmp_path / "above", Entry("bin/kubelet", 0o755, content=b"new" * 3_000_000))
    write_archive(tmp_path / "image", ImageConfig(PROGRAMS, ["/bin/kubelet"]), [below, above])
    await bring(real_node, tmp_path / "image")
    assert await content(reader, PROGRAMS, "/bin/kubelet", "bin/runc") == {
        "/bin/kubelet": b"new" * 3_000_000,
        "bin/runc": b"r" * 5000,
    }
    await remove(real_node, PROGRAMS)


async def test_memory_stays_bounded_with_a_large_file(
    real_node: RealNode, reader: ImageFileReader, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    with program.open("wb") as out:
        for _ in range(LARGE // 2**20):
            out.write(os.urandom(2**20))
    layer = a_layer(tmp_path / "layer", Entry("kubelet", 0o755, source=program))
    write_archive(tmp_path / "image", ImageConfig(PROGRAMS, ["/kubelet"]), [layer])
    await bring(real_node, tmp_path / "image")
    digest, size = sha256(), 0

    def take(piece: bytes) -> None:
        nonlocal size
        digest.update(piece)
        size += len(piece)

    found = await reader.find(PROGRAMS, ["kubelet"])
    before = _start_of_peak()
    await reader.read(found, {"kubelet": take})
    grown = _memory("VmHWM") - before
    assert (size, digest.hexdigest()) == (LARGE, file_digest(program))
    assert grown < 24 * 2**20, f"{grown / 2**20:.0f} MiB more than before"
    await remove(real_node, PROGRAMS)


def _start_of_peak() -> int:
    """The kernel forgets the highest resident size so far; what it is now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def _as_a_registry_gives_it(directory: Path, reference: str) -> Path:
    """An image of two platforms, of which only ours is there, with a layer in gzip that has a whiteout."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in (("usr/bin/kubelet", b"k" * 100_000), ("usr/bin/.wh.runc", b"")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.pax_headers = len(data), 0o755, {"mtime": "1.5"}
            archive.addfile(entry, io.BytesIO(data))
    below = a_layer(directory / "below", Entry("usr/bin/runc", 0o755, content=b"old"))
    blobs = {
        "below": below.path.read_bytes(),
        "layer": gzip.compress(unpacked.getvalue()),
        "config": json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "rootfs": {
                    "type": "layers",
                    "diff_ids": [f"sha256:{below.sha256}", f"sha256:{sha256(unpacked.getvalue()).hexdigest()}"],
                },
            }
        ).encode(),
    }
    oci = "application/vnd.oci.image"
    types = {"below": f"{oci}.layer.v1.tar", "layer": f"{oci}.layer.v1.tar+gzip", "config": f"{oci}.config.v1+json"}

    def described(name: str) -> dict[str, object]:
        digest = f"sha256:{sha256(blobs[name]).hexdigest()}"
        return {"mediaType": types[name], "digest": digest, "size": len(blobs[name])}

    layers = [described("below"), described("layer")]
    manifest = {"schemaVersion": 2, "mediaType": f"{oci}.manifest.v1+json", "config": described("config")}
    blobs["manifest"] = json.dumps(manifest | {"layers": layers}).encode()
    types["manifest"] = f"{oci}.manifest.v1+json"
    ours = {**described("manifest"), "platform": {"os": "linux", "architecture": "amd64"}}
    other = {**ours, "digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "s390x"}}
    types["index"] = f"{oci}.index.v1+json"
    blobs["index"] = json.dumps({"schemaVersion": 2, "mediaType": types["index"], "manifests": [other, ours]}).encode()
    top = {"schemaVersion": 2, "mediaType": types["index"], "manifests": [described("index")]}
    top["manifests"] = [{**described("index"), "annotations": {"io.containerd.image.name": reference}}]
    files = {f"blobs/sha256/{sha256(blob).hexdigest()}": blob for blob in blobs.values()}
    files |= {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(top).encode()}
    write_layer(directory / "image", [Entry(name, 0o644, content=data) for name, data in files.items()])
    return directory / "image"


async def test_an_image_as_a_registry_gives_it(real_node: RealNode, reader: ImageFileReader, tmp_path: Path) -> None:
    await bring(real_node, _as_a_registry_gives_it(tmp_path, PROGRAMS))
    assert await content(reader, PROGRAMS, "usr/bin/kubelet") == {"usr/bin/kubelet": b"k" * 100_000}
    with pytest.raises(UserError, match=r"usr/bin/runc is not in it"):
        await reader.find(PROGRAMS, ["usr/bin/kubelet", "usr/bin/runc"])
    await remove(real_node, PROGRAMS)


async def test_a_layer_that_containerd_has_not_kept_is_named_with_the_setting(
    real_node: RealNode, reader: ImageFileReader, tmp_path: Path
) -> None:
    layer = a_layer(tmp_path / "layer", Entry("kubelet", 0o755, content=b"kubelet"))
    write_archive(tmp_path / "image", ImageConfig(PROGRAMS, ["/kubelet"]), [layer])
    await bring(real_node, tmp_path / "image")
    found = await reader.find(PROGRAMS, ["kubelet"])
    command = [str(real_node.containerd.ctr), "--address", real_node.containerd.socket, "--namespace", "k8s.io"]
    await asyncio.to_thread(subprocess.run, [*command, "content", "rm", f"sha256:{layer.sha256}"], check=True)
    with pytest.raises(UserError, match=r"(?s)has not kept sha256:.*discard_unpacked_layers"):
        await reader.read(found, {"kubelet": bytearray().extend})
    with pytest.raises(UserError, match=r"(?s)has not kept sha256:.*discard_unpacked_layers"):
        await reader.find(PROGRAMS, ["kubelet"])
    await remove(real_node, PROGRAMS)


async def test_the_kubelet_of_a_release_is_staged_out_of_an_image(
    real_node: RealNode, reader: ImageFileReader, tmp_path: Path
) -> None:
    release = load_release(default_version())
    kubelet = find_binary(release, "kubelet")
    assert kubelet is not None, "fix: run `autarky payload get`"
    layer = a_layer(tmp_path / "layer", Entry("kubelet", 0o755, source=kubelet.path))
    write_archive(tmp_path / "image", ImageConfig(PROGRAMS, ["/kubelet"]), [layer])
    await bring(real_node, tmp_path / "image")
    wanted = Wanted(str(release.kubernetes), {"kubelet": Source(PROGRAMS, "/kubelet")}, {}, {"arguments": b"--v=2\n"})
    root = tmp_path / "autarky"
    root.mkdir()
    staging = Staging(reader, root)
    generation = root / "kubelet" / await staging.stage(wanted)
    assert (generation / "kubelet").resolve().name == f"kubelet-{kubelet.sha256[:16]}"
    assert (generation / "complete").read_text() == f"generation {generation.name}\n"
    with pytest.raises(UserError, match=rf"is {release.kubernetes}, not v1\.0\.0"):
        await Staging(reader, root).stage(replace(wanted, version="v1.0.0"))
    await remove(real_node, PROGRAMS)


# --- as the fake ------------------------------------------------------------------------------------------


@pytest.fixture(params=["in memory", "containerd"])
def image_files(request: pytest.FixtureRequest) -> ImageFiles:
    """Of a node that has SMALL."""
    if request.param == "in memory":
        return FakeImageFiles({SMALL: {"small": b"small", "/small": b"small"}})
    found: ImageFileReader = request.getfixturevalue("reader")
    return found


async def test_a_file_is_found_and_read(image_files: ImageFiles) -> None:
    found = await image_files.find(SMALL, ["/small"])
    assert found.digest.startswith("sha256:")
    assert {path: file.size for path, file in found.files.items()} == {"/small": 5}
    taken = bytearray()
    await image_files.read(found, {"/small": taken.extend})
    assert taken == b"small"


async def test_an_image_that_is_not_there_and_a_file_that_is_not_are_told_apart(image_files: ImageFiles) -> None:
    with pytest.raises(UserError, match=r"example.org/absent:1 is not on this node\n  fix: bring it"):
        await image_files.find("example.org/absent:1", ["small"])
    with pytest.raises(UserError, match=r"other is not in it\n  fix: build"):
        await image_files.find(SMALL, ["small", "other"])


async def test_what_takes_the_content_runs_in_another_thread_and_may_fail(image_files: ImageFiles) -> None:
    threads = []

    def full(_: bytes) -> None:
        threads.append(threading.get_ident())
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await image_files.read(await image_files.find(SMALL, ["small"]), {"small": full})
    assert threads != [threading.get_ident()]
    assert len(threads) == 1


async def test_a_runtime_that_is_away_is_unreachable(real_node: RealNode, image_files: ImageFiles) -> None:
    found = await image_files.find(SMALL, ["small"])
    await real_node.stop_runtime()
    if isinstance(image_files, FakeImageFiles):
        image_files.outage = "the runtime is stopped"
    try:
        with pytest.raises(Unreachable):
            await image_files.find(SMALL, ["small"])
        with pytest.raises(Unreachable):
            await image_files.read(found, {"small": len})
    finally:
        await real_node.start_runtime()
    if isinstance(image_files, FakeImageFiles):
        image_files.outage = None
    await image_files.read(found, {"small": len})
