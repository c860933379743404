"""Control nodes that a label makes: labelling, and what is there of one on a node."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from balancers import configuration
from ha import CONTROL, etcd_members, member_objects, member_phases
from harness import TestCluster

SYSTEM = ("-n", "kube-system")
WISH = "node-role.kubernetes.io/control-plane"
FACT = "node-restriction.kubernetes.io/autarky-control-plane"
CONTROLLERS = ("kube-scheduler", "kube-controller-manager")
COMPONENTS = ("kube-apiserver", *CONTROLLERS)
TOLD = "autarky.dev/control-node"


def label(cluster: TestCluster, *nodes: str) -> None:
    cluster.kubectl("label", "node", *nodes, f"{WISH}=")


def unlabel(cluster: TestCluster, *nodes: str) -> None:
    cluster.kubectl("label", "node", *nodes, f"{WISH}-")


def labelled_as_control_node(cluster: TestCluster) -> set[str]:
    """The nodes with the fact label: those that workloads select."""
    return {name.removeprefix("node/") for name in cluster.kubectl("get", "node", "-l", FACT, "-o", "name").split()}


def metadata(cluster: TestCluster, node: str) -> Mapping[str, Any]:
    found = cluster.kubectl("get", "node", node, "-o", "json", check=False)
    return dict(json.loads(found)["metadata"]) if found else {}


def told(cluster: TestCluster, node: str) -> str:
    return str((metadata(cluster, node).get("annotations") or {}).get(TOLD, ""))


def is_control_node(cluster: TestCluster, node: str) -> bool:
    """By the label, and by an API server that is Ready there."""
    return FACT in metadata(cluster, node).get("labels", {}) and "kube-apiserver" in ready_there(cluster, node)


def is_worker(cluster: TestCluster, node: str) -> bool:
    """By the labels, and since its agent has nothing more to say."""
    meta = metadata(cluster, node)
    return bool(meta) and not {WISH, FACT} & meta["labels"].keys() and TOLD not in meta.get("annotations", {})


def ready_there(cluster: TestCluster, node: str) -> set[str]:
    """The hosted components of the control plane that are Ready on the node."""
    found = cluster.kubectl(
        *SYSTEM, "get", "pods", "-l", "tier=control-plane", f"--field-selector=spec.nodeName={node}", "-o", "json"
    )
    return {
        pod["metadata"]["labels"]["k8s-app"]
        for pod in json.loads(found)["items"]
        if any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["labels"].get("autarky.dev/slot") != "standby"
    }


def parts_of_a_control_node(cluster: TestCluster, node: str) -> set[str]:
    """What of one lies on the node's disk."""
    script = (
        "for p in /var/lib/autarky/standby/*/current /etc/kubernetes/pki/*.key /etc/kubernetes/pki/etcd/*"
        " /var/lib/autarky/nllb/etcd-* /var/lib/autarky/leaves /var/lib/autarky/leaves/*/*"
        " /var/lib/autarky/state/control-node.json /var/lib/autarky/state/leaves.json /etc/kubernetes/manifests/*; do"
        ' [ -e "$p" ] || continue; case $p in */node-load-balancer-*) ;; *) echo "$p" ;; esac; done'
    )
    return set(cluster.shell(node, script).split())


def names_served(cluster: TestCluster, node: str) -> set[str]:
    """The names of the certificate that the hosted API server of the node shows; none while it does not answer."""
    address = address_of(cluster, node)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.load_verify_locations(cluster.directory / "pki/ca.crt")
    try:
        with socket.create_connection((address, 7443), timeout=10) as plain, context.wrap_socket(plain) as encrypted:
            certificate = encrypted.getpeercert() or {}
    except OSError:
        return set()
    return {str(value) for _, value in certificate["subjectAltName"]}  # type: ignore[str-unpack]


def address_of(cluster: TestCluster, node: str) -> str:
    path = "{.status.addresses[?(@.type=='InternalIP')].address}"
    return cluster.kubectl("get", "node", node, "-o", f"jsonpath={path}")


def endpoints(cluster: TestCluster) -> set[str]:
    """The nodes that default/kubernetes leads to."""
    found = json.loads(cluster.kubectl("get", "endpointslice", "kubernetes", "-o", "json"))
    return {endpoint["nodeName"] for endpoint in found["endpoints"]}


def etcd_is_on(cluster: TestCluster, *nodes: str) -> bool:
    """Whether etcd has a member on each of these nodes and no other, and their objects call them members."""
    told = member_phases(cluster) == dict.fromkeys(nodes, "Member")
    return told and etcd_members(cluster, nodes[0]) == set(nodes)


def balanced(cluster: TestCluster, servers: set[str], *hosts: str) -> bool:
    """Whether the load balancer of each of these hosts leads to the API servers of those nodes and no other."""
    found = [configuration(cluster, host) for host in hosts]
    return all(one is not None and {node.name for node in one.servers} == servers for one in found)


def rights(cluster: TestCluster) -> set[str]:
    """The roles and bindings that the operator has made for single nodes."""
    found = cluster.kubectl(*SYSTEM, "get", "roles,rolebindings", "-o", "name")
    return {name for name in found.split() if ":joining:" in name or ":control-node-leases:" in name}


def said(cluster: TestCluster) -> str:
    """What operator and agents have said, for the report of a failure."""
    pods = cluster.kubectl(*SYSTEM, "get", "pods", "-o", "name", check=False).split()
    agents = [pod for pod in pods if "node-agent" in pod or "autarky-operator" in pod]
    logs = [f"{pod}:\n{cluster.kubectl(*SYSTEM, 'logs', pod, '--tail=60', check=False)}" for pod in agents]
    return "\n".join([cluster.kubectl(*SYSTEM, "get", "pods", "-o", "wide", check=False), *logs])


def standbys_that_serve(cluster: TestCluster) -> list[str]:
    """Of the control plane, as "component on node"."""
    rows = [row for row in cluster.status()["rows"] if row["slot"] == "standby" and row["component"] in COMPONENTS]
    return [f"{row['component']} on {row['node']}" for row in rows if row["health"] != "dormant"]


# --- three control nodes, each with a member ---


def all_vote(cluster: TestCluster) -> None:
    wanted = dict.fromkeys(CONTROL, "Member")
    cluster.wait("the members are as they should be", lambda: member_phases(cluster) == wanted)


def nothing_has_left(cluster: TestCluster) -> None:
    assert {obj["spec"]["state"] for obj in member_objects(cluster).values()} == {"Member"}
    assert etcd_members(cluster, "n1") == set(CONTROL)
    assert labelled_as_control_node(cluster) == set(CONTROL)
