"""Where autarky keeps things, on the user's machine and on hosts. The one place that names paths.

User: $XDG_CACHE_HOME/autarky (the content store), $XDG_STATE_HOME/autarky/{clusters,labs}/NAME.
Hosts: the constants below; they are part of the interface (docs/architecture.md).
"""

from __future__ import annotations

import os
from pathlib import Path

KUBERNETES = "/etc/kubernetes"
MANIFESTS = "/etc/kubernetes/manifests"
PKI = "/etc/kubernetes/pki"
HOST_ROOT = "/var/lib/autarky"
BIN = "/var/lib/autarky/bin"
STANDBY = "/var/lib/autarky/standby"
CHECKPOINTS = "/var/lib/autarky/checkpoints"
HOST_STATE = "/var/lib/autarky/state"
ETCD_FORMER = "/var/lib/autarky/state/etcd-former.json"
"""The static pod of etcd from before a change by `up` that has not been judged yet."""
ETCD_CHANGE = "/var/lib/autarky/state/etcd-change.json"
"""A change of this node's member by its node agent: under way, or given up."""
ETCD_FENCE = "/var/lib/autarky/state/etcd-fence.json"
"""Exists while a recovery of etcd is under way: no member starts on this host."""
ETCD_FENCED = "/var/lib/autarky/state/etcd-fenced.json"
"""The static pod that was taken away for it."""
ETCD_CLUSTER = "/var/lib/autarky/state/etcd-cluster"
"""The id of the cluster of etcd that this node's data belongs to, in hex, as its agent saw it."""
ETCD_RECOVERED = "/var/lib/autarky/state/etcd-recovered.json"
"""The last recovery of etcd that began on this host, and where the data from before it is."""
ETCD_COPY = "/var/lib/autarky/state/etcd-copy.json"
"""Exists on one control node while etcd is copied into the cluster (`phases.migration.marking`)."""
ETCD_COPIED = "/var/lib/autarky/state/etcd-copied.json"
"""The same afterwards: how the etcd that was copied can be opened."""
MEMBERS_FILE = "/var/lib/autarky/state/etcd-members.json"
"""On control nodes: the last known etcd members, kept by the node agent."""
NODE_MARKER = f"{HOST_STATE}/node.json"
"""The cluster and node that a host belongs to; on initial members also all of these. Written first, removed last."""
CLUSTER_RECORD = f"{HOST_STATE}/cluster.json"
"""On initial members: the cluster file as applied last, and the nodes."""
CLUSTER_KEYS = f"{HOST_STATE}/cluster-keys.json"
"""On initial members: the leaf certificates that `up` renders from, with their keys."""
LEAVES = "/var/lib/autarky/leaves"
"""On control nodes: the leaf certificates of the control plane's components, a directory for each of them."""
LEAVES_PLAN = "/var/lib/autarky/state/leaves.json"
"""Their last known specifications: enough to issue them without the API."""
CONTROL_NODE_STATE = f"{HOST_STATE}/control-node.json"
"""Progress of a node that its label is turning into a control node."""
RUN = "/run/autarky"
HOST_LOCK = "/run/autarky.lock"
"""Not below RUN, which `down` removes while it holds the lock."""
ETCD_DATA = "/var/lib/etcd"
ETCD_PKI = "/etc/kubernetes/pki/etcd"
"""For the node's own member, root only; empty on workers."""
ETCD_PEERS_CA = f"{ETCD_PKI}/peers-ca.crt"
"""The CAs of its peers, on a control node whose member has a borrowed certificate (`phases.migration.peering`)."""
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def stored_name(program: str, sha256: str) -> str:
    """How a program is named in a host's store: the name proves the content."""
    return f"{program}-{sha256[:16]}"


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    base = Path(value) if value.startswith("/") else Path.home() / default
    return base / "autarky"


def cache_dir() -> Path:
    """The content store and build scratch: may be deleted at any time; is rebuilt."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def releases_dir() -> Path:
    """The user's own release files. AUTARKY_RELEASES names another directory."""
    given = os.environ.get("AUTARKY_RELEASES")
    return Path(given) if given else _xdg("XDG_DATA_HOME", ".local/share") / "releases"


def state_dir() -> Path:
    """Clusters and labs: kubeconfigs, keys, journals. Losing it loses the CA keys kept here."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def cluster_dir(name: str) -> Path:
    return state_dir() / "clusters" / name


def lab_dir(name: str) -> Path:
    return state_dir() / "labs" / name
