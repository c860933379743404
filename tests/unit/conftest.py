"""What all unit tests share: none writes where a node has its files.

Contract: a test that makes one of these directories, or a file or directory right below one, fails. What is there
before it, as on a machine that is a node, is nobody's fault, and what is changed there or read is not seen: where
these directories are missing, nothing can be. Two of pytest's processes may blame one another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autarky import places

OF_A_NODE = tuple(
    Path(path)
    for path in (
        *(places.KUBERNETES, places.PKI, places.MANIFESTS, places.HOST_ROOT, places.HOST_STATE, places.RUN),
        *(places.HOST_LOCK, places.ETCD_DATA, "/var/lib/kubelet", "/var/lib/kubelet/pki"),
    )
)


def _there() -> set[Path]:
    found = {path for path in OF_A_NODE if path.exists()}
    return found.union(*(path.iterdir() for path in found if path.is_dir()))


@pytest.fixture(autouse=True)
def _writes_nothing_of_a_node() -> Iterator[None]:
    before = _there()
    yield
    new = sorted(map(str, _there() - before))
    assert not new, f"a test has written to this machine itself: {', '.join(new)}"


@pytest.fixture
def as_root() -> None:
    """For what only root can do. No test skips itself."""
    if os.geteuid() != 0:
        pytest.fail("only root can run it: run the tests as root")
