"""What makes a node a control node, on its disk: standbys, etcd certificates, the load balancer's credentials.

Contract: everything may be cut anywhere and done again. A standby becomes the current one only when all the rest is
there; a certificate is verified before anything uses it. Keys are made here and never leave the node.

Dangers: the files are root over the cluster: 0600 in directories of 0700, each replaced in one rename.
"""

from __future__ import annotations

import base64
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from autarky import places
from autarky.agents.node import slots_on_disk
from autarky.agents.node.checkpointer import disk_of, write_revision
from autarky.decide import etcd_approval
from autarky.duties.certificates import CSR
from autarky.errors import ApiError, Conflict, UserError
from autarky.model import ports
from autarky.pki.check import why_unfit
from autarky.pki.issue import Pair, request_for
from autarky.pki.keys import PrivateKey, key_pem, load_key, new_key, public_pem
from autarky.ports import Cri, Kube, Object
from autarky.render import agent, api_server, controllers, nllb, standby
from autarky.render.certificates import etcd_certificate
from autarky.render.checkpoint import images, references, revision_from_pod
from autarky.render.standby import Revision
from autarky.render.values import SYSTEM
from autarky.store import write_private

TEMPLATES = {
    api_server.COMPONENT: "DaemonSet",
    controllers.CONTROLLER_MANAGER: "Deployment",
    controllers.SCHEDULER: "Deployment",
    agent.COMPONENT: "DaemonSet",
}
"""Component → the kind of its hosted workload."""
LOCAL_ETCD = f"https://127.0.0.1:{ports.NLLB_ETCD}"
PKI = Path(places.PKI)
ETCD_PKI = Path(places.ETCD_PKI)
BALANCER = Path(nllb.DIRECTORY)


class NotYet(UserError):
    """Something that others do is not done yet; the sentence says what."""

    def __init__(self, what: str) -> None:
        super().__init__(what, fix="wait")


# --- what is there -----------------------------------------------------------------------------------------


def whole() -> str | None:
    """A short name for the credentials that are there, once a complete standby of each component is there as well;
    None while something is missing. OSError is for the caller."""
    for component in standby.COMPONENTS:
        disk = disk_of(component)
        if disk is None or not {disk.current, disk.previous} & disk.complete:
            return None
    if not needs_etcd():
        return sha256(b"external etcd").hexdigest()[:10]
    try:
        pairs = [_pair_on_disk(role) for role in ("server", "peer")]
        ca = (ETCD_PKI / "ca.crt").read_bytes()
        (BALANCER / "etcd-client.pem").read_bytes()
    except OSError:
        return None
    return (
        None if None in pairs else sha256(ca + b"".join(p.certificate for p in pairs if p is not None)).hexdigest()[:10]
    )


def needs_etcd() -> bool:
    """Whether the API servers reach etcd through the node's load balancer; not so for one that others run."""
    texts = [path.read_text() for path in Path(places.STANDBY, api_server.COMPONENT).glob("*/pod.json")]
    return any(LOCAL_ETCD in text for text in texts)


# --- standbys ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ControlParts:
    """Makes the parts of one node. `address`: that of its Node."""

    node: str
    kube: Kube
    cri: Cri

    async def revisions(self) -> list[Revision]:
        """The standbys, as the hosted workloads are now. NotYet without the right to read them, or an image."""
        try:
            found = [await self._revision(component, kind) for component, kind in TEMPLATES.items()]
        except ApiError as error:
            if error.status == 403:
                raise NotYet("it waits for the operator's leave") from error
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
        template = live["spec"]["template"]
        meta = {"name": component, "namespace": SYSTEM, **template["metadata"]}
        pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}
        if component == agent.COMPONENT:
            pod = agent.parked(pod)
        contents = {one: await self.kube.get("v1", one.kind, one.name, SYSTEM) for one in references(pod)}
        secrets = {one.name: obj for one, obj in contents.items() if one.kind == "Secret"}
        config_maps = {one.name: obj for one, obj in contents.items() if one.kind == "ConfigMap"}
        return revision_from_pod(component, pod, secrets, config_maps)

    def write(self, revisions: list[Revision]) -> None:
        """On the disk, but not yet the current ones. One that is complete is left as it is."""
        for revision in revisions:
            disk = disk_of(revision.component)
            if disk is None or revision.name not in disk.complete:
                write_revision(revision)

    async def switch(self, revisions: list[Revision]) -> None:
        """From now on the standbys count. One that has a complete current revision keeps it."""
        for revision in revisions:
            disk = disk_of(revision.component)
            if disk is None or disk.current not in disk.complete:
                await slots_on_disk.run_script("switch", revision.component, revision.name)

    # --- etcd --------------------------------------------------------------------------------------------------

    async def etcd_credentials(self, ca_pem: bytes, address: str) -> None:
        """Certificates for a member of its own, and what the load balancer asks members' health with."""
        ETCD_PKI.mkdir(mode=0o700, parents=True, exist_ok=True)
        ETCD_PKI.chmod(0o700)
        _write_if_new(ETCD_PKI / "ca.crt", ca_pem)
        open_: list[NotYet] = []
        for signer, role in etcd_approval.SIGNERS.items():
            try:
                await self._certificate(signer, role, ca_pem, address)
            except NotYet as error:  # all are asked for at once
                open_.append(error)
        if open_:
            raise open_[0]
        client = _pair_on_disk("client")
        if client is not None:
            _write_if_new(BALANCER / "etcd-ca.crt", ca_pem)
            _write_if_new(BALANCER / "etcd-client.pem", client.certificate + client.key)

    async def _certificate(self, signer: str, role: str, ca_pem: bytes, address: str) -> None:
        """Ask for it with the key that is there; a key whose request was turned down is thrown away."""
        spec = etcd_certificate(role, self.node, address)
        pair = _pair_on_disk(role)
        now = datetime.now(UTC)
        if pair is not None and why_unfit(pair, spec, ca_pem, now) is None:
            return
        key = _own_key(role)
        name = f"autarky-etcd-{role}-{self.node}-{_fingerprint(key)}"
        usages = etcd_approval.CLIENT_USAGES if role == "client" else etcd_approval.MEMBER_USAGES
        csr = await self.kube.get(*CSR, name)
        if csr is None:
            csr = await self._ask(name, signer, usages, request_for(spec, key))
        if refused := _turned_down(csr):
            (ETCD_PKI / f"{role}.key").unlink(missing_ok=True)
            raise NotYet(f"the request {name} was turned down: {refused}")
        issued = (csr.get("status") or {}).get("certificate")
        if not issued:
            raise NotYet(f"the request {name} is not signed yet")
        certificate = base64.b64decode(issued)
        if unfit := why_unfit(Pair(certificate, key_pem(key)), spec, ca_pem, now):
            (ETCD_PKI / f"{role}.key").unlink(missing_ok=True)
            raise NotYet(f"the certificate of {name} cannot be used: {unfit}")
        write_private(ETCD_PKI / f"{role}.crt", certificate)

    async def _ask(self, name: str, signer: str, usages: tuple[str, ...], request: bytes) -> Object:
        spec = {"request": base64.b64encode(request).decode(), "signerName": signer, "usages": list(usages)}
        api_version, kind = CSR
        obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        try:
            return await self.kube.create(obj)
        except Conflict as error:  # an earlier run has asked
            raise NotYet(f"the request {name} is not signed yet") from error


def etcd_ca_of(revisions: list[Revision]) -> bytes | None:
    """The CA of etcd, as the API server's own files have it; None where etcd is somebody else's."""
    server = next(one for one in revisions if one.component == api_server.COMPONENT)
    if LOCAL_ETCD not in server.files[-1].content.decode():
        return None
    return next((file.content for file in server.files if file.path.endswith("/etcd-ca.crt")), None)


def _pair_on_disk(role: str) -> Pair | None:
    try:
        return Pair((ETCD_PKI / f"{role}.crt").read_bytes(), (ETCD_PKI / f"{role}.key").read_bytes())
    except FileNotFoundError:
        return None


def _own_key(role: str) -> PrivateKey:
    """That of an earlier run, or a new one, which is on the disk before anything is asked for it."""
    path = ETCD_PKI / f"{role}.key"
    try:
        return load_key(path.read_bytes())
    except (FileNotFoundError, ValueError):
        key = new_key("EC")
        write_private(path, key_pem(key))
        return key


def _fingerprint(key: PrivateKey) -> str:
    return sha256(public_pem(key)).hexdigest()[:16]


def _turned_down(csr: Object) -> str:
    conditions = (csr.get("status") or {}).get("conditions") or ()
    return next(
        (one.get("message", "no reason given") for one in conditions if one["type"] in ("Denied", "Failed")), ""
    )


def _write_if_new(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


# --- taking it all away ------------------------------------------------------------------------------------


def has_standbys() -> bool:
    """Whether there is anything of one, complete or not."""
    return Path(places.STANDBY).exists()


def remove_standbys() -> None:
    """The parked agents first: what they are made from goes with the rest."""
    for path in slots_on_disk.manifest_paths_of(agent.COMPONENT):
        path.unlink(missing_ok=True)
    root = Path(places.STANDBY)
    for pod in root.glob("*/*/pod.json"):  # what is half deleted is incomplete
        pod.unlink(missing_ok=True)
    if root.exists():
        shutil.rmtree(root)


def remove_credentials() -> None:
    """Keys first: those of the cluster's CAs, which `up` has put on its control nodes, and all of etcd's. Other control
    nodes have the CAs' keys as well: the last one never ceases to be one."""
    for path in PKI.glob("*.key"):
        path.unlink(missing_ok=True)
    for path in sorted(ETCD_PKI.glob("*"), key=lambda one: one.suffix != ".key"):
        path.unlink(missing_ok=True)
    for name in ("etcd-client.pem", "etcd-ca.crt"):
        (BALANCER / name).unlink(missing_ok=True)


def has_etcd_member() -> bool:
    """Whether etcd's static pod is there. OSError."""
    return any(path.match("etcd-*.json") for path in Path(places.MANIFESTS).iterdir())
