"""Whatever has become of the kubelet's files, the agent begins to act: as its kubelet if it can."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from autarky.agents.node.own_identity import of_kubelet
from autarky.model.files import CertSpec
from autarky.pki.check import authority_of
from autarky.pki.issue import Pair, issue_ca, issue_leaf
from autarky.pki.keys import new_key
from unit.agents.test_odd_content import CONTENT
from unit.pki.damage import every_byte_flipped

NOW = datetime.now(UTC)
CA = issue_ca("kubernetes", new_key("EC"), NOW, 365)


def a_pair() -> Pair:
    spec = CertSpec("kubelet", "ca", "system:node:n1", ("system:nodes",))
    return issue_leaf(spec, authority_of(CA, "ca.crt", "ca.key", NOW), "EC", NOW, timedelta(days=1))


def kubeconfig_of(pair: Pair) -> bytes:
    user = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    document = {
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "u", "user": user}],
    }
    return json.dumps(document).encode()


FIRST, LATER = a_pair(), a_pair()
KUBECONFIG, ROTATED = kubeconfig_of(FIRST), LATER.certificate + LATER.key


def acts_by(directory: Path, rotated: bytes | None, first: bytes | None) -> tuple[bytes, bytes] | None:
    paths = directory / "kubelet-client-current.pem", directory / "kubelet.conf"
    for path, content in zip(paths, (rotated, first), strict=True):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    reported: list[str] = []
    found = of_kubelet(*paths, lambda _, sentence: reported.append(sentence))
    assert (
        found in ((rotated, rotated), None) or rotated is None or "kubelet-client-current.pem cannot be" in reported[0]
    )
    return found


def test_the_rotated_certificate_goes_before_the_first_one(tmp_path: Path) -> None:
    assert acts_by(tmp_path, ROTATED, KUBECONFIG) == (ROTATED, ROTATED)
    assert acts_by(tmp_path, None, KUBECONFIG) == (FIRST.certificate, FIRST.key)
    assert acts_by(tmp_path, None, None) is None


@pytest.mark.parametrize("damage", ["certificate", "key"])
def test_a_rotated_certificate_with_a_byte_damaged_makes_way_for_the_first_one(tmp_path: Path, damage: str) -> None:
    """Or is good enough to be shown: then it is for the API to judge."""
    first = 0
    for damaged in [*every_byte_flipped(getattr(LATER, damage))][::3]:
        rotated = damaged + LATER.key if damage == "certificate" else LATER.certificate + damaged
        found = acts_by(tmp_path, rotated, KUBECONFIG)
        assert found in ((rotated, rotated), (FIRST.certificate, FIRST.key))
        first += found != (rotated, rotated)
    assert first > 5


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONTENT, CONTENT)
def test_an_agent_begins_whatever_is_in_the_files_of_its_kubelet(tmp_path: Path, rotated: bytes, first: bytes) -> None:
    assert acts_by(tmp_path, rotated, first) is None
