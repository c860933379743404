"""`autarky init` and `autarky validate`, and the cluster file on standard input."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from autarky import places
from autarky.cli import main, wiring
from autarky.cli.main import cli
from autarky.config import loads
from autarky.config.schema import ClusterFile
from autarky.config.starter import Wanted, starter
from autarky.model.versions import Version

VERSION = Version.parse("1.36.4")


@pytest.fixture(autouse=True)
def nothing_read_yet():
    wiring._standard_input.cache_clear()


def run(*arguments: str, given: str | None = None):
    return CliRunner().invoke(cli, arguments, input=given, catch_exceptions=True)


def loaded(text: str):
    return loads(text, "starter", default_version=VERSION, known_versions=[VERSION])


def uncommented(text: str) -> str:
    return re.sub(r"^( *)#(?=[a-zA-Z])", r"\1", text, flags=re.MULTILINE)


def paths_of(schema: dict, definitions: dict, path: str = ""):
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", []):
        yield from paths_of(one, definitions, path)
    for key, below in schema.get("properties", {}).items():
        yield f"{path}{key}"
        yield from paths_of(below, definitions, f"{path}{key}.")


# --- what is written -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("hosts", "controls"), [(["lab"], 1), ([f"ssh://root@192.0.2.{n}" for n in range(4)], 3)])
def test_the_file_to_begin_with_is_the_cluster_that_was_asked_for(hosts, controls):
    cluster = loaded(starter(Wanted("home", VERSION, hosts, controls)))
    assert (cluster.name, cluster.kubernetes_version, cluster.self_hosted_text) == ("home", VERSION, "1-4")
    assert [node.control_plane for node in cluster.nodes] == [n < controls for n in range(len(hosts))]
    assert len({node.name for node in cluster.nodes}) == len(hosts)


def test_each_setting_that_is_commented_out_can_be_taken_as_it_is():
    """All at once, but for etcd elsewhere, which excludes the level that is written."""
    text = uncommented(starter(Wanted("home", VERSION, ["lab"], 1)))
    assert "#network" not in text
    with pytest.raises(Exception, match="selfHosted"):
        loaded(text)
    cluster = loaded(text.replace('selfHosted: "1-4"', 'selfHosted: "2-4"'))
    assert cluster.control_plane_endpoint is not None
    assert cluster.external_etcd is not None
    assert cluster.extra_args["kube-apiserver"] == {"v": "3"}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["network:", "serviceCIDR:"], lambda cluster: str(cluster.network.service_cidr) == "10.96.0.0/16"),
        (["certificates:", "caDays:"], lambda cluster: cluster.certificates.ca_days == 3650),
        (["controlPlaneEndpoint:"], lambda cluster: cluster.control_plane_endpoint == "api.example.org:6443"),
    ],
)
def test_a_setting_is_taken_with_those_that_it_is_under_and_without_its_neighbours(lines, found):
    text = starter(Wanted("home", VERSION, ["lab"], 1))
    for line in lines:
        assert text.count(f"#{line}") == 1
        text = text.replace(f"#{line}", line)
    assert found(loaded(text))


def test_every_field_of_the_schema_is_in_it_with_its_description():
    text = starter(Wanted("home", VERSION, ["lab", "lab"], 1))
    schema = ClusterFile.model_json_schema(by_alias=True)
    spec = [path for path in paths_of(schema, schema["$defs"]) if path.startswith("spec.")]
    left_out = {"version", "endpoints", "caFile", "certFile", "keyFile"}
    assert len(spec) > 25
    missing = {path for path in spec if not re.search(rf"^\s*#?\s*{path.rpartition('.')[2]}:", text, re.MULTILINE)}
    assert {path.rpartition(".")[2] for path in missing} == left_out
    assert "Lifetime of new CAs, in days." in text


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clusters that this machine knows: none."""
    directory = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    return directory


# --- init ----------------------------------------------------------------------------------------------


def test_init_writes_a_file_that_validate_finds_right(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    hosts = [word for n in range(3) for word in ("--host", f"ssh://root@192.0.2.{n}")]
    made = run("init", str(path), "--name", "rack", *hosts)
    assert made.exit_code == 0, made.output
    checked = run("validate", "-f", str(path))
    assert checked.exit_code == 0, checked.output
    assert "rack, 3 control nodes, Kubernetes v1.36.4, levels 1-4 hosted" in checked.output
    assert list(tmp_path.iterdir()) == [path]


def a_known_cluster(name: str) -> None:
    places.cluster_dir(name).mkdir(parents=True)


def test_init_takes_no_name_of_a_cluster_that_there_is(tmp_path: Path):
    """`up` with such a file would found another cluster with the keys of that one."""
    for known, free in ((None, "home"), ("home", "home-2"), ("home-2", "home-3")):
        if known is not None:
            a_known_cluster(known)
        made = run("init", "-")
        assert made.exit_code == 0, made.output
        assert f"name: {free}\n" in made.output
    assert main.main(["init", str(tmp_path / "cluster.yaml"), "--name", "home"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_init_replaces_no_file(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text("mine")
    assert main.main(["init", str(path)]) == 2
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("arguments", [["--name", "No Name"], ["--host", "ftp://x"], ["--control-nodes", "2"]])
def test_init_writes_nothing_that_could_not_be_read(arguments, tmp_path: Path):
    assert main.main(["init", str(tmp_path / "cluster.yaml"), *arguments]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("none/cluster.yaml", "name a file in a directory that you may write to"),
        ("file/cluster.yaml", "name a file in a directory that you may write to"),
        ("x" * 300, "name a file in a directory that you may write to"),
        (".", "name a file in it"),
        ("sub", "name a file in it"),
    ],
)
def test_init_says_what_to_do_where_it_cannot_write(tmp_path: Path, name, fix, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "sub").mkdir()
    assert main.main(["init", f"{tmp_path}/{name}"]) == 2
    assert f"fix: {fix}" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "sub"]


@pytest.mark.parametrize("there", [True, False])
def test_init_does_without_hard_links(tmp_path: Path, monkeypatch, there):
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "cluster.yaml"
    if there:
        path.write_text("mine")
    assert main.main(["init", str(path)]) == (2 if there else 0)
    assert (path.read_text() == "mine") == there
    assert list(tmp_path.iterdir()) == [path]


def test_init_to_standard_output_can_be_validated_from_standard_input():
    made = run("init", "-")
    checked = run("validate", "-f", "-", given=made.stdout)
    assert checked.exit_code == 0, checked.output
    assert "home, 1 control node, Kubernetes v1.36.4" in checked.output


# --- validate ------------------------------------------------------------------------------------------


def test_validate_tells_all_that_is_wrong_with_its_line(tmp_path: Path, capsys):
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: autarky.dev/v1alpha1\nkind: Cluster\nmetadata: {name: x}\nspec:\n  nods: []\n")
    assert main.main(["validate", "-f", str(path)]) == 2
    reported = capsys.readouterr().err
    assert f"{path}:5" in reported
    assert "nodes" in reported


def test_validate_names_files_that_are_not_there(tmp_path: Path, capsys):
    path = tmp_path / "cluster.yaml"
    text = starter(Wanted("home", VERSION, ["lab"], 1)).replace("  #sshConfig: ssh_config", "  sshConfig: ssh_config")
    path.write_text(text)
    assert main.main(["validate", "-f", str(path)]) == 2
    assert f"spec.sshConfig: {tmp_path}/ssh_config does not exist" in capsys.readouterr().err
    (tmp_path / "ssh_config").touch()
    assert main.main(["validate", "-f", str(path)]) == 0


def test_validate_prints_the_file_with_its_defaults_filled_in(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(starter(Wanted("home", VERSION, ["lab"], 1)))
    said = json.loads(run("validate", "-f", str(path), "-o", "json").output)
    assert said["spec"]["network"]["podCIDR"] == "10.244.0.0/16"


def test_validate_needs_a_file():
    assert run("validate").exit_code == 2


# --- standard input ------------------------------------------------------------------------------------


def test_what_comes_on_standard_input_is_read_once_and_its_errors_say_so(monkeypatch):
    text = starter(Wanted("piped", VERSION, ["lab"], 1))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert wiring.load_cluster(Path("-"), None).name == "piped"
    assert wiring.load_cluster(Path("-"), None).name == "piped"
    wiring._standard_input.cache_clear()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"kind: Cluster")))
    with pytest.raises(Exception, match="standard input"):
        wiring.load_cluster(Path("-"), None)
