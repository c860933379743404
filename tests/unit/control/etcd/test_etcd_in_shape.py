"""What the node agents report of their members' data and disks becomes a condition of the ControlPlane."""

from __future__ import annotations

from typing import Any

import pytest

from autarky.control.common import understood
from autarky.control.etcd.decide.wanted import Wanted
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.operator.members import _settled
from autarky.control.status import decide as plane_status
from autarky.ports import Object


def member(name: str, trouble: str | None, *, present: bool = True) -> Object:
    status = {"phase": "Member"} | ({} if trouble is None else {"trouble": trouble})
    return {**etcd_members.member(name, "192.0.2.11", present=present), "status": status}


def condition(*objects: Object) -> Any:
    seen = _settled(list(objects), Wanted((), (), None), {})
    status = plane_status.status([], [], [], [], [], [], seen, generation=1, before={}, now="now")
    [found] = [one for one in status["conditions"] if one["type"] == "EtcdInShape"]
    return found["status"], found["message"]


def test_each_member_that_needs_attention_is_named() -> None:
    objects = [member("n2", "its disk is slow"), member("n1", "near its quota"), member("n3", "")]
    assert condition(*objects) == ("False", "n1: near its quota; n2: its disk is slow")


@pytest.mark.parametrize("trouble", [None, ""])
def test_without_trouble_it_is_in_shape(trouble: str | None) -> None:
    assert condition(member("n1", trouble), member("n2", "gone", present=False))[0] == "True"


def test_where_etcd_is_not_described_or_not_seen_the_condition_is_absent_or_unknown() -> None:
    for seen, expected in ((None, None), (plane_status.Unseen("no API"), "Unknown")):
        status = plane_status.status([], [], [], [], [], [], seen, generation=1, before={}, now="now")
        found = {one["type"]: one["status"] for one in status["conditions"]}
        assert found.get("EtcdInShape") == expected


def test_a_trouble_that_is_no_text_makes_the_object_an_odd_one() -> None:
    assert understood.etcd_member(member("n1", "its disk is slow")) is None
    odd = member("n1", None)
    odd["status"]["trouble"] = ["its disk is slow"]
    assert understood.etcd_member(odd) == "status.trouble is ['its disk is slow']"
