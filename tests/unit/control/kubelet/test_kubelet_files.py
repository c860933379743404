"""What the kubelet's script and those who ask it write for each other, and the units that start it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autarky.control.kubelet.manifests import files, units
from autarky.render import node as render_node


def test_what_is_written_is_read_by_both():
    values = {"order": "0123", "why": "it says: no", "empty": ""}
    assert files.parse(files.written(values)) == values
    assert files.parse(b"a 1\na 2\n\nb\nc 3") == {"a": "1", "b": ""}
    for bad in ({"why": "a\nb"}, {"why": " a"}, {"a b": "c"}, {"": "c"}):
        with pytest.raises(ValueError, match="one line"):
            files.written(bad)


def test_its_names_are_those_of_the_kubelets_unit():
    text = files.script().content.decode()
    for path in (render_node.KUBELET_KUBECONFIG, render_node.BOOTSTRAP_KUBECONFIG, render_node.CURRENT_PATH):
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
