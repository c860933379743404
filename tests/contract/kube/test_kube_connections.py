"""What the real client does with a real server behind a bad network, and with more than one server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from autarky.errors import ApiError, Unreachable, UserError
from autarky.kube import KubeClient, Reflector, client, paging
from autarky.kube.resources import BUILT_IN, Resource
from autarky.render.kubeconfig import bootstrap_kubeconfig
from contract.kube.objects import config_map
from contract.servers import Server, free_ports
from fakes.clock import LoopClock
from fakes.gate import Gate

pytestmark = pytest.mark.contract


@pytest.fixture
async def gate(api_server: Server) -> AsyncIterator[Gate]:
    async with Gate(urlsplit(api_server.url).port or 0) as gate:
        yield gate


@pytest.fixture
async def kube(api_server: Server, gate: Gate) -> AsyncIterator[KubeClient]:
    """A client that reaches the API server through the gate only."""
    kube = api_server.kube(gate.url)
    yield kube
    await kube.close()


@pytest.fixture
async def namespace(api_server: Server) -> str:
    name = f"test-{uuid.uuid4().hex[:8]}"
    kube = api_server.kube()
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await kube.close()
    return name


# --- which server ----------------------------------------------------------------------------------------


async def test_a_server_that_does_not_listen_is_unreachable(api_server: Server) -> None:
    (port,) = free_ports(1)
    kube = api_server.kube(f"https://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match=rf"127.0.0.1:{port}: Connection refused"):
        await kube.list("v1", "Node")
    assert "Connection refused" in str(await kube.healthy())
    await kube.close()


async def test_the_second_server_takes_over_writes_too(api_server: Server, gate: Gate, namespace: str) -> None:
    kube = api_server.kube(gate.url, api_server.url)
    await kube.create(config_map(namespace, "a"))
    await gate.shut()
    await kube.create(config_map(namespace, "b"))
    await kube.close()


async def test_the_server_that_answered_last_is_asked_first(api_server: Server, gate: Gate) -> None:
    (dead,) = free_ports(1)
    kube = api_server.kube(f"https://127.0.0.1:{dead}", gate.url)
    for _ in range(3):
        await kube.list("v1", "Node")
    assert gate.passed == 1
    await kube.close()


async def test_a_server_with_a_foreign_certificate_is_not_talked_to(api_server: Server) -> None:
    pair = api_server.pki.read("super-admin")
    kube = KubeClient(
        [api_server.url],
        ca_pem=api_server.pki.files()["etcd/ca.crt"],
        client_cert_pem=pair.certificate,
        client_key_pem=pair.key,
    )
    with pytest.raises(Unreachable, match="certificate is not accepted"):
        await kube.list("v1", "Node")
    await kube.close()


async def test_a_server_may_be_known_by_another_name_than_its_url(api_server: Server) -> None:
    port = urlsplit(api_server.url).port
    pair, ca = api_server.pki.read("super-admin"), api_server.pki.files()["ca.crt"]
    for name, seen in (("localhost", None), ("example.org", "certificate is not accepted")):
        kube = KubeClient(
            [f"https://127.0.0.1:{port}"],
            ca_pem=ca,
            client_cert_pem=pair.certificate,
            client_key_pem=pair.key,
            server_name=name,
        )
        assert (seen or "None") in str(await kube.healthy())
        await kube.close()


async def test_what_one_may_not_do_is_an_api_error(api_server: Server) -> None:
    kube = api_server.kube(identity="nobody")
    with pytest.raises(ApiError, match="forbidden") as caught:
        await kube.list("v1", "Secret")
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    await kube.close()


async def test_an_unknown_token_is_an_api_error(api_server: Server, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(bootstrap_kubeconfig(api_server.pki.files()["ca.crt"], "test", "abcdef.0123456789abcdef"))
    path.write_text(path.read_text().replace("https://127.0.0.1:6443", api_server.url))
    kube = KubeClient.from_kubeconfig(path)
    with pytest.raises(ApiError) as caught:
        await kube.list("v1", "Node")
    assert caught.value.status == 401
    await kube.close()


# --- broken connections ----------------------------------------------------------------------------------


async def test_reading_survives_the_loss_of_kept_connections(kube: KubeClient, gate: Gate) -> None:
    await kube.list("v1", "Node")
    gate.cut()
    assert await kube.list("v1", "Node") == []


async def test_a_write_that_was_not_answered_is_not_repeated(kube: KubeClient, gate: Gate, namespace: str) -> None:
    await kube.list("v1", "Node")
    gate.freeze()
    writing = asyncio.create_task(kube.create(config_map(namespace, "a")))
    await gate.held.wait()
    gate.cut()
    with pytest.raises(Unreachable, match="may have been carried out"):
        await writing


async def test_a_server_that_falls_silent_is_unreachable_in_time(kube: KubeClient, gate: Gate) -> None:
    await kube.list("v1", "Node")
    gate.freeze()
    assert "not answered within 0.2 s" in str(await kube.healthy(timeout=0.2))


async def test_a_watch_whose_connection_is_cut_is_unreachable(kube: KubeClient, gate: Gate, namespace: str) -> None:
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    watch = kube.watch("v1", "ConfigMap", namespace=namespace, resource_version=listing.resource_version)
    async with aclosing(watch) as stream:
        assert (await anext(stream)).type == "BOOKMARK"
        gate.cut()
        with pytest.raises(Unreachable, match="broke off"):
            await anext(stream)


async def test_a_watch_in_which_nothing_is_heard_is_unreachable(
    kube: KubeClient, gate: Gate, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WATCH_IDLE", 1.0)
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    watch = kube.watch("v1", "ConfigMap", namespace=namespace, resource_version=listing.resource_version)
    async with aclosing(watch) as stream:
        assert (await anext(stream)).type == "BOOKMARK"
        gate.freeze()
        with pytest.raises(Unreachable, match="nothing was heard"):
            await anext(stream)


async def test_a_reflector_misses_nothing_over_cuts_and_outages(
    api_server: Server, kube: KubeClient, gate: Gate, namespace: str
) -> None:
    changed = asyncio.Event()
    reflector = Reflector(kube, LoopClock(), "v1", "ConfigMap", namespace=namespace, on_change=changed.set)
    running = asyncio.create_task(reflector.run())
    direct = api_server.kube()

    async def has(*names: str) -> None:
        async with asyncio.timeout(60):
            while {key[1] for key in reflector.items} != set(names):
                changed.clear()
                await changed.wait()

    await direct.create(config_map(namespace, "a"))
    await has("a")
    gate.cut()
    await direct.create(config_map(namespace, "b"))
    await has("a", "b")
    await gate.shut()
    await direct.create(config_map(namespace, "c"))
    await direct.delete("v1", "ConfigMap", "a", namespace)
    for _ in range(100):
        if "Connection refused" in str(reflector.error):
            break
        await asyncio.sleep(0.05)
    assert "Connection refused" in str(reflector.error)
    await gate.open()
    await has("b", "c")
    assert reflector.error is None
    running.cancel()
    await direct.close()


# --- lists and kinds -------------------------------------------------------------------------------------


async def test_a_long_list_comes_in_pages_and_is_complete(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "FIRST", 3)
    monkeypatch.setattr(paging, "MOST", 3)
    wanted = [f"a{number}" for number in range(8)]
    for name in wanted:
        await kube.create(config_map(namespace, name))
    found = await kube.list("v1", "ConfigMap", namespace=namespace)
    assert [obj["metadata"]["name"] for obj in found] == wanted


async def test_line_separators_in_strings_do_not_break_events(kube: KubeClient, namespace: str) -> None:
    odd = "next\x85line, unit\x1fseparator, line\u2028separator"
    listing = await kube.list_at("v1", "ConfigMap", namespace=namespace)
    await kube.create(config_map(namespace, "a", odd=odd))
    watch = kube.watch("v1", "ConfigMap", namespace=namespace, resource_version=listing.resource_version)
    async with aclosing(watch) as stream:
        events = [await anext(stream), await anext(stream)]
    assert events[1].object["data"] == {"odd": odd}


async def test_the_table_of_built_in_kinds_agrees_with_a_real_server(kube: KubeClient) -> None:
    groups = {api_version for api_version, _ in BUILT_IN}
    served: dict[tuple[str, str], Resource] = {}
    for api_version in groups:
        await kube._resources._discover(api_version)
        served |= {key: resource for key, resource in kube._resources._discovered.items() if key in BUILT_IN}
    assert served == BUILT_IN


async def test_parallel_requests_share_few_connections(kube: KubeClient, gate: Gate) -> None:
    await asyncio.gather(*(kube.list("v1", "Node") for _ in range(100)))
    assert gate.passed <= 16


async def test_a_client_certificate_without_its_key_is_refused_by_name(api_server: Server) -> None:
    pki = api_server.pki
    with pytest.raises(UserError, match="client certificate and its key cannot be used"):
        KubeClient(
            [api_server.url],
            ca_pem=pki.files()["ca.crt"],
            client_cert_pem=pki.read("nobody").certificate,
            client_key_pem=pki.read("super-admin").key,
        )
