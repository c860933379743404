"""Another generation of the load balancer: beside the one that serves, proven before that goes, one node at a time."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.errors import TimedOut, Unreachable
from autarky.model.components import LOAD_BALANCER
from autarky.phases.balancer_pods import CONNECTIONS, END_SECONDS, LIMIT, LOOK, plan_replacement, replace_in_turn
from autarky.phases.join import StartJoining
from autarky.phases.prepare import PrepareHosts
from autarky.phases.start import StartControlPlane, static_pod_changes
from autarky.places import MANIFESTS
from autarky.ports import Completed
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from fakes.kube import FakeKube

CLUSTER = a_cluster(controls=3, workers=2)
FORMER = f"{MANIFESTS}/{LOAD_BALANCER}-00000000.json"
STARTS, ENDS = 4.0, 2.0
Acts = list[tuple[str, str]]
"""(node, what), of all nodes, in order."""


@dataclass(slots=True)
class BalancedHost(FakeHost):
    """Its kubelet starts the load balancers whose manifests are there, and ends the others. bad: none of another
    generation ever answers."""

    acts: Acts = field(kw_only=True)
    bad: bool = False
    lingers: float = ENDS
    since: dict[str, float] = field(default_factory=dict)
    """Manifest → when it was written, or removed."""
    answered: bool = False
    """Whether the new one was seen to answer."""

    @property
    def pods(self) -> list[str]:
        return sorted(path for path in self.files if path.startswith(f"{MANIFESTS}/{LOAD_BALANCER}-"))

    def _act(self, what: str) -> None:
        FakeHost._act(self, what)
        _, _, path = what.partition(" ")
        if f"{LOAD_BALANCER}-" in path:
            self.acts.append((self.name, what.replace(FORMER, "former").replace(path, "new")))
            self.since[path] = asyncio.get_running_loop().time()

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, timeout: float = 30.0, check: bool = True
    ) -> Completed:
        if list(argv[:3]) == ["bash", "-c", LOOK]:
            return Completed(0, "\n".join(self._look()).encode(), "")
        return await FakeHost.run(self, argv, stdin=stdin, timeout=timeout, check=check)

    def _look(self) -> Iterator[str]:
        now = asyncio.get_running_loop().time()
        if FORMER in self.pods or now - self.since.get(FORMER, now - self.lingers) < self.lingers:
            yield "former"
        for path in self.pods:
            if path != FORMER and not self.bad and now - self.since.get(path, 0.0) >= STARTS:
                self.answered = True
                yield "listens"
                yield "answers"


@pytest.fixture
async def brought_up(make_context, notes):
    """A cluster whose nodes all run a load balancer of another generation, and what its hosts do to these."""
    acts: Acts = []
    hosts = {name: BalancedHost(name, facts, acts=acts) for name, facts in facts_of(CLUSTER).items()}
    context = make_context(CLUSTER, kube=FakeKube(), hosts=hosts)
    await PrepareHosts().run(context, notes)
    for node in CLUSTER.nodes:
        host = hosts[node.name]
        _, files = await static_pod_changes(context, host, node)
        await host.write_files([file for file in files if LOAD_BALANCER not in file.path])
        host.files[FORMER] = (b"{}\n", 0o600)
        host.active_units.add("kubelet")
        context.joined |= {node.name}
    acts.clear()
    return context


def of_nodes(*names: str) -> Acts:
    return [(name, what) for name in names for what in ("write new", "remove former")]


def acts_of(context) -> Acts:
    return context.machines.hosts["n1"].acts


# --- the order ---------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_each_node_gets_the_new_one_first_and_loses_the_former_one_before_the_next_begins(brought_up, notes):
    await replace_in_turn(brought_up, CLUSTER.nodes, notes)
    assert acts_of(brought_up) == of_nodes("n1", "n2", "n3", "n4", "n5")
    for host in brought_up.machines.hosts.values():
        assert host.answered
        assert host.pods != [FORMER]
        assert len(host.pods) == 1
    written = [host.since[path] for host in brought_up.machines.hosts.values() for path in host.pods]
    assert all(later - before >= STARTS + ENDS for before, later in pairwise(written))
    acts_of(brought_up).clear()
    await replace_in_turn(brought_up, CLUSTER.nodes, notes)
    assert acts_of(brought_up) == [], "a second run changes nothing"


@pytest.mark.looptime
async def test_the_former_one_stays_until_the_new_one_has_answered(brought_up, notes):
    host = brought_up.machines.hosts["n1"]
    async with asyncio.TaskGroup() as group:
        group.create_task(replace_in_turn(brought_up, CLUSTER.nodes[:1], notes))
        await asyncio.sleep(STARTS - 0.5)
        assert len(host.pods) == 2
    assert acts_of(brought_up) == of_nodes("n1")


@pytest.mark.looptime
async def test_the_phases_replace_them_in_turn(brought_up, notes):
    for phase, names in ((StartControlPlane(), ("n1", "n2", "n3")), (StartJoining(), ("n4", "n5"))):
        sentences = [change.sentence for change in await phase.plan(brought_up)]
        found = [sentence for sentence in sentences if LOAD_BALANCER in sentence]
        assert len(found) == len(names)
        for name, sentence in zip(names, found, strict=True):
            assert sentence.endswith(
                f" on {name} beside the former one, and remove that once the new one answers: {FORMER}"
            )
        await phase.run(brought_up, notes)
        assert acts_of(brought_up) == of_nodes(*names)
        assert not [change for change in await phase.plan(brought_up) if LOAD_BALANCER in change.sentence]
        acts_of(brought_up).clear()


@pytest.mark.looptime
async def test_one_that_does_not_end_holds_up_the_next_node_only_for_a_while(brought_up, notes):
    brought_up.machines.hosts["n1"].lingers = 3 * END_SECONDS
    await replace_in_turn(brought_up, CLUSTER.nodes[:2], notes)
    assert acts_of(brought_up) == of_nodes("n1", "n2")


async def test_where_no_kubelet_runs_nobody_would_start_the_new_one(brought_up, notes):
    host = brought_up.machines.hosts["n1"]
    host.active_units.discard("kubelet")
    assert await plan_replacement(brought_up, CLUSTER.nodes[0]) == []
    await replace_in_turn(brought_up, CLUSTER.nodes[:1], notes)
    assert acts_of(brought_up) == []
    stale, missing = await static_pod_changes(brought_up, host, CLUSTER.nodes[0])
    assert stale == [FORMER]
    assert len(missing) == 1


# --- back out ----------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_new_one_that_does_not_answer_is_removed_and_the_nodes_after_it_are_not_touched(brought_up, notes):
    brought_up.machines.hosts["n2"].bad = True
    begun = asyncio.get_running_loop().time()
    with pytest.raises(TimedOut, match=r"node n2: the new load balancer was removed, and the former one stays.*") as it:
        await replace_in_turn(brought_up, CLUSTER.nodes, notes)
    assert asyncio.get_running_loop().time() - begun >= LIMIT
    assert "it does not listen" in str(it.value)
    assert "autarky up" in str(it.value)
    assert acts_of(brought_up) == [*of_nodes("n1"), ("n2", "write new"), ("n2", "remove new")]
    for name in ("n2", "n3", "n4"):
        assert brought_up.machines.hosts[name].pods == [FORMER]


@pytest.mark.looptime
async def test_a_worker_on_which_it_does_not_answer_is_left_out_and_the_next_one_goes_on(brought_up, notes):
    brought_up.machines.hosts["n4"].bad = True
    await replace_in_turn(brought_up, CLUSTER.nodes[3:], notes)
    assert acts_of(brought_up) == [("n4", "write new"), ("n4", "remove new"), *of_nodes("n5")]
    assert "the former one stays" in brought_up.absent["n4"]


@pytest.mark.looptime
async def test_after_an_interruption_anywhere_one_is_there_and_the_next_run_ends_it(brought_up, notes):
    host, node = brought_up.machines.hosts["n1"], CLUSTER.nodes[0]
    for at in range(2):
        host.log.clear()
        acts_of(brought_up).clear()
        for path in host.pods:
            del host.files[path]
        host.files[FORMER] = (b"{}\n", 0o600)
        host.fail_at = at
        with pytest.raises(Unreachable):
            await replace_in_turn(brought_up, [node], notes)
        assert FORMER in host.pods
        host.fail_at = None
        await replace_in_turn(brought_up, [node], notes)
        assert acts_of(brought_up) == of_nodes("n1")
        assert len(host.pods) == 1


# --- the look ----------------------------------------------------------------------------------------------------

UID = "0f0f0f0f-1111-2222-3333-444444444444"


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.asked += 1
        self.send_response(503 if server.asked in server.refused else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Server(ThreadingHTTPServer):
    asked = 0
    refused: frozenset[int] = frozenset()


@contextmanager
def serving(*refused: int) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answers) as server:
        server.refused = frozenset(refused)
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def a_process(proc: Path, pid: int, cgroup: str, *inodes: int, argument: str = nllb.MASTER_ARGUMENT) -> None:
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "cmdline").write_bytes(b"\0".join(one.encode() for one in ("haproxy", "-W", "-S", argument, "")))
    (directory / "cgroup").write_text(f"0::/kubepods.slice/{cgroup}/cri-containerd-a.scope\n")
    (directory / "fd" / "0").symlink_to("/dev/null")
    for number, inode in enumerate(inodes, 1):
        (directory / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


def look_argv(proc: Path, port: int) -> list[str]:
    return ["bash", "-c", LOOK, "bash", str(proc), str(port), UID, str(CONNECTIONS)]


def look(proc: Path, port: int, *sockets: tuple[int, str, int]) -> list[str]:
    """sockets: (port, state, inode)."""
    rows = "".join(
        f"   0: 0100007F:{at:04X} 00000000:0000 {state} 0 0 0 0 0 {inode} 1\n" for at, state, inode in sockets
    )
    (proc / "net").mkdir(parents=True)
    (proc / "net" / "tcp").write_text(f"  sl  local_address rem_address   st\n{rows}")
    done = subprocess.run(
        look_argv(proc, port), capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("cgroup", [f"pod{UID}", f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"])
def test_it_answers_when_its_own_socket_listens_and_all_connections_are_answered(tmp_path, cgroup):
    with serving() as server:
        a_process(tmp_path, 7, cgroup)
        a_process(tmp_path, 8, cgroup, 41, 42)
        a_process(tmp_path, 9, "pod99999999-1111-2222-3333-444444444444", 43)
        rows = (server.server_port, "0A", 42), (server.server_port, "0A", 43)
        assert look(tmp_path, server.server_port, *rows) == ["former", "listens", "answers"]
        assert server.asked == CONNECTIONS


@pytest.mark.parametrize(
    ("own", "rows"),
    [
        ((), [(0, "0A", 43)]),  # only the former one listens
        ((42,), [(0, "01", 42), (0, "0A", 43)]),  # a connection
        ((42,), [(1, "0A", 42), (0, "0A", 43)]),  # another port
    ],
)
def test_what_the_former_one_answers_is_not_taken_for_an_answer_of_the_new_one(tmp_path, own, rows):
    with serving() as server:
        a_process(tmp_path, 8, f"pod{UID}", *own)
        a_process(tmp_path, 9, "podother", 43)
        at = [(server.server_port + shift, state, inode) for shift, state, inode in rows]
        assert look(tmp_path, server.server_port, *at) == ["former"]
        assert server.asked == 0


def test_one_connection_that_is_not_answered_well_is_enough(tmp_path):
    with serving(CONNECTIONS - 1) as server:
        a_process(tmp_path, 8, f"pod{UID}", 42)
        assert look(tmp_path, server.server_port, (server.server_port, "0A", 42)) == ["listens"]


def test_nobody_at_the_port_is_no_answer(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        a_process(tmp_path, 8, f"pod{UID}", 42)
        assert look(tmp_path, port, (port, "0A", 42)) == ["listens"]


def test_the_look_itself_is_no_load_balancer(tmp_path):
    """It is a process of the host whose arguments are seen there as well."""
    a_process(tmp_path, 9, "podother", 43)
    (tmp_path / "9" / "cmdline").write_bytes("\0".join([*look_argv(tmp_path, 1), ""]).encode())
    assert look(tmp_path, 1) == []


def test_another_haproxy_of_the_user_is_none_of_ours(tmp_path):
    a_process(tmp_path, 9, "podother", 43, argument="/run/theirs.sock")
    assert look(tmp_path, 1) == []
