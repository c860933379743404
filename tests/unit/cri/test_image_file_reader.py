"""From the name of an image to the content of its files, by what a containerd answers."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import platform
import tarfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autarky.cri.image_files import ImageFileReader
from autarky.cri.layers import PIECE
from autarky.errors import Unreachable, UserError
from fakes.content_server import ContentServer

IMAGE = "autarky.dev/kubelet:v1.37.1"
WINDOW = 700
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def tar(**files: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ContentServer]:
    server = ContentServer()
    async with server.at(str(tmp_path / "sock")):
        yield server


@pytest.fixture
async def reader(server: ContentServer, tmp_path: Path) -> AsyncIterator[ImageFileReader]:
    reader = ImageFileReader(str(tmp_path / "sock"), timeout=2, window=WINDOW)
    yield reader
    await reader.close()


async def content(reader: ImageFileReader, *paths: str, image: str = IMAGE) -> dict[str, bytes]:
    files = {path: bytearray() for path in paths}
    await reader.read(await reader.find(image, paths), {path: files[path].extend for path in paths})
    return {path: bytes(file) for path, file in files.items()}


async def test_files_of_several_layers_are_found_and_read_in_windows(
    server: ContentServer, reader: ImageFileReader
) -> None:
    manifest = server.put_image(
        IMAGE, tar(kubelet=b"old", runc=b"r" * 3000), gzip.compress(tar(kubelet=b"new" * 5000, other=b""))
    )
    found = await reader.find(IMAGE, ["/kubelet", "runc"])
    assert found.digest == manifest
    assert {path: file.size for path, file in found.files.items()} == {"/kubelet": 15000, "runc": 3000}
    assert await content(reader, "/kubelet", "runc") == {"/kubelet": b"new" * 5000, "runc": b"r" * 3000}
    assert all(0 < size <= WINDOW for _, _, size in server.asked)


async def test_finding_does_not_read_what_is_in_the_files(server: ContentServer, reader: ImageFileReader) -> None:
    server.put_image(IMAGE, tar(big=b"b" * 1_000_000, kubelet=b"k"))
    assert (await reader.find(IMAGE, ["kubelet"])).files["kubelet"].size == 1
    assert sum(size for _, _, size in server.asked) < 20 * WINDOW


async def test_layers_below_are_not_read_where_nothing_is_left_to_find(
    server: ContentServer, reader: ImageFileReader
) -> None:
    server.put_image(IMAGE, b"no archive" * 100, tar(kubelet=b"k"))
    assert await content(reader, "kubelet") == {"kubelet": b"k"}


async def test_an_index_leads_to_the_manifest_of_this_machine(server: ContentServer, reader: ImageFileReader) -> None:
    ours = {"digest": server.put_manifest([tar(kubelet=b"ours")])}
    other = {"digest": server.put_manifest([tar(kubelet=b"other")])}
    index = {
        "manifests": [
            {**other, "platform": {"os": "linux", "architecture": "s390x"}},
            {**other, "platform": {"os": "windows", "architecture": MACHINE}},
            {**ours, "platform": {"os": "linux", "architecture": MACHINE}},
        ]
    }
    server.images[IMAGE] = server.put(json.dumps(index).encode())
    assert await content(reader, "kubelet") == {"kubelet": b"ours"}
    server.images[IMAGE] = server.put(json.dumps({"manifests": [ours]}).encode())
    assert await content(reader, "kubelet") == {"kubelet": b"ours"}
    for number in (1, 2):
        server.images[IMAGE] = server.put(json.dumps({"manifests": index["manifests"][:number]}).encode())
        with pytest.raises(UserError, match="no manifest with layers for this machine"):
            await reader.find(IMAGE, ["kubelet"])


# --- refused, with the fix -----------------------------------------------------------------------------------


async def test_an_image_that_is_not_there_is_refused(server: ContentServer, reader: ImageFileReader) -> None:
    server.put_image("autarky.dev/kubelet:v1.36.4", tar(kubelet=b"k"))
    with pytest.raises(UserError, match=r"v1\.37\.1 is not on this node\n  fix: .*payload push"):
        await reader.find(IMAGE, ["kubelet"])


async def test_all_that_is_wrong_with_the_files_is_named(server: ContentServer, reader: ImageFileReader) -> None:
    server.put_image(IMAGE, tar(**{"runc": b"old", "ctr/": b""}), tar(**{".wh.runc": b""}))
    with pytest.raises(UserError, match=r"/kubelet is not in it, runc is not in it\n  fix: build"):
        await reader.find(IMAGE, ["/kubelet", "runc"])


async def test_content_that_was_discarded_is_refused(server: ContentServer, reader: ImageFileReader) -> None:
    layer = tar(kubelet=b"k")
    manifest = server.put_image(IMAGE, layer)
    found = await reader.find(IMAGE, ["kubelet"])
    del server.blobs[server.put(layer)]
    for work in (reader.read(found, {"kubelet": len}), reader.find(IMAGE, ["kubelet"])):
        with pytest.raises(UserError, match=r"has not kept sha256:.*\n  fix: .*discard_unpacked_layers"):
            await work
    del server.blobs[manifest]
    with pytest.raises(UserError, match=rf"has not kept {manifest[:19]}"):
        await reader.find(IMAGE, ["kubelet"])


async def test_content_that_vanishes_in_the_middle_is_refused(server: ContentServer, reader: ImageFileReader) -> None:
    layer = tar(kubelet=b"k" * 5000)
    server.put_image(IMAGE, layer)
    found = await reader.find(IMAGE, ["kubelet"])

    def remove(_: bytes) -> None:
        server.blobs.pop(found.files["kubelet"].layer, None)

    with pytest.raises(UserError, match="has not kept sha256:"):
        await reader.read(found, {"kubelet": remove})


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (b"null", "damaged"),
        (b"\xff", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"{}", "no manifest with layers"),
        (b'{"layers": "x"}', "no manifest with layers"),
        (b'{"layers": [{"digest": "md5:0"}]}', "no manifest with layers"),
        (b'{"layers": [{"digest": 1}]}', "no manifest with layers"),
        (b'{"layers": [{}]}', "no manifest with layers"),
        (json.dumps({"layers": [{"digest": f"sha256:{'0' * 64}"}] * 128}).encode(), "no manifest with layers"),
        (b'{"manifests": 1}', "no manifest with layers"),
        (b'{"manifests": [{"digest": 1}]}', "no manifest with layers"),
    ],
)
async def test_a_manifest_that_is_none_is_refused(
    server: ContentServer, reader: ImageFileReader, manifest: bytes, says: str
) -> None:
    server.images[IMAGE] = server.put(manifest)
    with pytest.raises(UserError, match=says):
        await reader.find(IMAGE, ["kubelet"])


async def test_a_manifest_of_an_absurd_size_is_not_read(server: ContentServer, reader: ImageFileReader) -> None:
    server.images[IMAGE] = server.put(b" " * (4 * 2**20 + 1))
    with pytest.raises(UserError, match="has 4194305 bytes"):
        await reader.find(IMAGE, ["kubelet"])
    assert not server.asked


async def test_a_manifest_with_other_content_is_refused(server: ContentServer, reader: ImageFileReader) -> None:
    digest = server.put_image(IMAGE, tar(kubelet=b"k"))
    server.blobs[digest] = server.blobs[server.put_manifest([tar(kubelet=b"x")])]
    with pytest.raises(UserError, match="damaged"):
        await reader.find(IMAGE, ["kubelet"])


async def test_a_layer_with_other_content_is_refused_after_it_was_read(
    server: ContentServer, reader: ImageFileReader
) -> None:
    layer = tar(kubelet=b"k" * 2000)
    server.put_image(IMAGE, layer)
    server.blobs[server.put(layer)] = layer.replace(b"kkkk", b"xxxx")
    with pytest.raises(UserError, match="content that its digest says"):
        await content(reader, "kubelet")


async def test_a_layer_that_cannot_be_read_is_named_with_its_image(
    server: ContentServer, reader: ImageFileReader
) -> None:
    server.put_image(IMAGE, b"\x28\xb5\x2f\xfd" + b"\0" * 3000)
    with pytest.raises(UserError, match=rf"of the image {IMAGE} is compressed with zstd\n  fix: .*gzip"):
        await reader.find(IMAGE, ["kubelet"])


# --- no answer -----------------------------------------------------------------------------------------------


async def test_fewer_bytes_than_asked_for_are_no_answer(server: ContentServer, reader: ImageFileReader) -> None:
    server.put_image(IMAGE, tar(kubelet=b"k"))
    server.shorter = 1
    with pytest.raises(Unreachable, match="bytes of"):
        await reader.find(IMAGE, ["kubelet"])


async def test_a_containerd_that_hangs_is_unreachable(server: ContentServer, tmp_path: Path) -> None:
    server.put_image(IMAGE, tar(kubelet=b"k" * 5000))
    path = str(tmp_path / "sock")
    patient, reader = ImageFileReader(path, window=WINDOW), ImageFileReader(path, timeout=0.1, window=WINDOW)
    try:
        found = await patient.find(IMAGE, ["kubelet"])
        server.frozen = asyncio.Event()
        with pytest.raises(Unreachable, match=r"within 0\.1 s"):
            await reader.read(found, {"kubelet": len})
        server.frozen.set()
    finally:
        await patient.close()
        await reader.close()


async def test_nobody_at_the_socket_is_unreachable(tmp_path: Path) -> None:
    reader = ImageFileReader(str(tmp_path / "nobody"))
    with pytest.raises(Unreachable):
        await reader.find(IMAGE, ["kubelet"])
    await reader.close()


async def test_what_takes_the_content_may_fail(server: ContentServer, reader: ImageFileReader) -> None:
    server.put_image(IMAGE, tar(kubelet=b"k" * 5000))

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await reader.read(await reader.find(IMAGE, ["kubelet"]), {"kubelet": full})
    assert await content(reader, "kubelet") == {"kubelet": b"k" * 5000}


@pytest.mark.parametrize("where", ["in what takes the content", "in containerd"])
async def test_cancelled_it_ends_with_its_thread(server: ContentServer, tmp_path: Path, where: str) -> None:
    server.put_image(IMAGE, tar(kubelet=b"k" * 500_000))
    reader = ImageFileReader(str(tmp_path / "sock"), timeout=30, window=WINDOW)
    found = await reader.find(IMAGE, ["kubelet"])
    begun, released, given = threading.Event(), threading.Event(), []

    def take(piece: bytes) -> None:
        given.append(len(piece))
        begun.set()
        released.wait(20)

    if where == "in containerd":
        server.frozen, server.asked = asyncio.Event(), []
    reading = asyncio.create_task(reader.read(found, {"kubelet": take}))
    while not (server.asked if server.frozen else begun.is_set()):  # noqa: ASYNC110 # a thread sets it
        await asyncio.sleep(0.001)
    reading.cancel()
    await asyncio.sleep(0.05)
    assert reading.done() == (server.frozen is not None)
    released.set()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert given == ([] if server.frozen else [PIECE])
    if server.frozen is not None:
        server.frozen.set()
    await reader.close()
