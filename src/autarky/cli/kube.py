"""`autarky kubeconfig` and `autarky kubectl`: the user's way into the cluster."""

from __future__ import annotations

import os
from pathlib import Path

import click

from autarky.cli.options import cluster_options
from autarky.errors import UserError


def kubeconfig_path(file: Path | None, cluster: str | None) -> Path:
    """The cluster's kubeconfig; UserError when `up` has not written one yet."""
    from autarky.cli.wiring import directory_of

    path = directory_of(file, cluster) / "kubeconfig"
    if not path.exists():
        raise UserError(f"there is no kubeconfig at {path}", fix="run `autarky up` first")
    return path


@click.command()
@cluster_options
@click.option("--path", "only_path", is_flag=True, help="Print the file's path instead of its content.")
def kubeconfig(file: Path | None, cluster: str | None, only_path: bool) -> None:
    """Print the cluster's kubeconfig (it holds a private key)."""
    path = kubeconfig_path(file, cluster)
    click.echo(str(path) if only_path else path.read_text(), nl=only_path)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, add_help_option=False
)
@click.option("--cluster", metavar="NAME", help="The cluster; default: the only one there is.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(cluster: str | None, arguments: tuple[str, ...]) -> None:
    """Run the payload's kubectl on the cluster: `autarky kubectl get pods -A`."""
    from autarky.payload import default_version, find_binary, load_release

    path = kubeconfig_path(None, cluster)
    program = find_binary(load_release(default_version()), "kubectl")
    if program is None:
        raise UserError("kubectl is not in the store", fix="run `autarky payload get`")
    os.execve(program.path, ["kubectl", *arguments], {**os.environ, "KUBECONFIG": str(path)})  # noqa: S606 # no shell
