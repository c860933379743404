"""Before a cluster goes its members of etcd are compared, within a time, whoever takes it down."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from e2e import harness

E2E = Path(harness.__file__).parent
NODES = ("n1", "n2", "n3")


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the scenarios have it, which find each other beside themselves."""
    monkeypatch.syspath_prepend(str(E2E))
    return importlib.import_module("agreement")


# --- before it goes ------------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> harness.TestCluster:
    """With a lab, of which nothing is left after `lab down`."""
    monkeypatch.setattr(harness, "STATE", tmp_path)
    lab = tmp_path / "autarky/labs/one"
    lab.mkdir(parents=True)
    (lab / "lab.json").write_text("{}")
    monkeypatch.setattr(harness.TestCluster, "autarky", lambda *_, **__: (lab / "lab.json").unlink())
    return harness.TestCluster("one", {})


def test_whoever_takes_it_down_first_compares_before_it_goes(cluster: harness.TestCluster, tmp_path: Path) -> None:
    lab, there = tmp_path / "autarky/labs/one/lab.json", list[bool]()
    cluster.before_it_goes = lambda: there.append(lab.exists())
    cluster.down()
    assert (there, lab.exists()) == ([True], False)
    cluster.down()
    assert there == [True], "it is gone"


def test_a_cluster_whose_members_differ_is_taken_down_all_the_same(
    cluster: harness.TestCluster, tmp_path: Path
) -> None:
    def differ() -> None:
        raise AssertionError("other keys")

    cluster.before_it_goes = differ
    with pytest.raises(AssertionError, match="other keys"):
        cluster.down()
    assert not (tmp_path / "autarky/labs/one/lab.json").exists()


def test_what_a_killed_run_left_is_not_compared(cluster: harness.TestCluster, tmp_path: Path) -> None:
    """The first `down` of a scenario is made before anything is to be compared."""
    cluster.down()
    assert not (tmp_path / "autarky/labs/one/lab.json").exists()


# --- comparing -----------------------------------------------------------------------------------------


class Hosts(harness.TestCluster):
    """Three members, by a clock that only their answers move. One that is off lets everybody wait for as long as they
    do."""

    now = 1000.0
    is_off = False
    asked: list[str]

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def has_host(self, host: str) -> bool:
        return True

    def shell(self, host: str, command: str) -> str:
        if command.startswith("ls "):
            return "/etc/kubernetes/manifests/etcd-0.json"
        if self.is_off:
            limit = re.match(r"timeout ([0-9]+) ", command)
            self.now += math.inf if limit is None else int(limit[1])
            raise AssertionError(f"{command} on {host} ended with 124")
        self.asked.append(host)
        return json.dumps(self._answer(command))

    def _answer(self, command: str) -> Any:
        if "member list" in command:
            return {"members": [{"name": name} for name in NODES]}
        if "hashkv" in command:
            return [{"Endpoint": name, "HashKV": {"hash": 7}} for name in NODES]
        return [{"Status": {"header": {"cluster_id": 1}}}] if "status" in command else {"header": {"revision": 5}}


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, agreement: ModuleType, tmp_path: Path) -> Hosts:
    found = Hosts("one", {})
    found.asked = []
    for module in (agreement, importlib.import_module("ha")):
        monkeypatch.setattr(module, "STATE", tmp_path)
    monkeypatch.setattr(agreement, "time", found)
    lab = tmp_path / "autarky/labs/one"
    lab.mkdir(parents=True)
    (lab / "lab.json").write_text(json.dumps({"hosts": {name: {"pid": 1} for name in NODES}}))
    return found


def test_members_with_the_same_keys_agree_at_once(agreement: ModuleType, hosts: Hosts) -> None:
    agreement.all_members_agree(hosts)
    assert (set(hosts.asked), hosts.now) == ({*NODES}, 1000.0)


def test_members_that_do_not_answer_are_waited_for_for_a_minute_in_all(agreement: ModuleType, hosts: Hosts) -> None:
    hosts.is_off = True
    with pytest.raises(AssertionError, match=r"after 60 s: (.* ended with 124|no time is left)"):
        agreement.all_members_agree(hosts)
    assert hosts.now <= 1000.0 + agreement.SECONDS + len(NODES) + 1


def test_members_on_machines_that_are_reached_by_ssh_are_those_of_their_lab(
    agreement: ModuleType, hosts: Hosts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(agreement, "TestCluster", lambda name, _spec: hosts if name == "one" else None)
    nodes = [{"name": name, "host": f"ssh://{name}"} for name in NODES[:2]]
    config = str(tmp_path / "autarky/labs/one/ssh_config")
    agreement.all_members_agree(harness.TestCluster("by-ssh", {"nodes": nodes, "sshConfig": config}))
    assert set(hosts.asked) == {"n1", "n2"}
