"""What has to be built for a case is what the store lacks of it, at about what that costs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autarky import places
from autarky.payload import known_versions, load_release
from cases import building
from cases.building import build, missing_builds
from cases.listing import Need
from cases.tree import ROOT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return places.cache_dir()


def test_a_case_that_needs_nothing_more_costs_nothing_more() -> None:
    assert missing_builds([]) == {}


def test_another_version_costs_the_build_of_its_components() -> None:
    found = missing_builds([Need("v1.37.1"), Need("v1.37.1", "test")])
    assert found["kubernetes v1.37.1"] == 300
    assert len(found) == len(load_release(known_versions()[-1]).components)


def test_upstreams_tests_cost_their_build_where_they_are_needed_and_only_there() -> None:
    cluster, tests = missing_builds([Need("v1.36.4")]), missing_builds([Need("v1.36.4", "conformance")])
    assert tests == cluster | {"kubernetes-tests v1.36.4": 420}
    assert "kubernetes-tests v1.36.4" not in cluster | missing_builds([Need("v1.36.4", "test")])


def test_what_is_needed_is_built_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr("subprocess.run", lambda argv, **_options: calls.append([str(word) for word in argv]))
    building.build(
        [Need("v1.36.4", "conformance"), Need("v1.37.1"), Need(machine=True), Need("v1.36.4", "conformance")]
    )
    autarky = [sys.executable, "-m", "autarky"]
    assert calls == [
        [str(ROOT / "run"), "need-vm"],
        [*autarky, "payload", "get", "v1.36.4", "--group=cluster", "--group=conformance"],
        [*autarky, "payload", "get", "v1.37.1", "--group=cluster"],
    ]
    calls.clear()
    building.build([Need("v1.37.1")])
    assert len(calls) == 1, "the programs for the virtual machine are not installed for who needs none"


def test_what_is_in_the_store_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        building, "stored_binary", lambda _store, component, _binary: None if component.name == "etcd" else "there"
    )
    assert list(missing_builds([Need("v1.37.1")]).values()) == [60]


def test_the_virtual_machine_costs_its_making_until_it_is_there(cache: Path) -> None:
    assert missing_builds([Need(machine=True)]) == {"virtual machine": 120}
    (cache / "vm-root/0123abcd").mkdir(parents=True)
    assert missing_builds([Need(machine=True)]) == {}


def test_a_virtual_machine_whose_making_was_cut_is_not_there(cache: Path) -> None:
    (cache / "vm-root/.making-17").mkdir(parents=True)
    (cache / "vm-root/.lock").touch()
    assert missing_builds([Need(machine=True)]) == {"virtual machine": 120}


@pytest.mark.parametrize(
    ("needs", "calls"),
    [
        ([], []),
        ([Need(machine=True), Need(machine=True)], ["need-vm"]),
        ([Need("v1.37.1"), Need(machine=True)], ["need-vm", "v1.37.1"]),
    ],
)
def test_who_needs_the_virtual_machine_is_given_its_programs(
    monkeypatch: pytest.MonkeyPatch, needs: list[Need], calls: list[str]
) -> None:
    ran: list[str] = []

    def run(argv: list[str], **_: object) -> None:
        ran.append(next(word for word in map(str, argv) if word in {"need-vm", "v1.37.1"}))

    monkeypatch.setattr("subprocess.run", run)
    build(iter(needs))
    assert ran == calls


def test_every_component_of_a_release_has_a_cost() -> None:
    names = {component.name for version in known_versions() for component in load_release(version).components}
    assert names <= building._COMPONENT_SECONDS.keys()
