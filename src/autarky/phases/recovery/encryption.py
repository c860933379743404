"""The encryption configuration of a backup, for a cluster on new machines.

Contract: the first API server of the recovered cluster is hosted by nobody yet, and reads with it what was stored
encrypted: also the Secret that the hosted API servers get theirs from. As long as their agents have not made standbys
of those, it is a file of the standby, for root only. Where the API server read it from its host, each control node gets
it there as well, unless a person has put one there; and where the backup does not have it, that person has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from autarky.control.backup.decide.encryption import Encryption
from autarky.control.certificates.manifests import leaves
from autarky.engine.phase import Change
from autarky.errors import Refused
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.phases.context import Context, for_each
from autarky.ports import Progress

READS = "the API server of a recovered cluster reads what was stored"
_UNSHARED, _SHARED = 0o440, 0o640
_SHARE = f'chgrp {leaves.GROUP} -- "$1" && chmod {_SHARED:o} -- "$1"'
"""As with leaf certificates, the hosted pods read it by their group."""


@dataclass(frozen=True, slots=True)
class TakeEncryption:
    """It only looks. From here on, the standby of the API server is made with that file."""

    encryption: Encryption | None
    name: str = "take-encryption"
    title: str = "Look for the encryption configuration"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change]:
        if self.encryption is not None:
            given = self.encryption.content
            context.encryption = await _on_the_hosts(context, self.encryption.path) if given is None else given
        return []

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""


async def _on_the_hosts(context: Context, path: str) -> str:
    """What the first control node has there. Refused where one of them has nothing."""
    found = await for_each(_control_nodes(context), lambda node: _read(context, node, path))
    lacking = sorted(name for name, content in found.items() if content is None)
    if lacking:
        raise Refused(
            READS,
            f"some of it is encrypted, and cannot be read without {path}, which is neither in the backup nor on"
            f" {', '.join(lacking)}: no API server would get ready",
            "put that file there as it was on the old machines, and run the same command again",
        )
    return (found[context.first.name] or b"").decode(errors="replace")


async def _read(context: Context, node: Node, path: str) -> bytes | None:
    host = context.machines.host(node.name)
    return None if host is None else await host.read(path)


@dataclass(frozen=True, slots=True)
class PutEncryption:
    """Where the hosts are marked as the cluster's, and before any API server starts."""

    encryption: Encryption | None
    name: str = "put-encryption"
    title: str = "Write the encryption configuration"
    timeout: float = 60
    needs: tuple[str, ...] = ("prepare-hosts",)

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(f"write {file.path} on {name}") for name, file in (await self._missing(context)).items()]

    async def run(self, context: Context, progress: Progress) -> None:
        for name, file in (await self._missing(context)).items():
            host = context.host(context.cluster.node(name))
            await host.write_files([file])
            await host.run(["sh", "-c", _SHARE, "sh", file.path])

    async def _missing(self, context: Context) -> Mapping[str, File]:
        """Control node → what it lacks, or was not shared by a run that was cut."""
        one = self.encryption
        if one is None or one.content is None or one.is_own:
            return {}
        file = File(one.path, one.content.encode(), _UNSHARED)
        unshared = (sha256(file.content).hexdigest(), _UNSHARED)
        seen = await for_each(_control_nodes(context), lambda node: _seen(context, node, file.path))
        return {name: file for name, found in seen.items() if found in (None, unshared)}


async def _seen(context: Context, node: Node, path: str) -> tuple[str, int] | None:
    host = context.machines.host(node.name)
    return None if host is None else (await host.digests([path])).get(path)


def _control_nodes(context: Context) -> Sequence[Node]:
    return context.present(context.cluster.control_nodes)
