"""Scenes of a move of etcd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autarky.control.certificates.manifests.specs import authorities, certificate_specs
from autarky.model.cluster import ExternalEtcd, Level
from autarky.payload import etcd_version
from autarky.phases.context import Context
from fakes.clusters import FACTS, a_cluster, facts_of
from fakes.host import FakeMachines
from fakes.kube import FakeKube
from fakes.migrating_host import MigratingEtcd
from unit.phases.migration.scenes import ETCD, KEYS, OUTSIDE, STORE, Scene, begin


@pytest.fixture
def scenes(make_context, notes) -> Callable[..., Scene]:
    """An etcd outside serves, or one inside."""
    bases: dict[tuple[int, bool], Context] = {}

    def make(controls: int = 1, *, inside: bool = False) -> Scene:
        world, kube = MigratingEtcd(leader="n1" if inside else "store"), FakeKube()
        plain = a_cluster(Level.API_SERVER, controls=controls)
        external = ExternalEtcd((OUTSIDE,), "", "", "", lab_host="store", lab_address=STORE)
        facts = {**facts_of(plain), "store": replace(FACTS, address=STORE, addresses=(STORE,), hostname="store")}
        hosts = world.of(facts)
        world.values[ETCD] = {"revision": 500, "keys": dict(KEYS)}
        contexts: dict[bool, Callable[[], Context]] = {}
        for into in (True, False):
            cluster = plain if into else replace(plain, external_etcd=external)
            base = bases.setdefault((controls, into), make_context(cluster) if (controls, into) not in bases else None)
            base.pki.ensure(certificate_specs(cluster), cluster.certificates, datetime.now(UTC), authorities(cluster))
            world.version = str(etcd_version(base.release)).removeprefix("v")

            def context(base: Context = base) -> Context:
                return replace(base, machines=FakeMachines({**hosts}), connect=lambda *_: kube, absent={})

            contexts[into] = context
        scene = Scene(contexts, world, kube, notes)
        begin(scene, contexts, inside=inside)
        world.settle()
        world.watched = True
        return scene

    return make
