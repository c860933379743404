"""With which of etcd's programs the data of a new etcd is made on a host.

Contract: an etcd that replays data leads it alone, and writes its own minor there, as the version of the cluster and of
the storage; etcdutl leaves both in what it makes of it, and no older etcd starts from that. So data is made by programs
of the minor that is to read it. The host's links lead to the newest ones that anybody has brought, which may be newer
than its member; former ones stay in its store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autarky.errors import AutarkyError
from autarky.model.versions import Version
from autarky.payload import etcd_version
from autarky.phases import etcd_programs
from autarky.phases.binaries import STORE
from autarky.phases.context import Context
from autarky.ports import Host
from autarky.render.node import ETCD_TOOLS

Minor = tuple[int, int]
_STORED = re.compile(r"(etcd|etcdutl)-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Programs:
    """words: what goes before a step of `recover.sh` that uses them; none for those that the host's links lead to."""

    version: Version
    words: tuple[str, ...] = ()

    @property
    def minor(self) -> Minor:
        return self.version.major, self.version.minor

    @property
    def text(self) -> str:
        """As etcd says it."""
        return text_of(self.version)


def text_of(version: Version) -> str:
    return str(version).removeprefix("v")


async def newest_etcd(context: Context, host: Host) -> str:
    """Of the release, with what the file wants, and of the program on the host; as etcd says it, without v."""
    return text_of(await _newest(context, host))


async def programs_of(context: Context, host: Host, minor: Minor) -> Programs:
    """Of that minor, the newest patch; where the host has none, those that its links lead to."""
    usual = Programs(await _newest(context, host))
    if usual.minor == minor:
        return usual
    found = {
        path: version for path, version in (await _stored(host)).items() if (version.major, version.minor) == minor
    }
    etcd, etcdutl = _newest_called("etcd", found), _newest_called("etcdutl", found)
    if etcd is None or etcdutl is None:
        return usual
    return Programs(found[etcd], ("with", etcd, etcdutl))


async def _newest(context: Context, host: Host) -> Version:
    own, path = etcd_version(context.release), ETCD_TOOLS["etcd"]
    try:
        found = (await etcd_programs.versions(host, [path])).get(path, own)
    except AutarkyError:
        found = own
    return max(own, found)


async def _stored(host: Host) -> Mapping[str, Version]:
    names = (await host.run(["ls", STORE], check=False)).text.split()
    return await etcd_programs.versions(host, [f"{STORE}/{name}" for name in names if _STORED.fullmatch(name)])


def _newest_called(name: str, found: Mapping[str, Version]) -> str | None:
    """The path of that program."""
    paths = [path for path in found if path.startswith(f"{STORE}/{name}-")]
    return max(paths, key=lambda path: found[path], default=None)
