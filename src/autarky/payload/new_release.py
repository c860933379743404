"""Make a release file and its recipes for a version of Kubernetes that this autarky does not know yet.

The other components are those of the parts that all releases share. For Kubernetes the version decides everything: its
own go.mod names the modules that it consists of, and Go resolves and sums the rest (`go mod tidy`), with the user's
module proxy and checksum database.

Contract: the release file is written last, in one rename; before that nothing is known of the release. A recipe is
complete or absent, and a different one that exists is never replaced: somebody may have written it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from autarky import places
from autarky.errors import CommandFailed, UserError
from autarky.model.versions import Version
from autarky.payload import gobuild
from autarky.payload.disk import full_disk_explained, remove_tree
from autarky.payload.programs import run_tool
from autarky.payload.release import (
    Component,
    Release,
    forget_releases,
    known_versions,
    load_release,
    read_release,
)
from autarky.payload.release_files import RECIPES
from autarky.payload.store import Store
from autarky.ports import Progress
from autarky.store import waiting_lock, write_private

KUBERNETES = "k8s.io/kubernetes"
CONFORMANCE = "conformance"
_STAGING = re.compile(r"^\s*(k8s\.io/[\w./-]+) => \./staging/", re.MULTILINE)
_GO = re.compile(r"^go (\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)


async def new_release(version: Version, directory: Path, progress: Progress) -> Path:
    """Make the release file of a version, and return its path.

    UserError where the version is known already, or where there is no such version of Kubernetes.
    """
    target = directory / f"{version}.json"
    _refuse_known(version, target)
    like = load_release(nearest(version))
    parts = parts_for(version, like.kubernetes)
    store = Store()
    async with waiting_lock(store.lock, lambda: progress.note("waiting for another process that builds")):
        go = await gobuild.find_go(progress)
        with store.scratch("new-release") as scratch, full_disk_explained(store.root):
            theirs = await _their_go_mod(go, version, scratch)
            for component in recipes_of(like, parts):
                progress.note(f"resolving the modules of {component.name} {version}, after {like.kubernetes}")
                made = await _recipe(go, component, version, theirs, scratch)
                _refuse_another(made, directory / RECIPES / made.name)
                _keep(made, directory / RECIPES / made.name)
    write_private(target, _text({"kubernetes": str(version), "parts": list(parts)}), mode=0o644)
    read_release(target)
    forget_releases()
    return target


async def add_release(file: Path, progress: Progress) -> Release:
    """Copy a release file, and the recipes of its own, to where a user's are. UserError where it is none, where its
    version is known already, or where another release there has another recipe of that name."""
    release = read_release(file)
    target = places.releases_dir()
    place = target / f"{release.kubernetes}.json"
    _refuse_known(release.kubernetes, place)
    own = [one.directory for one in release.components if one.directory.is_relative_to(file.parent)]
    async with waiting_lock(Store().lock, lambda: progress.note("waiting for another process that builds")):
        for recipe in own:
            _refuse_another(recipe, target / RECIPES / recipe.name)
        for recipe in own:
            _keep(recipe, target / RECIPES / recipe.name)
        write_private(place, file.read_bytes(), mode=0o644)
    forget_releases()
    return release


def _refuse_known(version: Version, place: Path) -> None:
    if version in known_versions():
        where = str(place) if place.exists() else ""
        raise UserError(
            f"there is already a release file for {version}", where=where, fix=f"autarky payload get {version}"
        )
    if place.exists():
        raise UserError(
            f"there is a release file for {version} that cannot be used", where=str(place), fix="correct or remove it"
        )


def _refuse_another(recipe: Path, place: Path) -> None:
    if place.exists() and _content(recipe) != _content(place):
        raise UserError(
            f"a different recipe named {recipe.name} already exists",
            where=str(place),
            fix="use another name for yours, or remove the existing one",
        )


def _content(recipe: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in recipe.iterdir() if path.is_file()}


def nearest(version: Version) -> Version:
    """The closest known version: the newest that is not newer, else the oldest."""
    known = known_versions()
    return max((one for one in known if one <= version), default=min(known))


def parts_for(version: Version, like: Version) -> tuple[str, ...]:
    """The packages and images of upstream's tests change from one minor to the next: a list for one minor is useless
    for another."""
    same_minor = (version.major, version.minor) == (like.major, like.minor)
    has_tests = any(one.name == "kubernetes-tests" for one in load_release(like).components)
    return ("base", CONFORMANCE) if same_minor and has_tests else ("base",)


def recipes_of(like: Release, parts: tuple[str, ...]) -> list[Component]:
    """The components that are Kubernetes itself."""
    own = [one for one in like.components if one.recipe.endswith(f"-{like.kubernetes}")]
    return [one for one in own if CONFORMANCE in parts or one.name == "kubernetes"]


def go_mod(name: str, version: Version, theirs: str) -> str:
    """The recipe's go.mod before Go has resolved it. theirs: that of Kubernetes, which names the modules that are
    released with it; UserError where it does not."""
    language, staging = _GO.search(theirs), _STAGING.findall(theirs)
    if language is None or not staging:
        raise UserError(f"the go.mod of {KUBERNETES} {version} has an unknown form", fix="write the recipe")
    released = f"v0.{version.minor}.{version.patch}"
    replaced = "".join(f"\t{module} => {module} {released}\n" for module in sorted(staging))
    return (
        f"module autarky.dev/recipes/{name}\n\ngo {language[1]}\n\nrequire {KUBERNETES} {version}\n\n"
        f"replace (\n{replaced})\n"
    )


async def _their_go_mod(go: str, version: Version, scratch: Path) -> str:
    argv = [go, "mod", "download", "-json", f"{KUBERNETES}@{version}"]
    try:
        said = await run_tool(argv, cwd=scratch, env=gobuild.ENVIRONMENT)
    except CommandFailed as error:
        raise UserError(
            f"Go cannot get the module {KUBERNETES} {version}: {error}",
            fix="name a version that was released, such as 1.36.3; Go's module proxy must be reachable",
        ) from error
    return Path(json.loads(said)["GoMod"]).read_text()


async def _recipe(go: str, component: Component, version: Version, theirs: str, scratch: Path) -> Path:
    """The recipe's directory, resolved, in the scratch directory."""
    directory = scratch / f"{component.name}-{version}"
    directory.mkdir()
    (directory / "tools.go").write_text((component.directory / "tools.go").read_text())
    (directory / "go.mod").write_text(go_mod(component.name, version, theirs))
    await run_tool([go, "mod", "tidy"], cwd=directory, env=gobuild.ENVIRONMENT)
    return directory


def _keep(made: Path, target: Path) -> None:
    """Copy a recipe, unless it is there: all of it or nothing."""
    if target.is_dir():
        return
    beside = target.with_name(f".{target.name}.new")
    remove_tree(beside)  # of an interrupted run
    for name, text in _content(made).items():
        write_private(beside / name, text, mode=0o644)
    beside.rename(target)


def _text(data: object) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()
