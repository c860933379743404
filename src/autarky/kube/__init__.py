"""The Kubernetes API over HTTP; objects stay plain dicts."""

from autarky.kube.client import KubeClient

__all__ = ["KubeClient"]
