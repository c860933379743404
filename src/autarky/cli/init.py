"""`autarky init` and `autarky validate`: a cluster file to begin with, and whether one is right.

Contract: neither touches a host or a cluster. `init` replaces no file, and writes a whole one or none.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import file_option
from autarky.errors import Problems, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autarky.model.cluster import Cluster

DEFAULT_NAME = "home"
STANDARD_OUTPUT = Path("-")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Of file systems that have no hard links."""


@click.command()
@click.argument("path", metavar="[FILE]", type=click.Path(path_type=Path), default="cluster.yaml")
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="The cluster's name.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A machine: local, lab, or ssh://[USER@]HOST[:PORT]. Once for each node, control nodes first; default: one"
    " test host on this machine.",
)
@click.option(
    "--control-nodes", type=click.IntRange(min=1), help="How many of them. Default: three where there are three hosts."
)
def init(path: Path, name: str, hosts: tuple[str, ...], control_nodes: int | None) -> None:
    """Write a commented cluster file to begin with: cluster.yaml, or FILE; `-` is standard output."""
    from autarky.config import loads
    from autarky.config.starter import Wanted, starter
    from autarky.payload import default_version, known_versions

    nodes = hosts or ("lab",)
    wanted = Wanted(name, default_version(), nodes, control_nodes or (3 if len(nodes) >= 3 else 1))
    if wanted.control_nodes > len(nodes):
        raise UserError(
            f"{wanted.control_nodes} control nodes need as many hosts, and there are {len(nodes)}",
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
    """UserError where there is such a file already, or where it cannot be made."""
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
        raise UserError(f"{path} is there already", fix="name another file, or `-` for standard output") from None
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            Path(temporary).unlink(missing_ok=True)


def _put(temporary: Path, path: Path) -> None:
    """FileExistsError where there is one, which a rename would replace."""
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
    help="json: the whole file, with its defaults filled in and its paths made absolute.",
)
def validate(file: Path | None, output: str) -> None:
    """Check a cluster file, and touch nothing: all that is wrong with it, with line and remedy.

    What only the hosts can tell is checked by `plan` and `up`.
    """
    from autarky.cli.wiring import load_cluster
    from autarky.config import dump

    if file is None:
        raise click.UsageError("Name the cluster file with -f FILE.")
    cluster = load_cluster(file, None)
    if missing := list(_missing_files(cluster)):
        raise Problems("the cluster file names what is not there", missing)
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
            yield UserError(f"there is no {path}", where=field, fix="put it there, or correct the path")


def _summary(cluster: Cluster) -> str:
    roles = Counter("control node" if node.control_plane else "worker" for node in cluster.nodes)
    nodes = ", ".join(f"{number} {role}{'s' if number > 1 else ''}" for role, number in roles.items())
    return (
        f"the cluster file is right: {cluster.name}, {nodes}, Kubernetes {cluster.kubernetes_version},"
        f" levels {cluster.self_hosted_text} hosted"
    )
