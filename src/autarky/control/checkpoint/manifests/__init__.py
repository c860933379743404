"""Checkpoint content: what of a live hosted pod becomes a revision of its standby.

    refusal      the rules that a refusal names
    references   which Secrets and ConfigMaps a pod uses, and their content
    volumes      volumes become files on the node's disk that only root can read
    containers   command lines, environment, probes and mounts
    defaults     removes what the API server fills in, so that the name follows from the content
    revision     the complete pod: the one function to call

Contract: pure, standard library only (the node agent imports it). The content comes from the live pod and
not from a template or the cluster file, so that it follows users' edits. `decide.revisions` decides when a
checkpoint is made and which revisions are kept.
"""

from autarky.control.checkpoint.manifests.references import Reference, references
from autarky.control.checkpoint.manifests.revision import images, images_of_pod, is_checkpoint, revision_from_pod

__all__ = ["Reference", "images", "images_of_pod", "is_checkpoint", "references", "revision_from_pod"]
