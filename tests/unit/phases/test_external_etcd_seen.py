"""What `status` says of an etcd that others run: what a control node sees of it, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from autarky.errors import Unreachable
from autarky.model.cluster import ExternalEtcd
from autarky.phases.context import Context
from autarky.ports import Completed
from autarky.status.look import external_etcd_rows
from fakes.clusters import a_cluster
from fakes.host import FakeHost

ONE, TWO = "https://192.0.2.7:2379", "https://192.0.2.8:2379"


@dataclass
class Looking(FakeHost):
    """said: what etcdctl prints; None: it cannot be run there."""

    said: str | None = None
    gone: bool = False

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        assert "endpoint health -w json" in argv[2]
        assert argv[-1] == f"{ONE},{TWO}"
        if self.gone:
            raise Unreachable("n1: the connection broke")
        return Completed(64, b"", "") if self.said is None else Completed(1, self.said.encode(), "")


@pytest.fixture
def hosts() -> dict[str, Looking]:
    return {name: Looking(name) for name in ("n1", "n2")}


@pytest.fixture
def context(make_context: Callable[..., Context], hosts: dict[str, Looking]) -> Context:
    external = ExternalEtcd((ONE, TWO), "ca", "cert", "key")
    return make_context(replace(a_cluster(controls=2), external_etcd=external), hosts=hosts)


def healthy(*endpoints: str, **ill: str) -> str:
    return json.dumps(
        [{"endpoint": one, "health": True, "took": "2ms"} for one in endpoints]
        + [{"endpoint": one, "health": False, "error": error} for one, error in ill.items()]
    )


async def seen(context: Context) -> list[tuple[str, str]]:
    return [(row.health, row.detail) for row in await external_etcd_rows(context)]


async def test_each_endpoint_is_as_the_control_node_sees_it(context: Context, hosts: dict[str, Looking]) -> None:
    hosts["n1"].said = healthy(ONE, **{TWO: "context deadline exceeded"})
    assert await seen(context) == [("ready", ONE), ("not ready", f"{TWO}: context deadline exceeded")]


async def test_another_control_node_looks_where_the_first_cannot(context: Context, hosts: dict[str, Looking]) -> None:
    hosts["n1"].gone = True
    hosts["n2"].said = healthy(ONE, TWO)
    assert await seen(context) == [("ready", ONE), ("ready", TWO)]


@pytest.mark.parametrize("said", [None, "", "no json", '{"endpoint": 1}', "[]"])
async def test_what_nobody_could_see_is_unknown(context: Context, hosts: dict[str, Looking], said: str | None) -> None:
    for host in hosts.values():
        host.said = said
    assert [health for health, _ in await seen(context)] == ["unknown", "unknown"]


async def test_an_etcd_of_our_own_has_no_such_row(make_context: Callable[..., Context]) -> None:
    assert await external_etcd_rows(make_context()) == ()
