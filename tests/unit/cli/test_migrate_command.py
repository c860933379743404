"""`autarky etcd migrate`, as far as it needs no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.cli.main import main
from autarky.doctor.diagnosis import RESTARTS_MEMBERS

FILE = """\
apiVersion: autarky.dev/v1alpha1
kind: Cluster
metadata: {name: nobodys}
spec: {nodes: [{name: n1, host: lab}]}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE)
    return path


def test_the_file_with_the_new_place_has_to_be_given(capsys):
    assert main(["etcd", "migrate", "--yes"]) == 2
    assert "-f FILE" in capsys.readouterr().err


def test_a_cluster_that_this_machine_does_not_know_is_not_made(capsys, file):
    assert main(["etcd", "migrate", "-f", str(file), "--yes"]) == 2
    said = capsys.readouterr().err
    assert "knows no cluster nobodys" in said
    assert "autarky login" in said


@pytest.mark.parametrize("option", ["--peer-cert", "--peer-key", "--peer-ca"])
def test_the_certificate_of_another_ca_comes_with_its_key_and_that_ca(capsys, file, option):
    assert main(["etcd", "migrate", "-f", str(file), "--yes", option, str(file)]) == 2
    assert "Give --peer-cert, --peer-key and --peer-ca together." in capsys.readouterr().err


@pytest.mark.parametrize(("further", "said"), [([], True), (["--dry-run"], False)])
def test_at_the_end_it_says_that_the_members_accept_the_other_ca_until_they_are_restarted(
    capsys, file, monkeypatch, further: list[str], said: bool
):
    """etcd reads the CA of its peers at its start only."""

    async def bring_up(*_: object, **__: object) -> dict[str, str]:
        return {}

    monkeypatch.setattr("autarky.cli.up.bring_up", bring_up)
    monkeypatch.setattr("autarky.cli.migrate._known", lambda wanted: [wanted])
    migrate = ["etcd", "migrate", "-f", str(file), "--yes", *further]
    assert main(migrate) == 0
    assert RESTARTS_MEMBERS not in capsys.readouterr().err
    peers = [word for option in ("--peer-cert", "--peer-key", "--peer-ca") for word in (option, str(file))]
    assert main([*migrate, *peers]) == 0
    found = capsys.readouterr()
    assert (RESTARTS_MEMBERS in found.err) == said
    assert found.out == ""


def test_a_copy_needs_no_certificate_of_peers(capsys, file):
    peers = [word for option in ("--peer-cert", "--peer-key", "--peer-ca") for word in (option, str(file))]
    assert main(["etcd", "migrate", "-f", str(file), "--yes", "--copy", *peers]) == 2
    assert "--peer-cert is of no use" in capsys.readouterr().err


def test_out_of_the_cluster_nothing_is_copied(capsys, file):
    external = "etcd: {external: {lab: etcd1}}, selfHosted: 2-4, nodes"
    file.write_text(FILE.replace("nodes", external))
    assert main(["etcd", "migrate", "-f", str(file), "--yes", "--copy"]) == 2
    assert "takes no snapshot through its API" in capsys.readouterr().err
