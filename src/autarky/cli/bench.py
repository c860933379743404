"""`autarky bench`: measure availability as a client sees it."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autarky.cli.options import Duration, cluster_options
from autarky.cli.say import say
from autarky.cli.session import operation, run_async
from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.ports import Progress
    from autarky.probe import Failure, Probe, Report

DEFAULT_DURATION = 30.0
FAREWELL = 10.0
"""Seconds that a command has to exit after SIGTERM, when the probe is stopped."""
REPORTED = 0.5
"""Seconds that the probe may be held up before the report mentions it."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What to probe and how, from the command line."""

    kubeconfig: Path
    servers: tuple[str, ...]
    rate: float
    timeout: float
    duration: float | None
    namespace: str
    read_only: bool
    command: tuple[str, ...]


@click.group()
def bench() -> None:
    """Measure availability as a client sees it."""


@bench.command(
    short_help="Probe the API, and report what a client would have noticed.",
    context_settings={"allow_interspersed_args": False},
)
@cluster_options
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Probe the cluster of this kubeconfig instead of one that autarky knows.",
)
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="URL",
    help="Connect to this server instead of the kubeconfig's (repeatable: each one must serve).",
)
@click.option(
    "--duration",
    type=Duration(),
    help="How long to probe: 30s, 5m, 1h; default: 30s, or while COMMAND runs.",
)
@click.option(
    "--rate",
    type=click.FloatRange(1, 2000),
    default=200.0,
    show_default=True,
    help="Requests per second, over all streams.",
)
@click.option("--timeout", type=Duration(), default=5.0, help="For one request, including the connection; default: 5s.")
@click.option("--namespace", default="autarky-probe", show_default=True, help="Where the probe writes its ConfigMaps.")
@click.option("--read-only", is_flag=True, help="No writes and no watch: nothing is created in the cluster.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print the report.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def probe(
    file: Path | None,
    cluster: str | None,
    kubeconfig: Path | None,
    servers: tuple[str, ...],
    duration: float | None,
    rate: float,
    timeout: float,
    namespace: str,
    read_only: bool,
    output: str,
    command: tuple[str, ...],
) -> None:
    """Probe the API with new and kept-alive connections, writes and a watch, and report what failed.

    With a COMMAND, run it and probe until it exits: autarky bench probe -- ./run autarky up -f cluster.yaml.
    It is a program, and not an alias of your shell. Its output goes to standard error, the report to standard output.

    Exits with 0 if nothing failed, with 1 if a request failed or no write was acknowledged, and otherwise with the
    status of a COMMAND that failed.
    """
    if kubeconfig is not None and (file is not None or cluster is not None):
        raise click.UsageError("--kubeconfig cannot be combined with -f FILE or --cluster NAME.")
    path = kubeconfig or _kubeconfig_of(file, cluster)
    if duration is None and not command:
        duration = DEFAULT_DURATION
    goal = Goal(path, servers, rate, timeout, duration, namespace, read_only, command)
    report, status = run_async(lambda: _probed(goal, output))
    say(as_json(report, status) if output == "json" else as_text(report, status))
    raise SystemExit(exit_code(report, status))


def exit_code(report: Report, status: int | None) -> int:
    """Failures of the probe win over those of the command; a signal that ended it counts as in a shell."""
    if not report.ok:
        return 1
    return 128 - status if status is not None and status < 0 else status or 0


async def _probed(goal: Goal, output: str) -> tuple[Report, int | None]:
    """The report, and the exit status of the command, if there was one."""
    _check_command(goal.command)
    # Two live displays would draw over each other: the command may have one.
    narration = "plain" if output == "json" or goal.command else "auto"
    async with operation("probe the API", narration) as progress:
        failures = _FailureNotes(progress)
        probe = _make_probe(goal, failures)
        try:
            async with probe:
                status = await _meanwhile(probe, goal, progress)
        except asyncio.CancelledError:
            progress.note(f"stopped; until then: {probe.report().verdict}")
            raise
        failures.flush()
        return probe.report(), status


def _make_probe(goal: Goal, failures: _FailureNotes) -> Probe:
    from autarky.kube.kubeconfig import read_kubeconfig
    from autarky.probe import Probe, Rates

    target = read_kubeconfig(goal.kubeconfig)
    return Probe(
        goal.servers or (target.server,),
        ca_pem=target.ca_pem,
        client_cert_pem=target.client_cert_pem,
        client_key_pem=target.client_key_pem,
        token=target.token,
        server_name=target.server_name,
        rates=Rates.shared(goal.rate, writes=not goal.read_only),
        timeout=goal.timeout,
        duration=goal.duration,
        namespace=goal.namespace,
        on_failure=failures,
    )


def _kubeconfig_of(file: Path | None, cluster: str | None) -> Path:
    from autarky.cli.kube import answering_kubeconfig

    return answering_kubeconfig(file, cluster)


# --- waiting -----------------------------------------------------------------------------------------


async def _meanwhile(probe: Probe, goal: Goal, progress: Progress) -> int | None:
    """Wait for what is probed: the command, or just the duration."""
    if goal.command:
        return await _run_command(goal.command)
    await _wait(probe, goal, progress)
    return None


async def _wait(probe: Probe, goal: Goal, progress: Progress) -> None:
    """Wait until the probe has ended by itself."""
    duration = goal.duration or DEFAULT_DURATION
    over = asyncio.create_task(probe.wait())
    try:
        begin = time.monotonic()
        while not over.done():
            progress.progress("probing", min(time.monotonic() - begin, duration), duration)
            await asyncio.wait({over}, timeout=1)
    finally:
        over.cancel()


def _check_command(command: Sequence[str]) -> None:
    """Before anything is started. Raises UserError if there is no such program."""
    if command and shutil.which(command[0]) is None:
        raise UserError(f"there is no program {command[0]}", fix="give the COMMAND with its path, or correct PATH")


async def _run_command(command: Sequence[str]) -> int:
    """Its exit status, negative for a signal. Stops it when the probe is stopped."""
    sys.stderr.flush()
    process = await asyncio.create_subprocess_exec(*command, stdout=2)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(FAREWELL):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        raise


class _FailureNotes:
    """Narrates failures, at most one line a second: an outage has hundreds."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._said = float("-inf")
        self._kept_back = 0

    def __call__(self, failure: Failure) -> None:
        if time.monotonic() - self._said < 1:
            self._kept_back += 1
            return
        self.flush()
        self._said = time.monotonic()
        self._progress.note(f"failed: {failure}")

    def flush(self) -> None:
        """Say how many were not reported one by one."""
        if self._kept_back:
            self._progress.note(f"and {self._kept_back:,} more failed")
            self._kept_back = 0


# --- output ------------------------------------------------------------------------------------------


def as_json(report: Report, status: int | None) -> str:
    return json.dumps({**report.as_dict(), "command_status": status}, indent=2)


def as_text(report: Report, status: int | None) -> str:
    """The verdict, and below it a table of the streams and who answered."""
    from autarky.ui.tables import columns

    rows: list[tuple[str, ...]] = [("STREAM", "REQUESTS", "FAILED", "P50", "P99", "MAX", "HOW")]
    for name, stream in report.streams.items():
        how = ", ".join(f"{kind} {number:,}" for kind, number in sorted(stream.failures.items()))
        times = [f"{1000 * seconds:.1f} ms" for seconds in (stream.p50, stream.p99, stream.max)]
        number = f"{report.watch_events if name == 'watch' else stream.requests:,}"
        rows.append((name, number, f"{stream.failed:,}", *times, how))
    table = columns(rows, right=range(1, 6))
    servers = [f"answered by {seen.server} at {seen.endpoint}" for seen in report.servers]
    held_up = [f"the probe itself was held up for up to {report.held_up:.1f} s"] if report.held_up > REPORTED else []
    ended = [f"the command exited with status {status}"] if status else []
    return "\n".join([report.verdict, "", *table, *servers, *held_up, *ended])
