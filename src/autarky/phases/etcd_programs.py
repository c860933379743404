"""The programs etcd, etcdctl and etcdutl on a host: which version they are, and which of them `up` keeps.

They follow the members: a snapshot of a newer etcd cannot be tried with an older one. So whoever brings a newer version
to the hosts (`phases.other_etcd`) must not have it taken away by the next `up`, from whatever machine and with whatever
in its store.

Contract: a program counts as of a version if it says so, and if its content has the digest in the name under which
autarky has put it on the host. Whatever else is there has no version here, and is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autarky.model.versions import Version
from autarky.payload import Release, etcd_version, known_etcd_versions
from autarky.ports import Host
from autarky.render.node import ETCD_TOOLS

# Each says "etcd Version: 3.7.3" or "etcdctl version: 3.7.3" in its first line.
_SAY_VERSIONS = """\
for p; do
	t=$(readlink -f "$p") && s=$(sha256sum < "$p") || continue
	[ "${t##*-}" = "$(printf %.16s "$s")" ] || continue
	case ${p##*/} in etcd | etcd-*) v=$("$p" --version) ;; *) v=$("$p" version) ;; esac || continue
	v=${v#*ersion: }
	printf '%s %s\\n' "$p" "${v%%[!0-9.]*}"
done
"""


async def versions(host: Host, paths: Sequence[str]) -> dict[str, Version]:
    """Path → its version; see the module's contract for those that have none. A path may be a link, or the name under
    which autarky has put the program there."""
    said = await host.run(["sh", "-c", _SAY_VERSIONS, "sh", *paths], check=False)
    found = {}
    for line in said.text.splitlines():
        path, _, text = line.partition(" ")
        try:
            found[path] = Version.parse(text)
        except ValueError:
            continue
    return found


async def kept(host: Host, release: Release, targets: Mapping[str, str]) -> frozenset[str]:
    """Which of etcd's programs are newer than those of the release, and of a version that is known.

    targets: link → where it leads to, of programs that autarky has put there and that are not those of the release.
    """
    paths = [path for path in ETCD_TOOLS.values() if path in targets]
    if not paths:
        return frozenset()
    own, known = etcd_version(release), frozenset(known_etcd_versions())
    return frozenset(path for path, seen in (await versions(host, paths)).items() if seen > own and seen in known)
