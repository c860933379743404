"""What a restore will take away, reported before it begins: the keys of etcd now, beside those of the snapshot."""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autarky import places
from autarky.control.backup.decide.loss import PREFIX, Written, compare, sentences
from autarky.engine.phase import Change, Warn
from autarky.errors import CommandFailed, Unreachable
from autarky.phases.context import Context
from autarky.phases.recovery.state import Recovery, nodes_of, on_host
from autarky.ports import Host, Progress

_SECONDS = 600.0
_SCRATCH = f"{places.HOST_ROOT}/scratch/keys"


@dataclass(frozen=True, slots=True)
class TellLoss:
    """It only looks. then(): the keys of the snapshot."""

    recovery: Recovery
    then: Callable[[], Mapping[str, Written]]
    name: str = "tell-loss"
    title: str = "Compare with what there is now"
    timeout: float = 2 * _SECONDS

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if self.recovery.made:
            return []
        for node in nodes_of(context, self.recovery):
            try:
                now = await _keys_on(context.host(node))
            except (CommandFailed, Unreachable):
                continue
            return [Warn(sentence) for sentence in sentences(compare(self.then(), now))]
        return [Warn("etcd does not answer: what was written since the backup is not known")]

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""


async def _keys_on(host: Host) -> Mapping[str, Written]:
    """As its member has them."""
    try:
        await on_host(host, ["keys", _SCRATCH], timeout=_SECONDS)
        with tempfile.TemporaryDirectory(prefix="autarky-keys-") as scratch:
            local = Path(scratch, "keys.gz")
            await host.pull(f"{_SCRATCH}/keys.gz", local)
            return read_keys(gzip.decompress(local.read_bytes()))
    finally:
        await host.run(["rm", "-rf", _SCRATCH], check=False)


def read_keys(listing: bytes) -> Mapping[str, Written]:
    """Kubernetes' keys in what `etcdctl get --keys-only -w json` printed. ValueError."""
    found = {}
    for one in json.loads(listing).get("kvs", ()):
        key = base64.b64decode(one["key"]).decode(errors="replace")
        if key.startswith(PREFIX):
            found[key] = (int(one["create_revision"]), int(one["mod_revision"]))
    return found
