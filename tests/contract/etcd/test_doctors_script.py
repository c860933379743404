"""doctor's script beside a real member: what it prints is what the member says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autarky.doctor import evidence
from autarky.doctor.evidence import SaidByScript, read_said
from autarky.errors import ApiError
from autarky.etcd import EtcdClient
from autarky.programs import program
from contract.etcd_cluster import Cluster
from contract.servers import a_member, free_ports

pytestmark = pytest.mark.contract
QUOTA = 16 * 1024 * 1024


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    await found.close()


async def looked_at(directory: Path, port: int) -> SaidByScript:
    paths = ("manifests", "fence", "copy", "kept", "peer_ca", "kubelets", "slot_lock")
    configuration = ("configuration_path", "configuration_file")
    values = {
        **{name: directory / "none" / name for name in (*paths, *configuration)},
        **dict.fromkeys(("units", "disks", "api_ports"), ""),
    }
    script = program(evidence.__file__, "doctor.sh", etcd_port=port, balancer_port=1, sync_seconds=0, **values)
    done = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=asyncio.subprocess.PIPE)
    said, _ = await done.communicate()
    return read_said(said.decode(), ())


async def write(client: EtcdClient, mebibytes: int) -> None:
    for _ in range(mebibytes):
        await client.put(b"/registry/same", bytes(1_000_000))


async def test_it_prints_what_a_member_says_of_its_database_its_log_and_its_alarms(
    cluster: Cluster, tmp_path: Path
) -> None:
    one, [port] = a_member("one"), free_ports(1)
    arguments = {"quota-backend-bytes": QUOTA, "listen-metrics-urls": f"http://127.0.0.1:{port}"}
    client = await cluster.start(one, [one], arguments=arguments)
    await client.put(b"/registry/a", b"b")
    before, found, after = await client.status(), await looked_at(tmp_path, port), await client.status()
    assert (found.etcd, found.alarms) == (200, [])
    assert found.database.keys() == {"size", "quota", "applied"}
    assert before.db_size <= found.database["size"] <= after.db_size
    assert found.database["quota"] == QUOTA
    assert before.raft_applied_index <= found.database["applied"] <= after.raft_applied_index
    with pytest.raises(ApiError, match="space exceeded"):
        await write(client, 40)
    full = await looked_at(tmp_path, port)
    assert full.alarms == ["NOSPACE"]
    assert full.etcd == 200, "it still serves reads"
    assert full.fsync is None, "nothing was written between its two looks"
