"""Running upstream's end-to-end tests against a cluster: specs by name, on images of ours.

They run in the network of a node, so that they reach the API as a client there does: through its load balancer, which
outlives any one control node. The images are what the payload makes under the names of upstream's, in a registry that
does not exist: no spec gets another image than those that are put on the nodes here.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from conformance_report import Outcome, ended, focus, outcomes, repeated
from ha import EVERYBODY, WORKER
from harness import TestCluster

from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.versions import Version
from autarky.payload import Release, Store, find_binary, load_release
from autarky.payload.artefacts import Image, stored_image
from autarky.payload.template import PINNED

VERSION = "v1.36.4"
"""Of the clusters on which they run, where a scenario says no other."""
GROUP = "conformance"
SECONDS = 540.0
"""A run that has not ended by then interrupts its spec, and reports."""
_REPORTS_SECONDS = 60.0
_REGISTRIES = "promoterE2eRegistry: autarky.dev/e2e-test-images\n"
_THROUGH_THE_BALANCER = "https://127.0.0.1:6443"
_CTR = "/var/lib/autarky/bin/ctr -n k8s.io images"


def _release(cluster: TestCluster) -> Release:
    """Upstream's tests are those of the version that the cluster began with: another's ask for something else."""
    return load_release(Version.parse(cluster.spec["kubernetesVersion"]))


def put_images(cluster: TestCluster) -> None:
    """The images of the specs, on every node, where no image collection takes them."""
    for node in EVERYBODY:
        root = Path(f"/proc/{cluster.host_process(node)}/root")
        for image in _images(_release(cluster)):
            archive = f"/var/tmp/{image.name}.tar"
            shutil.copyfile(image.archive, root / archive.lstrip("/"))
            label = f"{_CTR} label {image.reference} {PINNED}"
            cluster.shell(node, f"{_CTR} import --local {archive} && {label} && rm {archive}")


def _images(release: Release) -> list[Image]:
    store = Store()
    found = {spec.name: stored_image(store, release, spec) for spec in release.images if spec.group == GROUP}
    _in_store(release, (name for name, image in found.items() if image is None))
    return [image for image in found.values() if image is not None]


def _program(release: Release, name: str) -> Path:
    found = find_binary(release, name)
    _in_store(release, [name] if found is None else [])
    assert found is not None
    return found.path


def _in_store(release: Release, lacking: Iterator[str] | Sequence[str]) -> None:
    names, version = ", ".join(lacking), release.kubernetes
    assert not names, f"not in the store: {names}; autarky payload get {version} --group=cluster --group={GROUP}"


@dataclass(frozen=True)
class Run:
    """One run of e2e.test, and the directory that it writes into."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def printed(self) -> str:
        return (self.directory / "printed").read_text(errors="replace")

    def goes_on(self) -> bool:
        return self.process.poll() is None

    def ended(self) -> int:
        """How many specs have ended."""
        return ended(self.printed)

    def repeated(self) -> list[int]:
        """The specs that were tried a second time, by their numbers in the order in which they ran."""
        return repeated(self.printed)

    def wait_until_ended(self, specs: int) -> None:
        deadline = time.monotonic() + SECONDS
        while self.ended() < specs:
            assert self.goes_on(), f"it ended after {self.ended()} specs:\n{self._last_words}"
            assert time.monotonic() < deadline, f"{self.ended()} specs have ended after {SECONDS:.0f} s"
            time.sleep(0.5)

    def outcomes(self) -> list[Outcome]:
        """Of all specs, when it has ended."""
        self.process.wait(timeout=SECONDS + _REPORTS_SECONDS)
        report = self.directory / "junit_01.xml"
        assert report.exists(), f"it ended with {self.process.returncode} and no report:\n{self._last_words}"
        return outcomes(report.read_text())

    @property
    def _last_words(self) -> str:
        return "\n".join(self.printed.splitlines()[-40:])


@contextmanager
def upstream_tests(
    cluster: TestCluster, specs: Sequence[str], directory: Path, seed: str, *, attempts: int = 1, inside: str = WORKER
) -> Iterator[Run]:
    """These specs, one after the other in a random order, during the block. `attempts`: of each. `inside`: the node
    from which they ask; the load balancer of a control node leads to its own API server."""
    network = ["nsenter", f"--target={cluster.host_process(inside)}", "--net", "--"]
    argv = [
        *network,
        str(_program(_release(cluster), "e2e.test")),
        *_options(cluster, specs, directory, seed, attempts),
    ]
    (directory / "registries").write_text(_REGISTRIES)
    with (directory / "printed").open("wb") as printed:
        process = subprocess.Popen(
            argv,
            cwd=directory,
            env={**os.environ, "KUBE_TEST_REPO_LIST": str(directory / "registries")},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Run(process, directory)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        process.wait()


def _options(cluster: TestCluster, specs: Sequence[str], directory: Path, seed: str, attempts: int) -> list[str]:
    return [
        "--provider=skeleton",
        f"--kubeconfig={_kubeconfig(cluster, directory)}",
        f"--kubectl-path={_program(_release(cluster), 'kubectl')}",
        f"--report-dir={directory}",
        "--allowed-not-ready-nodes=1",
        f"--ginkgo.focus={focus(specs)}",
        f"--ginkgo.seed={random.Random(seed).getrandbits(31)}",  # noqa: S311
        f"--ginkgo.timeout={SECONDS:.0f}s",
        f"--ginkgo.flake-attempts={attempts}",
        "--ginkgo.v",  # else it prints no line for a spec that has passed
        "--ginkgo.silence-skips",
        "--ginkgo.no-color",
    ]


def _kubeconfig(cluster: TestCluster, directory: Path) -> Path:
    """The administrator's, which leads through the load balancer of the node where it is used."""
    source = cluster.directory / "kubeconfig"
    path = directory / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(source.read_text().replace(read_kubeconfig(source).server, _THROUGH_THE_BALANCER))
    return path
