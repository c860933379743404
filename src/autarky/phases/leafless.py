"""Control nodes that the control plane of this release cannot run on: refused before anything is written.

An earlier release kept the leaf certificates in Secrets; now they are files on each control node, which its pods mount.
`up` writes the first ones (`prepare.missing_leaves`) before it applies the new templates. Where it cannot, the new pod
finds no files, does not become healthy in time, and the rollout is rolled back, each time.

Contract: only looks, and refuses only what would be rolled back: while a live template does not mount leaf
certificates, a control node that is Ready and would have none. A rollout skips a node that is not Ready; when that
comes back, the new agent there issues its leaves. A node whose agent reports leaves has them already.
"""

from __future__ import annotations

from collections.abc import Collection

from autarky.control.certificates import decide as certificates
from autarky.control.certificates.manifests import leaves
from autarky.control.common.pods import is_ready
from autarky.errors import Problems, UserError
from autarky.model.components import COMPONENTS, WITH_STANDBY
from autarky.phases.context import Context
from autarky.phases.prepare import is_given_leaves
from autarky.ports import Kube, Object
from autarky.render.values import CONTROL_PLANE_ACTIVE, SYSTEM

_LEAF = "apiserver"
"""The certificate that an agent reports when it keeps leaves."""
_NEEDED = (
    "this release keeps the control plane's certificates in files on every control node, and without them the rollout"
    " of the new API servers would be rolled back"
)


async def refuse_leafless(context: Context, *, awaited: Collection[str] = ()) -> None:
    """Problems, with a line for each node. Without an API it is not known what runs. awaited: nodes whose machines are
    still to be powered on, after which this is checked again."""
    if not await context.api_answers():
        return
    if not any([await _knows_no_leaves(context.kube(), COMPONENTS[name].kind, name) for name in WITH_STANDBY]):
        return
    nodes = await context.kube().list("v1", "Node", labels=CONTROL_PLANE_ACTIVE)
    seen = [await _refusal(context, node) for node in nodes if node["metadata"]["name"] not in awaited]
    found = [refusal for refusal in seen if refusal is not None]
    if found:
        raise Problems(f"some control nodes cannot be given their certificates: {_NEEDED}", found)


async def _knows_no_leaves(kube: Kube, kind: str, name: str) -> bool:
    live = await kube.get("apps/v1", kind, name, SYSTEM)
    if live is None:
        return False
    volumes = live["spec"]["template"]["spec"].get("volumes") or ()
    return all(volume["name"] != leaves.VOLUME for volume in volumes)


async def _refusal(context: Context, live: Object) -> UserError | None:
    name, reported = live["metadata"]["name"], certificates.read(live["metadata"])
    if not is_ready(live) or (reported is not None and _LEAF in reported.ends):
        return None
    node = next((node for node in context.cluster.nodes if node.name == name), None)
    if node is None:
        return UserError(
            f"control node {name} is not in the file, so that its host cannot be given certificates",
            fix=f"add it to the file, or take it out of the cluster with `autarky node remove {name}`",
        )
    if (why := context.absent.get(name)) is not None:
        return UserError(
            f"the host of control node {name} cannot be reached ({why}), although its Node is Ready",
            fix="restore the connection to it; a machine that is off is skipped as soon as its Node is not Ready",
        )
    if not await is_given_leaves(context, context.host(node), node):
        return UserError(
            f"node {name} is a control node of the cluster, and was none when the hosts were looked at",
            fix="run the same command again",
        )
    return None
