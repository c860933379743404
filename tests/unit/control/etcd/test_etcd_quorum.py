"""etcd is up when its quorum serves, wherever its members are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.etcd.node.quorum import EtcdQuorum, Way, way_on_disk
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots import manifests as standby
from autarky.control.slots.node import ports as ports_seen
from autarky.model.cluster import Cluster, ExternalEtcd, Level
from autarky.store import write_private
from fakes.clusters import a_cluster, inputs_of
from fakes.web import HANG, Web, answer, certificates

OK, LOST = answer(200, '{"health":"true"}'), answer(503, '{"health":"false","reason":"RAFT NO LEADER"}')


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(places, "STANDBY", str(tmp_path / "standby"))
    monkeypatch.setattr(nllb, "ETCD_CLIENT_PATH", str(tmp_path / "nllb/etcd-client.pem"))
    monkeypatch.setattr(nllb, "ETCD_CA_PATH", str(tmp_path / "nllb/etcd-ca.crt"))
    monkeypatch.setattr(ports_seen, "ANSWER_SECONDS", 0.5)
    return tmp_path


def put_credentials(disk: Path) -> None:
    found = certificates()
    write_private(disk / "nllb/etcd-ca.crt", found.ca)
    write_private(disk / "nllb/etcd-client.pem", found.client.certificate + found.client.key)


def asking(*webs: Web) -> EtcdQuorum:
    """At these servers, with the credentials on the disk."""

    def find() -> Way | None:
        way = way_on_disk()
        return None if way is None else replace(way, servers=tuple(("127.0.0.1", web.port) for web in webs))

    return EtcdQuorum(lambda *_: None, find)


def put_standby(disk: Path, cluster: Cluster) -> Path:
    """As on a control node; returns the directory of the files."""
    found = standby.revision(inputs_of(cluster), "kube-apiserver")
    for file in found.files:
        write_private(Path(file.path), file.content)
    directory = disk / "standby/kube-apiserver"
    (directory / "current").symlink_to(found.name)
    return directory / found.name


def test_a_node_with_and_without_a_member_asks_through_its_load_balancer(disk: Path) -> None:
    put_credentials(disk)
    way = way_on_disk()
    assert way is not None
    assert way.servers == (("127.0.0.1", 2378),)
    assert way.key == disk / "nllb/etcd-client.pem"


def test_an_etcd_that_others_run_is_asked_at_its_endpoints_as_the_api_servers_standby_names_them(
    disk: Path,
) -> None:
    urls = ("https://etcd1.example.org:2379", "https://10.9.8.7:12379")
    external = ExternalEtcd(urls, "ca.crt", "client.crt", "client.key")
    files = put_standby(disk, replace(a_cluster(), external_etcd=external, self_hosted=Level.API_SERVER))
    way = way_on_disk()
    assert way is not None
    assert way.servers == (("etcd1.example.org", 2379), ("10.9.8.7", 12379))
    assert way.ca.parent.parent in (files, files.parent / "current")
    assert way.ca.name == "etcd-ca.crt"
    assert (way.certificate.name, way.key.name) == ("etcd-client.crt", "etcd-client.key")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"spec": {"containers": [7]}}', json.dumps({"spec": {}})])
def test_a_standby_that_cannot_be_understood_says_nothing(disk: Path, content: str) -> None:
    write_private(disk / "standby/kube-apiserver/current/pod.json", content.encode())
    assert way_on_disk() is None


async def test_where_nobody_knows_how_to_ask_etcd_is_taken_for_up_and_that_is_told(disk: Path) -> None:
    said = []
    quorum = EtcdQuorum(lambda _, sentence: said.append(sentence))
    assert await quorum.is_up()
    assert said == ["this node has no credentials for etcd: etcd is assumed to be up"]


async def test_the_quorum_is_asked_over_one_connection(disk: Path) -> None:
    put_credentials(disk)
    async with Web([OK, LOST, OK], demand_client_certificate=True) as web:
        quorum = asking(web)
        assert [await quorum.is_up() for _ in range(3)] == [True, False, True]
        await quorum.close()
    assert set(web.lines) == {"GET /health?exclude=NOSPACE"}
    assert web.connections == 1


async def test_no_answer_in_time_is_not_up(disk: Path) -> None:
    put_credentials(disk)
    async with Web([HANG]) as web:
        quorum = asking(web)
        assert not await quorum.is_up()
        await quorum.close()


async def test_one_endpoint_of_several_that_has_the_quorum_is_enough_and_is_asked_first_from_then_on(
    disk: Path,
) -> None:
    put_credentials(disk)
    async with Web([LOST]) as lost, Web([OK]) as well:
        quorum = asking(lost, well)
        assert [await quorum.is_up() for _ in range(3)] == [True] * 3
        await quorum.close()
    assert (len(lost.lines), len(well.lines)) == (1, 3)


async def test_renewed_credentials_are_taken_up(disk: Path) -> None:
    put_credentials(disk)
    async with Web([OK]) as web:
        quorum = asking(web)
        assert await quorum.is_up()
        (disk / "nllb/etcd-client.pem").unlink()
        put_credentials(disk)
        assert await quorum.is_up()
        await quorum.close()
    assert web.connections == 2


async def test_credentials_that_cannot_be_used_are_told_and_not_up(disk: Path) -> None:
    put_credentials(disk)
    write_private(disk / "nllb/etcd-client.pem", b"nonsense")
    said = []
    quorum = EtcdQuorum(lambda _, sentence: said.append(sentence))
    assert not await quorum.is_up()
    assert "cannot be used" in said[0]
