"""The floor of a figure: what those parts take that must run one after the other, each measured alone (`floor.py`).
Pure.

The sums are made round by round, since all parts of a round are of the same host. They are no proof: a cluster that
starts a part before the one before has ended, such as a scheduler that waits for the API, may come below them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _figures import Rounds

FLOOR = "floor"
"""The benchmark. Its figures have autarky's place, since nothing stands beside them."""
KUBELET = "a kubelet starts → its static pod runs"
POD = "a running kubelet gets a static pod → that runs"
API = "etcd and the API server start → /readyz"
SCHEDULER = "the scheduler starts → holds its lease"
CONTROLLERS = "the controller-manager starts → holds its lease"
CONTAINERD = "power on → containerd answers"
BOOTED = "power on → /readyz of units that are enabled"
PARTS = (KUBELET, POD, API, SCHEDULER, CONTROLLERS, CONTAINERD, BOOTED)

Steps = tuple[tuple[str, ...], ...]
"""One after the other. The parts of a step run side by side: the slowest one counts."""
_LEASES = (SCHEDULER, CONTROLLERS)
_UP: Steps = ((KUBELET,), (API,), _LEASES, (POD,))
_RETURN: Steps = ((BOOTED,),)
_POD_AFTER_RETURN: Steps = ((BOOTED,), _LEASES, (POD,))
FLOORS: Mapping[tuple[str, str], Steps] = {
    ("up", "everything Ready"): _UP,
    ("reboot", "power on → /readyz"): _RETURN,
    ("reboot", "power on → a new Deployment's pod runs"): _POD_AFTER_RETURN,
    ("ha_up", "everything Ready"): _UP,
    ("ha_reboot", "power on → /readyz"): _RETURN,
    ("ha_reboot", "power on → a new Deployment's pod runs"): _POD_AFTER_RETURN,
}
"""By benchmark and figure. What is not here has none: when a command returns is its own choice, and memory has no
parts that run one after the other."""


def floor_of(benchmark: str, name: str, parts: Mapping[str, Rounds]) -> Rounds | None:
    """Round by round. None for a figure that has no floor, and where one of its parts was not measured."""
    steps = FLOORS.get((benchmark, name))
    if steps is None or not all(part in parts and None not in parts[part] for step in steps for part in step):
        return None
    return tuple(sum(each) for each in zip(*(_slowest(step, parts) for step in steps), strict=True))


def _slowest(step: tuple[str, ...], parts: Mapping[str, Rounds]) -> list[float]:
    together = zip(*(parts[part] for part in step), strict=True)
    return [max(each for each in side if each is not None) for side in together]
