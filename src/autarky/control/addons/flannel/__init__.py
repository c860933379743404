"""The pod network, as an add-on. Everything about flannel is in this folder and its line in the table of components."""

from autarky.control.addons.addon import AddOn
from autarky.control.addons.flannel import manifests, policies
from autarky.model.cluster import Cni
from autarky.model.components import COMPONENTS, FLANNEL

BRIDGE = COMPONENTS[FLANNEL].links[0]
ADD_ON = AddOn(
    "flannel",
    FLANNEL,
    manifests.objects,
    cni=Cni.FLANNEL,
    images=(COMPONENTS[FLANNEL].image,),
    ports=(COMPONENTS[FLANNEL].port,),
    modules=("vxlan",),
    tables=("flannel-ipv4", "flannel-ipv6"),
    paths=(manifests.RUN, manifests.CONFIGURATION),
    pod_range=f"ip -4 -o address show dev {BRIDGE} | awk '{{print $4}}'",
    renumber=f"rm -f {manifests.SUBNET}; ip link delete {BRIDGE} 2>/dev/null || :",
    policies=policies.objects,
    node_annotations={policies.ORDERS: policies.REPORTS},
)

__all__ = ["ADD_ON"]
