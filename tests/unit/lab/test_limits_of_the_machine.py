"""Limits that all test hosts share."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.lab.limits import ENOUGH_INSTANCES, raise_limits


@pytest.mark.parametrize(("before", "after"), [("128\n", ENOUGH_INSTANCES), ("8192\n", 8192)])
def test_a_limit_is_raised_and_never_lowered(tmp_path: Path, before: str, after: int) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text(before)
    raise_limits(limit)
    assert int(limit.read_text()) == after


def test_a_machine_without_the_limit_is_left_alone(tmp_path: Path) -> None:
    raise_limits(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
