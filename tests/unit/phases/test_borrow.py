"""Who lends the keys of a cluster to a machine that has logged in: control nodes, by the word of others, and nothing
that does not fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autarky import places
from autarky.errors import Unreachable
from autarky.phases.borrow import ROOTS, borrow
from autarky.phases.context import Context
from autarky.pki import PkiStore
from autarky.pki.issue import issue_ca
from autarky.pki.keys import key_pem, new_key
from fakes.clusters import a_cluster, facts_of
from fakes.host import FakeHost
from unit.phases.seen import MakeContext

CLUSTER = a_cluster(controls=1, workers=1)
NOBODY = "no control node that has it answers"
Lending = Callable[..., Context]


def a_forged_ca() -> tuple[bytes, bytes]:
    forged = issue_ca("kubernetes", new_key("EC"), datetime.now(UTC), 9)
    return forged.certificate, forged.key


@pytest.fixture
def roots(make_context: MakeContext) -> dict[str, bytes]:
    """The cluster's, as the machine that created it has them."""
    files: dict[str, bytes] = make_context(CLUSTER).pki.files()
    return {name: files[name] for name in ROOTS}


@pytest.fixture
def lending(make_context: MakeContext, roots: Mapping[str, bytes], tmp_path: Path) -> Lending:
    """A machine that has logged in; one host has this cluster's roots, changed as the test says."""

    def make(name: str, **changed: bytes) -> Context:
        facts = facts_of(CLUSTER)
        hosts = {node.name: FakeHost(node.name, facts[node.name]) for node in CLUSTER.nodes}
        disk = {**roots, **{file.replace("__", "/").replace("_", "."): content for file, content in changed.items()}}
        hosts[name].files = {f"{places.PKI}/{file}": (content, 0o600) for file, content in disk.items()}
        context = make_context(CLUSTER, hosts=hosts)
        context.pki = PkiStore(tmp_path / "logged-in")
        context.pki.directory.mkdir()
        (context.pki.directory / "ca.crt").write_bytes(roots["ca.crt"])
        context.owners = {node.name: None for node in CLUSTER.nodes}
        return context

    return make


async def test_a_control_node_lends_what_is_not_here(lending: Lending, roots: Mapping[str, bytes]) -> None:
    context = lending("n1")
    await borrow(context)
    assert context.lender == "n1"
    assert context.pki.lent == roots


async def test_a_worker_lends_nothing_whatever_its_disk_has(lending: Lending) -> None:
    """Whoever is root there could have made all of it, but for the certificate of the cluster's CA."""
    context = lending("n2")
    context.absent = {"n1": "it does not answer"}
    with pytest.raises(Unreachable, match=NOBODY):
        await borrow(context)
    assert context.lender is None
    assert context.pki.lent == {}


async def test_a_worker_that_a_label_has_made_a_control_node_lends(lending: Lending) -> None:
    context = lending("n2")
    context.absent = {"n1": "it does not answer"}
    context.active_in_api = frozenset({"n2"})
    await borrow(context)
    assert context.lender == "n2"


@pytest.mark.parametrize("file", ["ca_key", "sa_key", "front-proxy-ca_key", "etcd__ca_key", "sa_pub"])
async def test_a_host_whose_keys_do_not_belong_together_lends_nothing(lending: Lending, file: str) -> None:
    other = key_pem(new_key("EC"))
    with pytest.raises(Unreachable, match=NOBODY):
        await borrow(lending("n1", **{file: other}))


async def test_a_forged_ca_that_only_some_readers_see_first_is_not_ours(
    lending: Lending, roots: Mapping[str, bytes]
) -> None:
    certificate, key = a_forged_ca()
    hidden = certificate.replace(b" CERTIFICATE-", b" X509 CERTIFICATE-") + roots["ca.crt"]
    with pytest.raises(Unreachable, match=NOBODY):
        await borrow(lending("n1", ca_crt=hidden, ca_key=key))


async def test_nothing_beside_our_own_ca_is_trusted_because_a_host_has_it(
    lending: Lending, roots: Mapping[str, bytes]
) -> None:
    """The first certificate is the cluster's; whoever is trusted by the file would trust the second one as well."""
    context = lending("n1", ca_crt=roots["ca.crt"] + a_forged_ca()[0])
    await borrow(context)
    assert context.pki.files()["ca.crt"] == roots["ca.crt"]
