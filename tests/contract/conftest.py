"""Real servers, started once per run, when the first test needs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract.servers import Server, running_api_server, running_etcd


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="session")
def api_server(etcd_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_api_server(etcd_server, tmp_path_factory.mktemp("kube-apiserver")) as server:
        yield server
