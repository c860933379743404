"""What the scenarios of a copy of etcd share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness import Ended, TestCluster
from power import Writer

LONGEST_PAUSE = 180.0
"""Seconds; 10 are usual. Other work may keep the processors busy."""


def command(cluster: TestCluster, spec: Mapping[str, Any]) -> list[str]:
    cluster.spec = spec
    return ["etcd", "migrate", "-f", str(cluster.file), "--copy", "--yes", "-o", "plain"]


def said(ended: Ended) -> str:
    return ended.stdout + ended.stderr


def pause_of(ended: Ended) -> float:
    found = re.search(r"it was away for ([0-9.]+) s", said(ended))
    assert found is not None, said(ended)
    return float(found[1])


def lost(cluster: TestCluster, writer: Writer) -> set[str]:
    """In pages: there are thousands, more than are answered at once in a client's time."""
    listed = cluster.kubectl("get", "configmaps", "-n", "default", "-l", "written=yes", "-o", "name")
    return writer.acknowledged - {name.rpartition("/")[2] for name in listed.split()}
