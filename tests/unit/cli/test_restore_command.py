"""`autarky restore --undo` and `--abandon`: what is shown before a person is asked, and what excludes what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autarky.cli import restore
from autarky.cli.etcd import recover_quorum
from autarky.config import default_cluster
from autarky.errors import Refused, UserError
from autarky.payload import default_version, known_versions
from autarky.phases.recovery.abandoning import AbandonRecovery
from autarky.phases.recovery.state import FromKept, FromMember

AT = "2026-11-26T20:00:00Z"
LOSS = "the recovery of that time is taken back, and what was written since (7 changes) is lost"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What commands have run: the sources of recoveries, or phases."""
    found: list[Any] = []
    demo = default_cluster(default_version=default_version(), known_versions=known_versions())

    async def recover(_name: str, _found: object, recovery: Any, *_: object, **__: object) -> None:
        found.append(recovery.source)

    async def run_steps(_name: str, _found: object, steps: Any, *_: object, **__: object) -> None:
        found.extend(steps)

    async def looked(_found: object, recovery: Any) -> tuple[str, list[str]]:
        found.append(("looked", recovery.source))
        return AT, [LOSS]

    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda *_, **__: demo)
    monkeypatch.setattr("autarky.cli.recovery.recover", recover)
    monkeypatch.setattr("autarky.cli.recovery.run_steps", run_steps)
    monkeypatch.setattr(restore, "_looked", looked)
    return found


def run(command: Any, *arguments: str) -> Any:
    return CliRunner().invoke(command, arguments)


def test_an_undo_shows_what_it_takes_away_before_it_asks(ran: list[Any]) -> None:
    done = run(restore.restore, "--undo")
    assert isinstance(done.exception, UserError)
    assert f"by what was there before {AT}?" in str(done.exception), "the question, for which there is no terminal"
    assert LOSS in done.output
    assert ran == [("looked", FromKept())]


def test_and_takes_back_that_one_and_no_other(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "confirm", lambda *_, **__: None)
    assert run(restore.restore, "--undo").exit_code == 0
    assert ran == [("looked", FromKept()), FromKept(made=AT)]


def test_where_one_is_under_way_the_question_is_whether_to_finish_that(
    ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken back then, and nobody agrees to that."""

    async def looked(*_: object) -> tuple[None, list[str]]:
        return None, ["an interrupted recovery is resumed", "nothing is taken back by this run"]

    monkeypatch.setattr(restore, "_looked", looked)
    done = run(restore.restore, "--undo")
    assert "Finish the recovery of cluster" in str(done.exception)
    assert "by what was there before" not in str(done.exception)
    assert "nothing is taken back by this run" in done.output


def test_whoever_restores_a_backup_hears_that_another_one_may_be_finished_first(ran: list[Any], tmp_path: Path) -> None:
    """Whether one is under way is seen only when the archive has been opened."""
    archive = tmp_path / "backup.tar.gz"
    archive.touch()
    done = run(restore.restore, str(archive))
    assert f"by {archive}?" in str(done.exception)
    assert "whose data is in its place already, is finished instead" in str(done.exception)


def test_what_would_be_refused_is_refused_before_the_question(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> tuple[str, list[str]]:
        raise Refused("a rule", "it is old", "say when")

    monkeypatch.setattr(restore, "_looked", refused)
    monkeypatch.setattr(restore, "confirm", lambda *_, **__: pytest.fail("it has asked"))
    assert isinstance(run(restore.restore, "--undo").exception, Refused)


def test_who_has_said_yes_is_not_asked(ran: list[Any]) -> None:
    assert run(restore.restore, "--undo", "--yes", "--again", "--made", AT).exit_code == 0
    assert run(restore.restore, "--undo", "--dry-run").exit_code == 0
    assert ran == [FromKept(again=True, made=AT), FromKept()]


@pytest.mark.parametrize(
    ("command", "named"), [(restore.restore, None), (recover_quorum, None), (recover_quorum, "n2")]
)
def test_a_recovery_is_abandoned_by_either_command(ran: list[Any], command: Any, named: str | None) -> None:
    assert run(command, "--abandon", "--yes", *(["--from", named] if named else [])).exit_code == 0
    [phase] = ran
    assert isinstance(phase, AbandonRecovery)
    assert phase.recovery.source == FromMember(named)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--undo", "--abandon"),
        ("--abandon", "--again"),
        ("--abandon", "--on", "n1"),
        ("--made", AT),
        ("--undo", "--on", "n1"),
    ],
)
def test_what_does_not_go_together_is_no_command(ran: list[Any], arguments: tuple[str, ...]) -> None:
    assert run(restore.restore, *arguments).exit_code == 2
    assert ran == []
