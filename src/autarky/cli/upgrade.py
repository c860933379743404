"""`autarky upgrade`: another version of Kubernetes for the control plane, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autarky.cli.options import Duration, cluster_options, confirm, dry_run_option, output_option, yes_option
from autarky.cli.say import of_nodes, say
from autarky.cli.session import run_async, run_phases
from autarky.cli.version_or_command import ToVersion, VersionOrCommand
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model.versions import Version

if TYPE_CHECKING:
    from autarky.phases.context import Context
    from autarky.ports import Object

WATCH_SECONDS = 1.0

soak_option = click.option(
    "--soak",
    type=Duration(or_none=True),
    help="For how long the new binaries emulate the minor from before, while everything can go back; such as 24h. 0"
    " raises them at once. Default: as the cluster file or the ControlPlane says.",
)


@click.command("to", cls=ToVersion)
@click.argument("version")
@soak_option
@cluster_options
@output_option
@dry_run_option
def to(version: str, soak: float | None, file: Path | None, cluster: str | None, output: str, dry_run: bool) -> None:
    """Upgrade the control plane to VERSION."""
    _upgrade(_version(version), soak, file, cluster, output, dry_run=dry_run)


@click.group(
    cls=VersionOrCommand,
    to_version=to,
    options_metavar=None,
    subcommand_metavar="VERSION [OPTIONS] | COMMAND [ARGS]...",
)
def upgrade() -> None:
    """Upgrade the control plane to VERSION, such as 1.37.1, or take it back, while the API serves.

    Puts the images on every node, asks the operator for the version, and waits until it has carried that out: API
    servers, controller-manager, scheduler, kube-proxy, and then each node's kubelet; down in the other order. A step or
    a kubelet that is not healthy in time goes back by itself, and the upgrade stops there. The command may be
    interrupted: the upgrade goes on without it.

    The same as `spec.version` of the ControlPlane, or a new version in the cluster file with `autarky up`. How kubelets
    follow, and which do not: `docs/kubelet.md`.
    """


def _version(text: str) -> Version:
    """UserError also where this autarky does not know it, before anything is built or asked."""
    from autarky.payload import load_release

    try:
        version = Version.parse(text)
    except ValueError as error:
        raise UserError(str(error), fix="write it as 1.37.1") from error
    load_release(version)
    return version


@upgrade.command(short_help="Check an upgrade to VERSION, and show what would be done.")
@click.argument("version")
@soak_option
@cluster_options
@output_option
def check(version: str, soak: float | None, file: Path | None, cluster: str | None, output: str) -> None:
    """Check whether the control plane can go to VERSION, and show what would be done. Changes nothing."""
    _upgrade(_version(version), soak, file, cluster, output, dry_run=True)


def _upgrade(
    version: Version, soak: float | None, file: Path | None, cluster: str | None, output: str, *, dry_run: bool
) -> None:
    seconds = None if soak is None else _seconds(soak)
    absent, soaks = run_async(lambda: _carry_out(version, seconds, file, cluster, output, dry_run=dry_run))
    ended, left_out = soaks or f"the control plane is of version {version}", of_nodes(absent)
    if left_out and dry_run:
        say(f"planned without these nodes: {left_out}", err=True)
    elif left_out:
        raise Unreachable(
            f"{ended}, but nodes were left out: {left_out}\n  fix: run the command again when that is fixed"
        )
    if output != "json" and not dry_run:
        say(ended)


def _seconds(soak: float) -> int:
    from autarky.model.cluster import MOST_SOAK_SECONDS

    if soak > MOST_SOAK_SECONDS:
        raise UserError(f"a soak of {soak:g} s is too long", fix=f"use {MOST_SOAK_SECONDS // 3600}h or less")
    return math.ceil(soak)


async def _carry_out(
    version: Version, soak: int | None, file: Path | None, cluster: str | None, output: str, *, dry_run: bool
) -> tuple[dict[str, str], str]:
    """Returns the nodes that were left out, with the reasons, and how the control plane was left if it soaks."""
    from autarky.cli.wiring import build_context, load_cluster
    from autarky.phases.upgrade import FindCluster, UpgradeControlPlane

    context = build_context(load_cluster(file, cluster))
    context.upgrades = True  # a file that has the version already contradicts nothing
    workers = [node.name for node in context.cluster.workers]
    try:
        await run_phases(
            "upgrade",
            f"Kubernetes {version} for the control plane of cluster {context.cluster.name}",
            (FindCluster(), UpgradeControlPlane(version, soak)),
            context,
            directory=context.directory,
            output=output,
            dry_run=dry_run,
            hosts_locked=partial(context.machines.locked, passes_workers=workers),
        )
        return context.absent, context.soaks
    finally:
        await context.close()


# --- one look at the API, or one edit --------------------------------------------------------------------


def _with_context(work: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A command that gets the context, whose hosts were looked at."""

    @wraps(work)
    def command(file: Path | None, cluster: str | None, **options: Any) -> None:
        async def run() -> None:
            from autarky.cli.wiring import build_context, load_cluster
            from autarky.phases.hosts import observe

            context = build_context(load_cluster(file, cluster, any_release=True))
            try:
                await observe(context)
                await work(context, **options)
            finally:
                await context.close()

        run_async(run)

    return command


def _with_plane(work: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A command that gets the ControlPlane object as well."""

    @wraps(work)
    async def with_plane(context: Context, **options: Any) -> None:
        await work(context, await _plane(context), **options)

    return _with_context(with_plane)


async def _plane(context: Context) -> Object:
    """UserError where there is none, and where the API refuses to show it, which does not pass by itself."""
    from autarky.phases.version_check import needed_control_plane
    from autarky.ui.text import sentence

    try:
        return await needed_control_plane(context.kube())
    except ApiError as error:
        if error.status not in (401, 403):
            raise
        raise UserError(
            f"the API refuses the credentials of this machine: {sentence(str(error))}",
            fix="fetch others with `autarky login HOST` (a control node), or use a machine that has valid ones",
        ) from error


@upgrade.command(short_help="Show the present and the wanted version, and what is being done.")
@cluster_options
@click.option("--watch", "-w", is_flag=True, help="Show each change, until all is complete or has stopped.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
@_with_plane
async def status(context: Context, plane: Object, *, watch: bool, output: str) -> None:
    """Show which version the control plane has, which one is wanted, and what is being done; and the same of kubelets:
    how many have theirs, which ones change, which ones wait, and why."""
    shown, nodes, since = "", await _nodes(context, plane), time.monotonic()
    while True:
        is_json = output == "json"
        text = json.dumps(_fields(plane, nodes), indent=None if watch else 2) if is_json else _sentences(plane, nodes)
        if text != shown:
            say(text)
            shown, since = text, time.monotonic()
        if not watch or _has_ended(plane, nodes, time.monotonic() - since):
            return
        plane, nodes = await _next_look(context)


def _has_ended(plane: Object, nodes: list[Object], still: float) -> bool:
    """still: for how many seconds nothing has changed."""
    from autarky.cli import upgrade_kubelets
    from autarky.control.upgrade.decide.reported import State, read

    found = read(plane)
    if found is not None and found.state is State.COMPLETE:
        return not upgrade_kubelets.are_awaited(plane, nodes, still)
    return found is not None and found.state in (State.STOPPED, State.REFUSED)


async def _nodes(context: Context, plane: Object) -> list[Object]:
    """Where kubelets are hosted: each Node says of its own whether it is in force."""
    from autarky.control.kubelet.decide.wanted import is_hosted

    return await context.kube().list("v1", "Node") if is_hosted(plane) else []


async def _next_look(context: Context) -> tuple[Object, list[Object]]:
    """Waits for an API that is away, and says so once; and once that it is back. One that starts may answer with any
    error, except for a refusal: our credentials are a group's that each API server knows from its start."""
    from autarky.ui.text import sentence

    away = False
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            plane = await _plane(context)
            nodes = await _nodes(context, plane)
        except (Unreachable, ApiError) as error:
            if not away:
                what = "does not answer" if isinstance(error, Unreachable) else "answers with an error"
                say(f"the API {what}, and is waited for: {sentence(str(error))}", err=True)
            away = True
            continue
        if away:
            say("the API answers again", err=True)
        return plane, nodes


def _fields(plane: Object, nodes: list[Object]) -> dict[str, Any]:
    from autarky.cli import upgrade_kubelets
    from autarky.control.upgrade.decide import reported

    found = reported.read(plane)
    texts = {
        "version": reported.complete_version(plane),
        "wanted": reported.wanted_version(plane),
        "former": reported.former_version(plane),
    }
    return {
        **{name: None if version is None else str(version) for name, version in texts.items()},
        "state": None if found is None else str(found.state),
        "component": found.component if found is not None and found.component else None,
        "nodes": list(found.nodes) if found is not None else [],
        "until": None if found is None or found.until is None else reported.stamp(found.until),
        "next": list(found.to_come) if found is not None else [],
        "soakingUntil": None if (soaks := reported.soaking(plane)) is None else reported.stamp(soaks.until),
        "message": None if found is None else found.message,
        "layers": (plane.get("status") or {}).get("layers") or [],
        "kubelets": upgrade_kubelets.fields(plane, nodes),
    }


def _sentences(plane: Object, nodes: list[Object]) -> str:
    from autarky.cli import upgrade_kubelets
    from autarky.ui.tables import columns
    from autarky.ui.text import one_line

    found = _fields(plane, nodes)
    state = found["state"] or "the operator has not begun"
    head = f"version {found['version']}, wanted {found['wanted']}: {state}"
    rows = [("LEVEL", "COMPONENT", "SLOT", "READY", "VERSIONS")]
    for layer in found["layers"]:
        cells = (layer["level"], layer["component"], layer["slot"], layer["ready"], ", ".join(layer["versions"]))
        rows.append(tuple(one_line(str(cell)) for cell in cells))  # type: ignore[arg-type]
    message = [one_line(found["message"])] if found["message"] else []
    if found["nodes"]:
        by = f", decided until about {found['until']}" if found["until"] else ""
        message.append(one_line(f"waits for {', '.join(found['nodes'])}{by}"))
    if found["next"]:
        message.append(one_line(f"then {', '.join(found['next'])}"))
    kubelets = map(one_line, upgrade_kubelets.sentences(plane, nodes))
    return "\n".join([one_line(head), *message, *kubelets, "", *columns(rows)])


@upgrade.command()
@cluster_options
@_with_plane
async def pause(context: Context, plane: Object) -> None:
    """Take no further step of an upgrade. A step that has begun ends, or goes back."""
    from autarky.control.upgrade.decide.reported import State, read

    await _edit(context, {"spec": {"paused": True}})
    found = read(plane)
    if found is not None and found.state is State.UPGRADING:
        say(f"under way: {found.message}")
    say("no further step is taken until `autarky upgrade resume`")


@upgrade.command()
@cluster_options
@_with_plane
async def resume(context: Context, plane: Object) -> None:
    """Go on with an upgrade that is paused."""
    from autarky.control.upgrade.decide.reported import is_paused

    if not is_paused(plane):
        raise UserError("upgrades are not paused", fix="`autarky upgrade status` shows what is being done")
    await _edit(context, {"spec": {"paused": None}})
    say("upgrades go on")


@upgrade.command(short_help="Give up an upgrade that is under way, and go back.")
@cluster_options
@yes_option
@_with_plane
async def abort(context: Context, plane: Object, *, yes: bool) -> None:
    """Give up an upgrade that is under way: everything goes back to the version from before it."""
    from autarky.control.upgrade.decide.reported import State, complete_version, read

    before, found = complete_version(plane), read(plane)
    if before is None or (found is not None and found.state is State.COMPLETE):
        raise UserError("no upgrade is under way", fix="`autarky upgrade rollback` takes back one that is complete")
    confirm(f"Take the control plane back to {before}?", yes=yes)
    await _go_back(context, before)
    say(f"the control plane goes back to {before}: `autarky upgrade status --watch`")


@upgrade.command(short_help="Take back the last upgrade, complete or not.")
@cluster_options
@output_option
@dry_run_option
@yes_option
@click.option(
    "--accept-newer-kubelets",
    "accepts_kubelets",
    is_flag=True,
    help="With the API down: also where control nodes' kubelets are of the later minor. Those that follow go back by"
    " themselves once an API answers: see docs/upgrade.md.",
)
@_with_context
async def rollback(context: Context, *, output: str, dry_run: bool, yes: bool, accepts_kubelets: bool) -> None:
    """Take back the last upgrade, complete or not: the control plane goes to the version that it had before.

    Where the API does not answer, the API servers go back first, by the standbys that control nodes keep of the former
    version: see docs/upgrade.md.
    """
    from autarky.cli.upgrade_offline import roll_back

    if await context.api_answers():
        await _roll_back(context, await _plane(context), yes=yes, dry_run=dry_run)
    else:
        await roll_back(context, output, yes=yes, dry_run=dry_run, accepts_kubelets=accepts_kubelets)


async def _roll_back(context: Context, plane: Object, *, yes: bool, dry_run: bool) -> None:
    from autarky.control.upgrade.decide.reported import complete_version, goes_back_to

    before, now = goes_back_to(plane), complete_version(plane)
    if before is None:
        raise UserError(
            f"there is no version to go back to: the control plane is of {now}, and was not upgraded to it",
            fix="`autarky upgrade VERSION` names one",
        )
    first = await _kubelets_first(context, plane, before)
    if dry_run:
        say(f"set spec.version of the ControlPlane to {before}")
        if first:
            say(first)
        return
    confirm(f"Take the control plane back to {before}?", yes=yes)
    await _go_back(context, before)
    say(first or f"the control plane goes back to {before}: `autarky upgrade status --watch`")


async def _kubelets_first(context: Context, plane: Object, before: Version) -> str:
    """What happens, or is to be done, before anything goes back; empty where nothing is."""
    from autarky.control.common.skew import minor_of
    from autarky.control.kubelet.decide.wanted import follows
    from autarky.phases.kubelets import versions

    found = await versions(context)
    newer = {name: one for name, one in found.items() if one is not None and minor_of(one) > minor_of(before)}
    if not newer:
        return ""
    said = of_nodes({name: str(version) for name, version in sorted(newer.items())})
    first = f"kubelets go back first, since none may be newer than an API server (rule 4): {said}"
    if follows(plane):
        return f"{first}. Then the control plane goes back to {before}: `autarky upgrade status --watch`"
    return f"{first}. Run `autarky up` with the present version first: then they do so by themselves"


async def _go_back(context: Context, before: Version) -> None:
    from autarky.control.upgrade.decide.reported import going_back

    await _edit(context, going_back(before))


async def _edit(context: Context, edit: Object) -> None:
    from autarky.render.crds import API_VERSION, CONTROL_PLANE

    await context.kube().patch(API_VERSION, "ControlPlane", CONTROL_PLANE, edit)
