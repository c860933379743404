"""Hollow nodes: what 200, 500 and 1,000 Nodes more cost a control plane of one node, beside 3. Not beside kubeadm.

kwok runs on this machine, against the cluster's API, and keeps Nodes as kubelets would (`_scale_hollow.py`): leases,
heartbeats, and the pods that the cluster's DaemonSets have on them. At each size, in the same cluster:
  the new Nodes are created evenly over 300 s; all Nodes and DaemonSets are Ready; everything rests for 60 s;
  processor time in a minute, over 120 s, and then memory: operator, node agent in both slots, API server, etcd and
  controller-manager;
  requests in a minute of operator and node agent, over 120 s (`_scale_looks.py` says how they are counted);
  the median time of three runs of `autarky status`, `doctor` and `plan`;
  the size of the Nodes, and of kube-system's pods as the operator keeps them.
`_scale.py` has the limits. About 45 minutes for each repetition; kwok is built before the first, if it is not there
(2 minutes).

    ./run bench scale [--nodes 3,200,500,1000] [--rounds 1] [--json FILE] [--product DIR]
    ./run bench scale --nodes 3,20,40 --rounds 1    # a quick look; its figures show nothing
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from _autarky import STATE, AutarkyCluster
from _figures import Figure
from _kubeadm import lab_host
from _memory import memory
from _product import Product
from _ready import HOSTED, until_ready
from _rounds import main
from _scale import COMMANDS, NAME, NODES, PODS, ROWS, SIZES, AtSize, figures
from _scale_hollow import HEARTBEAT_SECONDS, LABEL, arguments, configuration, hollow_node, spread
from _scale_looks import CLIENTS, REQUESTS, TIMES, Size, requests, size, spent, times

from autarky.cli.wiring import Silence
from autarky.control.common.pods import is_ready
from autarky.control.common.slim import slim_pod
from autarky.errors import AutarkyError, Conflict
from autarky.kube import KubeClient
from autarky.model.patience import WATCH
from autarky.payload import Payload, get_payload
from autarky.ports import Host, Object
from autarky.render.values import SYSTEM

POD_NETWORK, MOST_NODES = "10.244.0.0/14", 1000
"""Every node gets a /24 of it; the default has 256 of these."""
# Its log level can be set while it runs only with this.
CLUSTER = AutarkyCluster(
    "bench-scale",
    spec={"network": {"podCIDR": POD_NETWORK}, "extraArgs": {"kube-apiserver": {"profiling": "true"}}},
)
NODE = CLUSTER.control[0]
REST_SECONDS, LOOK_SECONDS, TIMES_EACH = 60, 120, 3
SETTLE_SECONDS, POLL_SECONDS, CREATE_TRIES = 600, 2.0, 5
BEGUN_SECONDS = WATCH + 15
"""By then every watch of autarky's has ended that began before requests were logged."""
LOGGING, QUIET = "3", "0"
SERVER_LOGS = f"/var/log/pods/{SYSTEM}_kube-apiserver*/*/*.log"
SHOWN = 12


def sizes(text: str) -> tuple[int, ...]:
    """ "3,200,500,1000". ArgumentTypeError for anything else than two or more, each larger than the one before."""
    try:
        found = tuple(int(one) for one in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError("numbers with commas between them") from error
    if len(found) < len(("beside", "measured")) or found != tuple(sorted(set(found))) or found[0] < 1:
        raise argparse.ArgumentTypeError("two or more numbers, the smallest first")
    if found[-1] > MOST_NODES:
        raise argparse.ArgumentTypeError(f"at most {MOST_NODES}: {POD_NETWORK} has no room for more")
    return found


OPTIONS = argparse.ArgumentParser(add_help=False)
OPTIONS.add_argument("--nodes", type=sizes, default=SIZES, help=f"default: {','.join(map(str, SIZES))}")


def tell(sentence: str) -> None:
    print(f"{NAME}: {sentence}", flush=True)


@dataclass(frozen=True)
class Bench:
    """refuse_end: raises SystemExit where kwok has ended."""

    cluster: AutarkyCluster
    payload: Payload
    host: Host
    kube: KubeClient
    refuse_end: Callable[[], None]

    async def at_size(self, before: int, wanted: int) -> AtSize:
        """before: how many hollow nodes there are already."""
        await self._create(before, wanted)
        await self._until_settled(wanted)
        tell(f"{wanted} hollow nodes: everything is Ready, and rests for {REST_SECONDS} s")
        await asyncio.sleep(REST_SECONDS)
        processor = await self._processor()
        used = await memory([self.host])
        tell(f"{wanted} hollow nodes: requests are counted")
        asked = await self._requests()
        commands = {name: self._median_time(name, wanted) for name in COMMANDS}
        used = {name: used.get(name, 0.0) for name in ROWS}
        found = AtSize(wanted, used, processor, asked, commands, await self._held())
        self.refuse_end()
        tell(f"{wanted} hollow nodes: {_in_one_line(found)}")
        return found

    # --- Nodes -----------------------------------------------------------------------------------------

    async def _create(self, before: int, wanted: int) -> None:
        """Evenly over one heartbeat, so that heartbeats are spread as well; the first few at once."""
        real = await self.kube.get("v1", "Node", NODE)
        if real is None:
            raise SystemExit(f"{NAME}: there is no Node {NODE}")
        count = wanted - before
        seconds = 0.0 if before == 0 else HEARTBEAT_SECONDS
        tell(f"{count} hollow nodes more are created, over {seconds:.0f} s")
        begin = time.monotonic()
        for number, moment in enumerate(spread(count, seconds), before + 1):
            await asyncio.sleep(max(0.0, begin + moment - time.monotonic()))
            await self._create_one(hollow_node(real, number))
        took = time.monotonic() - begin
        if took > seconds + REST_SECONDS:
            tell(f"that took {took:.0f} s: the API server was slow, and heartbeats come at other moments than meant")

    async def _create_one(self, node: Object) -> None:
        """A request that was not answered may have been carried out all the same."""
        for _ in range(CREATE_TRIES):
            self.refuse_end()
            try:
                await self.kube.create(node)
            except Conflict:
                return
            except AutarkyError as error:
                tell(f"{node['metadata']['name']} was not created, and is tried again: {error}")
                await asyncio.sleep(1)
            else:
                return
        raise SystemExit(f"{NAME}: the API does not take {node['metadata']['name']}")

    async def _until_settled(self, wanted: int) -> None:
        """Until all hollow Nodes are Ready and have their piece of the pod network, and so are the DaemonSets' pods."""
        deadline, lacking = time.monotonic() + SETTLE_SECONDS, "the API has not answered"
        while time.monotonic() < deadline:
            self.refuse_end()
            with suppress(AutarkyError):  # tried again
                nodes = await self.kube.list("v1", "Node", labels=LABEL)
                lacking = lacking_of(nodes, await self.kube.list("apps/v1", "DaemonSet", namespace=SYSTEM), wanted)
                if not lacking:
                    return
            await asyncio.sleep(POLL_SECONDS)
        raise SystemExit(f"{NAME}: with {wanted} hollow nodes not settled within {SETTLE_SECONDS} s: {lacking}")

    async def _held(self) -> dict[str, Size]:
        nodes = await self.kube.list("v1", "Node")
        pods = [slim_pod(pod) async for pod in self.kube.each("v1", "Pod", namespace=SYSTEM)]
        return {NODES: size(nodes), PODS: size(pods)}

    # --- looks -----------------------------------------------------------------------------------------

    async def _processor(self) -> dict[str, float]:
        """Seconds in a minute, by row."""

        async def look() -> str:
            return (await self.host.run(["sh", "-c", TIMES, "sh", "/proc"], timeout=60)).stdout.decode(errors="replace")

        begin, before = time.monotonic(), times(await look())
        await asyncio.sleep(LOOK_SECONDS)
        after, took = times(await look()), time.monotonic() - begin
        found = spent(before, after)
        if gone := [one for one in found.ended if one in ROWS]:
            tell(f"of {', '.join(gone)} a process has ended at rest: its time is not complete")
        return {name: seconds * 60 / took for name, seconds in found.by_row.items() if name in ROWS}

    async def _requests(self) -> dict[str, float]:
        """In a minute, by client."""
        self._log_level(LOGGING)
        try:
            await asyncio.sleep(BEGUN_SECONDS)
            argv = ["sh", "-c", REQUESTS, "sh", str(LOOK_SECONDS), SERVER_LOGS]
            said = await self.host.run(argv, timeout=LOOK_SECONDS + 60)
        finally:
            self._log_level(QUIET)
        found = requests(said.stdout.decode(errors="replace").splitlines())
        for client in CLIENTS:
            tell(f"{client}, in {LOOK_SECONDS} s: {_most_often(found[client])}")
        return {client: found[client].total() * 60 / LOOK_SECONDS for client in CLIENTS}

    def _log_level(self, level: str) -> None:
        """Of the API server that serves; SystemExit where it does not take it."""
        argv = [*self.cluster.kubectl(self.payload), "replace", "--raw=/debug/flags/v", "-f", "-"]
        done = subprocess.run(argv, input=level, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{NAME}: the API server's log level cannot be set to {level}: {done.stderr.strip()}")

    # --- commands --------------------------------------------------------------------------------------

    def _median_time(self, command: str, wanted: int) -> float:
        found = []
        for _ in range(TIMES_EACH):
            seconds, complaint = self._timed(command, wanted)
            found.append(seconds)
        if complaint:
            tell(f"autarky {command}: {complaint}")
        return statistics.median(found)

    def _timed(self, command: str, wanted: int) -> tuple[float, str]:
        """(seconds, what it finds wrong). SystemExit where it has not done what it is for: that is no time of it."""
        product = self.cluster.product
        argv = [*product.command, command, "-f", str(self.cluster.file), "-o", "json"]
        begin = time.monotonic()
        done = subprocess.run(argv, check=False, capture_output=True, text=True, **product.where)
        took = time.monotonic() - begin
        try:
            return took, complaint_of(command, done.returncode, done.stdout, wanted)
        except (ValueError, KeyError, TypeError) as error:
            said = (done.stderr or done.stdout)[-2000:]
            raise SystemExit(f"{NAME}: autarky {command} has failed ({done.returncode}, {error}):\n{said}") from error


def lacking_of(nodes: Sequence[Object], daemon_sets: Sequence[Object], wanted: int) -> str:
    """What is not as it is to be with so many hollow nodes; "" for nothing."""
    ready = sum(is_ready(node) and bool(node["spec"].get("podCIDR")) for node in nodes)
    if ready < wanted:
        return f"{ready} of {wanted} Nodes are Ready and have pod addresses"
    for one in daemon_sets:
        status, name = one.get("status") or {}, one["metadata"]["name"]
        due, has = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        if has < due:
            return f"{has} of {due} pods of {name} are Ready"
    if not any((one.get("status") or {}).get("desiredNumberScheduled", 0) > wanted for one in daemon_sets):
        return "no DaemonSet has counted the new Nodes"
    return ""


def complaint_of(command: str, status: int, said: str, wanted: int) -> str:
    """What a command finds wrong, "" for nothing. ValueError, KeyError or TypeError where it has not done its work."""
    if command == "plan":
        if status != 0:
            raise ValueError("a plan has no reason to fail")
        return ""
    if status not in (0, 1):  # 1: something is wrong with the cluster
        raise ValueError("neither well nor unwell")
    found = json.loads(said)
    if command == "doctor":
        return "; ".join(f"{one['subject']}: {one['what']}" for one in found)[:500]
    kubelets = [row for row in found["rows"] if row["component"] == "kubelet"]
    if found["api"] != "ready" or len(kubelets) <= wanted:
        raise ValueError(f"it shows {len(kubelets)} kubelets; API: {found['api']}")
    unwell = [f"{row['component']} on {row['node']}" for row in found["rows"] if row["health"] == "not ready"]
    return "; ".join(filter(None, (found["unseen"], ", ".join(unwell[:SHOWN]), *found["overdue"][:1])))


def _most_often(asked: Counter[str]) -> str:
    shown = [f"{count} {what}" for what, count in asked.most_common(SHOWN)]
    return ", ".join([*shown, *([f"{len(asked) - SHOWN} more"] if len(asked) > SHOWN else [])]) or "nothing"


def _in_one_line(found: AtSize) -> str:
    return ", ".join(f"{name} {value:.2f} {unit}".rstrip() for name, (unit, value) in found.values.items())


# --- kwok --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _kwok(program: Path, cluster: AutarkyCluster) -> AsyncGenerator[Callable[[], None]]:
    """Gives what raises SystemExit where kwok has ended. Its log stays, beside the clusters' files."""
    log = STATE / f"{cluster.name}-kwok.log"
    with tempfile.TemporaryDirectory(prefix="autarky-bench-") as directory, log.open("wb") as written:
        file = Path(directory, "kwok.yaml")
        file.write_text(configuration())
        argv = [str(program), *arguments(str(file), str(cluster.kubeconfig))]
        process = await asyncio.create_subprocess_exec(*argv, cwd=directory, stdout=written, stderr=written)

        def refuse_end() -> None:
            if process.returncode is not None:
                raise SystemExit(f"{NAME}: kwok has ended ({process.returncode}):\n{log.read_text()[-2000:]}")

        try:
            yield refuse_end
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


# --- the run -----------------------------------------------------------------------------------------------


async def _round(cluster: AutarkyCluster, payload: Payload, program: Path, counts: Sequence[int]) -> list[AtSize]:
    cluster.write()
    cluster.up()
    await until_ready(cluster.kubeconfig, {**dict.fromkeys(HOSTED, 1), "kube-proxy": 1, "kube-dns": 2})
    kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
    try:
        async with _kwok(program, cluster) as refuse_end:
            bench = Bench(cluster, payload, lab_host(cluster.name, NODE), kube, refuse_end)
            found = [await bench.at_size(before, wanted) for before, wanted in pairwise((0, *counts))]
    finally:
        await kube.close()
    cluster.down()
    return found


async def run(payload: Payload, product: Product, rounds: int, *, counts: Sequence[int]) -> list[Figure]:
    tell("kwok is taken from the store, or built")
    of_scale = await get_payload(payload.release, Silence(), groups=(NAME,))
    program = of_scale.binaries["kwok"].path
    cluster = CLUSTER.of(product)
    found: list[Sequence[AtSize]] = []
    for number in range(1, rounds + 1):
        tell(f"repetition {number} of {rounds}")
        found.append(await _round(cluster, payload, program, counts))
    return figures(found)


if __name__ == "__main__":
    given, _ = OPTIONS.parse_known_args()
    main(__doc__, [partial(run, counts=given.nodes)], beside="smallest", more_options=[OPTIONS])
