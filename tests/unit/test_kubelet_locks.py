"""Whose kubelet is in force: who has the lock, and nobody who merely runs."""

from __future__ import annotations

import pytest

from e2e.kubelet_locks import holders_and_waiters, whose, with_the_lock

HOST, HOSTED = "101", "202"
HAS = "1: FLOCK  ADVISORY  WRITE {} 00:1b:42 0 EOF\n"
WAITS = "1: -> FLOCK  ADVISORY  WRITE {} 00:1b:42 0 EOF\n"
OF_OTHERS = "2: POSIX  ADVISORY  WRITE 303 00:1b:43 0 EOF\n3: FLOCK  ADVISORY  WRITE 404 00:1b:44 0 EOF\n"
BOTH_RUN = {HOST: True, HOSTED: True}


def listed(*, has: str = "", waits: str = "") -> str:
    return (HAS.format(has) if has else "") + (WAITS.format(waits) if waits else "") + OF_OTHERS


def test_who_has_a_lock_and_who_waits_for_it() -> None:
    assert holders_and_waiters(listed(has=HOST, waits=HOSTED)) == ({HOST, "404"}, {HOSTED})


@pytest.mark.parametrize(
    ("kubelets", "locks", "expected"),
    [
        pytest.param(BOTH_RUN, listed(has=HOST, waits=HOSTED), "host", id="the hosted one waits"),
        pytest.param(BOTH_RUN, listed(has=HOSTED, waits=HOST), "hosted", id="the host's waits"),
        pytest.param({HOST: True}, listed(has=HOST), "host", id="the host's alone"),
        pytest.param({HOST: False}, listed(), "host", id="the host's takes none"),
        pytest.param({HOST: True}, listed(), "nobody", id="the host's has not come to it"),
        pytest.param({HOSTED: True}, listed(), "nobody", id="the hosted one has not come to it"),
        pytest.param(BOTH_RUN, listed(waits=HOSTED), "nobody", id="the host's has not come to it, the other one waits"),
        pytest.param(BOTH_RUN, listed(has=HOST), "both", id="the hosted one does not wait"),
        pytest.param({}, listed(), "nobody", id="none runs"),
    ],
)
def test_in_force_is_who_has_the_lock(kubelets: dict[str, bool], locks: str, expected: str) -> None:
    assert whose(kubelets, locks, HOST) == expected


def test_one_that_runs_without_the_lock_is_not_somebody() -> None:
    """It hangs before the lock, is stopped there, or is started again and again."""
    have, _ = holders_and_waiters(listed(waits=HOSTED))
    assert with_the_lock(BOTH_RUN, have) == set()
    assert with_the_lock({HOST: True}, have) == set()
    assert with_the_lock({HOST: False}, have) == {HOST}
    assert with_the_lock(BOTH_RUN, {HOST, "404"}) == {HOST}
