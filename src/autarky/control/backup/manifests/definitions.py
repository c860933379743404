"""Backup and BackupSchedule, as the API has them.

Whoever may create a Backup chooses for whom all keys of the cluster are encrypted, and where they go: that right is an
administrator's. No role that comes with Kubernetes has it.
"""

from __future__ import annotations

from autarky.render.crds import API_VERSION, NODE_NAME, definition
from autarky.render.values import Object

BACKUP, SCHEDULE = "Backup", "BackupSchedule"
BACKUPS, SCHEDULES = "backups", "backupschedules"
KEPT, REMOVED = "Kept", "Removed"
OF_SCHEDULE = "autarky.dev/backup-schedule"
"""Label of a Backup: the schedule that asked for it."""
DEFAULT_DIRECTORY = "/var/lib/autarky/backups"
DEFAULT_COUNT = 10
NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
MOST_NAME = 63
INTERVAL = r"^[1-9][0-9]{0,3}[mhd]$"


def objects() -> list[Object]:
    return [
        definition(BACKUP, BACKUPS, _backup(), _BACKUP_COLUMNS),
        definition(SCHEDULE, SCHEDULES, _schedule(), _SCHEDULE_COLUMNS),
    ]


_BACKUP_COLUMNS: list[Object] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Node", "type": "string", "jsonPath": ".status.node"},
    {"name": "Size", "type": "integer", "jsonPath": ".status.size"},
    {"name": "Keys", "type": "integer", "jsonPath": ".status.keys"},
    {"name": "Verified", "type": "date", "jsonPath": ".status.verified"},
    {"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_SCHEDULE_COLUMNS: list[Object] = [
    {"name": "Every", "type": "string", "jsonPath": ".spec.every"},
    {"name": "Paused", "type": "boolean", "jsonPath": ".spec.paused"},
    {"name": "Last", "type": "date", "jsonPath": ".status.lastVerified"},
    {"name": "Message", "type": "string", "jsonPath": ".status.message"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def _text(most: int, **more: object) -> Object:
    return {"type": "string", "maxLength": most, **more}


def _template() -> Object:
    """What of a Backup a schedule repeats."""
    s3: Object = {
        "type": "object",
        "required": ["bucket", "credentialsSecret"],
        "properties": {
            "bucket": _text(63, minLength=3),
            "endpoint": _text(
                253,
                pattern="^https?://",
                description="The URL of the server; without it Amazon's. Without TLS where it begins with http.",
            ),
            "region": _text(63, default="us-east-1"),
            "prefix": _text(200, pattern="^[^/].*[^/]$", description="Of the names in the bucket."),
            "credentialsSecret": _text(
                253,
                minLength=1,
                description="In kube-system, with accessKeyID and secretAccessKey; caCertificates, in PEM, where the"
                " server's certificate is signed by a CA that is not publicly known.",
            ),
        },
    }
    directory = _text(
        253,
        pattern="^/[^/].*[^/]$",
        description=f"On the node; it has to exist, unless it is {DEFAULT_DIRECTORY}.",
    )
    target: Object = {
        "type": "object",
        "default": {"directory": DEFAULT_DIRECTORY},
        "properties": {"directory": directory, "s3": s3},
        "x-kubernetes-validations": [
            {"rule": "has(self.directory) != has(self.s3)", "message": "it is either a directory or s3"},
            {
                "rule": "!has(self.directory) || !self.directory.matches('^/(etc|proc|sys|dev|run|usr|boot)(/.*)?$')"
                " && !self.directory.contains('/../') && !self.directory.endsWith('/..')",
                "message": "the directory is not one for backups",
            },
        ],
    }
    encryption: Object = {
        "type": "object",
        "required": ["recipients"],
        "properties": {
            "recipients": {
                "type": "array",
                "minItems": 1,
                "maxItems": 20,
                "items": _text(1000, pattern="^(age1|ssh-)"),
                "description": "Of age (age1…), or SSH public keys: each of them can open the archive.",
            },
            "identity": _text(
                8192,
                pattern="^-----BEGIN AGE ENCRYPTED FILE-----",
                description="The identity of one of them, encrypted with a passphrase by age; the archive begins with"
                " it.",
            ),
        },
    }
    return {
        "node": _text(253, pattern=NODE_NAME, description="The control node that makes it; without it, any."),
        "target": target,
        "encryption": encryption,
    }


def _backup() -> Object:
    spec: Object = {
        "type": "object",
        "required": ["encryption"],
        "properties": {
            **_template(),
            "state": {
                "type": "string",
                "enum": [KEPT, REMOVED],
                "default": KEPT,
                "description": "Removed: the archive is removed, then this object. Deleting this object removes no"
                " archive.",
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": "self.target == oldSelf.target && self.encryption == oldSelf.encryption &&"
                " (has(self.node) ? self.node : '') == (has(oldSelf.node) ? oldSelf.node : '')",
                "message": "only its state can be changed",
            }
        ],
    }
    texts = ("phase", "node", "message", "sha256", "started", "made", "etcdVersion", "kubernetesVersion")
    status: Object = {
        "type": "object",
        "properties": {
            **{name: {"type": "string"} for name in texts},
            "verified": {"type": "string", "format": "date-time"},
            "file": {"type": "string", "maxLength": 253, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"},
            **{name: {"type": "integer", "format": "int64"} for name in ("size", "revision", "keys", "attempt")},
        },
    }
    return {
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [
            {"rule": f"self.metadata.name.size() <= {MOST_NAME}", "message": f"a name has at most {MOST_NAME} letters"},
            {"rule": f"self.metadata.name.matches('{NAME}')", "message": "a name has no dots"},
        ],
        "properties": {"spec": spec, "status": status},
    }


def _schedule() -> Object:
    keep: Object = {
        "type": "object",
        "default": {"count": DEFAULT_COUNT},
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": DEFAULT_COUNT},
            "days": {"type": "integer", "minimum": 1, "maximum": 36500},
        },
        "description": "How many complete backups, and how old ones, are kept. The newest one is always kept.",
    }
    spec: Object = {
        "type": "object",
        "required": ["every", "template"],
        "properties": {
            "every": _text(5, pattern=INTERVAL, description="Minutes, hours or days: 30m, 6h, 1d."),
            "paused": {"type": "boolean", "default": False},
            "keep": keep,
            "template": {"type": "object", "required": ["encryption"], "properties": _template()},
        },
    }
    status: Object = {
        "type": "object",
        "properties": {
            "lastBackup": {"type": "string"},
            "lastVerified": {"type": "string", "format": "date-time"},
            "message": {"type": "string"},
        },
    }
    longest = MOST_NAME - len("-20261126-030000")
    return {
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [
            {"rule": f"self.metadata.name.size() <= {longest}", "message": f"a name has at most {longest} letters"},
            {"rule": f"self.metadata.name.matches('{NAME}')", "message": "a name has no dots"},
        ],
        "properties": {"spec": spec, "status": status},
    }


def backup(name: str, template: Object, schedule: str | None = None) -> Object:
    """A Backup; `template`: its node, target and encryption."""
    labels = {} if schedule is None else {OF_SCHEDULE: schedule}
    return {
        "apiVersion": API_VERSION,
        "kind": BACKUP,
        "metadata": {"name": name, "labels": labels},
        "spec": {**template, "state": KEPT},
    }
