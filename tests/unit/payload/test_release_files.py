"""Release files as a base and differences, a user's own, and how one comes about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autarky.errors import UserError
from autarky.model.versions import Version
from autarky.payload import default_version, image_reference, known_versions, load_release, new_release, release_files
from autarky.payload.release import Release, read_release

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
    for cached in (known_versions, load_release):
        cached.cache_clear()
    yield directory
    for cached in (known_versions, load_release):
        cached.cache_clear()


def written(directory: Path, name: str = "v1.36.3.json", **fields: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
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
        ({"changes": {"components": {"etcd": {"binaries": [{"nam": "x"}]}}}}, "no release file"),
        ({"kubernetes": "1.36"}, "no release file"),
        ({"components": []}, "it has components, which says nothing here"),
        ({"changes": ["etcd"]}, "no release file"),
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
    with pytest.raises(UserError, match="no release file"):
        read_release(own / "v1.36.3.json")


# --- a user's own --------------------------------------------------------------------------------------


def test_a_users_release_is_known_like_the_others_with_recipes_beside_it_or_of_the_package(own):
    written(own)
    recipe = own / "recipes" / "kubernetes-v1.36.3"
    recipe.mkdir(parents=True)
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


def test_a_release_file_by_its_path_is_taken_over_with_its_recipes(own, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    path = written(elsewhere, name="mine.json")
    with pytest.raises(UserError, match=r"there is no recipe kubernetes-v1\.36\.3"):
        new_release.add_release(path)
    assert not own.exists()
    recipe = elsewhere / "recipes" / "kubernetes-v1.36.3"
    recipe.mkdir(parents=True)
    for name in ("go.mod", "go.sum", "tools.go"):
        (recipe / name).write_text(name)
    assert new_release.add_release(path).kubernetes == OLDER
    assert (own / "recipes" / "kubernetes-v1.36.3" / "go.sum").read_text() == "go.sum"
    known_versions.cache_clear()
    assert OLDER in known_versions()
    with pytest.raises(UserError, match="already"):
        new_release.add_release(path)


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
    with pytest.raises(UserError, match="not known here"):
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
