"""Checkpoint content: what of a live hosted pod becomes a revision of its standby.

    refusal      the rules that a refusal names
    references   which Secrets and ConfigMaps a pod uses, and their content
    volumes      volumes become root-only files on the node's disk
    containers   command lines, environment, probes and mounts
    defaults     what the API server fills in is taken away again, so that a name follows from content
    revision     the whole pod: the one function to call

Contract: pure, standard library only (the node agent imports it). The content comes from the live pod and
not from a template or the cluster file, so that it follows what users edit. Decided elsewhere: when a
checkpoint is taken and which revisions are kept (`decide.revisions`).
"""

from autarky.control.checkpoint.manifests.references import Reference, references
from autarky.control.checkpoint.manifests.revision import images, images_of_pod, is_checkpoint, revision_from_pod

__all__ = ["Reference", "images", "images_of_pod", "is_checkpoint", "references", "revision_from_pod"]
