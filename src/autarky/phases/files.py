"""Files on hosts, as the phases compare them: by content and mode."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from autarky.model.files import File
from autarky.ports import Host


async def changed_files(host: Host, files: Sequence[File]) -> list[File]:
    """Those whose content or mode differs on the host."""
    seen = await host.digests([file.path for file in files])
    return [file for file in files if seen.get(file.path) != (sha256(file.content).hexdigest(), file.mode)]
