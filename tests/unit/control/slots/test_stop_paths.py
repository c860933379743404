"""Who may ask for the standby: the kubelet, by a path that stands in the template of the API server only."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from autarky.clock import SystemClock
from autarky.control.api_server.manifests import BEFORE_STOP, before_stop_path, hosted
from autarky.control.base.health import Answering
from autarky.control.slots.node import stop_paths
from autarky.control.slots.node.stop_paths import StopPaths
from autarky.render.values import Credentials, Inputs, Object
from contract.servers import free_ports
from fakes.clusters import a_cluster, inputs_of
from unit.render.rendered import EVERY_LEVEL

OLD = f"{BEFORE_STOP}kube-apiserver"
"""Of every template of earlier releases."""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "stop-paths.json"
    monkeypatch.setattr(stop_paths, "FILE", found)
    return found


def pod(path: str | None = None) -> Object:
    """The API server's pod as it is rendered, or with another path."""
    [template] = [obj["spec"]["template"] for obj in hosted(inputs_of(a_cluster())) if obj["kind"] == "DaemonSet"]
    if path is not None:
        template["spec"]["containers"][0]["lifecycle"]["preStop"]["httpGet"]["path"] = path
    return {"metadata": {"name": "kube-apiserver-x"}, **template}


def test_the_path_is_made_of_a_key_that_stays_and_tells_nothing_of_it():
    [inputs, *_] = EVERY_LEVEL
    path = before_stop_path(inputs)
    assert path.startswith(BEFORE_STOP)
    assert len(path) == len(BEFORE_STOP) + 32
    files = dict(inputs.credentials.files)
    renewed = Credentials({**files, "apiserver.key": b"another", "apiserver.crt": b"another"})
    assert before_stop_path(Inputs(inputs.cluster, inputs.images, renewed, inputs.facts)) == path
    other = Credentials({**files, "sa.key": b"another"})
    assert before_stop_path(Inputs(inputs.cluster, inputs.images, other, inputs.facts)) != path


def test_what_the_templates_of_the_nodes_pods_say_is_answered_and_nothing_else():
    paths = StopPaths()
    assert not paths.include(OLD)
    paths.remember([pod()])
    assert paths.include(before_stop_path(inputs_of(a_cluster())))
    for guess in (OLD, BEFORE_STOP, f"{BEFORE_STOP}{'0' * 32}", "", "/", "/before-stop/\xff"):
        assert not paths.include(guess), guess


def test_a_pod_of_an_earlier_release_is_answered_until_it_is_gone():
    paths = StopPaths()
    paths.remember([pod(OLD), pod()])
    assert paths.include(OLD)
    paths.remember([pod()])
    assert not paths.include(OLD)
    paths.remember([])
    assert paths.include(before_stop_path(inputs_of(a_cluster())))


def test_an_agent_that_starts_without_an_api_knows_what_the_last_one_knew(file: Path):
    StopPaths().remember([pod(OLD)])
    assert StopPaths().include(OLD)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{")
    assert not StopPaths().include(OLD)


def test_a_disk_that_takes_nothing_leaves_the_agent_with_what_it_has_heard(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stop_paths, "write_private", full)
    paths = StopPaths()
    paths.remember([pod(OLD)])
    assert paths.include(OLD)


async def test_a_guess_is_answered_like_any_other_path_and_calls_nobody():
    (port,) = free_ports(1)
    called: list[bool] = []
    paths = StopPaths()
    paths.remember([pod()])
    await Answering(port, SystemClock(), hook_of=paths.hook_of(lambda: called.append(True))).run()

    def ask(path: str) -> bytes:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:  # loopback
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as refused:
            return refused.read()

    assert await asyncio.to_thread(ask, OLD) != b"ok\n"
    assert called == []
    right = before_stop_path(inputs_of(a_cluster()))
    assert await asyncio.to_thread(ask, right) == b"ok\n"
    assert called == [True]
