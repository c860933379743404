"""Rule 4, by example. What carries no version breaks nothing: unknown is not wrong."""

from __future__ import annotations

import pytest

from autarky.decide.skew import breaks_skew, image_version
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
