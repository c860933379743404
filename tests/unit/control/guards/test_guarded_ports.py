"""What the policies guard is what nodes listen on. What they let through is asked of a real API server."""

from __future__ import annotations

import re

import pytest

from autarky.control.guards.decide import HOST_PORTS
from autarky.control.guards.manifests import tenants
from autarky.model import ports
from autarky.render.values import Inputs
from unit.render.rendered import EVERY_LEVEL, all_pods, host_files, objects, strings

LISTENED = re.compile(r"(?:(?:127\.0\.0\.1|0\.0\.0\.0|\*|192\.0\.2\.\d+):|port=|\"port\": ?|Port\": ?)(\d{4,5})\b")


@pytest.mark.parametrize("inputs", EVERY_LEVEL, ids=lambda inputs: inputs.cluster.self_hosted.name)
def test_every_port_that_is_rendered_for_a_node_is_among_those_that_are_guarded(inputs: Inputs) -> None:
    texts = [file.content.decode() for _, file in host_files(inputs)]
    texts += [text for obj in objects(inputs) if obj["kind"] in ("ConfigMap", "Secret") for text in strings(obj)]
    texts += [text for pod in all_pods(inputs) for text in strings(pod.spec)]
    found = {int(number) for text in texts for number in LISTENED.findall(text)}
    probed = {
        probe["port"]
        for pod in all_pods(inputs)
        if pod.spec.get("hostNetwork")
        for container in pod.containers
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        if (probe := container.get(kind, {}).get("httpGet"))
    }
    assert {ports.NLLB_API, ports.ETCD_CLIENT, ports.SCHEDULER_STANDBY, ports.POD_NETWORK_VXLAN} <= found
    assert found | probed <= ports.ON_HOSTS


def test_all_of_them_are_guarded_and_what_fails_is_refused() -> None:
    policy = next(obj for obj in tenants.objects() if obj["metadata"]["name"] == HOST_PORTS)
    [_, takes] = policy["spec"]["matchConditions"]
    assert {int(number) for number in re.findall(r"\d{4,}", takes["expression"])} == ports.ON_HOSTS
    assert policy["spec"]["failurePolicy"] == "Fail"
