from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.config.positions import MOST_LEVELS, parse
from autarky.errors import UserError
from unit.config.cluster_texts import HEAD, problem, problems, read, spec


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "y", "012", "0x1f", "1e3", "2026-11-21", "1_000", "True"])
def test_words_that_yaml_takes_for_something_else_stay_text(word):
    assert spec(f"nodes: [{{name: n1, labels: {{key: {word}}}}}]").nodes[0].labels == {"key": word}


def test_times_and_endless_numbers_stay_text():
    assert parse("[1:30, " + "9" * 5000 + "]", "x").data == ["1:30", "9" * 5000]


@pytest.mark.parametrize("number", ["1.36", "1.4", "2"])
def test_a_version_that_is_not_quoted_is_told_to_be(number):
    reported = problem(f"kubernetesVersion: {number}\nnodes: [{{name: n1}}]")
    assert reported.startswith(f"cluster.yaml:5:22: spec.kubernetesVersion: it is the number {number}, ")
    assert 'in quotes, such as "1.36.4"' in reported


@pytest.mark.parametrize("value", ["true", "1", "1.5"])
def test_a_value_that_must_be_text_is_told_to_be_quoted(value):
    reported = problem(f"nodes: [{{name: n1, labels: {{key: {value}}}}}]")
    assert f"must be text, not {value} | put it in quotes" in reported


@pytest.mark.parametrize("value", ["null", "~", ""])
def test_a_value_that_is_not_there_is_told_so(value):
    reported = problem(f"nodes:\n  - name: n1\n    labels:\n      key: {value}")
    assert "spec.nodes[0].labels.key: must be text, but it is empty" in reported


def test_the_same_key_twice_is_told_with_its_position_each_time():
    assert problems("nodes: [{name: n1, name: n2}]\nnodes: [{name: n3}]") == [
        "cluster.yaml:5:22: duplicate key 'name' | remove one of them",
        "cluster.yaml:6:3: duplicate key 'nodes' | remove one of them",
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: [1", "cluster.yaml:2:1"),
        ("a: b: c", "cluster.yaml:1:5"),
        ("\t- x", "cluster.yaml:1:1"),
        ("a: 1\n---\nb: 2", "cluster.yaml:2:1"),
        ("é: 1\nbé: '\x01'", "cluster.yaml:2:6"),
    ],
)
def test_what_is_not_yaml_is_told_where(text, where):
    with pytest.raises(UserError, match="not YAML") as caught:
        read(text)
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: &all [*all]", "cluster.yaml:5:16: aliases"),
        ("a: [&x [1, 1], &y [*x, *x], [*y, *y]]", "cluster.yaml:5:22: aliases"),
        ("nodes: !!python/object:os.system []", "cluster.yaml:5:10: tags"),
        ("rollback: {limitSeconds: !!int nine}", "cluster.yaml:5:28: tags"),
        ("nodes: " + "[" * 200_000, f"more than {MOST_LEVELS} levels"),
    ],
)
def test_what_could_grow_or_run_or_overflow_is_refused_before_it_is_built(text, expected):
    with pytest.raises(UserError) as caught:
        spec(text)
    assert expected in str(caught.value)


def test_a_key_that_is_no_word_is_told_where():
    assert "cluster.yaml:5:24: a key must be one word" in problems("nodes: [{name: n1, ? [a] : b}]")[0]


def test_an_empty_file_is_told_where_to_look():
    with pytest.raises(UserError, match="the file is empty"):
        read("# nothing but a comment\n")


def test_a_part_stands_where_one_would_look_for_it():
    document = parse("a:\n  b: text\n  c:\n  d: [1,\n    2]\n", "f")
    assert document.where(["a", "b"]) == "f:2:6"
    assert document.where(["a", "b"], key=True) == "f:2:3"
    assert document.where(["a", "c"]) == "f:3:3"
    assert document.where(["a", "d"]) == "f:4:3"
    assert document.where(["a", "d", 1]) == "f:5:5"
    assert document.where(["a", "nowhere", "at all"]) == "f:1:1"


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="abn1-:[]{},'\"#&*!|>%@ \n\t", max_size=40), st.booleans())
def test_no_text_makes_anything_but_an_error_of_the_user(text, below_a_good_head):
    with pytest.raises(UserError):
        read(HEAD + text if below_a_good_head else text)
