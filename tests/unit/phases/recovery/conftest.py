"""Scenes for tests of recoveries."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autarky import places
from autarky.control.etcd.manifests import members as etcd_members
from autarky.control.etcd.manifests import pods as etcd
from autarky.model.cluster import Level
from autarky.phases.context import Context
from autarky.phases.hosts import FOUNDED
from autarky.phases.recovery.state import FromSnapshot
from autarky.render import crds
from autarky.render import node as render_node
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeMachines
from fakes.kube import FakeKube
from fakes.recovering_host import RecoveringEtcd
from unit.phases.recovery.scenes import KEYS, OLD, Scene, etcd_member, with_two_left


@pytest.fixture
def scenes(make_context, notes) -> Callable[..., Scene]:
    """Makes one of so many control nodes, all of which serve."""
    bases: dict[int, Context] = {}

    def make(controls: int = 3) -> Scene:
        cluster = a_cluster(Level.ETCD, controls=controls)
        base = bases.setdefault(controls, make_context(cluster) if controls not in bases else None)
        world, kube = RecoveringEtcd(), FakeKube()
        hosts = world.of(facts_of(cluster))
        for definition in (crds.control_plane_crd(), etcd_members.crd()):
            kube.put(definition)
        kube.put(crds.control_plane(cluster))
        world.values[OLD] = {"revision": 500, "keys": dict(KEYS)}
        world.voters[OLD] = {name: number for number, name in enumerate(hosts, 1)}

        def context() -> Context:
            """What one command knows at its beginning."""
            fresh: dict[str, Any] = {
                one: {} for one in ("facts", "owners", "versions", "memories", "records", "absent")
            }
            return replace(base, machines=FakeMachines({**hosts}), connect=lambda *_: kube, applied={}, **fresh)

        for number, (name, host) in enumerate(hosts.items(), 1):
            said = {"cluster": "demo", "node": name, "founders": list(hosts)}
            host.files |= {
                places.NODE_MARKER: (json.dumps(said).encode(), 0o644),
                FOUNDED: (b"", 0o644),
                f"{places.PKI}/ca.crt": (base.pki.files()["ca.crt"], 0o644),
            }
            file = render_node.manifest(etcd.member_pod(base.inputs(), cluster.node(name)))
            host.files[file.path] = (file.content, 0o600)
            host.has_data(OLD, number, world.values[OLD])
            host.notes(OLD)
            host.active_units.add("kubelet")
            kube.put(etcd_member(name, number))
        world.settle()
        return Scene(context, world, kube, notes)

    return make


@pytest.fixture
def scene(scenes, request) -> Scene:
    return scenes(getattr(request, "param", 3))


@pytest.fixture
def two_left(scene: Scene) -> Scene:
    return with_two_left(scene)


@pytest.fixture
def snapshot(tmp_path: Path) -> FromSnapshot:
    path = tmp_path / "snapshot.db"
    path.write_text(json.dumps({"revision": 300, "keys": {"/registry/pods/demo/restored": "1"}}))
    return FromSnapshot(path, "backup-1", path.stat().st_size, 300)
