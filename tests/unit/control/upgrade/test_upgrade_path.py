"""Which versions can be reached from which, with which kubelets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.upgrade.decide.path import refusal
from autarky.model.versions import Version

VERSIONS = st.builds(Version, st.just(1), st.integers(30, 40), st.integers(0, 9))


def v(text: str) -> Version:
    return Version.parse(text)


@pytest.mark.parametrize(
    ("runs", "wanted", "said"),
    [
        ("1.35.4", "1.37.1", "go to a 1.36 first, then to v1.37.1"),
        ("1.37.1", "1.35.4", "go back to a 1.36 first"),
        ("1.37.1", "2.0.0", "there is no way"),
        ("1.36.4", "1.37.1", None),
        ("1.36.3", "1.36.4", None),
        ("1.37.1", "1.36.4", None),
    ],
)
def test_minors_are_not_skipped_and_the_way_is_named(runs: str, wanted: str, said: str | None) -> None:
    found = refusal(v(runs), v(wanted), {})
    assert found is None if said is None else said in (found or "")


@given(VERSIONS, VERSIONS, st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), st.none() | VERSIONS))
def test_whatever_is_allowed_keeps_the_skew(
    runs: Version, wanted: Version, kubelets: dict[str, Version | None]
) -> None:
    if refusal(runs, wanted, kubelets) is None:
        assert abs(runs.minor - wanted.minor) <= 1
        for one in filter(None, kubelets.values()):
            assert wanted.minor <= runs.minor or wanted.minor - 3 <= one.minor, "only on the way up one becomes too old"
            assert wanted.minor == runs.minor or one.minor <= wanted.minor


@given(VERSIONS, st.integers(0, 9), st.dictionaries(st.sampled_from(["n1", "n2"]), VERSIONS), st.booleans())
def test_within_a_minor_no_kubelet_refuses_anything(
    runs: Version, patch: int, kubelets: dict[str, Version | None], follow: bool
) -> None:
    """None becomes too old by it, nor newer: and of a worker only its own word says which one it has."""
    assert refusal(runs, Version(runs.major, runs.minor, patch), kubelets, follow=follow) is None


@pytest.mark.parametrize(("follow", "how"), [(True, "wait until it has followed"), (False, "bring it up first")])
def test_of_those_that_are_too_old_all_are_named_with_both_ways_on(follow: bool, how: str) -> None:
    old = {name: v("1.33.0") for name in ("w3", "w1", "w2")} | {"w4": v("1.36.4")}
    found = refusal(v("1.36.4"), v("1.37.1"), old, follow=follow) or ""
    assert "the kubelet of w1, w2, w3 is v1.33.0" in found
    assert how in found
    assert "`autarky node remove w1`" in found
    assert refusal(v("1.37.1"), v("1.36.4"), {"w1": v("1.30.0")}, follow=follow) is None, "down, none becomes too old"


def test_a_kubelet_that_would_not_fit_is_named() -> None:
    kubelets = {"n1": v("1.37.1"), "n2": v("1.36.4"), "n3": None}
    assert "the kubelet of n1 is v1.37.1" in (refusal(v("1.37.1"), v("1.36.4"), kubelets) or "")
    assert "the kubelet of w1 is v1.33.0" in (refusal(v("1.36.4"), v("1.37.1"), {"w1": v("1.33.0")}) or "")
    old = {"w1": v("1.33.0")}
    assert "KubeletsCurrent" in (refusal(v("1.36.4"), v("1.37.1"), old, follow=True) or "")
    assert refusal(v("1.37.1"), v("1.36.4"), kubelets, follow=True) is None, "they go down before it"
    assert refusal(v("1.36.4"), v("1.37.1"), {"w1": v("1.34.0")}) is None, "three minors are what Kubernetes allows"
