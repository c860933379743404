"""Release files as a base and differences, a user's own, and how one comes about."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from autarky.errors import UserError
from autarky.model.versions import Version
from autarky.payload import default_version, image_reference, known_versions, load_release, new_release, release_files
from autarky.payload.disk import remove_tree
from autarky.payload.release import Release, forget_releases, read_release, unusable_files
from autarky.payload.upkeep import prune_store
from autarky.store import write_private
from fakes.heard_progress import HeardProgress

ROOT = Path(__file__).parents[3]

OLDER = Version(1, 36, 3)
THEIRS = """module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
\tk8s.io/api v0.0.0
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The user's directory of releases, with nothing in it."""
    directory = tmp_path / "releases"
    monkeypatch.setenv("AUTARKY_RELEASES", str(directory))
    forget_releases()
    yield directory
    forget_releases()


def a_recipe(directory: Path, name: str = "kubernetes-v1.36.3", content: str = "") -> Path:
    recipe = directory / "recipes" / name
    recipe.mkdir(parents=True, exist_ok=True)
    for file in ("go.mod", "go.sum", "tools.go"):
        (recipe / file).write_text(f"{file} {content}")
    return recipe


def written(directory: Path, name: str = "v1.36.3.json", **fields: object) -> Path:
    """With its recipe."""
    a_recipe(directory)
    path = directory / name
    path.write_text(json.dumps({"kubernetes": "v1.36.3", "parts": ["base"], **fields}))
    return path


# --- what a file says ----------------------------------------------------------------------------------


def test_the_version_is_in_all_that_is_kubernetes_itself(own):
    release = read_release(written(own))
    [kubernetes] = [one for one in release.components if one.name == "kubernetes"]
    assert (kubernetes.version, kubernetes.recipe) == ("v1.36.3", "kubernetes-v1.36.3")
    assert "k8s.io/component-base/version.gitMinor=36" in kubernetes.ldflags
    assert image_reference(release, "kube-proxy") == "registry.k8s.io/kube-proxy:v1.36.3"
    assert "@" not in json.dumps([one.ldflags for one in release.components]) + image_reference(release, "agent")


def test_what_a_file_changes_is_changed_and_nothing_else(own):
    a_recipe(own, "etcd-v3.6.15")
    etcd = {"version": "v3.6.15", "recipe": "etcd-v3.6.15"}
    plain = read_release(written(own))
    release = read_release(
        written(own, changes={"components": {"etcd": etcd}, "layers": {"network": {"packages": ["x"]}}})
    )
    changed = {one.name for one, other in zip(release.components, plain.components, strict=True) if one != other}
    assert changed == {"etcd"}
    assert next(one.version for one in release.components if one.name == "etcd") == "v3.6.15"
    assert release.layer("network").packages == ("x",)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parts": ["all"]}, "there is no part all"),
        ({"changes": {"components": {"etc": {}}}}, "it changes etc of components"),
        ({"changes": {"components": {"etcd": {"binaries": [{"nam": "x"}]}}}}, "not a release file"),
        ({"kubernetes": "1.36"}, "not a release file"),
        ({"components": []}, "unknown keys: components"),
        ({"changes": ["etcd"]}, "not a release file"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_the_file_and_what_to_do(own, fields, said):
    path = written(own, **fields)
    with pytest.raises(UserError, match=said) as raised:
        read_release(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "fix: " in str(raised.value)


def test_no_file_and_no_json_are_refused(own):
    with pytest.raises(UserError, match="cannot read it"):
        read_release(own / "v1.36.3.json")
    written(own).write_text("{")
    with pytest.raises(UserError, match="not a release file"):
        read_release(own / "v1.36.3.json")


# --- a user's own --------------------------------------------------------------------------------------


def test_a_users_release_is_known_like_the_others_with_recipes_beside_it_or_of_the_package(own):
    written(own)
    recipe = own / "recipes" / "kubernetes-v1.36.3"
    assert OLDER in known_versions()
    components = {one.name: one.directory for one in load_release(OLDER).components}
    assert components["kubernetes"] == recipe
    assert components["etcd"].parent == release_files.RELEASES / "recipes"
    assert (components["etcd"] / "go.sum").is_file()


def test_a_users_file_does_not_replace_one_of_the_package(own):
    mine = written(own, name=f"{default_version()}.json", kubernetes=str(default_version()))
    assert release_files.files()[default_version()] != mine


def test_what_is_no_release_by_its_name_is_passed_over(own):
    written(own, name="v1.json")
    written(own, name="notes.json")
    assert all(path.parent == release_files.RELEASES for path in release_files.files().values())


def test_one_that_cannot_be_used_is_told_and_is_in_nobodys_way(own):
    written(own, name="v1.36.2.json").write_text("{")
    written(own, name="v1.36.1.json")  # it says 1.36.3
    assert known_versions() == tuple(sorted(load_release(version).kubernetes for version in known_versions()))
    assert default_version() in known_versions()
    assert sorted(one.what.split(":")[0] for one in unusable_files()) == [
        "it describes v1.36.3",
        "it is not a release file",
    ]
    with pytest.raises(UserError, match="it describes"):
        load_release(Version(1, 36, 1))


async def test_what_such_a_file_needs_is_not_removed_from_the_store(own, own_store):
    written(own).write_text("{")
    with pytest.raises(UserError, match="is unknown"):
        await prune_store(HeardProgress())


@pytest.mark.parametrize("name", ["../../../.ssh", "/etc", "", ".", "a/b"])
def test_the_name_of_a_recipe_leads_nowhere_else(own, name):
    path = written(own, changes={"components": {"etcd": {"recipe": name}}})
    with pytest.raises(UserError, match="not a valid recipe name"):
        read_release(path)


# --- taken over ----------------------------------------------------------------------------------------


async def test_a_release_file_by_its_path_is_taken_over_with_its_recipes(own, own_store, tmp_path):
    path = written(tmp_path / "elsewhere", name="mine.json")
    assert (await new_release.add_release(path, HeardProgress())).kubernetes == OLDER
    assert (own / "recipes" / "kubernetes-v1.36.3" / "go.sum").read_text() == "go.sum "
    assert OLDER in known_versions()
    with pytest.raises(UserError, match="already"):
        await new_release.add_release(path, HeardProgress())


async def test_one_whose_recipe_is_not_there_is_not(own, own_store, tmp_path):
    path = written(tmp_path / "elsewhere", name="mine.json")
    remove_tree(path.parent / "recipes")
    with pytest.raises(UserError, match=r"there is no recipe kubernetes-v1\.36\.3"):
        await new_release.add_release(path, HeardProgress())
    assert not own.exists()


async def test_one_that_lies_there_under_another_name_keeps_its_recipes(own, own_store):
    path = written(own, name="mine.json")
    await new_release.add_release(path, HeardProgress())
    assert (own / "recipes" / "kubernetes-v1.36.3" / "go.sum").is_file()
    assert OLDER in known_versions()


async def test_a_recipe_of_that_name_that_says_something_else_is_not_replaced(own, own_store, tmp_path):
    theirs = a_recipe(own, content="theirs")
    path = written(tmp_path / "elsewhere", name="mine.json")
    with pytest.raises(UserError, match="a different recipe"):
        await new_release.add_release(path, HeardProgress())
    assert (theirs / "go.sum").read_text() == "go.sum theirs"
    assert OLDER not in known_versions()


# --- how one comes about -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "like"), [("1.36.3", "1.36.4"), ("1.36.9", "1.36.4"), ("1.38.0", "1.37.1"), ("1.20.0", "1.36.4")]
)
def test_a_new_release_is_made_after_the_nearest_that_is_known(version, like):
    assert new_release.nearest(Version.parse(version)) == Version.parse(like)


def test_upstreams_tests_are_taken_from_a_release_of_the_same_minor_only():
    like = default_version()
    parts = new_release.parts_for(OLDER, like)
    assert parts == ("base", "conformance")
    names = [one.name for one in new_release.recipes_of(load_release(like), parts)]
    assert sorted(names) == ["kubernetes", "kubernetes-tests"]
    assert new_release.parts_for(Version(1, 35, 1), like) == ("base",)
    assert [one.name for one in new_release.recipes_of(load_release(like), ("base",))] == ["kubernetes"]


def test_the_recipe_names_all_modules_that_are_released_with_kubernetes():
    text = new_release.go_mod("kubernetes", OLDER, THEIRS)
    assert "go 1.26.0\n" in text
    assert "require k8s.io/kubernetes v1.36.3\n" in text
    assert "\tk8s.io/api => k8s.io/api v0.36.3\n\tk8s.io/client-go => k8s.io/client-go v0.36.3\n" in text


@pytest.mark.parametrize("theirs", ["", "go 1.26.0\n", THEIRS.replace("go 1.26.0", "")])
def test_a_kubernetes_of_another_form_is_told_and_not_guessed(theirs):
    with pytest.raises(UserError, match="has an unknown form"):
        new_release.go_mod("kubernetes", OLDER, theirs)


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes-tests"])
def test_the_recipes_of_the_package_have_the_head_that_is_made(name):
    """What Go adds aside: so the next release comes out as the ones that are in use."""
    recipe = release_files.RELEASES / "recipes" / f"{name}-{default_version()}"
    theirs = (recipe / "go.mod").read_text()
    staged = "\n".join(
        f"\t{line.split()[0]} => ./staging/src/{line.split()[0]}" for line in theirs.splitlines() if " => " in line
    )
    made = new_release.go_mod(name, default_version(), f"go 1.26.0\n{staged}\n")
    assert set(made.split("replace (")[1].split("\n")) <= set(theirs.split("replace (")[1].split("\n"))
    assert made.splitlines()[:3] == theirs.splitlines()[:3]


# --- one that is not known any more --------------------------------------------------------------------


def test_a_release_that_is_not_known_has_no_images_and_says_what_is_known():
    with pytest.raises(UserError, match=r"no release file for Kubernetes v1\.20\.0"):
        image_reference(Release.unknown(Version(1, 20, 0)), "etcd")


# --- all of it, with a Go that notes what it is asked -----------------------------------------------

GO = """#!/bin/sh
echo "$PWD $*" >>"$CALLS"
case "$*" in
"env GOVERSION") echo go1.99.0 ;;
"mod download -json "*) printf '{"GoMod": "%s"}\\n' "$THEIRS" ;;
"mod tidy") [ -e go.mod ] && [ -e tools.go ] && echo sums >go.sum ;;
esac
"""


@pytest.fixture
def go(tmp_path, monkeypatch):
    """On PATH; the file with what it was asked."""
    directory, calls = tmp_path / "bin", tmp_path / "calls"
    directory.mkdir()
    (directory / "go").write_text(GO)
    (directory / "go").chmod(0o755)
    (tmp_path / "theirs").write_text(THEIRS)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("THEIRS", str(tmp_path / "theirs"))
    return calls


async def test_a_release_is_made_and_is_known_from_then_on(own, own_store, go):
    path = await new_release.new_release(OLDER, own, HeardProgress())
    assert path == own / "v1.36.3.json"
    assert json.loads(path.read_text()) == {"kubernetes": "v1.36.3", "parts": ["base", "conformance"]}
    recipes = {one.name: one.directory for one in load_release(OLDER).components if one.version == "v1.36.3"}
    assert set(recipes) == {"kubernetes", "kubernetes-tests"}
    assert all(one.is_relative_to(own) and (one / "go.sum").read_text() == "sums\n" for one in recipes.values())
    with pytest.raises(UserError, match="already"):
        await new_release.new_release(OLDER, own, HeardProgress())


@pytest.mark.parametrize("path", sorted((ROOT / "tests/releases").glob("*.json")), ids=lambda path: path.stem)
def test_the_releases_that_scenarios_use_have_all_that_the_command_makes(path):
    version = Version.parse(path.stem)
    like = new_release.nearest(version)
    parts = new_release.parts_for(version, like)
    assert json.loads(path.read_text()) == {"kubernetes": str(version), "parts": list(parts)}
    for component in new_release.recipes_of(load_release(like), parts):
        recipe = path.parent / "recipes" / component.recipe.replace(str(like), str(version))
        assert {one.name for one in recipe.iterdir()} == {"go.mod", "go.sum", "tools.go"}


class CutAfter:
    """The power is cut after so many written files."""

    def __init__(self, files: int) -> None:
        self.left = files

    def __call__(self, *arguments: Any, **named: Any) -> None:
        if not self.left:
            raise OSError("no power")
        self.left -= 1
        write_private(*arguments, **named)


@pytest.mark.parametrize("files", range(5))
async def test_one_that_was_cut_off_is_not_known_and_is_made_again(own, own_store, go, monkeypatch, files):
    with monkeypatch.context() as cut:
        cut.setattr(new_release, "write_private", CutAfter(files))
        with pytest.raises(OSError, match="power"):
            await new_release.new_release(OLDER, own, HeardProgress())
    forget_releases()
    assert OLDER not in known_versions()
    await new_release.new_release(OLDER, own, HeardProgress())
    assert OLDER in known_versions()


@pytest.mark.parametrize("files", range(4))
async def test_one_that_was_added_in_part_is_added_again(own, own_store, monkeypatch, tmp_path, files):
    path = written(tmp_path / "elsewhere", name="mine.json")
    with monkeypatch.context() as cut:
        cut.setattr(new_release, "write_private", CutAfter(files))
        with pytest.raises(OSError, match="power"):
            await new_release.add_release(path, HeardProgress())
    forget_releases()
    assert OLDER not in known_versions()
    await new_release.add_release(path, HeardProgress())
    assert OLDER in known_versions()


def test_a_name_that_is_a_path_is_refused(own):
    binaries = [{"name": "../../bin/sh", "package": "x", "group": "cluster"}]
    path = written(own, changes={"components": {"kubernetes": {"binaries": binaries}}})
    with pytest.raises(UserError, match=re.escape("not a name: '../../bin/sh'")):
        read_release(path)


async def test_a_recipe_that_somebody_has_written_is_not_replaced(own, own_store, go):
    theirs = a_recipe(own, content="theirs")
    with pytest.raises(UserError, match="a different recipe"):
        await new_release.new_release(OLDER, own, HeardProgress())
    assert (theirs / "go.sum").read_text() == "go.sum theirs"


async def test_a_release_file_that_cannot_be_used_is_named_with_what_to_do(own, own_store, go):
    own.mkdir()
    (own / "v1.36.3.json").write_text("{")
    with pytest.raises(UserError, match="cannot be used") as no:
        await new_release.new_release(OLDER, own, HeardProgress())
    assert no.value.fix == "correct or remove it"


async def test_a_version_that_there_is_not_is_told_with_what_go_says(own, own_store, go):
    Path(os.environ["PATH"].split(":")[0], "go").write_text(
        GO.replace("printf", "echo no such version; exit 1; printf")
    )
    with pytest.raises(UserError, match="no such version"):
        await new_release.new_release(Version(1, 36, 99), own, HeardProgress())
    assert not own.exists()
