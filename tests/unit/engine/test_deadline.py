from __future__ import annotations

import asyncio
import time
from itertools import count, pairwise

import pytest

from autarky.engine import deadline
from autarky.engine.deadline import LONGEST_SEEN, MOST_KNOWN, Deadline, NotYet, poll_until
from autarky.errors import ApiError, CommandFailed, TimedOut, Unreachable
from autarky.model.patience import CEILING
from fakes.clock import LoopClock

pytestmark = pytest.mark.looptime

WHAT = "the API answers"


now = LoopClock().monotonic


async def test_a_condition_that_holds_at_once_takes_no_time_and_says_nothing(clock, listener, true_after):
    await poll_until(WHAT, true_after(0, "no"), timeout=10, progress=listener, clock=clock)
    assert now() == 0
    assert listener.waits == []


async def test_a_wait_ends_soon_after_its_condition_holds(clock, listener, true_after):
    await poll_until(WHAT, true_after(7, "no"), timeout=10, progress=listener, clock=clock)
    assert 7 <= now() <= 7.5


async def test_checks_begin_close_together_and_end_half_a_second_apart(clock, listener):
    times = []

    async def condition() -> str | None:
        times.append(now())
        return "no" if now() < 20 else None

    await poll_until(WHAT, condition, timeout=30, progress=listener, clock=clock)
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert pauses[0] == 0.1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 0.5


async def test_a_longer_interval_is_kept(clock, listener):
    times = []

    async def condition() -> str | None:
        times.append(now())
        return "no" if now() < 10 else None

    await poll_until(WHAT, condition, timeout=30, progress=listener, clock=clock, interval=2)
    assert times == [0, 2, 4, 6, 8, 10]


async def test_a_wait_is_reported_once_a_second_with_the_seconds_left_and_the_last_thing_seen(
    clock, listener, true_after
):
    await poll_until(WHAT, true_after(3, "refused"), timeout=10, progress=listener, clock=clock)
    *reports, over = listener.waits
    assert reports[0] == (WHAT, 10, "refused")
    assert 3 <= len(reports) <= 4
    assert [left for _, left, _ in reports] == sorted((left for _, left, _ in reports), reverse=True)
    assert over[0] == WHAT
    assert over[2] == "", "an empty sentence says that the wait is over"


async def test_giving_up_tells_the_name_the_time_and_the_last_thing_seen(clock, listener, true_after):
    with pytest.raises(TimedOut) as caught:
        await poll_until(WHAT, true_after(99, "connection refused"), timeout=10, progress=listener, clock=clock)
    assert str(caught.value) == "timed out after 10 s, waiting until the API answers; last seen: connection refused"
    assert now() == 10


@pytest.mark.parametrize("error", [Unreachable("n1 is silent"), ApiError(503, "ServiceUnavailable", "starting")])
async def test_silence_and_api_errors_mean_not_yet_and_are_remembered(clock, listener, error):
    async def condition() -> str | None:
        if now() < 5:
            raise error
        return None

    await poll_until(WHAT, condition, timeout=10, progress=listener, clock=clock)
    assert listener.waits[0] == (WHAT, 10, str(error))


async def test_other_errors_end_the_wait_at_once(clock, listener):
    async def condition() -> str | None:
        raise CommandFailed("n1", ["false"], 1, "")

    with pytest.raises(CommandFailed):
        await poll_until(WHAT, condition, timeout=10, progress=listener, clock=clock)
    assert now() == 0


async def test_a_condition_that_hangs_is_cut_off_and_what_was_seen_before_is_kept(clock, listener):
    async def condition() -> str | None:
        if now() < 4:
            return "starting"
        await asyncio.sleep(3600)
        return None

    with pytest.raises(TimedOut, match=r"last seen: the last check did not finish; before it: starting"):
        await poll_until(WHAT, condition, timeout=10, progress=listener, clock=clock)
    assert now() <= 11


async def test_a_timeout_inside_a_condition_is_not_taken_for_the_deadline(clock, listener):
    async def condition() -> str | None:
        raise TimeoutError("a bug of an adapter")

    with pytest.raises(TimeoutError, match="a bug of an adapter"):
        await poll_until(WHAT, condition, timeout=10, progress=listener, clock=clock)


async def test_two_waits_share_one_deadline(clock, listener, true_after):
    deadline = Deadline.after(10, clock)
    await poll_until("first", true_after(8, "no"), deadline=deadline, progress=listener, clock=clock)
    with pytest.raises(TimedOut, match=r"timed out after 2 s, waiting until second"):
        await poll_until("second", true_after(99, "no"), deadline=deadline, progress=listener, clock=clock)
    assert deadline.expired
    assert deadline.left == 0
    assert now() == 10


async def test_a_wait_without_a_bound_or_with_two_is_a_bug(clock, listener, true_after):
    with pytest.raises(TypeError):
        await poll_until(WHAT, true_after(0, ""), progress=listener, clock=clock)
    with pytest.raises(TypeError):
        await poll_until(
            WHAT, true_after(0, ""), timeout=1, deadline=Deadline.after(1, clock), progress=listener, clock=clock
        )


# --- a deadline that looks at progress -----------------------------------------------------------------------------


async def test_a_wait_goes_on_while_things_come_on(clock, listener):
    async def condition() -> NotYet | None:
        return None if now() >= 40 else NotYet("not all nodes are Ready", now() // 4)

    await poll_until(WHAT, condition, timeout=10, still=5, progress=listener, clock=clock)
    assert 40 <= now() < 41


async def test_without_looking_at_progress_it_ends_at_its_deadline(clock, listener):
    async def condition() -> NotYet | None:
        return NotYet("not all nodes are Ready", now() // 4)

    with pytest.raises(TimedOut, match="timed out after 10 s"):
        await poll_until(WHAT, condition, timeout=10, progress=listener, clock=clock)


@pytest.mark.parametrize("numbers", [(-3, -2, -1, 0), (1, 5, 3, 6, 2, 7)])
async def test_each_count_that_is_more_than_ever_before_is_progress(clock, listener, numbers):
    """-1 and -2 have the same hash."""

    async def condition() -> NotYet | None:
        look = int(now() // 4)
        return NotYet("not all are there", numbers[look]) if look < len(numbers) else None

    await poll_until(WHAT, condition, timeout=6, still=8.5, progress=listener, clock=clock)
    assert now() >= 4 * len(numbers)


async def test_what_is_less_at_each_look_is_no_progress(clock, listener):
    """Whoever has a worker can take one thing after the other away."""

    async def condition() -> NotYet | None:
        return NotYet("not all are there", -int(now()))

    with pytest.raises(TimedOut):
        await poll_until(WHAT, condition, timeout=10, still=5, progress=listener, clock=clock)
    assert now() == 10


@pytest.mark.parametrize("last", [3, 8])
async def test_a_wait_in_which_nothing_happens_any_more_ends_at_its_deadline_or_a_while_after_the_last_step(
    clock, listener, last
):
    async def condition() -> NotYet | None:
        return NotYet("a pod starts", 2) if now() >= last else NotYet("an image is fetched", 1)

    with pytest.raises(TimedOut):
        await poll_until(WHAT, condition, timeout=10, still=5, progress=listener, clock=clock)
    assert now() == pytest.approx(max(10, last + 5), abs=0.6)


@pytest.mark.parametrize(
    "seen",
    [lambda: NotYet("up or down", int(now()) % 2), lambda: f"{now():.3f}", lambda: NotYet(f"{now():.3f}", 3)],
    ids=["comes and goes", "bare words", "words beside what stays"],
)
async def test_what_comes_and_goes_and_what_is_only_said_is_no_progress(clock, listener, seen):
    async def condition() -> str | NotYet | None:
        return seen()

    with pytest.raises(TimedOut):
        await poll_until(WHAT, condition, timeout=10, still=5, progress=listener, clock=clock)
    assert now() == 10


async def test_errors_are_no_progress_whatever_they_say(clock, listener):
    async def condition() -> str | None:
        raise ApiError(503, "ServiceUnavailable", f"{now():.3f}")

    with pytest.raises(TimedOut):
        await poll_until(WHAT, condition, timeout=10, still=5, progress=listener, clock=clock)
    assert now() == 10


async def test_what_is_always_new_has_a_ceiling(clock, listener):
    async def condition() -> NotYet | None:
        return NotYet("not yet", now())

    with pytest.raises(TimedOut):
        await poll_until(WHAT, condition, timeout=10, still=5, progress=listener, clock=clock)
    assert now() == pytest.approx(10 * CEILING, abs=0.6)


async def test_a_deadline_that_is_shared_does_not_move(clock, listener, true_after):
    with pytest.raises(TypeError):
        await poll_until(
            WHAT, true_after(0, ""), deadline=Deadline.after(1, clock), still=1, progress=listener, clock=clock
        )


async def test_of_what_a_wait_has_seen_it_keeps_little(clock, listener, monkeypatch):
    """Who makes it new at each look fills no memory with it."""
    waits: list[deadline._Wait] = []

    class Watched(deadline._Wait):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            waits.append(self)

    monkeypatch.setattr(deadline, "_Wait", Watched)
    numbers = count()

    async def condition() -> NotYet | None:
        return NotYet("x" * 100_000, str(next(numbers)) * 1000)

    with pytest.raises(TimedOut) as caught:
        await poll_until(WHAT, condition, timeout=600, still=5, progress=listener, clock=clock)
    [wait] = waits
    assert next(numbers) > MOST_KNOWN
    assert len(wait.known) == MOST_KNOWN
    assert all(isinstance(one, int) for one in wait.known)
    assert len(wait.last) == LONGEST_SEEN
    assert len(str(caught.value)) < LONGEST_SEEN + 100


async def test_a_sentence_of_a_million_digits_holds_nobody_up(clock, listener):
    """A kubelet writes what it likes into the conditions of its Node."""

    async def condition() -> str | None:
        return "9" * 10**6

    began = time.monotonic()
    with pytest.raises(TimedOut):
        await poll_until(WHAT, condition, timeout=2, still=1, progress=listener, clock=clock)
    assert time.monotonic() - began < 1


async def test_what_was_seen_last_is_one_line_of_the_error(clock, listener):
    async def condition() -> str | None:
        return "no\nerror: everything is well"

    with pytest.raises(TimedOut, match=r"last seen: no error: everything is well$"):
        await poll_until(WHAT, condition, timeout=1, progress=listener, clock=clock)
