"""A decision is logged when it differs from the last one about its subject, and not each time it is made."""

from __future__ import annotations

from typing import Any

import pytest

from autarky.control.base.controller import ClusterController
from autarky.control.base.decision_log import DecisionLog


class Lines:
    """What was logged, as (sentence, values)."""

    def __init__(self) -> None:
        self.written: list[tuple[str, dict[str, Any]]] = []

    def say(self, sentence: str, **values: Any) -> None:
        self.written.append((sentence, values))

    @property
    def sentences(self) -> list[str]:
        return [sentence for sentence, _ in self.written]


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def log(lines: Lines) -> DecisionLog:
    return DecisionLog(lines.say)


def test_a_sentence_is_logged_when_it_has_changed_and_again_when_it_comes_back(lines: Lines, log: DecisionLog) -> None:
    for sentence in ("starts", "starts", "runs", "runs", "starts"):
        log.tell("etcd", sentence)
    assert lines.sentences == ["starts", "runs", "starts"]


def test_another_number_is_no_change(lines: Lines, log: DecisionLog) -> None:
    for sentence in ("has waited for 9 s", "has waited for 10 s", "has waited for 4711 s", "has waited for 5 min"):
        log.tell("etcd", sentence)
    assert lines.sentences == ["has waited for 9 s", "has waited for 5 min"]


def test_each_subject_has_a_last_sentence_of_its_own(lines: Lines, log: DecisionLog) -> None:
    for subject in ("n1", "n2", "n1", "n2"):
        log.tell(subject, "joins")
    assert [values for _, values in lines.written] == [{"component": "n1"}, {"component": "n2"}]


def test_the_subject_is_a_field_of_the_line_unless_it_is_the_logging_component_itself(lines: Lines) -> None:
    log = DecisionLog(lines.say, key="subject")
    log.tell("n1", "joins", revision="r2")
    log.tell("", "leads", term="3")
    assert lines.written == [("joins", {"subject": "n1", "revision": "r2"}), ("leads", {"term": "3"})]


def test_values_beside_the_sentence_make_no_change(lines: Lines, log: DecisionLog) -> None:
    log.tell("n1", "joins", revision="r1")
    log.tell("n1", "joins", revision="r2")
    assert lines.written == [("joins", {"component": "n1", "revision": "r1"})]


def test_what_is_logged_is_counted_and_what_is_not_logged_is_not(lines: Lines) -> None:
    counted: list[str] = []
    log = DecisionLog(lines.say, counted=counted.append)
    for subject, sentence in (("n1", "joins"), ("n1", "joins"), ("n2", "joins"), ("n1", "leaves")):
        log.tell(subject, sentence)
    assert counted == ["n1", "n2", "n1"]


def test_a_later_subject_of_the_same_name_is_logged_again_and_one_that_stays_is_not(
    lines: Lines, log: DecisionLog
) -> None:
    for subject in ("n1", "n2"):
        log.tell(subject, "joins")
    log.remember_only(["n2", "n3"])
    for subject in ("n1", "n2"):
        log.tell(subject, "joins")
    assert [values["component"] for _, values in lines.written] == ["n1", "n2", "n1"]


def test_a_controller_that_forgets_its_subjects_does_not_forget_what_concerns_itself(lines: Lines) -> None:
    class Decides(ClusterController):
        name = "decides"

        async def reconcile(self) -> float | None:
            return None

    controller = Decides(lines.say)
    for _ in range(2):
        controller.tell("waits for etcd")
        controller.tell("joins", "n1")
        controller.remember_only([])
    assert lines.sentences == ["waits for etcd", "joins", "joins"]
