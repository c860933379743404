"""How the scenarios run the probe beside a block, with a program in its place that does nothing but wait."""

from __future__ import annotations

import sys
import time

import pytest

from e2e import harness

PROBE = """
import json, subprocess, sys, time
print("narration", file=sys.stderr)
status = subprocess.run(sys.argv[sys.argv.index("--") + 1 :]).returncode
time.sleep(AFTERLIFE)
print(json.dumps({"command_status": status, "slow": []}))
"""
SHORT, LONG = 2.0, 60.0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> harness.TestCluster:
    """Its probe lives on for some seconds after its command, as one does that waits for answers."""
    monkeypatch.setattr(harness, "COMMAND", [sys.executable, "-c", PROBE.replace("AFTERLIFE", "3")])
    return harness.TestCluster("one", {})


def test_a_probe_that_outlives_its_block_gives_its_report(cluster):
    with cluster.probed(LONG) as reports:
        assert reports == []
    assert [report["command_status"] for report in reports] == [-15]


def test_a_probe_whose_load_has_ended_before_its_block_fails_the_test_though_it_lives(cluster):
    with pytest.raises(AssertionError, match="the probe's load has ended"), cluster.probed(SHORT):
        time.sleep(SHORT + 1)


def test_a_probe_that_does_not_begin_fails_the_test_before_its_block(cluster, monkeypatch):
    monkeypatch.setattr(harness, "COMMAND", [sys.executable, "-c", "raise SystemExit('no API')"])
    with pytest.raises(AssertionError, match="the probe did not begin: no API"), cluster.probed(LONG):
        pytest.fail("the block was entered")


@pytest.mark.parametrize("seconds", [LONG, SHORT])
def test_why_a_block_failed_is_told_whatever_has_become_of_its_probe(cluster, seconds):
    with pytest.raises(ZeroDivisionError), cluster.probed(seconds):
        _fail_after(SHORT + 1 if seconds == SHORT else 0)


def _fail_after(seconds: float) -> None:
    time.sleep(seconds)
    raise ZeroDivisionError


def test_what_was_announced_is_in_the_report_and_ends_with_it(cluster):
    began = time.time()
    cluster.announce()
    with cluster.probed(LONG) as reports, cluster.announced(5.0):
        pass
    (first, forever), (second, later) = reports[0]["announced"]
    assert (first >= began, forever) == (True, float("inf"))
    assert 5.0 <= later - second < LONG
    assert max(each.until for each in cluster.announcements) <= time.time()
