"""Of the power cuts of a case one falls in a hand-over, in which state of the supervisor's the lab's hosts say."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from e2e import hand_over_cuts
from e2e.hand_over_cuts import Cuts, state_in

SAID = "boot b\npod p\ntry 1\nversion v1.37.1\nstate proving\nuptime 7\nbehind \nwhy it waits for state\n"


@dataclass
class Cluster:
    """What its node's supervisor says at each look, and who was cut."""

    says: list[str]
    cut: list[str] = field(default_factory=list)

    def host_process(self, _host: str) -> int:
        return 1

    def cut_at_once(self, *hosts: str) -> None:
        self.cut.extend(hosts)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each sleep between looks was to be."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(
        hand_over_cuts,
        "states_of",
        lambda cluster, _version, names: {name: state_in(cluster.says.pop(0), "v1.37.1") for name in names},
    )
    return slept


def saying(*states: str) -> Cluster:
    return Cluster([SAID.replace("state proving", f"state {state}") if state else "" for state in states])


@pytest.mark.parametrize(
    ("said", "version", "state"), [(SAID, "v1.37.1", "proving"), (SAID, "v1.36.4", ""), ("", "v1.37.1", "")]
)
def test_a_state_is_that_of_the_version_that_comes(said: str, version: str, state: str) -> None:
    assert state_in(said, version) == state


def test_where_no_cut_was_in_a_trial_the_last_one_waits_for_it(looks: list[float]) -> None:
    cluster = saying("", "proven", "", "proven", "waiting")
    cuts = Cuts(cluster, 3)
    assert [cuts.cut("v1.37.1", 5.0, "n1") for _ in range(2)] == ["5.0 s: n1 not yet", "5.0 s: n1 proven"]
    assert not cuts.one_was_in_a_trial
    assert cuts.cut("v1.37.1", 9.0, "n1") == "a trial: n1 waiting"
    assert cuts.one_was_in_a_trial
    assert (cluster.cut, 9.0 in looks) == (["n1"] * 3, False)


@pytest.mark.parametrize("state", ["waiting", "proving"])
def test_where_one_was_in_a_trial_the_last_one_comes_at_its_moment(looks: list[float], state: str) -> None:
    cuts = Cuts(saying(state, "proven"), 2)
    assert [cuts.cut("v1.37.1", 5.0, "n1") for _ in range(2)] == [f"5.0 s: n1 {state}", "5.0 s: n1 proven"]
    assert cuts.one_was_in_a_trial
    assert looks == [5.0, 5.0]


def test_a_trial_that_does_not_come_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over_cuts, "TRIAL_SECONDS", 0.0)
    cluster = saying("proven", "proven")
    with pytest.raises(AssertionError, match=r"for v1\.37\.1 to be .*: {'n1': 'proven'}"):
        Cuts(cluster, 1).cut("v1.37.1", 5.0, "n1")
    assert cluster.cut == []
