"""The flag with which a binary of a later minor behaves like the one before: what is added to a command line, and taken
away again."""

from __future__ import annotations

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from autarky.control.common.emulation import can_soak, given, means, minor_text, takes_the_flag, with_emulated
from autarky.model.components import API_SERVER, SCHEDULER
from autarky.model.versions import Version
from autarky.ports import Object


def a_template(component: str, **container: object) -> Object:
    return {"spec": {"containers": [{"name": "beside", "command": ["x"]}, {"name": component, **container}]}}


def line(template: Object) -> list[str]:
    container = template["spec"]["containers"][1]
    return [*container.get("command", []), *container.get("args", [])]


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["kube-scheduler", "--v=2"]},
        {"command": ["/go-runner", "--log-file=/var/log/x", "/usr/local/bin/kube-scheduler", "--v=2"]},
        {"command": ["kube-scheduler"], "args": ["--v=2"]},
        {"args": ["kube-scheduler", "--v", "2"]},
    ],
)
def test_what_is_added_is_taken_away_again_and_nothing_else(container: Object) -> None:
    template = a_template(SCHEDULER, **container)
    assert takes_the_flag(template, SCHEDULER)
    changed = with_emulated(template, SCHEDULER, "1.36")
    assert line(changed) == [*line(template), "--emulated-version=1.36"]
    assert given(changed, SCHEDULER) == ("1.36",)
    assert with_emulated(changed, SCHEDULER, "1.36") == changed
    assert with_emulated(changed, SCHEDULER, "") == template


def test_an_api_server_serves_the_later_versions_of_what_is_enabled_too() -> None:
    """Else controllers of the later minor wait for APIs that are not there; it refuses the flag when it is raised."""
    template = a_template(API_SERVER, command=["kube-apiserver", "--v=2"])
    changed = with_emulated(template, API_SERVER, "1.36")
    assert line(changed)[2:] == ["--emulated-version=1.36", "--emulation-forward-compatible=true"]
    assert with_emulated(changed, API_SERVER, "") == template


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--emulated-version=kube=1.36"], ("kube=1.36",)),
        (["--emulated-version", "1.35", "--v=2"], ("1.35",)),
        (["--v=2"], ()),
    ],
)
def test_every_way_to_write_it_is_seen_and_taken_away(words: list[str], values: tuple[str, ...]) -> None:
    template = a_template(SCHEDULER, command=["kube-scheduler", *words])
    assert given(template, SCHEDULER) == values
    assert given(with_emulated(template, SCHEDULER, ""), SCHEDULER) == ()
    assert line(with_emulated(template, SCHEDULER, ""))[0] == "kube-scheduler"


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"command": ["sh", "-c", "exec kube-scheduler --v=2"]},
        {"command": ["wrapper", "--program=/usr/local/bin/kube-scheduler"]},
    ],
)
def test_a_command_line_that_may_not_pass_it_on_is_known(container: Object) -> None:
    assert not takes_the_flag(a_template(SCHEDULER, **container), SCHEDULER)


def test_a_minor_is_named_in_two_ways_and_emulated_only_on_the_way_up() -> None:
    old, new = Version(1, 36, 4), Version(1, 37, 1)
    assert minor_text(old) == "1.36"
    assert means("1.36", "1.36")
    assert means("kube=1.36", "1.36")
    assert not means("1.36", "1.3")
    assert [can_soak(old, one) for one in (new, Version(1, 36, 5), Version(1, 35, 2))] == [True, False, False]


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("spec", "containers", "name")), inner),
)


@given_any(JSON)
def test_looking_at_what_is_malformed_finds_nothing(template: object) -> None:
    assert given(template, SCHEDULER) == ()
    assert not takes_the_flag(template, SCHEDULER)
