"""The node-local load balancer: HAProxy as a static pod on every node.

`127.0.0.1:6443` everywhere and `*:6443` on control nodes lead to the healthy API servers of all control
nodes, hosted or standby; on control nodes `127.0.0.1:2378` leads to the healthy etcd members. The etcd
port and its client certificate exist on control nodes only: on a worker they would be root over all
Secrets. A loopback port tells in plain HTTP which servers are held for healthy.
"""

from __future__ import annotations

from collections.abc import Iterable

from autarky import places
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.render import pods
from autarky.render.values import Inputs, Object

COMPONENT = "haproxy"
POD = "node-load-balancer"
DIRECTORY = f"{places.HOST_ROOT}/nllb"
CONFIG_PATH = f"{DIRECTORY}/haproxy.cfg"

_API_PORTS = (("hosted", ports.API_HOSTED), ("standby", ports.API_STANDBY), ("spare", ports.API_STANDBY_SPARE))
ALIVE_FAILURES = 3
"""A server that is not ready takes no new connections at once; one that is late with a check or two (all
cores busy) is still better than none."""
INTERVALS = "inter 1s fastinter 300ms downinter 300ms"
"""A check's TCP and TLS handshake must end within its interval. 300 ms are too short for a starved machine;
with 1 s a server that hangs or is cut off still leaves within 2 s. One that is down is looked at more often,
since somebody waits for it."""
ONLY_MEMBER_RETRIES = 15
"""One a second: less than the 20 s after which a gRPC client gives an attempt to connect up."""

# timeouts: a watch may be silent for long; HTTP/2 clients ping every 30 s, so an hour ends only dead sessions.
# maxconn: within the descriptor limit of a small host (two per session), so that no raised limit is needed.
_HEAD = """\
global
    maxconn 4000
    log stdout format raw daemon notice
defaults
    mode tcp
    log global
    option dontlognull
    timeout connect 2s
    timeout check 1s
    timeout client 1h
    timeout server 1h
    retries 3
    option redispatch 1
    option clitcpka
    option srvtcpka
"""


def config(inputs: Inputs, node: Node) -> str:
    """The whole configuration of one node's load balancer."""
    sections = [_HEAD, _api_frontend(node), _api_backend("ready", "/readyz", 1, inputs, node)]
    sections += [
        _api_backend("alive", "/livez?exclude=etcd", ALIVE_FAILURES, inputs, node),
        _last_resort(inputs, node),
        _health_frontend(inputs, node),
    ]
    if _serves_etcd(inputs, node):
        sections.append(_etcd(inputs, node))
    return "".join(sections)


def _api_frontend(node: Node) -> str:
    binds = [f"    bind 127.0.0.1:{ports.NLLB_API}\n"]
    if node.control_plane:
        binds = [f"    bind :{ports.NLLB_API}\n"]
    return (
        "frontend api\n"
        + "".join(binds)
        + "    use_backend ready if { nbsrv(ready) ge 1 }\n"
        + "    use_backend alive if { nbsrv(alive) ge 1 }\n"
        + "    default_backend accepting\n"
    )


def _api_backend(name: str, path: str, failures: int, inputs: Inputs, node: Node) -> str:
    """Own node first, then the others; on each the hosted server before the standby."""
    lines = [f"backend {name}\n    option httpchk GET {path}\n    http-check expect status 200\n"]
    lines.append(f"    default-server check check-ssl verify none {INTERVALS} fall {failures} rise 1\n")
    for server, address, backup in _api_servers(inputs, node):
        lines.append(f"    server {server} {address}{' backup' if backup else ''}\n")
    return "".join(lines)


def _last_resort(inputs: Inputs, node: Node) -> str:
    """No server passes its checks, which may be the fault of the checks: on a starved machine they come late.
    Whichever accepts is better than a refusal; those that refuse are passed over at once. Not checked, so
    always tried, one after the other (a bare TCP check would be an error in the API server's log each time).
    """
    servers = list(_api_servers(inputs, node))
    # Connections that come at the same time share the round, so one may meet the same server twice.
    lines = [f"backend accepting\n    balance roundrobin\n    retries {2 * len(servers)}\n"]
    lines += [f"    server {server} {address}\n" for server, address, _ in servers]
    return "".join(lines)


def _api_servers(inputs: Inputs, node: Node) -> Iterable[tuple[str, str, bool]]:
    others = [other for other in inputs.cluster.control_nodes if other.name != node.name]
    first = True
    for member in ([node] if node.control_plane else []) + others:
        address = "127.0.0.1" if member.name == node.name else member.known_address()
        for slot, port in _API_PORTS:
            # A worker spreads over all hosted servers; a control node prefers its own.
            backup = slot != "hosted" or (node.control_plane and not first)
            yield f"{member.name}-{slot}", f"{address}:{port}", backup
        first = False


def _health_frontend(inputs: Inputs, node: Node) -> str:
    """GET /SERVER answers 200 while that API server is in use for new connections, else 503."""
    lines = [f"frontend health\n    mode http\n    bind 127.0.0.1:{ports.NLLB_HEALTH}\n"]
    for server, _, _ in _api_servers(inputs, node):
        lines.append(f"    http-request return status 200 if {{ path /{server} }} {{ srv_is_up(ready/{server}) }}\n")
    lines.append("    http-request return status 200 if { path / }\n    http-request return status 503\n")
    return "".join(lines)


def _serves_etcd(inputs: Inputs, node: Node) -> bool:
    return node.control_plane and inputs.cluster.external_etcd is None


def _etcd(inputs: Inputs, node: Node) -> str:
    lines = [f"frontend etcd\n    bind 127.0.0.1:{ports.NLLB_ETCD}\n    default_backend etcd\nbackend etcd\n"]
    if len(inputs.cluster.control_nodes) == 1:
        # Nowhere else to go, so nothing to check and no session to cut. A refused connection is tried again every
        # second: whoever is turned away waits ever longer (gRPC: up to two minutes) before it comes again.
        lines.append(f"    retries {ONLY_MEMBER_RETRIES}\n")
    else:
        lines.append("    option httpchk GET /readyz\n    http-check expect status 200\n")
        lines.append(
            "    default-server check check-ssl verify required ca-file /etc/haproxy/etcd-ca.crt"
            f" crt /etc/haproxy/etcd-client.pem {INTERVALS} fall 2 rise 1 on-marked-down shutdown-sessions\n"
        )
    for member in inputs.cluster.control_nodes:
        own = member.name == node.name
        address = "127.0.0.1" if own else member.known_address()
        lines.append(f"    server {member.name} {address}:{ports.ETCD_CLIENT}{'' if own else ' backup'}\n")
    return "".join(lines)


def files(inputs: Inputs, node: Node) -> list[File]:
    """What the pod mounts. The directory is mounted, not the files, so that a rename is seen."""
    result = [File(CONFIG_PATH, config(inputs, node).encode(), 0o600)]
    if _serves_etcd(inputs, node):
        credentials = inputs.credentials
        pair = credentials["etcd/healthcheck-client.crt"] + credentials["etcd/healthcheck-client.key"]
        result.append(File(f"{DIRECTORY}/etcd-ca.crt", credentials["etcd/ca.crt"], 0o600))
        result.append(File(f"{DIRECTORY}/etcd-client.pem", pair, 0o600))
    return result


def pod(inputs: Inputs, node: Node) -> Object:
    container = pods.command_container(
        COMPONENT,
        inputs.image(COMPONENT),
        ["haproxy", "-W", "-db", "-f", "/etc/haproxy/haproxy.cfg"],
        resources=pods.requests("20m", "32Mi"),
        livenessProbe=pods.http_probe("/", ports.NLLB_HEALTH, period=10, failures=3),
        readinessProbe=pods.http_probe("/", ports.NLLB_HEALTH, period=2, failures=3),
        volumeMounts=[pods.mount("config", "/etc/haproxy")],
        securityContext=pods.restricted_container(user=0),
    )
    spec: Object = {"containers": [container], "volumes": [pods.host_volume("config", DIRECTORY, "Directory")]}
    return pods.generation(POD, node, spec)
