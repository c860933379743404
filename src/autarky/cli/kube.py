"""`autarky kubeconfig` and `autarky kubectl`: the user's way into the cluster.

kubectl takes one server. Any control node's load balancer leads to every API server, so that one control node that
is up is enough: both commands point the kubeconfig at a server that answers before they use it.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import cluster_options
from autarky.errors import UserError
from autarky.model.patience import HEAD_START

if TYPE_CHECKING:
    from autarky.kube.kubeconfig import Kubeconfig


def answering_kubeconfig(file: Path | None, cluster: str | None) -> Path:
    """The cluster's kubeconfig, pointing at a server that answers if there is one."""
    from autarky.cli.session import run_async

    path = kubeconfig_path(file, cluster)
    run_async(lambda: turn_to_a_server_that_answers(path))
    return path


async def turn_to_a_server_that_answers(path: Path) -> None:
    """If the file's server does not answer and an equivalent one does, use that one instead."""
    from autarky.kube.kubeconfig import read_kubeconfig
    from autarky.store import write_private

    found = read_kubeconfig(path)
    if found.others and (better := await _first_that_answers(found)) != found.server:
        old, new = (f'"server": {json.dumps(server)}'.encode() for server in (found.server, better))
        write_private(path, path.read_bytes().replace(old, new))


async def _first_that_answers(found: Kubeconfig) -> str:
    """The file's own server has a head start, since it may be slow; it is kept if none answers."""
    asked = {asyncio.create_task(_answers(found, found.server)): found.server}
    try:
        await asyncio.wait(asked, timeout=HEAD_START)
        if not any(_said_yes(task) for task in asked):
            asked |= {asyncio.create_task(_answers(found, server)): server for server in found.others}
        while not any(_said_yes(task) for task in asked) and (left := [task for task in asked if not task.done()]):
            await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        return next((server for task, server in asked.items() if _said_yes(task)), found.server)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


def _said_yes(task: asyncio.Task[bool]) -> bool:
    return task.done() and task.result()


async def _answers(found: Kubeconfig, server: str) -> bool:
    from autarky.kube import KubeClient

    client = KubeClient(
        [server],
        ca_pem=found.ca_pem,
        client_cert_pem=found.client_cert_pem,
        client_key_pem=found.client_key_pem,
    )
    try:
        return await client.healthy("/readyz") is None
    finally:
        await client.close()


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
    """Print the cluster's kubeconfig, pointing at a control node that answers. It contains a private key."""
    path = answering_kubeconfig(file, cluster)
    click.echo(str(path) if only_path else path.read_text(), nl=only_path)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, add_help_option=False
)
@click.option("--cluster", metavar="NAME", help="The cluster; default: the only one there is.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def kubectl(context: click.Context, cluster: str | None, arguments: tuple[str, ...]) -> None:
    """Run kubectl, of the cluster's version, against the cluster: `autarky kubectl get pods -A`.

    Everything that follows is kubectl's, --help as well: once there is a cluster, it shows the help of kubectl.
    """
    try:
        path = answering_kubeconfig(None, cluster)
        program = kubectl_for(path.parent.name)
    except UserError:
        if not _asks_for_help(arguments):
            raise
        click.echo(context.get_help())
        return
    os.execve(program, ["kubectl", *arguments], {**os.environ, "KUBECONFIG": str(path)})  # noqa: S606 # no shell


def _asks_for_help(arguments: tuple[str, ...]) -> bool:
    """What follows a `--` is for a program in a container."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return before[:1] == ("help",) or not {"-h", "--help"}.isdisjoint(before)


def kubectl_for(cluster: str) -> Path:
    """The kubectl of the cluster's version, if it is known and in the store; otherwise that of the default version."""
    from autarky.cli.wiring import founded
    from autarky.payload import default_version, find_binary, known_versions, load_release

    there = founded(cluster)
    wanted = [default_version()] if there is None else [there.version, default_version()]
    versions = [version for version in wanted if version in known_versions()]
    for version in versions:
        program = find_binary(load_release(version), "kubectl")
        if program is not None:
            return program.path
    raise UserError("kubectl is not in the store", fix=f"run `autarky payload get {versions[0]}`")
