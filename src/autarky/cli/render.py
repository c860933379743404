"""`autarky render`: everything that `up` would put on hosts and into the API, as files to read and to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky.cli.options import cluster_options
from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.model.cluster import Cluster
    from autarky.model.files import File
    from autarky.render.values import Inputs


@click.command()
@cluster_options
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--with-pki", is_flag=True, help="Issue keys and certificates too (0600); else placeholders stand for them."
)
def render(file: Path | None, cluster: str | None, directory: Path, with_pki: bool) -> None:
    """Write all manifests, static pods, unit files and certificate specifications into DIRECTORY.

    The manifests are usable with `kubectl apply -f DIRECTORY/manifests`, the rest by hand. DIRECTORY must
    be empty or absent. Nodes without an address in the file get one of a documentation network.
    """
    from autarky.cli.wiring import load_cluster

    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty", fix="name a directory that is empty or does not exist")
    wanted = with_some_addresses(load_cluster(file, cluster))
    inputs = make_inputs(wanted, directory / "pki", with_pki=with_pki)
    written = [*write_manifests(inputs, directory / "manifests"), *write_hosts(inputs, directory / "hosts")]
    written += write_certificates(wanted, directory)
    click.echo(f"{len(written)} files in {directory}")


def with_some_addresses(cluster: Cluster) -> Cluster:
    """Addresses of 192.0.2.0/24 (RFC 5737) for nodes that have none yet."""
    return cluster.with_addresses(
        {node.name: node.address or f"192.0.2.{11 + number}" for number, node in enumerate(cluster.nodes)}
    )


def make_inputs(cluster: Cluster, pki: Path, *, with_pki: bool) -> Inputs:
    from datetime import UTC, datetime

    from autarky.payload import image_reference, load_release
    from autarky.phases.context import IMAGE_COMPONENTS
    from autarky.pki import PkiStore
    from autarky.render.certificates import certificate_specs
    from autarky.render.values import Credentials, Inputs

    release = load_release(cluster.kubernetes_version)
    images = {component: image_reference(release, component) for component in IMAGE_COMPONENTS}
    specs = certificate_specs(cluster)
    if with_pki:
        store = PkiStore(pki)
        store.ensure(specs, cluster.certificates, datetime.now(UTC))
        return Inputs(cluster, images, Credentials(store.files()))
    names = [spec.name for spec in specs] + ["ca", "front-proxy-ca", "etcd/ca", "sa"]
    files = {f"{name}.{end}": f"<{name}.{end}>\n".encode() for name in names for end in ("crt", "key", "pub")}
    return Inputs(cluster, images, Credentials(files))


def write_manifests(inputs: Inputs, directory: Path) -> list[Path]:
    """One file per part, numbered in the order in which they are applied."""
    from autarky.render.objects import agent_parts, parts

    written = []
    for number, part in enumerate([*parts(inputs), *agent_parts(inputs)]):
        path = directory / f"{number:02d}-{part.name}.yaml"
        _write(path, "---\n".join(_yaml(obj) for obj in part.objects).encode(), 0o600)
        written.append(path)
    return written


def write_hosts(inputs: Inputs, directory: Path) -> list[Path]:
    """Every node's files under its name, at the paths they have on the host."""
    from autarky.render import node as render_node
    from autarky.render import standby

    written = []
    for node in inputs.cluster.nodes:
        files: list[File] = [*render_node.system_files(inputs, node), *render_node.kubelet_files(inputs, node)]
        files += [*render_node.static_pods(inputs, node).values(), *render_node.agent_pod(inputs, node).values()]
        if node.control_plane:
            files.append(render_node.first_kubeconfig(inputs, node))
            for component in standby.COMPONENTS:
                files += standby.revision(inputs, component).files
        for file in files:
            path = directory / node.name / file.path.lstrip("/")
            _write(path, file.content, file.mode)
            written.append(path)
    return written


def write_certificates(cluster: Cluster, directory: Path) -> list[Path]:
    from dataclasses import asdict

    from autarky.render.certificates import certificate_specs

    path = directory / "certificates.yaml"
    specs = [
        {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(s).items()}
        for s in certificate_specs(cluster)
    ]
    _write(path, _yaml(specs).encode(), 0o644)
    return [path]


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    from autarky.store import write_private

    write_private(path, content, mode=mode)
