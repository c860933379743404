"""Layers in the store, and the layer that holds nothing but binaries and links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autarky.payload.oci import Entry, Layer, write_layer
from autarky.payload.store import Store
from autarky.store import file_digest


def stored_layer(store: Store, key: str) -> Layer | None:
    """The layer recorded under the key, if it is there and intact."""
    record = store.record(key)
    if record is None or not store.has(record["sha256"]):
        return None
    return Layer(store.blob_path(record["sha256"]), record["sha256"], record["size"])


def keep_layer(store: Store, key: str, built: Path) -> Layer:
    """Move a layer into the store and record it under the key."""
    digest, size = store.add(built)
    store.write_record(key, {"sha256": digest, "size": size, "name": key})
    return Layer(store.blob_path(digest), digest, size)


def loose_layer(path: Path) -> Layer:
    """A layer that is not kept: it is cheap to make, and the image archive holds it anyway."""
    return Layer(path, file_digest(path), path.stat().st_size)


def binary_layer(target: Path, binaries: Sequence[tuple[str, Path]], links: Sequence[tuple[str, str]] = ()) -> Layer:
    """Programs under /usr/local/bin, and links: path → where it leads to."""
    programs = [Entry(f"usr/local/bin/{name}", 0o755, source=path) for name, path in binaries]
    write_layer(target, [*programs, *(Entry(path, 0o777, link=leads_to) for path, leads_to in links)])
    return loose_layer(target)
