"""A node whose agent changes its kubelet: its real disk, the API, the runtime and the images in memory; tests play the
host's script (`script_…`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autarky.control.base.pending_events import PendingEvents
from autarky.control.kubelet.decide import order, report
from autarky.control.kubelet.decide.observed import Other
from autarky.control.kubelet.decide.order import Order, Request, Target
from autarky.control.kubelet.decide.own import SPARE
from autarky.control.kubelet.decide.report import Report, State
from autarky.control.kubelet.manifests import files, generation
from autarky.control.kubelet.manifests.generation import Base
from autarky.control.kubelet.node.change import KubeletChange
from autarky.control.kubelet.node.on_disk import KubeletFiles
from autarky.control.kubelet.node.staged import Staged
from autarky.control.kubelet.node.staging import Staging
from autarky.model.versions import Version
from autarky.ports import Object
from autarky.render.crds import API_VERSION, CONTROL_PLANE, control_plane_crd
from fakes.clock import HandClock
from fakes.cri import FakeCri
from fakes.image_files import FakeImageFiles
from fakes.kube import FakeKube
from unit.control.kubelet.staging_scene import as_up_has_left_it, put_by_up, says_its_version, stored, switch

NODE = "n1"
V36, V37 = Version(1, 36, 4), Version(1, 37, 1)
BASE = Base({"kind": "KubeletConfiguration"}, {"node-ip": "192.0.2.11"})
BASE_CONTENT = generation.base_file(BASE).content
DIGEST = generation.base_digest(BASE_CONTENT)
OLD, NEW = Target(V36, DIGEST), Target(V37, DIGEST)


def program(version: Version) -> bytes:
    return f"the kubelet {version}\n".encode() * 50


def image(version: Version) -> str:
    return f"{files.IMAGE}:{version}"


def an_order(target: Target = NEW, number: int = 3, **request: Any) -> Order:
    return order.made(Request(target, image(target.version), **request), number)


def on_disk(root: Path) -> Path:
    """As `up` leaves it: a first generation, which the links of bin/ lead through."""
    as_up_has_left_it(root)
    put_by_up(root, "kubelet", program(V36))
    (root / "bin/kubelet-slots").write_bytes(b"#!/bin/sh\n")
    switch(root, stage(root, OLD))
    (root / "kubelet/base.json").write_bytes(BASE_CONTENT)
    (root / "state/kubelet-staged.json").unlink()
    return root


def stage(root: Path, target: Target) -> str:
    """A complete generation, without an image."""
    (root / "store" / stored("kubelet", program(target.version))).write_bytes(program(target.version))
    (root / "store" / stored("kubelet", program(target.version))).chmod(0o755)
    programs = {name: (root / "bin" / name).resolve().name for name in files.RUNTIME}
    made = generation.made(BASE, target) | {files.VERSION: f"{target.version}\n".encode()}
    programs |= {"kubelet": stored("kubelet", program(target.version))}
    found = generation.Generation({name: generation.in_store(one) for name, one in programs.items()}, made)
    Staged(root).write(found)
    return found.name


@dataclass
class Host:
    """health: what its kubelet answers to /healthz."""

    root: Path
    kube: FakeKube = field(default_factory=FakeKube)
    cri: FakeCri = field(default_factory=FakeCri)
    clock: HandClock = field(default_factory=lambda: HandClock(1000.0))
    works: dict[Other, Any] = field(default_factory=dict)
    boot: str | None = "boot-1"
    free: int = 10 * SPARE
    health: int | None = 200
    said: list[str] = field(default_factory=list)
    beats: int = 0

    def __post_init__(self) -> None:
        self.images = FakeImageFiles({image(V37): {files.IMAGE_PATH: program(V37)}})
        self.kube.put(control_plane_crd())
        self.plane()
        self.kube.put(a_node())
        self.beat()
        self.agent = self.new_agent()

    def new_agent(self) -> KubeletChange:
        """As after a restart of the agent: nothing is remembered."""
        self.agent = KubeletChange(
            NODE,
            self.kube,
            self.cri,
            self.images,
            lambda: self.kube._objects.get(("v1", "Node", None, NODE)),
            self.works,
            self.clock,
            lambda _, text: self.said.append(text),
            files=KubeletFiles(self.root),
            staging=Staging(self.images, self.root, free=lambda _: self.free, version_of=says_its_version),
            boot=lambda: self.boot,
            uptime=lambda: int(self.clock.now),
            pending=PendingEvents(self.said.append, self.root / "events.json"),  # type: ignore[arg-type]
        )
        return self.agent

    async def healthz(self, _port: int, _path: str) -> int | None:
        return self.health

    async def passes(self, count: int = 1, *, beats: bool = False) -> float:
        rests = 0.0
        for _ in range(count):
            rests = await self.agent.reconcile()
            self.clock.now += 1.0
            if beats:
                self.beat()
        return rests

    # --- the API ---

    def plane(self, version: Version = V37) -> None:
        spec = {"version": str(version), "selfHosted": "1-4"}
        status = {"version": str(version)}
        self.kube.put(
            {
                "apiVersion": API_VERSION,
                "kind": "ControlPlane",
                "metadata": {"name": CONTROL_PLANE},
                "spec": spec,
                "status": status,
            }
        )

    @property
    def node(self) -> Object:
        return self.kube._objects[("v1", "Node", None, NODE)]

    def change_node(self, *, runs: Version | None = None, annotations: dict[str, str | None] | None = None) -> None:
        obj = {**self.node, "metadata": dict(self.node["metadata"]), "status": dict(self.node["status"])}
        if runs is not None:
            obj["status"]["nodeInfo"] = {"kubeletVersion": str(runs)}
        found = {**obj["metadata"].get("annotations", {}), **(annotations or {})}
        obj["metadata"]["annotations"] = {key: value for key, value in found.items() if value is not None}
        self.kube.put(obj)

    def gets(self, given: Order) -> Order:
        self.change_node(annotations={order.ANNOTATION: order.text(given)})
        return given

    def cordoned(self) -> None:
        self.kube.put({**self.node, "spec": {"unschedulable": True}})

    @property
    def report(self) -> Report | None:
        return report.read(self.node["metadata"])

    def beat(self, at: str = "") -> None:
        """at: as it says; else nothing that can be compared with clocks."""
        self.beats += 1
        self.kube.put(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": NODE, "namespace": "kube-node-lease"},
                "spec": {"renewTime": at or f"2027-01-01T00:00:{self.beats:06d}Z"},
            }
        )

    def pod(self, name: str, namespace: str = "kube-system", *, sandbox: bool = True, **other: Any) -> str:
        """Its sandbox, if it gets one."""
        meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", **other.pop("metadata", {})}
        if ("v1", "Namespace", None, namespace) not in self.kube._objects:
            self.kube.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        status = other.pop("status", {"phase": "Running"})
        uid = other.pop("runtime_uid", meta["uid"])
        spec = {"nodeName": NODE, "containers": [], **other}
        self.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})
        return self.cri.run_sandbox(name, namespace, uid) if sandbox else ""

    @property
    def events(self) -> list[tuple[str, str, str]]:
        found = [obj for (_, kind, _, _), obj in self.kube._objects.items() if kind == "Event"]
        return [(one["type"], one["reason"], one["message"]) for one in found]

    # --- the disk, and the script ---

    def read(self, name: str) -> dict[str, str]:
        path = self.root / "kubelet" / name
        return files.parse(path.read_bytes()) if path.exists() else {}

    def write(self, name: str, **values: object) -> None:
        (self.root / "kubelet" / name).write_bytes(files.written(values))

    @property
    def current(self) -> str:
        return (self.root / "kubelet/current").readlink().name

    def script_begins(self) -> None:
        ask = self.read("ask")
        trial = {"order": ask["order"], "generation": ask["generation"], "former": self.current, "boot": ask["boot"]}
        switch(self.root, ask["generation"])
        self.write("trial", **trial, phase="proving", until=2000, ceiling=3000, why="")

    def script_ends(self, outcome: str, why: str = "") -> None:
        trial = self.read("trial")
        if outcome != "good":
            former = trial["former"]
            (self.root / "kubelet/current").unlink()
            (self.root / "kubelet/current").symlink_to(former)
        said = {key: trial[key] for key in ("order", "generation", "former")}
        self.write("result", **said, result=outcome, boot=self.boot, why=why)
        for name in ("trial", "verdict", "ask"):
            (self.root / "kubelet" / name).unlink(missing_ok=True)


def a_node() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE},
        "spec": {},
        "status": {
            "nodeInfo": {"kubeletVersion": str(V36)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def asked(host: Host) -> bool:
    return bool(host.read("ask"))


async def until_asked(host: Host) -> None:
    for _ in range(10):
        await host.passes()
        if asked(host):
            return
    raise AssertionError(f"it has not asked: {host.said}")


async def on_trial(host: Host, **given: Any) -> str:
    """The order's id; the new kubelet runs, and nobody has judged it."""
    found = host.gets(an_order(**given))
    await until_asked(host)
    host.script_begins()
    host.change_node(runs=found.target.version)
    return found.id


def state(host: Host) -> State | None:
    assert host.report is not None
    return host.report.state
