"""The standby of an API server that encrypts what it stores, as a backup has it."""

from __future__ import annotations

import base64

from autarky import places
from autarky.archive.contents import HOST
from autarky.control.checkpoint.manifests import revision_from_pod
from autarky.model.components import API_SERVER
from autarky.render.values import Object
from fakes.clusters import a_cluster, inputs_of
from fakes.hosted_pods import completed, contents_of, hosted_objects, pod_of_template

CONFIGURATION = "kind: EncryptionConfiguration\nresources: [{providers: [{secretbox: {keys: []}}]}]\n"
MOUNT = "/etc/encryption"
IN_SECRET: Object = {"secret": {"secretName": "encryption"}}


def on_host(directory: str) -> Object:
    return {"hostPath": {"path": directory, "type": "Directory"}}


def hosted(
    volume: Object, *flags: str, mount: Object | None = None
) -> tuple[Object, dict[str, Object | None], dict[str, Object | None]]:
    """A live API server to which somebody has given an encryption configuration from that volume, and the Secrets and
    ConfigMaps that it names. flags: how; mount: what its mount says besides."""
    objects = hosted_objects(inputs_of(a_cluster()), API_SERVER)
    pod = completed(pod_of_template(objects))
    container = next(one for one in pod["spec"]["containers"] if one["name"] == API_SERVER)
    container["command"] += flags or (f"--encryption-provider-config={MOUNT}/config.yaml",)
    container["volumeMounts"].append({"name": "encryption", "mountPath": MOUNT, "readOnly": True, **(mount or {})})
    pod["spec"]["volumes"].append({"name": "encryption", **volume})
    secrets, config_maps = contents_of(objects)
    return pod, {**secrets, "encryption": _secret()}, config_maps


def archived(volume: Object = IN_SECRET, *flags: str, mount: Object | None = None) -> dict[str, bytes]:
    """The files of its standby, by their names in an archive."""
    revision = revision_from_pod(API_SERVER, *hosted(volume, *flags, mount=mount))
    current = f"{HOST}{places.STANDBY.removeprefix('/')}/{API_SERVER}/current"
    return {file.path.replace(revision.directory, current): file.content for file in revision.files}


def _secret() -> Object:
    data = {"config.yaml": base64.b64encode(CONFIGURATION.encode()).decode()}
    return {"kind": "Secret", "metadata": {"name": "encryption"}, "data": data}
