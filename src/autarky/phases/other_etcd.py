"""Another version of etcd than that of the release, on every node: its image and its programs.

Contract: no member is restarted, and no node is left without what its member runs. The image is compared by reference
alone: what a node has under that name is left alone. Programs are replaced only by newer ones. Only versions that are
known here; whoever asks for another must provide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autarky.engine.phase import Change, Warn
from autarky.errors import UserError
from autarky.model.cluster import Node
from autarky.model.components import ETCD
from autarky.model.versions import Version
from autarky.payload import Release, etcd_version, get_payload, known_etcd_versions, load_etcd, needs
from autarky.phases import etcd_asked, etcd_programs
from autarky.phases.binaries import install_binaries
from autarky.phases.context import Context, for_each_or_left_out, left_out_since
from autarky.phases.hosts import observe, refuse_foreign_hosts
from autarky.phases.prepare import SEEN_WITHIN, import_images, present_images
from autarky.phases.supply import GROUPS
from autarky.ports import Progress
from autarky.render.node import ETCD_TOOLS

WITHIN = 600.0
"""Seconds for one worker that joined before; it is left out after that."""


@dataclass(frozen=True, slots=True)
class FindNodes:
    """For a command that does nothing else: it only looks. Hosts that are not of the cluster are never touched."""

    name: str = "find-nodes"
    title: str = "Find the nodes"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Warn]:
        external = context.cluster.external_etcd
        if external is not None:
            raise UserError(
                f"etcd of cluster {context.cluster.name} is external", fix="change its version where it runs"
            )
        await observe(context)
        await refuse_foreign_hosts(context)
        for node in context.present(context.cluster.nodes):
            if node.name not in context.owners:
                context.absent[node.name] = "it is not prepared yet, which `autarky up` does"
        return left_out_since(context, ())

    async def run(self, context: Context, progress: Progress) -> None:
        """Never reached: nothing is to be changed."""


@dataclass(frozen=True, slots=True)
class _Lacks:
    """What a node lacks of the version; programs by name."""

    image: bool
    programs: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.image or bool(self.programs)

    def sentences(self, node: str, version: Version, reference: str) -> list[str]:
        found = [f"import {reference} on {node}"] if self.image else []
        return found + ([f"install {', '.join(self.programs)} {version} on {node}"] if self.programs else [])


@dataclass(frozen=True, slots=True)
class BringEtcd:
    """version: None for the one that is asked for of the members, by the ControlPlane object or its file, or from when
    the cluster was made."""

    version: Version | None = None
    name: str = "bring-etcd"
    title: str = "Bring another version of etcd"
    timeout: float = 3600

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        before = set(context.absent)
        version = await self._wanted(context)
        if version is None:
            return []
        release = load_etcd(version)
        lacking = await _lacking(context, release)
        reference = release.image(ETCD).reference
        sentences = [one for name, lacks in lacking.items() for one in lacks.sentences(name, version, reference)]
        builds = [f"build {name} {version}" for name in needs(release, GROUPS)] if sentences else []
        return [*map(Change, builds + sentences), *left_out_since(context, before)]

    async def run(self, context: Context, progress: Progress) -> None:
        version = await self._wanted(context)
        if version is None:
            return
        release = load_etcd(version)
        lacking = await _lacking(context, release)
        payload = await get_payload(release, progress, groups=GROUPS)

        async def one(node: Node) -> None:
            host, lacks = context.host(node), lacking[node.name]
            # The image first: a program that is there shows that nothing is missing.
            if lacks.image:
                await import_images(host, [payload.images[ETCD]], progress)
            programs = {ETCD_TOOLS[name]: payload.binaries[name] for name in lacks.programs}
            await install_binaries(host, programs, progress)
            progress.note(f"{node.name} has etcd {version}")

        nodes = [node for node in context.cluster.nodes if node.name in lacking]
        await for_each_or_left_out(context, nodes, one, progress, seconds=WITHIN)

    async def _wanted(self, context: Context) -> Version | None:
        return self.version if self.version is not None else await _asked_for(context)


async def _asked_for(context: Context) -> Version | None:
    """What the members are to have; None where the release has it, or where it is not known here."""
    version = await etcd_asked.version(context)
    return version if version in known_etcd_versions() and version != etcd_version(context.release) else None


async def _lacking(context: Context, release: Release) -> dict[str, _Lacks]:
    """Node → what it lacks; nodes that lack nothing are left out."""
    version, own = Version.parse(release.components[0].version), etcd_version(context.release)

    async def of(node: Node) -> _Lacks:
        host = context.host(node)
        seen = await etcd_programs.versions(host, list(ETCD_TOOLS.values()))
        # Programs without a version are those that the next `up` replaces by the release's own.
        older = [name for name, path in ETCD_TOOLS.items() if seen.get(path, own) < version]
        present = await present_images(host) or {}
        return _Lacks(release.image(ETCD).reference not in present, tuple(older))

    found = await for_each_or_left_out(context, context.present(context.cluster.nodes), of, seconds=SEEN_WITHIN)
    return {name: lacks for name, lacks in found.items() if lacks}
