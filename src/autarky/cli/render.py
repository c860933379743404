"""`autarky render`: everything that `up` would put on hosts and into the API, as files.

Contract: nothing is written outside of DIRECTORY, and no host is changed. What is not known is a placeholder:
addresses of hosts that were not asked, keys that were not asked for. Existing CAs are never replaced.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky import places
from autarky.cli.options import cluster_options
from autarky.cli.say import of_nodes
from autarky.cli.session import operation, run_async
from autarky.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autarky.model.cluster import Cluster
    from autarky.phases.context import Context
    from autarky.render.values import Inputs


@click.command()
@cluster_options
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--ask-hosts", is_flag=True, help="With -f: ask the hosts for their addresses and capabilities.")
@click.option(
    "--with-pki",
    is_flag=True,
    help="With -f: include keys and certificates (mode 0600): those of the cluster if they are here, else new ones.",
)
@click.option("--with-payload", is_flag=True, help="Include the binaries and images (1 GB).")
def render(
    file: Path | None, cluster: str | None, directory: Path, ask_hosts: bool, with_pki: bool, with_payload: bool
) -> None:
    """Write all manifests, static pods, unit files and certificate specifications into DIRECTORY.

    An existing cluster (--cluster NAME, or the only one) is rendered with its own keys, addresses, and edits of the
    ControlPlane. A file (-f FILE) is rendered with placeholders for what is not known, unless --ask-hosts and
    --with-pki are given. DIRECTORY must be empty or absent; protect it if it contains keys. docs/by-hand.md shows how
    to bring a cluster up from it by hand.
    """
    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory} is not empty", fix="name a directory that is empty or does not exist")
    run_async(lambda: _render(file, cluster, directory, ask_hosts, with_pki, with_payload))


async def _render(
    file: Path | None, name: str | None, directory: Path, ask_hosts: bool, with_pki: bool, with_payload: bool
) -> None:
    from autarky.cli import render_files
    from autarky.cli.wiring import build_context, load_cluster

    wanted = load_cluster(file, name)
    context = build_context(wanted)
    try:
        if file is None:
            inputs = await _live_inputs(context)
        else:
            inputs = await _inputs_of_file(context, directory, ask_hosts=ask_hosts, with_pki=with_pki)
        written = render_files.write_all(inputs, directory, in_file=context.in_file)
        if with_payload:
            async with operation(f"add the components of Kubernetes {wanted.kubernetes_version}", "plain") as progress:
                written += await render_files.write_payload(context.release, context.cluster, directory, progress)
    finally:
        await context.close()
    click.echo(f"{len(written)} files in {directory}")


# --- what there is to render ----------------------------------------------------------------------------------


async def _live_inputs(context: Context) -> Inputs:
    """The cluster as `up` would leave it now: its own keys, its hosts' addresses, edits of its ControlPlane. A host
    that does not answer has its last known address."""
    from autarky.phases.hosts import look
    from autarky.phases.ownership import FollowControlPlane

    await look(context)
    if not context.addresses_known or not context.pki.complete():
        raise UserError(
            f"the addresses or keys of the cluster {context.cluster.name} are not known here",
            fix="run `autarky up` from here, or render its file: -f FILE --ask-hosts --with-pki",
        )
    await FollowControlPlane().plan(context)
    return context.inputs()


async def _inputs_of_file(context: Context, directory: Path, *, ask_hosts: bool, with_pki: bool) -> Inputs:
    from autarky.control.addons import images_of
    from autarky.payload import image_reference
    from autarky.phases.hosts import look
    from autarky.render.values import Credentials, Inputs

    if ask_hosts:
        await look(context)
        if context.absent:
            raise UserError(
                f"not all hosts answer: {of_nodes(context.absent)}", fix="power them on, or leave out --ask-hosts"
            )
    wanted = with_some_addresses(context.cluster)
    images = {name: image_reference(context.release, name) for name in images_of(wanted)}
    credentials = _keys(wanted, directory / "pki") if with_pki else placeholders(wanted)
    return Inputs(wanted, images, Credentials(credentials), context.facts)


def with_some_addresses(cluster: Cluster) -> Cluster:
    """Addresses of 192.0.2.0/24 (RFC 5737) for nodes that have none yet, and for the test host of an external etcd."""
    addresses = {node.name: node.address or f"192.0.2.{11 + number}" for number, node in enumerate(cluster.nodes)}
    if cluster.etcd_host is not None:
        addresses[cluster.etcd_host.name] = cluster.etcd_host.address or "192.0.2.10"
    return cluster.with_addresses(addresses)


def placeholders(cluster: Cluster) -> Mapping[str, bytes]:
    """Placeholders for keys and certificates."""
    from autarky.control.certificates.manifests.leaves import first_specs
    from autarky.control.certificates.manifests.specs import certificate_specs

    first = [spec for spec, _ in first_specs(cluster, cluster.control_nodes)]
    names = [spec.name for spec in [*certificate_specs(cluster), *first]]
    names += ["ca", "front-proxy-ca", "etcd/ca", "sa", "apiserver-etcd-client"]
    return {f"{name}.{end}": f"<{name}.{end}>\n".encode() for name in names for end in ("crt", "key", "pub")}


def _keys(cluster: Cluster, directory: Path) -> Mapping[str, bytes]:
    """Put keys and certificates into that directory: a copy of those that the cluster has on this machine, and new ones
    for what it lacks. Its CAs are used, so that running components trust what they sign."""
    from datetime import UTC, datetime

    from autarky.control.certificates.manifests.specs import authorities, certificate_specs
    from autarky.phases.context import external_etcd_files, with_first_leaves
    from autarky.pki import PkiStore
    from autarky.store import write_private

    own = PkiStore(places.cluster_dir(cluster.name) / "pki")
    with suppress(FileNotFoundError):
        for name, content in own.files().items():
            write_private(directory / name, content)
    store = PkiStore(directory)
    store.ensure(certificate_specs(cluster), cluster.certificates, datetime.now(UTC), authorities(cluster))
    return with_first_leaves(cluster, {**store.files(), **external_etcd_files(cluster)})
