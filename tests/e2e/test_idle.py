"""A healthy cluster at rest: what autarky's own processes cost, and what they ask of the API.

The audit log is switched on as a user would, by editing the DaemonSet: it tells every request of everybody, by user and
user agent. What is not known to be upstream's counts as ours, whoever it says that it is.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

import pytest
from harness import TestCluster, one_node
from slots import API, SYSTEM, parked_agent_is_a_copy, settled

from autarky.control.slots.decide.report import ANNOTATION

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]

LOG = logging.getLogger(__name__)
IDLE_SECONDS = 60
PARKED, AGENT, OPERATOR = "the parked agent", "the agent", "the operator"
LIMITS_MB = {PARKED: 15, AGENT: 60, OPERATOR: 80}
LONGEST_SHARE = 0.01
"""Of one core."""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
NAMES = {
    "system:node:n1": "agent",
    "system:serviceaccount:kube-system:autarky-operator": "operator",
    "system:anonymous": "anybody",
}
_ACCOUNT = "system:serviceaccount:kube-system:"
UPSTREAM = frozenset(
    {
        "system:apiserver",
        "system:kube-controller-manager",
        "system:kube-scheduler",
        *(f"{_ACCOUNT}{name}" for name in ("kube-proxy", "kube-flannel", "coredns")),
    }
)
"""Identities of upstream's components. The kubelet's is the node agent's as well, and each controller has its own."""
HEALTH_PATHS = frozenset({"/livez", "/readyz", "/healthz"})
CHECKS_A_SECOND = 6
"""At most, of the only API server: the agent's two, the load balancer's two, the kubelet's one, and one to spare."""
LEASE = ("operator", "update", "leases/autarky-operator")
RENEWALS_A_SECOND = 0.5
QUIET_SECONDS = 20
"""For what follows from the change that the agent was made to make."""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-idle", **one_node())
    cluster.up()
    _switch_the_audit_log_on(cluster)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    cluster.wait("every checkpoint is made", lambda: _checkpoints(cluster) == 4, seconds=240)
    cluster.wait("the parked agent is a copy", lambda: parked_agent_is_a_copy(cluster), seconds=120)
    return cluster


def _switch_the_audit_log_on(cluster: TestCluster) -> None:
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "audit-policy", "namespace": "kube-system"},
        "immutable": True,
        "data": {"policy.json": json.dumps(POLICY)},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(policy))
    live = json.loads(cluster.kubectl(*SYSTEM, "get", API, "-o", "json"))["spec"]["template"]["spec"]
    [container] = live["containers"]
    container["command"] += ["--audit-policy-file=/etc/kubernetes/audit/policy.json", "--audit-log-path=-"]
    container["volumeMounts"].append({"name": "audit", "mountPath": "/etc/kubernetes/audit", "readOnly": True})
    live["volumes"].append({"name": "audit", "configMap": {"name": "audit-policy"}})
    cluster.kubectl(*SYSTEM, "patch", API, "--type=merge", "-p", json.dumps({"spec": {"template": {"spec": live}}}))
    cluster.kubectl(*SYSTEM, "rollout", "status", API, "--timeout=120s")


def _checkpoints(cluster: TestCluster) -> int:
    links = cluster.shell("n1", "readlink /var/lib/autarky/standby/*/current").split()
    return sum(name.startswith("checkpoint-") for name in links)


@dataclass(frozen=True)
class Usage:
    """Of one process: resident memory in MB, CPU seconds since its start, and when that was looked at."""

    pid: str
    megabytes: float
    cpu: float
    at: float


def usage(cluster: TestCluster) -> dict[str, Usage]:
    """By what the process is: agents differ by the slot in their environment."""
    look = (
        "for p in $(pgrep -f 'python3 -m autarky[.]agents'); do"
        " echo $p $(grep VmRSS /proc/$p/status | tr -dc 0-9) $(cut -d' ' -f14,15 /proc/$p/stat)"
        " $(cut -d' ' -f1 /proc/uptime) $(tr '\\0' ' ' </proc/$p/cmdline | awk '{print $3}')"
        " $(tr '\\0' '\\n' </proc/$p/environ | grep -a AUTARKY_SLOT || echo -); done"
    )
    found = {}
    for line in cluster.shell("n1", look).splitlines():
        pid, kilobytes, user, system, uptime, module, slot = line.split()
        name = OPERATOR if module.endswith("operator") else PARKED if slot.endswith("standby") else AGENT
        found[name] = Usage(pid, int(kilobytes) / 1024, (int(user) + int(system)) / 100, float(uptime))
    return found


def test_at_rest_the_agents_cost_next_to_nothing(cluster: TestCluster) -> None:
    before = usage(cluster)
    time.sleep(IDLE_SECONDS)  # the rest that is measured
    after = usage(cluster)
    assert before.keys() == after.keys() == LIMITS_MB.keys()
    shares = {}
    for name, end in after.items():
        begin = before[name]
        assert begin.pid == end.pid, f"{name} was restarted"
        shares[name] = (end.cpu - begin.cpu) / (end.at - begin.at)
        LOG.info(f"{name}: {end.megabytes:.1f} MB, {shares[name]:.2%} of a core")
    assert all(after[name].megabytes <= limit for name, limit in LIMITS_MB.items()), after
    assert all(share < LONGEST_SHARE for share in shares.values()), shares


def test_at_rest_the_api_hears_nothing_of_ours_but_watches_the_operators_lease_and_health_checks(
    cluster: TestCluster,
) -> None:
    _what_the_agent_asks_is_heard(cluster)
    time.sleep(QUIET_SECONDS)
    began = time.time()
    time.sleep(IDLE_SECONDS)  # the rest that is measured
    rest = [entry for entry in audited(cluster, began, time.time()) if not _is_upstreams(entry)]
    watches = Counter(_watch(entry) for entry in rest if entry["verb"] == "watch")
    asked = Counter(_what(entry) for entry in rest if entry["verb"] != "watch")
    LOG.info(f"{asked}; new watches: {watches}")
    renewals, checks = asked.pop(LEASE, 0), sum(asked.pop(what) for what in [*asked] if _is_health_check(what))
    assert IDLE_SECONDS / 4 <= renewals <= IDLE_SECONDS * RENEWALS_A_SECOND + 1
    assert IDLE_SECONDS <= checks <= IDLE_SECONDS * CHECKS_A_SECOND
    assert asked == {}
    assert {watch: number for watch, number in watches.items() if number > 1} == {}, "each goes on for longer"


def _what_the_agent_asks_is_heard(cluster: TestCluster) -> None:
    """It is made to write something: what it tells on its Node is taken away."""
    began = time.time()
    cluster.kubectl("annotate", "node", "n1", f"{ANNOTATION}-")
    cluster.wait("it is told again", lambda: ANNOTATION in cluster.kubectl("get", "node", "n1", "-o", "yaml"))

    def heard() -> bool:
        asked = [_what(entry) for entry in audited(cluster, began, time.time()) if not _is_upstreams(entry)]
        return ("agent", "patch", "nodes/n1") in asked

    cluster.wait("it is in the audit log", heard)


def audited(cluster: TestCluster, began: float, ended: float) -> list[dict[str, Any]]:
    """Each request once that came between these times: a watch when it began, others when they were answered."""
    log = cluster.kubectl(*SYSTEM, "logs", API)
    entries = [json.loads(line) for line in log.splitlines() if line.startswith('{"kind":"Event"')]
    assert entries, "the audit log tells nothing"
    assert _came(entries[0]) < began, "the log of that time was put aside meanwhile"
    stage = {"watch": "ResponseStarted"}
    told = [entry for entry in entries if entry["stage"] == stage.get(entry["verb"], "ResponseComplete")]
    return [entry for entry in told if began <= _came(entry) < ended]


def _came(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()


def _is_upstreams(entry: dict[str, Any]) -> bool:
    """By its identity, and by what says to act in it: our agents may be what has an identity of level 3's."""
    user, program = entry["user"]["username"], str(entry.get("userAgent", "")).partition("/")[0]
    if program == "kubelet":
        return bool(user == "system:node:n1")
    if program == "kube-controller-manager" and user.startswith(_ACCOUNT):
        return user not in NAMES
    return user in UPSTREAM and program != "autarky"


def _what(entry: dict[str, Any]) -> tuple[str, str, str]:
    ref, path = entry.get("objectRef", {}), entry["requestURI"].partition("?")[0]
    name = f"/{ref['name']}" if "name" in ref else ""
    return _who(entry), entry["verb"], f"{ref['resource']}{name}" if "resource" in ref else path


def _who(entry: dict[str, Any]) -> str:
    user: str = entry["user"]["username"]
    return NAMES.get(user, user)


def _is_health_check(what: tuple[str, str, str]) -> bool:
    who, verb, path = what
    return who == "anybody" and verb == "get" and path in HEALTH_PATHS


def _watch(entry: dict[str, Any]) -> tuple[str, str]:
    """Of whom, and what of: two of the same resource may have different objects in view."""
    path, _, query = entry["requestURI"].partition("?")
    chosen = [f"{name}={value}" for name, value in parse_qsl(query) if name.endswith("Selector")]
    return _who(entry), " ".join([path, *sorted(chosen)])
