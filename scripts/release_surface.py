"""Write down what the components of a release understand: their flags, feature gates, admission plugins and APIs.

    .venv/bin/python scripts/release_surface.py 1.37.1

makes src/autarky/control/upgrade/decide/surfaces/v1.37.1.json, which the operator compares with that of another
release before an upgrade. Everything is asked of the release's own programs, from the store (`autarky payload get`);
nothing is written by hand. It takes some four minutes, and root for the namespaces that the programs run in.

What was found out about the sources, with 1.36.4 and 1.37.1:

- Flags. `--help` leaves out deprecated flags, unless a component shows them again: the kubelet does so with all of its
  flags, kube-apiserver with some. `/flagz` of a running component has all flags. So names come from both, and from the
  other components, and each name is tried: `--NAME --none --none` always ends with an error, which says whether the
  flag is known and whether it takes the next argument as its value. The kubelet is not run, as it would need a
  container runtime and changes kernel settings: a flag that it alone has and hides would be missed. Its source hides
  none.
- Feature gates. `--help` has neither GA nor deprecated gates, which are still known until they are removed. The metric
  `kubernetes_feature_enabled` has every gate, with its stage and its state, which is its default here. A component that
  is started with a gate that it does not know ends with "unrecognized feature gate", and names only the first one; with
  a gate that is locked to the other value it ends with "cannot set feature gate"; a locked gate with its own value is
  accepted. So every gate that any component has is tried with every component, with both values. Stage and default of
  the kubelet's GA and deprecated gates are those of the other components, which share their definition.
- API versions. What is served by default, with `--runtime-config=api/all=true`, and with all feature gates on as well,
  is read from discovery. A version that is no longer served may still be registered: kube-apiserver starts with it in
  `--runtime-config` and serves nothing of it. It does not start with one that is not registered. So all usual versions
  of each group are tried. A resource of feature gates that are off is not served with `api/all=true` either.
- Configuration files. For each flag that names one, all usual versions of its groups are tried with a field of the
  wrong type, so that nothing starts: a component that knows the version says which field it is, one that does not
  says that the kind is not registered. Of the configurations of single admission plugins nothing is asked.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _running import INSIDE, Servers, in_namespaces, programs_of, said, say

from autarky.errors import AutarkyError
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, KUBELET, SCHEDULER
from autarky.model.versions import Version
from autarky.store import write_private

TARGET = Path(__file__).parents[1] / "src/autarky/control/upgrade/decide/surfaces"
COMPONENTS = (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY, KUBELET)
MAIN = "https://127.0.0.1:6443"
ENDS_AFTER_GATES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((API_SERVER, CONTROLLER_MANAGER, SCHEDULER), ("--version",)),
    KUBE_PROXY: ("--cluster-cidr=none",),
    KUBELET: ("--config=/nonexistent",),
}
"""What ends each component right after it has accepted its feature gates."""
SPECIAL_GATES = ("AllAlpha", "AllBeta")
"""They set others, and are never locked."""


@dataclass(frozen=True)
class Configuration:
    """What may be in a configuration file. number: a field that takes no text. others: known by another kind."""

    kind: str
    number: str
    groups: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def tried(self) -> list[str]:
        """As the files have it: "GROUP/VERSION KIND"."""
        usual = (f"{group}/{version} {self.kind}" for group in self.groups for version in USUAL_VERSIONS)
        return [*usual, *self.others]


_OF_API_SERVER = "apiserver.config.k8s.io"
CONFIGURATIONS: Mapping[str, Mapping[str, Configuration]] = {
    API_SERVER: {
        "admission-control-config-file": Configuration(
            "AdmissionConfiguration", "plugins", (_OF_API_SERVER, "apiserver.k8s.io")
        ),
        "audit-policy-file": Configuration("Policy", "rules", ("audit.k8s.io",)),
        "authentication-config": Configuration("AuthenticationConfiguration", "jwt", (_OF_API_SERVER,)),
        "authorization-config": Configuration("AuthorizationConfiguration", "authorizers", (_OF_API_SERVER,)),
        "egress-selector-config-file": Configuration(
            "EgressSelectorConfiguration", "egressSelections", (_OF_API_SERVER, "apiserver.k8s.io")
        ),
        "encryption-provider-config": Configuration(
            "EncryptionConfiguration", "resources", (_OF_API_SERVER,), ("v1 EncryptionConfig",)
        ),
        "tracing-config-file": Configuration("TracingConfiguration", "samplingRatePerMillion", (_OF_API_SERVER,)),
    },
    CONTROLLER_MANAGER: {
        "leader-migration-config": Configuration(
            "LeaderMigrationConfiguration", "controllerLeaders", ("controllermanager.config.k8s.io",)
        )
    },
    SCHEDULER: {"config": Configuration("KubeSchedulerConfiguration", "parallelism", ("kubescheduler.config.k8s.io",))},
    KUBE_PROXY: {"config": Configuration("KubeProxyConfiguration", "oomScoreAdj", ("kubeproxy.config.k8s.io",))},
    KUBELET: {"config": Configuration("KubeletConfiguration", "port", ("kubelet.config.k8s.io",))},
}
"""Component → flag that names such a file."""
USUAL_VERSIONS = ("v1", "v2", *(f"v{n}{stage}{m}" for n in (1, 2) for stage in ("alpha", "beta") for m in (1, 2, 3)))

_FLAG = re.compile(r"^(?:      |  -\w, )--([\w.-]+)", re.MULTILINE)
_DEPRECATED = re.compile(r"\(DEPRECATED: |^ *-\S+(?: \w+)? +\[?DEPRECATED", re.IGNORECASE)
_FLAGZ = re.compile(r"^([a-z][\w.-]*)", re.MULTILINE)
_GATE = re.compile(r"\b([A-Z]\w+)=true\|false \(([A-Z]+) - default=(true|false)\)")
_METRIC = re.compile(r'^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} ([01])$', re.MULTILINE)
_UNKNOWN_GATE = re.compile(r"unrecognized feature gate: (\w+)")
_PRE_ALPHA = re.compile(r"cannot set feature gate (\w+) to \w+, feature is PreAlpha")
_LOCKED = re.compile(r"cannot set feature gate (\w+) to \w+, feature is locked to (true|false)")
_PLUGINS = re.compile(r"--enable-admission-plugins .*Comma-delimited list of admission plugins: ([\w, ]+)\.")

Gates = dict[str, tuple[str, bool]]
"""Name → stage, default."""


# --- flags ---------------------------------------------------------------------------------------------------


def flags_of_help(text: str) -> dict[str, bool]:
    """Name → whether it is said to be deprecated."""
    begins = [(found.start(), found[1]) for found in _FLAG.finditer(text)]
    ends = [start for start, _ in begins[1:]] + [len(text)]
    return {name: bool(_DEPRECATED.search(text[start:end])) for (start, name), end in zip(begins, ends, strict=True)}


def kind_of_flag(program: Path, name: str) -> str | None:
    """ "value" where it takes the next argument as its value, "switch" where it does not; None if it is not known."""
    first, second = "--none-of-all", "--nothing-at-all"
    text = said([program, f"--{name}", first, second])
    if f"unknown flag: --{name}" in text:
        return None
    if f"unknown flag: {first}" in text:
        return "switch"
    if re.search(rf'invalid argument \\?"{first}', text) or f"unknown flag: {second}" in text:
        return "value"
    raise ValueError(f"{program} says neither that it knows --{name} nor that it does not: {text[-500:]}")


def flag_rows(program: Path, shown: Mapping[str, bool], names: Iterable[str]) -> dict[str, str]:
    rows = {}
    for name in sorted(names):
        kind = kind_of_flag(program, name)
        if kind is not None:
            hidden = name not in shown
            rows[name] = " ".join([kind, *["deprecated"][: hidden or shown[name]], *["hidden"][:hidden]])
    return rows


# --- feature gates -------------------------------------------------------------------------------------------


def gates_of_help(text: str) -> Gates:
    """A gate may have another default with --min-compatibility-version, which is named behind the usual one."""
    found: Gates = {}
    for name, stage, default in _GATE.findall(text):
        found.setdefault(name, (stage, default == "true"))
    return found


def gates_of_metrics(text: str) -> Gates:
    return {name: (stage or "GA", state == "1") for name, stage, state in _METRIC.findall(text)}


def gate_rows(component: str, program: Path, own: Gates, others: Gates) -> dict[str, str]:
    def start(names: Iterable[str], value: str) -> str:
        gates = ",".join(f"{name}={value}" for name in names)
        return said([program, f"--feature-gates={gates}", *ENDS_AFTER_GATES[component]])

    known = {**others, **own}
    tried = set(known) - set(SPECIAL_GATES)
    while refused := _UNKNOWN_GATE.findall(text := start(sorted(tried), "true")):
        tried -= set(refused)
    tried -= set(_PRE_ALPHA.findall(text))
    if lost := set(own) - tried - set(SPECIAL_GATES):
        raise ValueError(f"{component} has gates that it does not know: {sorted(lost)}")
    locked = dict(_LOCKED.findall(text) + _LOCKED.findall(start(sorted(tried), "false")))
    rows = {}
    for name in sorted(tried | (set(known) & set(SPECIAL_GATES))):
        stage, default = known[name]
        if name in locked and (locked[name] == "true") != default:
            raise ValueError(f"{component} has {name} locked to {locked[name]}, and its default is another")
        rows[name] = " ".join([stage, "on" if default else "off", *["locked"][: name in locked]])
    return rows


def joined(rows: Mapping[str, Mapping[str, str]]) -> dict[str, object]:
    """Gate → its row where all components have the same, else component → row."""
    found: dict[str, object] = {}
    for gate in sorted({gate for gates in rows.values() for gate in gates}):
        of = {component: gates[gate] for component, gates in rows.items() if gate in gates}
        found[gate] = next(iter(of.values())) if len(of) == len(rows) and len(set(of.values())) == 1 else of
    return found


# --- APIs ----------------------------------------------------------------------------------------------------


def discovered(servers: Servers) -> set[str]:
    """Of the API server that runs: "GROUP/VERSION RESOURCE", without subresources."""
    groups = servers.json(f"{MAIN}/apis")["groups"]
    paths = {f"apis/{version['groupVersion']}" for group in groups for version in group["versions"]}
    paths |= {f"api/{version}" for version in servers.json(f"{MAIN}/api")["versions"]}
    return {
        f"{path.removeprefix('apis/').removeprefix('api/')} {resource['name']}"
        for path in paths
        for resource in servers.json(f"{MAIN}/{path}")["resources"]
        if "/" not in resource["name"]
    }


def resource_rows(found: Sequence[tuple[str, set[str]]]) -> dict[str, str]:
    """found: how, and what is served that way; the first one that serves a resource counts."""
    rows: dict[str, str] = {}
    for how, resources in found:
        rows |= {resource: how for resource in resources if resource not in rows}
    return dict(sorted(rows.items()))


def registered(servers: Servers, versions: set[str]) -> list[str]:
    """The group versions that kube-apiserver starts with in --runtime-config: the given ones, which it serves, and what
    it still knows of their groups. Groups of a part of it that looks at versions later (CustomResourceDefinitions,
    aggregation) seem to have every version: of these, what is served counts."""
    groups = {one.partition("/")[0] for one in versions if "/" in one}
    judged = {group for group in groups if not _is_registered(servers, f"{group}/v99")}
    tried = {f"{group}/{version}" for group in judged for version in USUAL_VERSIONS} - versions
    return sorted(versions | {one for one in tried if _is_registered(servers, one)})


def _is_registered(servers: Servers, version: str) -> bool:
    key = version if "/" in version else f"api/{version}"
    further = {"runtime-config": f"{key}=true", "egress-selector-config-file": "/nonexistent"}
    text = said(servers.command(API_SERVER, {**servers.api_server_arguments(), **further}))
    if "has not been registered" in text or "unknown api groups" in text:
        return False
    if "failed to read egress selector config" in text:
        return True
    raise ValueError(f"kube-apiserver does not say whether it knows {version}: {text[-500:]}")


def accepted_configurations(servers: Servers, component: str, flag: str) -> list[str]:
    """While etcd runs: kube-apiserver waits for it before it reads some of them."""
    asked, found = CONFIGURATIONS[component][flag], []
    file = servers.directory / "configuration.json"
    command = servers.command(component, _arguments_beside(servers, component, flag) | {flag: file})
    for one in asked.tried:
        version, kind = one.split(" ")
        file.write_text(json.dumps({"apiVersion": version, "kind": kind, asked.number: "none"}))
        text = said(command)
        if re.search(rf"cannot unmarshal string into Go struct field [\w.]+\.{asked.number} ", text):
            found.append(one)
        elif "is registered for version" not in text:
            raise ValueError(f"{component} does not say whether it knows {one}: {text[-500:]}")
    return sorted(found)


def _arguments_beside(servers: Servers, component: str, flag: str) -> dict[str, object]:
    """What a component needs to get as far as that file; the others read theirs first."""
    if component == API_SERVER:
        # Either has the other refused.
        without = {"authorization-mode"} if flag == "authorization-config" else set()
        return {name: value for name, value in servers.api_server_arguments().items() if name not in without}
    if component == CONTROLLER_MANAGER:
        return {"kubeconfig": servers.kubeconfig, "enable-leader-migration": "true"}
    return {}


# --- all of it -----------------------------------------------------------------------------------------------


def asked_while_running(servers: Servers) -> tuple[dict[str, str], dict[str, str], list[tuple[str, set[str]]]]:
    """(Component → its /flagz, component → its /metrics, how → what is served)."""
    flagz, metrics, served = {}, {}, []
    with servers.etcd():
        say("running kube-apiserver, and the components that need it")
        with servers.api_server():
            served.append(("default", discovered(servers)))
            flagz[API_SERVER], metrics[API_SERVER] = servers.ask(f"{MAIN}/flagz"), servers.ask(f"{MAIN}/metrics")
            for component in (CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY):
                with servers.of_level_3(component) as url:
                    flagz[component], metrics[component] = servers.ask(f"{url}/flagz"), servers.ask(f"{url}/metrics")
        everything = {"runtime_config": "api/all=true"}
        for how, further in (
            ("runtime-config", everything),
            ("feature-gates", {**everything, "feature_gates": ",".join(f"{name}=true" for name in SPECIAL_GATES)}),
        ):
            say(f"running kube-apiserver with {' '.join(further.values())}")
            with servers.api_server(**further):
                served.append((how, discovered(servers)))
    return flagz, metrics, served


def surface(version: Version, scratch: Path) -> dict[str, object]:
    programs = programs_of(version, ("etcd", *COMPONENTS))
    servers = Servers.prepared(programs, scratch)
    flagz, metrics, served = asked_while_running(servers)
    helps = {component: said([programs[component], "--help"]) for component in COMPONENTS}
    shown = {component: flags_of_help(text) for component, text in helps.items()}
    names = {name for flags in shown.values() for name in flags}
    names |= {name for text in flagz.values() for name in _FLAGZ.findall(text)}
    gates = {name: {**gates_of_help(helps[name]), **gates_of_metrics(metrics.get(name, ""))} for name in COMPONENTS}
    flags, gate_table = {}, {}
    for component in COMPONENTS:
        say(f"trying {len(names)} flags and the feature gates with {component}")
        others = {name: gate for one in COMPONENTS for name, gate in gates[one].items()}
        flags[component] = flag_rows(programs[component], shown[component], names)
        gate_table[component] = gate_rows(component, programs[component], gates[component], others)
    plugins = _PLUGINS.search(helps[API_SERVER])
    if plugins is None:
        raise ValueError("the help of --enable-admission-plugins lists no plugins")
    say("trying versions of APIs and of configuration files")
    resources = resource_rows(served)
    with servers.etcd():
        files = {
            component: {flag: accepted_configurations(servers, component, flag) for flag in flags}
            for component, flags in CONFIGURATIONS.items()
        }
    return {
        "kubernetes": str(version),
        "flags": flags,
        "featureGates": joined(gate_table),
        "admissionPlugins": sorted(plugins[1].split(", ")),
        "resources": resources,
        "registeredVersions": registered(servers, {one.partition(" ")[0] for one in resources}),
        "configurations": files,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", type=Version.parse, help="such as 1.37.1")
    parser.add_argument("--to", type=Path, default=TARGET, help="a directory; default: that of the package")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    try:
        if not asked.inside:
            return in_namespaces(sys.argv)
        with tempfile.TemporaryDirectory() as scratch:
            found = surface(asked.version, Path(scratch))
    except AutarkyError as error:
        say(str(error))
        return error.exit_code
    target = asked.to / f"{asked.version}.json"
    target.parent.mkdir(exist_ok=True)
    write_private(target, (json.dumps(found, indent=1) + "\n").encode(), mode=0o644)
    say(f"wrote {target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
