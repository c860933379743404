"""Root on one host has its programs say what it wants: that host cannot be read, and no command ends because of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from autarky import places
from autarky.cli import status as status_commands
from autarky.control.slots import manifests as standby
from autarky.doctor import evidence as doctor
from autarky.doctor.diagnosis import diagnose
from autarky.errors import CommandFailed, Inaccessible, Problems, Unreachable
from autarky.hosts import LocalHost
from autarky.hosts.facts import parse_facts
from autarky.model.cluster import HostRef
from autarky.model.facts import HostFacts
from autarky.phases import belonging, members
from autarky.phases.context import for_each_or_left_out, memory_of
from autarky.phases.former_settings import config_in
from autarky.phases.hosts import CheckHosts, observe
from autarky.phases.teardown import hosts_to_clean
from autarky.ports import Completed
from autarky.render.kubeconfig import bootstrap_token, embedded_certificate, embeds_certificate
from autarky.status import nodes
from autarky.status.look import gather
from fakes.clusters import a_cluster, facts_of
from fakes.host import CleanableHost, FakeHost, FakeMachines
from fakes.kube import FakeKube
from unit.phases.seen import WITH_A_WORKER, MakeContext, SeenHost, a_context, a_kube

NESTED = b"[" * 60_000
pytestmark = pytest.mark.looptime


@dataclass
class SpoiledHost(SeenHost):
    """Its facts cannot be read, or its files, or it lets nobody in; `said`: what doctor's script prints there."""

    facts_text: str | None = None
    unreadable: bool = False
    refuses: bool = False
    said: str | None = None
    listing: str | None = None

    def _let_in(self) -> None:
        if self.refuses:
            raise Inaccessible(f"{self.name} (ssh://{self.name}): it accepts none of the keys", fix="give it your key")

    async def facts(self) -> HostFacts:
        self._let_in()
        return self.host_facts if self.facts_text is None else parse_facts(self.facts_text)

    async def read(self, path: str, *, most: int | None = None) -> bytes | None:
        self._let_in()
        if self.unreadable:
            raise CommandFailed(self.name, ["cat", path], 1, "cat: Is a directory")
        return await super().read(path, most=most)

    async def run(self, argv, *, stdin=None, timeout=30.0, check=True) -> Completed:
        self._let_in()
        if self.said is not None and list(argv[:2]) == ["bash", "-c"] and len(argv) > 3:
            return Completed(0, self.said.encode(), "")
        if self.listing is not None and list(argv) == [standby.SCRIPT_PATH, "list"]:
            return Completed(0, self.listing.encode(), "")
        return await super().run(argv, stdin=stdin, timeout=timeout, check=check)


SPOILED = (
    "address=192.0.2.12\nhostname=n2\nboot_id=x\narchitecture=x86_64\ncgroup_version=2\nmemory_total=1\nclock=1\ncpus=x"
)
BEGINS = b"-----BEGIN CERTIFICATE-----\n" * (16 * 1024 * 1024 // 28)
"""As much as a driver brings over."""
WAYS = [
    {"facts_text": SPOILED},
    {"unreadable": True},
    {"refuses": True},
    {"files": {places.NODE_MARKER: (b"{}", 0o644), belonging.CA: (BEGINS, 0o644)}},
    {"files": {places.NODE_MARKER: (b" " * 100_000, 0o644)}},
]
WORDS_OF_WHY = ("cannot be read", "Is a directory", "the file has more than", "it accepts none of the keys")


@pytest.fixture(autouse=True)
def quick():
    """However long it is what a host says, nobody stands still for it."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 10


def spoiled(make_context: MakeContext, kube=None, **how):
    """n2, a worker, is spoiled."""
    context = a_context(make_context, WITH_A_WORKER, kube or a_kube(WITH_A_WORKER))
    hosts = cast(FakeMachines, context.machines).hosts
    well = hosts["n2"]
    hosts["n2"] = SpoiledHost("n2", well.host_facts, links=dict(well.links), **how)
    context.facts = {}
    return context


@pytest.mark.parametrize("how", WAYS, ids=lambda how: next(iter(how)))
async def test_a_host_that_cannot_be_read_is_told_and_the_others_are_shown(make_context: MakeContext, how):
    found = await gather(spoiled(make_context, **how))
    assert found.api == "ready"
    assert set(found.absent) == {"n2"}
    assert {(row.component, row.node, row.health) for row in found.rows} >= {
        ("kubelet", "n1", "ready"),
        ("kubelet", "n2", "unknown"),
    }
    assert any(words in text for text in found.absent.values() for words in WORDS_OF_WHY)


@pytest.mark.parametrize("how", WAYS, ids=lambda how: next(iter(how)))
async def test_doctor_says_which_host_cannot_be_read_and_looks_at_the_others(make_context: MakeContext, how):
    seen = await doctor.evidence(spoiled(make_context, **how))
    by_name = {node.name: node for node in seen.nodes}
    assert by_name["n1"].problem == ""
    assert by_name["n1"].units == {"containerd": True, "kubelet": True}
    assert by_name["n2"].problem
    assert "n2" in {finding.subject for finding in diagnose(seen)}


@pytest.mark.parametrize("how", WAYS, ids=lambda how: next(iter(how)))
async def test_up_and_node_list_go_on_without_the_host_that_cannot_be_read(make_context: MakeContext, how):
    context = spoiled(make_context, **how)
    marker = json.dumps({"cluster": "demo", "node": "n1", "founders": ["n1"], "ca": context.ours.ca}).encode()
    context.machines.hosts["n1"].files[places.NODE_MARKER] = (marker, 0o644)
    await CheckHosts().plan(context)
    assert set(context.absent) == {"n2"}
    rows = {row.name: row.state for row in await nodes.gather(spoiled(make_context, **how))}
    assert "does not answer" not in rows["n1"]
    assert "does not answer" in rows["n2"]


async def test_a_control_node_and_a_new_node_that_let_nobody_in_are_an_error(make_context: MakeContext):
    """The user can give them the key, and nobody has been trusted with either before."""
    new = spoiled(make_context, FakeKube(), refuses=True)
    with pytest.raises(Inaccessible, match=r"n2 .*accepts none of the keys"):
        await observe(new)
    control = spoiled(make_context)
    control.machines.hosts["n1"] = SpoiledHost("n1", control.machines.hosts["n1"].host_facts, refuses=True)
    with pytest.raises(Inaccessible, match=r"n1 .*accepts none of the keys"):
        await observe(control)


async def test_with_the_api_down_a_worker_that_lets_nobody_in_is_known_by_what_is_remembered(make_context: MakeContext):
    """Root on a worker could keep a recovery from beginning."""
    context = spoiled(make_context, FakeKube(), refuses=True)
    context.kube().set_outage("off")
    with pytest.raises(Inaccessible):
        await observe(context)
    members.path_of(context.directory).write_bytes(memory_of(WITH_A_WORKER.nodes))
    await observe(context)
    assert set(context.absent) == {"n2"}


async def test_work_on_a_worker_that_lets_nobody_in_any_more_leaves_it_out(make_context: MakeContext):
    context = spoiled(make_context, refuses=True)
    context.joined = frozenset({"n1", "n2"})
    done = await for_each_or_left_out(context, context.cluster.nodes, lambda node: context.host(node).facts())
    assert set(done) == {"n1"}
    assert "accepts none of the keys" in context.absent["n2"]


@pytest.mark.parametrize(("name", "other"), [("n2", "n1"), ("n1", "n2")])
async def test_down_goes_on_without_a_worker_that_lets_nobody_in_and_not_without_a_control_node(
    make_context: MakeContext, name: str, other: str
):
    context = spoiled(make_context)
    marker = json.dumps({"cluster": "demo", "node": other, "founders": ["n1"], "ca": context.ours.ca}).encode()
    context.cluster = replace(
        context.cluster, nodes=tuple(replace(node, host=HostRef("ssh", node.name)) for node in context.cluster.nodes)
    )
    hosts = context.machines.hosts
    hosts[other] = CleanableHost(other, files={places.NODE_MARKER: (marker, 0o644)})
    hosts[name] = SpoiledHost(name, hosts[name].host_facts, refuses=True)
    if name == "n1":
        with pytest.raises(Inaccessible):
            await hosts_to_clean(context)
        return
    ours, others = await hosts_to_clean(context)
    assert [node.name for node in ours] == ["n1"]
    assert "node n2 does not answer" in others[0]
    assert "accepts none of the keys" in others[0]


@pytest.mark.parametrize("marker", [NESTED, b'{"founders": ' + NESTED, b'{"cluster": ' + b'{"a":' * 12_000])
async def test_a_marker_of_ten_thousand_levels_says_nothing(make_context: MakeContext, marker):
    context = spoiled(make_context)
    context.machines.hosts["n2"].files[places.NODE_MARKER] = (marker, 0o644)
    await observe(context)
    assert context.owners["n2"].cluster is None
    assert context.absent == {}


@pytest.mark.parametrize("read", [embedded_certificate, bootstrap_token, embeds_certificate])
@pytest.mark.parametrize("content", [NESTED, b"{}", b"[]", b'{"users": [{"user": 7}]}', b"\xff", b'{"users": [[]]}'])
def test_a_kubeconfig_that_cannot_be_read_has_nothing_in_it(read, content):
    assert not read(content)


def test_what_was_kept_of_a_kubelets_settings_may_be_unreadable():
    assert config_in(NESTED) is None


# --- an address that is another node's -------------------------------------------------------------------------------

FOUR = a_cluster(controls=3, workers=1)


def n2_off(make_context: MakeContext, *, unlisted: bool, kube: FakeKube | None = None):
    """No address is in the file; n2, which is remembered, is off, and n4 says that it has n2's."""
    hosts = {name: FakeHost(name, facts) for name, facts in facts_of(FOUR).items() if name != "n2"}
    hosts["n4"].host_facts = replace(hosts["n4"].host_facts, address="192.0.2.12", addresses=("192.0.2.12",))
    context = make_context(FOUR, hosts=hosts, kube=kube)
    members.path_of(context.directory).write_bytes(memory_of(FOUR.nodes))
    nodes_ = tuple(replace(node, address=None) for node in FOUR.nodes if node.name != "n2" or not unlisted)
    context.cluster, context.facts = replace(FOUR, nodes=nodes_), {}
    return context


@pytest.mark.parametrize("unlisted", [False, True])
async def test_a_worker_that_says_the_address_of_a_node_that_is_off_is_refused(make_context: MakeContext, unlisted):
    context = n2_off(make_context, unlisted=unlisted)
    with pytest.raises(Problems, match=r"n4: its address 192\.0\.2\.12 is also recorded for n2"):
        await CheckHosts().plan(context)


async def test_one_that_joined_before_is_left_out_and_keeps_the_address_that_it_had(make_context: MakeContext):
    context = n2_off(make_context, unlisted=False, kube=a_kube(FOUR))
    hosts = context.machines.hosts
    said = json.dumps({"cluster": "demo", "node": "x", "founders": ["n1"], "ca": context.ours.ca}).encode()
    for host in hosts.values():
        host.files[places.NODE_MARKER] = (said, 0o644)
    for _ in range(2):
        await CheckHosts().plan(context)
        assert set(context.absent) == {"n2", "n4"}
        assert "n4: its address 192.0.2.12 is also recorded for n2" in context.absent["n4"]
        assert context.cluster.node("n4").address == "192.0.2.14"


# --- doctor's script ------------------------------------------------------------------------------------------------

LINES = [
    *("", " ", "unit", "unit kubelet", "free /", "free / x", "free / -1", f"free / {'9' * 5000}", "free / ²", "etcd"),
    *("etcd ²", f"etcd {'9' * 5000}", "balancer", "server", "server n1-hosted", "alive", "alive x", "stale", "accepts"),
    *("accepts 1", "syncs", "syncs a b c d", "syncs 0 0 inf nan", "syncs 0 0 1e308 1e-308", "member", "=", "\ud800"),
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: ascii(line[:20]))
async def test_doctor_passes_over_a_line_that_it_does_not_understand(make_context: MakeContext, line):
    said = f"{line.encode(errors='replace').decode()}\nunit kubelet active\n"
    seen = await doctor.evidence(spoiled(make_context, said=said))
    [node] = [node for node in seen.nodes if node.name == "n2"]
    assert (node.problem, node.units) == ("", {"kubelet": True})
    diagnose(seen)


WORDS = st.sampled_from([*{word for line in LINES for word in line.split()}, "200", "-", "active", "n1-hosted", "7443"])


@settings(max_examples=300, deadline=None)
@given(st.text() | st.lists(st.lists(WORDS).map(" ".join)).map("\n".join))
def test_whatever_doctors_script_prints_it_is_read(text):
    doctor.read_said(text, ["n1-hosted"])


def test_of_what_doctors_script_prints_only_what_it_was_asked_for_is_read():
    lines = [f"{word} {server} 200" for word in ("server", "alive") for server in ("n1-hosted", "x-hosted")]
    said = doctor.read_said("\n".join([*lines, "free / 9", "free /x 0"]), ["n1-hosted"])
    assert (said.servers, said.alive, said.free) == ({"n1-hosted": True}, {"n1-hosted": True}, {"/": 9})


@pytest.mark.parametrize("clock", ["nan", "inf", "-inf", "1e400", "noon", ""])
async def test_a_clock_that_is_no_time_is_unknown(make_context: MakeContext, monkeypatch, clock):
    context = spoiled(make_context)

    async def date(_self) -> Completed:
        return Completed(0, clock.encode(), "")

    monkeypatch.setattr(SpoiledHost, "_date", date)
    seen = await doctor.evidence(context)
    assert {node.name: node.clock is None for node in seen.nodes} == {"n1": False, "n2": True}
    diagnose(seen)


# --- the standby's list -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listing", ["kube-apiserver", "kube-apiserver -\n\nx", "\n \n-"])
async def test_a_list_of_standbys_that_cannot_be_read_costs_nothing_but_itself(make_context: MakeContext, listing):
    kube = a_kube(WITH_A_WORKER, labelled="n2")
    with pytest.raises(Unreachable, match="cannot be parsed"):
        standby.parse_list(listing)
    found = await gather(spoiled(make_context, kube, listing=listing))
    assert {row.node for row in found.rows if row.slot == "standby"} == {"n1"}
    seen = await doctor.evidence(spoiled(make_context, a_kube(WITH_A_WORKER, labelled="n2"), listing=listing))
    assert [bool(node.problem) for node in seen.nodes] == [False, True]


# --- the driver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"\xff\xfe", b"x\0", b"zz /a\0", b"9 /a\0" + b"0" * 64 + b"  /a\0"])
async def test_digests_of_a_host_that_says_what_it_wants_are_of_no_file(monkeypatch, said):
    async def ask(*_args: object) -> Completed:
        return Completed(0, said, "")

    monkeypatch.setattr(LocalHost, "_ask", ask)
    assert await LocalHost("here").digests(["/a"]) == {}


def test_logs_are_read_of_files_that_are_logs_alone(make_context: MakeContext, monkeypatch):
    class Odd(SpoiledHost):
        async def run(self, argv, *, stdin=None, timeout=30.0, check=True) -> Completed:
            if list(argv[:2]) == ["sh", "-c"]:
                good = "/var/log/pods/kube-system_etcd-n2_0f3a/etcd/0.log"
                return Completed(0, f"x\n/etc/shadow\n/var/log/pods/x\n/a/b/c/d/e/f\n{good}\n".encode(), "")
            assert argv[0] == "tail"
            return Completed(0, str(Path(argv[-1]).name).encode(), "")

    context = spoiled(make_context)
    context.machines.hosts["n2"] = Odd("n2", context.machines.hosts["n2"].host_facts)
    monkeypatch.setattr("autarky.cli.wiring.load_cluster", lambda _file, _name, **_more: WITH_A_WORKER)
    monkeypatch.setattr("autarky.cli.wiring.build_context", lambda _cluster: context)
    result = CliRunner().invoke(status_commands.logs, ["etcd", "--node", "n2"])
    assert result.exit_code == 0, result.exception
    assert "0.log" in result.output
    assert json.dumps("/etc/shadow") not in result.output
