"""The add-ons: what runs on every cluster besides its control plane. kube-proxy is one by its form (level 3)."""

from autarky.control.addons import coredns, flannel, kube_proxy
from autarky.control.addons.addon import AddOn

ADD_ONS: tuple[AddOn, ...] = (kube_proxy.ADD_ON, flannel.ADD_ON, coredns.ADD_ON)
"""In the order in which they are applied."""

__all__ = ["ADD_ONS", "AddOn"]
