"""Removing what no known release needs any more: older builds, unused layers, old image directories."""

from __future__ import annotations

import asyncio
from pathlib import Path

from autarky import places
from autarky.payload.get import needed_records
from autarky.payload.release import known_versions, load_release
from autarky.payload.store import Store, remove_tree
from autarky.ports import Progress
from autarky.store import waiting_lock


async def prune_store(progress: Progress) -> int:
    """Remove records and blobs that no known release leads to; returns how many bytes that freed."""
    store = Store()
    async with waiting_lock(store.root / "lock", lambda: progress.note("waiting for another process that builds")):
        return await asyncio.to_thread(_prune, store, progress)


def _prune(store: Store, progress: Progress) -> int:
    needed = {key for version in known_versions() for key in needed_records(store, load_release(version))}
    records = store.records()
    for key in records.keys() - needed:
        store.remove_record(key)
    blobs = {records[key].get("sha256") for key in records.keys() & needed}  # a torn record has none
    freed = 0
    for blob in store.blobs():
        if blob.name not in blobs:
            freed += blob.stat().st_size
            blob.unlink()
    for directory in _unused_templates():
        progress.note(f"removing {directory}")
        remove_tree(directory)
    return freed


def _unused_templates() -> list[Path]:
    """All of them: they are made again in seconds by the next lab, and most are of older images."""
    parent = places.cache_dir() / "containerd-templates"
    return [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
