"""What the scenarios take for a change of etcd's members that has reached all of them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autarky.control.etcd.decide.template import Request, effective, step_refused, version_of
from e2e import harness

BEFORE = {"n1": "a", "n2": "a", "n3": "a"}


@pytest.fixture
def etcd_versions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As the scenarios have it, which find each other beside themselves."""
    monkeypatch.syspath_prepend(str(Path(harness.__file__).parent))
    return importlib.import_module("etcd_versions")


def member(name: str, wanted: str, **status: Any) -> dict[str, Any]:
    said = {"phase": "Member", "revision": wanted, **status}
    return {"metadata": {"name": name}, "spec": {"revision": wanted}, "status": said}


class Cluster:
    """Of which these EtcdMembers are known; None: nobody answers."""

    def __init__(self, *members: dict[str, Any] | None) -> None:
        self.members = members

    def kubectl(self, *argv: str) -> str:
        assert argv == ("get", "etcdmembers", "-o", "json")
        assert None not in self.members, "kubectl ended with 1"
        return json.dumps({"items": self.members})

    def wait(self, what: str, condition: Any, seconds: float = 60, *, pause: float = 0.3) -> None:
        assert condition(), what


CHANGED = [member(name, "b") for name in BEFORE]
NOT_CHANGED = [
    pytest.param([], id="of no member is anything known"),
    pytest.param(CHANGED[:2], id="of one less"),
    pytest.param([*CHANGED[:2], member("n4", "b")], id="of another one"),
    pytest.param([member(name, "a") for name in BEFORE], id="nothing else is asked for"),
    pytest.param([*CHANGED[:2], member("n3", "b", revision="a")], id="one is to follow"),
    pytest.param([*CHANGED[:2], member("n3", "b", second={"phase": "Learner"})], id="one has a second one"),
]


def test_members_that_are_made_from_another_template_are_changed(etcd_versions: ModuleType) -> None:
    cluster = Cluster(*CHANGED)
    assert etcd_versions.is_changed(cluster, BEFORE)
    etcd_versions.wait_until_changed(cluster, BEFORE)


@pytest.mark.parametrize("members", NOT_CHANGED)
def test_others_are_not(etcd_versions: ModuleType, members: list[dict[str, Any]]) -> None:
    cluster = Cluster(*members)
    assert not etcd_versions.is_changed(cluster, BEFORE)
    with pytest.raises(AssertionError):
        etcd_versions.wait_until_changed(cluster, BEFORE)


def test_of_none_nobody_says_that_all_are_changed(etcd_versions: ModuleType) -> None:
    assert not etcd_versions.all_changed(Cluster())
    assert etcd_versions.all_changed(Cluster(*CHANGED))


def test_without_an_answer_nothing_is_known(etcd_versions: ModuleType) -> None:
    assert not etcd_versions.is_changed(Cluster(None), BEFORE)


def test_another_patch_is_the_same_image_by_a_name_that_etcd_can_go_to_and_back(etcd_versions: ModuleType) -> None:
    said = dict[str, str]()

    class Nodes:
        def shell(self, host: str, command: str) -> str:
            said[host] = command
            return ""

    own, patched = etcd_versions.own_image(), etcd_versions.image_of_another_patch(Nodes(), "n1", "n2")
    assert list(said) == ["n1", "n2"]
    assert all(command.endswith(f" tag --force {own} {patched}") for command in said.values())
    base = {"containers": [{"name": "etcd", "image": own, "command": ["etcd"]}]}
    for image in (own, patched):
        asked = effective(base, Request({}, etcd_versions.patch_of(image)))
        assert asked["containers"][0]["image"] == image
    numbers = [version_of({"containers": [{"image": image}]}) for image in (own, patched)]
    assert numbers[0] != numbers[1]
    assert step_refused(*numbers) is step_refused(*reversed(numbers)) is None
