"""`python3 -m autarky.agents.node.end_hung LOCK`: kill the agent that holds the lock and has stopped its heartbeat.

By the container runtime, from outside of that agent's container: this also kills a process that is stopped or blocked
in a system call. It needs neither an API nor a kubelet.

Contract: the heartbeat is read again, so that an agent that has recovered or has got the lock meanwhile is left alone.
Only a pod of the node agent is ever killed, and never the own one. It exits within LONGEST_SECONDS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from autarky.agents.log import logger
from autarky.agents.node import lock
from autarky.cri.client import CriClient
from autarky.errors import AutarkyError
from autarky.model.components import NAME_LABEL, NODE_AGENT
from autarky.ports import Cri
from autarky.render.values import SYSTEM

LONGEST_SECONDS = 45
STOP_SECONDS = 30.0


def main() -> int:
    signal.alarm(LONGEST_SECONDS)  # this process is not the first one of its container
    uid = lock.hung(sys.argv[1])
    return 0 if uid is None or uid == os.environ.get(lock.POD) else asyncio.run(_end(uid))


async def _end(uid: str) -> int:
    log, cri = logger(node=os.environ.get("NODE_NAME", "")), CriClient()
    try:
        ended = await end(cri, uid)
    except AutarkyError as error:
        log.warning("the agent that acts on the node hangs, and could not be ended", pod=uid, why=str(error))
        return 1
    finally:
        await cri.close()
    said = "it is ended" if ended else "none of its pod runs any more"
    log.warning(f"the agent that acts on the node hangs: {said}", pod=uid)
    return 0


async def end(cri: Cri, uid: str) -> int:
    """Kill what runs in the agent's pod of that uid. Returns the number of sandboxes. Raises AutarkyError."""
    found = [
        sandbox.id
        for sandbox in await cri.pods()
        if sandbox.uid == uid
        and sandbox.ready
        and sandbox.namespace == SYSTEM
        and sandbox.labels.get(NAME_LABEL) == NODE_AGENT
    ]
    for sandbox in found:
        await cri.stop_sandbox(sandbox, timeout=STOP_SECONDS)
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
