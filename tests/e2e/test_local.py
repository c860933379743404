"""The `local` driver: `autarky up` run on the machine that becomes the node.

The machine is a lab host, entered from outside: it is given Debian's Python (from the payload's own layers),
this checkout with its dependencies, and the component store; then everything happens inside.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import TestCluster

import autarky
from autarky import places
from autarky.payload import default_version, load_release
from autarky.payload.artefacts import needed_records
from autarky.payload.debian import debian_key
from autarky.payload.store import Store

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(900)]

NAME = "t-local"
FILE = {
    "apiVersion": "autarky.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "local"},
    "spec": {"nodes": [{"name": "n1", "host": "local"}]},
}
AUTARKY = "cd / && PYTHONPATH=/opt/autarky/src:/opt/autarky/site XDG_CACHE_HOME=/opt/cache python3 -m autarky"


@pytest.fixture(scope="module")
def machine() -> Iterator[TestCluster]:
    driver = TestCluster(NAME, {})
    driver.down()
    driver.autarky("lab", "up", NAME, "--hosts", "1")
    root = Path(f"/proc/{_record(driver)['pid']}/root")
    _give_python(root)
    _give_checkout(root)
    _give_store(root)
    (root / "root/local.yaml").write_text(json.dumps(FILE))
    yield driver
    driver.down()


def _record(driver: TestCluster) -> dict[str, int]:
    state = json.loads((driver.directory.parents[1] / "labs" / NAME / "lab.json").read_text())
    record: dict[str, int] = state["hosts"]["n1"]
    return record


def _give_python(root: Path) -> None:
    store, release = Store(), load_release(default_version())
    record = store.record(debian_key(release, release.layer("python")))
    assert record is not None, "run `autarky payload get` first"
    layer = store.blob_path(record["sha256"])
    subprocess.run(["tar", "-C", str(root), "--keep-directory-symlink", "-xf", str(layer)], check=True)


def _give_checkout(root: Path) -> None:
    assert sys.version_info[:2] == (3, 11), "the dependencies of this environment must fit Debian's Python 3.11"
    package = Path(autarky.__file__).parent
    site = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    shutil.copytree(package, root / "opt/autarky/src/autarky", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        site, root / "opt/autarky/site", ignore=shutil.ignore_patterns("__pycache__", "pip", "mypy*", "ruff*")
    )


def _give_store(root: Path) -> None:
    """Only the blobs that this release needs."""
    source, target = places.cache_dir() / "store", root / "opt/cache/autarky/store"
    shutil.copytree(source / "records", target / "records")
    (target / "blobs/sha256").mkdir(parents=True)
    store = Store()
    for key in needed_records(store, load_release(default_version())):
        record = store.record(key)
        if record is not None and store.blob_path(record["sha256"]).exists():
            shutil.copy(store.blob_path(record["sha256"]), target / "blobs/sha256")


def test_up_on_the_machine_itself_brings_a_cluster_up(machine: TestCluster) -> None:
    said = machine.autarky(
        "lab", "shell", "--lab", NAME, "n1", "--", "sh", "-c", f"{AUTARKY} up -f /root/local.yaml -o plain 2>&1"
    )
    assert "up: changed" in said.stdout, said.stdout[-3000:]
    status = json.loads(machine.shell("n1", f"{AUTARKY} status -o json"))
    assert status["healthy"], status


def test_again_it_changes_nothing(machine: TestCluster) -> None:
    assert "up: unchanged" in machine.shell("n1", f"{AUTARKY} up -f /root/local.yaml -o plain 2>&1")


def test_down_leaves_the_machine_clean_but_keeps_data_and_keys(machine: TestCluster) -> None:
    machine.shell("n1", f"{AUTARKY} down -f /root/local.yaml --yes -o plain 2>&1")
    assert machine.shell("n1", "ls -A /var/lib/autarky").strip() == ""
    # /var/lib/etcd is a mount point on a lab host, so what was in it is kept below it.
    kept = machine.shell("n1", "ls -d /var/lib/etcd/kept.*/member /etc/kubernetes/pki.*/ca.key /etc/kubernetes/*")
    assert "member" in kept
    assert "ca.key" in kept
    assert "manifests" not in kept
    assert machine.shell("n1", "systemctl is-active kubelet containerd || true").split() == ["inactive", "inactive"]
    assert "kubelet" not in machine.shell("n1", "cat /proc/self/mounts | grep /var/lib/kubelet/ || true")
    assert "cni0" not in machine.shell("n1", "ip -br link")
    assert machine.shell("n1", "nft list ruleset | grep -E 'KUBE|CNI|kube-proxy|flannel' || true").strip() == ""
