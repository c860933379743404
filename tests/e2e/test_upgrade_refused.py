"""Versions that the control plane cannot go to are refused by every way to ask for them, before anything is touched:
one that nobody knows, minors that would be skipped in either direction, a kubelet that would be newer than the API, or
too old for it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import TestCluster
from rollouts import condition, patch_plane, quiet
from upgrades import state_of

from autarky import places
from autarky.payload import release_files

pytestmark = [pytest.mark.e2e, pytest.mark.shares("one_node"), pytest.mark.rotation, pytest.mark.timeout(600)]

BEFORE, SKIPPED, LOWER, UNKNOWN = "1.35.4", "1.38.0", "1.34.2", "1.36.99"
"""The minor before the cluster's, two after it, and two before; and one of which there is no release file."""


@pytest.fixture(scope="module")
def cluster(one_node: TestCluster) -> TestCluster:
    quiet(one_node)
    return one_node


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Release files of those versions, so that nobody is refused for the lack of one. Nothing of them is built."""
    recipes = tmp_path / release_files.RECIPES
    for version in (BEFORE, SKIPPED, LOWER):
        (tmp_path / f"v{version}.json").write_text(json.dumps({"kubernetes": f"v{version}", "parts": ["base"]}))
        shutil.copytree(release_files.RELEASES / "recipes/kubernetes-v1.36.4", recipes / f"kubernetes-v{version}")
    monkeypatch.setenv("AUTARKY_RELEASES", str(tmp_path))


@pytest.fixture
def untouched(cluster: TestCluster) -> Iterator[None]:
    """No workload is other than before, no image has come, and the version that is wanted is the former one."""
    before = _looked_at(cluster)
    yield
    assert _looked_at(cluster) == before


@pytest.fixture
def kubelets_stay(cluster: TestCluster) -> Iterator[None]:
    """Those that follow would go down first."""
    patch_plane(cluster, kubelets={"follow": False})
    yield
    patch_plane(cluster, kubelets={"follow": True})


def _looked_at(cluster: TestCluster) -> list[str]:
    generations = cluster.kubectl("get", "ds,deploy", "-A", "-o", "jsonpath={.items[*].metadata.generation}")
    version = cluster.kubectl("get", "controlplane", "cluster", "-o", "jsonpath={.spec.version} {.status.version}")
    images = sorted(cluster.shell("n1", f"{places.BIN}/ctr -n k8s.io images ls -q").split())
    assert "registry.k8s.io/pause" in " ".join(images)
    return [generations, version, " ".join(images)]


REFUSED = {
    SKIPPED: "minors are not skipped (rule 4): from v1.36.4 go to a 1.37 first, then to v1.38.0",
    LOWER: "minors are not skipped (rule 4): from v1.36.4 go back to a 1.35 first",
    BEFORE: "the kubelet of n1 is v1.36.4, and none may be newer than an API server (rule 4)",
    UNKNOWN: "there is no release file for Kubernetes v1.36.99",
    "1.37": "'1.37' is not a version such as 1.36.4",
}


@pytest.mark.usefixtures("known", "untouched", "kubelets_stay")
@pytest.mark.parametrize("version", REFUSED)
def test_the_command_refuses_it_and_touches_nothing(cluster: TestCluster, version: str) -> None:
    for words in (("check", version), (version,)):
        said = cluster.autarky("upgrade", *words, "--cluster", cluster.name, check=False)
        assert (said.status, REFUSED[version] in said.stderr) == (2, True), said


EDITED = {**REFUSED, UNKNOWN: f"images that are not on n1: registry.k8s.io/kube-apiserver:v{UNKNOWN}"}


@pytest.mark.usefixtures("untouched", "kubelets_stay")
@pytest.mark.parametrize("version", [SKIPPED, LOWER, BEFORE, UNKNOWN])
def test_an_edit_is_refused_by_the_operator_which_says_why(cluster: TestCluster, version: str) -> None:
    """What the operator cannot know is a version that no node has an image of: it gives them time to say so."""
    refused_by_the_operator(cluster, version, EDITED[version])


@pytest.mark.usefixtures("untouched")
def test_a_version_that_a_kubelet_would_be_too_old_for_is_refused_by_both(cluster: TestCluster) -> None:
    why = "the kubelet of old is v1.33.0, more than 3 minors older than v1.37.1"
    with a_node_of(cluster, "v1.33.0"):
        said = cluster.autarky("upgrade", "1.37.1", "--cluster", cluster.name, check=False)
        assert (said.status, why in said.stderr) == (2, True), said
        refused_by_the_operator(cluster, "1.37.1", why)


@contextmanager
def a_node_of(cluster: TestCluster, kubelet: str) -> Iterator[None]:
    """A worker that says so."""
    cluster.kubectl(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old"}})
    )
    try:
        said = json.dumps({"status": {"nodeInfo": {"kubeletVersion": kubelet}}})
        cluster.kubectl("patch", "node", "old", "--subresource=status", "--type=merge", "-p", said)
        yield
    finally:
        cluster.kubectl("delete", "node", "old")


def refused_by_the_operator(cluster: TestCluster, version: str, why: str) -> None:
    former = cluster.kubectl("get", "controlplane", "cluster", "-o", "jsonpath={.spec.version}")
    patch_plane(cluster, version=f"v{version}")
    try:
        cluster.wait("it is refused", lambda: state_of(cluster) == "Refused", seconds=150)
        cluster.wait("the condition says why", lambda: why in said_of_the_spec(cluster), seconds=30)
    finally:
        patch_plane(cluster, version=former)
    cluster.wait("it is forgotten", lambda: condition(cluster, "SpecApplied").get("status") == "True", seconds=60)


def said_of_the_spec(cluster: TestCluster) -> str:
    found = condition(cluster, "SpecApplied")
    return str(found.get("message", "")) if found.get("status") == "False" else ""
