"""The pod that makes an archive on a control node, or removes it.

It talks to no API and has no account: what it needs to know is in its environment, the node's keys and its etcd are
there, and what it did is the last thing that it says. It is root without capabilities, on the host network, since etcd
listens there.
"""

from __future__ import annotations

import json

from autarky import places
from autarky.control.backup.decide.written_by import excerpt
from autarky.model.components import NAME_LABEL
from autarky.render import pods
from autarky.render.cluster_record import CONFIG_MAP
from autarky.render.values import MANAGED_BY, SYSTEM, Object, content_hash

NAME = "autarky-backup"
REQUEST = "AUTARKY_REQUEST"
"""Environment variable: what to do, as JSON."""
BACKUP_LABEL = "autarky.dev/backup"
VERB = "autarky.dev/backup-verb"
CREDENTIALS = "/run/secrets/s3"
RECORD = "/run/cluster-record"
KEY_ID, SECRET_KEY, CA_CERTIFICATES = "accessKeyID", "secretAccessKey", "caCertificates"
SAID = "/dev/termination-log"
ELSEWHERE = "elsewhere"
"""In what it says, beside an error: it is one of this node, and another one may do it."""
LONGEST_SECONDS = 6 * 3600


def name(uid: str, verb: str, attempt: int) -> str:
    """Nobody but who may read Backups can guess it, so that no worker's mirror pod takes it first."""
    return f"{NAME}-{content_hash([uid, verb, attempt], 12)}"


def pod(backup: Object, verb: str, node: str, attempt: int, *, image: str, plane: Object | None) -> Object:
    """plane: the ControlPlane, which says with which version the archive is to be read, and goes into it."""
    meta, spec = backup["metadata"], backup["spec"]
    s3 = spec["target"].get("s3")
    request = {
        "verb": verb,
        "backup": meta["name"],
        "node": node,
        "target": spec["target"],
        "encryption": spec["encryption"],
        "file": (backup.get("status") or {}).get("file", ""),
        "controlPlane": excerpt(plane),
    }
    directory = spec["target"].get("directory")
    outside = directory is not None and not f"{directory}/".startswith(f"{places.HOST_ROOT}/")
    container = pods.command_container(
        NAME,
        image,
        ["/usr/bin/python3", "-m", "autarky.agents.backup"],
        env=[{"name": REQUEST, "value": json.dumps(request)}, {"name": "PYTHONUNBUFFERED", "value": "1"}],
        resources=pods.requests("50m", "96Mi"),
        volumeMounts=[
            pods.mount("kubernetes", places.KUBERNETES),
            pods.mount("state", places.HOST_ROOT, read_only=False, follows_host=True),
            pods.mount("record", RECORD),
            *([pods.mount("target", directory, read_only=False)] if outside else []),
            *([pods.mount("credentials", CREDENTIALS)] if s3 else []),
        ],
        securityContext=pods.restricted_container(user=0),
    )
    volumes = [
        pods.host_volume("kubernetes", places.KUBERNETES, "Directory"),
        pods.host_volume("state", places.HOST_ROOT, "Directory"),
        {"name": "record", "configMap": {"name": CONFIG_MAP, "optional": True}},
        *([pods.host_volume("target", directory, "Directory")] if outside else []),
        *([pods.secret_volume("credentials", s3["credentialsSecret"])] if s3 else []),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(meta["uid"], verb, attempt),
            "namespace": SYSTEM,
            "labels": {**MANAGED_BY, NAME_LABEL: NAME, BACKUP_LABEL: meta["name"], VERB: verb},
        },
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "priorityClassName": pods.CLUSTER_CRITICAL,
            "tolerations": pods.TOLERATE_ALL,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 5,
            "activeDeadlineSeconds": LONGEST_SECONDS,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": volumes,
        },
    }
