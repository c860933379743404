"""What releases before generations of kubelets (0.19) left on a host: the kubelet's configuration, and the records of a
change of it.

    SETTLED   the digest of the settings with which the kubelet was last seen healthy
    FORMER    the settings before a change, from before it until after the verdict

Contract: reading never raises for any content. The files are removed once a generation is there.
"""

from __future__ import annotations

import json

from autarky import places
from autarky.control.kubelet.manifests.configuration import FORMER_KUBELET_CONFIG
from autarky.errors import Unreachable
from autarky.ports import Host

SETTLED = f"{places.HOST_ROOT}/state/kubelet-settings"
FORMER = f"{places.HOST_ROOT}/state/kubelet-former.json"
LEFT = (SETTLED, FORMER, FORMER_KUBELET_CONFIG)


async def config_before(host: Host) -> bytes:
    """The configuration that is known to work: that of before a change with no verdict."""
    former = await host.read(FORMER)
    found = None if former is None else config_in(former)
    found = found or await host.read(FORMER_KUBELET_CONFIG)
    if not found:
        raise Unreachable(
            f"{host.name}: its kubelet runs, and there is no {FORMER_KUBELET_CONFIG}; stop that kubelet, and run"
            " `autarky up` again: it starts with what the cluster file says then"
        )
    return found


def config_in(content: bytes) -> bytes | None:
    """Of FORMER; None where it has none that can be read."""
    try:
        said = json.loads(content)["files"][FORMER_KUBELET_CONFIG]
        return bytes(said.encode(errors="surrogateescape"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
