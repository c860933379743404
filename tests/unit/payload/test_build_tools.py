"""What a build needs of this machine is looked for before it begins: one error names all of it, and how to get it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autarky.errors import UserError
from autarky.payload import default_version, get_payload, gobuild, load_release
from autarky.payload.build_tools import Needs, refuse_missing_tools
from fakes.heard_progress import HeardProgress

EVERYTHING = Needs(cgo=("runc", "flannel"), layers=True, pip=True)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any of the tools: the only directory that is searched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


async def test_all_that_is_missing_is_named_at_once_with_the_command_that_installs_it(bare, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError) as caught:
        await refuse_missing_tools(EVERYTHING)
    for tool in ("gcc", "pkg-config", "mmdebstrap", "stdlib.h", "seccomp.h", "pip for the Python that runs autarky"):
        assert tool in caught.value.what
    packages = "gcc pkg-config mmdebstrap libc6-dev libseccomp-dev"
    assert caught.value.fix.startswith(f"apt-get install {packages}; ")
    assert caught.value.fix.endswith("-m ensurepip")


async def test_a_header_that_the_compiler_does_not_find_is_named(bare):
    real = shutil.which("gcc", path="/usr/bin:/bin:/usr/local/bin")
    assert real is not None, "these tests need gcc: apt-get install gcc"
    (bare / "gcc").write_text(f'#!/bin/sh\ncase "$*" in *seccomp.h*) exit 1 ;; esac\nexec {real} "$@"\n')
    (bare / "gcc").chmod(0o755)
    with pytest.raises(UserError, match=r"seccomp\.h \(libseccomp-dev\)") as caught:
        await refuse_missing_tools(Needs(cgo=("runc",)))
    assert "stdlib.h" not in caught.value.what


async def test_only_what_is_needed_is_looked_for(bare):
    await refuse_missing_tools(Needs())
    with pytest.raises(UserError) as caught:
        await refuse_missing_tools(Needs(cgo=("flannel",)))
    assert "seccomp.h" not in caught.value.what


async def test_nothing_is_built_where_a_tool_is_missing(bare, own_store, monkeypatch):
    begun: list[str] = []

    async def build(_go, _store, component, _binaries, _progress) -> None:
        begun.append(component.name)

    monkeypatch.setattr(gobuild, "build_binaries", build)
    with pytest.raises(UserError, match="mmdebstrap"):
        await get_payload(load_release(default_version()), HeardProgress())
    assert begun == []


async def test_what_needs_no_c_is_built_without_a_compiler(bare, own_store, monkeypatch):
    begun: list[str] = []

    async def find_go(_progress) -> str:
        return "go"

    async def build(_go, _store, component, _binaries, _progress) -> None:
        begun.append(component.name)

    monkeypatch.setattr(gobuild, "find_go", find_go)
    monkeypatch.setattr(gobuild, "build_binaries", build)
    release = replace(load_release(default_version()), images=())
    with pytest.raises(UserError, match="disappeared from the store"):
        await get_payload(release, HeardProgress(), groups=("test",))
    assert begun == ["kubernetes"]
