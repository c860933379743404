from __future__ import annotations

from pathlib import Path

import pytest

from autarky.payload import (
    Image,
    Payload,
    containerd_template,
    copy_template,
    default_version,
    image_reference,
    load_release,
)
from autarky.payload import template as template_module
from fakes.heard_progress import HeardProgress

BLOB = "io.containerd.content.v1.content/blobs/sha256/abc"
SNAPSHOT = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/usr/bin/x"
WRITTEN_IN_PLACE = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
    "io.containerd.content.v1.content/ingest/half",
    "io.containerd.something.new/state",
    "top",
)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    root = tmp_path / "template"
    for name in (BLOB, SNAPSHOT, *WRITTEN_IN_PLACE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "io.containerd.snapshotter.v1.overlayfs").chmod(0o700)
    (root / SNAPSHOT).with_name("link").symlink_to("x")
    return root


async def test_blobs_and_snapshots_are_linked_and_all_else_is_copied(template, tmp_path):
    await copy_template(template, tmp_path / "copy")
    for name in (BLOB, SNAPSHOT):
        assert (tmp_path / "copy" / name).samefile(template / name)
    for name in WRITTEN_IN_PLACE:
        assert not (tmp_path / "copy" / name).samefile(template / name)
        assert (tmp_path / "copy" / name).read_text() == name


async def test_a_copy_has_the_modes_and_links_of_the_template(template, tmp_path):
    await copy_template(template, tmp_path / "copy")
    assert (tmp_path / "copy" / "io.containerd.snapshotter.v1.overlayfs").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "copy" / SNAPSHOT).with_name("link").readlink() == Path("x")


async def test_removing_from_a_copy_leaves_the_template_intact(template, tmp_path):
    await copy_template(template, tmp_path / "copy")
    (tmp_path / "copy" / BLOB).unlink()
    assert (template / BLOB).read_text() == BLOB


async def test_a_copy_is_not_made_over_another(template, tmp_path):
    (tmp_path / "copy").mkdir()
    with pytest.raises(FileExistsError):
        await copy_template(template, tmp_path / "copy")


@pytest.mark.usefixtures("own_store")
async def test_a_lab_host_starts_without_the_images_that_nobody_runs_or_few_clusters(monkeypatch, tmp_path):
    """Else no test host would show whether an upgrade brings them."""
    made = []

    async def make(payload: Payload, final: Path, _: object) -> None:
        made.append(set(payload.images))
        final.mkdir(parents=True)

    monkeypatch.setattr(template_module, "_make", make)
    (tmp_path / "autarky/containerd-templates").mkdir(parents=True)
    release = load_release(default_version())

    def payload_of(*names: str) -> Payload:
        images = [Image(n, image_reference(release, n), tmp_path, "0" * 64, 1, f"sha256:{n}") for n in names]
        return Payload(release, {}, {image.name: image for image in images})

    first = await containerd_template(payload_of("pause", "agent", "kubelet", "container-runtime"), HeardProgress())
    assert made == [{"pause", "agent"}]
    assert await containerd_template(payload_of("pause", "agent"), HeardProgress()) == first
    assert made == [{"pause", "agent"}]
