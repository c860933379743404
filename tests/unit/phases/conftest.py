"""An operation on hosts and an API in memory, with real keys, and time that the event loop owns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autarky.control.certificates.manifests.specs import authorities, certificate_specs
from autarky.model.cluster import Cluster
from autarky.model.components import IMAGES, KUBELET
from autarky.payload import Binary, Image, Payload, image_reference, load_release
from autarky.phases.context import Context
from autarky.pki import PkiStore
from autarky.render import node as render_node
from fakes.clock import LoopClock
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost, FakeMachines
from fakes.kube import FakeKube


@dataclass
class Notes:
    """A Progress that keeps what is noted."""

    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def progress(self, what: str, done: float, total: float) -> None: ...

    def waiting(self, what: str, deadline: float, last: str) -> None: ...


@pytest.fixture(scope="session")
def pki_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cluster], PkiStore]:
    """Issued keys; made once for each set of nodes and of what they are."""
    made: dict[tuple[object, ...], PkiStore] = {}

    def make(cluster: Cluster) -> PkiStore:
        kinds = tuple((node.name, node.control_plane, node.initial_member) for node in cluster.nodes)
        if kinds not in made:
            made[kinds] = PkiStore(tmp_path_factory.mktemp("pki") / "pki")
            made[kinds].ensure(
                certificate_specs(cluster), cluster.certificates, datetime.now(UTC), authorities(cluster)
            )
        return made[kinds]

    return make


@pytest.fixture
def payload_of(tmp_path: Path) -> Callable[[Cluster], Payload]:
    def make(cluster: Cluster) -> Payload:
        release = load_release(cluster.kubernetes_version)
        names = set(render_node.BINARIES)
        components = {*IMAGES, KUBELET}
        for name in names | components:
            (tmp_path / name).write_text(f"{name} binary")
        binaries = {name: Binary(name, tmp_path / name, f"{name:0<64}", 1) for name in names}
        images = {}
        for name in components:
            reference, digest = image_reference(release, name), f"sha256:{name}"
            archive = tmp_path / f"{name}.tar"
            archive.write_text(f"{reference} {digest}")
            images[name] = Image(name, reference, archive, f"{name:0<64}", 1, digest)
        return Payload(release, binaries, images)

    return make


@pytest.fixture
def make_context(tmp_path, pki_of, payload_of) -> Callable[..., Context]:
    """A context for the cluster, on fresh hosts and a fresh API unless they are given."""

    def make(
        cluster: Cluster | None = None, *, kube: FakeKube | None = None, hosts: dict[str, FakeHost] | None = None
    ) -> Context:
        cluster = cluster or a_cluster()
        facts = facts_of(cluster)
        api = kube or FakeKube()
        return Context(
            cluster=cluster,
            release=load_release(cluster.kubernetes_version),
            machines=FakeMachines(hosts or {name: FakeHost(name, facts[name]) for name in facts}),
            pki=pki_of(cluster),
            connect=lambda _url, _certificate: api,
            clock=LoopClock(),
            directory=tmp_path,
            silence=Notes(),
            payload=payload_of(cluster),
            facts=facts,
        )

    return make


@pytest.fixture
def notes() -> Notes:
    return Notes()
