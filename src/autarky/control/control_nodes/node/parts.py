"""What makes a node a control node, on its disk: standbys, the CAs, and the certificates that it signs with them.

Contract: everything may be interrupted anywhere and done again. A standby becomes the current one only when all other
parts are in place. Keys of leaf certificates are made here and never leave the node.

Dangers: whoever has these files is root in the cluster: 0600 in directories of 0700, each replaced in one rename.
"""

from __future__ import annotations

import base64
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from autarky import places
from autarky.clock import SystemClock
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.certificates.manifests.leaves import CONFIG_MAP, plan_in
from autarky.control.certificates.manifests.specs import renewal_certificate
from autarky.control.certificates.node import LeafKeeping
from autarky.control.checkpoint.manifests import images
from autarky.control.checkpoint.node.checkpointer import disk_of, write_revision
from autarky.control.checkpoint.node.reading import content_of_pod, pod_of_template
from autarky.control.control_nodes.manifests import AUTHORITIES, authority_key
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.kubelet.manifests.credentials import BOOTSTRAP_KUBECONFIG
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.control.slots.manifests import Revision
from autarky.control.slots.node import on_disk as slots_on_disk
from autarky.errors import ApiError, AutarkyError, UserError
from autarky.model import ports
from autarky.model.components import API_SERVER, COMPONENTS, NODE_AGENT, WITH_STANDBY
from autarky.pki.issue import issue_leaf
from autarky.pki.kept import read_authority
from autarky.ports import Cri, Kube, Object
from autarky.render.kubeconfig import RENEWER, embedded_certificate, pair_kubeconfig
from autarky.render.node import RECOVERY
from autarky.render.values import SYSTEM
from autarky.store import sync_directory, write_private

TEMPLATES = (*WITH_STANDBY, NODE_AGENT)
"""Components that a control node has as static pods, made from the hosted workloads."""
LOCAL_ETCD = f"https://127.0.0.1:{ports.NLLB_ETCD}"
PKI = Path(places.PKI)
ETCD_PKI = Path(places.ETCD_PKI)
BALANCER = Path(nllb.DIRECTORY)
WAY_BACK = Path(BOOTSTRAP_KUBECONFIG)


class NotYet(UserError):
    """Something that others do is not done yet; the message says what."""

    def __init__(self, what: str) -> None:
        super().__init__(what, fix="wait")


# --- what is there -----------------------------------------------------------------------------------------


def complete() -> str | None:
    """A short hash of the node's CAs, once it has a complete standby of each component and everything that its
    certificates are signed with; None while something is missing. The caller handles OSError."""
    for component in WITH_STANDBY:
        disk = disk_of(component)
        if disk is None or not {disk.current, disk.previous} & disk.complete:
            return None
    names = [name for name in RECOVERY if needs_etcd() or not name.startswith("etcd/")]
    if not all((PKI / name).exists() for name in names):
        return None
    if _mentioned(places.LEAVES) and not Path(places.LEAVES_PLAN).exists():
        return None
    cas = [(PKI / name).read_bytes() for name in names if name.endswith(".crt")]
    return sha256(b"".join(cas)).hexdigest()[:10]


def needs_etcd() -> bool:
    """Whether the API servers reach etcd through the node's load balancer; False for an external etcd."""
    return _mentioned(LOCAL_ETCD)


def _mentioned(what: str) -> bool:
    """Whether a standby of the API server mentions it."""
    pods = [path.read_bytes() for path in Path(places.STANDBY, API_SERVER).glob("*/pod.json")]
    return any(what.encode() in pod for pod in pods)  # bytes: a damaged file does not hide the others


# --- standbys ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ControlParts:
    """Makes the parts of one node. `address`: that of its Node."""

    node: str
    kube: Kube
    cri: Cri

    async def revisions(self) -> list[Revision]:
        """The standbys, made from the hosted workloads as they are now. NotYet without permission to read them, or if
        an image is missing."""
        try:
            found = [await self._revision(component, COMPONENTS[component].kind) for component in TEMPLATES]
        except ApiError as error:
            if error.status == 403:
                raise NotYet("waiting for the operator to grant access") from error
            raise
        for revision in found:
            for image in images(revision):
                if not await self.cri.has_image(image):
                    raise NotYet(f"the image {image} is not on the node: `autarky up` brings what the cluster runs")
        return found

    async def _revision(self, component: str, kind: str) -> Revision:
        live = await self.kube.get("apps/v1", kind, component, SYSTEM)
        if live is None:
            raise NotYet(f"there is no {kind} {component}")
        pod = pod_of_template(component, live["spec"]["template"])
        if component == NODE_AGENT:
            pod = agent.standby_agent(pod)
        return (await content_of_pod(self.kube, pod)).revision(component)

    def write(self, revisions: list[Revision]) -> None:
        """Write them to the disk, but not as the current ones yet. One that is complete is left as it is."""
        for revision in revisions:
            disk = disk_of(revision.component)
            if disk is None or revision.name not in disk.complete:
                write_revision(revision)

    async def switch(self, revisions: list[Revision]) -> None:
        """Make the standbys current. A component with a complete current revision keeps it."""
        for revision in revisions:
            disk = disk_of(revision.component)
            if disk is None or disk.current not in disk.complete:
                await slots_on_disk.run_script("switch", revision.component, revision.name)

    # --- keys and certificates ---------------------------------------------------------------------------------

    async def authorities(self) -> None:
        """The CAs and service account keys, as on every control node: it signs its own certificates with them, and has
        everything that a recovery needs. NotYet without permission to read them."""
        data = await self._read("Secret", AUTHORITIES)
        for name in RECOVERY:
            if (content := data.get(authority_key(name))) is not None:
                mode = 0o644 if name == "ca.crt" else 0o600
                _write_if_new(PKI / name, base64.b64decode(content), mode)
        if "etcd-ca.crt" in data:
            _write_if_new(Path(nllb.ETCD_CA_PATH), base64.b64decode(data["etcd-ca.crt"]), 0o600)

    async def leaves(self, live: Object) -> bool:
        """All leaf certificates of this node; whether etcd's are among them. NotYet while one cannot be issued."""
        data = await self._read("ConfigMap", CONFIG_MAP)
        plan = {"data": data}
        keeping = LeafKeeping(
            self.node, self.kube, SystemClock(), lambda *_: None, lambda: plan, lambda: live, lambda: True
        )
        keeping.look()
        if keeping.trouble:
            raise NotYet("; ".join(f"{name}: {why}" for name, why in sorted(keeping.trouble.items())))
        return plan_in(plan).etcd

    async def _read(self, kind: str, name: str) -> Object:
        try:
            found = await self.kube.get("v1", kind, name, SYSTEM)
        except ApiError as error:
            if error.status == 403:
                raise NotYet("waiting for the operator to grant access") from error
            raise
        if found is None:
            raise NotYet(f"there is no {kind} {name}: `autarky up` creates it")
        data: Object = found.get("data") or {}
        return data


def _write_if_new(path: Path, content: bytes, mode: int) -> None:
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content, mode=mode)


# --- removing everything -----------------------------------------------------------------------------------


def has_standbys() -> bool:
    """Whether there is any standby, complete or not."""
    return Path(places.STANDBY).exists()


def remove_standbys() -> None:
    """The standby agents first: their sources are removed with the rest."""
    for path in slots_on_disk.manifest_paths_of(NODE_AGENT):
        path.unlink(missing_ok=True)
    root = Path(places.STANDBY)
    for pod in root.glob("*/*/pod.json"):  # first, so that a half-deleted standby counts as incomplete
        pod.unlink(missing_ok=True)
    if root.exists():
        shutil.rmtree(root)


def keep_way_back(node: str) -> str | None:
    """Write the credential with which a worker's kubelet can rejoin after its certificate has expired, if `up` has not
    provided it: signed while the CA's key is here. Returns why there is none, as a clause. An existing one stays: it
    may be recorded as the only valid one (`control.admission.decide.approval`)."""
    try:
        if WAY_BACK.exists() and embedded_certificate(WAY_BACK.read_bytes()) is not None:
            return None
        now = datetime.now(UTC)
        authority = read_authority(PKI, "ca", now)
        if authority is None:
            return "the key of the CA is not on this node"
        pair = issue_leaf(renewal_certificate(node), authority, "EC", now, timedelta(0))
        ca = (PKI / "ca.crt").read_bytes()
        cluster = role_on_disk.cluster() or "kubernetes"
        write_private(WAY_BACK, pair_kubeconfig(ca, cluster, RENEWER, pair.certificate, pair.key))
    except (AutarkyError, OSError) as error:
        return str(error)
    return None


def remove_credentials() -> None:
    """Keys first: those of the cluster's CAs, all of etcd's, and those of its leaves. Other control nodes have the CA
    keys as well: the last control node always stays one."""
    keys_first = sorted(PKI.glob("*"), key=lambda one: one.suffix != ".key")
    for path in keys_first:
        if path.is_file() and path.name != "ca.crt":  # which every node has
            path.unlink(missing_ok=True)
    for path in (Path(places.CLUSTER_KEYS), Path(places.CLUSTER_RECORD)):
        path.unlink(missing_ok=True)
    leaves = [path for path in Path(places.LEAVES).glob("*/*") if path.is_file()]
    for path in sorted([*ETCD_PKI.glob("*"), *leaves], key=lambda one: one.suffix != ".key"):
        path.unlink(missing_ok=True)
    shutil.rmtree(places.LEAVES, ignore_errors=True)
    Path(places.LEAVES_PLAN).unlink(missing_ok=True)
    for name in ("etcd-client.pem", "etcd-ca.crt"):
        (BALANCER / name).unlink(missing_ok=True)


def sync_removals() -> None:
    """So that a power cut brings nothing back of what was removed: the node soon forgets that it was a control node."""
    removed = (places.STANDBY, places.LEAVES, places.LEAVES_PLAN, places.CLUSTER_KEYS, places.CLUSTER_RECORD)
    for directory in {Path(places.MANIFESTS), PKI, ETCD_PKI, BALANCER, *(Path(one).parent for one in removed)}:
        if directory.exists():
            sync_directory(directory)


def has_etcd_member() -> bool:
    """Whether etcd's static pod exists. OSError."""
    return any(path.match("etcd-*.json") for path in Path(places.MANIFESTS).iterdir())
