"""`status` and `doctor` say how long certificates are good for, with and without an API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autarky import places
from autarky.cli.status import table
from autarky.control.certificates import decide as certificates
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.doctor.diagnosis import diagnose
from autarky.doctor.evidence import evidence
from autarky.model.cluster import CertificateSettings
from autarky.model.files import CertSpec, File
from autarky.phases.expiry import ADMINISTRATOR
from autarky.phases.prepare import missing_leaves, write_leaves
from autarky.pki import PkiStore
from autarky.pki.check import authority_of
from autarky.pki.issue import Pair, issue_leaf
from autarky.render.crds import API_VERSION, CONTROL_PLANE, control_plane_crd
from autarky.status.look import gather
from fakes.kube import FakeKube
from unit.phases.seen import (
    WITH_A_WORKER,
    MakeContext,
    a_context,
    a_kube,
    whats,
)

pytestmark = pytest.mark.looptime


SOON, LATE = "2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
PAST = "2020-01-01T00:00:00Z"


def telling(kube: FakeKube, name: str, ends: Mapping[str, str], trouble: Mapping[str, str] | None = None) -> None:
    """The node's agent tells of its certificates."""
    reported = json.dumps({"ends": dict(ends), "trouble": dict(trouble or {})})
    live = kube._objects["v1", "Node", None, name]
    kube.put({**live, "metadata": {**live["metadata"], "annotations": {certificates.ANNOTATION: reported}}})


async def test_status_says_of_each_nodes_certificates_when_they_end_and_which_ends_first(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    telling(kube, "n1", {"apiserver": LATE, "kubelet-client": SOON})
    telling(kube, "n2", {"kubelet-client": LATE})
    found = await gather(a_context(make_context, WITH_A_WORKER, kube))
    of_nodes = {node: ends for node, ends in found.certificates.items() if node != ADMINISTRATOR}
    assert of_nodes == {"n1": {"apiserver": LATE, "kubelet-client": SOON}, "n2": {"kubelet-client": LATE}}
    assert found.certificates[ADMINISTRATOR].keys() == {"admin"}
    assert found.overdue == ()
    assert found.as_dict()["certificates"] == found.certificates
    end = found.certificates[ADMINISTRATOR]["admin"]
    assert f"the first to expire: admin on {ADMINISTRATOR}, {end}" in table(found)
    without = replace(found, certificates=of_nodes)
    assert f"certificates renew themselves; the first to expire: kubelet-client on n1, {SOON}" in table(without)


async def test_status_says_what_has_ended_or_is_not_renewed_and_is_not_healthy(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    telling(kube, "n1", {"apiserver": LATE, "etcd/peer": PAST}, {"apiserver": "disk full"})
    found = await gather(a_context(make_context, WITH_A_WORKER, kube))
    assert found.overdue == (f"apiserver on n1 expires at {LATE}: disk full", f"etcd/peer on n1 expired at {PAST}")
    assert not found.healthy
    assert set(found.overdue) <= set(table(found).splitlines())


def ended(directory: Path) -> bytes:
    """A certificate that has ended yesterday."""
    before = datetime.now(UTC) - timedelta(days=2)
    old = PkiStore(directory / "ended")
    old.ensure(certificate_specs(WITH_A_WORKER), CertificateSettings(), before)
    ca = authority_of(Pair(old.files()["ca.crt"], old.files()["ca.key"]), "", "", before)
    return issue_leaf(CertSpec("x", "ca", "kube-apiserver"), ca, "EC", before, timedelta(days=1)).certificate


async def test_status_and_doctor_say_what_has_ended_with_no_api_to_tell_of_it(make_context: MakeContext, tmp_path):
    """By the disks: it may be why there is none."""
    context = a_context(make_context, WITH_A_WORKER, a_kube(WITH_A_WORKER, answers=0))
    host, node = context.host(WITH_A_WORKER.node("n1")), WITH_A_WORKER.node("n1")
    await write_leaves(host, await missing_leaves(context, host, node))
    seen = await gather(context)
    assert {"apiserver", "etcd/peer", "scheduler"} <= seen.certificates["n1"].keys()
    assert seen.overdue == ()
    assert whats(await evidence(context)) == ["API: it does not answer"]
    await host.write_files([File(f"{places.LEAVES}/kube-apiserver/apiserver.crt", ended(tmp_path))])
    [overdue] = (await gather(context)).overdue
    assert overdue.startswith("apiserver on n1 expired at ")
    [finding] = diagnose(await evidence(context))
    assert (finding.subject, finding.evidence) == ("control plane", overdue)
    assert "certificates have expired" in finding.what


async def test_doctor_says_what_the_operator_says_of_certificates(make_context: MakeContext):
    kube = a_kube(WITH_A_WORKER)
    said = f"etcd/peer on n1 expired at {PAST}"
    condition = {"type": "CertificatesCurrent", "status": "False", "message": said}
    kube.put(control_plane_crd())
    kube.put(
        {
            "apiVersion": API_VERSION,
            "kind": "ControlPlane",
            "metadata": {"name": CONTROL_PLANE},
            "status": {"conditions": [condition]},
        }
    )
    [finding] = diagnose(await evidence(a_context(make_context, WITH_A_WORKER, kube)))
    assert finding.what == "a certificate has expired, or is not renewed as it should be"
    assert finding.evidence == said


async def test_doctor_says_that_the_administrators_certificate_is_to_be_renewed(make_context: MakeContext, tmp_path):
    context = a_context(make_context, WITH_A_WORKER, a_kube(WITH_A_WORKER))
    days = context.cluster.certificates.leaf_days
    old = PkiStore(tmp_path / "old")
    old.ensure(certificate_specs(WITH_A_WORKER), CertificateSettings(), datetime.now(UTC) - timedelta(days=days * 0.9))
    context.pki = old
    [finding] = diagnose(await evidence(context))
    assert (finding.subject, finding.next) == (ADMINISTRATOR, "autarky up")
