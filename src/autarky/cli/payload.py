"""`autarky payload`: the components of a release, in the store on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import output_option
from autarky.cli.payload_etcd import etcd
from autarky.cli.say import say
from autarky.cli.session import operation, run_async
from autarky.errors import UserError
from autarky.model.components import CONTAINER_RUNTIME
from autarky.model.versions import Version

if TYPE_CHECKING:
    from autarky.payload import Release

_HEADINGS = ("RELEASE", "KIND", "NAME", "VERSION", "GROUP", "SIZE", "SHA256")


@click.group()
def payload() -> None:
    """Get, list and check the components of a Kubernetes release."""


payload.add_command(etcd)


def _versions(texts: Sequence[str]) -> list[Version]:
    from autarky.payload import default_version

    try:
        return [Version.parse(text) for text in texts] or [default_version()]
    except ValueError as error:
        raise UserError(str(error), fix="write it as 1.36.4") from error


@payload.command(short_help="Get the components of a VERSION; build those that are missing.")
@click.argument("versions", nargs=-1, metavar="[VERSION]...")
@click.option(
    "--group",
    "groups",
    multiple=True,
    type=click.Choice(["cluster", "test", "bench", "conformance", "s3", "scale"]),
    help="Components for: cluster (what `up` needs), test (what labs need besides), bench (kubeadm, to compare with),"
    " conformance (Kubernetes' own end-to-end tests), s3 (a server for tests of backups), scale (kwok, which simulates"
    " nodes). Repeatable; default: cluster, test.",
)
@click.option("--all", "every", is_flag=True, help="Of every known version.")
@output_option
def get(versions: Sequence[str], groups: Sequence[str], every: bool, output: str) -> None:
    """Make sure that the components of a VERSION are in the store; build those that are missing (minutes, once)."""
    from autarky.payload import known_versions

    if every and versions:
        raise click.UsageError("--all and VERSION exclude each other.")
    groups = groups or ("cluster", "test")
    wanted = list(known_versions()) if every else _versions(versions)
    run_async(lambda: _get(wanted, groups, output))
    if output != "json":
        for version in wanted:
            click.echo(_table(version, groups))


async def _get(versions: Sequence[Version], groups: Sequence[str], output: str) -> None:
    from autarky.payload import get_payload, load_release

    for version in versions:
        async with operation(f"get the components of Kubernetes {version}", output) as progress:
            await get_payload(load_release(version), progress, groups=groups)


@payload.command("list", short_help="List the components of each known release.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def list_(output: str) -> None:
    """List the components of each known release and whether the store has them."""
    from autarky.payload import known_versions, unusable_files

    if output == "json":
        click.echo(json.dumps([row for version in known_versions() for row in _rows(version)], indent=2))
        return
    for version in known_versions():
        click.echo(_table(version))
    for error in unusable_files():
        say(f"this release file cannot be used: {error}", err=True)


def _rows(version: Version) -> list[dict[str, object]]:
    from autarky.payload import load_release, stored_artefacts

    return [{"release": str(version), **asdict(artefact)} for artefact in stored_artefacts(load_release(version))]


def _table(version: Version, groups: Sequence[str] = ()) -> str:
    """The components of those groups, or all."""
    from autarky.ui.tables import columns

    rows = [_cells(row) for row in _rows(version) if not groups or row["group"] in groups]
    return "\n".join(columns([_HEADINGS, *rows], right=[_HEADINGS.index("SIZE")]))


def _cells(row: dict[str, object]) -> tuple[str, ...]:
    size = f"{int(str(row['size'])) / 1e6:.1f} MB" if row["sha256"] else "-"
    digest = str(row["sha256"] or "not in the store")[:16]
    return (*(str(row[name]) for name in ("release", "kind", "name", "version", "group")), size, digest)


@payload.group(short_help="Make and add release files, each for a version of Kubernetes.")
def release() -> None:
    """Make and add release files, which pin every input of a version of Kubernetes."""


@release.command("new", short_help="Make a release file and its recipes for VERSION.")
@click.argument("version")
@click.option(
    "--to",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write it. Default: AUTARKY_RELEASES, or ~/.local/share/autarky/releases.",
)
@output_option
def new(version: str, directory: Path | None, output: str) -> None:
    """Make a release file and its recipes for VERSION; everything but Kubernetes itself is as in the other releases.

    Needs Go's module proxy. Afterwards `autarky payload get VERSION` builds the version, and cluster files can name it.
    """
    from autarky import places
    from autarky.payload.release_files import directories as release_directories

    wanted = _versions([version])[0]
    path = run_async(lambda: _new(wanted, directory or places.releases_dir(), output))
    if output != "json":
        known = path.parent in release_directories()
        elsewhere = "" if known else f"AUTARKY_RELEASES={path.parent} "
        click.echo(f"{path}\nnext: {elsewhere}autarky payload get {wanted}")


async def _new(version: Version, directory: Path, output: str) -> Path:
    from autarky.payload.new_release import new_release

    async with operation(f"make a release file for Kubernetes {version}", output) as progress:
        return await new_release(version, directory.absolute(), progress)


@release.command("add", short_help="Install a release file and the recipes beside it.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def add(file: Path, output: str) -> None:
    """Install a release file and the recipes beside it, so that its version is known on this machine."""
    release = run_async(lambda: _add(file.resolve(), output))
    if output != "json":
        click.echo(f"Kubernetes {release.kubernetes} is now known\nnext: autarky payload get {release.kubernetes}")


async def _add(file: Path, output: str) -> Release:
    from autarky.payload.new_release import add_release

    async with operation("add a release file", output) as progress:
        return await add_release(file, progress)


@payload.command(short_help="Verify every blob in the store, and remove damaged ones.")
@output_option
def verify(output: str) -> None:
    """Compare every blob in the store with its digest, and remove damaged ones."""
    damaged = run_async(lambda: _verify(output))
    if damaged:
        short = ", ".join(digest[:16] for digest in damaged)
        raise UserError(f"{len(damaged)} damaged blobs were removed: {short}", fix="run `autarky payload get`")
    click.echo("every blob in the store matches its digest")


async def _verify(output: str) -> list[str]:
    from autarky.payload import verify_store

    async with operation("verify the store", output) as progress:
        return await verify_store(progress)


@payload.command(short_help="Remove what no known release or version of etcd needs.")
@output_option
def prune(output: str) -> None:
    """Remove what no known release or version of etcd needs: old builds, old layers, image directories of labs.

    Refused while a cluster of this machine is of a version that is not known: what it is made of is not known either.
    """
    freed = run_async(lambda: _prune(output))
    click.echo(f"freed {freed / 1e6:.0f} MB")


async def _prune(output: str) -> int:
    from autarky.cli.wiring import refuse_clusters_of_unknown_versions
    from autarky.payload import prune_store

    async with operation("prune the store", output) as progress:
        refuse_clusters_of_unknown_versions()
        return await prune_store(progress)


@payload.command(short_help="Import the images of a release on every node.")
@click.argument("version")
@click.option("--cluster", metavar="NAME", help="The cluster; default: the only one there is.")
@click.option(
    "--container-runtime",
    "with_runtime",
    is_flag=True,
    help="Also the image with its containerd and runc, for spec.kubelets.runtime of the ControlPlane.",
)
@output_option
def push(version: str, cluster: str | None, with_runtime: bool, output: str) -> None:
    """Import the images of a release on every node, so that `kubectl set image` and an upgrade work without a registry.

    Also the image autarky.dev/kubelet, in which its kubelet comes.
    """
    [found] = _versions([version])
    run_async(lambda: _push(found, cluster, output, with_runtime=with_runtime))
    click.echo(f"the images of Kubernetes {version.removeprefix('v')} are on every node")
    if with_runtime:
        click.echo(f"its container runtime is {_runtime_of(found)}")


def _runtime_of(version: Version) -> str:
    from autarky.payload import image_reference, load_release

    return image_reference(load_release(version), CONTAINER_RUNTIME)


async def _push(version: Version, name: str | None, output: str, *, with_runtime: bool) -> None:
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.payload import get_payload, load_release
    from autarky.phases.images import push_images

    context = build_context(load_cluster(None, name))
    try:
        async with operation(f"push Kubernetes {version} to every node", output) as progress:
            pushed = await get_payload(load_release(version), progress)
            await push_images(context, pushed, progress, with_runtime=with_runtime)
    finally:
        await context.close()
