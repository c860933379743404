"""JSON however deep it is nested: what is read of it, and that nothing of ours ends by it."""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autarky import parsing
from autarky.parsing import DEPTH, cut, parsed

FAR = 100_000
STRINGS = st.text(st.sampled_from('[]{}"\\,: \n\u00fc\ud800a'), max_size=12)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), STRINGS)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4), max_leaves=30
)
FORMS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    lambda value: json.dumps(value, indent=3),
]


def nested(levels: int, *, inner: str = "1", beside: str = "") -> str:
    return '{"f:a":' * levels + inner + f"{beside}}}" * levels


def without_the_deep(value: Any, depth: int) -> Any:
    """What `cut` is to do, said of values."""
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return None
    if isinstance(value, list):
        return [without_the_deep(one, depth - 1) for one in value]
    return {name: without_the_deep(one, depth - 1) for name, one in value.items()}


@given(value=VALUES, form=st.sampled_from(FORMS), levels=st.integers(0, 5), encoded=st.booleans())
def test_what_is_cut_is_what_lies_too_deep_and_nothing_else(
    value: Any, form: Callable[[Any], str], levels: int, encoded: bool
) -> None:
    text = form(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "DEPTH", levels)
        given_text = text.encode(errors="surrogatepass") if encoded else text
        assert json.loads(cut(given_text)) == without_the_deep(json.loads(text), levels)
        assert parsed(given_text) == without_the_deep(json.loads(text), levels)


@given(value=VALUES, form=st.sampled_from(FORMS))
def test_what_is_not_deep_is_read_as_json_reads_it(value: Any, form: Callable[[Any], str]) -> None:
    text = form(value)
    assert parsed(text) == parsed(text.encode(errors="surrogatepass")) == json.loads(text) == json.loads(cut(text))


@given(text=st.text(st.sampled_from('[]{}"\\,:1 nul'), max_size=40), levels=st.integers(0, 4))
@example(text='"\\', levels=0)
@example(text='[[["', levels=1)
@example(text="]]]", levels=1)
def test_what_is_no_json_is_a_value_error_and_what_is_json_stays_json(text: str, levels: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "DEPTH", levels)
        try:
            complete = json.loads(text)
        except ValueError:
            with pytest.raises(ValueError, match=r"."):
                parsed(text)
        else:
            assert parsed(text) == without_the_deep(complete, levels)


@pytest.mark.parametrize("levels", [DEPTH + 1, 600, 900, 950, 990, 1500, FAR])
def test_whatever_the_depth_what_is_above_and_beside_it_is_complete(levels: int) -> None:
    text = f'{{"items": [{{"name": "before"}}, {nested(levels, beside=", " + chr(34) + "b]" + chr(34) + ": 2")}, 3]}}'
    found = parsed(text.encode())
    before, deep, after = found["items"]
    assert (before, after) == ({"name": "before"}, 3)
    for _ in range(DEPTH - 3):
        assert deep["b]"] == 2
        deep = deep["f:a"]
    assert deep == {"f:a": None, "b]": 2}


def test_what_is_as_deep_as_is_kept_is_kept() -> None:
    assert parsed(nested(DEPTH)) == json.loads(nested(DEPTH))
    assert parsed(nested(DEPTH + 1)) != json.loads(nested(DEPTH + 1))


@pytest.mark.parametrize("text", ["[" * FAR, '{"a":' * FAR, nested(FAR)[:-1], nested(FAR) + "}", "[" * FAR + "]"])
def test_what_is_deep_and_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)


def deeper(calls: int, act: Callable[[], Any]) -> Any:
    return act() if calls == 0 else deeper(calls - 1, act)


@pytest.mark.parametrize("act", [json.dumps, copy.deepcopy, repr, lambda one: json.loads(json.dumps(one)) == one])
def test_what_was_read_bears_what_is_done_with_it_deep_in_the_stack(act: Callable[[Any], Any]) -> None:
    for levels in (DEPTH, 900, 1500):
        found = parsed(nested(levels))
        deeper(300, lambda found=found: act(found))  # type: ignore[misc]


@pytest.mark.parametrize("tail", ['"' + '\\"' * 300_000, "[" * 500_000, "x" * 1_000_000, '"\\' * 300_000])
def test_cutting_takes_no_longer_for_odd_text(tail: str) -> None:
    began = time.process_time()
    cut("[" * (DEPTH + 5) + tail)
    assert time.process_time() - began < 5


def test_the_depth_is_far_below_that_of_python() -> None:
    assert sys.getrecursionlimit() > 2 * 4 * DEPTH
