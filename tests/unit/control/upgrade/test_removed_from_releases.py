"""What a new version does not understand is found however it is written, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.upgrade.decide.observed import File
from autarky.control.upgrade.decide.removed import (
    Finding,
    files_not_understood,
    flags_given,
    not_understood,
    removed_apis,
)
from autarky.control.upgrade.decide.surface import Flag, Resource, Served, Surface, surface_of
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, ETCD, KUBE_PROXY, KUBELET, SCHEDULER
from autarky.model.versions import Version

OLD, NEW = (surface_of(Version.parse(text)) for text in ("1.36.4", "1.37.1"))
COMPONENTS = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY, KUBELET)
JUDGED = {
    "feature-gates",
    "admission-control",
    "enable-admission-plugins",
    "disable-admission-plugins",
    "runtime-config",
}
"""Flags whose values are looked at."""
VALUES = st.sampled_from(["", "x", "true", "a=b", "--boot-id-file", "--boot-id-file=x", "-1", "--", "$(POD_IP)"])
GATES = sorted(OLD.gates[API_SERVER])


def found(component: str, *line: str, old: Surface = OLD, new: Surface = NEW) -> list[Finding]:
    return not_understood({component: [[component, *line]]}, old, new)


def whats(component: str, *line: str) -> list[str]:
    return [one.what for one in found(component, *line)]


def removed_flags(component: str) -> list[str]:
    return sorted(OLD.flags[component].keys() - NEW.flags[component].keys())


@st.composite
def spelled(draw: st.DrawFn, name: str, flag: Flag, values: st.SearchStrategy[str] = VALUES) -> list[str]:
    """A flag on a command line, in any of the ways in which it can be written."""
    dashed = f"--{''.join(draw(st.sampled_from('-_')) if one == '-' else one for one in name)}"
    value = draw(values)
    ways = [[f"{dashed}={value}"], [dashed, value] if flag.takes_value else [dashed]]
    if len(name) == 1:
        ways += [
            [f"-{name}={value}"],
            [f"-{name}", value],
            *([[f"-{name}{value}"]] if value[:1] not in ("", "=") else []),
        ]
    return draw(st.sampled_from(ways))


@st.composite
def understood(draw: st.DrawFn, component: str) -> list[list[str]]:
    """Flags that the new version has, whether or not the old one does."""
    flags = {name: flag for name, flag in NEW.flags[component].items() if name not in JUDGED}
    names = draw(st.lists(st.sampled_from(sorted(flags)), max_size=8))
    return [draw(spelled(name, flags[name])) for name in names]


# --- flags ---------------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(COMPONENTS))
def test_a_command_line_of_flags_that_the_new_version_has_is_understood(data: st.DataObject, component: str) -> None:
    line = [word for words in data.draw(understood(component)) for word in words]
    assert found(component, *line) == []
    assert not_understood({component: [line]}, OLD, NEW) == []  # in `args`, without the program


@given(st.data(), st.sampled_from([(one, name) for one in COMPONENTS for name in removed_flags(one)]))
def test_a_removed_flag_is_found_however_it_is_written(data: st.DataObject, removed: tuple[str, str]) -> None:
    component, name = removed
    words = data.draw(understood(component))
    for _ in range(data.draw(st.integers(1, 2))):
        words.insert(
            data.draw(st.integers(0, len(words))), data.draw(spelled(name, OLD.flags[component][name], st.just("x")))
        )
    [finding] = found(component, *(word for some in words for word in some))
    assert (finding.component, finding.what, finding.starts) == (component, f"--{name}", False)


def test_there_are_removed_flags_to_look_for() -> None:
    assert removed_flags(KUBE_PROXY) == ["boot-id-file", "machine-id-file"]
    assert removed_flags(CONTROLLER_MANAGER) == ["concurrent-service-syncs"]
    assert len(removed_flags(KUBELET)) > 10


def test_what_is_said_names_the_flag_the_version_and_what_to_do() -> None:
    [finding] = found(KUBE_PROXY, "--boot-id-file=/x", "--v=2")
    assert finding == Finding(
        KUBE_PROXY,
        "--boot-id-file",
        "kube-proxy v1.37.1 has no flag --boot-id-file, and does not start with it",
        "remove --boot-id-file from the command line of kube-proxy first",
    )


@pytest.mark.parametrize(
    "line",
    [
        ["/wrapper", "--once-more", "--boot-id-file-of-ours=x", "kube-proxy"],
        ["kube-proxy", "--", "--boot-id-file=x"],
        ["kube-proxy", "--hostname-override", "--boot-id-file"],
        ["kube-proxy", "boot-id-file", "-"],
        ["sh", "-c", "echo --boot-id-file"],
        [],
    ],
)
def test_what_is_no_flag_of_the_old_version_is_not_judged(line: list[str]) -> None:
    assert not_understood({KUBE_PROXY: [line]}, OLD, NEW) == []


def test_what_the_new_version_alone_has_is_ignored_and_so_are_components_without_a_surface() -> None:
    assert found(CONTROLLER_MANAGER, "--concurrent-disruption-syncs", "--concurrent-service-syncs") == []
    assert found(ETCD, "--boot-id-file=x") == []


def test_each_finding_is_reported_once_for_all_command_lines_of_a_component() -> None:
    lines = [["kube-proxy", "--boot-id-file=a"], ["kube-proxy", "--machine-id-file=x", "--boot-id-file=b"]]
    assert [one.what for one in not_understood({KUBE_PROXY: lines}, OLD, NEW)] == [
        "--boot-id-file",
        "--machine-id-file",
    ]


@pytest.mark.parametrize("line", [["-v", "2"], ["-v=2"], ["-v2"], ["--v", "2"], ["--v=2"]])
def test_verbosity_is_read_in_each_of_its_forms(line: list[str]) -> None:
    flags = {"v": Flag(takes_value=True), "x": Flag(takes_value=False)}
    assert list(flags_given([*line, "--x"], flags)) == [("v", "2"), ("x", "")]


def test_a_value_that_is_missing_is_empty() -> None:
    assert list(flags_given(["--v"], {"v": Flag(takes_value=True)})) == [("v", "")]


def test_the_same_version_understands_everything_of_its_own() -> None:
    for one in (OLD, NEW):
        for component in COMPONENTS:
            line = [
                f"--{name}" if not flag.takes_value else f"--{name}=x" for name, flag in one.flags[component].items()
            ]
            assert found(component, *line, old=one, new=one) == []
        assert removed_apis(one, one) == removed_apis(replace(one, resources={}), one)


# --- feature gates -------------------------------------------------------------------------------------------


def gate_flags(written: Sequence[str], how: str) -> list[str]:
    match how:
        case "one flag":
            return [f"--feature-gates={','.join(written)}"]
        case "next word":
            return ["--feature-gates", ",".join(written)]
        case _:
            return [f"--feature_gates={one}" for one in written]


def is_fine(name: str, value: bool) -> bool:
    gate, before = NEW.gates[API_SERVER].get(name), OLD.gates[API_SERVER][name]
    if before.locked and before.default != value:
        return True  # the old version would not run with it
    return gate is not None and not (gate.locked and gate.default != value)


@given(
    st.dictionaries(st.sampled_from(GATES), st.booleans(), max_size=8),
    st.sampled_from(["one flag", "next word", "each"]),
    st.sampled_from(["", "kube:"]),
    st.sampled_from([("true", "false"), ("True", "F"), ("1", "0")]),
)
def test_exactly_the_gates_that_are_gone_or_locked_to_the_other_value_are_found(
    gates: dict[str, bool], how: str, part: str, words: tuple[str, str]
) -> None:
    written = [f"{part}{name}={words[0] if value else words[1]}" for name, value in gates.items()]
    expected = {f"feature gate {name}" for name, value in gates.items() if not is_fine(name, value)}
    assert set(whats(API_SERVER, *gate_flags(written, how))) == expected


def test_a_gate_that_is_gone_and_one_that_is_locked_are_not_the_same() -> None:
    [gone, locked] = found(SCHEDULER, "--feature-gates=SidecarContainers=true,kube:PLEGOnDemandRelist=false")
    assert gone.sentence == (
        "kube-scheduler v1.37.1 does not know the feature gate SidecarContainers, and does not start with it"
    )
    assert gone.fix == "remove SidecarContainers from --feature-gates of kube-scheduler first"
    assert locked.sentence == (
        "kube-scheduler v1.37.1 has the feature gate PLEGOnDemandRelist locked to true,"
        " and does not start with PLEGOnDemandRelist=false"
    )
    assert locked.fix == "remove kube:PLEGOnDemandRelist from --feature-gates of kube-scheduler first"
    assert not gone.starts
    assert not locked.starts


def test_the_last_value_of_a_gate_counts() -> None:
    assert whats(KUBELET, "--feature-gates=PLEGOnDemandRelist=false", "--feature-gates=PLEGOnDemandRelist=true") == []
    assert whats(KUBELET, "--feature-gates=PLEGOnDemandRelist=true", "--feature-gates=PLEGOnDemandRelist=false") == [
        "feature gate PLEGOnDemandRelist"
    ]


def test_a_gate_that_the_component_never_had_is_ignored() -> None:
    gate = "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=true,NobodysGate=true,other:AllAlpha=x"
    without = replace(NEW, gates={name: {} for name in NEW.gates})
    assert found(SCHEDULER, gate, new=without) == []
    assert len(found(CONTROLLER_MANAGER, gate, new=without)) == 1


# --- configuration files -------------------------------------------------------------------------------------

PROXY, PLACE = "kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration", "config.json of the ConfigMap proxy"


def a_file(component: str = KUBE_PROXY, flag: str = "config", what: str = PROXY, **further: Any) -> File:
    return File(component, flag, PLACE, what, **further)


@given(st.dictionaries(st.sampled_from([*GATES, "NobodysGate"]), st.sampled_from(["true", "false"]), max_size=8))
def test_exactly_the_gates_of_a_file_are_found_that_the_new_version_does_not_start_with(gates: dict[str, str]) -> None:
    """Also what the old one would not start with: the file may have been written since."""
    after = NEW.gates[KUBE_PROXY]
    expected = [
        f"feature gate {name}"
        for name, value in gates.items()
        if name not in after or (after[name].locked and str(after[name].default).lower() != value)
    ]
    assert [one.what for one in files_not_understood([a_file(gates=gates)], NEW)] == expected


def test_what_is_said_of_a_gate_names_the_file() -> None:
    gates = {"SidecarContainers": "true", "PLEGOnDemandRelist": "false"}
    [gone, locked] = files_not_understood([a_file(gates=gates)], NEW)
    assert gone == Finding(
        KUBE_PROXY,
        "feature gate SidecarContainers",
        "kube-proxy v1.37.1 does not know the feature gate SidecarContainers, and does not start with it",
        f"remove SidecarContainers from featureGates in {PLACE} first",
    )
    assert locked.sentence == (
        "kube-proxy v1.37.1 has the feature gate PLEGOnDemandRelist locked to true,"
        " and does not start with PLEGOnDemandRelist=false"
    )
    [fixed, _] = files_not_understood([a_file(gates=gates, fixed=True)], NEW)
    assert fixed.fix == (
        f"remove SidecarContainers from featureGates in {PLACE},"
        " in a copy that is mounted instead: this one is immutable"
    )


@given(st.data(), st.sampled_from([(one, flag) for one, flags in NEW.configurations.items() for flag in flags]))
def test_a_file_is_found_exactly_when_the_new_version_does_not_know_what_it_is(
    data: st.DataObject, place: tuple[str, str]
) -> None:
    component, flag = place
    known = NEW.configurations[component][flag]
    all_of_them = {what for flags in NEW.configurations.values() for kinds in flags.values() for what in kinds}
    what = data.draw(st.sampled_from(sorted({*all_of_them, "a.io/v1 Odd"})))
    found = files_not_understood([a_file(component, flag, what)], NEW)
    assert [one.what for one in found] == ([] if what in known else [what])


def test_what_is_said_of_a_version_that_is_gone_names_those_that_there_are() -> None:
    audit = a_file(API_SERVER, "audit-policy-file", "audit.k8s.io/v1beta1 Policy")
    [finding] = files_not_understood([audit], NEW)
    assert finding.sentence == (
        "kube-apiserver v1.37.1 does not understand audit.k8s.io/v1beta1 Policy,"
        f" as which {PLACE} is written, and does not start with it"
    )
    assert finding.fix == "write it as audit.k8s.io/v1 Policy first"
    assert not finding.starts


def test_of_a_file_of_which_nothing_is_known_nothing_is_found_here() -> None:
    assert files_not_understood([a_file(what="", trouble="is not there")], NEW) == []


# --- admission plugins ---------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(sorted(OLD.admission_plugins)), unique=True, max_size=6),
    st.sampled_from(["--enable-admission-plugins", "--disable-admission-plugins", "--admission-control"]),
    st.booleans(),
)
def test_exactly_the_plugins_that_are_gone_are_found(plugins: list[str], flag: str, repeated: bool) -> None:
    line = [f"{flag}={one}" for one in plugins] if repeated else [flag, ",".join(plugins)]
    assert whats(API_SERVER, *line) == [
        f"admission plugin {one}" for one in plugins if one not in NEW.admission_plugins
    ]


def test_a_removed_plugin_is_named_with_its_flag() -> None:
    [finding] = found(API_SERVER, "--enable-admission-plugins=NodeRestriction,JobValidation,Nobodys")
    assert finding.sentence == (
        "kube-apiserver v1.37.1 has no admission plugin JobValidation, and does not start with it"
    )
    assert finding.fix == "remove JobValidation from --enable-admission-plugins of kube-apiserver first"


# --- API versions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "what", "starts"),
    [
        ("scheduling.k8s.io/v1alpha2=true", "scheduling.k8s.io/v1alpha2", False),
        ("scheduling.k8s.io/v1alpha2=false", "scheduling.k8s.io/v1alpha2", False),
        ("scheduling.k8s.io/v1alpha2/podgroups=true", "scheduling.k8s.io/v1alpha2", False),
        ("networking.k8s.io/v1beta1=true", "networking.k8s.io/v1beta1", True),
        ("networking.k8s.io/v1beta1", "networking.k8s.io/v1beta1", True),
        ("networking.k8s.io/v1beta1/ipaddresses=true", "ipaddresses of networking.k8s.io/v1beta1", True),
    ],
)
def test_an_api_version_that_is_gone_is_found(asked: str, what: str, starts: bool) -> None:
    [finding] = found(API_SERVER, f"--runtime-config=api/beta=true,{asked}")
    assert (finding.what, finding.starts) == (what, starts)
    assert ("does not start" in finding.sentence) is not starts
    assert f"remove {asked.partition('=')[0]} from --runtime-config of kube-apiserver first" in finding.fix


@pytest.mark.parametrize(
    "asked",
    [
        *("api/all=true", "api/v1=true", "v1=true", "apps/v1/deployments=false", "resource.k8s.io/v1beta2=true"),
        *("networking.k8s.io/v1beta1=false", "networking.k8s.io/v1beta1/nobodys=true", "nobodys.k8s.io/v1=true", ""),
    ],
)
def test_an_api_version_that_is_still_there_or_never_was_is_not_found(asked: str) -> None:
    assert found(API_SERVER, f"--runtime-config={asked}") == []


@pytest.mark.parametrize("written", ["v1/pods", "api/v1/pods"])
def test_a_resource_of_the_core_group_has_two_names(written: str) -> None:
    left = {one: how for one, how in NEW.resources.items() if one != Resource("v1", "pods")}
    [finding] = found(API_SERVER, f"--runtime-config={written}=true", new=replace(NEW, resources=left))
    assert (finding.what, finding.starts) == ("pods of v1", True)


@given(st.sampled_from(sorted(OLD.resources)), st.booleans())
def test_a_version_is_found_exactly_when_nothing_of_it_is_left(resource: Resource, by_name: bool) -> None:
    group_version = resource.group_version if resource.group else f"api/{resource.group_version}"
    asked = f"{group_version}/{resource.name}" if by_name else group_version
    left = {one for one in NEW.resources if one.group_version == resource.group_version}
    gone = resource not in left if by_name else not left
    assert bool(found(API_SERVER, "--runtime-config", f"{asked}=true")) is gone


# --- an old version of which nothing is known ----------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from([*GATES, "NobodysGate"]), st.booleans(), max_size=6),
    st.lists(st.sampled_from([*sorted(OLD.admission_plugins), "Nobodys"]), unique=True, max_size=4),
)
def test_without_the_old_version_what_runs_is_understood_by_it(gates: dict[str, bool], plugins: list[str]) -> None:
    line = [f"--feature-gates={name}={str(value).lower()}" for name, value in gates.items()]
    line += ["--enable-admission-plugins", ",".join(plugins), "--runtime-config=api/all=true,a.io/v1=true", "--odd"]
    refused = {
        name
        for name, value in gates.items()
        if (gate := NEW.gates[API_SERVER].get(name)) is None or (gate.locked and gate.default != value)
    }
    expected = [f"feature gate {name}" for name in gates if name in refused]
    expected += [f"admission plugin {name}" for name in plugins if name not in NEW.admission_plugins]
    assert [one.what for one in not_understood({API_SERVER: [line]}, None, NEW)] == expected


# --- APIs ----------------------------------------------------------------------------------------------------

RESOURCES = st.dictionaries(
    st.builds(
        Resource,
        st.sampled_from(["v1", "a/v1", "a/v1beta1", "a/v1beta2", "a/v1alpha1", "b/v1", "b/odd"]),
        st.sampled_from(["pods", "jobs"]),
    ),
    st.sampled_from(Served),
)


@given(RESOURCES, RESOURCES)
def test_every_resource_that_cannot_be_served_is_either_gone_or_has_another_version(
    before: dict[Resource, Served], after: dict[Resource, Served]
) -> None:
    removed = removed_apis(replace(OLD, resources=before), replace(NEW, resources=after))
    assert {*removed.gone, *removed.moved} == before.keys() - after.keys()
    assert not set(removed.gone) & removed.moved.keys()
    for one in removed.gone:
        assert not any((other.group, other.name) == (one.group, one.name) for other in after)
    for one, versions in removed.moved.items():
        assert versions
        assert set(versions) == {
            other.group_version for other in after if (other.group, other.name) == (one.group, one.name)
        }


def test_other_versions_come_in_the_order_in_which_to_take_them() -> None:
    after = {
        Resource("a/v1", "jobs"): Served.FEATURE_GATES,
        Resource("a/v1alpha1", "jobs"): Served.RUNTIME_CONFIG,
        Resource("a/v1beta1", "jobs"): Served.DEFAULT,
        Resource("a/v1beta2", "jobs"): Served.DEFAULT,
        Resource("a/v2", "jobs"): Served.DEFAULT,
        Resource("a/odd", "jobs"): Served.DEFAULT,
        Resource("b/v1", "jobs"): Served.DEFAULT,
    }
    lost = Resource("a/v2alpha1", "jobs")
    removed = removed_apis(replace(OLD, resources={lost: Served.RUNTIME_CONFIG}), replace(NEW, resources=after))
    assert removed.moved == {lost: ("a/v2", "a/v1beta2", "a/v1beta1", "a/odd", "a/v1alpha1", "a/v1")}


def test_what_is_stored_can_be_read_by_a_version_that_has_a_type_for_one_of_those_in_which_it_may_be() -> None:
    before = {Resource(f"a/{version}", "jobs"): Served.DEFAULT for version in ("v1alpha1", "v1beta1")}
    old = replace(OLD, resources=before)
    after = {Resource("a/v1", "jobs"): Served.DEFAULT}

    def unreadable(*registered: str) -> tuple[Resource, ...]:
        return removed_apis(old, replace(NEW, resources=after, registered=frozenset(registered))).unreadable

    assert unreadable("a/v1") == tuple(sorted(before))
    assert unreadable("a/v1", "a/v1beta1") == ()


def test_between_the_releases_that_there_are() -> None:
    removed = removed_apis(OLD, NEW)
    assert removed.gone == ()
    assert [str(one) for one in removed.unreadable] == [
        "podgroups of scheduling.k8s.io/v1alpha2",
        "workloads of scheduling.k8s.io/v1alpha2",
    ]
    assert removed.moved[Resource("storage.k8s.io/v1beta1", "volumeattributesclasses")] == ("storage.k8s.io/v1",)
    assert OLD.resources[Resource("networking.k8s.io/v1beta1", "ipaddresses")] is Served.RUNTIME_CONFIG
    back = removed_apis(NEW, OLD)
    assert Resource("lifecycle.k8s.io/v1alpha1", "evictions") in back.gone
