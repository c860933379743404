"""`autarky upgrade status`, once and with --watch: what it prints and when it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from autarky.cli.main import main
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.reported import Report, State
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render import crds

OLD, NEW = Version(1, 36, 4), Version(1, 37, 1)
AWAY = Unreachable("no API server answers\nat all")
STARTS = ApiError(503, "ServiceUnavailable", "it starts")


def a_plane(state: State | None, message: str = "", *, version: Version = OLD, component: str = "") -> Object:
    """As the operator leaves it; without a state nothing is reported, as where it is complete, or not begun."""
    report = None if state is None else Report(NEW, state, message, component)
    layers = [{"level": 2, "component": "kube-apiserver", "slot": "hosted", "ready": "1/1", "versions": [str(version)]}]
    status: Object = {"version": str(version), "layers": layers, "observedGeneration": 1}
    status |= {"upgrade": reported.status(report, {NEW})} if report is not None else {}
    return {
        "apiVersion": crds.API_VERSION,
        "kind": "ControlPlane",
        "metadata": {"name": crds.CONTROL_PLANE, "generation": 1},
        "spec": {"version": str(NEW)},
        "status": status,
    }


SERVERS = a_plane(State.UPGRADING, "the API servers", component="kube-apiserver")
SCHEDULER = a_plane(State.UPGRADING, "the scheduler", component="kube-scheduler")
COMPLETE = a_plane(None, version=NEW)
Look = Object | Exception


class Scripted:
    """Answers with one after the other. Nobody looks once more than there are."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks = list(looks)

    async def get(self, *_: Any) -> Object:
        assert self.looks, "it does not end"
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Look]:
    """To be filled before the command runs."""
    kube = Scripted([])

    async def nothing(*_: Any) -> None: ...

    context = SimpleNamespace(kube=lambda: kube, close=nothing)
    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda *_, **__: None)
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda _: context)
    monkeypatch.setattr("autarky.phases.hosts.observe", nothing)
    monkeypatch.setattr("autarky.cli.upgrade.WATCH_SECONDS", 0.001)
    return kube.looks


def heads(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("version ")]


def test_without_watch_it_is_one_look(looks, capsys) -> None:
    looks += [SERVERS]
    assert main(["upgrade", "status"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [f"version {OLD}, wanted {NEW}: Upgrading", "the API servers"]
    assert "kube-apiserver" in out.splitlines()[-1]
    assert err == ""


def test_watching_it_prints_what_has_changed_and_ends_with_the_upgrade(looks, capsys) -> None:
    looks += [SERVERS, SERVERS, SERVERS, SCHEDULER, SCHEDULER, COMPLETE]
    assert main(["upgrade", "status", "--watch"]) == 0
    out, err = capsys.readouterr()
    assert heads(out) == [
        f"version {OLD}, wanted {NEW}: Upgrading",
        f"version {OLD}, wanted {NEW}: Upgrading",
        f"version {NEW}, wanted {NEW}: Complete",
    ]
    assert [out.count(one) for one in ("the API servers", "the scheduler")] == [1, 1]
    assert (looks, err) == ([], "")


@pytest.mark.parametrize("state", [State.STOPPED, State.REFUSED])
def test_it_ends_where_nothing_goes_on_by_itself(looks, capsys, state: State) -> None:
    looks += [SERVERS, a_plane(state, "why")]
    assert main(["upgrade", "status", "--watch"]) == 0
    assert heads(capsys.readouterr().out)[-1] == f"version {OLD}, wanted {NEW}: {state}"
    assert looks == []


@pytest.mark.parametrize("state", [State.PAUSED, State.SOAKING, None])
def test_it_goes_on_where_something_is_still_to_come(looks, capsys, state: State | None) -> None:
    """None: the operator has not begun."""
    looks += [a_plane(state, "waits"), SERVERS, COMPLETE]
    assert main(["upgrade", "status", "--watch"]) == 0
    assert len(heads(capsys.readouterr().out)) == 3


def test_of_a_complete_upgrade_there_is_one_look(looks, capsys) -> None:
    looks += [COMPLETE]
    assert main(["upgrade", "status", "--watch"]) == 0
    assert heads(capsys.readouterr().out) == [f"version {NEW}, wanted {NEW}: Complete"]


def test_an_api_that_is_away_is_said_once_and_once_that_it_is_back_each_time(looks, capsys) -> None:
    looks += [SERVERS, AWAY, AWAY, STARTS, SERVERS, STARTS, SCHEDULER, COMPLETE]
    assert main(["upgrade", "status", "--watch"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "the API does not answer, and is waited for: no API server answers at all",
        "the API answers again",
        "the API answers with an error, and is waited for: 503 ServiceUnavailable: it starts",
        "the API answers again",
    ]
    assert len(heads(out)) == 3, "what is as before is not printed again"


@pytest.mark.parametrize("refusal", [ApiError(401, "Unauthorized", "who?"), ApiError(403, "Forbidden", "not you")])
@pytest.mark.parametrize("before", [[], [SERVERS], [SERVERS, AWAY]])
def test_an_api_that_refuses_is_not_waited_for(looks, capsys, before: list[Look], refusal: ApiError) -> None:
    looks += [*before, refusal]
    assert main(["upgrade", "status", "--watch"]) == UserError.exit_code
    err = capsys.readouterr().err
    assert f"the API refuses the credentials of this machine: {refusal}" in err
    assert "`autarky login HOST`" in err
    assert looks == []


def test_without_watch_an_api_that_is_away_is_an_error(looks, capsys) -> None:
    looks += [AWAY]
    assert main(["upgrade", "status"]) == Unreachable.exit_code
    assert "no API server answers" in capsys.readouterr().err


def test_as_json_each_change_is_one_line_and_nothing_else_is_on_standard_output(looks, capsys) -> None:
    looks += [SERVERS, SERVERS, AWAY, SERVERS, SCHEDULER, COMPLETE]
    assert main(["upgrade", "status", "--watch", "-o", "json"]) == 0
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert [(one["state"], one["component"], one["version"]) for one in found] == [
        ("Upgrading", "kube-apiserver", str(OLD)),
        ("Upgrading", "kube-scheduler", str(OLD)),
        ("Complete", None, str(NEW)),
    ]
    assert all(one["wanted"] == str(NEW) for one in found)
    assert len(err.splitlines()) == 2


def test_as_json_one_look_is_one_document(looks, capsys) -> None:
    looks += [SERVERS]
    assert main(["upgrade", "status", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["message"], found["nodes"], found["until"]) == ("the API servers", [], None)
    assert found["layers"][0]["component"] == "kube-apiserver"
