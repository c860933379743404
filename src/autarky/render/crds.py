"""The ControlPlane resource: one cluster-scoped object `cluster`, the desired state of the control plane.

`up` writes its spec, the operator its status. Deleting it (or the CRD) stops nothing (rule 10).
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.common.understood import ASKED, LEAST_QUOTA, MOST_QUOTA
from autarky.control.common.understood import VERSION as VERSION_PATTERN
from autarky.control.etcd.decide.membership import MOST_MEMBERS, REPLACE_SECONDS
from autarky.control.kubelet.decide.pools import Drain
from autarky.model import kubelets
from autarky.model.cluster import MOST_SOAK_SECONDS, Cluster
from autarky.model.defaults import FIRST
from autarky.model.etcd_members import ETCD_VERSION
from autarky.model.levels import TEXTS
from autarky.model.names import LABEL
from autarky.render.values import Object, metadata

GROUP = "autarky.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CONTROL_PLANE = "cluster"
NODE_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def definition(
    kind: str, plural: str, schema: Object, columns: Sequence[Object], short_names: Sequence[str] = ()
) -> Object:
    """The CustomResourceDefinition of one of our kinds: cluster-scoped, one version, its status a subresource."""
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": list(columns),
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata(f"{plural}.{GROUP}"),
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": names | ({"shortNames": list(short_names)} if short_names else {}),
            "versions": [version],
        },
    }


def control_plane_crd() -> Object:
    columns: list[Object] = [
        {"name": "Version", "type": "string", "jsonPath": ".status.version"},
        {"name": "Wanted", "type": "string", "jsonPath": ".spec.version"},
        {"name": "Upgrade", "type": "string", "jsonPath": ".status.upgrade.state"},
        {"name": "At", "type": "string", "jsonPath": ".status.upgrade.component"},
        {"name": "Self-Hosted", "type": "string", "jsonPath": ".spec.selfHosted"},
        {
            "name": "Progress",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="SpecApplied")].message',
            "priority": 1,
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return definition("ControlPlane", "controlplanes", _schema(), columns, short_names=["cp"])


def _schema() -> Object:
    arguments = {
        "type": "object",
        "maxProperties": 200,
        "additionalProperties": {"type": "string", "maxLength": 4096},
        "x-kubernetes-validations": [
            {
                "rule": "self.all(name, name.matches('^[a-zA-Z0-9][a-zA-Z0-9._-]*$'))",
                "message": 'an argument is named without its leading dashes, as in "v"',
            }
        ],
    }
    spec: Object = {
        "type": "object",
        "required": ["version", "selfHosted"],
        "properties": {
            "version": {
                "type": "string",
                "pattern": VERSION_PATTERN,
                "maxLength": 32,
                "description": "The Kubernetes version of the control plane.",
            },
            "selfHosted": {
                "type": "string",
                "enum": list(TEXTS),
                "description": "The levels that run from API objects; the others run as static pods, the"
                " kubelet as a unit of its host.",
            },
            "componentArguments": {
                "type": "object",
                "default": {},  # for the null that server-side apply leaves when the last argument is removed
                "maxProperties": 20,
                "additionalProperties": arguments,
                "description": "Extra command-line arguments, by component.",
            },
            "rollback": {
                "type": "object",
                "properties": {
                    "enabled": {"type": "boolean", "default": True},
                    "limitSeconds": {"type": "integer", "minimum": 10, "maximum": 86400, "default": 90},
                },
                "description": "When a rollout of a control plane component goes back by itself.",
            },
            "paused": {
                "type": "boolean",
                "description": "No further step of an upgrade is taken while this is true.",
            },
            "upgrade": {
                "type": "object",
                "default": {},  # as above
                "properties": {
                    "soakSeconds": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": MOST_SOAK_SECONDS,
                        "description": "For how long the components of a later minor emulate the minor before it,"
                        " before they are raised to their own. 0: not at all; set while they do, it raises them at"
                        " once.",
                    },
                },
                "description": "How the control plane gets another version.",
            },
            "kubelets": {
                "type": "object",
                "default": {},  # as above
                "properties": {
                    "follow": {
                        "type": "boolean",
                        "description": "Kubelets get the control plane's version: up after it, down before it.",
                    },
                    "runtime": {
                        **_runtime(),
                        "description": "The image with containerd and runc; without one, those of each node stay.",
                    },
                    "asked": {
                        "type": "string",
                        "pattern": ASKED,
                        "maxLength": 64,
                        "description": "Any other text than before has what failed tried again.",
                    },
                },
                "description": "How kubelets change.",
            },
            "pools": _pools(),
            "defaults": {
                "type": "integer",
                "minimum": FIRST,
                "default": FIRST,
                "description": "The edition of defaults that the cluster has. Its file sets it.",
            },
            "etcd": {
                "type": "object",
                "properties": {
                    "members": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": NODE_NAME},
                        "minItems": 1,
                        "maxItems": 7,
                        "x-kubernetes-list-type": "set",
                        "description": "The control nodes that have a member of etcd. Without it: every control"
                        f" node, at most {MOST_MEMBERS}.",
                    },
                    "version": {
                        "type": "string",
                        "pattern": ETCD_VERSION,
                        "description": "Of etcd, such as 3.6.16. Without it: the one that belongs to the version of"
                        " Kubernetes. Its image must be on the control nodes, or in a registry.",
                    },
                    "quotaBytes": {
                        "type": "integer",
                        "format": "int64",
                        "minimum": LEAST_QUOTA,
                        "maximum": MOST_QUOTA,
                        "description": "Most bytes of its database. etcd's own default is 2 GiB.",
                    },
                    "replaceAfterSeconds": {
                        "type": "integer",
                        "minimum": 60,
                        "maximum": 604800,
                        "description": "A member that has not answered for so long gives its place to a control node"
                        f" that waits for one. Default: {REPLACE_SECONDS:.0f}.",
                    },
                },
                "description": "Which nodes etcd runs on, and its version (where level 1 is hosted). Its arguments"
                " are in componentArguments.etcd.",
            },
        },
    }
    texts = ("type", "status", "reason", "message", "lastTransitionTime")
    condition: Object = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {name: {"type": "string"} for name in texts},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    status: Object = {
        "type": "object",
        "properties": {"conditions": {"type": "array", "items": condition}},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    only_one = {"rule": f"self.metadata.name == '{CONTROL_PLANE}'", "message": f"the only name is {CONTROL_PLANE}"}
    return {
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": [only_one],
        "properties": {"spec": spec, "status": status},
    }


def _runtime() -> Object:
    return {"type": "string", "pattern": f"^{kubelets.REFERENCE}$", "maxLength": 255}


def _pools() -> Object:
    """`control.kubelet.decide.pools` judges what is asked for here; what that refuses changes no kubelet."""
    nodes: Object = {
        "type": "object",
        "properties": {
            "controlPlane": {"type": "boolean", "description": "It has control nodes, and not workers."},
            "matchLabels": {
                "type": "object",
                "maxProperties": kubelets.MOST_LABELS,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
        },
    }
    kubelet: Object = {
        "type": "object",
        "properties": {
            "configuration": {
                "type": "object",
                "maxProperties": kubelets.MOST_SETTINGS,
                "x-kubernetes-preserve-unknown-fields": True,
                "description": "Fields of the KubeletConfiguration that are set on the nodes of the pool.",
            }
        },
    }
    pool: Object = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "pattern": f"^{LABEL}$", "maxLength": 63},
            "nodes": nodes,
            "order": {"type": "integer", "minimum": 0, "maximum": kubelets.MOST_ORDER},
            "atOnce": {"type": "integer", "minimum": 1, "maximum": kubelets.MOST_AT_ONCE},
            "drain": {"type": "string", "enum": list(map(str, Drain))},
            "drainSeconds": {"type": "integer", "minimum": 1, "maximum": kubelets.MOST_DRAIN_SECONDS},
            "version": {"type": "string", "pattern": VERSION_PATTERN, "maxLength": 32},
            "runtime": _runtime(),
            "kubelet": kubelet,
        },
    }
    return {
        "type": "array",
        "maxItems": kubelets.MOST_POOLS,
        "items": pool,
        # As one value: of a pool that somebody has edited, half would stay when the file no longer has it.
        "x-kubernetes-list-type": "atomic",
        "description": "Groups of nodes whose kubelets change together, each with its own order, drains, version and"
        f" settings. Nodes in none of them are in {kubelets.WORKERS} or {kubelets.CONTROL_NODES}.",
    }


def control_plane(cluster: Cluster) -> Object:
    """The one ControlPlane object, from the cluster file."""
    arguments = {component: dict(values) for component, values in cluster.extra_args.items() if values}
    return {
        "apiVersion": API_VERSION,
        "kind": "ControlPlane",
        "metadata": metadata(CONTROL_PLANE),
        "spec": {
            "version": str(cluster.kubernetes_version),
            "selfHosted": cluster.self_hosted_text,
            "componentArguments": arguments,
            "rollback": {"enabled": cluster.rollback.enabled, "limitSeconds": cluster.rollback.limit_seconds},
            "defaults": cluster.defaults,
            "kubelets": {
                "follow": cluster.kubelets_follow,
                **({"runtime": cluster.container_runtime} if cluster.container_runtime else {}),
            },
            **({"pools": [dict(pool) for pool in cluster.pools]} if cluster.pools else {}),
            **({} if cluster.soak_seconds is None else {"upgrade": {"soakSeconds": cluster.soak_seconds}}),
            **({} if cluster.etcd_version is None else {"etcd": {"version": str(cluster.etcd_version)[1:]}}),
        },
    }
