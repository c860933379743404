"""A backup of 1 GB of objects, half a million small ones and some of 1 MiB, and its restore. Not beside kubeadm, which
has nothing of the kind, but beside what there is without it.

One node, on a disk of its own. What is measured, in every round on the same cluster:
  the API's 99th percentiles, by `autarky bench probe`: at rest, and while the cluster makes a backup. At most doubled;
  the backup, from `autarky backup create` until it is verified;
  the most memory that the backup's program had (resident). At most 100 MB. Beside it runs the etcd that tries the
  snapshot; of that it is reported what is not its file's pages;
  `autarky restore FILE`, from the command until it returns, beside `etcdutl snapshot restore` alone of the same
  snapshot on the node's disk. At most 30 s more. Where that time goes is reported as well: the API server has to read
  all these objects before it is ready, by whomever etcd was restored.

The objects are written into etcd directly (`_objects.py`).

    ./run bench backup [--objects N] [--large N] [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _autarky import AutarkyCluster
from _figures import SECONDS, Figure
from _kubeadm import lab_host
from _objects import fill, objects
from _peak import Peaks
from _product import Product
from _rounds import STEADY_SECONDS, at_least_one, main

from autarky import places
from autarky.archive import Unlock, fresh_identity, opened
from autarky.archive.contents import SNAPSHOT, checked
from autarky.archive.keeping import description
from autarky.cli.wiring import Silence, lab_supplies
from autarky.hosts import LabHost
from autarky.lab import Lab, disk
from autarky.net.tls import client_context
from autarky.payload import Payload

OBJECTS, LARGE = 500_000, 400
QUOTA = 8 * 1024**3
DISK = 20 * 1024**3
"""Of a backup are there at once: the database, the snapshot and its trial; of a restore: two databases and what is left
of both. It takes no more of this machine's disk than is written to it."""
CLUSTER = AutarkyCluster("bench-backup", spec={"extraArgs": {"etcd": {"quota-backend-bytes": str(QUOTA)}}})
NODE = CLUSTER.control[0]
NAMESPACE = "bench-backup"
MEGABYTES = "MB"
MOST_MEMORY, MOST_SLOWER, MOST_MORE_SECONDS = 100.0, 2.0, 30.0
PROBED_SECONDS, RATE = 60, 100
STREAMS = {"kept-alive": "GET", "new-connections": "GET on a new connection", "writes": "write"}
WORKER, TRIAL = "the backup's program", "the etcd that tries the snapshot"
PROCESSES = {WORKER: b"\0autarky.agents.backup\0", TRIAL: b"\0--unsafe-no-fsync\0"}
OPENING = "open the backup"
PARTS = {
    OPENING: "the backup is opened, and tried",
    "tell-loss": "its keys are compared",
    "make-data": "the new data is made on the node",
    "start-etcd": "the new etcd starts",
    "await-api": "the API server reads all objects",
}
"""Phases of `restore`, and what precedes them."""
SCRATCH = f"{places.HOST_ROOT}/scratch/bench"

OPTIONS = argparse.ArgumentParser(add_help=False)
OPTIONS.add_argument("--objects", type=at_least_one, default=OBJECTS, help=f"small ones; default: {OBJECTS:,}")
OPTIONS.add_argument("--large", type=at_least_one, default=LARGE, help=f"of 1 MiB; default: {LARGE}")


@dataclass(frozen=True)
class Measured:
    """Seconds; bytes. before, during: 99th percentile by stream, in milliseconds. SystemExit where a size, a
    peak or a percentile is 0: it was not measured, and would be within every limit."""

    database: int
    archive: int
    backup: float
    worker: int
    trial: int
    before: dict[str, float]
    during: dict[str, float]
    restore: float
    parts: dict[str, float]
    alone: float

    def __post_init__(self) -> None:
        values = {
            "the snapshot": self.database,
            "the archive": self.archive,
            f"the memory of {WORKER}": self.worker,
            f"the memory of {TRIAL}": self.trial,
            **{f"the 99th percentile of {name} at rest": value for name, value in self.before.items()},
            **{f"the 99th percentile of {name} during the backup": value for name, value in self.during.items()},
        }
        if nothing := [name for name, value in values.items() if not value > 0]:
            raise SystemExit(f"backup: nothing was measured of {', '.join(nothing)}")


@dataclass(frozen=True)
class Bench:
    cluster: AutarkyCluster
    payload: Payload
    host: LabHost
    directory: Path
    identity: Path
    recipient: str

    async def measured(self, number: int) -> Measured:
        name = f"bench-{number}"
        before = self._probed("--duration", f"{PROBED_SECONDS}s")
        create = [*self.cluster.product.command, "backup", "create", name, "--recipient", self.recipient]
        with Peaks(_proc(self.cluster.name), PROCESSES) as peaks:
            report = self._probed("--", *create, "-f", str(self.cluster.file))
        if report["command_status"] != 0:
            raise SystemExit(f"autarky backup create has failed: {report['command_status']}")
        archive = await self._fetched(name)
        database, alone = await self._restored_alone(archive)
        restore = self.cluster.timed("restore", str(archive), "--identity", str(self.identity), "--yes")
        size = archive.stat().st_size
        archive.unlink()
        return Measured(
            database,
            size,
            report["seconds"],
            peaks.resident[WORKER],
            peaks.anonymous[TRIAL],
            _percentiles(before),
            _percentiles(report),
            restore,
            parts_of(self.cluster.log.read_text()),
            alone,
        )

    def _probed(self, *what: str) -> dict[str, Any]:
        """The probe's report; a request that failed is in its words on standard error."""
        argv = ["bench", "probe", "-f", str(self.cluster.file), "-o", "json", "--rate", str(RATE), *what]
        product = self.cluster.product
        done = subprocess.run([*product.command, *argv], check=False, capture_output=True, text=True, **product.where)
        try:
            report: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise SystemExit(f"autarky bench probe has failed:\n{done.stderr[-2000:]}") from error
        print(f"backup: the probe, {report['seconds']:.0f} s: {report['verdict']}", flush=True)
        if report["command_status"]:
            print(done.stderr[-2000:], flush=True)
        return report

    async def _fetched(self, name: str) -> Path:
        """The archive and the file beside it, on this machine."""
        said = self._kubectl("get", "backup", name, "-o", "json")
        obj: dict[str, Any] = json.loads(said)
        file, directory = str(obj["status"]["file"]), str(obj["spec"]["target"]["directory"])
        for one in (file, description(file)):
            await self.host.pull(f"{directory}/{one}", self.directory / one)
            await self.host.remove([f"{directory}/{one}"])
        return self.directory / file

    async def _restored_alone(self, archive: Path) -> tuple[int, float]:
        """(size of the snapshot, seconds that `etcdutl snapshot restore` takes with it)."""
        snapshot = self.directory / "snapshot.db"
        _unpack(archive, self.identity.read_text(), snapshot)
        size = snapshot.stat().st_size
        try:
            await self.host.run(["install", "-d", "-m", "700", SCRATCH])
            await self.host.push(snapshot, f"{SCRATCH}/snapshot.db", mode=0o600)
            argv = [f"{places.BIN}/etcdutl", "snapshot", "restore", f"{SCRATCH}/snapshot.db"]
            begin = time.monotonic()
            await self.host.run([*argv, "--data-dir", f"{SCRATCH}/data"], timeout=600)
            return size, time.monotonic() - begin
        finally:
            snapshot.unlink()
            await self.host.run(["rm", "-rf", SCRATCH], timeout=60)

    def _kubectl(self, *argv: str) -> str:
        command = [*self.cluster.kubectl(self.payload), *argv]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    async def fill(self, small: int, large: int) -> None:
        """Until the API server has seen all of them."""
        self._kubectl("create", "namespace", NAMESPACE)
        pki = [await self.host.read(f"{places.ETCD_PKI}/{name}") for name in ("ca.crt", "server.crt", "server.key")]
        tls = client_context(*(one or b"" for one in pki))
        begin = time.monotonic()
        count = await asyncio.to_thread(fill, self.host.address, tls, objects(NAMESPACE, small, large), lambda _: None)
        print(f"backup: {count:,} objects were written in {time.monotonic() - begin:.0f} s", flush=True)
        last = f"large-{large - 1:05}"
        self._kubectl("get", "configmap", last, "-n", NAMESPACE, "-o", "name")
        await asyncio.sleep(STEADY_SECONDS)


def _proc(lab: str) -> Path:
    """/proc as the host has it, which shows its own processes only."""
    return Path(f"/proc/{Lab.open(lab).records()[NODE].pid}/root/proc")


def _percentiles(report: dict[str, Any]) -> dict[str, float]:
    return {name: report["streams"][name]["p99"] * 1000 for name in STREAMS}


def parts_of(log: str) -> dict[str, float]:
    """Where the time of a restore went, by its events: seconds. What is in no part is in none of these phases."""
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    [opening, *_] = [event["seconds"] for event in events if event["kind"] == "operation-ended"]
    phases = {event["phase"]: float(event["seconds"]) for event in events if event["kind"] == "phase-ended"}
    return {PARTS[OPENING]: float(opening), **{what: phases[name] for name, what in PARTS.items() if name != OPENING}}


def _unpack(archive: Path, identity: str, snapshot: Path) -> None:
    with archive.open("rb") as file, opened(file, Unlock((identity,))) as files:
        for one in checked(files)[1]:
            with (snapshot if one.name == SNAPSHOT else Path("/dev/null")).open("wb") as written:
                written.writelines(one.pieces())


async def _roomy_host(payload: Payload) -> None:
    """The node's host, on a disk for this much; `up` takes one that runs as it is."""
    runc, seed = await lab_supplies(payload.release, Silence())
    usual, disk.SIZE = disk.SIZE, DISK
    try:
        await Lab.open(CLUSTER.name).ensure([NODE], runc=runc, seed=seed, progress=Silence())
    finally:
        disk.SIZE = usual


async def run(payload: Payload, product: Product, rounds: int, *, small: int, large: int) -> list[Figure]:
    cluster = CLUSTER.of(product)
    cluster.write()
    await _roomy_host(payload)
    cluster.up()
    with tempfile.TemporaryDirectory(prefix="autarky-bench-") as scratch:
        identity, recipient = fresh_identity()
        key = Path(scratch, "identity")
        key.write_text(f"{identity}\n")
        bench = Bench(cluster, payload, lab_host(cluster.name, NODE), Path(scratch), key, recipient)
        await bench.fill(small, large)
        measured = []
        for number in range(1, rounds + 1):
            measured.append(await bench.measured(number))
            print(f"backup: {number}: {measured[-1]}", flush=True)
    cluster.down()
    return figures(measured)


def figures(measured: Sequence[Measured]) -> list[Figure]:
    none = (None,) * len(measured)

    def size(name: str, values: Sequence[int], most: float | None = None) -> Figure:
        return Figure("backup", name, MEGABYTES, tuple(each / 1e6 for each in values), none, most=most)

    return [
        size("database", [m.database for m in measured]),
        size("archive", [m.archive for m in measured]),
        Figure("backup", "backup create", SECONDS, tuple(m.backup for m in measured), none),
        size(f"memory: {WORKER}", [m.worker for m in measured], MOST_MEMORY),
        size(f"memory: {TRIAL}", [m.trial for m in measured]),
        *(
            Figure(
                "backup",
                f"p99 of a {what}, beside at rest",
                "ms",
                tuple(m.during[stream] for m in measured),
                tuple(m.before[stream] for m in measured),
                MOST_SLOWER,
            )
            for stream, what in STREAMS.items()
        ),
        Figure(
            "backup",
            "restore, beside etcdutl snapshot restore",
            SECONDS,
            tuple(m.restore for m in measured),
            tuple(m.alone for m in measured),
            more=MOST_MORE_SECONDS,
        ),
        *(
            Figure("backup", f"restore: {part}", SECONDS, tuple(m.parts[part] for m in measured), none)
            for part in PARTS.values()
        ),
    ]


if __name__ == "__main__":
    given, _ = OPTIONS.parse_known_args()
    main(__doc__, [partial(run, small=given.objects, large=given.large)], beside="without", more_options=[OPTIONS])
