"""Whether somebody on this host is connected to a member of etcd on another one: its API server, through the node's
load balancer, whose former workers keep the connections that they have.

The kernel's table of connections is read, which says of each whose socket it is by its inode: this process's own do not
count.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

_TABLE = Path("/proc/self/net/tcp")
_DESCRIPTORS = Path("/proc/self/fd")
_ESTABLISHED = "01"


def connected_to(address: str, port: int, table: Path = _TABLE, descriptors: Path = _DESCRIPTORS) -> bool:
    """By anybody but this process. OSError where the table cannot be read."""
    wanted, own = _in_hex(address, port), _own(descriptors)
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[2] == wanted and fields[3] == _ESTABLISHED and fields[9] not in own:
            return True
    return False


def _in_hex(address: str, port: int) -> str:
    """As the kernel prints it: the address in the byte order of the machine, the port in that of the network."""
    number = int.from_bytes(ipaddress.IPv4Address(address).packed, "little")
    return f"{number:08X}:{port:04X}"


def _own(descriptors: Path) -> set[str]:
    """The inodes of the sockets of this process."""
    found = set()
    for one in descriptors.iterdir():
        try:
            socket = re.fullmatch(r"socket:\[(\d+)\]", str(one.readlink()))
        except OSError:  # closed meanwhile
            continue
        if socket is not None:
            found.add(socket[1])
    return found
