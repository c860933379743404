"""Whether the API servers of the cluster can read what the data has encrypted that a new etcd is to be made of.

Contract: it only looks, before anything is touched. What a key has encrypted that no configuration here names any more
nobody could read: no API server would serve it, and no hosted one start, which get their own configuration from such a
Secret. How they read now is asked of the standbys on the hosts, which are made of what serves. Where one of them can
read all of it, the others only serve less than that: as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from autarky.control.backup.decide import readers
from autarky.control.backup.decide.encryption import Encryption, encryption_of
from autarky.control.backup.decide.readers import Readers
from autarky.control.backup.decide.written_by import STANDBY_POD
from autarky.control.slots.manifests import is_complete
from autarky.engine.phase import Change, Warn
from autarky.errors import AutarkyError, Refused
from autarky.phases.context import Context
from autarky.phases.recovery.state import FromKept, FromSnapshot, Recovery, said_by_nodes
from autarky.ports import Host, Progress

READABLE = "API servers can read what is stored"
_MOST = 256 * 1024
"""Bytes. What is longer is no configuration that somebody has written."""


@dataclass(frozen=True, slots=True)
class JudgeEncryption:
    recovery: Recovery
    name: str = "judge-encryption"
    title: str = "Compare the encryption configurations"
    timeout: float = 60

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        data = _of_data(self.recovery)
        if self.recovery.made or data is None:
            return []  # it was judged before, or it is not known
        present = await said_by_nodes(context, self.recovery, readers_on)
        lacks = {name: found for name, one in present.items() if (found := readers.lacking(data, one))}
        if lacks and len(lacks) == len(present):
            _refuse(lacks)
        sentences = [f"{name} cannot read what may be in it: {readers.sentence(one)}" for name, one in lacks.items()]
        if not present or not all(readers.is_known(data, one) for one in present.values()):
            sentences += _not_known(data)
        return [Warn(one) for one in (*sentences, *_written_meanwhile(data, present))]

    async def run(self, context: Context, progress: Progress) -> None:
        """It has no changes to make."""


def readers_by(encryption: Encryption | None) -> Readers:
    """encryption: None where nothing is encrypted."""
    if encryption is None:
        return Readers()
    found = None if encryption.content is None else readers.readers_of(_document(encryption.content))
    return Readers(unknown=encryption.path) if found is None else found


async def readers_on(host: Host) -> Readers | None:
    """By its standby; None where that does not say it."""
    try:
        pod = await host.read(STANDBY_POD)
        if pod is None or not is_complete(pod):
            return None
        named = encryption_of(pod, {})
        content = None if named is None else await host.read(named.below_current, most=_MOST)
    except AutarkyError:
        return None
    return readers_by(named if named is None or content is None else named.having(content))


def _document(content: str) -> object:
    """Each scalar as text; None where it is no YAML, which JSON is, too."""
    if len(content) > _MOST:
        return None
    try:
        return yaml.load(content, Loader=yaml.CBaseLoader)  # noqa: S506 # it makes nothing but text, lists and mappings
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _of_data(recovery: Recovery) -> Readers | None:
    source = recovery.source
    if isinstance(source, FromSnapshot):
        return source.readers
    recovered = recovery.found[recovery.seat].recovered
    return recovered.readers if isinstance(source, FromKept) and recovered is not None else None


# --- what is said ---------------------------------------------------------------------------------------------------


def _refuse(lacks: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """By the node that can read most."""
    node = min(lacks, key=lambda name: (len(lacks[name]), name))
    raise Refused(
        READABLE,
        f"what it has may be stored with {readers.sentence(lacks[node])}, which no API server here can read: the hosted"
        " ones would not even start",
        "add that to their encryption configuration as a further provider or key, behind what is there, and run the"
        " same command again when all standbys have it: the page on recovery says how. `autarky recover` on new"
        " machines takes it from a backup",
    )


def _not_known(data: Readers) -> list[str]:
    of = f"with the keys that {data.unknown} has" if data.unknown else "encrypted"
    return [f"some of what it has is stored {of}: whether the API servers here can read that is not known"]


def _written_meanwhile(data: Readers, present: Mapping[str, Readers]) -> list[str]:
    """The hosted API servers come back with the configuration that the data has. Until then those of today write."""
    found: dict[str, Sequence[str]] = {}
    for one in present.values():
        found |= readers.lacking(readers.writing(one), data)
    if not found:
        return []
    said = f"until the hosted API servers are back as they were, this is stored with {readers.sentence(found)}"
    return [f"{said}, which they cannot read then: keep that, and add it to their encryption configuration afterwards"]
