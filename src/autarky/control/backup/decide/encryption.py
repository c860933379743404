"""The file by which an API server reads what it has stored encrypted, as the standby in a backup names it. Pure.

Of all flags of that standby only this one has to come from the backup: without it nothing that was stored encrypted can
be read, and the Secret that the hosted API server gets the file from is stored so as well. Where the data is, and under
which prefix, is as the recovered cluster has it (`--etcd-servers`, `--etcd-prefix`: an edit of them would have left the
data behind); how values are written (`--storage-media-type`), and whether the file is read again
(`--encryption-provider-config-automatic-reload`), changes nothing about reading. A plugin of KMS that the file names is
none of autarky's: it has to run on the new machines.

Contract: returns for any content, and never raises. Danger: the content has keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from posixpath import join, normpath

from autarky import places
from autarky.control.api_server.manifests import ENCRYPTION
from autarky.control.common.shapes import container_of, text, texts, within
from autarky.control.upgrade.decide.configuration_files import volume_of
from autarky.control.upgrade.decide.removed import flags_given
from autarky.control.upgrade.decide.surface import Flag
from autarky.model.components import API_SERVER

_STANDBY = f"{places.STANDBY}/{API_SERVER}"
_OF_THE_HOST = (f"{places.PKI}/", f"{places.LEAVES}/")
"""What else of a backup may have somebody's file in it; nothing is ever written anywhere else."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """path: on the node; as the flag names it where it is on none of its disks. content: None where the backup does not
    have it. is_own: whether it is one of the standby's own files, and not one of the host."""

    path: str
    content: str | None = field(default=None, repr=False)
    is_own: bool = False

    @property
    def below_current(self) -> str:
        """Where a node has it, whose standby's files are reached by the link to the revision that counts; a backup has
        those there only."""
        if not self.is_own:
            return self.path
        inside = self.path.removeprefix(f"{_STANDBY}/").partition("/")[2]
        return f"{_STANDBY}/current/{inside}"

    def having(self, content: bytes) -> Encryption:
        return replace(self, content=content.decode(errors="replace"))  # a server accepts no other text than UTF-8


def encryption_of(pod: bytes | None, files: Mapping[str, bytes]) -> Encryption | None:
    """None where the API server encrypts nothing. pod: of its standby; files: of the node, by their paths there, those
    of the standby below `current`."""
    standby = _json(pod)
    path = _path_of(standby)
    if path is None:
        return None
    named = Encryption(path, is_own=path.startswith(f"{_STANDBY}/"))
    known = named.is_own or path.startswith(_OF_THE_HOST)
    found = files.get(named.below_current) if known else None
    return named if found is None else named.having(found)


def lacking(encryption: Encryption | None) -> str:
    """What is to be said of a backup without that file; empty where there is nothing to say."""
    if encryption is None or encryption.content is not None:
        return ""
    return (
        f"the API server reads what it has stored encrypted with {encryption.path}, which is in no backup: keep a copy"
        " of it elsewhere, or let the API server mount it from a Secret"
    )


def _json(pod: bytes | None) -> object:
    try:
        return json.loads(pod or b"")
    except (ValueError, RecursionError):
        return None


def _path_of(standby: object) -> str | None:
    container = container_of(standby, API_SERVER)
    line = [*texts(container.get("command")), *texts(container.get("args"))]
    paths = [value for _, value in flags_given(line, {ENCRYPTION: Flag(takes_value=True)})]
    if not paths or not paths[-1]:
        return None
    volume, inside = volume_of({"spec": within(standby, "spec")}, API_SERVER, paths[-1])
    directory = text(within(volume, "hostPath", "path"))
    return normpath(join(directory, inside)) if directory else normpath(join("/", paths[-1]))
