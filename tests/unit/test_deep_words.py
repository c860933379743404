"""JSON without end from whoever writes what we read: hosts, nodes, tenants, whoever answers. It is as what cannot be
understood, and ends nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from socket import AF_INET
from typing import Any

import pytest

from autarky.control.admission.act import inventory_of
from autarky.control.certificates import decide as certificates
from autarky.control.certificates.manifests import leaves
from autarky.control.control_nodes.decide.recorded import _record
from autarky.control.drift.decide import applied
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.etcd.node.quorum import _way_of_standby
from autarky.control.hosts.decide.belonging import Said
from autarky.control.levels.decide import arguments
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots.decide import report as node_slots
from autarky.control.slots.node import stop_paths
from autarky.engine.host_lock import Holder
from autarky.errors import AutarkyError
from autarky.etcd.gateway import _json
from autarky.kube.errors import status_object
from autarky.net.http import Answer
from autarky.phases.etcd_change import _metadata
from autarky.phases.etcd_listed import read_members
from autarky.phases.etcd_pods import manifest_of
from autarky.phases.external_etcd import _healths
from autarky.phases.former_settings import config_in
from autarky.phases.hosts import _initial_members
from autarky.pki import signing
from autarky.probe import http as probe_http
from autarky.probe.endpoint import Endpoint
from autarky.probe.outcome import Fault
from autarky.probe.watch import _parsed as parsed_event
from autarky.render import cluster_record, kubeconfig

FAR = 100_000
DEEP = {
    "lists without an end": "[" * FAR,
    "objects without an end": '{"a":' * FAR,
    "lists": "[" * FAR + "]" * FAR,
    "objects": '{"a":' * FAR + "1" + "}" * FAR,
    "fewer": "[" * 900 + "]" * 900,
}


def reported(annotation: str, text: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "annotations": {annotation: text}}}


READERS: dict[str, tuple[Callable[[str], object], object]] = {
    "a Node's slots": (lambda text: node_slots.read(reported(node_slots.ANNOTATION, text)), {}),
    "a Node's certificates": (
        lambda text: certificates.read(reported(certificates.ANNOTATION, text)["metadata"]),
        None,
    ),
    "what was applied": (lambda text: applied.record_of(reported(applied.ANNOTATION, text)), None),
    "the arguments given": (lambda text: arguments.given_to(reported(arguments.ANNOTATION, text)), arguments.Given()),
    "the join inventory": (lambda text: inventory_of({"data": {"n1": text}}), {}),
    "the record of control nodes": (_record, None),
    "an error of the API": (lambda text: status_object(text.encode()), None),
    "an answer to the probe": (lambda text: probe_http.Answer(200, {}, text.encode()).object(), {}),
    "a host's marker": (lambda text: Said.of(text.encode(), None), Said(None, None, None)),
    "its initial members": (lambda text: _initial_members(text.encode()), None),
    "its lock": (Holder.parse, None),
    "its static pod of etcd": (lambda text: manifest_of(text.encode()), None),
    "the metadata of that": (lambda text: _metadata(text.encode()), {}),
    "its list of members": (lambda text: read_members("\n".join([text] * 3), {}), None),
    "the health of external etcd": (_healths, {}),
    "the former settings of its kubelet": (lambda text: config_in(text.encode()), None),
    "its copy of the cluster's record": (lambda text: cluster_record.read(text.encode()), None),
    "the keys of that": (lambda text: cluster_record.read_keys(text.encode()), {}),
    "a kubeconfig": (lambda text: kubeconfig.bootstrap_token(text.encode()), None),
    "a load balancer's configuration": (lambda text: nllb.parse(f"# {text}\n"), None),
}
REFUSING: dict[str, Callable[[str], object]] = {
    "the template of etcd's members": lambda text: etcd.read_template({"data": {etcd.TEMPLATE_KEY: text}}),
    "the plan of certificates": leaves.read,
    "what a signer says": lambda text: signing.answered(text.encode(), []),
    "what a signer is asked": lambda text: signing.answer(text.encode(), Path("/absent"), datetime.now(UTC)),
    "an answer of etcd": lambda text: _json(Answer(200, {}, text.encode())),
}
FITTING = {
    ("its static pod of etcd", "objects"),
    ("an answer to the probe", "objects"),
    ("the keys of that", "objects"),
    ("an answer of etcd", "objects"),
}
"""What may be any object: it is one, without what lies too deep."""


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("what", READERS)
def test_words_nested_without_end_are_as_what_cannot_be_understood(what: str, deep: str) -> None:
    read, nothing = READERS[what]
    found = read(DEEP[deep])
    if (what, deep) not in FITTING:
        assert found == nothing
    assert len(str(found)) < 2000


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize("what", REFUSING)
def test_words_nested_without_end_are_refused_as_others_are(what: str, deep: str) -> None:
    if (what, deep) in FITTING:
        assert len(str(REFUSING[what](DEEP[deep]))) < 2000
        return
    with pytest.raises(AutarkyError):
        REFUSING[what](DEEP[deep])


@pytest.mark.parametrize("deep", DEEP)
def test_files_of_the_node_agent_are_as_if_they_were_not_there(
    deep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pod.json").write_text(DEEP[deep])
    monkeypatch.setattr(stop_paths, "FILE", tmp_path / "pod.json")
    assert stop_paths._kept() == []
    assert _way_of_standby(tmp_path) is None


@pytest.mark.parametrize("deep", DEEP)
def test_an_event_to_the_probe_is_malformed(deep: str) -> None:
    with pytest.raises(Fault, match="no watch event"):
        parsed_event(DEEP[deep].encode(), Endpoint("https://a:1", "a", "10.0.0.1", 1, AF_INET))
