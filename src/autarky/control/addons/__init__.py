"""The add-ons: what runs on every cluster besides its control plane. kube-proxy is treated as one (level 3)."""

from autarky.control.addons import coredns, flannel, kube_proxy
from autarky.control.addons.addon import AddOn
from autarky.model.cluster import Cluster
from autarky.model.components import IMAGES, KUBELET

ADD_ONS: tuple[AddOn, ...] = (kube_proxy.ADD_ON, flannel.ADD_ON, coredns.ADD_ON)
"""In the order in which they are applied."""


def add_ons_of(cluster: Cluster) -> tuple[AddOn, ...]:
    """The add-ons that the cluster has."""
    return tuple(one for one in ADD_ONS if one.cni in (None, cluster.network.cni))


def images_of(cluster: Cluster) -> tuple[str, ...]:
    """The names in a release of the images that each of its nodes needs: of add-ons, and the kubelet's, only those that
    it has."""
    of_add_ons = {image for one in ADD_ONS for image in one.images}
    of_its_add_ons = [image for one in add_ons_of(cluster) for image in one.images]
    of_level_0 = [KUBELET] if cluster.hosts_kubelet else []
    return tuple(dict.fromkeys([*(name for name in IMAGES if name not in of_add_ons), *of_its_add_ons, *of_level_0]))


def images_for_upgrade(cluster: Cluster) -> tuple[str, ...]:
    """The same for another version, with the image in which a kubelet comes wherever it runs. A node that `up` prepares
    has the program itself."""
    return tuple(dict.fromkeys([*images_of(cluster), KUBELET]))


__all__ = ["ADD_ONS", "AddOn", "add_ons_of", "images_for_upgrade", "images_of"]
