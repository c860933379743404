"""Single API servers that are asked directly: only one of the cluster, and only while it is ready."""

from __future__ import annotations

import pytest

from autarky.control.control_nodes.observe import ask_address
from autarky.control.control_nodes.operator.api_servers import ApiServers
from contract.servers import Server, free_ports

pytestmark = pytest.mark.contract


def asking(server: Server, ca: str = "ca.crt") -> ApiServers:
    return ApiServers(lambda: server.pki.files()[ca])


async def test_a_real_api_server_that_is_ready_serves_without_credentials(api_server: Server) -> None:
    assert await asking(api_server).ask(api_server.url) is None


async def test_where_nothing_listens_it_is_said(api_server: Server) -> None:
    (nobody,) = free_ports(1)
    assert "refused" in str(await asking(api_server).ask(f"https://127.0.0.1:{nobody}"))


async def test_whoever_has_no_certificate_for_the_name_of_api_servers_does_not_count(
    api_server: Server, etcd_server: Server
) -> None:
    """Of another CA, or of the right one for another name, as kubelets' serving certificates are."""
    assert "not accepted" in str(await asking(api_server, "etcd/ca.crt").ask(api_server.url))
    assert "not accepted" in str(await asking(etcd_server, "etcd/ca.crt").ask(etcd_server.url))


async def test_a_node_serves_when_one_of_its_slots_does_and_else_each_is_named() -> None:
    async def only_the_standby(url: str) -> str | None:
        return None if url.endswith(":7444") else f"{url}: connection refused"

    async def nobody(url: str) -> str | None:
        return f"{url}: connection refused"

    assert await ask_address(only_the_standby, "192.0.2.11") is None
    said = str(await ask_address(nobody, "192.0.2.11"))
    assert "https://192.0.2.11:7443: connection refused; https://192.0.2.11:7444: connection refused" in said
