"""Nodes that join: a token for their name before the components are applied, taken back when they are there."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import pytest
from cryptography import x509

from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.errors import ApiError, CommandFailed, TimedOut, UserError
from autarky.model.fingerprint import fingerprint
from autarky.phases import forget
from autarky.phases.admit import JUDGE_SECONDS, judging
from autarky.phases.join import JoinNodes, StartJoining
from autarky.phases.objects import ApplyParts
from autarky.render import access, crds
from autarky.render.kubeconfig import bootstrap_kubeconfig, bootstrap_token, embedded_certificate
from fakes.clusters import a_cluster
from fakes.kube import FakeKube
from unit.phases.test_admit import joining, verdict

CLUSTER = a_cluster(controls=1, workers=1)
WORKER = CLUSTER.nodes[1]


async def tokens(context):
    found = await context.kube().list("v1", "Secret", namespace="kube-system")
    return [secret["metadata"]["name"] for secret in found if secret["metadata"]["name"].startswith("bootstrap-token-")]


async def plan(phase, context):
    return [change.sentence for change in await phase.plan(context)]


def token_on(host):
    return bootstrap_token(host.files[kubelet_credentials.BOOTSTRAP_KUBECONFIG][0])


async def test_a_worker_gets_a_token_and_its_kubelet_starts_and_an_initial_member_is_left_alone(make_context, notes):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    host = context.host(WORKER)
    assert "enable --now kubelet" in host.log
    assert context.host(CLUSTER.nodes[0]).log == []
    assert await tokens(context) == [f"bootstrap-token-{token_on(host).partition('.')[0]}"]
    assert await context.kube().get("v1", "ConfigMap", access.INVENTORY, "kube-system") is not None


async def test_rule_4_no_kubelet_of_a_later_minor_joins_while_the_control_plane_goes_back(make_context, notes):
    context, kube = make_context(CLUSTER), FakeKube()
    context._kube = kube
    kube.put(crds.control_plane_crd())
    plane = {"apiVersion": crds.API_VERSION, "kind": "ControlPlane", "metadata": {"name": crds.CONTROL_PLANE}}
    kube.put({**plane, "spec": {"version": "v1.35.4"}, "status": {"version": "v1.36.4"}})
    host = context.host(WORKER)
    with pytest.raises(UserError, match=r"no kubelet may be newer .* asks for v1\.35\.4"):
        await StartJoining().run(context, notes)
    assert host.log == []
    assert await tokens(context) == []
    host.active_units.add("kubelet")  # it has joined, and runs: `configure-kubelets` judges it
    context.joined = frozenset({"n1", "n2"})
    await StartJoining().run(context, notes)
    assert await tokens(context) != []


async def test_a_kubelet_without_a_certificate_gets_a_fresh_token_though_it_runs(make_context, notes):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    host = context.host(WORKER)
    host.active_units.add("kubelet")
    first = token_on(host)
    assert await plan(StartJoining(), context) == ["give n2 a join token"]
    await StartJoining().run(context, notes)
    assert token_on(host) != first


async def test_a_node_that_has_joined_is_left_alone(make_context, notes):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    host = context.host(WORKER)
    host.active_units.add("kubelet")
    has_its_own(host)
    assert await plan(StartJoining(), context) == []
    del host.files[kubelet_credentials.BOOTSTRAP_KUBECONFIG]  # as an earlier release has left it
    assert await plan(StartJoining(), context) == []


def has_its_own(host):
    """As a kubelet leaves it that has got its certificate."""
    host.files[kubelet_credentials.KUBELET_KUBECONFIG] = (
        b"client-certificate: " + kubelet_credentials.CURRENT_PATH.encode(),
        0o600,
    )
    host.files[kubelet_credentials.CURRENT_PATH] = (b"certificate and key", 0o600)


@pytest.mark.parametrize("kubeconfig", [b"", b"client-certificate: " + kubelet_credentials.CURRENT_PATH.encode()])
async def test_a_kubelet_that_has_written_its_kubeconfig_and_has_no_certificate_asks_with_another_token(
    make_context, notes, kubeconfig
):
    """It writes that at its first start. The first token has expired, and whoever runs reads no other."""
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    host = context.host(WORKER)
    host.active_units.add("kubelet")
    host.files[kubelet_credentials.KUBELET_KUBECONFIG] = (kubeconfig, 0o600)
    first = token_on(host)
    assert await plan(StartJoining(), context) == ["give n2 a join token"]
    assert "restart kubelet" not in host.log
    await StartJoining().run(context, notes)
    assert token_on(host) != first
    assert host.log.count("restart kubelet") == 1


async def test_a_kubelet_that_has_joined_and_lost_its_certificate_asks_with_what_it_was_given(
    make_context, notes, admitted
):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    await JoinNodes().run(context, notes)
    host = context.host(WORKER)
    host.active_units.add("kubelet")
    host.files[kubelet_credentials.KUBELET_KUBECONFIG] = (b"", 0o600)
    assert await plan(StartJoining(), context) == []


@pytest.fixture
def admitted(monkeypatch):
    """As if every node had registered and got its certificates."""

    async def at_once(*_):
        return None

    monkeypatch.setattr("autarky.phases.join.admit", at_once)
    monkeypatch.setattr("autarky.phases.join.wait_until_registered", at_once)


async def test_a_token_that_is_left_is_a_change_and_is_taken_back(make_context, notes, admitted):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    assert "delete the join token of n2" in await plan(JoinNodes(), context)
    await JoinNodes().run(context, notes)
    assert await tokens(context) == []
    left, mode = context.host(WORKER).files[kubelet_credentials.BOOTSTRAP_KUBECONFIG]
    assert bootstrap_token(left) is None
    assert mode == 0o600
    assert "delete the join token of n2" not in await plan(JoinNodes(), context)


async def test_what_a_kubelet_can_come_back_with_is_given_once_and_to_nodes_of_earlier_releases_too(
    make_context, notes, admitted
):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    host = context.host(WORKER)
    del host.files[kubelet_credentials.BOOTSTRAP_KUBECONFIG]  # as an earlier release has left it
    has_its_own(host)
    given = [f"give {name} a credential to renew an expired certificate with" for name in ("n1", "n2")]
    assert [one for one in await plan(JoinNodes(), context) if one in given] == given
    await JoinNodes().run(context, notes)
    assert not [one for one in await plan(JoinNodes(), context) if one in given]
    ca = x509.load_pem_x509_certificate(context.pki.read("ca").certificate)
    for node in CLUSTER.nodes:  # an initial member, too: its label may go
        content, mode = context.host(node).files[kubelet_credentials.BOOTSTRAP_KUBECONFIG]
        assert mode == 0o600
        [user] = json.loads(content)["users"]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(user["user"]["client-certificate-data"]))
        assert certificate.subject.rfc4514_string() == f"CN=renew:node:{node.name},O=autarky:kubelet-renewals"
        assert certificate.not_valid_after_utc == ca.not_valid_after_utc


async def noted(context):
    found = await context.kube().get("v1", "ConfigMap", access.RENEWALS, "kube-system")
    return (found or {}).get("data")


def held_by(host):
    return fingerprint(embedded_certificate(host.files[kubelet_credentials.BOOTSTRAP_KUBECONFIG][0]))


async def test_a_name_is_good_for_no_credential_before_the_inventory_has_it_and_then_for_the_one_that_was_given(
    make_context, notes, admitted, monkeypatch
):
    context = make_context(CLUSTER)
    applied = []

    class Watched(ApplyParts):
        async def run(self, context, progress):
            applied.append(await noted(context))
            await super().run(context, progress)

    monkeypatch.setattr("autarky.phases.join.ApplyParts", Watched)
    await StartJoining().run(context, notes)
    assert applied == [{"n1": "", "n2": ""}]
    await JoinNodes().run(context, notes)
    initial_members, first = held_by(context.host(CLUSTER.nodes[0])), held_by(context.host(WORKER))
    assert await noted(context) == {"n1": initial_members, "n2": first}
    await StartJoining().run(context, notes)
    assert await noted(context) == {"n1": initial_members, "n2": first}

    await forget.forget(context.kube(), "n2")
    assert await noted(context) == {"n1": initial_members}
    await StartJoining().run(context, notes)
    assert await noted(context) == {"n1": initial_members, "n2": ""}
    await JoinNodes().run(context, notes)
    assert held_by(context.host(WORKER)) != first
    assert await noted(context) == {"n1": initial_members, "n2": held_by(context.host(WORKER))}
    assert not [sentence for sentence in await plan(JoinNodes(), context) if "expired" in sentence]


class Young(FakeKube):
    """An API server that has just started: the namespace of the system comes a moment later."""

    refusals = 3

    async def create(self, obj):
        if obj["kind"] == "ConfigMap" and self.refusals:
            self.refusals -= 1
            raise ApiError(404, "NotFound", 'namespaces "kube-system" not found')
        return await super().create(obj)


@pytest.mark.looptime
async def test_an_api_server_that_has_just_started_is_waited_for(make_context, notes):
    context = make_context(CLUSTER, kube=Young())
    await StartJoining().run(context, notes)
    assert await noted(context) == {"n1": "", "n2": ""}


async def test_the_credential_of_an_earlier_release_is_kept_and_noted(make_context, notes, admitted):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    await JoinNodes().run(context, notes)
    host, before = context.host(WORKER), held_by(context.host(WORKER))
    await context.kube().delete("v1", "ConfigMap", access.RENEWALS, "kube-system")
    assert "note which credential n2 can renew an expired certificate with" in await plan(JoinNodes(), context)
    await JoinNodes().run(context, notes)
    assert held_by(host) == before
    assert await noted(context) == {"n1": held_by(context.host(CLUSTER.nodes[0])), "n2": before}


async def test_a_run_that_was_killed_before_the_host_had_its_credential_gives_another_one(
    make_context, notes, admitted
):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    await JoinNodes().run(context, notes)
    host = context.host(WORKER)
    lost = held_by(host)
    del host.files[kubelet_credentials.BOOTSTRAP_KUBECONFIG]
    await JoinNodes().run(context, notes)
    assert await noted(context) == {"n1": held_by(context.host(CLUSTER.nodes[0])), "n2": held_by(host)}
    assert held_by(host) != lost


async def test_a_kubelet_that_has_just_joined_is_restarted_and_no_other(make_context, notes, admitted):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    for _ in range(2):
        await JoinNodes().run(context, notes)
    assert [call for call in context.host(WORKER).log if "restart" in call or "aside" in call] == [
        "restart kubelet",
        "kubelet-slots aside",
    ]
    assert not [call for call in context.host(CLUSTER.nodes[0]).log if "restart" in call]


# --- a node that has joined before, and is in somebody else's hands --------------------------------------------------


@pytest.fixture
def admission_fails(monkeypatch, admitted):
    def of(name, error):
        async def admit(_context, node, _progress):
            if node.name == name:
                raise error

        monkeypatch.setattr("autarky.phases.join.admit", admit)

    return of


@pytest.fixture
def fails(admission_fails):
    """n2's kubelet never gets a serving certificate."""
    admission_fails("n2", TimedOut("timed out after 120 s: the kubelet of n2 has its serving certificate"))


async def test_a_node_that_has_joined_before_and_fails_is_left_out_and_the_others_are_seen_to(
    make_context, notes, fails
):
    context = make_context(CLUSTER)
    context.joined = frozenset({"n1", "n2"})
    await StartJoining().run(context, notes)
    await JoinNodes().run(context, notes)
    assert context.absent == {"n2": "timed out after 120 s: the kubelet of n2 has its serving certificate"}
    assert [node.name for node in context.present(context.cluster.nodes)] == ["n1"]
    assert [note for note in notes.notes if note.startswith("n2 is left out: timed out after 120 s")]
    assert held_by(context.host(CLUSTER.nodes[0])) == (await noted(context))["n1"]
    assert not [sentence for sentence in await plan(JoinNodes(), context) if "n2" in sentence]


async def test_a_new_node_that_fails_ends_the_phase(make_context, notes, fails):
    context = make_context(CLUSTER)
    context.joined = frozenset({"n1"})
    await StartJoining().run(context, notes)
    with pytest.raises(TimedOut):
        await JoinNodes().run(context, notes)


async def test_a_control_node_that_fails_ends_the_phase(make_context, notes, admission_fails):
    admission_fails("n1", TimedOut("n1"))
    context = make_context(CLUSTER)
    context.joined = frozenset({"n1", "n2"})
    await StartJoining().run(context, notes)
    with pytest.raises(TimedOut):
        await JoinNodes().run(context, notes)


async def test_a_control_node_that_joins_as_a_worker_does_is_not_left_out(make_context, notes, fails):
    """What must hold on every control node (rule 1) would be asked of the others alone."""
    initial_member, other = a_cluster(controls=2).nodes
    context = make_context(replace(CLUSTER, nodes=(initial_member, replace(other, initial_member=False))))
    context.joined = frozenset({"n1", "n2"})
    await StartJoining().run(context, notes)
    with pytest.raises(TimedOut):
        await JoinNodes().run(context, notes)
    assert context.absent == {}


@pytest.mark.looptime
async def test_a_node_that_has_joined_before_and_answers_without_end_is_left_out(make_context, notes, monkeypatch):
    async def start_joining(_context, node):
        if node.name == "n2":
            await asyncio.Event().wait()

    monkeypatch.setattr("autarky.phases.join.start_joining", start_joining)
    context = make_context(CLUSTER)
    context.joined = frozenset({"n1", "n2"})
    async with asyncio.timeout(180):  # what the phase has
        await StartJoining().run(context, notes)
    assert context.absent == {"n2": "it was not done within 120 s"}


async def test_what_the_api_refuses_leaves_nobody_out(make_context, notes, admission_fails):
    admission_fails("n2", ApiError(500, "InternalError", "etcdserver: leader changed"))
    context = make_context(CLUSTER)
    context.joined = frozenset({"n1", "n2"})
    await StartJoining().run(context, notes)
    with pytest.raises(ApiError):
        await JoinNodes().run(context, notes)
    assert context.absent == {}


async def test_what_is_no_token_is_asked_of_nobody(make_context, notes, admitted):
    """No API server, and no HTTP client, is to be asked for a name that a worker has made up."""
    context = make_context(CLUSTER)
    context.joined = frozenset({"n1", "n2"})
    await StartJoining().run(context, notes)
    odd = {"users": [{"user": {"token": "\ud800.x"}}]}
    context.host(WORKER).files[kubelet_credentials.BOOTSTRAP_KUBECONFIG] = (json.dumps(odd).encode(), 0o600)
    await JoinNodes().run(context, notes)
    assert context.absent == {}


@pytest.mark.parametrize(
    "token", ["\ud800.x", "abcdef", "abcdef.0123456789abcde", "../../x.0123456789abcdef", "ABCDEF.0123456789abcdef", 7]
)
def test_no_token_is_what_kubernetes_has_none_of(token):
    assert bootstrap_token(json.dumps({"users": [{"user": {"token": token}}]}).encode()) is None


@pytest.mark.parametrize("phase", [StartJoining(), JoinNodes()], ids=lambda phase: phase.name)
async def test_a_credential_without_end_on_a_node_that_has_joined_before_stops_nothing(make_context, notes, phase):
    context = make_context(CLUSTER)
    await StartJoining().run(context, notes)
    context.host(WORKER).files[kubelet_credentials.KUBELET_KUBECONFIG] = (b"", 0o600)
    context.host(WORKER).files[kubelet_credentials.BOOTSTRAP_KUBECONFIG] = (b" " * 10**6, 0o600)
    with pytest.raises(CommandFailed):
        await phase.plan(context)
    context.joined = frozenset({"n1", "n2"})
    assert not [sentence for sentence in await plan(phase, context) if "n2" in sentence]
    assert "the file has more than 65536 bytes" in context.absent["n2"]


def test_the_token_is_read_from_the_kubeconfig_that_was_written():
    assert bootstrap_token(bootstrap_kubeconfig(b"ca", "demo", "abcdef.0123456789abcdef")) == "abcdef.0123456789abcdef"


@pytest.mark.looptime
async def test_requests_are_judged_while_something_else_is_done(make_context, notes):
    context = make_context(CLUSTER)
    kube = context.kube()
    kube.put(access.inventory(CLUSTER))
    kube.put(access.join_token(WORKER, "abcdef", "0123456789abcdef", "2099-01-01T00:00:00Z"))
    async with judging(context, CLUSTER.nodes, notes):
        await asyncio.sleep(JUDGE_SECONDS)
        kube.put(joining("late", "n2", "abcdef"))
        await asyncio.sleep(2 * JUDGE_SECONDS)
        assert await verdict(kube, "late") == "Approved"
    kube.put(joining("later", "n2", "abcdef"))
    await asyncio.sleep(2 * JUDGE_SECONDS)
    assert await verdict(kube, "later") is None


@pytest.mark.looptime
async def test_what_fails_meanwhile_is_raised_as_it_is(make_context, notes):
    async def fails():
        async with judging(make_context(CLUSTER), CLUSTER.nodes, notes):
            await asyncio.sleep(JUDGE_SECONDS)
            raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        await fails()
