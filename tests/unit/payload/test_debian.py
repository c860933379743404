from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.payload import debian, default_version, load_release
from autarky.payload.debian import below, debian_key, unpack


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("usr/share/doc/x/readme", "usr/bin/dpkg", "usr/bin/kept", "lib/libx.so.1.2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_stripping_takes_directories_files_and_links_and_leaves_what_links_lead_to(tree):
    (tree / "run").symlink_to("usr/bin")
    debian._strip(tree)
    kept = {str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir()}
    assert kept == {"usr/bin/kept", "lib/libx.so.1.2"}


def test_a_library_is_kept_with_the_links_that_lead_to_it(tree):
    (tree / "lib/libx.so.1").symlink_to("libx.so.1.2")
    (tree / "lib64").mkdir()
    (tree / "lib64/libx.so").symlink_to("/lib/libx.so.1")
    chain = debian._link_chain(tree, tree / "lib64/libx.so")
    assert [str(path.relative_to(tree)) for path in chain] == ["lib64/libx.so", "lib/libx.so.1", "lib/libx.so.1.2"]


def test_certificates_become_one_bundle_in_the_order_of_their_names(tree):
    directory = tree / "usr/share/ca-certificates/mozilla"
    directory.mkdir(parents=True)
    for name in ("b.crt", "a.crt"):
        (directory / name).write_text(f"{name}\n")
    debian._bundle_certificates(tree)
    assert (tree / "etc/ssl/certs/ca-certificates.crt").read_text() == "a.crt\nb.crt\n"


async def test_upper_archives_are_unpacked_over_lower_ones_without_device_nodes(tmp_path):
    for number, content in enumerate((b"lower", b"upper")):
        (tmp_path / "file").write_bytes(content)
        (tmp_path / f"only-{number}").write_bytes(content)
        with tarfile.open(tmp_path / f"{number}.tar", "w") as archive:
            archive.add(tmp_path / "file", "./file")
            archive.add(tmp_path / f"only-{number}", f"./only-{number}")
            archive.add(tmp_path / "file", "./dev/null")
    await unpack([tmp_path / "0.tar", tmp_path / "1.tar"], tmp_path / "tree")
    assert {path.name: path.read_bytes() for path in (tmp_path / "tree").iterdir()} == {
        "file": b"upper",
        "only-0": b"lower",
        "only-1": b"upper",
    }


def test_a_layers_key_follows_its_packages_and_those_below():
    release = load_release(default_version())
    haproxy, network = release.layer("haproxy"), release.layer("network")
    key = debian_key(release, haproxy)
    assert debian_key(release, replace(haproxy, packages=("haproxy", "socat"))) != key
    others = tuple(replace(layer, packages=("nftables",)) if layer == network else layer for layer in release.layers)
    assert debian_key(replace(release, layers=others), haproxy) != key
    assert debian_key(replace(release, suite="trixie"), haproxy) != key


def test_layers_are_named_lowest_first():
    assert below(load_release(default_version()), "haproxy") == ["network", "haproxy"]
