"""The add-ons: what runs on every cluster besides its control plane. kube-proxy is treated as one (level 3)."""

from autarky.control.addons import coredns, flannel, kube_proxy
from autarky.control.addons.addon import AddOn
from autarky.model.cluster import Cluster
from autarky.model.components import COMPONENTS

ADD_ONS: tuple[AddOn, ...] = (kube_proxy.ADD_ON, flannel.ADD_ON, coredns.ADD_ON)
"""In the order in which they are applied."""


def add_ons_of(cluster: Cluster) -> tuple[AddOn, ...]:
    """The add-ons that the cluster has."""
    return tuple(one for one in ADD_ONS if one.cni in (None, cluster.network.cni))


def needless_images(cluster: Cluster) -> frozenset[str]:
    """Images of add-ons that the cluster does not have, by their names in a release."""
    has = add_ons_of(cluster)
    return frozenset(COMPONENTS[one.component].image for one in ADD_ONS if one not in has)


__all__ = ["ADD_ONS", "AddOn", "add_ons_of", "needless_images"]
