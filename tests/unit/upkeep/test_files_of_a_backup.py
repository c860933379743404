"""An encryption configuration that somebody has given to the hosted API server is in a backup, in the clear: the Secret
that it is mounted from may be in the snapshot only as it was encrypted with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky import places
from autarky.archive.contents import HOST, Contents, read
from autarky.archive.sealing import Part
from autarky.control.checkpoint.manifests import revision_from_pod
from autarky.control.checkpoint.node.checkpointer import write_revision
from autarky.control.slots.manifests import Revision
from autarky.etcd.snapshots import Intact, Tried
from autarky.hosts import LocalHost
from autarky.model.components import API_SERVER
from autarky.render.values import Object
from autarky.upkeep import backup
from fakes.encrypting import CONFIGURATION, IN_SECRET, MOUNT, hosted

FLAG = "--encryption-provider-config"
CURRENT = f"{HOST}var/lib/autarky/standby/{API_SERVER}/current"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control node with the checkpoint of that API server."""
    monkeypatch.setattr(places, "STANDBY", f"{tmp_path}{places.STANDBY}")
    revision: Revision = revision_from_pod(API_SERVER, *hosted(IN_SECRET))
    write_revision(revision)
    Path(places.STANDBY, API_SERVER, "current").symlink_to(revision.name)
    return tmp_path


def archived(files: list[Part]) -> Contents:
    taken = backup.Taken("x", 10, "3.6.16", 0xC1, ("n1",), 7)
    snapshot = backup.Snapshot(Path("x"), taken, Intact(10, "00"), Tried(7, 4))
    marker = backup.Marker("demo", "ca", "n1", "v1.37.1")
    _, [manifest, *_] = backup.archive_of(marker, snapshot, files, made="now", autarky="0.1", cluster={})
    assert isinstance(manifest.content, bytes)
    return read(manifest.content)


@pytest.mark.parametrize("by_shell", [False, True], ids=["by the pod", "by a shell"])
async def test_an_encryption_configuration_is_in_a_backup_where_the_standby_reads_it(
    root: Path, *, by_shell: bool
) -> None:
    files = await backup.files_of(LocalHost("here"), str(root)) if by_shell else backup.files_here(root)
    found = {one.name: one.content for one in files}
    content = found[f"{CURRENT}/pod.json"]
    assert isinstance(content, bytes)
    path = where_it_reads(json.loads(content))
    assert path.startswith(f"{root}{places.HOST_ROOT}/standby/")
    named = f"{CURRENT}/{path.partition(f'/{API_SERVER}/')[2].partition('/')[2]}"
    assert found[named] == CONFIGURATION.encode()
    assert archived(files).files[named].size == len(CONFIGURATION)


def where_it_reads(pod: Object) -> str:
    """The file on the node that the flag of this standby names."""
    container = next(one for one in pod["spec"]["containers"] if one["name"] == API_SERVER)
    flag = next(one for one in container["command"] if one.startswith(f"{FLAG}="))
    mount = next(one for one in container["volumeMounts"] if one["mountPath"] == MOUNT)
    volume = next(one for one in pod["spec"]["volumes"] if one["name"] == mount["name"])
    return flag.removeprefix(f"{FLAG}=").replace(MOUNT, volume["hostPath"]["path"])
