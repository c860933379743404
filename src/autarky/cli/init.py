"""`autarky init` and `autarky validate`: write a cluster file to start from, and check one.

Contract: neither touches a host or a cluster. `init` never replaces a file, and writes it completely or not at all.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky import places
from autarky.cli.options import HOST_FORMS, file_option
from autarky.errors import Problems, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autarky.model.cluster import Cluster

DEFAULT_NAME = "home"
STANDARD_OUTPUT = Path("-")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of file systems without hard links."""


@click.command()
@click.argument("path", metavar="[FILE]", type=click.Path(path_type=Path), default="cluster.yaml")
@click.option(
    "--name", help=f"The cluster's name. Default: {DEFAULT_NAME}, or with a number where there is one already."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help=f"A machine: {HOST_FORMS}. Repeat for each node, control nodes first; default: one test host on this machine.",
)
@click.option(
    "--control-nodes",
    type=click.IntRange(min=1),
    help="How many of the hosts are control nodes. Default: 3 with three or more hosts, otherwise 1.",
)
def init(path: Path, name: str | None, hosts: tuple[str, ...], control_nodes: int | None) -> None:
    """Write a commented cluster file to start from: cluster.yaml, or FILE; `-` is standard output."""
    from autarky.config import loads
    from autarky.config.starter import Wanted, starter
    from autarky.payload import default_version, known_versions

    nodes = hosts or ("lab",)
    wanted = Wanted(_free_name(name), default_version(), nodes, control_nodes or (3 if len(nodes) >= 3 else 1))
    if wanted.control_nodes > len(nodes):
        raise UserError(
            f"{wanted.control_nodes} control nodes need {wanted.control_nodes} hosts, but there are only {len(nodes)}",
            fix="give a --host for each node",
        )
    text = starter(wanted)
    loads(text, "the new file", default_version=wanted.version, known_versions=known_versions())
    if path == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    _write_new(path, text)
    click.echo(
        f"{path} is written; next: edit it, then `autarky validate -f {path}` and `autarky up -f {path}`", err=True
    )


def _write_new(path: Path, text: str) -> None:
    """UserError if the file exists already or cannot be created."""
    if not path.name or os.path.isdir(path):  # noqa: PTH112 - Path.is_dir fails for a name that is too long
        raise UserError(f"{path} is a directory", fix="name a file in it")
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _put(Path(temporary), path)
    except FileExistsError:
        raise UserError(f"{path} already exists", fix="name another file, or `-` for standard output") from None
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            Path(temporary).unlink(missing_ok=True)


def _put(temporary: Path, path: Path) -> None:
    """FileExistsError if the file exists: a rename would replace it."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(path) from None
        temporary.rename(path)


def _cannot_write(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path}: {error.strerror}", fix="name a file in a directory that you may write to")


@click.command()
@file_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="json: print the complete file, with its defaults filled in and its paths made absolute.",
)
def validate(file: Path | None, output: str) -> None:
    """Check a cluster file without touching anything: report every error with its line and how to fix it.

    Anything that needs the hosts is checked by `plan` and `up`.
    """
    from autarky.cli.wiring import load_cluster
    from autarky.config import dump

    if file is None:
        raise click.UsageError("Name the cluster file with -f FILE.")
    cluster = load_cluster(file, None)
    if missing := list(_missing_files(cluster)):
        raise Problems("the cluster file names files that do not exist", missing)
    click.echo(json.dumps(dump(cluster), indent=2) if output == "json" else _summary(cluster))


def _missing_files(cluster: Cluster) -> Iterator[UserError]:
    external = (
        cluster.external_etcd if cluster.external_etcd is not None and not cluster.external_etcd.lab_host else None
    )
    named = {
        "spec.sshConfig": cluster.ssh_config,
        "spec.certificates.caDirectory": cluster.certificates.ca_directory,
        "spec.etcd.external.caFile": external.ca_file if external is not None else None,
        "spec.etcd.external.certFile": external.cert_file if external is not None else None,
        "spec.etcd.external.keyFile": external.key_file if external is not None else None,
    }
    for field, path in named.items():
        if path and not Path(path).exists():
            yield UserError(f"{path} does not exist", where=field, fix="create it, or correct the path")


def _summary(cluster: Cluster) -> str:
    roles = Counter("control node" if node.control_plane else "worker" for node in cluster.nodes)
    nodes = ", ".join(f"{number} {role}{'s' if number > 1 else ''}" for role, number in roles.items())
    return (
        f"the cluster file is valid: {cluster.name}, {nodes}, Kubernetes {cluster.kubernetes_version},"
        f" levels {cluster.self_hosted_text} hosted"
    )


def _free_name(given: str | None) -> str:
    """Not that of a cluster which this machine knows: `up` would take the one for the other. UserError."""
    if given is not None:
        if _is_known(given):
            raise UserError(
                f"there is already a cluster {given}, whose file is kept here",
                fix=f"choose another name, or use that file: `autarky up --cluster {given}`",
            )
        return given
    numbered = (f"{DEFAULT_NAME}-{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([DEFAULT_NAME], numbered) if not _is_known(name))


def _is_known(name: str) -> bool:
    """A name that is none is refused later, with the reason."""
    return "/" not in name and places.cluster_dir(name).exists()
