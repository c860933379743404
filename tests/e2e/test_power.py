"""Power cuts of the only node, at every bad moment: it comes back without help, and what it acknowledged is there.

What a cut takes is what was not synced (`autarky.lab.disk`).

The loops are cut into parts, each of which finds the cluster settled and leaves it so; AUTARKY_ROUNDS says how many
rounds a part makes. Where the power goes after a write of the agent, each write belongs to one part, by its name. A run
draws a third of them, others each time (the seed is printed); AUTARKY_EVERY_WRITE=1 makes it take them all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import COMMAND, TestCluster, environment, one_node
from parts import REST, Draw, names_of_parts, writes_in_parts
from power import (
    RETURN_SECONDS,
    Client,
    Writer,
    comes_back,
    cut,
    init_process,
    rounds,
    settled,
    start,
    stopped_after_drawn_write,
    table,
)
from rollouts import API, SCHEDULER, SYSTEM, explanations, patch_plane, quiet, ready, template
from slots import parked_agent_is_a_copy

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.workflows.up import PHASES

EVERY_WRITE = bool(os.environ.get("AUTARKY_EVERY_WRITE"))
pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(3600 if EVERY_WRITE else 900, func_only=True)]

Show = Callable[[str], None]
ROLLOUT_STEP = 1.5
"""Seconds by which each cut comes later in the rollout, which takes about 30 s with its standby's withdrawal."""
AGENT = "ds/node-agent"
SOON_FOLLOWED = 20.0
"""Seconds in which a load balancer surely has followed a change of default/kubernetes."""
STANDBY = "var/lib/autarky/standby"
STOP_SECONDS = 300.0
"""A checkpoint is made after a minute of health."""
DRAWN_OF = 3
"""One of so many writes is drawn."""
CUTS = 20
"""Of each loop, in all its parts."""
AT_REST, IN_ROLLOUTS = 2, 4
"""Parts of the loops."""


@pytest.fixture(scope="module")
def of_module(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-power", **one_node())
    cluster.up()
    quiet(cluster)
    return cluster


@pytest.fixture
def cluster(of_module: TestCluster) -> TestCluster:
    of_module.wait("everything is settled", lambda: settled(of_module), seconds=RETURN_SECONDS)
    return of_module


@pytest.fixture(scope="module")
def writer(of_module: TestCluster) -> Writer:
    """One for all parts that run together: what was acknowledged in an earlier one is not lost in a later one."""
    return Writer(Client(of_module))


# --- loops -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(AT_REST), ids=names_of_parts(AT_REST))
def test_power_cuts_of_a_cluster_at_rest_lose_nothing(
    cluster: TestCluster, writer: Writer, show: Show, part: int
) -> None:
    times = []
    for number in rounds(part, AT_REST, CUTS):
        before = len(writer.acknowledged)
        with writer.writing():
            time.sleep(1 + number % 5 * 0.7)  # the cut falls into another moment of leases and compactions
            cut(cluster)
        back = comes_back(cluster)
        assert len(writer.acknowledged) > before, "nothing was written that could be lost"
        assert writer.lost() == set()
        times.append((number + 1, len(writer.acknowledged), back.answers, back.settled))
    show(table("power cuts at rest: seconds from power on", ("cut", "writes", "answers", "settled"), times))


@pytest.mark.parametrize("part", range(IN_ROLLOUTS), ids=names_of_parts(IN_ROLLOUTS))
def test_power_cuts_during_rollouts_of_the_api_server_end_in_the_new_one(
    cluster: TestCluster, writer: Writer, show: Show, part: int
) -> None:
    times = []
    for number in rounds(part, IN_ROLLOUTS, CUTS):
        moment, written = number * ROLLOUT_STEP, len(writer.acknowledged)
        before, told = template(cluster, API), explanations(cluster, API)
        with writer.writing():
            _roll_out(cluster, number)
            wanted = template(cluster, API)
            time.sleep(moment)
            cut(cluster)
        back = comes_back(cluster)
        assert len(writer.acknowledged) > written, "nothing was written that could be lost"
        assert writer.lost() == set()
        cluster.wait("the rollout has completed", lambda: ready(cluster, API), seconds=120)
        cluster.wait("the standbys are dormant", lambda: settled(cluster), seconds=120)
        assert before != wanted == template(cluster, API), "what was on its way is what is wanted"
        assert explanations(cluster, API) == told, "and nothing went back"
        times.append((number + 1, moment, back.answers, back.settled))
    show(table("power cuts in a rollout: seconds from power on", ("cut", "moment", "answers", "settled"), times))


def _roll_out(cluster: TestCluster, number: int) -> None:
    """By turns with the same content, and with new content, which is checkpointed anew."""
    if number % 2:
        cluster.kubectl(*SYSTEM, "set", "env", API, f"ROUND={number}")
    else:
        cluster.kubectl(*SYSTEM, "rollout", "restart", API)


# --- writes of the agent -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """The writes of one part: which they are, by a regular expression for the begins of their names, and which of them
    this run draws."""

    writes: str
    draw: Draw


@pytest.fixture
def share(request: pytest.FixtureRequest, seed: str) -> Share:
    writes, among_them = request.param
    return Share(writes, Draw(seed, 1 if EVERY_WRITE else DRAWN_OF, among_them))


def shares(patterns: Mapping[str, str], among_them: Mapping[str, tuple[str, ...]]) -> pytest.MarkDecorator:
    """All parts of a loop, and of which kinds one write each is drawn in any case."""
    parts = writes_in_parts(patterns)
    found = [(writes, among_them[part]) for part, writes in parts.items()]
    return pytest.mark.parametrize("share", found, ids=parts, indirect=True)


BEFORE_A_RENAME = ("create ", "chmod ", "write ")
RENAME = ("fsync ", "rename ")
OF_A_FILE = shares({"create-write": "(create|chmod|write) "}, {"create-write": BEFORE_A_RENAME, REST: RENAME})
"""What is written in one rename."""
OF_AN_ACTIVATION = shares(
    {"temporary": "(create|write|fsync) "},
    {"temporary": ("create ", "write ", "fsync "), REST: ("rename ", "unlink .*/standby-")},
)
OF_A_REVISION = {
    "create-write": "(create|write) ",
    "chmod-mkdir": "(chmod|symlink|mkdir) ",
    "fsync": "fsync ",
    "rename": "rename ",
}
"""A checkpoint takes a minute and more, so that a few cuts are a case."""
IN_A_REVISION = {
    "create-write": ("create ", "write "),
    "chmod-mkdir": ("chmod ", "symlink ", "mkdir "),
    "fsync": (r"fsync .*/(files|\.pod)",),
    "rename": ("rename .*/current$",),
    REST: ("unlink .*/pod.json$", "rmdir "),
}
OF_A_PARKED_AGENT = {
    "manifest-before-rename": r"(create|chmod|write) .*/manifests/",
    "manifest": r"\w+ .*/manifests/",
    **OF_A_REVISION,
}
IN_A_PARKED_AGENT = {
    "manifest-before-rename": ("create ", "write "),
    "manifest": ("fsync ", "rename ", "unlink .*/manifests/"),
    **IN_A_REVISION,
}


@OF_AN_ACTIVATION
def test_a_power_cut_after_any_write_of_an_activation_and_a_withdrawal(
    cluster: TestCluster, show: Show, share: Share
) -> None:
    replaced = ""

    def begin() -> None:
        nonlocal replaced
        replaced = _hosted_api_server(cluster)
        cluster.kubectl(*SYSTEM, "delete", "pod", "--wait=false", replaced.removeprefix("pod/"))

    def over() -> bool:
        return settled(cluster) and _hosted_api_server(cluster) != replaced

    writes = _cut_after_writes(cluster, r"/manifests/\.?standby-kube-apiserver-", share, begin, over)
    show(table("cut after a write of an activation or withdrawal", ("answers", "settled", "write"), writes))


def _hosted_api_server(cluster: TestCluster) -> str:
    label = "k8s-app=kube-apiserver,autarky.dev/slot=hosted"
    return cluster.kubectl(*SYSTEM, "get", "pods", "-l", label, "-o", "name").strip()


@dataclass
class Edits:
    """Edits of a workload, one at a time. `on_disk`: the revision that the agent keeps of it now, and whether that is
    all in place, with nothing left of what it replaced."""

    cluster: TestCluster
    workload: str
    on_disk: Callable[[], tuple[str, bool]]
    _before: str | None = None

    def fill_up(self) -> None:
        """On a new cluster one revision is there at most: from here on each new one takes the place of another."""
        if not self.on_disk()[1]:
            self.begin()
            self.cluster.wait("the agent keeps as many as it may", self.over, seconds=STOP_SECONDS)

    def begin(self) -> None:
        self._before, _ = self.on_disk()
        self.cluster.kubectl(*SYSTEM, "set", "env", self.workload, f"EDITED={time.time_ns()}")

    def over(self) -> bool:
        current, complete = self.on_disk()
        return current != self._before and complete

    def on_its_way(self) -> bool:
        return self._before is not None and not self.over()


@shares(OF_A_REVISION, IN_A_REVISION)
def test_a_power_cut_after_any_write_of_a_checkpoint_and_of_a_deletion(
    cluster: TestCluster, show: Show, share: Share
) -> None:
    """An edit is followed over the cuts: what a cut has interrupted is done again. What was done before anybody looked,
    while the node came back, is looked at with the next edit."""
    revisions = Path(f"{STANDBY}/kube-scheduler")

    def on_disk() -> tuple[str, bool]:
        directory = Path(f"/proc/{init_process(cluster)}/root", revisions)
        kept = [path for path in directory.iterdir() if path.is_dir() and not path.is_symlink()]
        return (directory / "current").readlink().name, len(kept) == 2

    cluster.wait("a checkpoint was made", lambda: on_disk()[0].startswith("checkpoint-"), seconds=150)
    edits = Edits(cluster, SCHEDULER, on_disk)
    edits.fill_up()
    writes = _cut_after_writes(cluster, f"/{revisions.name}(/|$)", share, edits.begin, edits.over, edits.on_its_way)
    show(table("cut after a write of a checkpoint", ("answers", "settled", "write"), writes))


@shares(OF_A_PARKED_AGENT, IN_A_PARKED_AGENT)
def test_a_power_cut_after_any_write_of_the_agents_own_standby(cluster: TestCluster, show: Show, share: Share) -> None:
    """Its checkpoint and the manifest of the parked agent: as above, an edit is followed over the cuts."""

    def on_disk() -> tuple[str, bool]:
        """The current revision, and whether it is that of the only manifest in place, and nothing more is kept."""
        root = Path(f"/proc/{init_process(cluster)}/root")
        directory = root / STANDBY / "node-agent"
        current = (directory / "current").readlink().name
        kept = [path for path in directory.iterdir() if path.is_dir() and not path.is_symlink()]
        pods = (json.loads(path.read_text()) for path in root.glob("etc/kubernetes/manifests/node-agent-standby-*"))
        placed = [pod["metadata"].get("annotations", {}).get("autarky.dev/revision", "") for pod in pods]
        return current, placed == [current] and len(kept) == 2

    cluster.wait("the parked agent is a copy", lambda: parked_agent_is_a_copy(cluster), seconds=150)
    edits = Edits(cluster, AGENT, on_disk)
    edits.fill_up()
    paths = r"/standby/node-agent(/|$)|/manifests/\.?node-agent-standby-"
    writes = _cut_after_writes(cluster, paths, share, edits.begin, edits.over, edits.on_its_way)
    show(table("cut after a write of the agent's own standby", ("answers", "settled", "write"), writes))


@OF_A_FILE
@pytest.mark.parametrize(("origin", "target"), [("3-4", "1-4"), ("1-4", "3-4")])
def test_a_power_cut_after_any_write_of_a_pivot_at_run_time(
    cluster: TestCluster, show: Show, origin: str, target: str, share: Share
) -> None:
    """What the agent writes down is the level; the operator moves the workloads. Nothing may be left half-way."""

    def is_at(levels: str) -> bool:
        api_server = {"1-4": "hosted", "3-4": "standby"}[levels]
        return _slot_of_the_api_server(cluster) == api_server and bool(cluster.status()["healthy"])

    def goes_to(levels: str) -> None:
        patch_plane(cluster, selfHosted=levels)
        cluster.wait(f"the cluster hosts {levels}", lambda: is_at(levels), seconds=RETURN_SECONDS)

    writes = _cut_after_writes(
        cluster,
        "/var/lib/autarky/state/",
        share,
        lambda: patch_plane(cluster, selfHosted=target),
        lambda: is_at(target),
        prepare=lambda: goes_to(origin),
        home=lambda: is_at(target),
    )
    show(table(f"cut after a write of a pivot to {target}", ("answers", "settled", "write"), writes))
    goes_to("1-4")


def _slot_of_the_api_server(cluster: TestCluster) -> str:
    """The one slot that is in place, as the operator has heard it; else nothing."""
    plane = json.loads(cluster.kubectl("get", "controlplane", "cluster", "-o", "json"))
    found: str = plane["status"]["nodes"][0]["slots"]["kube-apiserver"]["slot"]
    return found


@OF_A_FILE
def test_a_power_cut_after_any_write_of_the_load_balancers_files(
    cluster: TestCluster, show: Show, share: Share
) -> None:
    """They change with the servers there are: somebody names one more in default/kubernetes, and the operator, which
    knows better, takes it out again."""
    more = {"addresses": ["10.255.255.1"], "conditions": {"ready": True}, "nodeName": "no-node"}
    patch = json.dumps([{"op": "add", "path": "/endpoints/-", "value": more}])
    began = 0.0

    def begin() -> None:
        nonlocal began
        cluster.kubectl("patch", "endpointslice", "kubernetes", "--type=json", "-p", patch)
        began = time.monotonic()

    def over() -> bool:
        return time.monotonic() - began > SOON_FOLLOWED

    writes = _cut_after_writes(cluster, f"{nllb.DIRECTORY}/", share, begin, over)
    show(table("cut after a write of the load balancer's files", ("answers", "settled", "write"), writes))


def _cut_after_writes(
    cluster: TestCluster,
    paths: str,
    share: Share,
    begin: Callable[[], None],
    over: Callable[[], bool],
    on_its_way: Callable[[], bool] = lambda: False,
    *,
    prepare: Callable[[], None] = lambda: None,
    home: Callable[[], bool] | None = None,
) -> list[tuple[float, float, str]]:
    """Cut the power after the first write of this share that is drawn and that no cut has followed yet, again and
    again, until `over` with none: (seconds to the API, seconds until settled, the write). `prepare` goes before each
    time, with no write looked for; `begin` does, unless what an earlier one began is `on_its_way` still after a cut:
    then a part of it may have been done already while nobody looked, so if no write is found in the rest, all is begun
    anew. `home`: whether it has settled, where that is not all hosted. So all was looked at from its begin in the end;
    fails when a write that must be among them was not."""
    cuts: list[tuple[float, float, str]] = []
    anew = True
    while True:
        taken = {write for _, _, write in cuts}
        missing = share.draw.missing(taken)
        prepare()
        resumed = not anew and on_its_way()
        with stopped_after_drawn_write(cluster, paths, share.writes, share.draw, taken) as found:
            if not resumed:
                begin()
            cluster.wait("a write was made, or all is done", lambda: found or over(), seconds=STOP_SECONDS)
            if not found and not resumed:
                assert not missing, (missing, cuts)
                return cuts
            anew = not found  # once after each cut at most: what is begun anew ends in another one, or the loop
            if anew:
                continue
            cut(cluster)
        back = comes_back(cluster, home)
        cuts.append((back.answers, back.settled, found[0]))


# --- the first pivot -----------------------------------------------------------------------------------------


FIRST_STARTS = "Start the temporary"
MOMENTS = (
    (FIRST_STARTS, 1.0),
    (FIRST_STARTS, 4.0),
    ("Apply the hosted", 0.5),
    ("Join the nodes", 0.0),
    ("Pivot to", 0.0),
    ("Pivot to", 2.0),
    ("Pivot to", 5.0),
    ("Pivot to", 8.0),
    ("Start the agents", 0.1),
    ("Start the agents", 1.0),
    ("Apply the agents", 0.3),
    ("Wait until everything", 1.0),
)
"""Which phase of `up` has begun, by how its title begins, and for how many seconds."""
assert all(any(phase.title.startswith(title) for phase in PHASES) for title, _ in MOMENTS), "it would never begin"


@pytest.mark.parametrize(("phase", "seconds"), MOMENTS)
def test_up_and_the_power_cut_at_once_in_the_first_pivot(
    make_cluster: Callable[..., TestCluster], show: Show, phase: str, seconds: float
) -> None:
    cluster = make_cluster("t-power-up", **one_node())
    with _up_killed_in(cluster, phase, seconds):
        had_served = any(Client(cluster).answers() for _ in range(3))
        assert had_served or phase == FIRST_STARTS, "it has served since the phase before"
        cut(cluster)
    began = time.monotonic()
    start(cluster)
    if had_served:
        cluster.wait("the API is back without `up`", Client(cluster).answers, seconds=120)
    answered = time.monotonic() - began
    cluster.up()
    cluster.wait("everything is settled", lambda: settled(cluster), seconds=120)
    assert "up: unchanged" in cluster.up().stderr
    show(f"cut {seconds} s after «{phase}» began: the API had served: {had_served}; back after {answered:.1f} s")


@contextmanager
def _up_killed_in(cluster: TestCluster, phase: str, seconds: float) -> Iterator[None]:
    """`up` is stopped for good some seconds after it began a phase: it does nothing in the block, and is killed."""
    argv = [*COMMAND, "up", "-f", str(cluster.file), "-o", "plain"]
    with subprocess.Popen(
        argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as up:
        try:
            assert up.stderr is not None
            assert any(line.partition("] ")[2].startswith(phase) for line in up.stderr), f"{phase} was never reached"
            time.sleep(seconds)
            os.killpg(up.pid, signal.SIGSTOP)
            yield
        finally:
            os.killpg(up.pid, signal.SIGKILL)
