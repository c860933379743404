"""What the scenarios of power cuts share: the cut, the return, what was acknowledged before, and times in a table."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness import STATE, TestCluster
from parts import Draw, every_write, rounds_of
from slots import standbys
from stop_after_write import FOLLOWING

from autarky.kube.kubeconfig import read_kubeconfig
from autarky.net.tls import client_context

NODE = "n1"
RETURN_SECONDS = 240.0
"""Generous: what counts is that everything returns without help."""
EVERY_WRITE = every_write(os.environ.get("AUTARKY_EVERY_WRITE", ""))
"""Where somebody asks for more than a run draws: which part of all writes."""
_TRACER = Path(__file__).with_name("stop_after_write.py")


def rounds(part: int, parts: int, whole: int) -> range:
    """The numbers of the rounds that a part of a loop makes; AUTARKY_ROUNDS says how many instead."""
    length = os.environ.get("AUTARKY_ROUNDS")
    return rounds_of(part, parts, whole, None if length is None else int(length))


# --- cut and return -------------------------------------------------------------------------------------


def cut(cluster: TestCluster) -> None:
    """Until it `comes_back` no client is to be surprised."""
    cluster.announce()
    cluster.autarky("lab", "cut", "--lab", cluster.name, NODE)


def start(cluster: TestCluster) -> None:
    cluster.autarky("lab", "start", "--lab", cluster.name, NODE, "-o", "plain")


@dataclass(frozen=True)
class Returned:
    """Seconds from power on: until the API answered, until nothing but the hosted slots ran."""

    answers: float
    settled: float


def comes_back(cluster: TestCluster, home: Callable[[], bool] | None = None) -> Returned:
    """Power on, and hands off: the API answers, and then everything is where it belongs: `home`, or all hosted."""
    began = time.monotonic()
    start(cluster)
    cluster.wait("the API answers", Client(cluster).answers, seconds=RETURN_SECONDS)
    answered = time.monotonic() - began
    assert torn_files(cluster) == []
    cluster.wait("everything is where it belongs", home or (lambda: settled(cluster)), seconds=RETURN_SECONDS)
    cluster.announcements_end()
    return Returned(answered, time.monotonic() - began)


def settled(cluster: TestCluster) -> bool:
    return not standbys(cluster) and bool(cluster.status()["healthy"])


def torn_files(cluster: TestCluster) -> list[str]:
    """What is not whole, of all that a link or a name says is complete: standbys and manifests."""
    root = Path(f"/proc/{init_process(cluster)}/root")
    links = [link for link in root.glob("var/lib/autarky/standby/*/*") if link.name in ("current", "previous")]
    contents = [path for link in links for path in link.resolve().rglob("*") if path.is_file()]
    pods = [*(link / "pod.json" for link in links), *root.glob("etc/kubernetes/manifests/*.json")]
    return [str(p) for p in contents if not p.stat().st_size] + [str(p) for p in pods if not _is_a_pod(p)]


def _is_a_pod(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text())["kind"] == "Pod")
    except (OSError, ValueError, KeyError):
        return False


def init_process(cluster: TestCluster) -> int:
    """The host's first process, as this machine sees it."""
    lab = json.loads((STATE / "autarky/labs" / cluster.name / "lab.json").read_text())
    return int(lab["hosts"][NODE]["pid"])


# --- a client that dies with no connection --------------------------------------------------------------


class Client:
    """Each request has a connection of its own, so that a power cut leaves nothing to wait for. It is given up after so
    many seconds."""

    def __init__(self, cluster: TestCluster, *, seconds: float = 3) -> None:
        found = read_kubeconfig(cluster.directory / "kubeconfig")
        self._server = found.server
        self._tls = client_context(found.ca_pem, found.client_cert_pem, found.client_key_pem)
        self._seconds = seconds

    def answers(self) -> bool:
        return self.send("GET", "/readyz") == b"ok"

    def send(self, method: str, path: str, obj: object = None) -> bytes | None:
        """What it answers; None without an answer, or with one that is not a yes."""
        body = None if obj is None else json.dumps(obj).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._server + path, body, headers, method=method)  # noqa: S310 # https
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=self._seconds) as answer:  # noqa: S310
                return bytes(answer.read())
        except OSError:
            return None


@dataclass
class Writer:
    """Writes ConfigMaps, one after the other, and remembers which were acknowledged."""

    client: Client
    acknowledged: set[str] = field(default_factory=set)
    _PATH = "/api/v1/namespaces/default/configmaps"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """During the block. What fails is not written down and not tried again."""
        ended = threading.Event()

        def write() -> None:
            while not ended.is_set():
                name = f"written-{time.time_ns()}"
                if self.client.send("POST", self._PATH, {"metadata": {"name": name, "labels": {"written": "yes"}}}):
                    self.acknowledged.add(name)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def lost(self) -> set[str]:
        """What was acknowledged and is not there. A cluster that has just come back may be late with an answer."""
        asked = (self.client.send("GET", f"{self._PATH}?labelSelector=written%3Dyes") for _ in range(10))
        found = next((answer for answer in asked if answer is not None), None)
        assert found is not None, "nobody says what is there"
        return self.acknowledged - {obj["metadata"]["name"] for obj in json.loads(found)["items"]}


# --- stopping the agent after one write ------------------------------------------------------------------


@contextmanager
def stopped_after_drawn_write(
    cluster: TestCluster, paths: str, writes: str, draw: Draw, taken: Iterable[str]
) -> Iterator[list[str]]:
    """The node's agents stop right after the first of these writes to such a path that the draw takes. The list has its
    name from then on; they go on after the block, unless their power was cut in it."""
    which = [paths, writes, json.dumps(sorted(taken)), json.dumps(asdict(draw))]
    argv = [sys.executable, str(_TRACER), str(init_process(cluster)), *which]
    found: list[str] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdout is not None
        output = tracer.stdout
        assert output.readline().strip() == FOLLOWING
        reader = threading.Thread(target=lambda: found.extend(line.strip() for line in output))
        reader.start()
        try:
            yield found
            assert found or tracer.poll() is None, "no write was looked for any more"
        finally:
            tracer.kill()
            reader.join()


# --- times -----------------------------------------------------------------------------------------------


def table(title: str, names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> str:
    """Rows of text and numbers, with the median of each column of numbers below."""
    columns = list(zip(*rows, strict=True))
    numbers = [[value for value in column if isinstance(value, float)] for column in columns]
    medians = tuple(statistics.median(found) if found else "median" for found in numbers)
    lines = [title, *(_line(row) for row in (tuple(names), *rows, medians))]
    return "\n".join(lines)


def _line(values: Iterable[object]) -> str:
    return "  ".join(f"{value:>10.1f}" if isinstance(value, float) else f"{value!s:>10}" for value in values)
