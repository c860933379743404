"""The network of a lab: a /24 of its own, a switch in a network namespace, one cable per host.

The bridge that joins the hosts lies in a namespace of its own (the switch), where no rule of this machine
meets what hosts send each other: Docker, for one, sets this machine's FORWARD policy to DROP, which also
hits bridged frames. One cable leads from the switch to this machine, which has the subnet's first address.

Contract: hosts reach each other and this machine; a rule drops what would be forwarded anywhere else, so
that a test can never send traffic to a stranger. Names and hardware addresses follow from the lab's key
and the host's name: they are the same at every power-on, and no other lab's.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autarky.errors import UserError
from autarky.lab.tools import tool

POOL = ipaddress.IPv4Network("10.201.0.0/16")
"""Apart from the default service (10.96.0.0/16) and pod networks (10.244.0.0/16)."""
FIRST_HOST = 11
MOST_HOSTS = 200
_BRIDGE = "br0"
_UPLINK_PORT = "uplink"


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
    """`lab` is the lab's key: its directory, so that labs of one name below two state directories differ."""

    lab: str
    subnet: ipaddress.IPv4Network

    @property
    def switch(self) -> str:
        return f"autarky-{short_hash(self.lab)}"

    @property
    def uplink(self) -> str:
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

    def hardware_address(self, host: str) -> str:
        """Locally administered. It stays at every power-on: peers keep it in their ARP tables for a while."""
        digits = hashlib.sha256(f"{self.lab}/{host}".encode()).hexdigest()
        return ":".join(["02", *(digits[i : i + 2] for i in range(0, 10, 2))])

    # --- the switch ---

    async def ensure(self) -> bool:
        """Ensure the switch, the cable to it and the rule that lets nothing out; true if they were recreated.

        Running hosts must be plugged in again then. UserError if this machine has another route to the
        subnet by now.
        """
        await tool("nft", "-f", "-", stdin=self._rules().encode())
        if await self._complete():
            return False
        await self._remove_switch()
        if any(self.subnet.overlaps(other) for other in await machine_networks()):
            raise UserError(
                f"the lab's network {self.subnet} is used by something else on this machine now",
                fix="take the lab down and make it again, or remove the other network (ip route)",
            )
        await tool("ip", "netns", "add", self.switch)
        await _batch(
            f"link add {_BRIDGE} type bridge",
            f"link set {_BRIDGE} up",
            "link set lo up",
            netns=self.switch,
        )
        await _batch(
            f"link add {self.uplink} type veth peer name {_UPLINK_PORT} netns {self.switch}",
            f"address add {self.gateway}/24 dev {self.uplink}",
            f"link set {self.uplink} up",
        )
        await _batch(f"link set {_UPLINK_PORT} master {_BRIDGE} up", netns=self.switch)
        return True

    async def _complete(self) -> bool:
        """Whether the last thing that `ensure` makes exists, and so all of it."""
        said = await tool("ip", "-n", self.switch, "-json", "link", "show", "master", _BRIDGE, check=False)
        ports = {link["ifname"]: link for link in json.loads(said or "[]")}
        return "UP" in ports.get(_UPLINK_PORT, {}).get("flags", [])

    def _rules(self) -> str:
        return f"""\
add table inet {self.table}
delete table inet {self.table}
table inet {self.table} {{
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{self.uplink}" drop
    oifname "{self.uplink}" drop
  }}
}}
"""

    async def remove(self) -> None:
        await self._remove_switch()
        await tool("nft", "delete", "table", "inet", self.table, check=False)

    async def _remove_switch(self) -> None:
        await tool("ip", "link", "delete", self.uplink, check=False)
        await tool("ip", "netns", "delete", self.switch, check=False)

    # --- hosts ---

    async def connect(self, host: str, index: int) -> None:
        """Recreate the host's network namespace, and plug it in."""
        await self.disconnect(host)
        await tool("ip", "netns", "add", self.netns(host))
        await _batch("link set lo up", netns=self.netns(host))
        await self.plug(host, index)

    async def plug(self, host: str, index: int) -> None:
        """A cable from the host to the switch, with the host's addresses."""
        netns, outer = self.netns(host), self.outer_interface(host)
        await _batch(
            f"link add {outer} type veth peer name eth0 address {self.hardware_address(host)} netns {netns}",
            f"link set {outer} master {_BRIDGE} up",
            netns=self.switch,
        )
        await _batch(
            f"address add {self.address(index)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {self.gateway}",
            netns=netns,
        )

    async def unplug(self, host: str) -> None:
        """Link down, as when the power goes: the peers get no FIN and no RST."""
        await tool("ip", "-n", self.switch, "link", "set", self.outer_interface(host), "down", check=False)

    async def disconnect(self, host: str) -> None:
        await tool("ip", "-n", self.switch, "link", "delete", self.outer_interface(host), check=False)
        await tool("ip", "netns", "delete", self.netns(host), check=False)


async def _batch(*lines: str, netns: str | None = None) -> None:
    """Several `ip` commands in one process; CommandFailed at the first that fails."""
    where = () if netns is None else ("-n", netns)
    await tool("ip", *where, "-batch", "-", stdin=("\n".join(lines) + "\n").encode())


async def machine_networks() -> Sequence[ipaddress.IPv4Network]:
    """The networks that this machine's routes lead to, but for the default route."""
    networks = []
    for line in (await tool("ip", "-4", "route", "show")).splitlines():
        destination = line.split()[0]
        if destination[0].isdigit():
            networks.append(ipaddress.IPv4Network(destination, strict=False))
    return networks
