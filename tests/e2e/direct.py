"""Asking one process of the control plane by its own port, past every load balancer: what it says of itself."""

from __future__ import annotations

import json
import re
import ssl
from http.client import HTTPException, HTTPSConnection

from harness import TestCluster
from labels import address_of

from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model import ports
from autarky.net.tls import client_context

_HOSTED = {
    "kube-apiserver": ports.API_HOSTED,
    "kube-controller-manager": ports.CONTROLLER_MANAGER_HOSTED,
    "kube-scheduler": ports.SCHEDULER_HOSTED,
}
_BUILD = re.compile(r'^kubernetes_build_info\{.*git_version="([^"]*)".*\} 1$', re.MULTILINE)


def asked(cluster: TestCluster, node: str, port: int, path: str) -> str | None:
    """What it answers an administrator; None where that is no yes."""
    return asked_at(cluster, address_of(cluster, node), port, path)


def asked_at(cluster: TestCluster, address: str, port: int, path: str, *, seconds: float = 10) -> str | None:
    """The same by an address that is known, which takes no other API server. Level 3 serves with certificates that it
    has made for itself, so no certificate is looked at."""
    found = read_kubeconfig(cluster.directory / "kubeconfig")
    context = client_context(found.ca_pem, found.client_cert_pem, found.client_key_pem)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = HTTPSConnection(address, port, timeout=seconds, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        said = answer.read().decode()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return said if answer.status == 200 else None


def hosted_version(cluster: TestCluster, component: str, node: str) -> str:
    """Of the process in the hosted slot of the node, as it says itself; "" where none answers."""
    if component == "kube-apiserver":
        said = asked(cluster, node, _HOSTED[component], "/version")
        return "" if said is None else str(json.loads(said)["gitVersion"])
    found = _BUILD.search(asked(cluster, node, _HOSTED[component], "/metrics") or "")
    return "" if found is None else found.group(1)
