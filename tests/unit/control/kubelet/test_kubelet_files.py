"""What the kubelet's script and those who ask it write for each other, and the units that start it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files, units

ROOT = Path(__file__).parents[4] / "src/autarky"


def test_what_is_written_is_read_by_both():
    values = {"order": "0123", "why": "it says: no", "empty": ""}
    assert files.parse(files.written(values)) == values
    assert files.parse(b"a 1\na 2\n\nb\nc 3") == {"a": "1", "b": ""}
    for bad in ({"why": "a\nb"}, {"why": " a"}, {"a b": "c"}, {"": "c"}):
        with pytest.raises(ValueError, match="one line"):
            files.written(bad)


@pytest.mark.parametrize("text", ["/kubelet.service", "/kubelet.conf", '"kubelet.config.k8s.io/v1beta1",'])
def test_nobody_else_writes_what_a_kubelet_is_started_and_configured_by(text):
    own = Path(files.__file__).parent
    writers = {path for path in ROOT.rglob("*.py") if text in path.read_text()}
    assert writers
    assert {path.parent for path in writers} == {own}


def test_its_names_are_those_of_the_kubelets_unit():
    text = files.script().content.decode()
    for path in (
        kubelet_credentials.KUBELET_KUBECONFIG,
        kubelet_credentials.BOOTSTRAP_KUBECONFIG,
        kubelet_credentials.CURRENT_PATH,
    ):
        assert f'="{path}"' in text


def test_systemd_accepts_the_units(tmp_path):
    """Its own tool reads them; the script is not where they say."""
    for file in units.units():
        text = file.content.decode().replace(files.SCRIPT_PATH, "/bin/true")
        (tmp_path / Path(file.path).name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(map(str, tmp_path.glob("*.path")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
