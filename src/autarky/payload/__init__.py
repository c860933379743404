"""Component supply: release files, content store, builds, images. See docs/architecture.md."""

from autarky.payload.artefacts import Artefact, Binary, Image, Payload, find_binary, needs, stored_artefacts
from autarky.payload.etcd_versions import etcd_version, known_etcd_versions, load_etcd, release_of, with_etcd
from autarky.payload.get import get_payload
from autarky.payload.release import (
    GROUPS,
    Release,
    default_version,
    image_reference,
    known_versions,
    load_release,
    unusable_files,
    versions_of_files,
)
from autarky.payload.store import Store
from autarky.payload.template import containerd_template, copy_template
from autarky.payload.upkeep import prune_store, verify_store

__all__ = [
    "GROUPS",
    "Artefact",
    "Binary",
    "Image",
    "Payload",
    "Release",
    "Store",
    "containerd_template",
    "copy_template",
    "default_version",
    "etcd_version",
    "find_binary",
    "get_payload",
    "image_reference",
    "known_etcd_versions",
    "known_versions",
    "load_etcd",
    "load_release",
    "needs",
    "prune_store",
    "release_of",
    "stored_artefacts",
    "unusable_files",
    "verify_store",
    "versions_of_files",
    "with_etcd",
]
