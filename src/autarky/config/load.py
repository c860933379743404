"""From the file to the model, with every error at once; and back.

Contract: `loads` either returns a cluster that everything else can rely on, or raises Problems that name
each error with its position and its fix (a single UserError for a text that is not YAML). `dump`
gives a file that loads to the same cluster, wherever that file is put: its paths are absolute.
Only the file itself is read; whether the files that it names exist is checked when they are needed.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema

from autarky.config import rules, schema
from autarky.config.explain import explain
from autarky.config.filling import Founded, filled, nothing_is_there
from autarky.config.positions import Document, parse
from autarky.errors import Problems, UserError
from autarky.model.cluster import (
    UNNAMED_CNI,
    CertificateSettings,
    Cluster,
    Cni,
    ExternalEtcd,
    HostRef,
    Network,
    Node,
    Rollback,
)
from autarky.model.defaults import newest
from autarky.model.levels import HostedLevels
from autarky.model.versions import Version

API_VERSION = "autarky.dev/v1alpha1"


def load(
    path: Path,
    *,
    default_version: Version,
    known_versions: Collection[Version] | None,
    founded: Founded = nothing_is_there,
) -> Cluster:
    """The cluster of a file; UserError when it cannot be read or is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read it: {error.strerror}", where=str(path), fix="name a file that exists") from error
    except UnicodeDecodeError as error:
        raise UserError("it is not UTF-8 text", where=str(path), fix="save it as UTF-8") from error
    return loads(
        text,
        str(path),
        directory=path.parent,
        default_version=default_version,
        known_versions=known_versions,
        founded=founded,
    )


def loads(
    text: str,
    name: str,
    *,
    default_version: Version,
    known_versions: Collection[Version] | None,
    directory: Path | None = None,
    founded: Founded = nothing_is_there,
) -> Cluster:
    """The cluster of a text; `name` is what errors call it.

    Relative paths in it are relative to `directory` (default: the working directory). An existing cluster
    (`founded`) keeps its version and its edition of defaults if the text names none; a new one gets
    `default_version` and the newest edition. A version that is not in `known_versions` is refused; None
    takes any.
    """
    document = parse(text, name)
    complete = filled(document.data, founded, default_version)
    file = _validated(document, complete.data, known_versions)
    wanted = file.spec.kubernetes_version
    version = Version.parse(wanted) if wanted is not None else complete.version
    return _to_model(file, version, (directory or Path()).absolute())


def _validated(document: Document, data: Any, known_versions: Collection[Version] | None) -> schema.ClusterFile:
    """The file as values, with its defaults filled in; Problems with all that is wrong with it."""
    problems = list(document.problems)
    try:
        file = schema.ClusterFile.model_validate(
            data, context={} if known_versions is None else {"known_versions": known_versions}
        )
    except ValidationError as error:
        problems += explain(error, schema.ClusterFile, document)
    if problems:
        raise Problems("the cluster file has errors", problems)
    return file


class _Plain(GenerateJsonSchema):
    """Without a title for each field that only repeats its key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the cluster file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION}/cluster.schema.json",
        **schema.ClusterFile.model_json_schema(by_alias=True, schema_generator=_Plain),
    }


def default_cluster(*, default_version: Version, known_versions: Collection[Version]) -> Cluster:
    """What `autarky up` brings up with no file: one self-hosted node on a test host."""
    text = f"{{apiVersion: {API_VERSION}, kind: Cluster, metadata: {{name: lab-1}}, spec: {{nodes: [{{name: n1}}]}}}}"
    return loads(text, "the default cluster", default_version=default_version, known_versions=known_versions)


# --- to the model ---------------------------------------------------------------------------------


def _to_model(file: schema.ClusterFile, version: Version, directory: Path) -> Cluster:
    spec, levels = file.spec, HostedLevels.parse(file.spec.self_hosted)
    ca_directory = spec.certificates.ca_directory
    return Cluster(
        name=file.metadata.name,
        kubernetes_version=version,
        self_hosted=levels.lowest,
        hosts_kubelet=levels.kubelet,
        nodes=tuple(_node(node, control_plane=rules.is_control(spec.nodes, i)) for i, node in enumerate(spec.nodes)),
        ssh_config=str(directory / spec.ssh_config) if spec.ssh_config is not None else None,
        network=Network(*rules.networks(spec.network), spec.network.dns_domain, Cni(spec.network.cni)),
        external_etcd=_external(spec.etcd.external, directory),
        etcd_version=None if spec.etcd.version is None else Version.parse(spec.etcd.version),
        control_plane_endpoint=spec.control_plane_endpoint,
        extra_args={component: dict(values) for component, values in spec.extra_args.items()},
        certificates=CertificateSettings(
            spec.certificates.key_algorithm,
            spec.certificates.ca_days,
            spec.certificates.leaf_days,
            str(directory / ca_directory) if ca_directory is not None else None,
            _seconds(spec.certificates.leaf_lifetime),
            _seconds(spec.certificates.kubelet_lifetime),
        ),
        rollback=Rollback(spec.rollback.enabled, spec.rollback.limit_seconds),
        soak_seconds=_seconds(spec.upgrade.soak),
        kubelets_follow=spec.kubelets.follow,
        container_runtime=spec.kubelets.runtime or "",
        pools=tuple(pool.as_in_api() for pool in spec.pools),
        defaults=spec.defaults or newest(),
    )


def _seconds(lifetime: str | None) -> int | None:
    return None if lifetime is None else rules.seconds(lifetime)


def _lifetime(seconds: int | None) -> str | None:
    return None if seconds is None else f"{seconds // 60}m"


def _host(node: schema.NodePart) -> HostRef:
    driver, _, target = rules.machine(node).partition(":")
    if driver == "ssh":
        return HostRef("ssh", target.removeprefix("//"))
    return HostRef("local") if driver == "local" else HostRef("lab", target)


def _node(node: schema.NodePart, *, control_plane: bool) -> Node:
    return Node(
        name=node.name,
        host=_host(node),
        control_plane=control_plane,
        labels=dict(node.labels),
        taints=tuple(taint.as_taint() for taint in node.taints),
        address=node.address,
    )


def _external(external: schema.ExternalEtcdPart | None, directory: Path) -> ExternalEtcd | None:
    if external is None:
        return None
    if external.lab is not None:
        return ExternalEtcd((), "", "", "", lab_host=external.lab)
    ca, certificate, key = (str(directory / str(p)) for p in (external.ca_file, external.cert_file, external.key_file))
    return ExternalEtcd(tuple(external.endpoints), ca, certificate, key)


# --- and back -------------------------------------------------------------------------------------


def dump(cluster: Cluster) -> dict[str, Any]:
    """The file, with all defaults filled in and paths made absolute, that loads to the same cluster."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": cluster.name},
        "spec": {
            "kubernetesVersion": str(cluster.kubernetes_version).removeprefix("v"),
            "defaults": cluster.defaults,
            "selfHosted": cluster.self_hosted_text,
            "nodes": [_dump_node(node) for node in cluster.nodes],
            "sshConfig": cluster.ssh_config,
            "network": {
                "podCIDR": str(cluster.network.pod_cidr),
                "serviceCIDR": str(cluster.network.service_cidr),
                "dnsDomain": cluster.network.dns_domain,
                # Omitted if it is what every file meant before this field existed, so that kept files stay the same.
                **({} if cluster.network.cni is UNNAMED_CNI else {"cni": cluster.network.cni.value}),
            },
            "etcd": {
                "external": _dump_external(cluster.external_etcd),
                # Omitted if there is none, so that kept files stay the same.
                **({} if cluster.etcd_version is None else {"version": str(cluster.etcd_version).removeprefix("v")}),
            },
            "controlPlaneEndpoint": cluster.control_plane_endpoint,
            "extraArgs": {component: dict(values) for component, values in cluster.extra_args.items()},
            "certificates": {
                "keyAlgorithm": cluster.certificates.key_algorithm,
                "caDays": cluster.certificates.ca_days,
                "leafDays": cluster.certificates.leaf_days,
                "leafLifetime": _lifetime(cluster.certificates.leaf_seconds),
                "kubeletLifetime": _lifetime(cluster.certificates.kubelet_seconds),
                "caDirectory": cluster.certificates.ca_directory,
            },
            "rollback": {"enabled": cluster.rollback.enabled, "limitSeconds": cluster.rollback.limit_seconds},
            # Omitted if there is none, or it is the default, so that kept files stay the same.
            **({} if cluster.soak_seconds is None else {"upgrade": {"soak": _lifetime(cluster.soak_seconds)}}),
            **({"kubelets": kubelets} if (kubelets := _dump_kubelets(cluster)) else {}),
            **({"pools": [dict(pool) for pool in cluster.pools]} if cluster.pools else {}),
        },
    }


def _dump_kubelets(cluster: Cluster) -> dict[str, Any]:
    runtime = {"runtime": cluster.container_runtime} if cluster.container_runtime else {}
    return ({} if cluster.kubelets_follow else {"follow": False}) | runtime


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
