"""The rendered manifests, applied to a real API server by kubectl with the commands of docs/by-hand.md: accepted as
they are, again without a change, and an edited one as an edit of whoever applied it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from autarky.cli import render_files
from autarky.control.drift.decide import applied
from autarky.model.components import IMAGES
from autarky.payload import default_version, find_binary, image_reference, load_release
from autarky.phases import ownership
from autarky.ports import Object
from autarky.render.kubeconfig import client_kubeconfig
from autarky.render.values import Credentials, Inputs
from contract.servers import Server
from fakes.clusters import a_cluster, credentials_of

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

DOCUMENT = (Path(__file__).parents[3] / "docs/by-hand.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
[APPLY] = [text for text in COMMANDS if "kubectl label node" in text]
[EDIT] = [text for text in COMMANDS if "--force-conflicts" in text]
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


@pytest.fixture(scope="module")
def desk(own_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("desk")
    release = load_release(default_version())
    images = {component: image_reference(release, component) for component in IMAGES}
    cluster = a_cluster()
    render_files.write_all(Inputs(cluster, images, credentials_of(cluster)), directory / "out")
    kubectl = find_binary(release, "kubectl")
    assert kubectl is not None, "kubectl is not in the store: autarky payload get"
    (directory / "bin").mkdir()
    (directory / "bin/kubectl").symlink_to(kubectl.path)
    kubectl.path.chmod(0o755)
    own = Inputs(cluster, images, Credentials(own_server.pki.files()))
    (directory / "kubeconfig").write_bytes(client_kubeconfig(own, "me", "super-admin", server=own_server.url))
    (directory / "node.yaml").write_text(NODE)
    run(directory, "kubectl create -f node.yaml")
    return directory


def run(desk: Path, script: str) -> str:
    variables = {"PATH": f"{desk}/bin:{os.environ['PATH']}", "KUBECONFIG": str(desk / "kubeconfig"), "HOME": str(desk)}
    done = subprocess.run(
        ["timeout", "270", "bash", "-euc", script], cwd=desk, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


async def test_the_documented_commands_apply_all_manifests_and_an_edited_one_is_an_edit_that_stands(
    own_server: Server, desk: Path
) -> None:
    run(desk, APPLY)
    kube = own_server.kube()
    try:
        before = await workloads(kube, desk)
        run(desk, APPLY)
        after = await workloads(kube, desk)
        assert _generations(after) == _generations(before)
        assert len(before) == 8
        for live in after.values():
            drift = applied.drift_of(live)
            assert drift is not None
            assert drift.drifted == ()
        await _edited(kube, desk)
    finally:
        await kube.close()


def _generations(found: dict[str, Object]) -> dict[str, int]:
    return {name: live["metadata"]["generation"] for name, live in found.items()}


async def _edited(kube, desk: Path) -> None:
    """An edit of whoever applied it, which `up` leaves alone."""
    wanted = documents(desk)["kube-scheduler"]
    run(desk, EDIT.partition("kubectl -n kube-system rollout status")[0])
    live = (await workloads(kube, desk))["kube-scheduler"]
    assert "--v=2" in live["spec"]["template"]["spec"]["containers"][0]["command"]
    assert live["metadata"]["generation"] == 2
    found = ownership.judge(wanted, live, take_ownership=False)
    assert found.to_apply is None
    [kept] = found.kept
    assert (kept.live, kept.manager) == ("2", "me")


def documents(desk: Path) -> dict[str, Object]:
    """The workloads of the manifests by name."""
    texts = [path.read_text() for path in sorted((desk / "out/manifests").glob("*.yaml"))]
    found = [obj for text in texts for obj in yaml.safe_load_all(text)]
    return {obj["metadata"]["name"]: obj for obj in found if obj["kind"] in ("DaemonSet", "Deployment")}


async def workloads(kube, desk: Path) -> dict[str, Object]:
    kinds = {name: obj["kind"] for name, obj in documents(desk).items()}
    return {name: await kube.get("apps/v1", kind, name, "kube-system") for name, kind in kinds.items()}
