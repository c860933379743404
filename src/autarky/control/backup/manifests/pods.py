"""The pod that makes an archive on a control node, or removes it.

It talks to no API and has no account: what it needs to know is in its environment, the node's keys and its etcd are
there, and what it did is the last thing that it says. It is root without capabilities, on the host network, since etcd
listens there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from autarky import places
from autarky.control.backup.decide.written_by import excerpt
from autarky.control.common.shapes import within
from autarky.control.etcd.decide.template import DEFAULT_QUOTA, QUOTA
from autarky.model.components import ETCD, NAME_LABEL
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
_MOST_BESIDE = 20
_PROGRAM_BYTES = 512 * 1024**2
"""Five times what the program has for a backup of 1 GB (`bench/backup.py`: at most 100 MB): whoever has the target must
not take the memory of a control node, and nothing depends on this pod."""
_TRIAL = 2
"""Times etcd's quota, for the etcd that tries the snapshot in the same pod. It has some 200 bytes of memory for each
key, of which Go may hold twice as much: where key and value have 200 bytes, that is this. Those of Kubernetes are
larger."""


def name(uid: str, verb: str, attempt: int) -> str:
    """Nobody but who may read Backups can guess it, so that no worker's mirror pod takes it first."""
    return f"{NAME}-{content_hash([uid, verb, attempt], 12)}"


def pod(
    backup: Object,
    verb: str,
    node: str,
    attempt: int,
    *,
    image: str,
    plane: Object | None,
    beside: Sequence[str] = (),
) -> Object:
    """plane: the ControlPlane, which says with which version the archive is to be read, and goes into it. beside: files
    that should be there too where one is removed; none of them is where the target's disk is not mounted."""
    meta, spec = backup["metadata"], backup["spec"]
    s3 = spec["target"].get("s3")
    request = {
        "verb": verb,
        "backup": meta["name"],
        "node": node,
        "target": spec["target"],
        "encryption": spec["encryption"],
        "file": (backup.get("status") or {}).get("file", ""),
        "beside": beside[:_MOST_BESIDE],
        "controlPlane": excerpt(plane),
    }
    directory = spec["target"].get("directory")
    outside = directory is not None and not f"{directory}/".startswith(f"{places.HOST_ROOT}/")
    container = pods.command_container(
        NAME,
        image,
        ["/usr/bin/python3", "-m", "autarky.agents.backup"],
        env=[{"name": REQUEST, "value": json.dumps(request)}, {"name": "PYTHONUNBUFFERED", "value": "1"}],
        resources={**pods.requests("50m", "96Mi"), "limits": {"memory": str(_most_memory(plane))}},
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


def _most_memory(plane: Object | None) -> int:
    """In bytes. A database that is larger than a quota below the default was there before."""
    said = (within(plane, "spec", "etcd", "quotaBytes"), within(plane, "spec", "componentArguments", ETCD, QUOTA))
    quotas = [int(one) for one in map(str, said) if re.fullmatch("[0-9]{1,15}", one)]
    return _PROGRAM_BYTES + _TRIAL * max([DEFAULT_QUOTA, *quotas])
