"""The file system that HAProxy has in its container, unpacked once per run."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from autarky.control.load_balancer.manifests.haproxy import COMPONENT
from autarky.payload import Store, default_version, load_release
from autarky.payload.artefacts import image_layers
from autarky.payload.debian import debian_key
from autarky.payload.layers import stored_layer


@pytest.fixture(scope="session")
def haproxy_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, store, release = tmp_path_factory.mktemp("haproxy"), Store(), load_release(default_version())
    for name in image_layers(release, release.image(COMPONENT)):
        layer = stored_layer(store, debian_key(release, release.layer(name)))
        if layer is None:
            pytest.fail(f"the layer {name} is not in the store; fix: run `autarky payload get`")
        with tarfile.open(layer.path) as archive:
            archive.extractall(root, filter="tar")
    return root
