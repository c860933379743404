"""What go is told to do for each kind of binary, by a stand-in that writes it down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autarky.payload import gobuild
from autarky.payload.artefacts import stored_binary
from autarky.payload.release import BinarySpec, Component
from fakes.heard_progress import HeardProgress

STAND_IN = """\
#!/bin/sh
echo "$*" >>"$CALLS"
[ "$1" != list ] || printf 'x\\nx\\n'
while [ $# -gt 0 ]; do
  [ "$1" != -o ] || out=$2
  shift
done
case "${out:-}" in
"") ;;
*/) echo it >"${out}server" ;;
*) echo it >"$out" ;;
esac
"""
SERVER = BinarySpec("server", "example.org/cmd/server", "cluster")
TESTS = BinarySpec("e2e.test", "example.org/test/e2e", "conformance", test=True)


@pytest.fixture
def build(own_store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds binaries of a recipe; the calls of go, whose linker flags and output are left out."""
    go, calls, recipe = tmp_path / "go", tmp_path / "calls", tmp_path / "recipe"
    go.write_text(STAND_IN)
    go.chmod(0o755)
    recipe.mkdir()
    (recipe / "go.mod").write_text("module example.org/recipe\n")
    monkeypatch.setenv("CALLS", str(calls))

    async def built(*binaries: BinarySpec, tags: str = "") -> list[str]:
        calls.write_text("")
        component = Component("parts", "v1", "parts-v1", ("-s", "-X a=b c"), binaries, recipe, tags=tags)
        await gobuild.build_binaries(str(go), own_store, component, binaries, HeardProgress())
        assert all(stored_binary(own_store, component, binary) for binary in binaries)
        said = calls.read_text().replace(" -ldflags -s '-X a=b c'", " LINKED")
        return [" ".join(word for word in line.split() if "/scratch/" not in word) for line in said.splitlines()]

    return built


async def test_a_program_is_built(build):
    assert await build(SERVER) == [
        "list -deps -mod=readonly -f x example.org/cmd/server",
        "build -trimpath -mod=readonly -v LINKED -o example.org/cmd/server",
    ]


async def test_tests_become_a_program_when_what_they_import_is_built_and_nothing_is_vetted(build):
    assert await build(TESTS) == [
        "list -deps -test -mod=readonly -f x example.org/test/e2e",
        "build -trimpath -mod=readonly -v -tags tools .",
        "test -trimpath -mod=readonly -c -vet=off LINKED -o example.org/test/e2e",
    ]


async def test_tests_and_programs_of_one_recipe_are_built_each_in_its_way(build):
    """Also when the package has the name that they are to have."""
    _, server, imports, tests = await build(replace(TESTS, name="e2e"), SERVER)
    assert server.endswith(" LINKED -o example.org/cmd/server")
    assert imports.endswith(" -tags tools .")
    assert tests.endswith(" LINKED -o example.org/test/e2e")


async def test_a_recipes_own_tags_count_for_both(build):
    calls = await build(TESTS, replace(SERVER, package="example.org/cmd/other"), tags="netgo")
    assert [call.partition("-tags ")[2].partition(" -o")[0] for call in calls[1:]] == [
        "netgo tools .",
        "netgo",
        "netgo",
    ]
