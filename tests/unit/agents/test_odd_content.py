"""Whatever lies in a file of ours, and whatever is in an object of ours: nothing that reads it ends a loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autarky.agents.node import lock
from autarky.control.agents import node as standby_agent
from autarky.control.base import pending_events
from autarky.control.checkpoint.node import checkpointer
from autarky.control.checkpoint.node import images as image_keeping
from autarky.control.common import understood
from autarky.control.control_nodes.node import parts as control_parts
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.drift.decide import applied
from autarky.control.etcd.decide import wanted as etcd_wanted
from autarky.control.etcd.node import on_disk as etcd_on_disk
from autarky.control.etcd.node.membership import _desired
from autarky.control.etcd.operator import members as operator_etcd
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.load_balancer.node import balancer as load_balancer
from autarky.control.rollout.operator import rollouts as operator_rollouts
from autarky.control.slots.decide import report as node_slots
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.model.levels import TEXTS, HostedLevels
from autarky.ports import Object
from unit.control.disks import Disk, a_disk

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *("metadata", "uid", "name", "annotations", "autarky.dev/revision", "spec", "containers", "image", "volumes"),
        *("state", "lowestHosted", "member", "address", "learner", "reason", "message", "when"),
        *("cluster", "founders", "node", "servers", "etcd", "control_node", "withdrawn"),
    ]
)
OURS = st.recursive(
    JSON, lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=8
)
PODS = st.dictionaries(KEYS, OURS, max_size=4).map(
    lambda value: json.dumps({**value, "kind": "Pod"}, indent=2).encode() + b"\n"
)
CONTENT = st.one_of(st.binary(max_size=60), OURS.map(lambda value: json.dumps(value).encode()), PODS)
ODD = [
    *(b"", b"\xff", b"[]", b"{", b"null", b"x 1e999", b"x nan", b"[" * 100_000),
    b'{\n"kind": "Pod", "metadata": "banana"}\n',
    b'{\n"kind": "Pod", "metadata": {"uid": [], "annotations": []}}\n',
    b'{\n"kind": "Pod", "x": \xff}\n',
    b'[{"reason": "r", "message": "m", "when": 1e300}]',
]
FILES = [
    (slots_on_disk, "WANTED"),
    (slots_on_disk, "HOLDERS"),
    (slots_on_disk, "THIS_BOOT"),
    (role_on_disk, "FILE"),
    (role_on_disk, "MARKER"),
    (etcd_on_disk, "MEMBERS"),
]
OTHERS = ("lock", "pending", "haproxy.cfg", "members", "server.key", "server.crt", "client.crt", "member/wal/0.wal")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """With a file of ours wherever the agent reads one."""
    root = tmp_path_factory.mktemp("disk")
    with pytest.MonkeyPatch.context() as monkeypatch:
        disk = a_disk(root, monkeypatch)
        for component in ("kube-apiserver", "node-agent"):
            disk.revision(component, "r1", "image")
        for module, name in FILES:
            monkeypatch.setattr(module, name, root / name)
        monkeypatch.setattr(lock, "LOCK", str(root / "lock"))
        monkeypatch.setattr(control_parts, "ETCD_PKI", root)
        monkeypatch.setattr(etcd_on_disk, "MANIFESTS", disk.manifests)
        monkeypatch.setattr(etcd_on_disk, "DATA", root)
        (root / "member/wal").mkdir(parents=True)
        yield disk


def paths(root: Path) -> list[Path]:
    standbys = [root / "standby" / component / "r1/pod.json" for component in ("kube-apiserver", "node-agent")]
    names = ("standby-kube-apiserver-0badc0de", "node-agent-standby-0badc0de", "etcd-0badc0de")
    manifests = [root / "manifests" / f"{name}.json" for name in names]
    return [*standbys, *manifests, *(root / name for _, name in FILES), *(root / name for name in OTHERS)]


def readers(root: Path) -> list[Callable[[], object]]:
    def text(name: str) -> str:
        return load_balancer._read(str(root / name)) or ""

    return [
        *(slots_on_disk.active_standbys, slots_on_disk.activations, slots_on_disk.wanted_level),
        *(
            slots_on_disk.this_boot,
            slots_on_disk.noted_holders,
            role_on_disk.state,
            role_on_disk.leaves,
            role_on_disk.forget_initial_membership,
        ),
        *(etcd_on_disk.manifests, etcd_on_disk.data, etcd_on_disk.remembered_addresses),
        *(image_keeping.images_on_disk, standby_agent.manifests_in_place, standby_agent.current_revision),
        *(control_parts.needs_etcd, control_parts.complete),
        lambda: checkpointer.disk_of("kube-apiserver"),
        lambda: pending_events._read(root / "pending"),
        lambda: lock.hung(lock.LOCK),
        lambda: nllb.parse(text("haproxy.cfg")),
        lambda: load_balancer.voting_members(text("members")),
    ]


@settings(deadline=None)
@given(content=CONTENT)
def test_any_bytes_in_any_file_of_ours_end_no_loop(disk: Disk, content: bytes) -> None:
    read_everything(disk.root, content)


@pytest.mark.parametrize("content", ODD)
def test_bytes_that_would_end_a_loop_do_not(disk: Disk, content: bytes) -> None:
    read_everything(disk.root, content)


def read_everything(root: Path, content: bytes) -> None:
    for path in paths(root):
        path.write_bytes(content)
    for happened in pending_events._read(root / "pending"):
        datetime.fromtimestamp(happened.when, UTC)
    for read in readers(root):
        read()


def test_what_is_well_is_read(disk: Disk) -> None:
    """So that "nothing is raised" is not "nothing is read"."""
    disk.manifest("standby-kube-apiserver-0badc0de", "u1")
    slots_on_disk.WANTED.write_text('{"lowestHosted": 2}')
    slots_on_disk.THIS_BOOT.write_text("boot 1000.5")
    role_on_disk.FILE.write_text('{"state": "ready"}')
    (disk.root / "pending").write_text('[{"reason": "r", "message": "m", "when": 1}]')
    activations = slots_on_disk.activations()
    assert activations is not None
    assert activations["kube-apiserver"] == {"u1"}
    assert slots_on_disk.wanted_level() == 2
    assert slots_on_disk.this_boot() is not None
    assert role_on_disk.state() is role_on_disk.State.READY
    assert pending_events._read(disk.root / "pending") == [pending_events.Happened("r", "m", 1)]


# --- objects -----------------------------------------------------------------------------------------------

FIELDS = st.sampled_from(
    [
        *("version", "selfHosted", "componentArguments", "rollback", "enabled", "limitSeconds", "etcd", "members"),
        *("address", "state", "phase", "memberID", "lostMemberID", "vacatedMemberID", "vacating", "message"),
        *("upgrade", "soakSeconds", "conditions", "type", "status", "lastTransitionTime"),
    ]
)
VALUES = st.recursive(
    JSON | st.sampled_from(["v1.36.4", "1-4", "02-4", "4", "10.0.0.1", "Member", "ff", "banana"]),
    lambda inner: st.dictionaries(FIELDS, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=10,
)
GOOD = {"version": "v1.36.4", "selfHosted": "1-4"}


@settings(deadline=None)
@given(spec=VALUES | VALUES.map(lambda odd: {**GOOD, "rollback": odd, "etcd": odd, "upgrade": odd}), status=VALUES)
@example(spec={**GOOD, "selfHosted": "banana"}, status={})
@example(spec={**GOOD, "etcd": {"members": None}}, status={})
@example(spec={**GOOD, "rollback": None}, status=None)
@example(spec=GOOD, status={"conditions": [{"type": 1}]})
@example(spec={**GOOD, "defaults": True}, status={})
@example(spec={**GOOD, "defaults": 0}, status={})
@example(spec={**GOOD, "upgrade": {"soakSeconds": True}}, status={})
def test_any_control_plane_is_understood_or_left_alone(spec: Any, status: Any) -> None:
    plane: Object = {"metadata": {"name": "cluster", "annotations": {applied.ANNOTATION: json.dumps(spec)}}}
    plane |= {"spec": spec, "status": status}
    applied.record_of(plane)
    if understood.is_control_plane(plane):
        assert str(HostedLevels.parse(plane["spec"]["selfHosted"])) == plane["spec"]["selfHosted"]
        assert int(plane["spec"].get("defaults", 1)) >= 1
        assert type((plane["spec"].get("upgrade") or {}).get("soakSeconds", 0)) is int
        operator_rollouts._policy(SimpleNamespace(control_plane=plane))  # type: ignore[arg-type]
    read = understood.without_odd_status(plane)
    assert all(isinstance(one["type"], str) for one in read["status"].get("conditions", []))


@settings(deadline=None)
@given(spec=VALUES | VALUES.map(lambda odd: {"address": "10.0.0.1", "state": odd}), status=VALUES)
@example(spec={"address": "10.0.0.1"}, status={"lostMemberID": "banana"})
@example(spec={"address": "10.0.0.1"}, status=["odd"])
def test_any_member_of_etcd_is_understood_or_left_alone(spec: Any, status: Any) -> None:
    member = {"metadata": {"name": "n1"}, "spec": spec, "status": status}
    if understood.is_etcd_member(member):
        _desired(member)
        operator_etcd._existing(member)
        operator_etcd._settled([member], etcd_wanted.Wanted((), (), None), {})


@pytest.mark.parametrize("level", TEXTS)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"componentArguments": {"kube-scheduler": {"v": "4"}}},
        {"rollback": {"enabled": False, "limitSeconds": 10}},
        {"etcd": {"members": ["n1"]}},
        {"etcd": {}},
        {"upgrade": {"soakSeconds": 86400}},
        {"upgrade": {}},
    ],
)
def test_what_the_definition_takes_is_understood(level: str, more: dict[str, Any]) -> None:
    assert understood.control_plane({"spec": {"version": "v1.37.1", "selfHosted": level, **more}}) is None


@given(JSON)
def test_any_annotation_of_a_node_is_read(value: Any) -> None:
    for text in (json.dumps(value), json.dumps({"level": value, "slots": value}), json.dumps({"slots": {"x": value}})):
        said = node_slots.read({"metadata": {"annotations": {node_slots.ANNOTATION: text}}})
        assert type(said.get("level", 0)) is int
        assert all(isinstance(one, dict) for one in said.get("slots", {}).values())
