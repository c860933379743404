"""A cluster of an earlier release is taken over by `up` of this tree, and nobody notices.

`releases.json` names the releases, and for each who is started anew. The tests of this module build on each other, in
order, for each cluster: the first one is the takeover.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from earlier import Release, releases, tree_of
from ha import etcd_members, member_objects, three_and_one, wait_until_healthy
from harness import AGNHOST, TestCluster, one_node
from judgement import nothing_failed
from rollouts import condition, quiet
from slots import SYSTEM, parked_agent_is_a_copy

from autarky.decide import defaults
from autarky.model.defaults import FIRST

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.chain, pytest.mark.timeout(900)]

SHAPES = {"one-node": one_node, "three-and-one": three_and_one}
STANDBYS = "/var/lib/autarky/standby"
Running = Mapping[str, frozenset[str]]
"""Component → what runs of it on all nodes: containers and processes, each once."""


@dataclass(frozen=True)
class Found:
    """A cluster of an earlier release at rest, and what this tree has found there."""

    release: Release
    cluster: TestCluster
    control: tuple[str, ...]
    hosts: tuple[str, ...]
    running: Running
    members: Mapping[str, str]
    file: Mapping[str, Any]


def _id(made: tuple[Release, str]) -> str:
    release, shape = made
    return f"{release.name}-{shape}"


@pytest.fixture(scope="module", params=[(release, shape) for release in releases() for shape in SHAPES], ids=_id)
def found(request: pytest.FixtureRequest, make_cluster: Callable[..., TestCluster]) -> Iterator[Found]:
    release, shape = request.param
    spec = SHAPES[shape]()
    nodes = spec["nodes"]
    hosts = tuple(node["name"] for node in nodes)
    control = tuple(node["name"] for node in nodes if "control-plane" in node.get("roles", ["control-plane"]))
    cluster = make_cluster(f"t-earlier-{len(nodes)}", **spec)
    TestCluster(cluster.name, spec, tree_of(release)).up()
    cluster.kubectl("create", "deployment", "of-a-user", f"--image={AGNHOST}", "--", "/usr/local/bin/agnhost", "pause")
    at_rest(cluster, control)
    yield Found(
        release, cluster, control, hosts, running(cluster, hosts), member_ids(cluster), file_that_is_kept(cluster)
    )
    cluster.down()  # the next one is large, too


def test_up_of_this_tree_takes_the_cluster_over_and_no_request_fails(found: Found) -> None:
    """Nor any until its agents have settled, the parked ones among them."""
    with found.cluster.probed() as reports:
        found.cluster.up()
        at_rest(found.cluster, found.control)
    nothing_failed(reports[0], writes=100)


def test_nobody_was_started_anew_but_those_of_whom_the_release_says_so(found: Found) -> None:
    now = running(found.cluster, found.hosts)
    assert "of-a-user" in found.running
    there = found.running.keys() | now.keys()
    anew = {name for name in there if found.running.get(name) != now.get(name)}
    # A single node lacks some components; where there are several nodes, all are there.
    expected = set(found.release.anew) & there if len(found.control) == 1 else set(found.release.anew)
    assert anew == expected, {name: (found.running.get(name), now.get(name)) for name in anew}


def test_etcd_has_the_members_that_it_had(found: Found) -> None:
    assert member_ids(found.cluster) == found.members
    assert etcd_members(found.cluster, found.control[0]) == set(found.control)
    assert set(found.members) == set(found.control)


def test_a_second_up_changes_nothing(found: Found) -> None:
    assert "up: unchanged" in found.cluster.up().stderr


def test_doctor_finds_nothing_wrong_afterwards(found: Found) -> None:
    def said() -> str:
        return found.cluster.autarky("doctor", "--cluster", found.cluster.name, check=False).stdout

    found.cluster.wait("doctor finds nothing wrong", lambda: said() == "nothing is wrong\n", seconds=60)


def test_the_cluster_keeps_its_defaults_and_is_told_of_the_new_ones(found: Found) -> None:
    """Its file names no version, and nothing else of its own."""
    kept = file_that_is_kept(found.cluster)
    assert found.file.items() <= kept.items()
    assert kept["defaults"] == found.file.get("defaults", FIRST)
    lacking = defaults.missed(kept["defaults"])
    told = [defaults.sentence(kept["defaults"], lacking)] if lacking else []
    plan = found.cluster.autarky("plan", "-f", str(found.cluster.file)).stdout
    assert plan.splitlines() == [*told, "nothing would change"]
    assert condition(found.cluster, "DefaultsCurrent").get("status") == str(not lacking)


# --- looking -----------------------------------------------------------------------------------------------------


def at_rest(cluster: TestCluster, control: tuple[str, ...]) -> None:
    """Until nothing is about to come or go: all is where it belongs and judged, every standby is a copy of what runs,
    and the parked agents are of the hosted ones' image."""
    cluster.kubectl("rollout", "status", "deploy/of-a-user", "--timeout=90s")
    wait_until_healthy(cluster)
    quiet(cluster)
    for node in control:
        cluster.wait(f"the standbys of {node} are copies", lambda n=node: standbys_are_copies(cluster, n), seconds=240)
        cluster.wait(f"the agents of {node} are one", lambda n=node: agents_are_alike(cluster, n), seconds=240)
    seen: list[Running] = []

    def the_same_twice() -> bool:
        seen.append(running(cluster, control))
        time.sleep(5)
        return len(seen) > 2 and seen[-1] == seen[-2] == seen[-3]

    cluster.wait("nothing comes or goes", the_same_twice, seconds=150)


def standbys_are_copies(cluster: TestCluster, node: str) -> bool:
    links = cluster.shell(node, f"readlink {STANDBYS}/*/current || true").split()
    return len(links) >= 3 and all(name.startswith("checkpoint-") for name in links)


def agents_are_alike(cluster: TestCluster, node: str) -> bool:
    """The parked one is a copy of the hosted one, and no older than that."""
    path = "jsonpath={.spec.template.spec.containers[?(@.name=='node-agent')].image}"
    image = cluster.kubectl(*SYSTEM, "get", "ds/node-agent", "-o", path)
    parked = cluster.shell(node, "cat /etc/kubernetes/manifests/node-agent-standby-*.json")
    return bool(image) and f'"{image}"' in parked and parked_agent_is_a_copy(cluster, node)


def running(cluster: TestCluster, hosts: tuple[str, ...]) -> Running:
    """By the API, the containers of all pods; by the hosts, what systemd runs of ours."""
    seen: dict[str, set[str]] = defaultdict(set)
    for pod in json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
        for container in pod["status"].get("containerStatuses") or []:
            seen[_component(pod)].add(f"{pod['spec'].get('nodeName')} {container.get('containerID')}")
    for host in hosts:
        for unit in ("kubelet", "containerd"):
            seen[unit].add(f"{host} {cluster.shell(host, f'systemctl show --property=MainPID {unit}').strip()}")
    return {name: frozenset(runs) for name, runs in seen.items()}


def _component(pod: Mapping[str, Any]) -> str:
    labels = pod["metadata"].get("labels") or {}
    name = str(labels.get("k8s-app") or labels.get("app") or pod["metadata"]["name"])
    return f"{name} (standby)" if labels.get("autarky.dev/slot") == "standby" else name


def member_ids(cluster: TestCluster) -> dict[str, str]:
    """Node → the id of its member."""
    return {name: str(obj.get("status", {}).get("memberID")) for name, obj in member_objects(cluster).items()}


def file_that_is_kept(cluster: TestCluster) -> dict[str, Any]:
    """Its spec, with all defaults filled in."""
    found: dict[str, Any] = json.loads((cluster.directory / "cluster.json").read_text())["spec"]
    return found
