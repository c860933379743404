"""Every way of failing is reported as what it is, and what is no failure is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from misbehaving import Behaviour, running

from autarky.errors import UserError
from autarky.probe import Probe, Rates, Report, Target

RATES = Rates(new=40, kept=40, write=40)
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # connections that the tests cut on purpose


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autarky.probe.probe.CATCH_UP_SECONDS", 1.0)


async def _probe(
    behaviour: Behaviour,
    directory: Path,
    *,
    seconds: float = 0.6,
    rates: Rates = RATES,
    timeout: float = 10.0,
    **fields: bool,
) -> Report:
    async with running(behaviour, directory, **fields) as (_, target):
        async with Probe(target, rates=rates, timeout=timeout) as probe:
            await asyncio.sleep(seconds)
        return probe.report


def _kinds(report: Report, stream: str) -> set[str]:
    return {failure.kind for failure in report.failures if failure.stream == stream}


async def test_a_healthy_server_fails_nothing(tmp_path: Path) -> None:
    report = await _probe(lambda _m, _p, _n: None, tmp_path)
    assert report.failed == 0, report.failures
    assert report.requests > 10
    assert report.writes_acknowledged > 2


async def test_a_kept_connection_that_was_closed_while_idle_is_a_race_and_no_failure(tmp_path: Path) -> None:
    report = await _probe(lambda _m, _p, answered: "close" if answered >= 3 else None, tmp_path)
    assert report.failed == 0, report.failures
    assert report.streams["kept"]["races"] > 0


async def test_a_retry_that_fails_as_well_is_a_failure(tmp_path: Path) -> None:
    seen = 0

    def close_after_three_requests(method: str, path: str, answered: int) -> str | None:
        nonlocal seen
        seen += path.endswith("/kube-system")
        return "close" if seen > 3 and path.endswith("/kube-system") else None

    report = await _probe(close_after_three_requests, tmp_path, rates=Rates(new=0, kept=40, write=0))
    assert _kinds(report, "kept") == {"closed without answer"}


async def test_a_new_connection_that_is_closed_without_an_answer_is_a_failure_with_its_outage(tmp_path: Path) -> None:
    report = await _probe(lambda m, p, _n: "close" if m == "GET" and p.endswith("/kube-system") else None, tmp_path)
    assert _kinds(report, "new") == {"closed without answer"}
    assert report.outage > 0


async def test_an_error_status_names_the_status_and_its_reason(tmp_path: Path) -> None:
    report = await _probe(lambda _m, p, _n: "503" if p.endswith("/kube-system") else None, tmp_path)
    details = {failure.detail for failure in report.failures if failure.stream == "new"}
    assert details == {"503 ServiceUnavailable"}
    assert {f.answered_by for f in report.failures} == {"v0"}


async def test_a_server_that_accepts_and_never_answers_is_a_timeout(tmp_path: Path) -> None:
    report = await _probe(
        lambda _m, p, _n: "stall" if p.endswith("/kube-system") else None, tmp_path, seconds=3.5, timeout=1.5
    )
    assert _kinds(report, "new") == {"timeout"}


async def test_a_write_that_was_acknowledged_and_forgotten_is_lost(tmp_path: Path) -> None:
    report = await _probe(
        lambda m, _p, _n: "lose" if m == "PATCH" else None, tmp_path, seconds=0.2, rates=Rates(0, 0, 5)
    )
    assert "lost write" in _kinds(report, "write")


async def test_a_watch_that_ends_and_resumes_with_nothing_missed_is_no_failure(tmp_path: Path) -> None:
    report = await _probe(lambda _m, _p, _n: None, tmp_path, cut_watches=True)
    assert report.failed == 0, report.failures
    assert report.watch_resumed > 1


async def test_events_that_a_watch_never_shows_are_missed(tmp_path: Path) -> None:
    report = await _probe(lambda _m, _p, _n: None, tmp_path, seconds=0.2, rates=Rates(0, 0, 10), forget_events=True)
    assert _kinds(report, "watch") == {"missed event"}


async def test_nobody_listening_is_told_at_once(tmp_path: Path) -> None:
    async with running(lambda _m, _p, _n: None, tmp_path) as (_, target):
        pass
    with pytest.raises(UserError, match="does not answer: connect refused"):
        async with Probe(Target(target.url, target.tls)):
            pass
