"""The generations of a node's kubelet on its disk, what those who change them write there, and the script between them.

    /var/lib/autarky/kubelet/GENERATION/    named by its content, never changed; `complete` is written last
        kubelet containerd containerd-shim-runc-v2 ctr runc    links into the store
        config.json                         its configuration, named by the script: an argument may name another one
        arguments                           one per line, as they are; never --bootstrap-kubeconfig
        version                             of the kubelet; for people
        target.json                         what it was made of (`generation`)
        complete                            generation GENERATION
    current, previous   links to one of them: one rename switches program, configuration and runtime together
    ask                 order, generation, boot, uptime, limit      by whoever wants a change: the node agent, or `up`
    trial               order, generation, former, phase, boot, until, ceiling, why    by the script, meanwhile
    verdict             order, verdict, uptime, why                 by whoever asked
    result              order, result, generation, former, boot, why    by the script; the last order's
    last-words          the kubelet's errors, as they were in the journal, of a change that was taken back
    reserve             room for the result on a full disk

All but the last two have one KEY VALUE per line (`parse`, `written`), in any order; of two with the same key the first
counts, and a line without an end is none. Each has one writer, and is replaced in one rename, with the file and its
directory synced. uptime, until and ceiling are whole seconds of /proc/uptime. boot is the boot id, which a container
takes from `standby.BOOT_FILE`: a test host has another one than its kernel.

A change: the script drops an ask of another boot or older than ASK_SECONDS with no result, since what allowed the
change (version skew, above all) was looked at right before. It refuses what is not complete. It then writes the trial
in phase `forth`, points `current`, restarts containerd (if that, its shim or runc differ) and the kubelet, and writes
phase `proving`. From then on, and not before, a verdict says what runs: `good` ends it; `wait` (something else than
the kubelet is down) stops its clock while it is younger than WAIT_SECONDS, but never longer than MOST_SECONDS after
the trial began; `unproven` only says why. No `good` within the limit, or MOST_RESTARTS exits: phase `back`, the
former generation again, and its kubelet restarted.

The results: good; back (with the former generation, which is healthy, or was when the machine restarted); refused
(nothing was touched); failed (with the former generation, which is not healthy, either).

Contract: an order with a result is over, whatever is asked. The script, killed at any point, is started again by
systemd as long as there is an ask, and goes on. If the machine restarts before the result is written, the former
generation starts, also where nothing can be written; it needs neither kubelet, agent, API nor Python for that.
containerd starts before the kubelet, so `boot` belongs before both. An unreadable trial counts as none.

Dangers: an ask may only be written while there is neither ask nor trial, and after the last result was read. Whoever
prunes keeps what current, previous, ask and trial name. `/opt/cni/bin` belongs to no generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from autarky import places
from autarky.control.hosts.decide.kubelet_restart import MOST_RESTARTS
from autarky.control.kubelet.manifests.credentials import BOOTSTRAP_KUBECONFIG, CURRENT_PATH, KUBELET_KUBECONFIG
from autarky.control.slots import manifests as standby
from autarky.model import ports
from autarky.model.files import File
from autarky.model.versions import Version
from autarky.programs import program

KUBELETS = f"{places.HOST_ROOT}/kubelet"
BASE = f"{KUBELETS}/base.json"
"""What `up` knows of the host, for generations to be made from. The script does not read it."""
CURRENT, PREVIOUS = f"{KUBELETS}/current", f"{KUBELETS}/previous"
ASK, TRIAL, VERDICT, RESULT = (f"{KUBELETS}/{name}" for name in ("ask", "trial", "verdict", "result"))
LAST_WORDS = f"{KUBELETS}/last-words"
COMPLETE, ARGUMENTS, CONFIG, VERSION = "complete", "arguments", "config.json", "version"
"""Names in a generation."""
RUNTIME = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
PROGRAMS = ("kubelet", *RUNTIME)
SCRIPT_PATH = f"{places.BIN}/kubelet-slots"

IMAGE, IMAGE_PATH = "autarky.dev/kubelet", "/usr/local/bin/kubelet"
"""The repository of the images that a kubelet comes in (the tag is its version), and where it is in one."""

LIMIT = 90
"""Seconds for a proof, as asked for: with the way back 120 at most."""
LEAST_SECONDS, MOST_SECONDS = 10, 600
"""Of a limit. The most, too, that a trial takes whose clock is stopped."""
WAIT_SECONDS = 10
ASK_SECONDS = 60

LOCK = f"{places.RUN}/kubelet-slot.lock"
"""In memory: of the kubelet in force, where a node has two (`hosted`)."""


def image_of(version: Version) -> str:
    """The image that the kubelet of that version comes in."""
    return f"{IMAGE}:{version}"


def script() -> File:
    return File(SCRIPT_PATH, _PROGRAM.encode(), 0o755)


_PROGRAM = program(
    str(PurePosixPath(__file__).parent),
    "kubelet-slots.sh",
    kubelets=KUBELETS,
    run=places.RUN,
    programs=" ".join(PROGRAMS),
    runtime=" ".join(RUNTIME),
    kubeconfig=KUBELET_KUBECONFIG,
    bootstrap=BOOTSTRAP_KUBECONFIG,
    certificate=CURRENT_PATH,
    ca_key=f"{places.PKI}/ca.key",
    signers=f"{places.MANIFESTS}/node-agent-standby",
    health_port=ports.KUBELET_HEALTH,
    lock=LOCK,
    hosted_port=ports.KUBELET_HOSTED_HEALTH,
    most_exits=MOST_RESTARTS,
    limits=f"{LEAST_SECONDS} {MOST_SECONDS}",
    wait_seconds=WAIT_SECONDS,
    ask_seconds=ASK_SECONDS,
    no_lock=standby.NO_LOCK,
)


def written(values: Mapping[str, object]) -> bytes:
    """The content of one of these files. ValueError where it would be read as something else."""
    content = "".join(f"{key} {value}\n" for key, value in values.items()).encode()
    if parse(content) != {key: str(value) for key, value in values.items()}:
        raise ValueError(f"cannot be written as one line each: {values!a}")
    return content


def parse(content: bytes) -> dict[str, str]:
    """As the script reads it: never raises."""
    found: dict[str, str] = {}
    for line in content.decode(errors="replace").split("\n")[:-1]:
        key, _, value = line.strip(" \t").partition(" ")
        found.setdefault(key, value.strip(" \t"))
    found.pop("", None)
    return found
