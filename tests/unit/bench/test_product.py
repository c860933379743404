"""Another checkout's commands are measured with its own sources, or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import _product
import pytest
from _autarky import AutarkyCluster
from _product import LOCK, THIS_TREE, product_of
from _record import versions_of
from _tree import ROOT

from autarky.payload import default_version, load_release

RELEASE = load_release(default_version())
VERSIONS = versions_of(RELEASE)
HAPROXY = VERSIONS.pop("haproxy")
del VERSIONS["autarky"]
# What the benchmarks ask a product for.
PACKAGE = {
    "__init__.py": "",
    "__main__.py": "import sys; print('the other one:', *sys.argv[1:])",
    "model/__init__.py": "",
    "model/versions.py": "class Version:\n    parse = str",
    "payload/__init__.py": """\
from types import SimpleNamespace as N
def load_release(version):
    assert version == "KUBERNETES"
    components = [N(name=name, version=version) for name, version in VERSIONS.items()]
    return N(components=components, image=lambda name: N(reference="docker.io/" + name + ":HAPROXY"))
""",
    "workflows/__init__.py": "",
    "workflows/up.py": """\
from types import SimpleNamespace as N
PHASES = [N(name=name) for name in ("prepare-hosts", "start-control-plane", "one-of-its-own")]
""",
}


@pytest.fixture
def checkout(tmp_path):
    """Of another product, with the packages and the versions of this one."""
    return make(tmp_path / "checkout", VERSIONS)


def make(root: Path, versions: dict[str, str]) -> Path:
    for name, content in PACKAGE.items():
        path = root / "src/autarky" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("KUBERNETES", str(RELEASE.kubernetes)).replace("HAPROXY", HAPROXY))
    with (root / "src/autarky/payload/__init__.py").open("a") as payload:
        payload.write(f"VERSIONS = {versions}")
    (root / "requirements").mkdir()
    (root / LOCK).write_bytes((ROOT / LOCK).read_bytes())
    return root


def test_without_one_it_is_this_tree_with_nothing_in_its_environment():
    assert product_of(None, RELEASE) == THIS_TREE
    assert (THIS_TREE.root, THIS_TREE.command, THIS_TREE.variables) == (ROOT, [sys.executable, "-m", "autarky"], {})


def test_its_commands_are_those_of_its_own_sources_wherever_they_are_started(checkout, monkeypatch):
    monkeypatch.chdir(ROOT / "src")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    product = product_of(checkout, RELEASE)
    done = subprocess.run([*product.command, "version"], capture_output=True, text=True, check=True, **product.where)
    assert done.stdout == "the other one: version\n"


def test_a_path_is_taken_from_where_the_benchmark_was_called(checkout, monkeypatch):
    monkeypatch.chdir(checkout.parent)
    assert product_of(Path("checkout"), RELEASE).root == checkout


def test_its_clock_starts_at_the_same_phase_with_its_own_phases_after_it(checkout):
    assert product_of(checkout, RELEASE).clocked == ("start-control-plane", "one-of-its-own")


async def test_a_cluster_of_it_is_made_and_taken_away_by_its_commands(checkout, monkeypatch, tmp_path):
    """Nothing is started here: if this test fails, it must not be this tree that makes a cluster."""
    started = []

    def start(argv, **options):
        assert argv[:3] == [sys.executable, "-m", "autarky"]
        started.append((" ".join(argv[3:]), options.get("cwd"), options.get("env", {}).get("PYTHONPATH")))

    async def start_beside(*argv, **options):
        start(list(argv), **options)
        return Ended()

    async def ready():
        return None

    product = product_of(checkout, RELEASE)
    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_beside)
    monkeypatch.setattr("_autarky.STATE", tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = AutarkyCluster("one").of(product)
    cluster.prepare()
    await cluster.timed_up(ready())
    cluster.down()
    up, down = f"up -f {tmp_path}/one.yaml", f"down -f {tmp_path}/one.yaml --yes"
    skipped = "--skip=start-control-plane --skip=one-of-its-own"
    commands = [down, f"{up} {skipped}", up, down]
    assert started == [(command, checkout, str(checkout / "src")) for command in commands]


class Ended:
    returncode = 0

    async def wait(self):
        return 0


# --- what cannot be measured ----------------------------------------------------------------------


def refused(root: Path) -> str:
    with pytest.raises(SystemExit) as error:
        product_of(root, RELEASE)
    return str(error.value)


def test_a_directory_that_is_no_checkout_is_refused(tmp_path):
    assert f"{tmp_path} is no checkout of autarky" in refused(tmp_path)


def test_one_in_whose_place_this_tree_would_answer_is_refused(checkout):
    (checkout / "src").rename(checkout / "moved")
    assert f"would run {ROOT / 'src'}" in refused(checkout)


def test_one_that_does_not_say_what_it_runs_is_refused_with_its_own_words(checkout):
    (checkout / "src/autarky/payload/__init__.py").write_text("raise RuntimeError('not like this')")
    assert refused(checkout).endswith("cannot be measured by this tree: RuntimeError: not like this")


def test_one_with_no_phase_where_the_clock_starts_is_refused(checkout):
    (checkout / "src/autarky/workflows/up.py").write_text("PHASES = []")
    assert "no phase start-control-plane" in refused(checkout)


def test_one_that_runs_other_versions_is_refused_since_kubeadm_has_ours(tmp_path):
    root = make(tmp_path / "other", {**VERSIONS, "etcd": "v3.0.1", "of its own": "v1"})
    assert f"other versions, so that kubeadm is no yardstick: etcd v3.0.1 (here {VERSIONS['etcd']})" in refused(root)


def test_one_with_other_python_packages_needs_an_environment_of_its_own_and_uses_it(checkout):
    (checkout / LOCK).write_text("another-package==1")
    assert f"needs other Python packages than this tree: run {checkout}/run autarky version" in refused(checkout)
    own = checkout / ".venv/bin/python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    assert product_of(checkout, RELEASE).python == str(own)


def test_a_python_that_has_another_trees_package_installed_measures_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(_product, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=rf"runs .*, not {tmp_path}: remove {tmp_path}/\.venv"):
        product_of(None, RELEASE)
