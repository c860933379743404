"""What the scenarios of a recovery, and of a move of etcd, take for two clusters at once, and whom they ask."""

from __future__ import annotations

import importlib
import json
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from e2e import two_clusters
from e2e.two_clusters import Read, has_become_another, of_the_last, two_at_once

OLD, NEW = 1, 2
THERE = {"store": "/srv/etcdctl --endpoints=https://192.0.2.9:2379"}


def test_one_after_the_other_is_one_at_a_time():
    assert two_at_once([Read(OLD, 0, 1), Read(OLD, 1, 2), Read(NEW, 3, 4), Read(NEW, 4, 5)]) == set()


def test_an_old_one_that_is_read_after_the_new_one_has_answered_is_not():
    assert two_at_once([Read(OLD, 0, 1), Read(NEW, 2, 3), Read(OLD, 4, 5)]) == {(OLD, NEW)}


def test_an_answer_that_was_on_its_way_shows_nothing():
    """It may be of the moment at which it was asked for."""
    assert two_at_once([Read(OLD, 0, 1), Read(OLD, 2, 9), Read(NEW, 3, 4)]) == set()


def test_members_in_two_places_that_are_of_one_cluster_are_one():
    """As while some join and others leave."""
    assert two_at_once([Read(OLD, n, n + 0.5, ("n1", "store")[n % 2]) for n in range(6)]) == set()


def test_a_copy_that_is_served_while_the_original_still_is_makes_two():
    original, copy = Read(OLD, 0, 1, "store"), Read(NEW, 2, 3, "n1")
    assert two_at_once([original, copy]) == set()
    assert two_at_once([original, copy, Read(OLD, 4, 5, "store")]) == {(OLD, NEW)}


def test_an_etcd_has_become_another_where_the_last_answer_is_of_another_than_the_first():
    old, new = Read(OLD, 0, 1, "n1"), Read(NEW, 2, 3, "n2")
    assert has_become_another([new, old])
    for reads in ([], [old], [old, Read(OLD, 4, 5)], [old, new, Read(OLD, 4, 5)]):
        assert not has_become_another(reads)


def test_who_has_answered_only_before_is_not_of_the_last_one():
    old = [Read(OLD, n, n + 1, host) for n, host in enumerate(("n1", "n2", "n3"))]
    new = [Read(NEW, n, n + 1, host) for n, host in ((5, "n1"), (7, "n3"))]
    assert of_the_last([*new, *old]) == {"n1", "n3"}
    assert of_the_last([]) == set()


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_etcd(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the scenarios have it, which find each other beside themselves."""
    monkeypatch.syspath_prepend(str(Path(two_clusters.__file__).parent))
    return importlib.import_module("one_etcd")


SECOND = "n1:second"
REMOVED = -1


class Hosts:
    """Whose members are of these clusters, by when they are asked; None refuses. Who is not here does not run. Nobody
    knows of a host that is REMOVED."""

    def __init__(self, clusters: Mapping[str, list[int | None]]) -> None:
        self.left = {name: list(said) for name, said in clusters.items()}
        self.commands = dict[str, str]()
        self.hangs = 0.0
        """Seconds until somebody who is asked on n1 knows anything."""

    def shell(self, host: str, command: str) -> str:
        name = f"{host}:second" if ":2479 " in command else host
        self.commands[name] = command
        time.sleep(self.hangs if host == "n1" else 0)
        said = self.left.get(name, [None])
        cluster = said.pop(0) if len(said) > 1 else said[0]
        assert cluster is not None, "permission denied"
        if cluster == REMOVED:
            raise KeyError(host)
        return json.dumps({"header": {"cluster_id": cluster}})

    def watched(self, one_etcd: ModuleType, *hosts: str, **asked: Any) -> list[Read]:
        with one_etcd.one_etcd_at_a_time(self, *(hosts or ("n1",)), pause=0.01, **asked) as reads:
            time.sleep(0.3)
        return reads


def test_each_member_is_asked_in_the_way_of_its_host(one_etcd: ModuleType) -> None:
    hosts = Hosts({"n1": [OLD], "store": [OLD]})
    assert {one.host for one in hosts.watched(one_etcd, others=THERE)} == {"n1", "store"}
    assert hosts.commands["store"].startswith(THERE["store"] + " ")
    assert hosts.commands["n1"].startswith(one_etcd.ETCDCTL + " ")
    for command in hosts.commands.values():
        assert re.search(" get .* -w json$", command), "by its quorum"


def test_who_has_answered_nothing_fails_the_scenario_that_does_not_say_so(one_etcd: ModuleType) -> None:
    hosts = Hosts({"n1": [None], "store": [OLD]})
    assert {one.host for one in hosts.watched(one_etcd, others=THERE, silent=["n1"])} == {"store"}
    with pytest.raises(AssertionError, match="no etcd has answered on n1"):
        hosts.watched(one_etcd, others=THERE)
    with pytest.raises(AssertionError, match="no etcd has answered on n2, n3"):
        Hosts({"n1": [OLD]}).watched(one_etcd, "n1", "n2", "n3")


def test_two_that_answer_by_turns_fail_the_scenario(one_etcd: ModuleType) -> None:
    with pytest.raises(AssertionError, match="two"):
        Hosts({"n1": [None, None, NEW], "store": [OLD]}).watched(one_etcd, others=THERE)


def test_so_do_two_on_one_host_of_which_one_is_on_the_ports_of_a_second_member(one_etcd: ModuleType) -> None:
    """Which stands in for the only one while that is changed: of the same cluster it may."""
    assert {one.host for one in Hosts({"n1": [OLD], SECOND: [None, OLD]}).watched(one_etcd)} == {"n1", SECOND}
    assert {one.host for one in Hosts({SECOND: [OLD]}).watched(one_etcd)} == {SECOND}
    with pytest.raises(AssertionError, match="two"):
        Hosts({"n1": [OLD], SECOND: [None, NEW]}).watched(one_etcd)


def test_a_copy_after_the_end_of_the_original_does_not(one_etcd: ModuleType) -> None:
    hosts = Hosts({"n1": [None] * 6 + [NEW], "store": [OLD, None]})
    assert {one.cluster for one in hosts.watched(one_etcd, others=THERE, another=True)} == {OLD, NEW}


def test_an_etcd_that_should_have_become_another_and_has_not_does(one_etcd: ModuleType) -> None:
    with pytest.raises(AssertionError, match="another"):
        Hosts({"n1": [OLD]}).watched(one_etcd, another=True)


def test_who_serves_in_the_end_is_asked_once_more(one_etcd: ModuleType) -> None:
    """However long the pause is that it would be in."""
    with one_etcd.one_etcd_at_a_time(Hosts({"n1": [OLD]}), "n1", pause=60) as reads:
        pass
    assert len(reads) == 1


def test_a_time_in_which_nobody_was_asked_shows_nothing(one_etcd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_etcd, "LONGEST_SILENCE", 0.2)
    hosts = Hosts({"n1": [OLD], "store": [OLD]})
    hosts.watched(one_etcd, others=THERE)
    hosts.hangs = 0.5
    with pytest.raises(AssertionError, match="n1: nothing was tried for so many seconds"):
        hosts.watched(one_etcd, others=THERE)


def test_nor_does_a_watch_that_has_ended_by_itself(one_etcd: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what else goes wrong nobody knows what it means."""
    monkeypatch.setattr(one_etcd, "LONGEST_SILENCE", 0.2)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(AssertionError, match="n1: nothing was tried for so many seconds"):
        Hosts({"n1": [OLD, REMOVED, OLD]}).watched(one_etcd)
