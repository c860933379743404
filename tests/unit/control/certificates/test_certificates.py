"""What nodes report about their certificates: read back as written, and sentences for what is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.certificates.decide import ANNOTATION, Reported, earliest, read, text, wrong
from autarky.control.status import decide as plane_status

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
moments = st.integers(0, 4_000_000_000).map(lambda second: datetime.fromtimestamp(second, UTC))
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9./_-]{0,20}", fullmatch=True)
words = st.text(min_size=1, max_size=20).filter(str.isprintable)


def read_back(annotation: str) -> Reported | None:
    return read({"annotations": {ANNOTATION: annotation}})


@given(st.dictionaries(names, moments, max_size=5), st.dictionaries(names, words, max_size=3))
def test_what_is_told_is_read_back(ends: dict[str, datetime], trouble: dict[str, str]) -> None:
    assert read_back(text(Reported(ends, trouble))) == Reported(ends, trouble)


@pytest.mark.parametrize(
    "annotation", ["", "{}", "[]", "null", '{"ends": 1}', '{"ends": {"a": "tomorrow"}}', '{"ends": {}, "trouble": 1}']
)
def test_what_a_node_tells_that_cannot_be_understood_tells_nothing(annotation: str) -> None:
    assert read_back(annotation) is None


def test_what_has_ended_or_is_not_renewed_is_told_with_its_reason() -> None:
    later = NOW + timedelta(hours=1)
    reported = {
        "n1": Reported({"apiserver": NOW, "etcd/peer": later}, {"etcd/peer": "its CA has no key here"}),
        "n2": Reported({"apiserver": later}, {"scheduler": "disk full"}),
    }
    assert wrong(reported, NOW) == [
        "apiserver on n1 expired at 2027-03-01T12:00:00Z",
        "etcd/peer on n1 expires at 2027-03-01T13:00:00Z: its CA has no key here",
        "scheduler on n2 does not exist: disk full",
    ]
    assert wrong({"n2": Reported({"apiserver": later})}, NOW) == []


def test_the_first_of_all_to_end_is_found() -> None:
    reported = {
        "n1": Reported({"a": NOW + timedelta(2), "b": NOW + timedelta(1)}),
        "n2": Reported({"a": NOW + timedelta(3)}),
    }
    assert earliest(reported) == ("n1", "b", NOW + timedelta(1))
    assert earliest({"n1": Reported()}) is None


def condition(expiry: plane_status.Certificates | None) -> dict[str, str] | None:
    found = plane_status.status([], [], [], [], [], [], expiry=expiry, generation=1, before={}, now="now")
    return next((one for one in found["conditions"] if one["type"] == "CertificatesCurrent"), None)


def test_the_control_plane_has_a_condition_that_says_which_ends_first_or_what_is_wrong() -> None:
    assert condition(None) is None
    good = condition(plane_status.Certificates("apiserver on n1, at 2027-03-01T12:00:00Z"))
    assert good is not None
    assert (good["status"], good["message"][-43:]) == ("True", "is apiserver on n1, at 2027-03-01T12:00:00Z")
    bad = condition(plane_status.Certificates("x", ("apiserver on n1 has ended",)))
    assert bad is not None
    assert (bad["status"], bad["reason"], bad["message"]) == ("False", "NotRenewed", "apiserver on n1 has ended")


@pytest.mark.parametrize("said", ["[" * 100_000, '{"ends": {"a": 1}}', '{"ends": []}', "null"])
def test_what_a_node_makes_up_is_as_if_it_told_nothing(said: str) -> None:
    assert read({"annotations": {ANNOTATION: said}}) is None


def test_a_node_that_tells_of_thousands_is_heard_of_some() -> None:
    ends = {f"{'x' * 200}{number}": "2027-03-01T12:00:00Z" for number in range(5000)}
    found = read({"annotations": {ANNOTATION: json.dumps({"ends": ends})}})
    assert found is not None
    assert len(found.ends) <= 40
    assert all(len(name) <= 64 for name in found.ends)
