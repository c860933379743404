"""The Kubernetes API over HTTP; objects stay plain dicts."""

from autarky.kube.client import KubeClient
from autarky.kube.listing import Lister, Listing
from autarky.kube.reflector import Reflector

__all__ = ["KubeClient", "Lister", "Listing", "Reflector"]
