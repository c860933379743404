"""A cluster of an earlier release is taken over by `up` of this tree, and nobody notices.

`releases.json` names the releases, and for each who is started anew. The tests of this module build on each other, in
order, for each cluster: the first one is the takeover, the last one a takeover by a release that is yet to come.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from earlier import Release, later_tree, releases, tree_of
from ha import WORKER, etcd_members, member_objects, three_and_one, wait_until_healthy
from harness import AGNHOST, TestCluster, one_node
from judgement import nothing_failed
from rollouts import HOSTED, condition, quiet, template
from slots import SYSTEM, parked_agent_is_a_copy

from autarky.control.cluster_file.decide import defaults
from autarky.model.defaults import FIRST, newest
from fakes.editions import SECOND, TOLD

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LATER = TOLD.replace("of edition 2", f"of edition {newest() + 1}").replace("defaults: 2", f"defaults: {newest() + 1}")
"""What the release after this one says, whose edition comes after all that this one has."""
SHAPES = {"one-node": one_node, "three-and-one": three_and_one}
STANDBYS = "/var/lib/autarky/standby"
FROM_A_WORKER = 50.0
"""Requests a second, beside the 200 from outside: two at the full rate take a third of the processors of a small
machine, and would measure that."""
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
    generations: Mapping[str, int]
    restarted: frozenset[str]
    members: Mapping[str, str]
    file: Mapping[str, Any]


def _param(release: Release, shape: str) -> Any:
    name = f"{release.name}-{shape}"
    return pytest.param((release, shape), id=name, marks=[pytest.mark.chain(name), pytest.mark.apart(name)])


@pytest.fixture(scope="module", params=[_param(release, shape) for release in releases() for shape in SHAPES])
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
        release=release,
        cluster=cluster,
        control=control,
        hosts=hosts,
        running=running(cluster, hosts),
        generations=generations(cluster),
        restarted=restarted(cluster),
        members=member_ids(cluster),
        file=file_that_is_kept(cluster),
    )
    cluster.down()  # the next one is large, too


def test_up_of_this_tree_takes_the_cluster_over_and_no_request_fails(found: Found) -> None:
    """Nor any until its agents have settled, the parked ones among them. Asked as users do, and from a worker, whose
    load balancer leads to all API servers."""
    with found.cluster.probed() as reports, probed_from_a_worker(found) as of_the_worker:
        found.cluster.up()
        at_rest(found.cluster, found.control)
    for report in (*reports, *of_the_worker):
        nothing_failed(report, writes=100)


@contextmanager
def probed_from_a_worker(found: Found) -> Iterator[list[dict[str, Any]]]:
    """Where there is one."""
    if set(found.hosts) == set(found.control):
        yield []
        return
    with found.cluster.probed(inside=WORKER, rate=FROM_A_WORKER) as reports:
        yield reports


def test_nobody_was_started_anew_but_those_of_whom_the_release_says_so(found: Found) -> None:
    now = running(found.cluster, found.hosts)
    assert "of-a-user" in found.running
    there = found.running.keys() | now.keys()
    anew = {name for name in there if found.running.get(name) != now.get(name)}
    # A single node lacks some components; where there are several nodes, all are there.
    expected = set(found.release.anew) & there if len(found.control) == 1 else set(found.release.anew)
    assert anew == expected, {name: (found.running.get(name), now.get(name)) for name in anew}
    left = {name: runs for name in anew if (runs := found.running.get(name, frozenset()) & now.get(name, frozenset()))}
    assert not left, f"on some nodes these run on: {left}"


def test_who_was_started_anew_was_so_once(found: Found) -> None:
    """By one rollout, in which nothing had to begin again."""
    now = generations(found.cluster)
    changed = {name: (before, now[name]) for name, before in found.generations.items() if now[name] != before}
    assert changed
    assert all(after == before + 1 for before, after in changed.values()), changed
    assert restarted(found.cluster) - found.restarted == set()


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


def test_a_later_release_with_other_defaults_changes_none_of_the_clusters_and_tells_of_them(
    found: Found, tmp_path: Path
) -> None:
    """By the agents of that release, which `up` brings: all flags and fields stay as they are."""
    cluster, later = found.cluster, TestCluster(found.cluster.name, found.cluster.spec, later_tree(SECOND, tmp_path))
    before = {workload: template(cluster, workload) for workload in HOSTED}
    assert LATER in later.autarky("plan", "-f", str(cluster.file)).stdout.splitlines()
    later.up()
    cluster.wait("the condition says it", lambda: condition(cluster, "DefaultsCurrent").get("message") == LATER)
    assert condition(cluster, "DefaultsCurrent")["status"] == "False"
    assert {workload: template(cluster, workload) for workload in HOSTED} == before
    assert file_that_is_kept(cluster) == {**found.file, "defaults": FIRST}
    assert "--snapshot-count=10000" in cluster.shell("n1", "cat /etc/kubernetes/manifests/etcd*.json")


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


def generations(cluster: TestCluster) -> dict[str, int]:
    """Workload → how often what is wanted of it has changed. (A Deployment's own controller changes nothing there.)"""
    found = json.loads(cluster.kubectl(*SYSTEM, "get", "ds,deploy", "-o", "json"))["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": int(one["metadata"]["generation"]) for one in found}


def restarted(cluster: TestCluster) -> frozenset[str]:
    """Containers that have ended and were begun again in their pods, each time once."""
    found = set()
    for pod in json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]:
        for container in pod["status"].get("containerStatuses") or []:
            name = f"{pod['metadata']['name']} {pod['metadata']['uid']} {container['name']}"
            found |= {f"{name} {count}" for count in range(1, container["restartCount"] + 1)}
    return frozenset(found)


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
