"""A control node's agent renews the node's certificates by itself, with no API, and never makes anything worse."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import stat
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from autarky import places
from autarky.control.certificates import decide as certificates
from autarky.control.certificates import node as leaf_keeping
from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import authorities, certificate_specs
from autarky.control.certificates.node import LeafKeeping
from autarky.control.kubelet.manifests.credentials import GIVEN
from autarky.model.cluster import CertificateSettings
from autarky.model.components import WITH_STANDBY
from autarky.pki import PkiStore
from autarky.pki.issue import Pair, read_pair
from autarky.pki.kept import Wanted, why_renewed
from autarky.ports import Object
from autarky.store import write_private
from fakes.clock import HandClock
from fakes.clusters import a_cluster
from fakes.kube import FakeKube
from unit.pki.damage import flipped, unforeseen_by_a_reader_of_values

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
CLUSTER = a_cluster(controls=1, workers=1)
LIFE = 6 * 60
LONGEST = leaves.LEAST_OF_CLIENT_GO
CURRENT = "var/lib/kubelet/pki/kubelet-client-current.pem"


@dataclass
class Scene:
    root: Path
    files: dict[str, bytes]
    clock: HandClock = field(default_factory=lambda: HandClock(NOW.timestamp()))
    said: list[str] = field(default_factory=list)
    live: Object | None = None
    node: Object | None = None
    kube: FakeKube = field(default_factory=FakeKube)
    keeping: LeafKeeping = field(init=False)

    def __post_init__(self) -> None:
        for name, content in self.files.items():
            self.write(f"etc/kubernetes/pki/{name}", content)
        plan = leaves.Plan(LIFE, "EC", ("localhost", "127.0.0.1", "n1", "192.0.2.11"), etcd=True)
        self.write(places.LEAVES_PLAN.lstrip("/"), leaves.written(plan.at("192.0.2.11")).encode())
        self.begin()

    def begin(self) -> None:
        """An agent that knows nothing but what is on the disk."""
        self.keeping = LeafKeeping(
            "n1",
            self.kube,
            self.clock,
            lambda _, sentence: self.said.append(sentence),
            lambda: self.live,
            lambda: self.node,
            lambda: True,
            root=self.root,
        )

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now, UTC)

    def write(self, path: str, content: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)

    def round_after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.keeping.look()

    @property
    def all(self) -> dict[str, bytes]:
        """Every certificate that it keeps, by its path."""
        roots = [self.root / "var/lib/autarky", self.root / "etc/kubernetes/pki/etcd"]
        paths = [path for root in roots for path in root.rglob("*") if path.suffix in (".crt", ".pem")]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths if path.name != "ca.crt"}

    def serving(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.all["var/lib/autarky/leaves/kube-apiserver/apiserver.crt"])


@pytest.fixture(scope="module")
def cas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    store = PkiStore(tmp_path_factory.mktemp("pki"))
    store.ensure(certificate_specs(CLUSTER), CertificateSettings(), NOW - timedelta(days=30), authorities(CLUSTER))
    return {name: content for name, content in store.files().items() if "ca." in name}


@pytest.fixture
def scene(cas: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(leaves, "GROUP", os.getgid())
    scene = Scene(tmp_path, cas)
    scene.keeping.look()
    shutil.rmtree((scene.root / CURRENT).parent)  # what its kubelet has, each test says
    return scene


def ends(found: dict[str, bytes]) -> dict[str, datetime]:
    return {path: x509.load_pem_x509_certificate(pem).not_valid_after_utc for path, pem in found.items()}


# --- what is renewed, and when ---------------------------------------------------------------------------


def test_all_leaves_of_a_control_node_are_issued_with_no_api(scene: Scene) -> None:
    assert sorted(Path(path).name for path in scene.all) == [
        *("apiserver.crt", "client.crt", "client.crt", "etcd-client.crt", "etcd-client.pem"),
        *("front-proxy-client.crt", "kubelet-client.crt", "peer.crt", "server.crt"),
    ]
    assert not scene.keeping.trouble


def test_a_borrowed_certificate_of_a_peer_is_left_alone_until_it_is_given_back(scene: Scene) -> None:
    """While the members of an etcd outside of the cluster accept only one of their own CA."""
    path, before = scene.root / "etc/kubernetes/pki/etcd/peer.crt", scene.all
    path.write_bytes(b"of another CA")
    scene.write(places.ETCD_PEERS_CA.lstrip("/"), b"both CAs")
    scene.round_after(LIFE)
    assert path.read_bytes() == b"of another CA"
    server = "etc/kubernetes/pki/etcd/server.crt"
    assert scene.all[server] != before[server]
    assert not scene.keeping.trouble
    (scene.root / places.ETCD_PEERS_CA.lstrip("/")).unlink()
    scene.round_after(1)
    assert path.read_bytes().startswith(b"-----BEGIN CERTIFICATE")


def test_each_is_renewed_at_two_thirds_of_its_life_and_none_before(scene: Scene) -> None:
    first = scene.all
    scene.round_after(LIFE * 2 / 3 - 1)
    assert scene.all == first
    scene.round_after(2)
    short = {path for path, end in ends(first).items() if end == NOW + timedelta(seconds=LIFE)}
    assert short == {path for path in first if scene.all[path] != first[path]}
    assert len(short) == 6


def test_what_client_go_reads_every_five_minutes_is_valid_for_more_than_that_whenever_it_looks(scene: Scene) -> None:
    """No certificate may be in place that expires before client-go has looked again."""
    slow = [path for path, end in ends(scene.all).items() if end == NOW + timedelta(seconds=LONGEST)]
    assert sorted(Path(path).name for path in slow) == ["client.crt", "client.crt", "kubelet-client.crt"]
    for _ in range(400):
        scene.round_after(10)
        assert min(ends(scene.all)[path] for path in slow) - scene.now > timedelta(minutes=5, seconds=30)


def test_a_renewal_keeps_the_key_so_that_whoever_reads_both_files_has_a_pair(scene: Scene) -> None:
    directory = scene.root / "var/lib/autarky/leaves/kube-apiserver"
    key = (directory / "apiserver.key").read_bytes()
    before = scene.serving().serial_number
    scene.round_after(LIFE)
    assert (directory / "apiserver.key").read_bytes() == key
    assert scene.serving().serial_number != before
    read_pair(Pair((directory / "apiserver.crt").read_bytes(), key))


def test_a_cluster_that_was_off_for_longer_than_its_leaves_live_renews_them_all_with_no_api(scene: Scene) -> None:
    first = scene.all
    scene.clock.now += timedelta(days=30).total_seconds()
    scene.begin()
    scene.keeping.look()
    assert all(scene.all[path] != first[path] for path in first)
    assert min(ends(scene.all).values()) > scene.now


def test_those_who_use_them_may_read_them_and_nobody_else_may_look_for_them(scene: Scene) -> None:
    root = scene.root / "var/lib/autarky/leaves"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.glob("*/*")} == {0o640}
    assert {path.stat().st_gid for path in root.rglob("*")} == {os.getgid()}
    private = [scene.root / "etc/kubernetes/pki/etcd/peer.key", scene.root / "var/lib/autarky/nllb/etcd-client.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


def test_directories_that_somebody_else_has_made_or_opened_become_as_they_should_be(scene: Scene) -> None:
    """Unpacked by hand, say, or made by a hosted pod that was there first."""
    root, before = scene.root / "var/lib/autarky/leaves", scene.all
    wanted = {root: 0o700, **{root / component: 0o750 for component in WITH_STANDBY}}
    for wrong in (0o755, 0o700, 0o777):
        for path in wanted:
            path.chmod(wrong)
        scene.keeping.look()
        assert {path: stat.S_IMODE(path.stat().st_mode) for path in wanted} == wanted
    assert stat.S_IMODE((scene.root / "etc/kubernetes/pki").stat().st_mode) == 0o755, "the CA is for all to read"
    assert scene.all == before
    assert not scene.keeping.trouble


# --- what the certificates must name ---------------------------------------------------------------------


def test_new_names_that_the_api_tells_are_in_the_serving_certificate_at_once_and_remembered(scene: Scene) -> None:
    scene.live = {"data": {**leaves.config_map(CLUSTER)["data"], leaves.NAMES_KEY: '["n2", "192.0.2.12"]'}}
    scene.keeping.look()
    named = {
        str(name.value)
        for name in scene.serving().extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    }
    assert {"n1", "n2", "192.0.2.11", "192.0.2.12"} <= named
    scene.live = None
    serial = scene.serving().serial_number
    scene.begin()
    scene.keeping.look()
    assert scene.serving().serial_number == serial, "with no API it is as it was known last"


@pytest.mark.parametrize("plan", ["", "{}", '{"lifeSeconds": 0}', "no JSON", json.dumps({"lifeSeconds": "1h"})])
def test_a_plan_that_cannot_be_understood_is_told_and_renewed_is_by_the_one_on_the_disk(
    scene: Scene, plan: str
) -> None:
    before, serial = scene.all, scene.serving().serial_number
    scene.live = {"data": {leaves.PLAN_KEY: plan}}
    scene.round_after(LIFE)
    assert scene.serving().serial_number != serial
    assert scene.all.keys() == before.keys()
    assert "plan" in scene.keeping.trouble


# --- trouble -----------------------------------------------------------------------------------------------


def test_without_a_ca_key_what_is_there_stays_and_it_is_told_why(scene: Scene) -> None:
    before = scene.all
    (scene.root / "etc/kubernetes/pki/front-proxy-ca.key").unlink()
    scene.round_after(LIFE)
    path = "var/lib/autarky/leaves/kube-apiserver/front-proxy-client.crt"
    assert scene.all[path] == before[path]
    assert scene.keeping.trouble == {"front-proxy-client": "the key of the CA front-proxy-ca is not on this node"}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-40 * 365, 40 * 365), min_size=1, max_size=4))
def test_whatever_the_clock_says_nothing_is_renewed_in_a_loop_or_made_invalid(scene: Scene, days: list[int]) -> None:
    """Two rounds at the same moment: the second never renews. And back at the right time, all is valid after a round,
    with no more than one renewal each."""
    for jump in days:
        scene.clock.now = (NOW + timedelta(days=jump)).timestamp()
        scene.keeping.look()
        after = scene.all
        scene.keeping.look()
        assert scene.all == after
        assert all(certificate(pem).not_valid_before_utc <= NOW for pem in after.values())
    scene.clock.now = NOW.timestamp()
    scene.keeping.look()
    assert not scene.keeping.trouble
    assert all(
        certificate(pem).not_valid_before_utc <= NOW < certificate(pem).not_valid_after_utc
        for pem in scene.all.values()
    )


def certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"-----BEGIN CERTIFICATE-----\n"])
def test_a_torn_file_is_issued_again(scene: Scene, garbage: bytes) -> None:
    path = "var/lib/autarky/leaves/kube-scheduler/client.crt"
    scene.write(path, garbage)
    scene.keeping.look()
    assert certificate(scene.all[path]).not_valid_after_utc > NOW


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40), st.integers(0, 60))
def test_any_bytes_in_any_file_end_no_loop_and_what_is_kept_is_intact_again(
    scene: Scene, content: bytes, number: int
) -> None:
    """A CA and the plan are only reported: nothing here can repair them."""
    kept = [path for path in sorted(scene.root.rglob("*")) if path.is_file() and "ca." not in path.name]
    path = kept[number % len(kept)]
    before = path.read_bytes()
    path.write_bytes(content)
    scene.keeping.look()
    if path.name == "leaves.json":
        assert "plan" in scene.keeping.trouble
        path.write_bytes(before)
        scene.keeping.look()
    assert not scene.keeping.trouble


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@pytest.mark.parametrize("end", ["crt", "key"])
def test_a_flipped_bit_that_no_reader_foresees_costs_one_renewal_and_no_other_leaf(scene: Scene, end: str) -> None:
    """An algorithm that nobody knows, a version that there is none of: all leaves are due, and all are renewed."""
    path = scene.root / f"var/lib/autarky/leaves/kube-apiserver/apiserver.{end}"
    unforeseen = list(unforeseen_by_a_reader_of_values(path.read_bytes()))
    assert len(unforeseen) > 5
    for damaged in unforeseen:
        path.write_bytes(damaged)
        before = scene.all
        scene.clock.now += LONGEST
        scene.begin()
        scene.keeping.look()
        assert not scene.keeping.trouble
        assert all(scene.all[each] != before[each] for each in before)
        read_pair(Pair(path.with_suffix(".crt").read_bytes(), path.with_suffix(".key").read_bytes()))


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 40), st.integers(0, 2000), st.integers(0, 7))
def test_any_flipped_bit_in_any_file_ends_no_loop_and_holds_up_no_other_leaf(
    scene: Scene, number: int, place: int, bit: int
) -> None:
    """One of a CA or of the kubelet is reported; what is kept is intact again."""
    scene.write(CURRENT, (scene.root / "var/lib/autarky/nllb/etcd-client.pem").read_bytes())
    others = ("leaves.json", Path(GIVEN).name)
    files = [path for path in sorted(scene.root.rglob("*")) if path.is_file() and path.name not in others]
    path = files[number % len(files)]
    complete = path.read_bytes()
    path.write_bytes(flipped(complete, place % len(complete), bit))
    before = scene.all
    scene.clock.now += LONGEST
    scene.begin()
    scene.keeping.look()
    if path.name.startswith(("ca.", "front-proxy-ca.")):
        path.write_bytes(complete)
        scene.keeping.look()
    assert not scene.keeping.trouble
    assert all(scene.all[each] != before[each] for each in before)


def test_an_unexpected_error_at_one_leaf_is_reported_and_holds_up_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, judge = scene.all, why_renewed

    def judges(wanted: Wanted, *others: Any) -> str | None:
        if wanted.spec.name == "apiserver-n1":
            raise RuntimeError("banana")
        return judge(wanted, *others)

    monkeypatch.setattr(leaf_keeping, "why_renewed", judges)
    scene.round_after(LONGEST)
    assert scene.keeping.trouble.keys() == {"apiserver"}
    assert "RuntimeError: banana" in scene.keeping.trouble["apiserver"]
    assert [path for path in before if scene.all[path] == before[path]] == [
        "var/lib/autarky/leaves/kube-apiserver/apiserver.crt"
    ]


@pytest.mark.parametrize("life", [10**15, 10**10, 10**40])
async def test_a_life_that_no_certificate_has_is_told_and_ends_no_agent(scene: Scene, life: int) -> None:
    """It may be on the disk already: then there is nothing to renew by until the API has another one."""
    plan = json.loads((scene.root / places.LEAVES_PLAN.lstrip("/")).read_text()) | {"lifeSeconds": life}
    scene.live = {"data": {leaves.PLAN_KEY: json.dumps(plan)}}
    scene.round_after(LIFE)
    assert f"a life of {life} seconds" in scene.keeping.trouble["plan"]
    assert scene.keeping.trouble.keys() == {"plan"}
    assert min(ends(scene.all).values()) > scene.now, "it goes on by the plan that it had"

    scene.write(places.LEAVES_PLAN.lstrip("/"), json.dumps(plan).encode())
    scene.begin()
    scene.node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
    }
    scene.kube.put(scene.node)
    scene.live = None
    await scene.keeping.reconcile()
    live = await scene.kube.get("v1", "Node", "n1")
    assert live is not None
    reported = certificates.read(live["metadata"])
    assert reported is not None
    assert "a life of" in reported.trouble["plan"]

    scene.live = leaves.config_map(CLUSTER)
    await scene.keeping.reconcile()
    assert not scene.keeping.trouble


def test_a_plan_on_the_disk_that_is_torn_gives_way_to_what_the_api_tells(scene: Scene) -> None:
    scene.write(places.LEAVES_PLAN.lstrip("/"), b"\xff")
    scene.live = leaves.config_map(CLUSTER)
    scene.node = {
        "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
    }
    scene.keeping.look()
    assert not scene.keeping.trouble


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_a_ca_that_cannot_be_read_is_told_and_nothing_changes(scene: Scene, name: str) -> None:
    before = scene.all
    scene.write(f"etc/kubernetes/pki/{name}", b"\xff")
    scene.round_after(LIFE)
    assert "apiserver" in scene.keeping.trouble
    assert scene.serving() == certificate(before["var/lib/autarky/leaves/kube-apiserver/apiserver.crt"])


# --- the kubelet -------------------------------------------------------------------------------------------


def test_a_kubelet_whose_certificate_has_ended_gets_another_one_and_no_other(scene: Scene) -> None:
    one = scene.all["var/lib/autarky/leaves/kube-apiserver/kubelet-client.crt"]
    key = (scene.root / "var/lib/autarky/leaves/kube-apiserver/kubelet-client.key").read_bytes()
    scene.write(CURRENT, one + key)
    scene.round_after(LONGEST - 60)
    assert (scene.root / CURRENT).read_bytes() == one + key, "it has not expired: the kubelet renews it"
    scene.round_after(120)
    given_ = certificate((scene.root / CURRENT).read_bytes())
    assert given_.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert given_.not_valid_after_utc > scene.now
    assert (scene.root / CURRENT).is_symlink()


def test_a_node_that_is_no_control_node_yet_or_any_more_does_so_as_well_while_it_has_the_cas_key(scene: Scene) -> None:
    """Its kubelet's unit goes by that key alone, and by an agent that is there: then it asks nobody else."""
    one = scene.all["var/lib/autarky/leaves/kube-apiserver/kubelet-client.crt"]
    key = (scene.root / "var/lib/autarky/leaves/kube-apiserver/kubelet-client.key").read_bytes()
    scene.write(CURRENT, one + key)
    scene.keeping.keeps = lambda: False
    scene.round_after(LONGEST + 60)
    assert certificate((scene.root / CURRENT).read_bytes()).not_valid_after_utc > scene.now


def ended(scene: Scene) -> None:
    """The kubelet's certificate has."""
    one = scene.all["var/lib/autarky/leaves/kube-apiserver/kubelet-client.crt"]
    key = (scene.root / "var/lib/autarky/leaves/kube-apiserver/kubelet-client.key").read_bytes()
    scene.write(CURRENT, one + key)
    scene.clock.now += LONGEST + 60


def test_the_host_is_told_to_restart_the_kubelet_once_with_each_that_was_given(scene: Scene) -> None:
    mark = scene.root / GIVEN.lstrip("/")
    assert not mark.exists()
    ended(scene)
    scene.round_after(0)
    assert mark.exists()
    assert "the kubelet's certificate expired at " in "".join(scene.said)
    mark.unlink()  # as the host does
    scene.round_after(60)
    assert not mark.exists()
    scene.round_after(3600)
    assert mark.exists(), "a kubelet that has not renewed what it was given has expired once more"


@pytest.mark.parametrize("step", range(5))
def test_whenever_the_agent_ends_the_host_is_told_and_never_before_there_is_a_certificate(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Between any two writes: the pending mark, the certificate, its link, the mark."""
    mark = scene.root / GIVEN.lstrip("/")
    ended(scene)
    left = [step]

    def one_more() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    def write(path: Path, content: bytes) -> None:
        one_more()
        write_private(path, content)

    def replace(path: Path, target: Path) -> None:
        if GIVEN.rpartition("/")[2] in target.name or target.name == Path(CURRENT).name:
            one_more()
        path.rename(target)

    with monkeypatch.context() as patched:
        patched.setattr(leaf_keeping, "write_private", write)
        patched.setattr(Path, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            scene.keeping._look_after_kubelet()
    assert not mark.exists()
    scene.begin()
    scene.round_after(0)
    assert mark.exists()
    assert certificate((scene.root / CURRENT).read_bytes()).not_valid_after_utc > scene.now


def test_a_kubelet_that_got_a_certificate_of_its_own_meanwhile_is_not_restarted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator has approved its request, after an agent had started to give it one and exited."""
    ended(scene)

    def breaks(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(leaf_keeping, "issue_leaf", breaks)
        with pytest.raises(KeyboardInterrupt):
            scene.keeping._look_after_kubelet()
    scene.begin()
    own = scene.root / CURRENT
    good = (scene.root / "var/lib/autarky/nllb/etcd-client.pem").read_bytes()
    scene.clock.now -= LONGEST  # so that it has not ended
    (own.parent / "of-its-own.pem").write_bytes(good)
    own.unlink()
    own.symlink_to("of-its-own.pem")
    scene.round_after(0)
    assert sorted(path.name for path in own.parent.iterdir()) == [Path(CURRENT).name, "of-its-own.pem"]


def test_what_an_agent_of_an_earlier_release_has_given_and_not_told_is_told(scene: Scene) -> None:
    """Its mark says nothing: whose certificate is there now cannot be seen, and one restart too many hurts no pod."""
    ended(scene)
    scene.round_after(0)
    mark = scene.root / GIVEN.lstrip("/")
    mark.unlink()
    pending = mark.with_name(f".{mark.name}")
    pending.write_bytes(b"")
    scene.begin()
    scene.round_after(0)
    assert mark.exists()
    assert not pending.exists()


def test_a_certificate_that_is_no_link_is_none_that_was_given(scene: Scene) -> None:
    """Somebody has put it there in place of what an agent had given the kubelet."""
    scene.write(CURRENT, (scene.root / "var/lib/autarky/nllb/etcd-client.pem").read_bytes())
    mark = scene.root / GIVEN.lstrip("/")
    pending = mark.with_name(f".{mark.name}")
    pending.write_bytes(b"kubelet-client-2027-03-01-12-00-00.pem")
    scene.round_after(0)
    assert not scene.keeping.trouble
    assert not pending.exists()
    assert not mark.exists()


def test_without_the_cas_key_the_host_is_told_nothing(scene: Scene) -> None:
    ended(scene)
    (scene.root / "etc/kubernetes/pki/ca.key").unlink()
    scene.round_after(0)
    assert [path.name for path in (scene.root / CURRENT).parent.iterdir()] == [Path(CURRENT).name]


@pytest.mark.parametrize("left", [b"", b"garbage", None, "a link to nothing"])
@pytest.mark.parametrize("kubeconfig", [b"", None, "it names the certificate"])
def test_a_kubelet_that_lost_its_files_with_the_power_gets_a_certificate(
    scene: Scene, left: bytes | str | None, kubeconfig: bytes | str | None
) -> None:
    """It does not sync what it writes. Without one, it would wait for an operator that waits for it."""
    current = scene.root / CURRENT
    current.parent.mkdir(parents=True)
    if isinstance(left, bytes):
        current.write_bytes(left)
    elif left is not None:
        current.symlink_to("kubelet-client-lost.pem")
    if kubeconfig is not None:
        written = as_a_kubelet_writes_it(current) if kubeconfig else b""
        scene.write("etc/kubernetes/kubelet.conf", written)
    scene.round_after(0)
    assert certificate(current.read_bytes()).not_valid_after_utc > scene.now
    assert (scene.root / GIVEN.lstrip("/")).exists()
    assert "cannot be read" in "".join(scene.said)
    assert not scene.keeping.trouble


def as_a_kubelet_writes_it(certificate: Path) -> bytes:
    named = {"client-certificate": str(certificate), "client-key": str(certificate)}
    user = {"name": "default-auth", "user": named}
    context = {"name": "default", "context": {"cluster": "default", "user": "default-auth"}}
    cluster = {"name": "default", "cluster": {"server": "https://127.0.0.1:6443"}}
    return json.dumps(
        {"kind": "Config", "users": [user], "contexts": [context], "clusters": [cluster], "current-context": "default"}
    ).encode()


def test_a_certificate_that_stands_in_the_kubeconfig_is_the_kubelets_own_matter_until_it_ends(scene: Scene) -> None:
    """As a release before this one made them."""
    one = scene.all["var/lib/autarky/leaves/kube-apiserver/kubelet-client.crt"]
    config = json.loads(as_a_kubelet_writes_it(scene.root / CURRENT))
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(one).decode(),
        "client-key-data": base64.b64encode(b"a key").decode(),
    }
    scene.write("etc/kubernetes/kubelet.conf", json.dumps(config).encode())
    scene.round_after(LONGEST - 60)
    assert not (scene.root / CURRENT).exists()
    scene.round_after(120)
    assert certificate((scene.root / CURRENT).read_bytes()).not_valid_after_utc > scene.now


def test_a_disk_that_cannot_be_read_says_nothing_of_the_certificate(scene: Scene) -> None:
    (scene.root / CURRENT).mkdir(parents=True)  # root reads everything else
    scene.round_after(LONGEST * 2)
    assert list((scene.root / CURRENT).parent.iterdir()) == [scene.root / CURRENT]
    assert "kubelet-client" in scene.keeping.trouble


@pytest.mark.parametrize("broken", ["kubelet.conf", "kubelet-client.pem"])
def test_rule_2_a_kubeconfig_that_cannot_be_read_says_nothing_of_the_certificate(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Neither does a certificate that it names: with the disk's error gone it is the one that it was."""
    named = scene.root / "var/lib/kubelet/pki/kubelet-client.pem"
    named.parent.mkdir(parents=True)
    named.write_bytes(scene.all["var/lib/autarky/leaves/kube-apiserver/kubelet-client.crt"])
    scene.write("etc/kubernetes/kubelet.conf", as_a_kubelet_writes_it(named))
    read_bytes = Path.read_bytes

    def fails_for_one(path: Path) -> bytes:
        if path.name == broken:
            raise OSError(errno.EIO, "Input/output error")
        return read_bytes(path)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "read_bytes", fails_for_one)
        scene.round_after(0)
    assert list(named.parent.iterdir()) == [named]
    assert not (scene.root / GIVEN.lstrip("/")).exists()
    assert "Input/output error" in scene.keeping.trouble["kubelet-client"]
    scene.round_after(0)
    assert "kubelet-client" not in scene.keeping.trouble
    assert list(named.parent.iterdir()) == [named]


def test_a_fault_with_one_of_them_keeps_no_other_from_being_renewed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_for_one(wanted: Wanted, *rest: Any) -> str | None:
        if wanted.spec.name.startswith("apiserver-n1"):
            raise LookupError("nobody has foreseen it")
        return why_renewed(wanted, *rest)

    monkeypatch.setattr(leaf_keeping, "why_renewed", fails_for_one)
    before = scene.all
    scene.round_after(LIFE)
    same = {Path(path).name for path, pem in scene.all.items() if pem == before[path]}
    assert same == {"apiserver.crt", "client.crt", "kubelet-client.crt"}  # those two live for longer
    assert "nobody has foreseen it" in scene.keeping.trouble["apiserver"]


# --- telling -------------------------------------------------------------------------------------------------


async def test_the_ends_of_all_are_told_on_the_node(scene: Scene) -> None:
    scene.node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    scene.kube.put(scene.node)
    await scene.keeping._announce()
    live = await scene.kube.get("v1", "Node", "n1")
    assert live is not None
    reported = certificates.read(live["metadata"])
    assert reported is not None
    assert reported.ends["apiserver"] == NOW + timedelta(seconds=LIFE)
    assert reported.ends["etcd/peer"] == NOW + timedelta(seconds=LIFE)
    assert not reported.trouble


def sample(name: str, certificate: str) -> float | None:
    return REGISTRY.get_sample_value(f"autarky_agent_certificate_{name}", {"certificate": certificate})


def test_the_metrics_say_how_long_each_is_good_for_and_how_often_it_was_renewed(scene: Scene) -> None:
    """By the host's clock: of NOW as if it were now."""
    for certificate in ("apiserver", "etcd/peer", "scheduler"):
        left = sample("expiry_seconds", certificate)
        assert left is not None
        life = LIFE if certificate != "scheduler" else LONGEST
        assert left + time.time() == pytest.approx((NOW + timedelta(seconds=life)).timestamp(), abs=60)
    before = sample("renewals_total", "apiserver")
    assert before is not None
    scene.round_after(LIFE)
    assert sample("renewals_total", "apiserver") == before + 1
    left = sample("expiry_seconds", "apiserver")
    assert left is not None
    assert left + time.time() == pytest.approx((NOW + timedelta(seconds=2 * LIFE)).timestamp(), abs=60)


def test_a_certificate_that_is_there_no_more_is_in_no_metric(scene: Scene) -> None:
    assert sample("expiry_seconds", "apiserver") is not None
    scene.keeping.keeps = lambda: False
    scene.keeping.look()
    assert sample("expiry_seconds", "apiserver") is None
