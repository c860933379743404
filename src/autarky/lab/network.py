"""A lab's network: one bridge and one /24 of its own, and no way out.

Hosts reach each other and this machine; a rule drops what would be forwarded anywhere else, so that a
test can never send traffic to a stranger.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autarky.errors import UserError
from autarky.lab.tools import tool

POOL = ipaddress.IPv4Network("10.201.0.0/16")
"""Apart from the default service (10.96.0.0/16) and pod networks (10.244.0.0/16)."""
FIRST_HOST = 11


def short_hash(*parts: str) -> str:
    """Eight hex digits: interface names may have 15 characters, lab and host names may be longer."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]


def free_subnet(taken: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first /24 of the pool that overlaps none of the taken networks; UserError when all are taken."""
    used = list(taken)
    for subnet in POOL.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    raise UserError(
        f"all networks in {POOL} are taken", fix="take labs down: `autarky lab list`, `autarky lab down NAME`"
    )


@dataclass(frozen=True, slots=True)
class LabNetwork:
    lab: str
    subnet: ipaddress.IPv4Network

    @property
    def bridge(self) -> str:
        return f"aut{short_hash(self.lab)}"

    @property
    def table(self) -> str:
        return f"autarky_lab_{short_hash(self.lab)}"

    @property
    def gateway(self) -> str:
        return str(self.subnet[1])

    @property
    def dead_name_server(self) -> str:
        """An address of the lab's own network where nobody answers. Not a loopback one: CoreDNS would see
        that as a forwarding loop."""
        return str(self.subnet[254])

    def address(self, index: int) -> str:
        return str(self.subnet[FIRST_HOST + index])

    def netns(self, host: str) -> str:
        return f"autarky-{short_hash(self.lab)}-{host}"

    def outer_interface(self, host: str) -> str:
        return f"v{short_hash(self.lab, host)}"

    async def ensure_bridge(self) -> None:
        """Bridge, address and the rule that lets nothing out; each only where it is missing."""
        if not await tool("ip", "-br", "link", "show", "dev", self.bridge, check=False):
            await tool("ip", "link", "add", self.bridge, "type", "bridge")
        await tool("ip", "address", "replace", f"{self.gateway}/24", "dev", self.bridge)
        await tool("ip", "link", "set", self.bridge, "up")
        await tool("nft", "-f", "-", stdin=self._rules().encode())

    def _rules(self) -> str:
        inside, outside = f'iifname "{self.bridge}"', f'oifname "{self.bridge}"'
        return f"""\
add table inet {self.table}
delete table inet {self.table}
table inet {self.table} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    {inside} {outside} accept
    {inside} drop
    {outside} drop
  }}
}}
"""

    async def connect(self, host: str, index: int) -> None:
        """The host's network namespace with one interface, made anew."""
        await self.disconnect(host)
        netns, outer = self.netns(host), self.outer_interface(host)
        await tool("ip", "netns", "add", netns)
        await tool("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", netns)
        await tool("ip", "link", "set", outer, "master", self.bridge, "up")
        await tool("ip", "-n", netns, "link", "set", "lo", "up")
        await tool("ip", "-n", netns, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        await tool("ip", "-n", netns, "link", "set", "eth0", "up")
        await tool("ip", "-n", netns, "route", "add", "default", "via", self.gateway)

    async def unplug(self, host: str) -> None:
        """Link down, as when the power goes: the peers get no FIN and no RST."""
        await tool("ip", "link", "set", self.outer_interface(host), "down", check=False)

    async def disconnect(self, host: str) -> None:
        await tool("ip", "link", "delete", self.outer_interface(host), check=False)
        await tool("ip", "netns", "delete", self.netns(host), check=False)

    async def remove(self) -> None:
        await tool("ip", "link", "delete", self.bridge, check=False)
        await tool("nft", "delete", "table", "inet", self.table, check=False)


async def machine_networks() -> Sequence[ipaddress.IPv4Network]:
    """The networks that this machine's routes lead to, but for the default route."""
    networks = []
    for line in (await tool("ip", "-4", "route", "show")).splitlines():
        destination = line.split()[0]
        if destination[0].isdigit():
            networks.append(ipaddress.IPv4Network(destination, strict=False))
    return networks
