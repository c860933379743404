"""A kubelet's kubeconfigs and certificates: where they lie on its node, and those that it starts with.

Contract: pure. A file that the kubelet keeps by itself (its newest certificate) is written only where there is none.
"""

from __future__ import annotations

from autarky import places
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.certificates.manifests.specs import renewal_certificate
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.render.kubeconfig import RENEWER, file_kubeconfig, pair_kubeconfig
from autarky.render.values import Inputs

KUBELET_KUBECONFIG = f"{places.KUBERNETES}/kubelet.conf"
BOOTSTRAP_KUBECONFIG = f"{places.KUBERNETES}/bootstrap-kubelet.conf"
CURRENT = "kubelet-client-current.pem"
"""The kubelet's link to its newest certificate and key."""
SERVING = "kubelet-server-current.pem"
"""The same for its serving certificate."""
FIRST_CERTIFICATE = f"{agent.KUBELET_PKI}/kubelet-client-first.pem"
CURRENT_PATH = f"{agent.KUBELET_PKI}/{CURRENT}"
FIRST_LINK = {CURRENT_PATH: FIRST_CERTIFICATE}
GIVEN = f"{agent.KUBELET_PKI}/given"
"""Mark: exists from when the agent has issued the kubelet a certificate until the kubelet is restarted with it."""


def renewal_kubeconfig(inputs: Inputs, node: Node) -> File:
    """With this a worker's kubelet whose certificate has expired requests a new one. Control nodes have it for the case
    that they become workers."""
    name = renewal_certificate(node.name).name
    certificate, key = (inputs.credentials[f"{name}.{end}"] for end in ("crt", "key"))
    content = pair_kubeconfig(inputs.credentials["ca.crt"], inputs.cluster.name, RENEWER, certificate, key)
    return File(BOOTSTRAP_KUBECONFIG, content, 0o600)


def first_credentials(inputs: Inputs, node: Node) -> list[File]:
    """A control node's kubelet starts with this certificate, and rotates it by itself later.

    Written only where there is none. The kubeconfig names the file with the kubelet's newest certificate (a link,
    initially FIRST_LINK): the kubelet requests the next one with the certificate of the kubeconfig, and an embedded one
    would expire, however often the kubelet has rotated its own.
    """
    pair = b"".join(inputs.credentials[f"kubelet-{node.name}.{end}"] for end in ("crt", "key"))
    return [File(FIRST_CERTIFICATE, pair, 0o600), kubelet_kubeconfig(inputs, node)]


def kubelet_kubeconfig(inputs: Inputs, node: Node) -> File:
    current = f"{agent.KUBELET_PKI}/{CURRENT}"
    content = file_kubeconfig(inputs, f"system:node:{node.name}", current, current)
    return File(KUBELET_KUBECONFIG, content, 0o600)
