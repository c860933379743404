"""etcd's static pods on a host: what they are, and what they should be.

A member keeps the list of peers of its first start: peers come and go, and it is not restarted for that.
"""

from __future__ import annotations

import re

from autarky import places
from autarky.control.etcd.manifests import pods as etcd
from autarky.model.cluster import Level, Node
from autarky.model.components import ETCD
from autarky.model.files import File
from autarky.parsing import parsed
from autarky.phases.context import Context
from autarky.ports import Host
from autarky.render import node as render_node


async def static_pods(host: Host) -> dict[str, bytes]:
    """Path → content of those that are there."""
    names = (await host.run(["ls", places.MANIFESTS], check=False)).text.split()
    paths = [f"{places.MANIFESTS}/{name}" for name in names if re.fullmatch(rf"{ETCD}-.*\.json", name)]
    read = {path: await host.read(path) for path in paths}
    return {path: content for path, content in read.items() if content is not None}


def manifest_of(content: bytes | None) -> File | None:
    """The member's static pod with exactly this content; None if it is not one."""
    try:
        found = parsed(content or b"")
        return File(render_node.manifest(found).path, content or b"", 0o600) if etcd.founding_of(found) else None
    except (ValueError, KeyError, TypeError):
        return None


def wanted_member(context: Context, node: Node, there: File) -> File:
    """The node's member as it should be. `there`: as it is. It keeps its version where the file names none, and where
    level 1 is hosted: there the API says which one, and it may be newer than that of the file."""
    found = parsed(there.content)
    keeps = context.cluster.etcd_version is None or context.cluster.self_hosted <= Level.ETCD
    image = str(found["spec"]["containers"][0]["image"]) if keeps else None
    pod = etcd.member_pod(context.inputs(), node, etcd.founding_of(found), image=image)
    return render_node.manifest(etcd.written_as(pod, found))
