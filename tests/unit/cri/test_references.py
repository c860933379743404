"""Names of images: as pods give them, and as containerd stores them."""

from __future__ import annotations

import pytest

from autarky.cri.references import stored_name

DIGEST = "sha256:" + 64 * "a"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("registry.k8s.io/kube-apiserver:v1.36.4", "registry.k8s.io/kube-apiserver:v1.36.4"),
        ("registry.k8s.io/kube-apiserver", "registry.k8s.io/kube-apiserver:latest"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("localhost/b:1", "localhost/b:1"),
        ("busybox", "docker.io/library/busybox:latest"),
        ("rancher/mirror:2", "docker.io/rancher/mirror:2"),
        (f"registry.k8s.io/pause:3.10@{DIGEST}", f"registry.k8s.io/pause@{DIGEST}"),
        (f"busybox@{DIGEST}", f"docker.io/library/busybox@{DIGEST}"),
        (DIGEST, DIGEST),
    ],
)
def test_a_name_is_stored_with_its_registry_and_its_tag_or_digest(given: str, stored: str) -> None:
    assert stored_name(given) == stored
    assert stored_name(stored) == stored
