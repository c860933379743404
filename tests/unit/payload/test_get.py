from __future__ import annotations

import asyncio
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.errors import UserError
from autarky.payload import Release, Store, default_version, find_binary, get_payload, gobuild, load_release, needs
from autarky.payload.artefacts import binary_key
from fakes.heard_progress import HeardProgress


@pytest.fixture
def release() -> Release:
    """Of binaries only: images are made of them, and of Debian packages."""
    return replace(load_release(default_version()), images=())


class Builder:
    """Instead of Go: what it "builds" is the name of each binary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: list[str] = []
        monkeypatch.setattr(gobuild, "find_go", self._find_go)
        monkeypatch.setattr(gobuild, "build_binaries", self._build)
        # Else a machine without a C compiler and its headers would fail here, as a fresh one is.
        monkeypatch.setattr("autarky.payload.get.refuse_missing_tools", self._everything_is_here)

    async def _everything_is_here(self, _needs) -> None:
        return

    async def _find_go(self, _progress) -> str:
        return "go"

    async def _build(self, _go, store, component, binaries, _progress) -> None:
        for binary in binaries:
            await asyncio.sleep(0)
            self.built.append(binary.name)
            with store.scratch(f"build-{binary.name}") as scratch:
                (scratch / "out").write_text(binary.name)
                digest, size = store.add(scratch / "out")
            store.write_record(binary_key(component, binary), {"sha256": digest, "size": size, "name": binary.name})


@pytest.fixture
def builder(own_store: Store, monkeypatch: pytest.MonkeyPatch) -> Builder:
    return Builder(monkeypatch)


async def test_only_what_the_groups_need_is_built_and_nothing_twice(builder, release):
    first = await get_payload(release, HeardProgress(), groups=("test",))
    assert builder.built == ["agnhost"]
    assert first.binaries["agnhost"].path.read_text() == "agnhost"
    assert needs(release, ("test",)) == []
    await get_payload(release, HeardProgress(), groups=("test", "bench"))
    assert builder.built == ["agnhost", "kubeadm"]


async def test_two_at_once_build_everything_once(builder, release):
    reported = HeardProgress(), HeardProgress()
    payloads = await asyncio.gather(*(get_payload(release, one) for one in reported))
    assert len(builder.built) == len(set(builder.built)) == len(payloads[0].binaries)
    assert payloads[0] == payloads[1]
    assert [note for one in reported for note in one.notes] == ["waiting for another process that builds"]


def layers_in(archive: Path) -> list[dict[str, bytes]]:
    """Of each layer of the image, lowest first: file → content."""
    with tarfile.open(archive) as image:

        def blob(described: dict[str, str]) -> bytes:
            file = image.extractfile(f"blobs/sha256/{described['digest'].removeprefix('sha256:')}")
            assert file is not None
            return file.read()

        index = image.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.loads(index.read())["manifests"][0]))
        return [files_in(blob(layer)) for layer in manifest["layers"]]


def files_in(layer: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}


async def test_an_image_with_nothing_below_is_one_layer_and_needs_no_debian(builder, release, monkeypatch):
    asked = []

    async def ask(needed):
        asked.append(needed)

    monkeypatch.setattr("autarky.payload.get.refuse_missing_tools", ask)
    alone = replace(release, images=(load_release(default_version()).image("container-runtime"),))
    built = await get_payload(alone, HeardProgress())
    assert [needed.layers for needed in asked] == [False]
    [layer] = layers_in(built.images["container-runtime"].archive)
    assert layer["usr/local/bin/runc"] == b"runc"
    assert needs(alone, ("cluster",)) == []


async def test_a_changed_blob_is_made_again_and_that_is_said(builder, release):
    await get_payload(release, HeardProgress(), groups=("test",))
    binary = find_binary(release, "agnhost")
    assert binary is not None
    binary.path.write_text("changed")
    reported = HeardProgress()
    await get_payload(release, reported, groups=("test",))
    assert builder.built == ["agnhost", "agnhost"]
    assert binary.path.read_text() == "agnhost"
    assert reported.notes == [f"blob {binary.sha256[:16]} of the store is damaged; it is built again"]


async def test_the_store_alone_is_enough_when_it_has_everything(builder, release):
    with pytest.raises(UserError, match=r"not in the store: binary agnhost\n  fix: autarky payload get v1\..* --group"):
        await get_payload(release, HeardProgress(), groups=("test",), sources=("store",))
    built = await get_payload(release, HeardProgress(), groups=("test",))
    assert await get_payload(release, HeardProgress(), groups=("test",), sources=("store",)) == built


async def test_a_source_that_does_not_exist_yet_is_refused_by_name(own_store, release):
    with pytest.raises(UserError, match="unknown source registry"):
        await get_payload(release, HeardProgress(), sources=("store", "registry"))


async def test_an_image_is_missing_while_its_binary_is(own_store):
    assert needs(load_release(default_version()), ("test",)) == ["binary agnhost", "image agnhost"]


async def test_another_processor_is_refused(own_store, release, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match="x86_64 so far; this machine is aarch64"):
        await get_payload(release, HeardProgress(), groups=("test",))


@pytest.mark.parametrize(
    ("said", "version"),
    [("go1.26.8", (1, 26, 8)), ("go1.27", (1, 27)), ("devel go1.28-abc", (1, 28)), ("", (0, 0, 0))],
)
async def test_the_version_of_go_is_read(tmp_path, said, version):
    program = tmp_path / "go"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    assert await gobuild.go_version(str(program)) == version


async def test_a_go_that_does_not_work_is_no_go(tmp_path):
    (tmp_path / "go").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "go").chmod(0o755)
    assert await gobuild.go_version(str(tmp_path / "go")) == (0, 0, 0)
    assert await gobuild.go_version(str(tmp_path / "none")) == (0, 0, 0)
