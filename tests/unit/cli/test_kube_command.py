"""The kubeconfig is turned to a server that answers: kubectl takes one, and any control node is as good. Whose kubectl
it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autarky import payload, places
from autarky.cli.kube import kubectl_for, turn_to_a_server_that_answers
from autarky.cli.main import main
from autarky.errors import UserError
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.patience import HEAD_START
from autarky.model.versions import Version
from autarky.payload import Binary, Release, default_version, known_versions
from autarky.phases import kept_file
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


# --- the payload's kubectl ---------------------------------------------------------------------------------------


THIS, OTHER, UNKNOWN = default_version(), known_versions()[-1], Version(1, 36, 99)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The versions whose kubectl is in the store."""
    found: set[Version] = set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def find(release: Release, name: str) -> Binary | None:
        path = Path(f"{release.kubernetes}/{name}")
        return Binary(name, path, "", 1) if release.kubernetes in found else None

    monkeypatch.setattr(payload, "find_binary", find)
    return found


def the_cluster_has(version: Version) -> None:
    file = {"spec": {"kubernetesVersion": str(version).removeprefix("v")}}
    kept_file.write(places.cluster_dir("demo"), json.dumps(file).encode())


@pytest.mark.parametrize(
    ("has", "there", "takes"),
    [
        (None, {THIS, OTHER}, THIS),
        (OTHER, {THIS, OTHER}, OTHER),
        (OTHER, {THIS}, THIS),
        (UNKNOWN, {THIS}, THIS),
    ],
)
def test_kubectl_is_of_the_clusters_version_where_it_can_be_had_else_of_the_default(stored, has, there, takes):
    stored |= there
    if has is not None:
        the_cluster_has(has)
    assert kubectl_for("demo") == Path(f"{takes}/kubectl")


@pytest.mark.parametrize(("has", "gets"), [(None, THIS), (OTHER, OTHER), (UNKNOWN, THIS)])
def test_where_there_is_none_the_user_is_told_which_can_be_had(stored, has, gets):
    if has is not None:
        the_cluster_has(has)
    with pytest.raises(UserError, match="kubectl is not in the store") as no:
        kubectl_for("demo")
    assert f"`autarky payload get {gets}`" in str(no.value.fix)


# --- its help ----------------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The programs that this process would have become: a path, and arguments."""
    found: list[tuple[Path, list[str]]] = []
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "execve", lambda program, argv, _environment: found.append((program, argv)))
    return found


ASKING_FOR_HELP = pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["get", "--help"], ["help", "get"]])


@ASKING_FOR_HELP
def test_without_a_cluster_its_help_is_ours(started, capsys, arguments):
    assert main(["kubectl", *arguments]) == 0
    heard = capsys.readouterr()
    assert heard.out.startswith("Usage: autarky kubectl ")
    assert "shows the help of kubectl" in " ".join(heard.out.split())
    assert (heard.err, started) == ("", [])


@ASKING_FOR_HELP
def test_with_a_cluster_whose_kubectl_is_not_in_the_store_it_is_ours_as_well(started, stored, capsys, arguments):
    the_cluster_has(THIS)
    kubeconfig(places.cluster_dir("demo") / "kubeconfig", NOBODY)
    assert main(["kubectl", "--cluster", "demo", *arguments]) == 0
    assert capsys.readouterr().out.startswith("Usage: autarky kubectl ")
    assert started == []


@ASKING_FOR_HELP
def test_with_a_cluster_it_is_that_of_kubectl(started, stored, capsys, arguments):
    stored.add(THIS)
    the_cluster_has(THIS)
    kubeconfig(places.cluster_dir("demo") / "kubeconfig", NOBODY)
    assert main(["kubectl", "--cluster", "demo", *arguments]) == 0
    assert started == [(Path(f"{THIS}/kubectl"), ["kubectl", *arguments])]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [[], ["get", "pods"], ["exec", "pod", "--", "ls", "--help"]])
def test_whoever_wants_anything_else_is_told_that_there_is_no_cluster(started, capsys, arguments):
    assert main(["kubectl", *arguments]) == 2
    heard = capsys.readouterr()
    assert "there is no cluster yet" in heard.err
    assert (heard.out, started) == ("", [])
