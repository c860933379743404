"""Which pods of standbys run, according to the container runtime, which answers without an API server."""

from __future__ import annotations

from collections.abc import Mapping

from autarky.errors import AutarkyError
from autarky.model.components import NAME_LABEL, NODE_AGENT, SLOT_LABEL, STANDBY, WITH_STANDBY
from autarky.model.runtime import Sandbox
from autarky.ports import Cri
from autarky.render.values import SYSTEM

AGENT_OR_STANDBY = (*WITH_STANDBY, NODE_AGENT)
Running = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Component → uid of a pod of its standby → its sandboxes with a running container."""


async def running_standbys(cri: Cri) -> Running | None:
    """None when the runtime does not answer, which is never the same as "nothing runs"."""
    try:
        sandboxes = await cri.pods()
        containers = await cri.containers()
    except AutarkyError:
        return None
    alive = {container.sandbox_id for container in containers if container.state == "running"}
    running: dict[str, dict[str, tuple[str, ...]]] = {component: {} for component in AGENT_OR_STANDBY}
    for sandbox in sandboxes:
        component = _standby_of(sandbox)
        if component is not None and sandbox.id in alive:
            running[component][sandbox.uid] = (*running[component].get(sandbox.uid, ()), sandbox.id)
    return running


def _standby_of(sandbox: Sandbox) -> str | None:
    """The component whose standby this sandbox belongs to, if any."""
    component = sandbox.labels.get(NAME_LABEL, "")
    is_standby = sandbox.labels.get(SLOT_LABEL) == STANDBY and sandbox.namespace == SYSTEM
    return component if is_standby and component in AGENT_OR_STANDBY else None
