"""The surfaces of releases: one for each release file, made by the script, and complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autarky.control.upgrade.decide import surface
from autarky.control.upgrade.decide.configuration_files import FLAGS
from autarky.control.upgrade.decide.removed import flags_given
from autarky.control.upgrade.decide.surface import (
    Flag,
    Gate,
    Resource,
    Served,
    Surface,
    known_surfaces,
    parsed_surface,
    surface_of,
)
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, KUBELET, SCHEDULER
from autarky.model.versions import Version
from autarky.payload.agent_content import package_sources
from autarky.payload.release_files import RELEASES
from autarky.render.objects import parts
from fakes.clusters import a_cluster, inputs_of

FILES = sorted(Path(surface.__file__).with_name(surface.FOLDER).iterdir())
VERSIONS = sorted(Version.parse(path.stem) for path in RELEASES.glob("v*.json"))
LEAST_FLAGS = {API_SERVER: 150, CONTROLLER_MANAGER: 120, SCHEDULER: 50, KUBE_PROXY: 45, KUBELET: 100}


@pytest.fixture(params=VERSIONS, ids=str)
def found(request: pytest.FixtureRequest) -> Surface:
    made = surface_of(request.param)
    assert made is not None, f"run: scripts/release_surface.py {request.param}"
    assert made.version == request.param, f"run: scripts/release_surface.py {request.param}"
    return made


def test_each_release_has_its_own_and_there_are_no_others() -> None:
    assert list(known_surfaces()) == VERSIONS
    assert len(VERSIONS) > 1


def test_every_component_has_its_flags(found: Surface) -> None:
    assert {name for name, flags in found.flags.items() if len(flags) >= LEAST_FLAGS[name]} == LEAST_FLAGS.keys()
    for name, flags in found.flags.items():
        assert {"feature-gates", "v", "version", "kubeconfig"} - ({"kubeconfig"} if name == API_SERVER else set()) <= (
            flags.keys()
        )
        assert flags["v"] == Flag(takes_value=True)
        assert not flags["version"].takes_value
        assert all(flag.deprecated for flag in flags.values() if flag.hidden)
    assert found.flags[API_SERVER]["apiserver-count"] == Flag(takes_value=True, deprecated=True, hidden=True)
    assert found.flags[API_SERVER]["allow-privileged"] == Flag(takes_value=False)


def test_every_component_has_gates_of_each_stage(found: Surface) -> None:
    assert found.gates.keys() == LEAST_FLAGS.keys()
    for gates in found.gates.values():
        assert len(gates) > 200
        assert {gate.stage for gate in gates.values()} == {"ALPHA", "BETA", "GA", "DEPRECATED"}
        assert gates["AllAlpha"] == Gate("ALPHA", default=False)
        assert not any(gate.default for gate in gates.values() if gate.stage == "ALPHA")
        assert not any(gate.locked for gate in gates.values() if gate.stage in ("ALPHA", "BETA"))
        assert sum(gate.locked for gate in gates.values()) > 30
    only_there = {name for name in found.gates[CONTROLLER_MANAGER] if name not in found.gates[SCHEDULER]}
    assert "ControllerManagerReleaseLeaderElectionLockOnExit" in only_there


def test_the_api_server_has_its_plugins_and_apis(found: Surface) -> None:
    assert {"NodeRestriction", "PodSecurity", "ValidatingAdmissionPolicy"} <= found.admission_plugins
    assert set(found.resources.values()) == set(Served)
    for resource in (Resource("v1", "pods"), Resource("apps/v1", "deployments"), Resource("batch/v1", "jobs")):
        assert found.resources[resource] is Served.DEFAULT
    assert {one.group_version for one in found.resources} < found.registered
    assert not any("/" in one.name for one in found.resources)
    assert "policy/v1beta1" in found.registered


def test_each_file_that_is_looked_at_may_be_something(found: Surface) -> None:
    judged = {component: set(flags) for component, flags in FLAGS.items()}
    assert {component: set(flags) for component, flags in found.configurations.items()} == {
        **judged,
        KUBELET: {"config"},
    }
    for component, flags in found.configurations.items():
        assert flags.keys() <= found.flags[component].keys()
        assert all(flags.values())
    proxy = "kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration"
    assert found.configurations[KUBE_PROXY]["config"] == {proxy}


def test_what_we_start_components_with_is_in_it(found: Surface) -> None:
    """The arguments of our own, by which the files are compared with something else than themselves."""
    seen = set()
    for part in parts(inputs_of(a_cluster())):
        for obj in part.objects:
            name = obj["metadata"]["name"]
            for container in obj.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                if name == container["name"] and name in found.flags:
                    words = [word for word in container["command"] if word.startswith("--")]
                    assert len(list(flags_given(words, found.flags[name]))) == len(words), words
                    seen.add(name)
    assert seen == {API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_as_the_script_writes_it(path: Path) -> None:
    """One item in a line, sorted, so that two releases can be compared line by line."""
    text = path.read_text()
    data = json.loads(text)
    assert text == json.dumps(data, indent=1) + "\n"
    for rows in (*data["flags"].values(), data["featureGates"], data["resources"]):
        assert list(rows) == sorted(rows)
    files = [kinds for flags in data["configurations"].values() for kinds in flags.values()]
    for rows in (data["admissionPlugins"], data["registeredVersions"], *files):
        assert rows == sorted(set(rows))


def test_the_agents_image_has_them_and_no_release_files() -> None:
    assert set(FILES) <= set(package_sources())
    assert not set(RELEASES.rglob("*.json")) & set(package_sources())


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("1.36.0", "1.36.4"),
        ("1.36.4", "1.36.4"),
        ("1.36.9", "1.36.4"),
        ("1.37.0", "1.37.1"),
        ("1.35.4", None),
        ("2.36.4", None),
    ],
)
def test_another_patch_has_that_of_its_minor(asked: str, expected: str | None) -> None:
    found = surface_of(Version.parse(asked))
    assert (None if found is None else found.version) == (None if expected is None else Version.parse(expected))


def test_the_nearest_patch_counts_and_the_older_one_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {Version(1, 40, patch): json.dumps({**a_file(), "kubernetes": f"v1.40.{patch}"}) for patch in (1, 3, 7)}
    monkeypatch.setattr(surface, "_texts", lambda: texts)
    found = {patch: surface_of(Version(1, 40, patch)) for patch in (0, 2, 3, 6, 9)}
    assert {patch: one and one.version.patch for patch, one in found.items()} == {0: 1, 2: 1, 3: 3, 6: 7, 9: 7}


def a_file() -> dict[str, Any]:
    return {
        "kubernetes": "v1.40.0",
        "flags": {"a": {"x": "value", "y": "switch deprecated hidden"}, "b": {}},
        "featureGates": {"G": "GA on locked", "H": {"a": "ALPHA off"}},
        "admissionPlugins": ["P"],
        "resources": {"v1 pods": "default", "apps/v1 deployments": "runtime-config"},
        "registeredVersions": ["apps/v1", "v1"],
        "configurations": {"a": {"config": ["a.io/v1 A"]}},
    }


def test_a_file_is_read_as_it_is_written() -> None:
    assert parsed_surface(a_file()) == Surface(
        Version(1, 40, 0),
        {"a": {"x": Flag(takes_value=True), "y": Flag(takes_value=False, deprecated=True, hidden=True)}, "b": {}},
        {
            "a": {"G": Gate("GA", default=True, locked=True), "H": Gate("ALPHA", default=False)},
            "b": {"G": Gate("GA", default=True, locked=True)},
        },
        frozenset({"P"}),
        {Resource("v1", "pods"): Served.DEFAULT, Resource("apps/v1", "deployments"): Served.RUNTIME_CONFIG},
        frozenset({"v1", "apps/v1"}),
        {"a": {"config": frozenset({"a.io/v1 A"})}},
    )
    core, apps = Resource("v1", "pods"), Resource("apps/v1", "deployments")
    assert (core.group, core.version, apps.group, apps.version) == ("", "v1", "apps", "v1")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data["flags"]["a"].update(x="string"),
        lambda data: data["flags"]["a"].update(x="value obsolete"),
        lambda data: data["featureGates"].update(G="GA yes"),
        lambda data: data["featureGates"].update(G="GA on forced"),
        lambda data: data["resources"].update({"v1 pods": "maybe"}),
        lambda data: data["resources"].update({"pods": "default"}),
    ],
)
def test_a_row_that_means_nothing_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    data = a_file()
    spoil(data)
    with pytest.raises(ValueError, match=r"."):
        parsed_surface(data)
