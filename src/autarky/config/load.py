"""From the file to the model, with every error at once; and back.

Contract: `loads` either returns a cluster that everything else can rely on, or raises one Problems that
names each error with its position and its remedy. `dump` gives the file that loads to the same cluster.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from autarky.config import schema
from autarky.config.positions import Document, parse
from autarky.errors import Problems, UserError
from autarky.model.cluster import (
    CertificateSettings,
    Cluster,
    ExternalEtcd,
    HostRef,
    Level,
    Network,
    Node,
    Rollback,
    Taint,
)
from autarky.model.versions import Version

API_VERSION = "autarky.dev/v1alpha1"
_NOT_BUILT = "not built yet"


def load(path: Path, *, default_version: Version, known_versions: Collection[Version]) -> Cluster:
    """The cluster of a file; UserError when it cannot be read or is wrong."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"cannot read it: {error.strerror}", where=str(path), fix="name a file that exists") from error
    except UnicodeDecodeError as error:
        raise UserError("it is not UTF-8 text", where=str(path), fix="save it as UTF-8") from error
    return loads(text, str(path), directory=path.parent, default_version=default_version, known_versions=known_versions)


def loads(
    text: str,
    name: str,
    *,
    default_version: Version,
    known_versions: Collection[Version],
    directory: Path | None = None,
) -> Cluster:
    """The cluster of a text. Relative paths in it are relative to `directory`."""
    document = parse(text, name)
    try:
        file = schema.ClusterFile.model_validate(document.data)
    except ValidationError as error:
        raise Problems("the cluster file has errors", _explain(error, document)) from None
    spec = file.spec
    version = Version.parse(spec.kubernetes_version) if spec.kubernetes_version is not None else default_version
    problems = [*_check(spec, document), *_check_version(version, known_versions, document)]
    if problems:
        raise Problems("the cluster file has errors", problems)
    return _to_model(file, version, directory or Path.cwd())


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the cluster file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/cluster.schema.json",
        **schema.ClusterFile.model_json_schema(by_alias=True),
    }


def default_cluster(*, default_version: Version, known_versions: Collection[Version]) -> Cluster:
    """What `autarky up` brings up with no file: one self-hosted node on a test host."""
    text = f"{{apiVersion: {API_VERSION}, kind: Cluster, metadata: {{name: lab-1}}, spec: {{nodes: [{{name: n1}}]}}}}"
    return loads(text, "the default cluster", default_version=default_version, known_versions=known_versions)


# --- errors of form ------------------------------------------------------------------------------------


def _explain(error: ValidationError, document: Document) -> list[UserError]:
    return [_explain_one(detail, document) for detail in error.errors(include_url=False)]


def _explain_one(detail: Mapping[str, Any], document: Document) -> UserError:
    location = [part for part in detail["loc"] if part != "[key]"]
    what, fix = str(detail["msg"]).removeprefix("Value error, "), "see docs/cluster-file.md"
    if detail["type"] == "extra_forbidden":
        known = _keys_at(location[:-1])
        near = _near(str(location[-1]), known)
        what = "unknown key"
        fix = f"did you mean {near[0]}?" if near else f"known keys here: {', '.join(known)}"
    elif detail["type"] == "missing":
        what, fix = "missing", f"add {location[-1]}"
    elif detail["type"] == "string_type":
        what, fix = "must be text", "put it in quotes"
    return UserError(f"{_dotted(location)}: {what}", where=document.where(location), fix=fix)


def _near(word: str, known: Collection[str]) -> list[str]:
    """The known word that this one is most like, if any; case does not count."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in difflib.get_close_matches(word.lower(), by_lower, n=1)]


def _dotted(location: Sequence[str | int]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "the file"


def _keys_at(location: Sequence[str | int]) -> list[str]:
    """The keys that the schema knows at a place."""
    model: type[BaseModel] = schema.ClusterFile
    for part in location:
        if isinstance(part, int):
            continue
        field = next(f for name, f in model.model_fields.items() if (f.alias or name) == part)
        nested = [field.annotation, *get_args(field.annotation)]
        model = next((m for m in nested if isinstance(m, type) and issubclass(m, BaseModel)), model)
    return [field.alias or name for name, field in model.model_fields.items()]


# --- errors of meaning -----------------------------------------------------------------------------------


class _Checker:
    """Collects problems with their positions below `spec`."""

    def __init__(self, document: Document) -> None:
        self.problems: list[UserError] = []
        self._document = document

    def refuse(self, location: Sequence[str | int], what: str, fix: str) -> None:
        path = ["spec", *location]
        self.problems.append(UserError(f"{_dotted(path)}: {what}", where=self._document.where(path), fix=fix))


def _check(spec: schema.SpecPart, document: Document) -> list[UserError]:
    checker = _Checker(document)
    _check_nodes(spec, checker)
    _check_networks(spec.network, checker)
    _check_etcd(spec, checker)
    for component in spec.extra_args:
        if component not in schema.COMPONENTS:
            near = _near(component, schema.COMPONENTS)
            hint = f"did you mean {near[0]}?" if near else f"the components are: {', '.join(schema.COMPONENTS)}"
            checker.refuse(["extraArgs", component], "unknown component", hint)
    if spec.self_hosted == "0-4":
        checker.refuse(["selfHosted"], f"0-4 (kubelet as a DaemonSet) is {_NOT_BUILT}", "use 1-4")
    return checker.problems


def _check_version(version: Version, known: Collection[Version], document: Document) -> list[UserError]:
    if version in known:
        return []
    names = [str(v).removeprefix("v") for v in sorted(known)]
    near = difflib.get_close_matches(str(version).removeprefix("v"), names, n=1) or names[-1:]
    where = document.where(["spec", "kubernetesVersion"])
    return [
        UserError(
            f"spec.kubernetesVersion: there is no release file for {version}",
            where=where,
            fix=f'use "{near[0]}"; known: {", ".join(names)}',
        )
    ]


def _check_nodes(spec: schema.SpecPart, checker: _Checker) -> None:
    seen_names: set[str] = set()
    seen_hosts: set[str] = set()
    for number, node in enumerate(spec.nodes):
        here: list[str | int] = ["nodes", number]
        if node.name in seen_names:
            checker.refuse([*here, "name"], f"a second node {node.name}", "give each node a name of its own")
        host = str(_host(node))
        if host in seen_hosts:
            checker.refuse([*here, "host"], f"a second node on {host}", "give each node a machine of its own")
        if node.host.startswith("ssh://"):
            checker.refuse(
                [*here, "host"], f"ssh hosts are {_NOT_BUILT} (they come with many nodes)", "use lab or local"
            )
        if node.taints and len(spec.nodes) == 1:
            checker.refuse([*here, "taints"], "a single node is never tainted: nothing could run", "remove the taints")
        seen_names.add(node.name)
        seen_hosts.add(host)
    control = [number for number in range(len(spec.nodes)) if _is_control(spec, number)]
    if not control:
        checker.refuse(["nodes"], "no node has the role control-plane", "add `roles: [control-plane, worker]` to one")
    for number in control[1:]:
        checker.refuse(
            ["nodes", number, "roles"],
            f"several control nodes are {_NOT_BUILT} (they come with high availability)",
            "leave the role control-plane to one node",
        )


def _is_control(spec: schema.SpecPart, number: int) -> bool:
    roles = spec.nodes[number].roles
    return "control-plane" in roles if roles is not None else len(spec.nodes) == 1


def _check_networks(network: schema.NetworkPart, checker: _Checker) -> None:
    parsed: dict[str, ipaddress.IPv4Network] = {}
    for key, text, longest in (("podCIDR", network.pod_cidr, 23), ("serviceCIDR", network.service_cidr, 27)):
        try:
            parsed[key] = ipaddress.IPv4Network(text)
        except ValueError as error:
            checker.refuse(["network", key], str(error), "write an IPv4 network such as 10.244.0.0/16")
            continue
        if parsed[key].prefixlen > longest:
            checker.refuse(["network", key], f"{text} is too small", f"use /{longest} or larger")
    if len(parsed) == 2 and parsed["podCIDR"].overlaps(parsed["serviceCIDR"]):
        checker.refuse(
            ["network"], f"podCIDR {network.pod_cidr} and serviceCIDR {network.service_cidr} overlap", "separate them"
        )


def _check_etcd(spec: schema.SpecPart, checker: _Checker) -> None:
    external = spec.etcd.external
    if external is None:
        return
    here = ["etcd", "external"]
    if spec.self_hosted in {"0-4", "1-4"}:
        checker.refuse(here, f"external etcd does not go with selfHosted {spec.self_hosted}", 'use selfHosted: "2-4"')
    given = [key for key, value in _external_files(external).items() if value]
    if external.lab is not None:
        if given or external.endpoints:
            checker.refuse(here, "lab and endpoints exclude each other", "keep one of them")
        if external.lab in {node.name for node in spec.nodes}:
            checker.refuse([*here, "lab"], f"{external.lab} is a node", "give etcd a host of its own")
        return
    missing = [
        key for key, value in {"endpoints": external.endpoints, **_external_files(external)}.items() if not value
    ]
    if missing:
        checker.refuse(here, f"missing: {', '.join(missing)}", "give all of endpoints, caFile, certFile, keyFile")
    for number, endpoint in enumerate(external.endpoints):
        if not endpoint.startswith("https://"):
            checker.refuse([*here, "endpoints", number], "not https", "etcd without TLS would be open to everybody")


def _external_files(external: schema.ExternalEtcdPart) -> dict[str, str | None]:
    return {"caFile": external.ca_file, "certFile": external.cert_file, "keyFile": external.key_file}


# --- to the model and back ---------------------------------------------------------------------------------


def _host(node: schema.NodePart) -> HostRef:
    if node.host == "local":
        return HostRef("local")
    if node.host.startswith("ssh://"):
        return HostRef("ssh", node.host.removeprefix("ssh://"))
    return HostRef("lab", node.host.partition(":")[2] or node.name)


def _to_model(file: schema.ClusterFile, version: Version, directory: Path) -> Cluster:
    spec = file.spec
    ca_directory = spec.certificates.ca_directory
    return Cluster(
        name=file.metadata.name,
        kubernetes_version=version,
        self_hosted=Level(int(spec.self_hosted[0])),
        nodes=tuple(_node(node, control_plane=_is_control(spec, i)) for i, node in enumerate(spec.nodes)),
        network=Network(
            ipaddress.IPv4Network(spec.network.pod_cidr),
            ipaddress.IPv4Network(spec.network.service_cidr),
            spec.network.dns_domain,
        ),
        external_etcd=_external(spec.etcd.external, directory),
        control_plane_endpoint=spec.control_plane_endpoint,
        extra_args={component: dict(values) for component, values in spec.extra_args.items()},
        certificates=CertificateSettings(
            spec.certificates.key_algorithm,
            spec.certificates.ca_days,
            spec.certificates.leaf_days,
            str(directory / ca_directory) if ca_directory is not None else None,
        ),
        rollback=Rollback(spec.rollback.enabled, spec.rollback.limit_seconds),
    )


def _node(node: schema.NodePart, *, control_plane: bool) -> Node:
    return Node(
        name=node.name,
        host=_host(node),
        control_plane=control_plane,
        labels=dict(node.labels),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.taints),
        address=node.address,
    )


def _external(external: schema.ExternalEtcdPart | None, directory: Path) -> ExternalEtcd | None:
    if external is None:
        return None
    if external.lab is not None:
        return ExternalEtcd((), "", "", "", lab_host=external.lab)
    files = [str(directory / str(path)) for path in _external_files(external).values()]
    return ExternalEtcd(tuple(external.endpoints), files[0], files[1], files[2])


def dump(cluster: Cluster) -> dict[str, Any]:
    """The file, with all defaults filled in and paths made absolute, that loads to the same cluster."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name},
        "spec": {
            "kubernetesVersion": str(cluster.kubernetes_version).removeprefix("v"),
            "selfHosted": cluster.self_hosted_text,
            "nodes": [_dump_node(node) for node in cluster.nodes],
            "network": {
                "podCIDR": str(cluster.network.pod_cidr),
                "serviceCIDR": str(cluster.network.service_cidr),
                "dnsDomain": cluster.network.dns_domain,
            },
            "etcd": {"external": _dump_external(cluster.external_etcd)},
            "controlPlaneEndpoint": cluster.control_plane_endpoint,
            "extraArgs": {component: dict(values) for component, values in cluster.extra_args.items()},
            "certificates": {
                "keyAlgorithm": cluster.certificates.key_algorithm,
                "caDays": cluster.certificates.ca_days,
                "leafDays": cluster.certificates.leaf_days,
                "caDirectory": cluster.certificates.ca_directory,
            },
            "rollback": {"enabled": cluster.rollback.enabled, "limitSeconds": cluster.rollback.limit_seconds},
        },
    }


def _dump_node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "host": str(node.host),
        "roles": ["control-plane", "worker"] if node.control_plane else ["worker"],
        "labels": dict(node.labels),
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints],
        "address": node.address,
    }


def _dump_external(external: ExternalEtcd | None) -> dict[str, Any] | None:
    if external is None:
        return None
    if external.lab_host is not None:
        return {"lab": external.lab_host}
    return {
        "endpoints": list(external.endpoints),
        "caFile": external.ca_file,
        "certFile": external.cert_file,
        "keyFile": external.key_file,
    }
