"""`autarky`: the table of commands, and how every error is reported to the user.

Contract: results are on standard output, everything else on standard error. An AutarkyError is its text
and its exit code; anything else that escapes a command is a bug and shows its traceback. The exit codes are
in `EXIT_CODES` below and in docs/exit-codes.md.

Dangers: `autarky --help` must stay fast (under 150 ms): nothing but click and the errors is imported here.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from autarky import __version__
from autarky.cli.lazy import LazyCommand, LazyGroup
from autarky.errors import AutarkyError

COMPLETE_VARIABLE = "_AUTARKY_COMPLETE"
BUG = 70
BROKEN_PIPE = 141

COMMANDS = {
    "Cluster": {
        "init": LazyCommand("autarky.cli.init:init", "Write a commented cluster file to start from."),
        "validate": LazyCommand("autarky.cli.init:validate", "Check a cluster file without touching anything."),
        "up": LazyCommand("autarky.cli.up:up", "Bring a cluster up, or resume an earlier run."),
        "plan": LazyCommand("autarky.cli.up:plan", "Show what `up` would change."),
        "pivot": LazyCommand("autarky.cli.pivot:pivot", "Change which levels are hosted in a running cluster."),
        "unpivot": LazyCommand("autarky.cli.pivot:unpivot", "Move the control plane back to static pods."),
        "upgrade": LazyCommand("autarky.cli.upgrade:upgrade", "Upgrade the control plane, or take that back."),
        "node": LazyCommand("autarky.cli.node:node", "Add, remove and list nodes."),
        "login": LazyCommand("autarky.cli.login:login", "Fetch a cluster's state from one of its control nodes."),
        "down": LazyCommand("autarky.cli.down:down", "Remove a cluster from its machines."),
        "kubeconfig": LazyCommand("autarky.cli.kube:kubeconfig", "Print the cluster's kubeconfig."),
        "kubectl": LazyCommand("autarky.cli.kube:kubectl", "Run kubectl against the cluster."),
    },
    "Look": {
        "status": LazyCommand("autarky.cli.status:status", "Show levels, slots and health of a cluster."),
        "doctor": LazyCommand("autarky.cli.doctor:doctor", "Diagnose a cluster: causes before effects."),
        "logs": LazyCommand("autarky.cli.status:logs", "Show the logs of a component."),
        "render": LazyCommand("autarky.cli.render:render", "Write the manifests and files that `up` would apply."),
    },
    "Upkeep": {
        "backup": LazyCommand("autarky.cli.backup:backup", "Make, list, verify and prune backups of the cluster."),
        "restore": LazyCommand("autarky.cli.restore:restore", "Put a backup into the cluster, or take that back."),
        "recover": LazyCommand("autarky.cli.recover:recover", "Bring a cluster up on new machines, from a backup."),
        "etcd": LazyCommand("autarky.cli.etcd:etcd", "Look at etcd and look after it; works with the API down."),
    },
    "Payload and labs": {
        "payload": LazyCommand("autarky.cli.payload:payload", "Get, list and check the components of a release."),
        "lab": LazyCommand("autarky.cli.lab:lab", "Create and remove test hosts on this machine."),
        "bench": LazyCommand("autarky.cli.bench:bench", "Measure availability as a client sees it."),
    },
    "More": {
        "schema": LazyCommand("autarky.cli.schema:schema", "Print the JSON Schema of the cluster file."),
        "completion": LazyCommand("autarky.cli.completion:completion", "Print the completion script for a shell."),
        "version": LazyCommand("autarky.cli.version:version", "Print the version."),
    },
}

EXIT_CODES = """\
\b
Exit codes:
  0    done, or nothing to do
  1    a program or an API answered with a failure
  2    wrong usage, file or environment; the message says how to fix it
  3    a host or an API did not answer
  4    a wait passed its deadline
  5    another command works on the same cluster or changed the same object
  6    refused by a safety rule
  70   a bug in autarky
  129, 130, 143  stopped by SIGHUP, SIGINT, SIGTERM: run it again to resume
  141  the reader of standard output has gone away
"""


@click.command(
    cls=LazyGroup,
    table=COMMANDS,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("-v", "--verbose", is_flag=True, help="Show every event, debug messages, and where errors come from.")
@click.version_option(__version__, prog_name="autarky", message="%(prog)s %(version)s")
def cli(verbose: bool) -> None:
    """Self-hosted Kubernetes: the control plane runs on the cluster that it controls."""
    if verbose:
        _log_to_stderr()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line (default: of this process). Returns the exit code."""
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "autarky", COMPLETE_VARIABLE, instruction)
    arguments = sys.argv[1:] if argv is None else list(argv)
    _make_lenient(sys.stdout, sys.stderr)
    try:
        code = _run(arguments)
    finally:
        heard = _flushed(sys.stdout)
        _flushed(sys.stderr)
    return code if heard or code else BROKEN_PIPE


def _run(arguments: list[str]) -> int:
    verbose = False
    try:
        with cli.make_context("autarky", arguments) as context:
            verbose = context.params["verbose"]
            cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except AutarkyError as error:
        return _failed(error, verbose=verbose)
    except Exception as error:
        return _escaped(error)
    return 0


def _make_lenient(*streams: TextIO | None) -> None:
    """Characters that the terminal's encoding lacks are written as escapes; they never fail a command."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _failed(error: AutarkyError, *, verbose: bool) -> int:
    from autarky.cli.say import say

    if verbose:
        _print_traceback(error)
    elif not error.reported:
        say(f"autarky: {error}", err=True)
    return error.exit_code


def _escaped(error: Exception) -> int:
    """A broken standard output is not our bug; everything else is."""
    if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
        return BROKEN_PIPE
    _print_traceback(error)
    click.echo("autarky: this is a bug in autarky; please report it with the text above", err=True)
    return BUG


def _print_traceback(error: BaseException) -> None:
    import traceback

    from autarky.cli.say import say

    say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)


def _has_no_reader(stream: TextIO) -> bool:
    """Whether the other end of this pipe is closed. A flush cannot tell: an unbuffered stream has nothing left."""
    import select

    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # no descriptor behind it
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _flushed(stream: TextIO | None) -> bool:
    """Flush; if that fails, discard the rest: otherwise the interpreter complains when it exits."""
    if stream is None:  # the descriptor was closed from the start
        return True
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return False
    return True


def _log_to_stderr() -> None:
    """Only our own messages: an HTTP library's would show the credentials in its headers (rule 7)."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logger = logging.getLogger("autarky")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
