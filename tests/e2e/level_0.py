"""What the scenarios of level 0 share: which of a node's two kubelets is in force, and that no hand-over is felt."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import TestCluster, one_node
from kubelet_locks import holders_and_waiters, whose, with_the_lock
from kubelets import bring_hosted, node, shows_ready
from power import Returned, comes_back
from rollouts import explanations, judged, judged_after, patch_plane, undisturbed, version_wanted
from slots import SYSTEM, events_by_name, settled
from survival import processes
from watching import silences, too_long

from autarky.control.kubelet.manifests.files import SCRIPT_PATH
from autarky.errors import AutarkyError
from autarky.kube import KubeClient
from autarky.model import ports

REPORT, DAEMON_SET = "autarky.dev/kubelet-hosted", "ds/kubelet"
IMAGE = "autarky.dev/kubelet"
LOCK = "/run/autarky/kubelet-slot.lock"
NOT_READY_SECONDS = 10.0
"""The most for which a Node may not be Ready because of a hand-over."""
NOBODY_SECONDS, TWO_SECONDS = 8.0, 3.0
"""The most without a kubelet that has the lock or is to take it; and with two that have one, or do not wait for it."""
START_SECONDS = 8.0
"""For so long one that has just been started does not wait for the lock yet."""
NODES_SECONDS, LOCKS_SECONDS = 5.0, 3.0
"""The most between two looks: at the Nodes, and at what runs on the hosts."""
FAILED_SECONDS = 300.0
"""For three tries, of which each takes a minute where a kubelet does not come to the lock. Between them, and while one
has not come to it, the host's is in force: the Node stays Ready all the time, and no container is restarted."""
OFF_SECONDS = 240.0
"""For an orderly shutdown, beyond two of systemd's limits for what does not end (90 s)."""
EXITS, HANGS = "return 1;", "for (;;) pause();"
TAKES_THE_LOCK = """
    for (int word = 1; word < count; word++)
        if (!strncmp(words[word], "--lock-file=", 12)) flock(open(words[word] + 12, O_RDWR | O_CREAT, 0600), LOCK_EX);
"""
"""What a kubelet does that does not work: before it has the lock, which leaves the host's in force, or with it."""
EXITS_IN_FORCE, HANGS_IN_FORCE = f"{TAKES_THE_LOCK} sleep(2); {EXITS}", f"{TAKES_THE_LOCK} {HANGS}"


def a_hosted_kubelet(make_cluster: Callable[..., TestCluster], name: str, version: str) -> TestCluster:
    """A node that hosts everything (0-4), with its hosted kubelet in force."""
    cluster = make_cluster(name, **one_node(kubernetesVersion=version.removeprefix("v"), selfHosted="0-4"))
    cluster.up()
    comes_into_force(cluster, version)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=90)
    return cluster


def hosted_report(cluster: TestCluster, name: str = "n1") -> dict[str, Any]:
    """Empty where the node reports no hosted kubelet."""
    return _said(node(cluster, name))


def hosted_reports(cluster: TestCluster) -> dict[str, dict[str, Any]]:
    """Of all nodes, as they were at one moment."""
    return {name: _said(one) for name, one in _nodes(cluster).items()}


def _nodes(cluster: TestCluster) -> dict[str, dict[str, Any]]:
    """By a client of this process: a command for each look would take a processor from what is watched."""
    try:
        found = asyncio.run(_listed_nodes(cluster))
    except (AutarkyError, TimeoutError) as error:
        raise AssertionError(f"the nodes are not seen: {error!r}") from error
    return {one["metadata"]["name"]: one for one in found}


async def _listed_nodes(cluster: TestCluster) -> list[dict[str, Any]]:
    kube = KubeClient.from_kubeconfig(cluster.directory / "kubeconfig")
    try:
        async with asyncio.timeout(NODES_SECONDS):
            return await kube.list("v1", "Node")
    finally:
        await kube.close()


def _said(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(node["metadata"].get("annotations", {}).get(REPORT, "{}"))
    return found


def in_force(cluster: TestCluster, name: str = "n1") -> str:
    """Whose kubelet has the lock, as the kernel says: see `whose`."""
    look = (
        "for p in $(pgrep -x kubelet); do echo $p $(grep -cs -- --lock-file= /proc/$p/cmdline); done; cat /proc/locks"
    )
    lines = cluster.shell(name, look).splitlines()
    counted = [words for line in lines if len(words := line.split()) == 2]  # of one that has ended, less is known
    kubelets = {pid: count != "0" for pid, count in counted}
    return whose(kubelets, "\n".join(lines), host_pid(cluster, name))


def host_pid(cluster: TestCluster, name: str = "n1") -> str:
    return cluster.shell(name, "systemctl show kubelet --property=MainPID --value").strip()


def hosted_pid(cluster: TestCluster, name: str = "n1") -> str:
    """Of the kubelet of the pod; empty where none runs."""
    own = host_pid(cluster, name)
    return next((pid for pid in cluster.shell(name, "pgrep -x kubelet || true").split() if pid != own), "")


def is_hosted(cluster: TestCluster, version: str, names: Collection[str] = ("n1",)) -> bool:
    """Whether the pod's kubelet of that version is in force on all of them, proven, and the host's waits."""
    return all(_is_hosted(cluster, version, name) for name in names)


def _is_hosted(cluster: TestCluster, version: str, name: str) -> bool:
    said = hosted_report(cluster, name)
    shows = node(cluster, name)["status"]["nodeInfo"]["kubeletVersion"]
    proven = (said.get("state"), said.get("version"), shows) == ("InForce", version, version)
    return proven and in_force(cluster, name) == "hosted" and host_pid(cluster, name) != "0"


def comes_into_force(
    cluster: TestCluster, version: str, names: Collection[str] = ("n1",), *, seconds: int = 90
) -> None:
    try:
        cluster.wait(f"the hosted kubelet {version} is in force", lambda: is_hosted(cluster, version, names), seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}: {_how_it_is(cluster, names)}") from error


def _how_it_is(cluster: TestCluster, names: Collection[str]) -> object:
    try:
        return {name: (hosted_report(cluster, name), in_force(cluster, name)) for name in names}
    except AssertionError as error:
        return f"and that cannot be seen: {error}"


def comes_back_hosted(cluster: TestCluster, version: str) -> Returned:
    """Power on: the API, and then everything, the hosted kubelet of that version among it, is where it belongs."""
    try:
        return comes_back(cluster, lambda: is_hosted(cluster, version) and settled(cluster))
    except AssertionError as error:
        raise AssertionError(f"{error}: {_how_it_is(cluster, ['n1'])}") from error


def shut_down(cluster: TestCluster, name: str = "n1") -> tuple[float, float]:
    """In order, by what `systemctl poweroff` asks systemd for. Seconds until the host's kubelet has ended, and is not
    started again, and until the machine is off: it then waits for `power.start`."""
    init, proc = Path(f"/proc/{cluster.host_process(name)}"), _proc(cluster, name)
    hosted = hosted_pid(cluster, name)
    cluster.announce()
    began = time.monotonic()
    cluster.shell(name, "systemctl start --no-block --job-mode=replace-irreversibly poweroff.target")

    ended = began

    def is_off() -> bool:
        nonlocal ended
        with suppress(OSError):  # it has just gone off
            ended = time.monotonic() if _kubelets(proc) - {hosted} else ended
        return not init.exists()

    cluster.wait("the machine is off", is_off, seconds=OFF_SECONDS)
    return ended - began, time.monotonic() - began


def set_kubelet(cluster: TestCluster, tag: str) -> None:
    cluster.kubectl(*SYSTEM, "set", "image", DAEMON_SET, f"kubelet={IMAGE}:{tag}")


def follows(cluster: TestCluster, follow: bool) -> None:
    patch_plane(cluster, kubelets={"follow": follow})


def has_lock(cluster: TestCluster, pid: str, name: str = "n1") -> bool:
    """As its own descriptors say."""
    return cluster.shell(name, f"{SCRIPT_PATH} lock {pid}").strip() == "held"


def restarts(cluster: TestCluster, but: Collection[str] = ()) -> dict[str, tuple[str, int]]:
    """Of all containers of all pods but those of the kubelet itself, of these components, and of standbys, which a
    checkpoint replaces: pod and container → the pod's uid, restarts."""
    found = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    return {
        f"{pod['metadata']['name']}/{one['name']}": (pod["metadata"]["uid"], int(one["restartCount"]))
        for pod in found
        if not _is_replaced(pod["metadata"].get("labels", {}), but)
        for one in pod["status"].get("containerStatuses", [])
    }


def _is_replaced(labels: dict[str, str], but: Collection[str]) -> bool:
    return labels.get("k8s-app") in ("kubelet", *but) or labels.get("autarky.dev/slot") == "standby"


# --- watching ------------------------------------------------------------------------------------------

_NO_LOOK = (AssertionError, LookupError, OSError, ValueError, subprocess.SubprocessError)
"""What a look raises that has seen nothing."""


@contextmanager
def watched(what: str, look: Callable[[], None], *, pause: float, most: float) -> Iterator[None]:
    """Looks again and again in the block, and never sees nothing for longer than `most` seconds."""
    moments, failures, over = [time.monotonic()], list[str](), threading.Event()

    def watch() -> None:
        while not over.wait(pause):
            try:
                look()
                moments.append(time.monotonic())
            except _NO_LOOK as error:
                failures.append(repr(error))

    thread = threading.Thread(target=watch, name=what)
    thread.start()
    try:
        yield
    finally:
        ended = time.monotonic()
        over.set()
        thread.join()
    gaps = too_long(silences(moments, ended), most)
    assert gaps == [], f"{what}: nothing was seen for so many seconds: {gaps}; looks that failed: {failures[-3:]}"


@contextmanager
def nodes_stay_ready(
    cluster: TestCluster,
    names: Collection[str] = ("n1",),
    *,
    nobody: float = NOBODY_SECONDS,
    two: float = TWO_SECONDS,
    unseen: float = NODES_SECONDS,
    moves: Collection[str] = (),
) -> Iterator[None]:
    """None of them is shown as not Ready for longer than NOT_READY_SECONDS in the block, and no container is restarted
    in it. On none runs no kubelet for longer than `nobody`, or has none the lock for that and START_SECONDS; nor have
    two of them one, or do not wait for it, for longer than `two`. unseen: the most between two looks at the Nodes.
    moves: components whose level moves, and so their pods are others afterwards."""
    before = restarts(cluster, moves)
    ready, one, held, alone = ({name: Looks() for name in names} for _ in range(4))
    since = dict[tuple[str, str], float]()
    roots = {name: _proc(cluster, name) for name in names}

    def look_at_nodes() -> None:
        found = _nodes(cluster)
        for name in names:
            ready[name].saw(shows_ready(found[name]))

    def look_at_locks() -> None:
        for name, root in roots.items():
            found = _kubelets(root)
            have, wait = _locks(root)
            active, now = found - wait, time.monotonic()
            starts = {pid for pid in active - have if now - since.setdefault((name, pid), now) < START_SECONDS}
            one[name].saw(bool(active))
            held[name].saw(bool(with_the_lock({pid: _takes_the_lock(root / pid) for pid in active}, have)))
            alone[name].saw(len(active - starts) < 2)

    with (
        watched("the Nodes", look_at_nodes, pause=0.5, most=unseen),
        watched("the locks", look_at_locks, pause=0.2, most=LOCKS_SECONDS),
    ):
        yield
    for name in names:
        assert ready[name].longest <= NOT_READY_SECONDS, f"{name} was not Ready for {ready[name].longest:.0f} s"
        assert one[name].longest <= nobody, f"{name} had no kubelet for {one[name].longest:.0f} s"
        without = held[name].longest
        assert without <= nobody + START_SECONDS, f"{name} had no kubelet with the lock for {without:.0f} s"
        assert alone[name].longest <= two, f"{name} had two kubelets for {alone[name].longest:.0f} s"
        assert min(ready[name].number, one[name].number) >= 5, f"nobody has looked at {name}"
    after = restarts(cluster, moves)
    changed = {name: (before.get(name), after.get(name)) for name in before.keys() | after.keys()}
    changed = {name: states for name, states in changed.items() if states[0] != states[1]}
    assert changed == {}, changed


@contextmanager
def those_with_the_lock(cluster: TestCluster, name: str = "n1") -> Iterator[set[str]]:
    """The pids of pods' kubelets that were seen to have the lock in the block, until now."""
    root, found = _proc(cluster, name), set[str]()

    def look() -> None:
        have, _ = _locks(root)
        found.update(pid for pid in _kubelets(root) & have if _is_of_a_pod(root / pid))

    with watched("the lock", look, pause=0.1, most=LOCKS_SECONDS):
        yield found


def _proc(cluster: TestCluster, name: str) -> Path:
    """Of a host, as this machine sees it."""
    return Path(f"/proc/{cluster.host_process(name)}/root/proc")


def _kubelets(proc: Path) -> set[str]:
    """Their pids."""
    found = set()
    for directory in proc.glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if (directory / "comm").read_text() == "kubelet\n":
                found.add(directory.name)
    return found


def _locks(proc: Path) -> tuple[set[str], set[str]]:
    """The pids of those that have a lock, and of those that wait for one."""
    return holders_and_waiters((proc / "locks").read_text())


def _takes_the_lock(process: Path) -> bool:
    """Also one that has just ended: it counts for nobody."""
    words = _command_line(process)
    return not words or any(word.startswith("--lock-file=") for word in words)


def _is_of_a_pod(process: Path) -> bool:
    return f"--healthz-port={ports.KUBELET_HOSTED_HEALTH}" in _command_line(process)


def _command_line(process: Path) -> list[str]:
    with suppress(OSError):  # it has just ended
        return [word for word in (process / "cmdline").read_text().split("\0") if word]
    return []


@dataclass
class Looks:
    """longest: for how many seconds on end it was not well."""

    number: int = 0
    longest: float = 0.0
    _since: float | None = None

    def saw(self, well: bool) -> None:
        """Not well is from the first look that says so until the next one that says otherwise."""
        now = time.monotonic()
        self.number += 1
        if self._since is not None:
            self.longest = max(self.longest, now - self._since)
        self._since = None if well else now if self._since is None else self._since


@contextmanager
def nothing_is_felt(
    cluster: TestCluster, *, nobody: float = NOBODY_SECONDS, two: float = TWO_SECONDS
) -> Iterator[None]:
    """No request fails, no container restarts, the node stays Ready."""
    before = processes(cluster)
    with nodes_stay_ready(cluster, nobody=nobody, two=two), undisturbed(cluster):
        yield
    assert processes(cluster) == before


# --- kubelets that do not work -----------------------------------------------------------------------------


def gives_way_to_the_host_s(
    cluster: TestCluster, version: str, does: str, *words: str, has_lock: bool, two: float = TWO_SECONDS
) -> None:
    """One that does this, in C: it fails, which its node says, with all these words; then the DaemonSet goes back to
    what it has now, whose kubelet is in force. Nothing of it is felt. has_lock: whether it ever has the lock."""
    bring_hosted(cluster, version, does)
    judged(cluster)
    good, told = version_wanted(cluster, DAEMON_SET), len(explanations(cluster, DAEMON_SET))
    with nothing_is_felt(cluster, two=two):
        former = hosted_pid(cluster)
        assert former, "the good one runs"
        # Else it is taken back before one that hangs has had its three tries.
        with judged_after(cluster, 2 * int(FAILED_SECONDS)), those_with_the_lock(cluster) as found:
            set_kubelet(cluster, version)
            why = _fails(cluster, version)
            cluster.wait("the host's is in force", lambda: in_force(cluster) == "host", seconds=30)
        assert [word for word in words if word not in why] == [], why
        had = found - {former}
        assert bool(had) == has_lock, f"these of pods had the lock: {had}"
        cluster.wait("an event says it", lambda: _event_of_failure(cluster, version), seconds=60)
        assert [word for word in words if word not in _event_of_failure(cluster, version)] == []
        cluster.wait("it is as before", lambda: version_wanted(cluster, DAEMON_SET) == good, seconds=180)
        comes_into_force(cluster, good, seconds=120)
    assert len(explanations(cluster, DAEMON_SET)) > told, "and that is explained"


def _fails(cluster: TestCluster, version: str) -> str:
    """Until its node says so; why."""
    said: list[dict[str, Any]] = []

    def has_failed() -> bool:
        said.append(hosted_report(cluster))
        return (said[-1].get("state"), said[-1].get("version")) == ("Failed", version)

    try:
        cluster.wait(f"the kubelet {version} has failed", has_failed, FAILED_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said[-3:]}, wanted {version_wanted(cluster, DAEMON_SET)}") from error
    return str(said[-1].get("why", ""))


def _event_of_failure(cluster: TestCluster, version: str) -> str:
    """Its message, on the Node; empty while there is none."""
    found = events_by_name(cluster, "KubeletHostedFailed").values()
    return next((message for message in found if f" {version} " in message), "")
