from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autarky.errors import UserError
from autarky.kube import KubeClient
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.render.kubeconfig import bootstrap_kubeconfig

Document = dict[str, Any]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def document() -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [
            {"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded("CA")}},
            {"name": "d", "cluster": {"server": "https://10.0.0.2:6443"}},
        ],
        "users": [
            {"name": "u", "user": {"client-certificate-data": encoded("CRT"), "client-key-data": encoded("KEY")}},
            {"name": "v", "user": {"token": "hunter2"}},
        ],
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "d", "user": "v"}},
        ],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def test_the_current_context_is_read(document: Document, path: Path) -> None:
    path.write_text(yaml.safe_dump(document))
    found = read_kubeconfig(path)
    assert found.server == "https://10.0.0.1:6443"
    assert (found.ca_pem, found.client_cert_pem, found.client_key_pem) == (b"CA", b"CRT", b"KEY")
    assert found.token is None


def test_another_context_can_be_named(document: Document, path: Path) -> None:
    path.write_text(json.dumps(document))
    found = read_kubeconfig(path, "other")
    assert (found.server, found.ca_pem, found.token) == ("https://10.0.0.2:6443", None, "hunter2")


def test_what_we_render_can_be_read(path: Path) -> None:
    path.write_bytes(bootstrap_kubeconfig(b"CA", "test", "abcdef.0123456789abcdef"))
    found = read_kubeconfig(path)
    assert (found.server, found.ca_pem, found.token) == ("https://127.0.0.1:6443", b"CA", "abcdef.0123456789abcdef")


def test_files_are_relative_to_the_kubeconfig(document: Document, path: Path) -> None:
    document["users"][0]["user"] = {"client-certificate": "pki/u.crt", "client-key": str(path.parent / "u.key")}
    path.write_text(json.dumps(document))
    (path.parent / "pki").mkdir()
    (path.parent / "pki" / "u.crt").write_bytes(b"from a file")
    (path.parent / "u.key").write_bytes(b"absolute")
    found = read_kubeconfig(path)
    assert (found.client_cert_pem, found.client_key_pem) == (b"from a file", b"absolute")


def test_data_goes_before_a_file(document: Document, path: Path) -> None:
    document["clusters"][0]["cluster"]["certificate-authority"] = "absent.crt"
    path.write_text(json.dumps(document))
    assert read_kubeconfig(path).ca_pem == b"CA"


def test_a_token_file_is_read_again_at_each_use(document: Document, path: Path) -> None:
    document["users"][0]["user"] = {"tokenFile": "token"}
    path.write_text(json.dumps(document))
    token = read_kubeconfig(path).token
    assert callable(token)
    for text in ("first", "second"):
        (path.parent / "token").write_text(f"{text}\n")
        assert token() == text


def test_a_server_name_is_passed_on(document: Document, path: Path) -> None:
    document["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes"
    path.write_text(json.dumps(document))
    assert read_kubeconfig(path).server_name == "kubernetes"


@pytest.mark.parametrize(
    ("section", "number", "entry", "key"),
    [
        ("users", 0, "user", "exec"),
        ("users", 0, "user", "auth-provider"),
        ("users", 0, "user", "password"),
        ("users", 0, "user", "as"),
        ("clusters", 0, "cluster", "insecure-skip-tls-verify"),
        ("clusters", 0, "cluster", "proxy-url"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    document: Document, path: Path, section: str, number: int, entry: str, key: str
) -> None:
    document[section][number][entry][key] = "something"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=f"{key}: not supported"):
        read_kubeconfig(path)
    document[section][number][entry][key] = False
    path.write_text(json.dumps(document))
    assert read_kubeconfig(path).server


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a kubeconfig"),
        ("[]", "not a kubeconfig"),
        ("kind: Pod", "not a kubeconfig"),
        ("kind: Config", "there is no context «»; there is: none"),
        ("{kind: Config, current-context: a}", "there is no context «a»"),
    ],
)
def test_what_is_no_kubeconfig_is_refused(path: Path, text: str, what: str) -> None:
    path.write_text(text)
    with pytest.raises(UserError, match=what) as caught:
        read_kubeconfig(path)
    assert str(path) in str(caught.value)


def test_broken_yaml_is_refused_with_its_place_and_without_its_content(path: Path) -> None:
    path.write_text("kind: Config\nusers:\n- user: {token: hunter2\n  x: [")
    with pytest.raises(UserError, match=r"kubeconfig:\d+:\d+: it is not YAML") as caught:
        read_kubeconfig(path)
    assert "hunter2" not in str(caught.value)


def test_without_a_library_for_yaml_only_json_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the image of the agents."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    path.write_text("kind: Config")
    with pytest.raises(UserError, match="it is not JSON"):
        read_kubeconfig(path)


def test_an_absent_file_is_refused(path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_kubeconfig(path)


def test_broken_data_is_refused_without_showing_it(document: Document, path: Path) -> None:
    document["users"][0]["user"]["client-key-data"] = "hunter2!"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="client-key-data is not base64") as caught:
        read_kubeconfig(path)
    assert "hunter2" not in str(caught.value)


def test_an_unknown_cluster_names_those_there_are(document: Document, path: Path) -> None:
    document["contexts"][0]["context"]["cluster"] = "e"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="there is no cluster «e»; there is: c, d"):
        read_kubeconfig(path)


def test_a_cluster_without_server_is_refused(document: Document, path: Path) -> None:
    document["clusters"][0]["cluster"].pop("server")
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="has no server"):
        read_kubeconfig(path)


def test_secrets_are_not_in_the_repr(document: Document, path: Path) -> None:
    path.write_text(json.dumps(document))
    assert "KEY" not in repr(read_kubeconfig(path))
    assert "hunter2" not in repr(read_kubeconfig(path, "other"))
    document["clusters"][1]["cluster"].pop("server")


def test_a_client_shows_no_secrets() -> None:
    client = KubeClient(["https://127.0.0.1:1"], ca_pem=None, token="hunter2")  # made up
    assert "hunter2" not in repr(client)


def test_the_client_loads_nothing_big() -> None:
    """Agents live in little memory; JSON kubeconfigs, which ours are, need no YAML library."""
    program = (
        "import sys, json, autarky.kube;"
        "print(json.dumps([m for m in ('yaml', 'cryptography', 'pydantic', 'click', 'rich') if m in sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(result.stdout) == []
