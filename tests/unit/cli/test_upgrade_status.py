"""`autarky upgrade status`, once and with --watch: what it prints and when it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from autarky.cli.main import main
from autarky.control.kubelet.decide import hosted_report
from autarky.control.kubelet.decide.wanted import PIN
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.reported import Report, State
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render import crds
from autarky.render.values import CONTROL_PLANE_ACTIVE

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
        self.nodes: list[list[Object] | Exception] = []
        """One for each look at a cluster that hosts kubelets."""

    async def list(self, _version: str, kind: str) -> list[Object]:
        assert (kind, bool(self.nodes)) == ("Node", True)
        found = self.nodes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def get(self, *_: Any) -> Object:
        assert self.looks, "it does not end"
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def kube(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    kube = Scripted([])

    async def nothing(*_: Any) -> None: ...

    context = SimpleNamespace(kube=lambda: kube, close=nothing)
    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda *_, **__: None)
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda _: context)
    monkeypatch.setattr("autarky.phases.hosts.observe", nothing)
    monkeypatch.setattr("autarky.cli.upgrade.WATCH_SECONDS", 0.001)
    return kube


@pytest.fixture
def looks(kube: Scripted) -> list[Look]:
    """To be filled before the command runs."""
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


def test_it_says_what_comes_next(looks, capsys) -> None:
    plane = a_plane(State.UPGRADING, "the API servers", component="kube-apiserver")
    plane["status"]["upgrade"]["next"] = ["kube-scheduler", "kubelet", 7]
    looks += [plane, plane]
    assert main(["upgrade", "status"]) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == ["the API servers", "then kube-scheduler, kubelet"]
    assert main(["upgrade", "status", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["next"] == ["kube-scheduler", "kubelet"]


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


def following(current: bool, **told: Any) -> Object:
    """The control plane has its version; of kubelets that is said."""
    said = [{"type": "KubeletsCurrent", "status": str(current)}]
    pool = {"name": "workers", "wanted": [str(NEW)], "done": int(current), "total": 1}
    return {**COMPLETE, "status": {**COMPLETE["status"], "conditions": said, "kubelets": {"pools": [pool], **told}}}


def test_kubelets_that_follow_are_watched_to_their_end(looks, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = following(False, changing=["w1"])
    looks += [SERVERS, following(False), changing, changing, following(True)]
    assert main(["upgrade", "status", "--watch"]) == 0
    assert (looks, len(heads(capsys.readouterr().out))) == ([], 4)
    monkeypatch.setattr("autarky.cli.upgrade_kubelets.STILL_SECONDS", 0.0)
    looks += [changing, changing, following(False)]
    assert main(["upgrade", "status", "--watch"]) == 0
    assert looks == [], "one that is off has nobody wait forever, one that changes is waited for"


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


KUBELETS: dict[str, Any] = {
    "pools": [{"name": "workers", "wanted": [str(NEW)], "done": 1, "total": 4, "stopped": "w1: no space"}],
    "changing": ["w2"],
    "failed": [{"node": "w1", "why": "no space"}],
    "waits": [{"node": "w1", "why": "w1 failed"}, {"node": "w3", "why": "w1 failed before\x1b[2J"}],
    "said": [{"node": "w4", "why": "its annotation asks for v1.38.0"}],
}


def with_kubelets(found: object, current: str = "False") -> Object:
    plane = a_plane(None, version=NEW)
    conditions = [{"type": "KubeletsCurrent", "status": current}]
    return {**plane, "status": {**plane["status"], "kubelets": found, "conditions": conditions}}


def test_kubelets_are_counted_and_who_changes_failed_or_waits_is_named_with_the_reason(looks, capsys) -> None:
    looks += [with_kubelets(KUBELETS)]
    assert main(["upgrade", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2 : lines.index("")] == [
        f"kubelets of workers: 1 of 4 have {NEW}; stopped by w1: no space",
        "kubelets that change: w2",
        "kubelet of w1 failed: no space",
        "kubelet of w3 waits: w1 failed before [2J",
        "kubelet of w4: its annotation asks for v1.38.0",
    ]


@pytest.mark.parametrize(("condition", "current"), [("True", True), ("False", False), ("Unknown", None)])
def test_as_json_kubelets_are_as_in_the_status(looks, capsys, condition: str, current: bool | None) -> None:
    looks += [with_kubelets({**KUBELETS, "waits": KUBELETS["waits"][:1]}, condition)]
    assert main(["upgrade", "status", "-o", "json"]) == 0
    expected = {**KUBELETS, "waits": KUBELETS["waits"][:1], "current": current}
    assert json.loads(capsys.readouterr().out)["kubelets"] == expected


def test_where_nothing_is_asked_of_kubelets_nothing_is_said_of_them(looks, capsys) -> None:
    looks += [COMPLETE, COMPLETE]
    assert main(["upgrade", "status"]) == 0
    assert "kubelet" not in capsys.readouterr().out
    assert main(["upgrade", "status", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kubelets"] is None


def test_pools_that_cannot_be_understood_are_named(looks, capsys) -> None:
    looks += [with_kubelets({"trouble": "spec.pools: it is no list"})]
    assert main(["upgrade", "status"]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "no kubelet is changed: spec.pools: it is no list"


@pytest.mark.parametrize("found", [[], {"pools": [{"name": {}}, 3]}, {"failed": {"w1": 2}, "waits": [None]}, "x"])
def test_any_status_of_kubelets_can_be_shown(looks, capsys, found: object) -> None:
    looks += [with_kubelets(found), with_kubelets(found)]
    assert main(["upgrade", "status"]) == 0
    assert main(["upgrade", "status", "-o", "json"]) == 0
    assert capsys.readouterr().err == ""


# --- level 0 -----------------------------------------------------------------------------------------------------


def a_node(
    name: str, state: hosted_report.State | None, why: str = "", *, version: Version = NEW, pin: str = ""
) -> Object:
    annotations = {PIN: pin} if pin else {}
    if state is not None:
        annotations[hosted_report.ANNOTATION] = hosted_report.text(hosted_report.Report("0f3a", version, state, why))
    return {"metadata": {"name": name, "annotations": annotations, "labels": {}}, "status": {}}


def hosting(*, follow: bool = True, hosted: Any = None, **more: Any) -> Object:
    plane = with_kubelets({"pools": [], "hosted": hosted or {}, **more})
    spec = {"version": str(NEW), "selfHosted": "0-4", "kubelets": {"follow": follow}}
    return {**plane, "spec": spec, "status": {**plane["status"], "version": str(NEW)}}


HOSTED = hosted_report.State
NODES = [
    a_node("n1", HOSTED.IN_FORCE),
    a_node("n2", HOSTED.IN_FORCE, version=OLD),
    a_node("n3", HOSTED.WAITING, "its turn has not come"),
    a_node("w1", HOSTED.FAILED, "it has exited: no such flag"),
    a_node("w2", HOSTED.REFUSED, "it is to be v1.36.4", pin=str(OLD)),
    a_node("w3", None),
]


def test_hosted_kubelets_are_counted_and_who_waits_or_failed_is_named_with_the_reason(kube, looks, capsys) -> None:
    told = {"behind": "they do not get it", "waits": [{"node": "n3", "why": "control node n2 has its turn"}]}
    looks += [hosting(hosted=told), hosting(hosted=told)]
    kube.nodes += [NODES, NODES]
    assert main(["upgrade", "status"]) == 0
    out = capsys.readouterr().out.splitlines()
    first = out.index(f"hosted kubelets: 1 of 5 are in force with {NEW}")
    assert out[first + 1 : first + 5] == [
        "they do not get it",
        "kubelet of n3: the hosted one waits: control node n2 has its turn",
        "kubelet of w1: the hosted one has failed: it has exited: no such flag",
        "kubelet of w2: the hosted one may not be in force: it is to be v1.36.4",
    ]
    assert main(["upgrade", "status", "-o", "json"]) == 0
    counted = {"wanted": str(NEW), "inForce": 1, "total": 5}
    assert json.loads(capsys.readouterr().out)["kubelets"]["hosted"] == {**told, **counted}


def test_where_they_do_not_follow_each_that_is_in_force_counts(kube, looks, capsys) -> None:
    looks += [hosting(follow=False)]
    kube.nodes += [NODES]
    assert main(["upgrade", "status"]) == 0
    assert "hosted kubelets: 2 of 6 are in force\n" in capsys.readouterr().out


def test_of_very_many_that_say_something_a_few_are_named(kube, looks, capsys) -> None:
    looks += [hosting()]
    kube.nodes += [[a_node(f"w{number}", HOSTED.FAILED, "x" * 10_000) for number in range(500)]]
    assert main(["upgrade", "status"]) == 0
    out = capsys.readouterr().out
    assert "more hosted kubelets" in out
    assert len(out) < 20_000


def test_of_many_control_nodes_are_named_first(kube, looks, capsys) -> None:
    """Workers may say anything."""
    looks += [hosting()]
    control = a_node("z-cp1", HOSTED.FAILED, "it has exited")
    control["metadata"]["labels"] = {CONTROL_PLANE_ACTIVE: ""}
    kube.nodes += [[*(a_node(f"a{number}", HOSTED.FAILED, "a lie") for number in range(1, 7)), control]]
    assert main(["upgrade", "status"]) == 0
    out = capsys.readouterr().out
    assert "kubelet of z-cp1: the hosted one has failed: it has exited\n" in out
    assert "and 2 more hosted kubelets\n" in out


def test_of_kubelets_that_failed_it_says_how_many_more_there_are(kube, looks, capsys) -> None:
    looks += [hosting(failed=[{"node": "z-cp1", "why": "no pods"}], more={"failed": 6})]
    kube.nodes += [[]]
    assert main(["upgrade", "status"]) == 0
    assert "kubelets: and 6 more failed\n" in capsys.readouterr().out


@pytest.mark.parametrize("odd", [{}, {"metadata": 7}, {"metadata": {"name": {}, "annotations": []}}])
def test_any_node_can_be_shown(kube, looks, capsys, odd: Object) -> None:
    looks += [hosting()]
    kube.nodes += [[odd]]
    assert main(["upgrade", "status"]) == 0
    assert f"0 of 1 are in force with {NEW}" in capsys.readouterr().out


def test_an_api_that_goes_away_before_the_nodes_is_waited_for_as_well(kube, looks, capsys, monkeypatch) -> None:
    monkeypatch.setattr("autarky.cli.upgrade_kubelets.STILL_SECONDS", 0.0)
    done = hosting()
    done["status"]["upgrade"] = COMPLETE["status"].get("upgrade")
    looks += [SERVERS | {"spec": done["spec"]}, done, done]
    kube.nodes += [NODES, AWAY, NODES]
    assert main(["upgrade", "status", "--watch"]) == 0
    assert "the API does not answer" in capsys.readouterr().err
    assert (kube.nodes, looks) == ([], [])
