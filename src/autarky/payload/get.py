"""Getting a payload from the store; what is missing is built, with progress.

Contract: only what the asked groups need is built; nothing is built twice, also by two processes at
once; what is handed out was verified by digest. With a warm store it needs neither tools nor a network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from autarky.errors import UserError
from autarky.payload import gobuild
from autarky.payload.artefacts import Payload, missing, stored_binary, stored_image
from autarky.payload.build_tools import Needs, refuse_missing_tools
from autarky.payload.images import build_images, missing_layers
from autarky.payload.programs import side_by_side
from autarky.payload.release import BinarySpec, Component, Release, wanted_binaries, wanted_images
from autarky.payload.store import Store
from autarky.ports import Progress
from autarky.store import waiting_lock

SOURCES = ("store", "build")


async def get_payload(
    release: Release,
    progress: Progress,
    *,
    groups: Collection[str] = ("cluster",),
    sources: Sequence[str] = SOURCES,
) -> Payload:
    """The payload; UserError if it is not in the store and may not be built."""
    _refuse_unknown(sources)
    store = Store()
    lacking = await asyncio.to_thread(missing, store, release, groups)
    if lacking and "build" not in sources:
        options = "".join(f" --group {group}" for group in groups)
        raise UserError(
            f"not in the store: {', '.join(lacking)}", fix=f"autarky payload get {release.kubernetes}{options}"
        )
    if lacking:
        async with waiting_lock(store.lock, lambda: progress.note("waiting for another process that builds")):
            await _build(release, groups, progress)
    return await asyncio.to_thread(_collect, store, release, groups)


def _refuse_unknown(sources: Sequence[str]) -> None:
    unknown = [source for source in sources if source not in SOURCES]
    if unknown:
        raise UserError(f"unknown source {', '.join(unknown)}", fix=f"use {', '.join(SOURCES)}")


async def _build(release: Release, groups: Collection[str], progress: Progress) -> None:
    """Build what is still missing, now that no other process does. The lock is held."""
    store = Store()
    store.clear_scratch()
    await asyncio.to_thread(missing, store, release, groups)
    for digest in sorted(store.damaged):
        progress.note(f"blob {digest[:16]} of the store is damaged; it is built again")
    lacking = _lacking_binaries(store, release, groups)
    components = {component.name: component for component in release.components}
    lacks_layers, lacks_python = missing_layers(store, release, groups)
    compiled = [name for name in lacking if components[name].cgo]
    lacks_go = bool(lacking) and not await gobuild.go_is_there()
    await refuse_missing_tools(Needs(compiled, layers=lacks_layers, pip=lacks_python or lacks_go))
    if lacking:
        await _build_binaries(store, components, lacking, progress)
    await build_images(store, release, groups, progress)


def _lacking_binaries(store: Store, release: Release, groups: Collection[str]) -> dict[str, list[BinarySpec]]:
    """Component → its binaries that are not in the store."""
    lacking: dict[str, list[BinarySpec]] = {}
    for component, binary in wanted_binaries(release, groups):
        if stored_binary(store, component, binary) is None:
            lacking.setdefault(component.name, []).append(binary)
    return lacking


async def _build_binaries(
    store: Store, components: Mapping[str, Component], lacking: Mapping[str, Sequence[BinarySpec]], progress: Progress
) -> None:
    go = await gobuild.find_go(progress)
    await side_by_side(
        gobuild.build_binaries(go, store, components[name], binaries, progress) for name, binaries in lacking.items()
    )


def _collect(store: Store, release: Release, groups: Collection[str]) -> Payload:
    binaries = {b.name: stored_binary(store, c, b) for c, b in wanted_binaries(release, groups)}
    images = {i.name: stored_image(store, release, i) for i in wanted_images(release, groups)}
    lost = [name for name, found in (*binaries.items(), *images.items()) if found is None]
    if lost:
        raise UserError(f"{', '.join(lost)} disappeared from the store meanwhile", fix="run the command again")
    return Payload(
        release,
        {name: binary for name, binary in binaries.items() if binary is not None},
        {name: image for name, image in images.items() if image is not None},
    )
