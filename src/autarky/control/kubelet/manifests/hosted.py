"""The kubelet's hosted slot (level 0) on a node: the files between its supervisor and the node's agent, and its lock.

Below `files.KUBELETS`, KEY VALUE a line as there, replaced in one rename and not synced: what has another boot than the
machine's counts as not there.

    hosted            boot, pod, try, version, state, uptime, behind, why    by the supervisor
    hosted-verdict    boot, pod, try, verdict, uptime, why                   by the agent

pod: the uid of the DaemonSet's pod; try: the number of this start of its kubelet, higher than that of any before;
version: of the kubelet in its image; state: `State`; behind: whether the host's kubelet waits for the lock, `yes` or
`no` (it may have it), `gone` where it did not run and has not come to the lock since, as where it exits whenever it is
started, empty where nobody has looked; verdict: `Verdict`, of that try of that pod and no other; uptime: whole seconds
of /proc/uptime. A file of the supervisor's that is older than STALE_SECONDS is that of one that has ended.

While the host's kubelet does not wait behind the pod's, autarky ends that for nothing but its pod's end: the node would
have none. (A pod that is deleted or replaced ends all that is in it.) For the same reason the pod's starts without the
host's where that exits whenever it is started, and before what is ordered of that.

The lock (`files.LOCK`): each of the two kubelets takes it before it touches anything, and waits for it inside itself.
Neither is made to exit when somebody opens the file (--exit-on-lock-contention): any reader could then end a kubelet.
The supervisor restarts kubelet.service instead, once its own kubelet waits for the lock; that is the only hand-over
that is not a death. A kubelet whose arguments or configuration are wrong exits before it takes the lock.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath

from autarky import places
from autarky.control.hosts.decide.kubelet_restart import MOST_RESTARTS
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.manifests.files import KUBELETS
from autarky.model import ports
from autarky.model.files import File
from autarky.programs import program

HOSTED, VERDICT = f"{KUBELETS}/hosted", f"{KUBELETS}/hosted-verdict"
SCRIPT_PATH = f"{places.BIN}/kubelet-hosted"
BEAT_SECONDS, STALE_SECONDS = 10, 30
"""How often the supervisor writes its file at least; how old the file of one is that has ended."""
LOOK_SECONDS, HUNG_SECONDS = 5, 20
"""Between two looks at a kubelet's health. One that has not answered for so long is ended: the other one has to renew
the node's lease within 40 s of the last time."""
START_SECONDS = 300
"""For a kubelet of the host's that has just been started, on the slowest machine, before it is taken for one that
hangs, or that does not wait for the lock."""
LIMIT = 45
"""Seconds for a proof. With the last heartbeat before it, it is over when Kubernetes takes a node for gone (50 s), so
that a kubelet that never reports costs the Node its readiness for seconds. A good one is proven after 15 s."""
FORGET_SECONDS = 600
"""After so long without an exit the earlier ones do not count any more."""


class State(StrEnum):
    """The values are the words in the file."""

    WAITING = "waiting"
    """It wants to be allowed."""
    PROVING = "proving"
    PROVEN = "proven"
    AWAY = "away"
    """It has ended, and is not started again: why says the reason."""


class Verdict(StrEnum):
    """The values are the words in the file."""

    MAY = "may"
    GOOD = "good"
    WAIT = "wait"
    """The API does not answer: the clock stands still, as long as this is fresh."""
    UNPROVEN = "unproven"
    LEAVE = "leave"
    """It is not allowed any more: it ends, and its next try waits."""
    STAY = "stay"
    """It may not be started, as long as this is said."""


def script() -> File:
    return File(SCRIPT_PATH, _PROGRAM.encode(), 0o755)


_PROGRAM = program(
    str(PurePosixPath(__file__).parent),
    "kubelet-hosted.sh",
    kubelets=KUBELETS,
    run=places.RUN,
    lock=files.LOCK,
    slots=files.SCRIPT_PATH,
    image_path=files.IMAGE_PATH,
    host_port=ports.KUBELET_HEALTH,
    port=ports.KUBELET_HOSTED_HEALTH,
    most_exits=MOST_RESTARTS,
    limit=LIMIT,
    ceiling=files.MOST_SECONDS,
    wait_seconds=files.WAIT_SECONDS,
    beat_seconds=BEAT_SECONDS,
    look_seconds=LOOK_SECONDS,
    hung_seconds=HUNG_SECONDS,
    start_seconds=START_SECONDS,
    forget_seconds=FORGET_SECONDS,
)
