"""Whose the load balancer's configuration is: what `up` writes, and what it leaves to the node agent."""

from __future__ import annotations

import pytest

from autarky.control.kubelet.manifests.files import BASE
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.model.balancer import ApiNode, Balancer
from autarky.phases.prepare import PrepareHosts
from fakes.clusters import a_cluster

PHASE = PrepareHosts()
CLUSTER = a_cluster(controls=1, workers=1)
RELOAD = "reload the load balancer"


@pytest.fixture
async def host(make_context, notes):
    """A worker as `up` has prepared it, and the context."""
    context = make_context(CLUSTER)
    await PHASE.run(context, notes)
    found = context.machines.hosts["n2"]
    found.log.clear()
    return found, context


def _write(host, text: str) -> None:
    host.files[nllb.CONFIG_PATH] = (text.encode(), 0o600)


def _leading_to(name: str, address: str) -> str:
    return nllb.config(Balancer("n2", False, (ApiNode(name, address), ApiNode("n7", "192.0.2.77"))))


async def test_a_configuration_of_the_agent_is_left_alone(host, notes):
    host, context = host
    text = _leading_to("n1", "192.0.2.11")
    _write(host, text)
    assert await PHASE.plan(context) == []
    await PHASE.run(context, notes)
    assert host.files[nllb.CONFIG_PATH][0] == text.encode()
    assert host.log == []


@pytest.mark.parametrize(
    "text",
    [
        _leading_to("n1", "192.0.2.99"),  # of another life of the host
        _leading_to("n9", "192.0.2.11"),
        "global\n    maxconn 4000\n",  # of a release that did not say what it was made from
        "",
        '# made from: {"node": "n2"}\n',
    ],
)
async def test_one_that_leads_to_no_control_node_of_the_file_is_written_again_and_taken_up(host, notes, text):
    host, context = host
    _write(host, text)
    assert [change.sentence for change in await PHASE.plan(context)] == [f"write {nllb.CONFIG_PATH} on n2"]
    await PHASE.run(context, notes)
    assert nllb.parse(host.files[nllb.CONFIG_PATH][0].decode()) == nllb.of_cluster(CLUSTER, CLUSTER.node("n2"))
    assert host.log[-1] == RELOAD


async def test_without_a_new_configuration_nothing_is_reloaded(host, notes):
    host, context = host
    host.files.pop(BASE)
    await PHASE.run(context, notes)
    assert host.log == [f"write {BASE}"]
