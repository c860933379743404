"""Binaries on hosts.

Contract: each lies under a content-addressed name before a link points to it, so that "the link points there" proves
the right content without hashing 300 MB.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from autarky import places
from autarky.payload import Binary, Payload
from autarky.phases import etcd_programs
from autarky.ports import Host, Progress

STORE = f"{places.HOST_ROOT}/store"


def stored(binary: Binary) -> str:
    """Where it lies on a host."""
    return f"{STORE}/{places.stored_name(binary.name, binary.sha256)}"


async def missing_binaries(host: Host, payload: Payload, wanted: Mapping[str, str]) -> dict[str, Binary]:
    """Path → binary for every link that does not point to the right content. Programs of etcd that are newer are right
    as well: somebody has brought them for the members of this cluster."""
    paths = list(wanted.values())
    script = 'for p; do t=$(readlink "$p") && [ -x "$p" ] || t=-; printf "%s %s\\n" "$p" "$t"; done'
    seen = (await host.run(["sh", "-c", script, "sh", *paths])).text.splitlines()
    points_to = {path: target for path, _, target in (line.partition(" ") for line in seen)}
    binaries = {path: payload.binaries[name] for name, path in wanted.items()}
    missing = {path: binary for path, binary in binaries.items() if points_to.get(path) != stored(binary)}
    others = {path: points_to[path] for path in missing if points_to.get(path, "").startswith(f"{STORE}/")}
    kept = await etcd_programs.kept(host, payload.release, others)
    return {path: binary for path, binary in missing.items() if path not in kept}


async def install_binaries(
    host: Host, binaries: Mapping[str, Binary], progress: Progress, *, unlinked: Collection[str] = ()
) -> None:
    """Content first, links last: a link never points to half a file. unlinked: links that somebody else changes."""
    if not binaries:
        return
    for number, binary in enumerate(binaries.values()):
        progress.progress(f"{host.name}: binaries", number, len(binaries))
        await host.push(binary.path, stored(binary), mode=0o755)
    await point_links(host, {path: stored(binary) for path, binary in binaries.items() if path not in unlinked})


async def point_links(host: Host, targets: Mapping[str, str]) -> None:
    """Link → what it is to point to, each in one rename."""
    if not targets:
        return
    links = [f"{target} {path}" for path, target in targets.items()]
    directories = sorted({str(PurePosixPath(path).parent) for path in targets})
    script = (
        'mkdir -p "$@" && while read -r target link; do'
        ' ln -sfn "$target" "$link.new" && mv -T "$link.new" "$link" || exit 1; done'
    )
    await host.run(["sh", "-c", script, "sh", *directories], stdin=("\n".join(links) + "\n").encode())
