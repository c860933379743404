"""Looking after the store: reading all of it again, and removing what no known release or version
of etcd needs."""

from __future__ import annotations

import asyncio

from autarky.errors import Problems
from autarky.payload.artefacts import needed_records
from autarky.payload.etcd_versions import known_etcd_versions, load_etcd
from autarky.payload.release import known_versions, load_release, unusable_files
from autarky.payload.store import Store
from autarky.payload.template import remove_templates
from autarky.ports import Progress
from autarky.store import waiting_lock


async def verify_store(progress: Progress) -> list[str]:
    """Hash every blob; returns the digests of damaged ones, which are removed."""
    store = Store()
    async with waiting_lock(store.lock, lambda: progress.note("waiting for another process that builds")):
        blobs = list(store.blobs())
        for number, blob in enumerate(blobs):
            progress.progress("blobs", number, len(blobs))
            if not await asyncio.to_thread(store.check, blob.name):
                progress.note(f"blob {blob.name[:16]} was damaged; removed")
                blob.unlink(missing_ok=True)
        progress.progress("blobs", len(blobs), len(blobs))
    return sorted(store.damaged)


async def prune_store(progress: Progress) -> int:
    """Remove records and blobs that no known release or version of etcd leads to, and the image directories of labs,
    which the next lab makes again in seconds. Returns how many bytes of blobs that freed.

    UserError where a release file cannot be used.
    """
    if unusable := unusable_files():  # what they need would be removed as well
        raise Problems("these release files are unusable, so what they need is unknown", unusable)
    store = Store()
    async with waiting_lock(store.lock, lambda: progress.note("waiting for another process that builds")):
        store.clear_scratch()
        freed = await asyncio.to_thread(_prune, store)
    await remove_templates(progress)
    return freed


def _prune(store: Store) -> int:
    releases = [*map(load_release, known_versions()), *map(load_etcd, known_etcd_versions())]
    needed = {key for release in releases for key in needed_records(store, release)}
    records = store.records()
    for key in records.keys() - needed:
        store.remove_record(key)
    blobs = {records[key].get("sha256") for key in records.keys() & needed}  # a torn record has none
    freed = 0
    for blob in store.blobs():
        if blob.name not in blobs:
            freed += blob.stat().st_size
            blob.unlink()
    return freed
