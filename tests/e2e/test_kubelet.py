"""The kubelet of a control node is exchanged, as an administrator would: no control plane process notices."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from ha import nothing_failed
from harness import COMMAND, TestCluster, environment, one_node
from slots import settled
from survival import processes

from autarky.model.versions import Version
from autarky.payload import load_release, stored_artefacts
from autarky.payload.store import Store

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(900)]
pytestmark += [pytest.mark.needs("v1.37.1")]

NEWER, OLDER = "1.37.1", "1.36.4"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-kubelet", **one_node(kubernetesVersion=NEWER))
    cluster.up()
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    return cluster


@pytest.mark.parametrize("version", [OLDER, NEWER])
def test_a_kubelet_of_another_minor_version_restarts_no_control_plane_process(
    cluster: TestCluster, version: str
) -> None:
    before = processes(cluster)
    with cluster.probed() as reports:
        install_kubelet(cluster, version)
        cluster.wait(f"the kubelet is {version}", lambda: kubelet_version(cluster) == f"v{version}", seconds=90)
        cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    assert processes(cluster) == before
    nothing_failed(reports[0])


def install_kubelet(cluster: TestCluster, version: str) -> None:
    """Put the binary beside the others, switch the link to it in one rename, restart the unit."""
    [kubelet] = [
        artefact
        for artefact in stored_artefacts(load_release(Version.parse(version)))
        if (artefact.kind, artefact.name) == ("binary", "kubelet")
    ]
    assert kubelet.sha256 is not None, "autarky payload get"
    file, link = f"/var/lib/autarky/store/by-hand-kubelet-{version}", "/var/lib/autarky/bin/kubelet"
    command = (
        f"cat >{file} && chmod 755 {file} && ln -sfn {file} {link}.next && mv -T {link}.next {link}"
        " && systemctl restart kubelet"
    )
    with Store().blob_path(kubelet.sha256).open("rb") as binary:
        argv = [*COMMAND, "lab", "shell", "--lab", cluster.name, "n1", "--", "sh", "-c", command]
        subprocess.run(argv, env=environment(), stdin=binary, check=True, timeout=60)


def kubelet_version(cluster: TestCluster) -> str:
    node = json.loads(cluster.kubectl("get", "node", "n1", "-o", "json"))
    return str(node["status"]["nodeInfo"]["kubeletVersion"])
