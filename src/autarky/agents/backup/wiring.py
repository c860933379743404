"""One backup is made, or its archive removed, on this node: what the operator's pod runs.

Contract: the last thing it writes is what it did, or what is wrong, as one JSON object that the operator reads; it
never has a key in it. It may be killed at any moment, and another attempt begins from scratch, under another name.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autarky import __version__, places
from autarky.agents.backup.dealing import deal
from autarky.agents.log import logger
from autarky.archive import Directory, Lock, Sealed, Target, check_lock
from autarky.archive.contents import CLUSTER_FILE, CONTROL_PLANE, Contents
from autarky.archive.keeping import description, keep
from autarky.archive.targets import S3, Bucket
from autarky.control.backup.manifests import pods
from autarky.errors import AutarkyError, UserError
from autarky.etcd import snapshots
from autarky.hosts.local import LocalHost
from autarky.render.cluster_record import FILE_KEY
from autarky.upkeep import backup
from autarky.upkeep.flushing import flushed
from autarky.upkeep.patience import seconds_for

MOST_SAID = 3500
"""Characters: a kubelet keeps 4096 bytes of what a container says at its end."""
_MOST_LACKING = 1000
"""Characters, beside the result."""


def run(request: str, said: Path) -> int:
    """The exit status: 0 when it has done what was asked for."""
    asked = json.loads(request)
    log = logger(agent="backup", backup=asked["backup"])
    try:
        found = asyncio.run(_until_told_to_stop(asked, log.info))
    except Exception as error:  # also what nobody expected is to be said
        sentence = str(error) if isinstance(error, AutarkyError | OSError) else f"{type(error).__name__}: {error}"
        log.exception("failed", error=sentence)
        elsewhere = {pods.ELSEWHERE: True} if isinstance(error, backup.Unfit) else {}
        said.write_text(json.dumps({"error": sentence[:MOST_SAID], **elsewhere}))
        return 1
    said.write_text(json.dumps(found))
    return 0


async def _until_told_to_stop(asked: Mapping[str, Any], tell: Any) -> Mapping[str, Any]:
    """When the pod is deleted, what is half done is taken away in its grace period."""
    work = asyncio.ensure_future(_make(asked, tell) if asked["verb"] == "make" else _remove(asked, tell))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        return await work
    except asyncio.CancelledError as error:
        raise UserError("it was told to stop", fix="ask for another backup") from error


async def _remove(asked: Mapping[str, Any], tell: Any) -> Mapping[str, Any]:
    file = asked["file"]

    def removed(target: Target) -> None:
        _refuse_another_disk(target, file, asked.get("beside", ()))
        for name in (description(file), file):
            target.remove(name)

    await deal(_target(asked["target"]), removed)
    tell(f"{file} is removed")
    return {}


def _refuse_another_disk(target: Target, file: str, beside: Sequence[str]) -> None:
    """UserError where nothing is there that should be, rather than the archive is gone: it would be kept forever."""
    if beside and not any(target.has(one) for one in (file, *beside)):
        raise UserError(
            f"{target.place} has neither {file} nor any of {len(beside)} other archives that Backups name: its disk may"
            " not be mounted",
            fix="mount it; if the archive is really gone, delete the Backup, which removes no file",
        )


async def _make(asked: Mapping[str, Any], tell: Any) -> Mapping[str, Any]:
    encryption = asked["encryption"]
    lock = Lock(tuple(encryption["recipients"]), encryption.get("identity", ""))
    check_lock(lock)
    target, host = _target(asked["target"]), LocalHost(asked["node"])
    marker = backup.marker_of(Path(places.NODE_MARKER).read_bytes())
    made = _now()
    file = _name(marker.cluster, asked["backup"], made)
    await deal(target, lambda it: it.has(file))  # whether the target is there at all
    with flushed(Path(places.HOST_ROOT, "scratch")):
        async with backup.snapshot_taken(host, "backup", backup.TRIED_HERE, tell) as taken:
            snapshot = await _proved(taken, tell)
            contents, parts = backup.archive_of(
                marker,
                snapshot,
                backup.files_here(Path("/")),
                made=made,
                autarky=__version__,
                cluster=_of_the_cluster(asked),
            )
            size = sum(one.size for one in contents.files.values())
            tell(f"sealing {size:,} bytes for {len(lock.recipients)} recipients")
            sealed, verified = await deal(target, lambda it: keep(it, file, contents, parts, lock, _now))
    tell(f"{file}: {sealed.size:,} bytes, {contents.etcd.keys:,} keys, verified")
    return _result(contents, file, sealed, verified, backup.lacking_in(parts))


async def _proved(taken: backup.Taken, tell: Any) -> backup.Snapshot:
    """Restored into an etcd of its own, in the directory that is removed with the snapshot."""
    path = Path(taken.path)
    intact = await asyncio.to_thread(snapshots.intact, path)
    tell("starting an etcd from the snapshot")
    limit = seconds_for(intact.size)
    tried = await snapshots.tried(path, path.parent / "tried", Path(places.BIN), timeout=limit)
    tell(f"it serves {tried.keys:,} keys of revision {tried.revision:,}")
    return backup.Snapshot(path, taken, intact, tried)


def _name(cluster: str, backup: str, made: str) -> str:
    """One that no other attempt has: one that was given up may still be writing, and a Backup that came back with a
    restored etcd must not touch the archive that it was restored from."""
    return f"{cluster}-{backup}-{made.replace(':', '').replace('-', '')}-{secrets.token_hex(3)}.tar.gz.age"


def _result(contents: Contents, file: str, sealed: Sealed, verified: str, lacks: str) -> dict[str, Any]:
    """Fields of the Backup's status. lacks: what a recovery would need besides."""
    return {
        **({"message": lacks[:_MOST_LACKING]} if lacks else {}),
        "file": file,
        "size": sealed.size,
        "sha256": sealed.sha256,
        "revision": contents.etcd.revision,
        "keys": contents.etcd.keys,
        "etcdVersion": contents.etcd.version,
        "kubernetesVersion": contents.kubernetes,
        "made": contents.made,
        "verified": verified,
    }


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_the_cluster(asked: Mapping[str, Any]) -> dict[str, bytes]:
    """The cluster file as applied last, and the ControlPlane; those that are known."""
    found = {CONTROL_PLANE: json.dumps(asked["controlPlane"], indent=1).encode()} if asked["controlPlane"] else {}
    with suppress(FileNotFoundError):
        found[CLUSTER_FILE] = Path(pods.RECORD, FILE_KEY).read_bytes()
    return found


# --- where archives go --------------------------------------------------------------------------------


def _target(spec: Mapping[str, Any]) -> Target:
    s3 = spec.get("s3")
    if s3 is None:
        return Directory(Path(spec["directory"]))
    endpoint = s3.get("endpoint")
    bucket = Bucket(
        name=s3["bucket"],
        key_id=_credential(s3, pods.KEY_ID),
        secret=_credential(s3, pods.SECRET_KEY),
        endpoint=endpoint,
        region=s3.get("region", "us-east-1"),
        prefix=s3.get("prefix", ""),
        plain=endpoint is not None and endpoint.startswith("http://"),
    )
    _trust(Path(pods.CREDENTIALS, pods.CA_CERTIFICATES))
    return S3(bucket)


def _credential(s3: Mapping[str, Any], key: str) -> str:
    try:
        return Path(pods.CREDENTIALS, key).read_text().strip()
    except FileNotFoundError as error:
        secret = s3["credentialsSecret"]
        raise UserError(f"Secret kube-system/{secret} has no {key}", fix=f"add {key} to it") from error


def _trust(given: Path) -> None:
    """The S3 library reads its CAs from the file that this variable names, and nothing else here uses it."""
    if not given.is_file():
        return
    usual = Path("/etc/ssl/certs/ca-certificates.crt")
    with tempfile.NamedTemporaryFile("wb", dir="/dev/shm", delete=False) as bundle:  # of this container
        bundle.write(given.read_bytes() + b"\n" + (usual.read_bytes() if usual.is_file() else b""))
    os.environ["SSL_CERT_FILE"] = bundle.name
