"""Level 1, etcd: a static pod with hostPath data on each member's node, on the node's own address.

No Service, DNS or pod network is involved: what the API server needs must not need the API server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from autarky import places
from autarky.control.etcd.decide.template import same
from autarky.errors import UserError
from autarky.model import ports
from autarky.model.cluster import Node
from autarky.model.components import ETCD, NAME_LABEL
from autarky.model.etcd_members import SECOND_SUFFIX, client_url, is_second, peer_url, second
from autarky.model.files import File
from autarky.model.patience import ADDON_PROBE
from autarky.parsing import parsed
from autarky.render import pods
from autarky.render.values import SYSTEM, Inputs, Object, flags, metadata

PKI = places.ETCD_PKI
SECOND = "second-etcd"
"""A second member on a node, as a component: its container, its label and the beginning of its static pod's name."""
MEMBER_DIRECTORY = f"{places.ETCD_DATA}/member"
"""Where etcd keeps everything."""
_PEER_CA_NAME = "peer-ca.crt"
PEER_CA = f"{MEMBER_DIRECTORY}/{_PEER_CA_NAME}"
"""A copy of etcd's CA, without which a member does not start. It is kept with the data, so that a member whose data is
gone, or not mounted yet, never starts from scratch under its old id. Whoever lets a member start for the first time
puts it there."""
SECOND_DATA = f"{places.ETCD_DATA}/second"
"""Of a second member: on the same file system, which may be a mount of its own."""
GATES = "feature-gates"
_INITIAL_CHECK = "InitialCorruptCheck=true"
"""A member whose keys differ from the others' does not start. The other checks are a matter of the defaults."""
PKI_FILES = tuple(f"{PKI}/{name}" for name in ("ca.crt", "server.crt", "server.key", "peer.crt", "peer.key"))
"""What a member needs before it starts."""


def ca_file(inputs: Inputs) -> File:
    """The CA that a member verifies its clients and peers with."""
    return File(f"{PKI}/ca.crt", inputs.credentials["etcd/ca.crt"], 0o600)


def pki_files(inputs: Inputs, node: Node) -> list[File]:
    """All certificates of a member that no node agent renews, root only."""
    credentials = inputs.credentials
    names = {
        "server.crt": f"etcd/server-{node.name}.crt",
        "server.key": f"etcd/server-{node.name}.key",
        "peer.crt": f"etcd/peer-{node.name}.crt",
        "peer.key": f"etcd/peer-{node.name}.key",
    }
    return [ca_file(inputs), *(File(f"{PKI}/{name}", credentials[source], 0o600) for name, source in names.items())]


@dataclass(frozen=True, slots=True)
class Founding:
    """The cluster as a member's command line describes it for its very first start. Afterwards its own log counts, so
    the command line stays as it was: a member whose peers change is not restarted. token: None for the first etcd of a
    cluster, which has the cluster's name; a recovery makes another etcd."""

    cluster: str
    state: Literal["new", "existing"]
    token: str | None = None


def initial_members(nodes: Sequence[Node]) -> Founding:
    """A new cluster of these nodes."""
    return Founding(initial_cluster({node.name: node.known_address() for node in nodes}), "new")


def initial_cluster(addresses: Mapping[str, str]) -> str:
    """Member name → address, as etcd wants it."""
    return ",".join(f"{name}={peer_url(address)}" for name, address in addresses.items())


def founding_of(pod: Object) -> Founding | None:
    """What this static pod's command line says of the cluster; None where that cannot be read."""
    try:
        words = [word.partition("=") for word in pod["spec"]["containers"][0]["command"]]
        found = {name: value for name, _, value in words}
        token = found.get("--initial-cluster-token")
        return Founding(found["--initial-cluster"], found["--initial-cluster-state"], token)
    except (KeyError, IndexError, TypeError, AttributeError):
        return None


def arguments(inputs: Inputs, name: str, address: str, founding: Founding, peer_ca: str) -> list[str]:
    """The command line of a member."""
    return flags(_arguments(inputs, name, address, founding, peer_ca), inputs.cluster.extra_args.get(ETCD, {}))


def _arguments(inputs: Inputs, name: str, address: str, founding: Founding, peer_ca: str) -> dict[str, str]:
    """The flags that we set."""
    client = client_url(address)
    chosen = inputs.cluster.default_arguments(ETCD)
    gates = [_INITIAL_CHECK, *filter(None, [chosen.get(GATES)])]
    return {
        "name": name,
        "data-dir": places.ETCD_DATA,
        "listen-client-urls": f"https://127.0.0.1:{ports.ETCD_CLIENT},{client}",
        "advertise-client-urls": client,
        "listen-peer-urls": peer_url(address),
        "initial-advertise-peer-urls": peer_url(address),
        "initial-cluster": founding.cluster,
        "initial-cluster-state": founding.state,
        "initial-cluster-token": founding.token or inputs.cluster.name,
        # Health for the kubelet, which has no client certificate. Metrics for others: /metrics on 2379 with one.
        "listen-metrics-urls": f"http://127.0.0.1:{ports.ETCD_HEALTH}",
        "client-cert-auth": "true",
        "trusted-ca-file": f"{PKI}/ca.crt",
        "cert-file": f"{PKI}/server.crt",
        "key-file": f"{PKI}/server.key",
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": peer_ca,
        "peer-cert-file": f"{PKI}/peer.crt",
        "peer-key-file": f"{PKI}/peer.key",
        **chosen,
        "watch-progress-notify-interval": "5s",
        GATES: ",".join(gates),
    }


_PARTS = ("containers", "volumes")
"""Of a member's spec, which its name is made of; all static pods have the rest."""
NAME, ADDRESS, CLUSTER, STATE = "@NAME@", "@ADDRESS@", "@INITIAL_CLUSTER@", "@INITIAL_CLUSTER_STATE@"
"""Placeholders in the template: what differs between members."""
TEMPLATE = "etcd-member-template"
"""The ConfigMap with the template for the node agents, which start the members that join later."""
TEMPLATE_KEY = "spec.json"
"""The template from `up`, without the arguments that the ControlPlane asks for."""
IN_FORCE_KEY, SETTLED_KEY, CONDEMNED_KEY, WHY_KEY = "in-force.json", "settled.json", "condemned.json", "why"
"""The operator's (`decide.template.Kept`)."""
GUARD_IMAGE_KEY = "guard-image"
"""The image of the quorum guard's idle pods: the pod sandbox image, which every node has."""
WRITTEN_FOR = "autarky.dev/etcd-member"
"""Annotation of a static pod that a node agent wrote: the id of the member that it is for, in hex."""


def template(inputs: Inputs, *, requested: bool = True) -> Object:
    """The spec of a member's static pod, with placeholders. requested: with the arguments of the cluster file."""
    founding = Founding(CLUSTER, cast("Literal['new', 'existing']", STATE))
    extra = inputs.cluster.extra_args.get(ETCD, {}) if requested else {}
    container = pods.command_container(
        ETCD,
        inputs.image(ETCD),
        ["etcd", *flags(_arguments(inputs, NAME, ADDRESS, founding, PEER_CA), extra)],
        resources=pods.requests("100m", "100Mi"),
        # Not /readyz: a learner is never ready, and may need time for a big database. Do not change anything here
        # without need: a change of the static pod restarts the member.
        startupProbe=pods.http_probe("/livez", ports.ETCD_HEALTH, period=2, failures=90, timeout=ADDON_PROBE),
        # Generous: restarting a member that is merely slow turns a slow cluster into a dead one.
        livenessProbe=pods.http_probe("/livez", ports.ETCD_HEALTH, period=10, failures=12),
        readinessProbe=pods.http_probe("/readyz", ports.ETCD_HEALTH, period=2, failures=3),
        volumeMounts=[pods.mount("data", places.ETCD_DATA, read_only=False), pods.mount("pki", PKI)],
        securityContext=pods.restricted_container(user=0),
    )
    return {
        "containers": [container],
        "volumes": [
            pods.host_volume("data", places.ETCD_DATA, "Directory"),
            pods.host_volume("pki", PKI, "Directory"),
        ],
    }


def filled(
    spec: Object, name: str, address: str, founding: Founding, written_for: int | None = None, component: str = ETCD
) -> Object:
    """The static pod of one member, from the template."""
    text = json.dumps(spec)
    values = {NAME: name, ADDRESS: address, CLUSTER: founding.cluster, STATE: founding.state}
    for placeholder, value in values.items():
        text = text.replace(placeholder, json.dumps(value)[1:-1])
    found = json.loads(text)
    if founding.token is not None:
        _set_flags(found, {"--initial-cluster-token": founding.token})
    pod = pods.generation_on(name, component, found)
    if written_for is not None:
        pod["metadata"]["annotations"] = {WRITTEN_FOR: f"{written_for:x}"}
    return pod


def member_name(node: str, address: str) -> str:
    """Of a member, in etcd, by its address."""
    return f"{node}{SECOND_SUFFIX}" if is_second(address) else node


def filled_second(spec: Object, name: str, address: str, founding: Founding, written_for: int) -> Object:
    """The static pod of a second member on a node: with ports and a directory of its own. address: of the node."""
    own = second(address)
    health = ports.ETCD_SECOND_HEALTH
    client = client_url(own)
    found: Object = json.loads(json.dumps(spec))
    flags_of_its_own = {
        "--name": f"{name}{SECOND_SUFFIX}",
        "--data-dir": SECOND_DATA,
        "--listen-client-urls": f"https://127.0.0.1:{ports.ETCD_SECOND_CLIENT},{client}",
        "--advertise-client-urls": client,
        "--listen-peer-urls": peer_url(own),
        "--initial-advertise-peer-urls": peer_url(own),
        "--listen-metrics-urls": f"http://127.0.0.1:{health}",
        "--peer-trusted-ca-file": f"{SECOND_DATA}/member/{_PEER_CA_NAME}",
    }
    _set_flags(found, flags_of_its_own)
    container = found["containers"][0]
    container["name"] = SECOND
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if "httpGet" in (container.get(probe) or {}):
            container[probe]["httpGet"]["port"] = health
    return filled(found, name, address, founding, written_for, component=SECOND)


def is_made_from(pod: Object, spec: Object, name: str, address: str) -> bool:
    """Whether this static pod is what the template makes of this member, but for the order of its flags."""
    founding = founding_of(pod)
    if founding is None:
        return False
    wanted = filled(spec, name, address, founding)
    return same({part: pod["spec"].get(part) for part in _PARTS}, {part: wanted["spec"].get(part) for part in _PARTS})


def member_pod(inputs: Inputs, node: Node, founding: Founding | None = None, *, image: str | None = None) -> Object:
    """The member's static pod; `founding` as in the existing one, None for an initial member of the cluster. image:
    another one than that of the release."""
    spec = template(inputs)
    if image is not None:
        spec["containers"][0]["image"] = image
    return filled(spec, node.name, node.known_address(), founding or initial_members(inputs.cluster.initial_members))


def written_as(pod: Object, present: Object) -> Object:
    """The pod with what a node agent noted on the existing one."""
    noted = (present["metadata"].get("annotations") or {}).get(WRITTEN_FOR)
    return pod if noted is None else {**pod, "metadata": {**pod["metadata"], "annotations": {WRITTEN_FOR: noted}}}


def founded_again(pod: Object, name: str, address: str, token: str) -> Object:
    """The static pod of a member with which another etcd begins. It is another pod to the kubelet, which takes time to
    start one again that it has just ended."""
    founding = {
        "--initial-cluster": initial_cluster({name: address}),
        "--initial-cluster-state": "existing",
        "--initial-cluster-token": token,
    }
    spec: Object = json.loads(json.dumps({part: pod["spec"][part] for part in _PARTS}))
    _set_flags(spec, founding)
    return pods.generation_on(name, ETCD, spec)


def _set_flags(spec: Object, values: Mapping[str, str]) -> None:
    """In their places; a flag that is not there stays absent."""
    command = spec["containers"][0]["command"]
    names = [str(word).partition("=")[0] for word in command]
    command[:] = [f"{key}={values[key]}" if key in values else word for key, word in zip(names, command, strict=True)]


def beginning(inputs: Inputs) -> list[File]:
    """What an initial member needs to start."""
    return [File(PEER_CA, inputs.credentials["etcd/ca.crt"], 0o600)]


def template_object(inputs: Inputs) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(TEMPLATE, SYSTEM, {NAME_LABEL: ETCD}),
        "data": {
            TEMPLATE_KEY: json.dumps(template(inputs, requested=False), indent=2),
            GUARD_IMAGE_KEY: inputs.image("pause"),
        },
    }


UNIT_PATH = "/etc/systemd/system/etcd.service"
_UNIT = """\
[Unit]
Description=etcd (external to the Kubernetes cluster)
After=network-online.target

[Service]
Type=notify
ExecStart={binary} {arguments}
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


def external_unit_files(inputs: Inputs, node: Node, founding: Founding | None = None) -> list[File]:
    """etcd as a systemd service on a host that is not a node: the `lab` form of external etcd. founding: as in the
    existing unit, None for a new etcd."""
    founding = founding or initial_members((node,))
    words = " ".join(arguments(inputs, node.name, node.known_address(), founding, f"{PKI}/ca.crt"))
    unit = _UNIT.format(binary=f"{places.BIN}/etcd", arguments=words)
    return [*pki_files(inputs, node), File(UNIT_PATH, unit.encode())]


def founding_of_unit(unit: bytes | None) -> Founding | None:
    """What the unit's command line says of the cluster; None where there is no unit, or none of ours."""
    lines = (unit or b"").decode(errors="replace").splitlines()
    words = next((line.split()[1:] for line in lines if line.startswith("ExecStart=")), [])
    return founding_of({"spec": {"containers": [{"command": words}]}})


def read_template(config_map: Object) -> Object:
    """The spec that is in force, else that from `template_object`, which users may have edited; UserError where there
    is none."""
    found = spec_in(config_map, IN_FORCE_KEY) or spec_in(config_map, TEMPLATE_KEY)
    if found is None:
        raise UserError(f"ConfigMap {SYSTEM}/{TEMPLATE} has no pod spec", fix="delete it and run `autarky up`")
    return found


def spec_in(config_map: Object, key: str) -> Object | None:
    """The template under that key; None where there is none, or it cannot be read as one."""
    try:
        found = parsed(config_map["data"][key])
        words = found["containers"][0]["command"]
        return dict(found) if isinstance(words, list) and isinstance(found["containers"][0]["image"], str) else None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
        return None
