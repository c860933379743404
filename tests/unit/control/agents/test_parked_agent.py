"""The standby agent's manifests on a node with a runtime in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky.control.agents.manifests.node_agent import standby_agent
from autarky.control.agents.node import StandbyAgent
from fakes.clock import HandClock
from fakes.cri import FakeCri
from unit.control.disks import Disk, a_disk

AGENT = "node-agent"
LABELS = {"k8s-app": AGENT, "autarky.dev/slot": "standby"}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return a_disk(tmp_path, monkeypatch)


def a_runtime() -> FakeCri:
    cri = FakeCri()
    cri.put_image("agent:1")
    return cri


def start(cri: FakeCri, uid: str) -> None:
    sandbox = cri.run_sandbox(f"pod-{uid}", "kube-system", uid, labels=LABELS)
    cri.start_container(cri.create_container(sandbox, AGENT, "agent:1"))


async def rounds(duty: StandbyAgent, clock: HandClock, seconds: float) -> None:
    end = clock.now + seconds
    while clock.now < end:
        await duty.reconcile()
        await clock.sleep(2.0)


def uid_of(disk: Disk, name: str) -> str:
    return str(json.loads((disk.manifests / name).read_text())["metadata"]["uid"])


async def test_a_copy_stands_beside_the_old_one_until_it_has_run_for_a_while(disk: Disk) -> None:
    cri, clock = a_runtime(), HandClock()
    duty = StandbyAgent(cri, clock, lambda _subject, _sentence: None)
    disk.manifest("node-agent-standby-old", "old")
    disk.manifest("etcd-1", "etcd")
    start(cri, "old")
    await rounds(duty, clock, 4)
    assert len(disk.in_place()) == 2, "nothing is known to copy yet"
    disk.revision(AGENT, "checkpoint-1", "agent:1")
    await rounds(duty, clock, 30)
    [new] = set(disk.in_place()) - {"node-agent-standby-old.json", "etcd-1.json"}
    assert (disk.manifests / new).stat().st_mode & 0o777 == 0o600
    cri.set_outage("the runtime is stopped")
    await rounds(duty, clock, 300)
    assert "node-agent-standby-old.json" in disk.in_place(), "rule 2"
    cri.set_outage(None)
    start(cri, uid_of(disk, new))
    await rounds(duty, clock, 20)
    assert disk.in_place() == ["etcd-1.json", new]


async def test_a_copy_that_does_not_run_goes_again(disk: Disk) -> None:
    cri, clock = a_runtime(), HandClock()
    duty = StandbyAgent(cri, clock, lambda _subject, _sentence: None)
    disk.manifest("node-agent-standby-old", "old")
    start(cri, "old")
    disk.revision(AGENT, "checkpoint-1", "agent:1")
    await rounds(duty, clock, 200)
    assert disk.in_place() == ["node-agent-standby-old.json"]


def test_a_standby_agent_has_its_slot_and_no_readiness_and_all_else_of_the_hosted_one() -> None:
    edited = {"name": "EDITED", "value": "yes"}
    hosted = {"name": "AUTARKY_SLOT", "value": "hosted"}
    container = {"name": AGENT, "image": "mine:2", "env": [hosted, edited], "readinessProbe": {}}
    sidecar = {"name": "other", "image": "other:1", "readinessProbe": {}}
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [container, sidecar]}}
    [own, other] = standby_agent(pod)["spec"]["containers"]
    assert own == {"name": AGENT, "image": "mine:2", "env": [{**hosted, "value": "standby"}, edited]}
    assert other == sidecar
