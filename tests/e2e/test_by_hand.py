"""The commands of docs/by-hand.md, as they stand there, bring a cluster up on a fresh machine: nothing of ours runs but
`autarky render`. The machine is a lab host that is reached by ssh.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import environment
from machines import Machines

from autarky import places

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(900)]

DOCUMENT = (Path(__file__).parents[2] / "docs/by-hand.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
COMMANDS = [text for language, text in BLOCKS if language == "sh"]
[FILE] = [text for language, text in BLOCKS if language == "yaml"]
[UP, CHANGE] = [
    [text for text in COMMANDS if DOCUMENT.index(text) < DOCUMENT.index("## Change it")],
    [text for text in COMMANDS if DOCUMENT.index(text) > DOCUMENT.index("## Change it")],
]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines("t-hand-lab", 1)
    made.make()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def desk(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory to work in, where `ssh` knows the machine and `autarky` is this one."""
    directory = tmp_path_factory.mktemp("by-hand")
    (directory / "hand.yaml").write_text(f"{FILE}  sshConfig: {machines.ssh_config}\n")
    (directory / "bin").mkdir()
    programs = {
        "ssh": f'exec /usr/bin/ssh -F {machines.ssh_config} "$@"',
        "autarky": f'exec {shlex.quote(sys.executable)} -m autarky "$@"',
    }
    for name, line in programs.items():
        (directory / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (directory / "bin" / name).chmod(0o755)
    return directory


def run(desk: Path, *texts: str) -> str:
    """In one shell, as somebody types it. A command that fails ends it."""
    script = "\n".join(["set -eu", "set -o pipefail", *texts])
    variables = {**environment(), "PATH": f"{desk}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=desk,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def kubectl(desk: Path, command: str) -> str:
    return run(desk, f"KUBECONFIG=out/kubeconfig out/binaries/var/lib/autarky/bin/kubectl {command}")


def test_the_documented_commands_bring_a_cluster_up_on_a_fresh_machine_with_a_hosted_api_server(desk: Path) -> None:
    run(desk, *UP)
    assert kubectl(desk, "get nodes -o jsonpath='{.items[*].status.conditions[?(@.type==\"Ready\")].status}'") == "True"
    hosted = "-n kube-system get daemonset kube-apiserver -o jsonpath={.status.numberAvailable}"
    assert kubectl(desk, hosted) == "1"
    static = run(desk, "ssh n1 ls /etc/kubernetes/manifests").split()
    assert {name.rsplit("-", 1)[0] for name in static} == {"etcd", "node-agent-standby", "node-load-balancer"}
    paths = [places.LEAVES, f"{places.LEAVES}/kube-apiserver", f"{places.LEAVES}/kube-apiserver/apiserver.key"]
    modes = run(desk, f"ssh n1 stat -c %a:%g {' '.join(paths)} {places.MANIFESTS} {places.ETCD_PKI}").split()
    assert modes == ["700:0", "750:65532", "640:65532", "700:0", "700:0"]


def test_an_edited_rendered_file_rolls_and_counts_as_an_edit_of_whoever_applied_it(desk: Path) -> None:
    kubeconfig = 'export PATH="$PWD/out/binaries/var/lib/autarky/bin:$PATH" KUBECONFIG="$PWD/out/kubeconfig"'
    said = run(desk, kubeconfig, *CHANGE)
    assert "kube-scheduler" in said
    assert "by me" in said
    command = "-n kube-system get pods -l k8s-app=kube-scheduler -o jsonpath={.items[*].spec.containers[*].command}"
    assert "--v=2" in kubectl(desk, command)


def test_a_client_side_apply_of_a_rendered_file_rolls_as_well(desk: Path) -> None:
    [file] = (desk / "out/manifests").glob("*-kube-controller-manager.yaml")
    file.write_text(re.sub(r"^( *)- --leader-elect=true$", r"\g<0>\n\1- --v=2", file.read_text(), flags=re.MULTILINE))
    kubectl(desk, f"apply -f {file}")
    kubectl(desk, "-n kube-system rollout status deployment/kube-controller-manager --timeout=180s")
    which = "-l k8s-app=kube-controller-manager -o jsonpath={.items[*].spec.containers[*].command}"
    assert "--v=2" in kubectl(desk, f"-n kube-system get pods {which}")
