from __future__ import annotations

import pytest

from autarky.payload import (
    Store,
    known_etcd_versions,
    known_versions,
    load_etcd,
    load_release,
    prune_store,
    verify_store,
)
from autarky.payload.artefacts import binary_key, needed_records
from fakes.heard_progress import HeardProgress


def add(store: Store, content: bytes) -> str:
    with store.scratch("build") as scratch:
        (scratch / "built").write_bytes(content)
        return store.add(scratch / "built")[0]


@pytest.fixture
def needed(own_store: Store) -> list[str]:
    return sorted(needed_records(own_store, load_release(known_versions()[0])))


async def test_pruning_removes_what_no_release_leads_to_and_survives_a_torn_record(own_store, needed):
    kept, torn, *_ = needed
    own_store.write_record(kept, {"sha256": add(own_store, b"kept"), "size": 4, "name": "kept"})
    own_store.write_record("of-an-older-recipe", {"sha256": add(own_store, b"stale")})
    (own_store.root / "records" / f"{torn}.json").write_text("{")
    assert await prune_store(HeardProgress()) == len(b"stale")
    assert [path.read_bytes() for path in own_store.blobs()] == [b"kept"]
    assert set(own_store.records()) == {kept, torn}


@pytest.mark.parametrize("version", known_etcd_versions(), ids=str)
async def test_pruning_keeps_what_another_version_of_etcd_needs(own_store, version):
    [component] = load_etcd(version).components
    keys = {binary_key(component, binary) for binary in component.binaries}
    for key in keys:
        own_store.write_record(key, {"sha256": add(own_store, key.encode()), "size": len(key), "name": "etcd"})
    assert await prune_store(HeardProgress()) == 0
    assert set(own_store.records()) == keys
    assert {path.read_text() for path in own_store.blobs()} == keys


async def test_pruning_removes_what_killed_runs_left(own_store):
    leftover = own_store.root / "scratch" / "build-1" / "half"
    leftover.mkdir(parents=True)
    template = own_store.root.parent / "containerd-templates" / "1234"
    template.mkdir(parents=True)
    (template / "meta.db").write_text("")
    assert await prune_store(HeardProgress()) == 0
    assert not (own_store.root / "scratch").exists()
    assert not template.exists()


async def test_an_empty_store_is_pruned_and_verified(own_store):
    assert await prune_store(HeardProgress()) == 0
    assert await verify_store(HeardProgress()) == []


async def test_verifying_reads_everything_and_removes_what_is_damaged(own_store):
    complete, damaged = add(own_store, b"intact"), add(own_store, b"damaged")
    own_store.blob_path(damaged).write_bytes(b"Damaged")
    reported = HeardProgress()
    assert await verify_store(reported) == [damaged]
    assert [path.name for path in own_store.blobs()] == [complete]
    assert reported.notes == [f"blob {damaged[:16]} was damaged; removed"]
    assert reported.steps[-1] == ("blobs", 2, 2)
