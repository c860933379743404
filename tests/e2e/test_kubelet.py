"""The kubelet of one node is exchanged alone, as an administrator would: no control plane process notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ha import nothing_failed
from harness import TestCluster, one_node
from kubelets import bring_kubelet, kubelet_of, pin
from slots import settled
from survival import processes

from autarky.model.versions import Version
from autarky.payload import load_release, stored_artefacts
from autarky.payload.store import Store

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(900)]
pytestmark += [pytest.mark.needs("v1.37.1")]

NEWER, OLDER = "v1.37.1", "v1.36.4"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-kubelet", **one_node(kubernetesVersion=NEWER.removeprefix("v")))
    cluster.up()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    bring_released_kubelet(cluster, OLDER)
    return cluster


@pytest.mark.parametrize(("pinned", "version"), [(OLDER, OLDER), (None, NEWER)], ids=["older", "newer"])
def test_a_kubelet_of_another_minor_version_restarts_no_control_plane_process(
    cluster: TestCluster, pinned: str | None, version: str
) -> None:
    before = processes(cluster)
    with cluster.probed() as reports:
        pin(cluster, pinned)
        cluster.wait(f"the kubelet is {version}", lambda: kubelet_of(cluster) == version, seconds=90)
        cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    assert processes(cluster) == before
    nothing_failed(reports[0])


def bring_released_kubelet(cluster: TestCluster, version: str) -> None:
    [kubelet] = [
        artefact
        for artefact in stored_artefacts(load_release(Version.parse(version)))
        if (artefact.kind, artefact.name) == ("binary", "kubelet")
    ]
    assert kubelet.sha256 is not None, "autarky payload get"
    bring_kubelet(cluster, version, Store().blob_path(kubelet.sha256))
