"""`autarky lab`: test hosts on this machine, to try things and to break them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from autarky.cli.options import output_option
from autarky.cli.session import operation, run_async
from autarky.errors import UserError

if TYPE_CHECKING:
    from autarky.lab import HostRecord, Lab

lab_option = click.option(
    "--lab", "name", default=None, metavar="NAME", help="The lab; default: the only one there is."
)


@click.group()
def lab() -> None:
    """Create and remove test hosts: containers with systemd, a network, a disk and a power switch of their own."""


@lab.command()
@click.argument("name", default="default")
@click.option("--hosts", default=1, show_default=True, type=click.IntRange(1, 20), help="How many hosts: n1, n2, …")
@output_option
def up(name: str, hosts: int, output: str) -> None:
    """Create the lab's test hosts, or power on those that are off."""
    run_async(lambda: _up(name, hosts, output))
    _print(name)


async def _up(name: str, hosts: int, output: str) -> None:
    from autarky.cli.wiring import lab_supplies
    from autarky.lab import Lab
    from autarky.payload import default_version, load_release

    async with operation(f"create lab {name}", output) as progress:
        runc, seed = await lab_supplies(load_release(default_version()), progress)
        await Lab.open(name).ensure([f"n{n + 1}" for n in range(hosts)], runc=runc, seed=seed, progress=progress)


@lab.command("list")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print it.")
def list_(output: str) -> None:
    """List all labs and their hosts."""
    from autarky.lab import Lab
    from autarky.ui.tables import columns

    rows = [
        {"lab": found.name, "host": record.name, "address": record.address, "power": "on" if record.running else "off"}
        for found in Lab.all()
        for record in found.records().values()
    ]
    if output == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    for line in columns([("LAB", "HOST", "ADDRESS", "POWER"), *(tuple(row.values()) for row in rows)]):
        click.echo(line)


@lab.command(
    short_help="Run a command on a host, or an interactive shell.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@lab_option
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(name: str | None, host: str, command: tuple[str, ...]) -> None:
    """Run a command on a host, or an interactive shell: `autarky lab shell n1 -- journalctl -u kubelet`."""
    from autarky.hosts import LabHost

    record = _host(_the(name), host)
    command = command[1:] if command[:1] == ("--",) else command
    if not record.running:
        raise UserError(f"lab host {host} is off", fix=f"autarky lab start {host}")
    argv = LabHost(host, record.pid, record.start_time, address=record.address).command(command or ("bash", "-l"))
    term = f"TERM={os.environ.get('TERM', 'dumb')}"
    position = argv.index("env") + 2
    os.execvp(argv[0], [*argv[:position], term, *argv[position:]])  # noqa: S606 # no shell


@lab.command(short_help="Cut the power of hosts, all at the same moment.")
@lab_option
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
def cut(name: str | None, hosts: tuple[str, ...]) -> None:
    """Cut the power of hosts, all at the same moment: every process dies, and data that was not synced is lost."""
    run_async(lambda: _the(name).cut(*hosts))
    click.echo(f"{', '.join(hosts)}: off")


@lab.command()
@lab_option
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@output_option
def start(name: str | None, hosts: tuple[str, ...], output: str) -> None:
    """Power hosts on again."""
    found = _the(name)
    run_async(lambda: _start(found, hosts, output))
    _print(found.name)


async def _start(found: Lab, hosts: tuple[str, ...], output: str) -> None:
    async with operation(f"power on {', '.join(hosts)}", output) as progress:
        await found.start(*hosts, progress=progress)


@lab.command(short_help="Remove hosts and their disks from a lab.")
@lab_option
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
def remove(name: str | None, hosts: tuple[str, ...]) -> None:
    """Remove hosts and their disks from a lab, like machines that burnt down. A new host may reuse the name."""
    found = _the(name)
    run_async(lambda: found.remove(*hosts))
    click.echo(f"{', '.join(hosts)}: gone")


@lab.command()
@click.argument("name", required=False)
def down(name: str | None) -> None:
    """Remove a lab completely, leaving nothing of it on this machine."""
    found = _the(name)
    run_async(found.down)
    click.echo(f"lab {found.name} is gone")


def _the(name: str | None) -> Lab:
    """The named lab, or the only one there is."""
    from autarky.lab import Lab

    known = [found.name for found in Lab.all()]
    if name is None and len(known) == 1:
        return Lab.open(known[0])
    if name is None or name not in known:
        what = f"there is no lab {name}" if name is not None else f"{len(known) or 'no'} labs exist"
        raise UserError(what, fix=f"name one of: {', '.join(known)}" if known else "make one: autarky lab up")
    return Lab.open(name)


def _host(found: Lab, host: str) -> HostRecord:
    records = found.records()
    if host not in records:
        raise UserError(f"lab {found.name} has no host {host}", fix=f"its hosts are: {', '.join(records)}")
    return records[host]


def _print(name: str) -> None:
    from autarky.lab import Lab

    for record in Lab.open(name).records().values():
        click.echo(f"{record.name}  {record.address}  {'on' if record.running else 'off'}")
