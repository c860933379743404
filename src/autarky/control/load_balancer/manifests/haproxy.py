"""The node-local load balancer: HAProxy as a static pod on every node.

`127.0.0.1:6443` everywhere and `*:6443` on control nodes lead to the healthy API servers of all control
nodes, hosted or standby; on control nodes `127.0.0.1:2378` leads to the healthy etcd members. The etcd
port and its client certificate exist on control nodes only: on a worker they would give root access to all
Secrets. A loopback port says in plain HTTP which servers HAProxy considers healthy, and which configuration runs.

Danger: whoever reaches a control node may open connections to `*:6443` and send nothing. HAProxy at its global limit
accepts on no port at all, so each kind of client has its own limit, and the rest is reserved for etcd.

Contract: the configuration depends on a `Balancer` alone, and has it in its first line, so that it is its own cache: at
boot HAProxy needs nothing else, and whoever renders it again knows what it was made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

from autarky import places
from autarky.control.load_balancer.manifests.script import script
from autarky.model import patience, ports
from autarky.model.balancer import ApiNode, Balancer, EtcdNode, etcd_servers
from autarky.model.cluster import Cluster, Node
from autarky.model.components import LOAD_BALANCER
from autarky.model.etcd_members import SECOND_SUFFIX
from autarky.model.files import File
from autarky.render import pods
from autarky.render.values import Inputs, Object

COMPONENT = "haproxy"
DIRECTORY = f"{places.HOST_ROOT}/nllb"
CONFIG_PATH = f"{DIRECTORY}/haproxy.cfg"
LUA_PATH = f"{DIRECTORY}/servers.lua"
ETCD_CA_PATH = f"{DIRECTORY}/etcd-ca.crt"
ETCD_CLIENT_PATH = f"{DIRECTORY}/etcd-client.pem"
RUN = f"{places.RUN}/nllb"
IN_USE_PATH = f"{RUN}/in-use"
"""What HAProxy considered healthy before its last reload: paths of the health port, one per line. A reboot clears it,
since it means nothing then."""
MASTER_SOCKET = f"{RUN}/master.sock"
"""HAProxy's master process listens there, for root only; `reload` makes it read its configuration again."""
CONFIGURATION_PATH = "/configuration"
"""Path of the health port: the hash of the configuration that takes new connections."""

LOOPBACK = "127.0.0.1"
_MOUNTED = "/etc/haproxy"
_MOUNTED_RUN = "/run/haproxy"
MASTER_ARGUMENT = f"{_MOUNTED_RUN}/master.sock,mode,600"
"""By it our HAProxy is known among the processes of a host: the user may run another one."""
_INPUTS = "# made from: "
API_PORTS = (("hosted", ports.API_HOSTED), ("standby", ports.API_STANDBY), ("spare", ports.API_STANDBY_SPARE))
SLOTS = tuple(slot for slot, _ in API_PORTS)


def _span(seconds: float) -> str:
    """In HAProxy's notation."""
    return f"{round(seconds * 1000)}ms"


_AGAIN = _span(patience.LOOK_AGAIN)
READY_INTERVALS = f"inter {_span(patience.PREFERRED_CHECK)} fastinter {_AGAIN} downinter {_AGAIN}"
"""A check's TCP and TLS handshake must end within its interval. 300 ms are too short for a starved machine;
with 800 ms a server that hangs or is unreachable is down after 1.6 s at most. The node's own servers are checked more
often while they are down, since somebody waits for them."""
ALIVE_INTERVALS = f"inter {_span(patience.SLOWEST_ANSWER)} fastinter {_AGAIN} downinter 1s"
"""Decides about sessions, not about new connections, so it may take longer: there is no `timeout check` in this
backend, so a check may take the complete interval. A check costs both sides together over 2 ms of processor time, most
of it the TLS handshake, and every node checks every server (docs/load-balancing.md)."""
REMOTE = "downinter 1s"
"""For servers on other nodes: all nodes check a server that starts, which slows its start."""
MEMBER_INTERVALS = f"inter {_span(patience.MEMBER_ANSWER)} fastinter {_AGAIN} downinter {_AGAIN}"
"""A check needs the quorum, so it costs all members. At boot the API server waits for the first that succeeds. A
member that does not accept connections is skipped at once, whatever the checks say."""
ONLY_MEMBER_RETRIES = 15
"""One per second: less than gRPC's timeout to connect (`patience.GRPC_CONNECT`)."""
MOST_RELOADS = 100
"""A worker of an older configuration stays for its connections, and a kubelet's lasts for weeks. After so many reloads
it is killed, which limits the number of workers (9 MB each), and its clients connect again. The limit is high because
a write that an API server has just sent to etcd fails when its connection is closed. (Turning a node into a control
node or back costs about five reloads.)"""

MOST = 8000
"""Connections at the same time, of two descriptors each: within the limit that systemd gives (524288), and within
20000. On a host that allows less HAProxy uses fewer, and logs that. Memory: 2.4 KB per idle connection."""
MOST_OUTSIDE, MOST_INSIDE, MOST_HEALTH = 3000, 2000, 500
"""Of `*:6443`, of `127.0.0.1:6443`, of the health port. The other 2,500 are for etcd, which has no limit of its own: an
API server has some seventy, and one more for each custom resource."""
MOST_OF_ONE_SOURCE = 500
"""Of `*:6443`. All pods of another node have that node's address: 110 pods may have four connections each. All users
behind one NAT or load balancer share an address, too: kubectl, or an HTTP/2 client with a hundred watches, has one
connection. It takes six sources to use up MOST_OUTSIDE."""
HEALTH_SECONDS = 5
"""Clients of the health port send their request at once. Any user of the host may connect to it."""

THREADS = 2
"""HAProxy's default is one for each processor, and each takes 0.35 MB, also in every worker of an older configuration:
with 64 of them a worker takes 30 MB in place of 9. Two are enough for what a node's own clients send."""

# timeouts: a watch may be silent for long; HTTP/2 clients ping every 30 s, so an hour closes only dead sessions.
_HEAD = f"""\
global
    nbthread {THREADS}
    maxconn {MOST}
    no strict-limits
    log stdout format raw daemon notice
    mworker-max-reloads {MOST_RELOADS}
    lua-load {_MOUNTED}/servers.lua
    tune.lua.session-timeout {_span(patience.LUA_RUN)}
defaults
    mode tcp
    log global
    option dontlognull
    timeout connect {_span(patience.CONNECT)}
    timeout client 1h
    timeout server 1h
    retries 3
    option redispatch 1
    option clitcpka
    option srvtcpka
"""

_LUA = script(in_use=IN_USE_PATH.replace(RUN, _MOUNTED_RUN), own=LOOPBACK)

# For sessions of a former worker, which checks no servers any more: unacknowledged data closes those with a dead host.
_SERVER = f"tcp-ut {_span(patience.UNACKNOWLEDGED)}"


def of_cluster(cluster: Cluster, node: Node) -> Balancer:
    """From the cluster file: what `up` writes first."""
    control = cluster.control_nodes
    members = control if node.control_plane and cluster.external_etcd is None else ()
    return Balancer(
        node.name,
        node.control_plane,
        tuple(ApiNode(member.name, member.known_address()) for member in control),
        tuple(EtcdNode(member.name, member.known_address()) for member in members),
    )


def config(balancer: Balancer) -> str:
    """The complete configuration of one node's load balancer."""
    sections = [_HEAD, _api_frontends(balancer), _ready(balancer), _alive(balancer), _last_resort(balancer)]
    if balancer.etcd:
        sections.append(_etcd(balancer))
    made_of = asdict(balancer)
    for member in made_of["etcd"]:
        if member["port"] == ports.ETCD_CLIENT:
            del member["port"]
    if not balancer.certificate:
        del made_of["certificate"]
    inputs = json.dumps(made_of, sort_keys=True)
    body = f"{_INPUTS}{inputs}\n{''.join(sections)}"
    unnamed = body + _health_frontend(balancer, "") + _LUA
    return body + _health_frontend(balancer, hashlib.sha256(unnamed.encode()).hexdigest()[:16])


def certificate_name(pem: str | None) -> str | None:
    """A name for the certificate (`Balancer.certificate`), without anything of the key; None where it is none."""
    certificate, end, _ = (pem or "").partition("-----END CERTIFICATE-----")
    return hashlib.sha256(certificate.encode()).hexdigest()[:10] if end else None


def config_hash(text: str) -> str:
    """The hash in a configuration, which `CONFIGURATION_PATH` answers; empty where it has none."""
    for line in text.splitlines():
        if f"{{ path {CONFIGURATION_PATH} }}" in line:
            return line.split()[7]
    return ""


def parse(text: str) -> Balancer | None:
    """What a configuration was made from; None where that cannot be read."""
    first = text.partition("\n")[0]
    try:
        found = json.loads(first.removeprefix(_INPUTS))
        names = [
            found["node"],
            *(one[key] for one in (*found["servers"], *found["etcd"]) for key in ("name", "address")),
        ]
        if not all(isinstance(name, str) for name in names):
            return None
        return Balancer(
            found["node"],
            bool(found["control_node"]),
            tuple(ApiNode(s["name"], s["address"], s["withdrawn"]) for s in found["servers"]),
            tuple(EtcdNode(m["name"], m["address"], int(m.get("port", ports.ETCD_CLIENT))) for m in found["etcd"]),
            str(found.get("certificate", "")),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _api_frontends(balancer: Balancer) -> str:
    """The node itself has its own frontend: whatever others do, it reaches the API. (Of two matching sockets the kernel
    takes the one that is bound to the address.)"""
    rules = _choice(balancer)
    frontends = _api_frontend("api", LOOPBACK, MOST_INSIDE, "", rules)
    if balancer.control_node:
        frontends += _api_frontend("api-outside", "", MOST_OUTSIDE, _STRANGERS, rules)
    return frontends


# Clients of `*:6443` may be anybody. An API server would wait 32 s for a silent one, so it gets a connection only once
# the client has started with TLS, for which there is as much time as for the hold. (A client that is late with it is
# held for less.) The table has room for more sources than there are connections, so none is evicted.
_STRANGERS = f"""\
    stick-table type ip size {2 * MOST_OUTSIDE} expire 1m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if {{ sc0_conn_cur gt {MOST_OF_ONE_SOURCE} }}
    tcp-request content reject unless {{ req.ssl_hello_type 1 }}
"""


def _api_frontend(name: str, address: str, most: int, before: str, rules: str) -> str:
    return (
        f"frontend {name}\n"
        f"    bind {address}:{ports.NLLB_API}\n"
        f"    maxconn {most}\n"
        f"{before}"
        f"{_hold('ready', patience.HOLD)}"
        f"{rules}"
        "    default_backend accepting\n"
    )


def _choice(balancer: Balancer) -> str:
    """Which backend a connection goes to. Each server is tested by itself: in a worker that was told to stop, `nbsrv`
    counts none, and what it accepted just before a reload would go to `accepting`, to servers known to be down."""
    servers = list(_api_servers(balancer))
    lines = [f"    acl some-ready srv_is_up(ready/{server})\n" for server, _, _, node in servers if not node.withdrawn]
    if lines:
        lines.append("    use_backend ready if some-ready\n")
    lines += [f"    acl some-alive srv_is_up(alive/{server})\n" for server, _, _, _ in servers]
    if servers:
        lines.append("    use_backend alive if some-alive\n")
    return "".join(lines)


def _hold(backend: str, seconds: float) -> str:
    """HAProxy itself would end the wait a second later."""
    return (
        f"    tcp-request inspect-delay {_span(seconds + 1)}\n    tcp-request content lua.hold {backend} {seconds:g}\n"
    )


def _ready(balancer: Balancer) -> str:
    """Own node first, then the others; on each the hosted server before the standby. Withdrawn servers are checked,
    and get no new connections."""
    lines = _checked("ready", balancer, "/readyz", f"{READY_INTERVALS} fall 1 rise 1")
    lines.insert(1, f"    timeout check {_span(patience.PREFERRED_ANSWER)}\n")
    for server, address, first, node in _api_servers(balancer):
        lines.append(_checked_server(server, address, first=first) + (" weight 0\n" if node.withdrawn else "\n"))
    return "".join(lines)


def _alive(balancer: Balancer) -> str:
    """For when no server is ready. Withdrawn servers come last, still better than none. The script decides whose
    sessions are closed: a server that refuses connections is down, too, but may still answer on those that it has."""
    how = f"{ALIVE_INTERVALS} fall {patience.LOOKS_BEFORE_DEAD} rise 1"
    lines = _checked("alive", balancer, "/livez?exclude=etcd", how)
    servers = sorted(_api_servers(balancer), key=lambda found: found[3].withdrawn)
    for server, address, first, node in servers:
        lines.append(_server(server, address, first=first and not node.withdrawn) + "\n")
    return "".join(lines)


def _checked(name: str, balancer: Balancer, path: str, how: str) -> list[str]:
    return [
        f"backend {name}\n    retries {_retries(balancer)}\n",
        f"    option httpchk GET {path}\n    http-check expect status 200\n",
        f"    default-server check check-ssl verify none {_SERVER} {how}\n",
    ]


def _server(server: str, address: str, *, first: bool) -> str:
    return f"    server {server} {address}{'' if first else ' backup'}"


def _checked_server(server: str, address: str, *, first: bool) -> str:
    return _server(server, address, first=first) + ("" if address.startswith(LOOPBACK) else f" {REMOTE}")


def _last_resort(balancer: Balancer) -> str:
    """For when no server passes its checks, which may only be late on a starved machine. Any server that accepts is
    better than a refusal; those that refuse are skipped at once. Not checked, so always tried, one after the other (a
    bare TCP check would log an error in the API server each time).
    """
    lines = [f"backend accepting\n    balance roundrobin\n    retries {_retries(balancer)}\n"]
    lines.append(f"    default-server {_SERVER}\n")
    lines += [f"    server {server} {address}\n" for server, address, _, _ in _api_servers(balancer)]
    return "".join(lines)


def _retries(balancer: Balancer) -> int:
    """Concurrent connections share the round-robin, so one may get the same server twice."""
    return 2 * len(balancer.servers) * len(API_PORTS)


def health_paths(balancer: Balancer) -> list[str]:
    """All paths of the health port that report on servers, without the leading slash."""
    return [path for path, _ in _held_for_healthy(balancer)]


def _held_for_healthy(balancer: Balancer) -> Iterable[tuple[str, str]]:
    """(path of the health port, backend and server)."""
    servers = [server for server, _, _, _ in _api_servers(balancer)]
    yield from ((server, f"ready/{server}") for server in servers)
    yield from ((f"alive/{server}", f"alive/{server}") for server in servers)
    yield from ((f"etcd/{server}", f"etcd/{server}") for server in etcd_servers(balancer.etcd))


def _api_servers(balancer: Balancer) -> Iterable[tuple[str, str, bool, ApiNode]]:
    """(name, address with port, whether it is a first choice, its node), the best first."""
    own = [node for node in balancer.servers if node.name == balancer.node and balancer.control_node]
    others = [node for node in balancer.servers if node not in own]
    for node in own + others:
        address = LOOPBACK if node in own else node.address
        for slot, port in API_PORTS:
            # A worker spreads over all hosted servers; a control node prefers its own.
            first = slot == "hosted" and (node in own or not own)
            yield f"{node.name}-{slot}", f"{address}:{port}", first, node


def _health_frontend(balancer: Balancer, name: str) -> str:
    """GET /SERVER answers 200 while that API server is ready and so gets new connections, else 503;
    GET /alive/SERVER while it is alive, for diagnosis; GET /etcd/NAME while that member serves."""
    lines = [f"frontend health\n    mode http\n    bind 127.0.0.1:{ports.NLLB_HEALTH}\n    maxconn {MOST_HEALTH}\n"]
    # Between two packets, and for a complete request.
    lines.append(f"    timeout client {HEALTH_SECONDS}s\n    timeout http-request {HEALTH_SECONDS}s\n")
    for path, server in _held_for_healthy(balancer):
        lines.append(f"    http-request return status 200 if {{ path /{path} }} {{ srv_is_up({server}) }}\n")
    answer = f"status 200 content-type text/plain string {name}"
    lines.append(f"    http-request return {answer} if {{ path {CONFIGURATION_PATH} }}\n")
    lines.append("    http-request return status 200 if { path / }\n    http-request return status 503\n")
    return "".join(lines)


def _etcd(balancer: Balancer) -> str:
    """The node's own member first, if it has one; else all share the load."""
    lines = [
        f"frontend etcd\n    bind 127.0.0.1:{ports.NLLB_ETCD}\n",
        f"{_hold('etcd', patience.HOLD_FOR_ETCD)}    default_backend etcd\nbackend etcd\n",
    ]
    if len(balancer.etcd) == 1:
        # There is no alternative, so nothing to check and no session to close. A refused connection is retried every
        # second: a client that is refused backs off (gRPC: up to two minutes) before it tries again.
        lines.append(f"    retries {ONLY_MEMBER_RETRIES}\n")
    else:
        lines.append("    option httpchk GET /readyz\n    http-check expect status 200\n")
        lines.append(
            f"    default-server check check-ssl verify required ca-file {_mounted(ETCD_CA_PATH)}"
            f" crt {_mounted(ETCD_CLIENT_PATH)} {MEMBER_INTERVALS} fall {patience.LOOKS_BEFORE_DEAD_MEMBER} rise 1"
            " on-marked-down shutdown-sessions\n"
        )
    write = _server if len(balancer.etcd) == 1 else _checked_server
    names_of_own = (balancer.node, f"{balancer.node}{SECOND_SUFFIX}")
    members = etcd_servers(balancer.etcd)
    own_is_there = any(server in names_of_own for server in members)
    for server, member in members.items():
        own = server in names_of_own
        address = f"{LOOPBACK if own else member.address}:{member.port}"
        lines.append(write(server, address, first=own or not own_is_there) + "\n")
    return "".join(lines)


def _mounted(path: str) -> str:
    return path.replace(DIRECTORY, _MOUNTED)


def configuration_files(balancer: Balancer) -> list[File]:
    """The files that depend on the cluster, in the order in which they are written."""
    return [File(LUA_PATH, _LUA.encode(), 0o600), File(CONFIG_PATH, config(balancer).encode(), 0o600)]


def files(inputs: Inputs, node: Node) -> list[File]:
    """What the pod mounts, except the certificate for the etcd port of a control node (`leaves`). The directory is
    mounted, not the files, so that a rename is seen."""
    balancer = of_cluster(inputs.cluster, node)
    ca = [File(ETCD_CA_PATH, inputs.credentials["etcd/ca.crt"], 0o600)] if balancer.etcd else []
    return [*ca, *configuration_files(balancer)]


def pod(inputs: Inputs, node: Node) -> Object:
    container = pods.command_container(
        COMPONENT,
        inputs.image(COMPONENT),
        ["haproxy", "-W", "-db", "-S", MASTER_ARGUMENT, "-f", f"{_MOUNTED}/haproxy.cfg"],
        resources=pods.requests("20m", "32Mi"),
        # Do not change: a changed static pod is restarted, which closes all connections of the node.
        livenessProbe=pods.http_probe("/", ports.NLLB_HEALTH, period=10, failures=3, timeout=patience.ADDON_PROBE),
        readinessProbe=pods.http_probe("/", ports.NLLB_HEALTH, period=2, failures=3, timeout=patience.ADDON_PROBE),
        volumeMounts=[pods.mount("config", _MOUNTED), pods.mount("run", _MOUNTED_RUN, read_only=False)],
        securityContext=pods.restricted_container(user=0),
    )
    volumes = [pods.host_volume("config", DIRECTORY, "Directory"), pods.host_volume("run", RUN, "DirectoryOrCreate")]
    return pods.generation(LOAD_BALANCER, node, {"containers": [container], "volumes": volumes})
