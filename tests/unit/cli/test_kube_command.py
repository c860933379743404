"""The kubeconfig is turned to a server that answers: kubectl takes one, and any control node is as good."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.cli.kube import turn_to_a_server_that_answers
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.patience import HEAD_START
from autarky.render.kubeconfig import EXTENSION, client_kubeconfig
from autarky.render.values import Credentials, Inputs
from fakes.clusters import a_cluster
from fakes.slow import SlowServer
from fakes.web import HANG, Web, answer, certificates

NOBODY = "https://127.0.0.1:1"


def kubeconfig(path: Path, server: str, *others: str) -> Path:
    found = certificates()
    files = {"ca.crt": found.ca, "admin.crt": found.client.certificate, "admin.key": found.client.key}
    inputs = Inputs(a_cluster(), {}, Credentials(files))
    content = client_kubeconfig(inputs, "admin", "admin", server=server, servers=[server, *others])
    path.write_bytes(content)
    return path


async def test_a_server_that_answers_is_kept(tmp_path):
    async with Web([answer(200, "ok")]) as first, Web([answer(200, "ok")]) as second:
        path = kubeconfig(tmp_path / "kubeconfig", first.url, second.url)
        before = path.read_bytes()
        await turn_to_a_server_that_answers(path)
        assert path.read_bytes() == before
        assert second.heard == []


@pytest.mark.parametrize("script", [[answer(500, "[-]etcd failed")], [HANG]])
async def test_a_server_that_is_not_ready_or_hangs_gives_way_to_one_that_answers(tmp_path, script):
    async with Web(script) as first, Web([answer(200, "ok")]) as second:
        path = kubeconfig(tmp_path / "kubeconfig", first.url, NOBODY, second.url)
        await turn_to_a_server_that_answers(path)
        found = read_kubeconfig(path)
        assert found.server == second.url
        assert set(found.others) == {first.url, NOBODY}


async def test_a_server_that_is_slow_is_taken_where_nobody_else_answers(tmp_path):
    """As one that is held by its load balancer, or on a slow machine."""
    server = SlowServer(handshake=HEAD_START + 0.5)
    async with server.running():
        path = kubeconfig(tmp_path / "kubeconfig", NOBODY, f"https://127.0.0.1:{server.port}")
        await turn_to_a_server_that_answers(path)
        assert read_kubeconfig(path).server == f"https://127.0.0.1:{server.port}"


async def test_when_nobody_answers_the_file_stays_as_it_is(tmp_path):
    path = kubeconfig(tmp_path / "kubeconfig", NOBODY, "https://127.0.0.1:2")
    before = path.read_bytes()
    await turn_to_a_server_that_answers(path)
    assert path.read_bytes() == before


async def test_a_kubeconfig_with_one_server_is_not_looked_at(tmp_path):
    path = kubeconfig(tmp_path / "kubeconfig", NOBODY)
    assert EXTENSION not in path.read_text()
    before = path.read_bytes()
    await turn_to_a_server_that_answers(path)
    assert path.read_bytes() == before
