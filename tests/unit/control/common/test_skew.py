"""Rule 4, by example. What carries no version breaks nothing: unknown is not wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.skew import breaks_skew, image_version
from autarky.model.versions import Version


def image(version: str) -> str:
    return f"registry.example:5000/kube-thing:{version}"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("registry.k8s.io/kube-scheduler:v1.36.4", Version(1, 36, 4)),
        ("registry.example:5000/kube-scheduler:v1.36.4@sha256:0123", Version(1, 36, 4)),
        ("registry.example:5000/kube-scheduler", None),
        ("registry.example/kube-scheduler:latest", None),
        ("registry.example/kube-scheduler@sha256:0123", None),
        ("", None),
    ],
)
def test_the_version_is_the_tag(text, version):
    assert image_version(text) == version


@pytest.mark.parametrize(
    ("wanted", "running", "broken"),
    [
        ("v1.36.4", ["v1.36.4"], False),
        ("v1.36.9", ["v1.36.4"], False),
        ("v1.37.1", ["v1.36.4"], True),
        ("v1.37.1", ["v1.37.1", "v1.36.4"], True),
        ("v1.36.4", ["v1.37.1"], False),
        ("v1.35.4", ["v1.37.1"], True),
        ("v2.36.4", ["v1.36.4"], True),
        ("v1.37.1", [], False),
        ("latest", ["v1.36.4"], False),
        ("v1.37.1", ["latest"], False),
    ],
)
def test_level_3_is_never_newer_than_the_oldest_api_server_nor_two_minors_older(wanted, running, broken):
    found = breaks_skew("kube-scheduler", image(wanted), [image(one) for one in running], is_api_server=False)
    assert bool(found) == broken
    assert not found or "(rule 4)" in found


@pytest.mark.parametrize(
    ("wanted", "broken"), [("v1.37.1", False), ("v1.34.0", False), ("v1.33.9", True), ("v1.38.0", True)]
)
def test_kube_proxy_may_be_three_minors_older_and_not_newer(wanted, broken):
    assert bool(breaks_skew("kube-proxy", image(wanted), [image("v1.37.1")], is_api_server=False)) == broken


@pytest.mark.parametrize(
    ("wanted", "running", "broken"),
    [
        ("v1.37.1", ["v1.36.4"], False),
        ("v1.35.4", ["v1.36.4"], False),
        ("v1.38.0", ["v1.36.4"], True),
        ("v1.38.0", ["v1.37.1", "v1.36.4"], True),
        ("v9.9.9", ["v1.36.4"], True),
    ],
)
def test_api_servers_are_at_most_one_minor_apart(wanted, running, broken):
    found = breaks_skew("kube-apiserver", image(wanted), [image(one) for one in running], is_api_server=True)
    assert bool(found) == broken


@pytest.mark.parametrize(
    ("wanted", "level_3", "sentence"),
    [
        (
            "v1.36.4",
            {"kube-scheduler": "v1.37.1", "kube-controller-manager": "v1.36.4"},
            "is older than kube-scheduler v1.37.1: move kube-scheduler down first (rule 4)",
        ),
        (
            "v1.36.4",
            {"kube-scheduler": "v1.37.1", "kube-controller-manager": "v1.37.0"},
            "move kube-controller-manager and kube-scheduler down first (rule 4)",
        ),
        (
            "v1.38.0",
            {"kube-scheduler": "v1.36.4", "kube-controller-manager": "v1.37.1"},
            "is more than one minor newer than kube-scheduler v1.36.4: move kube-scheduler up first (rule 4)",
        ),
        ("v1.37.1", {"kube-scheduler": "v1.36.4"}, ""),
        ("v1.37.0", {"kube-scheduler": "v1.37.1"}, ""),
        ("latest", {"kube-scheduler": "v1.37.1"}, ""),
        ("v1.36.4", {"kube-scheduler": "latest"}, ""),
        ("v1.36.4", {"kube-scheduler": ""}, ""),
        ("v1.36.4", {}, ""),
    ],
)
def test_an_api_server_is_never_older_than_level_3_nor_two_minors_newer(wanted, level_3, sentence):
    images = {name: image(version) for name, version in level_3.items()}
    found = breaks_skew("kube-apiserver", image(wanted), [image("v1.37.1")], is_api_server=True, level_3=images)
    assert found.endswith(sentence)
    assert bool(found) == bool(sentence)


VERSIONS = st.builds("v{}.{}.{}".format, st.integers(1, 2), st.integers(30, 34), st.integers(0, 2))


@given(VERSIONS, VERSIONS)
def test_both_sides_judge_alike(api_server, level_3):
    """Else one of them would be let in by the one and be stuck by the other."""
    below = breaks_skew("kube-scheduler", image(level_3), [image(api_server)], is_api_server=False)
    above = breaks_skew(
        "kube-apiserver", image(api_server), (), is_api_server=True, level_3={"kube-scheduler": image(level_3)}
    )
    assert bool(below) == bool(above)
