"""What the kubelet of a host starts with, where no agent of its node can have brought it: its first generation.

A new node gets what is wanted of it. A kubelet of an earlier release, which runs with settings in its unit, gets a copy
of what it runs with: nothing changes at its next start, and from then on its agent changes it, proven or taken back
(`control.kubelet`).

Contract: a kubelet that runs is left alone, and so is a change under way. One that does not run must be able to start:
it gets other settings where its own are from before any agent has changed them, or for another host. Safe to be killed
at any moment: `complete` comes last in a generation, then `current`, then the unit that starts it.

Danger: one that does not run may be about to start by itself; its agent's order then finds another generation than
before, and is carried out or refused like any other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from autarky import places
from autarky.control.kubelet.manifests import configuration as kubelet_configuration
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files, generation
from autarky.control.kubelet.manifests.generation import Generation, MadeOf, in_store
from autarky.control.upgrade.decide import reported
from autarky.errors import Unreachable, UserError
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.payload import Binary
from autarky.phases.binaries import point_links
from autarky.phases.context import Context
from autarky.phases.former_settings import config_before
from autarky.ports import Host
from autarky.render import node as render_node

LINKS = {render_node.BINARIES[name]: f"{files.CURRENT}/{name}" for name in files.PROGRAMS}
"""In bin/, for units and for people → the program in force."""
_GIVEN = (
    f"--config={kubelet_configuration.FORMER_KUBELET_CONFIG}",
    f"--bootstrap-kubeconfig={kubelet_credentials.BOOTSTRAP_KUBECONFIG}",
)
"""Arguments that were ours, and that the script gives."""
_PATH = re.compile("/[!-~]+")


@dataclass(frozen=True, slots=True)
class First:
    """programs: those of the payload that it needs on the host. ours: whether its kubelet is of the payload."""

    generation: Generation
    programs: Mapping[str, Binary] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        return "kubelet" in self.programs

    @property
    def by_path(self) -> dict[str, Binary]:
        return {render_node.BINARIES[name]: binary for name, binary in self.programs.items()}

    @property
    def files(self) -> list[File]:
        directory = self.generation.directory
        return [File(f"{directory}/{name}", content) for name, content in self.generation.contents.items()]


@dataclass(frozen=True, slots=True)
class _There:
    """current: the generation's name, changed: whether an agent has changed it ever; trial: whether one is under way;
    runs: the program of the host's kubelet that runs, and its arguments; empty where none does. hosted: whether that of
    a pod runs with it, of which nobody asks where the host's does."""

    current: str
    made_of: MadeOf | None
    changed: bool
    trial: bool
    hosted: bool
    runs: str
    arguments: tuple[str, ...]


async def first(context: Context, host: Host, node: Node) -> First | None:
    """What is to be made, and to be current, before this host's kubelet starts; None where it may stay as it is."""
    there = await _look(host)
    if there.trial or there.hosted or (there.current and there.runs):
        return None
    if there.runs:
        return First(await _copy(host, there))
    wanted = _of_payload(context, node)
    if there.current and (there.made_of is None or not _is_to_change(there.made_of, wanted.generation, there)):
        return None
    return wanted


def _is_to_change(has: MadeOf, wanted: Generation, there: _There) -> bool:
    asked = generation.read(wanted.contents[generation.MADE_OF])
    if asked is None or has.version != asked.version:
        return False
    is_for_another_host = has.base not in ("", asked.base)  # empty: a copy, which may be what a change has gone back to
    return is_for_another_host or (not there.changed and has.digest != asked.digest)


def _of_payload(context: Context, node: Node) -> First:
    binaries = context.require_payload().binaries
    programs = {name: binaries[name] for name in files.PROGRAMS}
    links = {name: in_store(places.stored_name(binary.name, binary.sha256)) for name, binary in programs.items()}
    try:
        return First(kubelet_configuration.first_generation(context.inputs(), node, links), programs)
    except ValueError as error:
        raise UserError(str(error), fix="correct spec.extraArgs.kubelet in the cluster file") from error


async def _copy(host: Host, there: _There) -> Generation:
    """Of what runs."""
    version = reported.parsed((await host.run([there.runs, "--version"])).text.rpartition(" ")[2])
    arguments = [one for one in there.arguments if one not in _GIVEN]
    runtime = await _in_place(host, [render_node.BINARIES[name] for name in files.RUNTIME])
    are_paths = all(_PATH.fullmatch(one) for one in (there.runs, *runtime))
    if version is None or not are_paths or any("\n" in one for one in arguments):
        raise _not_understood(host, "which kubelet and runtime it runs, and with which arguments")
    contents = {
        files.CONFIG: await config_before(host),
        files.ARGUMENTS: "".join(f"{one}\n" for one in arguments).encode(),
        files.VERSION: f"{version}\n".encode(),
        generation.MADE_OF: generation.written(MadeOf("", version)),
    }
    return Generation({"kubelet": there.runs, **dict(zip(files.RUNTIME, runtime, strict=True))}, contents)


# --- looking and acting ------------------------------------------------------------------------------------------


RUNS = (
    'pid=$(systemctl show kubelet --property=MainPID --value) && [ "$pid" != 0 ] && readlink "/proc/$pid/exe"'
    ' && cat "/proc/$pid/cmdline"'
)
"""A line with the program, and then its command line, each word with a NUL behind it."""
HOSTED = '"$0" hosted 2>/dev/null'
"""Whether the kubelet of a pod runs. A host of an earlier release has no such script, or one that says no."""


async def _look(host: Host) -> _There:
    [link] = await _lines(host, 'readlink "$1" || echo -', [files.CURRENT])
    current = "" if link == "-" else link
    target = f"{files.KUBELETS}/{current}/{generation.MADE_OF}"
    program, arguments = await running(host)
    return _There(
        current=current,
        made_of=generation.read(await host.read(target)) if current else None,
        changed=await host.read(files.RESULT) is not None,
        trial=await host.read(files.TRIAL) is not None or await host.read(files.ASK) is not None,
        hosted=not program and (await host.run(["sh", "-c", HOSTED, files.SCRIPT_PATH], check=False)).status == 0,
        runs=program,
        arguments=arguments,
    )


async def running(host: Host) -> tuple[str, tuple[str, ...]]:
    """The program of the kubelet that runs, and its arguments; empty where none runs. Of one that was removed since,
    what is in its place."""
    said = await host.run(["sh", "-c", RUNS], check=False)
    if said.status != 0:
        return "", ()
    program, _, line = said.text.partition("\n")
    if program.endswith(" (deleted)"):
        [program] = await _in_place(host, [render_node.BINARIES["kubelet"]])
    return program, tuple(line.split("\0")[1:-1])


async def _in_place(host: Host, paths: Sequence[str]) -> list[str]:
    """Where the links lead in the end: those in bin/ are about to lead elsewhere."""
    return await _lines(host, 'for p; do readlink -f "$p" || echo -; done', paths)


async def _lines(host: Host, script: str, paths: Collection[str]) -> list[str]:
    """What the script says of each of the paths, a line each."""
    said = (await host.run(["sh", "-c", script, "sh", *paths])).text.splitlines()
    if len(said) != len(paths):
        raise _not_understood(host, "where the links to its programs lead")
    return said


def _not_understood(host: Host, what: str) -> Unreachable:
    """No end of the command where it is a worker: its host may say anything."""
    return Unreachable(f"{host.name} says in a way that cannot be understood {what}")


async def make(host: Host, made: First) -> None:
    """It is current on return. Its programs, and the script, are on the host."""
    directory = made.generation.directory
    await host.write_files(made.files)
    await point_links(host, {f"{directory}/{name}": target for name, target in made.generation.links.items()})
    await host.write_files([File(f"{directory}/{files.COMPLETE}", made.generation.complete)])
    await host.run([files.SCRIPT_PATH, "switch", made.generation.name], timeout=60)


async def missing_links(host: Host) -> dict[str, str]:
    """Those in bin/ that lead elsewhere, or nowhere. A program that was put there by hand is left alone."""
    script = 'for p; do if [ -L "$p" ]; then readlink "$p"; elif [ -e "$p" ]; then echo +; else echo -; fi; done'
    seen = await _lines(host, script, LINKS)
    return {path: wanted for (path, wanted), now in zip(LINKS.items(), seen, strict=True) if now not in ("+", wanted)}
