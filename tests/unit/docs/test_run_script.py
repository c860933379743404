"""`./run`, as a new user meets it: in a checkout of its own, with stand-ins for the programs that install.

The real thing runs in CI, which is `./run test`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from unit.docs.documents import ROOT

DPKG_QUERY = "echo ${INSTALLED:-not-installed}"
PYTHON = f"""\
case "$*" in
"-m venv "*)
  echo "made .venv" >&2
  mkdir -p .venv/bin && cp "$0" .venv/bin/python
  printf '#!%s\\necho "autarky in $(pwd):" "$@"\\n' /bin/sh >.venv/bin/autarky && chmod +x .venv/bin/autarky ;;
"-m pip install "*) echo "$*" >&2 ;;
"-m pip --version") ;;
*) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout, and beside it the programs that there are."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "requirements", root / "requirements")
    for name in ("run", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    put(programs / "python3", PYTHON)
    put(programs / "dpkg-query", DPKG_QUERY)
    put(programs / "id", "echo 1000")
    for name in ("sh", "cat", "dirname", "grep", "sha256sum", "cp", "mkdir", "chmod"):
        (programs / name).symlink_to(str(shutil.which(name)))
    return root


@pytest.fixture
def benchmarks(checkout):
    """Each says what it was called with, and where."""
    (checkout / "bench").mkdir()
    for name in ("all", "reboot", "_part"):
        saying = f"import os, sys; print('{name}:', *sys.argv[1:], 'in', os.getcwd())"
        (checkout / f"bench/{name}.py").write_text(saying)
    return checkout


def put(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """From a directory that is not the checkout."""
    programs = checkout.parent / "bin"
    return subprocess.run(
        [checkout / "run", *arguments],
        cwd=checkout.parent,
        env={"PATH": str(programs), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_line_runs_where_it_was_called_so_that_paths_mean_what_they_say(checkout):
    done = run(checkout, "autarky", "up", "-f", "my cluster.yaml")
    assert done.stdout == f"autarky in {checkout.parent}: up -f my cluster.yaml\n"


def test_python_packages_are_installed_once_with_their_hashes(checkout):
    first = run(checkout, "autarky")
    assert "made .venv" in first.stderr
    assert "--require-hashes -r requirements/build.lock -r requirements/runtime.lock" in first.stderr
    assert run(checkout, "autarky").stderr == ""


def test_they_are_installed_again_when_the_lock_changes(checkout):
    run(checkout, "autarky")
    (checkout / "requirements/runtime.lock").write_text("")
    again = run(checkout, "autarky").stderr
    assert "--require-hashes" in again
    assert "made .venv" not in again


def test_a_virtual_environment_that_was_left_half_made_is_made_from_scratch(checkout):
    (checkout / ".venv/bin").mkdir(parents=True)
    put(checkout / ".venv/bin/python", "exit 1")
    assert "made .venv" in run(checkout, "autarky").stderr


def test_a_checkout_that_was_moved_is_installed_again(checkout):
    run(checkout, "autarky")
    (checkout / ".venv/bin/autarky").write_text("#!/where/it/was/.venv/bin/python\n")
    assert "pip install" in run(checkout, "autarky").stderr


def test_who_is_not_root_is_told_what_to_install(checkout):
    put(checkout.parent / "bin/apt-get", "exit 1")
    done = run(checkout, "up")
    assert done.returncode == 2
    assert "fix: run as root, or: apt-get install ca-certificates mmdebstrap" in done.stderr


def test_what_is_installed_is_not_installed_again(checkout):
    done = run(checkout, "up", "--dry-run", INSTALLED="installed")
    assert done.stdout == f"autarky in {checkout}: up -f examples/lab-1.yaml --dry-run\n"


def test_a_system_without_apt_is_refused_with_what_is_missing(checkout):
    done = run(checkout, "up")
    assert done.returncode == 2
    assert "fix: use Debian 12 or newer" in done.stderr


def test_bench_runs_one_benchmark_where_it_was_called_so_that_the_path_of_the_record_means_what_it_says(benchmarks):
    done = run(benchmarks, "bench", "reboot", "--rounds", "1", INSTALLED="installed")
    assert done.stdout == f"reboot: --rounds 1 in {benchmarks.parent}\n"


@pytest.mark.parametrize("options", [[], ["--json", "my run.json"]])
def test_bench_without_a_name_runs_all_of_them(benchmarks, options):
    done = run(benchmarks, "bench", *options, INSTALLED="installed")
    assert done.stdout == f"{' '.join(['all:', *options])} in {benchmarks.parent}\n"


@pytest.mark.parametrize("name", ["jump", "_part", "../bench/all"])
def test_a_benchmark_that_there_is_not_is_refused_with_those_that_there_are_before_anything_is_installed(
    benchmarks, name
):
    done = run(benchmarks, "bench", name)
    assert done.returncode == 2
    assert done.stderr == f"run: there is no benchmark {name}\nrun: fix: use one of: all reboot\n"


def test_a_command_that_there_is_not_shows_the_usage(checkout):
    done = run(checkout, "jump")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ./run COMMAND")
