"""Which way `autarky upgrade rollback` takes, and where it leads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autarky.cli.main import main
from autarky.control.upgrade.decide.reported import images_are_placed, placed
from autarky.model.versions import Version
from autarky.render import crds
from fakes.kube import FakeKube

OLD, NEW = "v1.36.4", "v1.37.1"


class Context(SimpleNamespace):
    answers = True

    async def api_answers(self) -> bool:
        return self.answers

    def kube(self) -> FakeKube:
        found: FakeKube = self.api
        return found

    async def close(self) -> None: ...


@pytest.fixture
def context(monkeypatch) -> Context:
    kube = FakeKube()
    kube.put(crds.control_plane_crd())
    kube.put(
        {
            "apiVersion": crds.API_VERSION,
            "kind": "ControlPlane",
            "metadata": {"name": crds.CONTROL_PLANE},
            "spec": {"version": NEW, "paused": True},
            "status": {"version": NEW, "formerVersion": OLD},
        }
    )
    made = Context(api=kube)

    async def observe(_: Any) -> None: ...

    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda *_, **__: None)
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda _: made)
    monkeypatch.setattr("autarky.phases.hosts.observe", observe)
    return made


def live_plane(context: Context) -> dict[str, Any]:
    """As it is stored."""
    (found,) = [one for one in context.api._objects.values() if one["kind"] == "ControlPlane"]
    return dict(found)


def plane(context: Context) -> dict[str, Any]:
    spec: dict[str, Any] = live_plane(context)["spec"]
    return spec


def test_through_the_api_while_that_answers_and_asked_again_it_leads_there_still(context: Context, capsys) -> None:
    for _ in range(2):
        assert main(["upgrade", "rollback", "--yes"]) == 0
        assert plane(context) == {"version": OLD}
    assert f"the control plane goes back to {OLD}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("follow", "then"),
    [
        (True, f"Then the control plane goes back to {OLD}: `autarky upgrade status --watch`"),
        (False, "Run `autarky up` with the present version first: then they do so by themselves"),
    ],
)
def test_with_newer_kubelets_it_is_asked_for_and_what_brings_them_back_is_said(
    context: Context, capsys, follow: bool, then: str
) -> None:
    asked = {"kubelets": {"follow": True}} if follow else {}
    context.api.put({**live_plane(context), "spec": {**plane(context), **asked}})
    for name, version in (("n1", NEW), ("n2", OLD), ("n3", "junk")):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        context.api.put({**node, "status": {"nodeInfo": {"kubeletVersion": version}}})
    for words in (["--dry-run"], ["--yes"]):
        assert main(["upgrade", "rollback", *words]) == 0
        said = capsys.readouterr().out
        assert f"kubelets go back first, since none may be newer than an API server (rule 4): node n1: {NEW}." in said
        assert then in said
    assert plane(context) == {"version": OLD, **asked}


def test_going_back_takes_back_what_was_said_of_the_images(context: Context) -> None:
    """A node that joins until the next attempt lacks them."""
    node = {"metadata": {"creationTimestamp": "2026-11-01T08:00:00Z"}}
    for command, status in (
        ("rollback", {"version": NEW, "formerVersion": OLD}),
        ("abort", {"version": OLD, "upgrade": {"versions": [NEW], "wanted": NEW, "state": "Stopped", "message": "x"}}),
    ):
        live = live_plane(context)
        meta = {**live["metadata"], "annotations": placed(Version.parse(NEW), [node])}
        context.api.put({**live, "metadata": meta, "spec": {"version": NEW}, "status": status})
        assert images_are_placed(live_plane(context), Version.parse(NEW), node)
        assert main(["upgrade", command, "--yes"]) == 0
        assert plane(context) == {"version": OLD}
        assert not live_plane(context)["metadata"].get("annotations")


def test_a_dry_run_changes_nothing(context: Context, capsys) -> None:
    assert main(["upgrade", "rollback", "--dry-run"]) == 0
    assert f"set spec.version of the ControlPlane to {OLD}" in capsys.readouterr().out
    assert plane(context)["version"] == NEW


def test_a_way_back_that_is_complete_is_not_turned_round(context: Context, capsys) -> None:
    context.api.put({**live_plane(context), "spec": {"version": OLD}, "status": {"version": OLD, "formerVersion": NEW}})
    assert main(["upgrade", "rollback", "--yes"]) == 2
    assert "there is no version to go back to" in capsys.readouterr().err
    assert plane(context)["version"] == OLD


def test_without_the_api_it_goes_through_the_hosts(context: Context, monkeypatch) -> None:
    asked = []

    async def roll_back(context: Context, output: str, **options: bool) -> None:
        asked.append(options)

    context.answers = False
    monkeypatch.setattr("autarky.cli.upgrade_offline.roll_back", roll_back)
    assert main(["upgrade", "rollback", "--yes", "--accept-newer-kubelets"]) == 0
    assert asked == [{"yes": True, "dry_run": False, "accepts_kubelets": True}]
