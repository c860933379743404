"""What scenarios on load balancers share: what each node's says and runs, and new connections from any node."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import AS_A_CLIENT, STATE, TestCluster
from judgement import LONGEST_SILENCE
from new_connections import EVERY_SECONDS
from watching import tries_went_on

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.balancer import Balancer

_PROBER = Path(__file__).with_name("new_connections.py")
_SILENT = Path(__file__).with_name("silent_connections.py")
_ASK = "exec 3<>/dev/tcp/127.0.0.1/6444; printf 'GET {} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"


def init_process(cluster: TestCluster, host: str) -> int:
    """The host's first process, as this machine sees it."""
    lab = json.loads((STATE / "autarky/labs" / cluster.name / "lab.json").read_text())
    return int(lab["hosts"][host]["pid"])


def in_network_of(cluster: TestCluster, host: str) -> list[str]:
    """The beginning of a command line that runs on this machine, in the host's network."""
    return ["nsenter", f"--net=/proc/{init_process(cluster, host)}/ns/net"]


# --- what a load balancer says -----------------------------------------------------------------------------


def answer(cluster: TestCluster, host: str, path: str) -> str:
    """Of its health port, head and body; empty when nothing answers. It takes milliseconds."""
    argv = [*in_network_of(cluster, host), "bash", "-c", _ASK.format(path)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout


def holds(cluster: TestCluster, host: str, server: str) -> bool:
    """Whether the load balancer of that host holds the server ("n1-hosted") for ready."""
    return " 200 " in answer(cluster, host, f"/{server}").partition("\n")[0]


def has_left(cluster: TestCluster, host: str, server: str) -> bool:
    """Whether that load balancer answers that it does not hold the server for ready. It answers so for a name that it
    does not know, too: who waits for this has seen before that it `holds` the server."""
    return " 503 " in answer(cluster, host, f"/{server}").partition("\n")[0]


def configuration(cluster: TestCluster, host: str) -> Balancer | None:
    """What the configuration on its disk was made from."""
    return nllb.parse(_text(cluster, host))


def _text(cluster: TestCluster, host: str) -> str:
    return Path(f"/proc/{init_process(cluster, host)}/root{nllb.CONFIG_PATH}").read_text()


def runs_its_configuration(cluster: TestCluster, host: str) -> bool:
    """Whether what takes connections is what the disk says."""
    said = answer(cluster, host, nllb.CONFIGURATION_PATH).rpartition("\n")[2].strip()
    return bool(said) and said == nllb.config_hash(_text(cluster, host))


# --- new connections from nodes ------------------------------------------------------------------------------


@dataclass
class Connections:
    """What a client on one node met. Times in seconds."""

    host: str
    attempts: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def outage(self) -> float:
        """The longest time without an attempt that succeeded: from one that failed to the next that did not."""
        assert self.attempts[-1][2] == 200, f"{self.host}: the last attempt failed as well"
        longest, since = 0.0, None
        for began, _, status in self.attempts:
            if status != 200:
                since = began if since is None else since
            elif since is not None:
                longest, since = max(longest, began - since), None
        return longest

    @property
    def slowest(self) -> float:
        """Of those that were answered."""
        return max(seconds for _, seconds, status in self.attempts if status == 200)

    def __str__(self) -> str:
        failed = Counter(status for _, _, status in self.attempts if status != 200)
        how = ", ".join(f"{number} with {status or 'no answer'}" for status, number in sorted(failed.items())) or "none"
        times = f"for {self.outage:.1f} s at a time; slowest {self.slowest:.1f} s"
        return f"{self.host}: of {len(self.attempts)} failed {how}, {times}"


@contextmanager
def connecting(cluster: TestCluster, hosts: Sequence[str]) -> Iterator[dict[str, Connections]]:
    """New connections on each of the hosts during the block; the results are complete afterwards. Fails where the
    clients did not go on until the end of the block: they would have met no outage."""
    results = {host: Connections(host) for host in hosts}
    authority = STATE / f"{cluster.name}-ca.crt"
    authority.write_bytes(read_kubeconfig(cluster.directory / "kubeconfig").ca_pem or b"")
    with ExitStack() as stack:
        probers = {host: stack.enter_context(_prober(cluster, host, authority)) for host in hosts}
        since = time.time()
        yield results
        until = time.time()
        for host, prober in probers.items():
            stdout, _ = prober.communicate("", timeout=60)
            results[host].attempts = [(began, took, status) for began, took, status in json.loads(stdout)]
    for host, met in results.items():
        moments = [began for began, _, _ in met.attempts]
        tries_went_on(host, moments, began=since, ended=until, every=EVERY_SECONDS, longest=LONGEST_SILENCE)


@contextmanager
def _prober(cluster: TestCluster, host: str, authority: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [*AS_A_CLIENT, *in_network_of(cluster, host), sys.executable, str(_PROBER), str(authority)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "probing"
            yield process
        finally:
            process.kill()


# --- somebody who is silent ----------------------------------------------------------------------------------


@contextmanager
def silent(cluster: TestCluster, host: str, *, to: str, number: int) -> Iterator[None]:
    """So many connections from that host to port 6443 of an address, during the block."""
    argv = [*in_network_of(cluster, host), sys.executable, str(_SILENT), to, str(number)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "open"
            yield
            assert process.poll() is None, "it has ended before"
        finally:
            process.kill()
