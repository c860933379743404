from __future__ import annotations

from dataclasses import replace

from autarky.control.etcd.decide.leaving import RELOAD_SECONDS, Seen, Step, decide

NOTICED = Seen(reported_for=RELOAD_SECONDS, noted=None, pod="old", ends=False, ready=True)


def step(seen: Seen) -> Step:
    return decide(seen)[0]


def test_the_load_balancers_hear_of_it_first() -> None:
    assert step(replace(NOTICED, reported_for=0.0)) is Step.WAIT


def test_the_api_server_is_replaced_and_then_the_member_is_free() -> None:
    assert step(NOTICED) is Step.NOTE
    noted = replace(NOTICED, noted="old")
    assert step(noted) is Step.RESTART
    assert step(replace(noted, ends=True)) is Step.WAIT
    assert step(replace(noted, pod=None)) is Step.WAIT
    assert step(replace(noted, pod="new", ready=False)) is Step.WAIT
    assert step(replace(noted, pod="new")) is Step.CLAIM


def test_where_no_api_server_is_hosted_nobody_has_to_move() -> None:
    assert step(replace(NOTICED, pod=None)) is Step.CLAIM
