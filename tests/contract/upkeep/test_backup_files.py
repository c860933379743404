"""Which files of a control node a backup has: the same ones by a shell on a host and by the pod, which has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.hosts import LocalHost
from autarky.upkeep import backup

pytestmark = pytest.mark.contract

WANTED = {
    "etc/kubernetes/pki/ca.key": 0o600,
    "etc/kubernetes/pki/etcd/ca.key": 0o600,
    "etc/kubernetes/manifests/etcd.json": 0o600,
    "var/lib/autarky/state/node.json": 0o644,
    "var/lib/autarky/leaves/apiserver/tls.key": 0o640,
    "var/lib/autarky/standby/kube-apiserver/revisions/2/pod.json": 0o600,
}
SEEN_AS = {"standby/kube-apiserver/revisions/2": "standby/kube-apiserver/current"}
OTHERS = [
    "etc/kubernetes/pki/.autarky.ca.key",
    "etc/passwd",
    "var/lib/autarky/bin/etcd",
    "var/lib/autarky/standby/kube-apiserver/revisions/1/pod.json",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, mode in {**WANTED, **dict.fromkeys(OTHERS, 0o600)}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
        path.chmod(mode)
    (tmp_path / "var/lib/autarky/standby/kube-apiserver/current").symlink_to("revisions/2")
    return tmp_path


def as_seen(name: str) -> str:
    for where, link in SEEN_AS.items():
        name = name.replace(where, link)
    return f"host/{name}"


async def test_both_have_the_same_files(root: Path) -> None:
    by_shell = {one.name: (one.content, one.mode) for one in await backup.files_of(LocalHost("here"), str(root))}
    by_pod = {one.name: (one.content, one.mode) for one in backup.files_here(root)}
    assert by_shell == by_pod
    assert by_pod == {as_seen(name): (f"content of {name}".encode(), mode) for name, mode in WANTED.items()}


async def test_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "etc/kubernetes/pki").mkdir(parents=True)
    (tmp_path / "etc/kubernetes/pki/ca.crt").write_text("x")
    assert [one.name for one in await backup.files_of(LocalHost("here"), str(tmp_path))] == [
        "host/etc/kubernetes/pki/ca.crt"
    ]
    assert [one.name for one in backup.files_here(tmp_path)] == ["host/etc/kubernetes/pki/ca.crt"]
