"""`autarky down` says what goes and asks; where nobody can answer it wants --yes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autarky.cli.main import main
from autarky.model.cluster import HostRef
from autarky.payload import load_release
from autarky.phases.context import Context
from autarky.phases.teardown import doomed
from autarky.pki import PkiStore
from autarky.places import NODE_MARKER
from autarky.render.certificates import certificate_specs
from fakes.clusters import a_cluster
from fakes.host import FakeHost, FakeMachines


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cluster.json"
    spec = {"nodes": [{"name": "n1", "host": "lab"}]}
    document = {"apiVersion": "autarky.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "gone"}, "spec": spec}
    path.write_text(json.dumps(document))
    return path


def answered(file, answer):
    """(status, what was said on standard error) of `down` on a terminal."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-m", "autarky", "down", "-f", str(file)],
        stdin=theirs, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    return done.returncode, done.stdout, done.stderr


def test_without_a_terminal_it_wants_yes(file, capsys, monkeypatch):
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        for more in ((), ("-o", "json")):
            assert main(["down", "-f", str(file), *more]) == 2
            said = capsys.readouterr().err
            assert "Take the cluster gone away?" in said
            assert "fix: say --yes" in said


def test_on_a_terminal_it_asks(file):
    status, out, err = answered(file, "n")
    assert (status, out) == (130, "")
    assert "Take the cluster gone away?" in err


def test_a_dry_run_does_not_ask(file, capsys):
    assert main(["down", "-f", str(file), "--dry-run"]) == 0


async def test_it_names_cluster_hosts_and_what_becomes_of_the_data(make_down_context):
    context = make_down_context()
    (context.directory / "cluster.json").write_text("{}")
    kept, purged = await doomed(context, purge=False), await doomed(context, purge=True)
    assert kept[0] == "node n1 on ssh://n1: all of autarky goes; etcd's data and the CA keys are moved aside"
    assert purged[0].endswith("etcd's data and the CA keys are deleted")
    assert kept[1].startswith(f"move aside {context.directory}: the keys, kubeconfig and journal of the cluster demo")
    assert purged[1].startswith(f"delete {context.directory}")


@pytest.fixture
def make_down_context(tmp_path):
    def make():
        cluster = a_cluster()
        cluster = replace(cluster, nodes=tuple(replace(n, host=HostRef("ssh", n.name)) for n in cluster.nodes))
        pki = PkiStore(tmp_path / "demo" / "pki")
        pki.ensure(certificate_specs(cluster), cluster.certificates, datetime.now(UTC))
        host = FakeHost("n1")
        marker = {"cluster": "demo", "node": "n1", "founders": ["n1"], "ca": pki.fingerprint()}
        host.files[NODE_MARKER] = (json.dumps(marker).encode(), 0o644)
        return Context(
            cluster=cluster, release=load_release(cluster.kubernetes_version), machines=FakeMachines({"n1": host}),
            pki=pki, connect=lambda *_: None, clock=None, directory=tmp_path / "demo", silence=None,
        )  # fmt: skip

    return make
