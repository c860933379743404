"""`.ci/run`, `./run test` and `./run test-all` by what they call, with stand-ins for every program.

In a checkout as CI has it: with no git, no terminal and nothing on the standard input.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from unit.docs.documents import ROOT

LINTERS = ("luacheck", "shellcheck")
PROGRAMS = ("autarky", "lint-imports", "mypy", "pytest", "python", "ruff")
INSTALL = f"""\
#!/bin/sh
case "$*" in
"-m venv "*)
  mkdir -p .venv/bin && cp "$0" .venv/bin/python
  printf '#!/bin/sh\\n' >.venv/bin/autarky && chmod +x .venv/bin/autarky ;;
"-m pip "*) ;;
"-m cases "*) ;;
*) exec {sys.executable} "$@" ;;
esac
"""
STAND_IN = """\
#!/bin/sh
[ "$*" != "-m pip --version" ] || exit 0
echo "${0##*/} $*" >>"$CALLS"
case "${0##*/} $*" in
"python -m cases pick --run"*) echo "started at ${AUTARKY_CI_STARTED:-no time of CI}" >>"$CALLS" ;;
esac
case "${0##*/} $*" in *"${FAILS:-nothing fails}"*) exit 7 ;; esac
if read -r line; then echo "somebody types" >>"$CALLS"; fi
"""


@dataclass
class Ran:
    status: int
    calls: list[str]
    said: str

    @property
    def tiers(self) -> list[str]:
        return re.findall(r"^run: (tier \d): \d+:\d\d$", self.said, re.MULTILINE)

    def before(self, call: str, other: str) -> bool:
        return self.calls.index(call) < self.calls.index(other)


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    root, programs = tmp_path / "checkout", tmp_path / "bin"
    programs.mkdir()
    for name in ("requirements", ".ci"):
        shutil.copytree(ROOT / name, root / name)
    for name in ("run", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    (root / "src").mkdir()
    for name in ("a.sh", "b.lua", "c.py"):
        (root / "src" / name).touch()
    put(programs / "python3", INSTALL)
    put(programs / "dpkg-query", "#!/bin/sh\necho installed\n")
    for name in LINTERS:
        put(programs / name, STAND_IN)
    for name in ("sh", "cat", "dirname", "find", "grep", "sha256sum", "cp", "mkdir", "chmod"):
        (programs / name).symlink_to(str(shutil.which(name)))
    calls = tmp_path / "calls"
    environment = {"PATH": str(programs), "CI": "true", "CALLS": str(calls)}

    def call(*argv: str, fails: str = "nothing fails", **more: str) -> Ran:
        calls.write_text("")
        done = subprocess.run(
            [root / argv[0], *argv[1:]],
            cwd=tmp_path,
            env={**environment, "FAILS": fails, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(done.returncode, calls.read_text().splitlines(), done.stdout + done.stderr)

    assert call("run", "cases", "turn").status == 0, "the packages are installed"
    for name in PROGRAMS:
        put(root / ".venv/bin" / name, STAND_IN)
    return call


def put(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


LINT = [
    "ruff format --check .",
    "ruff check .",
    "mypy ",
    "mypy tests/unit tests/contract tests/fakes",
    "mypy tests/e2e tests/cases",
    "mypy bench",
    "mypy scripts",
    "lint-imports ",
    "pytest -q -n0 -p no:randomly tests/unit/docs/test_words.py",
    "shellcheck run .ci/run src/a.sh",
    "luacheck -q src/b.lua",
]
UNIT, CONTRACT = "pytest -n 2 --dist loadfile tests/unit", "pytest tests/contract"
SHORT = "python -m cases short"
ROTATION, EVERY = "python -m cases pick --run", "python -m cases shard --run"


def test_ci_runs_the_three_tiers_and_says_how_long_each_took(run: Run) -> None:
    ran = run(".ci/run")
    assert ran.status == 0, ran.said
    assert ran.tiers == ["tier 0", "tier 1", "tier 2"]
    assert ran.calls[:-1] == [
        *LINT,
        "python -m cases check",
        UNIT,
        "autarky payload get",
        CONTRACT,
        "autarky payload get",
        SHORT,
        ROTATION,
    ]


def test_ci_keeps_a_clock_from_its_very_start_by_the_boot_clock(run: Run) -> None:
    before = uptime()
    started = float(run(".ci/run").calls[-1].removeprefix("started at "))
    assert before <= started <= uptime()


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def test_by_hand_there_is_no_clock(run: Run) -> None:
    ran = run("run", "test")
    assert ran.calls[-1] == "started at no time of CI"
    assert ran.tiers == ["tier 0", "tier 1", "tier 2"]


@pytest.mark.parametrize(
    ("fails", "tiers", "never"),
    [
        ("mypy tests/e2e", [], UNIT),
        ("test_words.py", [], UNIT),
        ("cases check", [], UNIT),
        ("tests/unit", [], CONTRACT),
        ("tests/contract", [], SHORT),
        ("cases short", ["tier 0"], ROTATION),
        ("cases pick", ["tier 0", "tier 1"], ""),
    ],
)
def test_whatever_fails_ends_the_run_with_its_status(run: Run, fails: str, tiers: list[str], never: str) -> None:
    ran = run(".ci/run", fails=fails)
    assert ran.status == 7, ran.said
    assert ran.tiers == tiers
    assert never not in ran.calls


def test_all_by_hand_is_tier_0_and_every_case(run: Run) -> None:
    ran = run("run", "test-all", "--no-record")
    assert ran.status == 0, ran.said
    assert ran.calls[: len(LINT)] == LINT
    assert ran.before(CONTRACT, f"{EVERY} --no-record")
    assert ran.calls[-1] == f"{EVERY} --no-record"


@pytest.mark.parametrize("said", [("--shard", "2/4"), ("--shard=2/4",)])
def test_a_shard_is_its_cases_and_nothing_else(run: Run, said: tuple[str, ...]) -> None:
    assert run("run", "test-all", *said).calls == [
        "autarky payload get --all",
        f"{EVERY} {' '.join(said)}",
    ]


def test_some_minutes_of_the_rotation_are_had_by_hand_as_well(run: Run) -> None:
    assert run("run", "test-all", "--minutes", "20").calls[0] == f"{ROTATION} --minutes 20"


def test_cases_are_handed_on_to_what_keeps_their_list(run: Run) -> None:
    ran = run("run", "cases", "rename", "a", "b c", fails="rename")
    assert ran.calls == ["python -m cases rename a b c"]
    assert ran.status == 7
