"""The hosted API server is told to end when its standby serves, and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autarky.control.slots.decide.pivot import Health
from autarky.control.slots.node import hand_over as handover
from autarky.control.slots.node.hand_over import LONGEST_SECONDS, MOOT_SECONDS, QUICK_SECONDS, HandOver
from fakes.clock import HandClock


@contextmanager
def asked(hand_over: HandOver) -> Iterator[threading.Thread]:
    """A kubelet that asks, and waits for the answer."""
    kubelet = threading.Thread(target=hand_over.before_stop)
    kubelet.start()
    while not hand_over.pending:
        pass
    try:
        yield kubelet
    finally:
        hand_over.go_on()
        kubelet.join(timeout=60)


def test_who_is_about_to_end_is_judged_as_if_it_did():
    hand_over = HandOver(HandClock())
    assert hand_over.judged(Health.READY) is Health.READY
    with asked(hand_over):
        assert hand_over.judged(Health.READY) is Health.TERMINATING
        assert hand_over.judged(Health.UNKNOWN) is Health.UNKNOWN


def test_the_kubelet_waits_until_the_standby_serves():
    hand_over = HandOver(HandClock())
    with asked(hand_over) as kubelet:
        kubelet.join(timeout=0.05)
        assert kubelet.is_alive()
        hand_over.go_on()
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()
        assert hand_over.judged(Health.READY) is Health.TERMINATING  # it will end in a moment


def test_a_server_that_ends_anyway_is_not_waited_for():
    hand_over = HandOver(HandClock())
    with asked(hand_over) as kubelet:
        assert hand_over.judged(Health.ABSENT) is Health.ABSENT
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()
    assert hand_over.judged(Health.READY) is Health.READY


def test_a_server_that_serves_long_after_the_answer_was_not_told_to_end():
    clock = HandClock()
    hand_over = HandOver(clock)
    with asked(hand_over) as kubelet:
        clock.now = LONGEST_SECONDS + MOOT_SECONDS + 1
        assert hand_over.judged(Health.READY) is Health.TERMINATING, "the kubelet has no answer yet"
        hand_over.go_on()
        kubelet.join(timeout=60)
        clock.now += MOOT_SECONDS + 1
        assert hand_over.judged(Health.READY) is Health.READY
        assert not hand_over.pending


# --- a slow standby ------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's patience with what nobody sees coming, and its looks, are moments."""
    monkeypatch.setattr(handover, "QUICK_SECONDS", 0.5)
    monkeypatch.setattr(handover, "LOOK_SECONDS", 0.01)


@pytest.mark.usefixtures("quick")
def test_a_standby_of_which_nothing_is_seen_is_given_up_soon():
    hand_over = HandOver(HandClock())
    with asked(hand_over) as kubelet:
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()
        assert not hand_over.waits
        assert hand_over.judged(Health.READY) is Health.TERMINATING


@pytest.mark.usefixtures("quick")
def test_a_standby_that_is_on_its_way_is_waited_for():
    hand_over = HandOver(HandClock())
    with asked(hand_over) as kubelet:
        hand_over.is_worth(LONGEST_SECONDS)
        kubelet.join(timeout=1)
        assert kubelet.is_alive()
        assert hand_over.waits
        hand_over.go_on()
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()


@pytest.mark.usefixtures("quick")
def test_a_kubelet_that_asks_again_after_its_restart_waits_as_long_as_the_first_time():
    """The first question's thread has nobody who hears its answer."""
    clock = HandClock()
    hand_over = HandOver(clock)
    with asked(hand_over) as before_its_restart:
        hand_over.is_worth(100.0)
        clock.now, first = 60.0, hand_over._asked
        with asked(hand_over) as again:
            while hand_over._asked == first:
                pass
            clock.now = 101.0
            before_its_restart.join(timeout=60)
            assert not before_its_restart.is_alive()
            again.join(timeout=1)
            assert again.is_alive(), "what was said of the standby still holds"
            assert hand_over.waits, "who looks after the standby looks on"


@pytest.mark.usefixtures("quick")
def test_one_that_has_ended_on_its_way_is_waited_for_no_more():
    hand_over = HandOver(HandClock())
    with asked(hand_over) as kubelet:
        hand_over.is_worth(LONGEST_SECONDS)
        kubelet.join(timeout=1)
        hand_over.is_worth(0)
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("worth", "longest"), [(1e9, LONGEST_SECONDS), (60.0, 60.0)])
def test_one_that_never_arrives_holds_nobody_up_for_ever(worth, longest):
    clock = HandClock()
    hand_over = HandOver(clock)
    with asked(hand_over) as kubelet:
        hand_over.is_worth(worth)
        clock.now = longest - 10
        kubelet.join(timeout=1)
        assert kubelet.is_alive()
        clock.now = longest
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()


@pytest.mark.usefixtures("quick")
def test_what_was_seen_of_one_hand_over_says_nothing_about_the_next():
    hand_over = HandOver(HandClock())
    with asked(hand_over):
        hand_over.is_worth(LONGEST_SECONDS)
    assert hand_over.judged(Health.ABSENT) is Health.ABSENT
    with asked(hand_over) as kubelet:
        kubelet.join(timeout=60)
        assert not kubelet.is_alive()


def test_a_slow_standby_has_as_long_as_its_kubelet_grants_it():
    assert QUICK_SECONDS < LONGEST_SECONDS
    assert LONGEST_SECONDS >= QUICK_SECONDS + 240, "it comes to run within the first, and its probes grant 240 s"
