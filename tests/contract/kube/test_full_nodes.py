"""A Node is written to whatever its kubelet has put on it, asked of a real API server: what judging a write may cost is
limited, and a policy that fails closed refuses what it cannot judge."""

from __future__ import annotations

import string
from typing import Any

import pytest

from autarky.control.guards.manifests import node_writes
from autarky.render.values import CONTROL_PLANE_ACTIVE
from contract.acting import is_refused
from contract.kube.guarded import Clients, changes

pytestmark = pytest.mark.contract

LETTERS = string.ascii_lowercase
MANY = [first + second + third for first in LETTERS for second in LETTERS for third in LETTERS]
FULL: dict[str, dict[str, Any]] = {
    "annotations of three letters": {"annotations": dict.fromkeys((a + b for a in MANY for b in "123"), "")},
    "labels of three letters": {"labels": dict.fromkeys(MANY, "")},
    "more labels than one looks through": {"labels": dict.fromkeys(MANY[: node_writes.MOST + 1], "")},
    "long keys": {"labels": {f"{'x' * 61}.{key}/{key}{'x' * 60}": "" for key in MANY[:2000]}},
}


@pytest.mark.parametrize("what", FULL)
@pytest.mark.parametrize("sub", [None, "status"])
async def test_no_node_has_so_much_written_on_it_that_nobody_can_write_to_it(
    clients: Clients, what: str, sub: str | None
) -> None:
    """What judging a write may cost is limited: beyond that it is refused, whoever's it is."""
    assert await is_refused(changes(clients.kubelet("w1"), "w1", sub=sub, **FULL[what]))
    await _cordons(clients)


async def test_nor_does_anybody_else_but_administrators(clients: Clients) -> None:
    one_more = FULL["more labels than one looks through"]
    for client in (clients.flannel("w1"), clients.stranger()):
        assert await is_refused(changes(client, "w1", **one_more))
    await changes(clients.operator(), "w1", **one_more)


@pytest.mark.parametrize("what", FULL)
async def test_a_node_that_is_full_is_written_to_all_the_same(clients: Clients, what: str) -> None:
    """Filled under an earlier release, or by an administrator."""
    admin, kubelet = clients.admin, clients.kubelet("w1")
    await changes(admin, "w1", **FULL[what])
    await _cordons(clients)
    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "x"}]}
    await kubelet.patch("v1", "Node", "w1", {"status": ready}, subresource="status")
    assert await is_refused(changes(kubelet, "w1", annotations={"autarky.dev/slots": "x"}, labels={"a": "b"}))
    await changes(admin, "w1", annotations={"a": "b"}, labels={"a": "b", CONTROL_PLANE_ACTIVE: ""})
    [(part, values)] = FULL[what].items()
    await changes(admin, "w1", **{part: dict.fromkeys(values)})
    await changes(kubelet, "w1", annotations={"autarky.dev/slots": "x"})


async def test_a_node_with_as_many_as_one_looks_through_is_judged_and_gets_no_more(clients: Clients) -> None:
    """Of labels and annotations both, with keys as long as they may be: looking through them costs less than is
    allowed."""
    prefix = ".".join("x" * 60 for _ in range(3))
    keys = [f"{prefix}.{key}/{key}{'x' * 60}" for key in MANY[: node_writes.MOST]]
    there = (await clients.admin.get("v1", "Node", "w1"))["metadata"]
    room = {part: node_writes.MOST - len(there.get(part, {})) for part in ("labels", "annotations")}
    kubelet, forbidden = clients.kubelet("w1"), {"autarky.dev/new": "", CONTROL_PLANE_ACTIVE: ""}
    await changes(kubelet, "w1", **{part: dict.fromkeys(keys[:most], "") for part, most in room.items()})
    await changes(kubelet, "w1", **{part: {keys[0]: "x"} for part in room})
    for part in room:
        assert await is_refused(changes(kubelet, "w1", **{part: {keys[0]: None, keys[1]: None, **forbidden}}))
        assert await is_refused(changes(kubelet, "w1", **{part: {"one": "more"}}))
    await changes(kubelet, "w1", **{part: {keys[0]: None, "another": "instead"} for part in room})


async def _cordons(clients: Clients) -> None:
    for unschedulable in (True, None):
        await clients.admin.patch("v1", "Node", "w1", {"spec": {"unschedulable": unschedulable}})
