from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from autarky.payload.oci import Entry, ImageConfig, Layer, write_archive, write_layer, write_tree_layer
from autarky.store import file_digest

CONFIG = ImageConfig("registry.example/kube-apiserver:v1.36.4", ("/usr/local/bin/kube-apiserver",))


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        found = archive.getmembers()
    assert len({member.name for member in found}) == len(found)
    return {member.name: member for member in found}


def layer_of(path: Path) -> Layer:
    return Layer(path, file_digest(path), path.stat().st_size)


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    write_layer(tmp_path / "layer.tar", [Entry("usr/local/bin/x", 0o755, content=b"binary"), Entry("tmp", 0o1777)])
    return layer_of(tmp_path / "layer.tar")


def test_a_layer_is_the_same_bytes_whatever_the_time_and_the_order(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"content")
    entries = [Entry("b/two", 0o644, source=source), Entry("a/one", 0o755, content=b"x"), Entry("tmp", 0o1777)]
    write_layer(tmp_path / "first.tar", entries)
    os.utime(source, (1, 1))
    write_layer(tmp_path / "second.tar", reversed(entries))
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


def test_a_layer_has_the_directories_above_its_files_and_belongs_to_root(layer):
    found = members(layer.path)
    assert list(found) == ["tmp", "usr", "usr/local", "usr/local/bin", "usr/local/bin/x"]
    assert found["usr/local"].isdir()
    assert (found["usr/local/bin/x"].mode, found["tmp"].mode) == (0o755, 0o1777)
    assert {(member.uid, member.gid, member.mtime) for member in found.values()} == {(0, 0, 0)}


def test_a_link_in_a_layer_leads_where_it_was_told(tmp_path):
    write_layer(tmp_path / "layer.tar", [Entry("bin/sh", 0o777, link="busybox"), Entry("agnhost", 0o777, link="a/b")])
    found = members(tmp_path / "layer.tar")
    assert {name: member.linkname for name, member in found.items() if member.issym()} == {
        "bin/sh": "busybox",
        "agnhost": "a/b",
    }
    assert found["bin"].isdir()


def test_an_archive_is_the_same_bytes_and_a_changed_layer_changes_its_digest(tmp_path, layer):
    first = write_archive(tmp_path / "first.tar", CONFIG, [layer])
    assert write_archive(tmp_path / "second.tar", CONFIG, [layer]) == first
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
    write_layer(tmp_path / "other-layer.tar", [Entry("other", 0o644, content=b"")])
    assert write_archive(tmp_path / "third.tar", CONFIG, [layer_of(tmp_path / "other-layer.tar")]) != first


def test_an_archive_is_an_image_layout_whose_digests_are_right(tmp_path, layer):
    digest = write_archive(tmp_path / "image.tar", CONFIG, [layer])
    with tarfile.open(tmp_path / "image.tar") as archive:
        content = {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
    for name, found in content.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(found).hexdigest()}"

    def blob(descriptor: dict) -> bytes:
        found = content[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert descriptor["size"] == len(found)
        return found

    [described] = json.loads(content["index.json"])["manifests"]
    assert described["digest"] == digest
    assert described["annotations"]["io.containerd.image.name"] == CONFIG.reference
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [entry["digest"] for entry in manifest["layers"]]
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/kube-apiserver"]
    with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]))) as inner:
        assert "usr/local/bin/x" in inner.getnames()


def test_a_tree_layer_holds_what_the_tree_has_and_the_one_below_has_not(tmp_path):
    for name in ("tree", "below"):
        (tmp_path / name / "etc").mkdir(parents=True)
        (tmp_path / name / "etc" / "same").write_text("same")
        (tmp_path / name / "link").symlink_to("etc")
    (tmp_path / "tree" / "etc" / "changed").write_text("new!")
    (tmp_path / "below" / "etc" / "changed").write_text("old!")
    (tmp_path / "tree" / "etc" / "added").write_text("x")
    (tmp_path / "tree" / "etc" / "hard").hardlink_to(tmp_path / "tree" / "etc" / "added")
    write_tree_layer(tmp_path / "layer.tar", tmp_path / "tree", below=tmp_path / "below")
    found = members(tmp_path / "layer.tar")
    assert list(found) == ["etc/added", "etc/changed", "etc/hard"]
    assert all(member.isreg() for member in found.values())
    assert {(member.uid, member.uname, member.mtime) for member in found.values()} == {(0, "", 0)}


def test_a_tree_layer_may_take_some_paths_only(tmp_path):
    for name in ("usr/sbin/haproxy", "usr/sbin/other", "etc/passwd"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text("")
    write_tree_layer(tmp_path / "layer.tar", tmp_path / "tree", only=["/usr/sbin/haproxy"])
    assert list(members(tmp_path / "layer.tar")) == ["usr", "usr/sbin", "usr/sbin/haproxy"]
