"""A healthy cluster at rest: what autarky's own processes cost, and what they ask of the API.

The audit log is switched on as a user would, by editing the DaemonSet: it tells every request by user and
user agent, so that nothing the agents ask for can hide.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from harness import TestCluster, one_node
from slots import API, SYSTEM, parked_agent_is_a_copy, settled

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
    "rules": [
        {"level": "Metadata", "users": ["system:node:n1", "system:serviceaccount:kube-system:autarky-operator"]},
        {"level": "None"},
    ],
}


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


def test_at_rest_the_api_hears_nothing_but_watches_and_the_operators_lease(cluster: TestCluster) -> None:
    began = time.time()
    time.sleep(IDLE_SECONDS)  # the rest that is measured
    asked = Counter(_what(entry) for entry in audited(cluster, since=began) if _is_ours(entry))
    LOG.info(asked)
    lease = ("operator", "update", "leases/autarky-operator")
    assert asked[lease] >= IDLE_SECONDS / 4, "the audit log tells nothing"
    others = {what: count for what, count in asked.items() if what != lease and what[1] != "watch"}
    assert others == {}


def audited(cluster: TestCluster, since: float) -> list[dict[str, Any]]:
    log = cluster.kubectl(*SYSTEM, "logs", API, f"--since={int(time.time() - since) + 1}s")
    entries = [json.loads(line) for line in log.splitlines() if line.startswith('{"kind":"Event"')]
    return [entry for entry in entries if entry["stage"] in ("ResponseComplete", "ResponseStarted")]


def _is_ours(entry: dict[str, Any]) -> bool:
    """The kubelet has the same identity as the agent, and tells who it is."""
    return not str(entry.get("userAgent", "")).startswith("kubelet/")


def _what(entry: dict[str, Any]) -> tuple[str, str, str]:
    ref = entry.get("objectRef", {})
    who = "agent" if entry["user"]["username"].startswith("system:node:") else "operator"
    name = f"/{ref['name']}" if "name" in ref else ""
    return who, entry["verb"], f"{ref.get('resource', entry['requestURI'])}{name}"
