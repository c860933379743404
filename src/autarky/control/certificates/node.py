"""Keeps a control node's leaf certificates: each is renewed at two thirds of its life, with the CA keys on the disk.

It needs no API: what the certificates must name it has from a ConfigMap (`manifests.leaves`), and from its own disk
while there is no API. Both slots of the control plane read the same files, and read them again when they change, so
nothing is restarted. A cluster that was off for longer than its leaves live finds them renewed before its etcd needs
them.

Contract: only what is due is issued anew, and what was issued is verified before it takes the place of the one before
(`pki.kept`). What cannot be told changes nothing: no plan, no CA key, a disk that cannot be read. A leaf that is
damaged is issued anew. Whatever happens at one holds up no other, and is told. The wall clock says only whether a
certificate is valid. A leaf is valid from the beginning of its CA, so one that was issued by a clock that went ahead is
good when it has come back.

On every node the ends of all its certificates are told, the kubelet's included: on its Node, and as a metric. A kubelet
renews its own; only one on a control node whose certificate has ended, or was lost with the power, gets another one
here, since its requests would be judged by an operator that does not run before it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from autarky import places
from autarky.control.agents.manifests.node_agent import KUBELET_PKI
from autarky.control.base import node_metrics as metrics
from autarky.control.base.controller import Controller
from autarky.control.base.shield import unforeseen
from autarky.control.certificates import decide as certificates
from autarky.control.certificates.manifests import leaves
from autarky.control.common.pods import internal_address
from autarky.errors import AutarkyError, UserError
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.files import CertSpec
from autarky.pki.issue import issue_leaf
from autarky.pki.kept import Files, Wanted, end_of, end_of_pem, put_in_place, read_authority, why_anew
from autarky.ports import Clock, Kube, Object
from autarky.render.node import CURRENT, GIVEN, KUBELET_KUBECONFIG, SERVING
from autarky.store import write_private

REST_SECONDS, LOOK_SECONDS = 60.0, 10.0
"""Between two looks: of leaves that live for days, and of such as live for minutes or could not be issued."""
SHORT_LIFE = 86400
KUBELET_CLIENT, KUBELET_SERVER = "kubelet-client", "kubelet-server"
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


@dataclass(slots=True)
class LeafKeeping(Controller):
    """told_plan: the live ConfigMap, None where it is not known; own_node: the live Node; keeps:
    whether this node keeps leaves, as a control node does; root: where the host's files are (for tests)."""

    name: ClassVar[str] = "leaf certificates"
    gather: ClassVar[float] = 1.0
    """What changes all the time is looked at once a second."""

    node: str
    kube: Kube
    clock: Clock
    tell: Callable[[str, str], None]
    told_plan: Callable[[], Object | None]
    own_node: Callable[[], Object | None]
    keeps: Callable[[], bool]
    root: Path = Path("/")
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """To be set when the live plan or the live Node may have changed."""
    _trouble: dict[str, str] = field(default_factory=dict)
    _ends: dict[str, datetime] = field(default_factory=dict)

    async def reconcile(self) -> float:
        """Look, and tell what was seen; for how long to rest."""
        pause = self.look()
        await self._announce()
        return pause

    @property
    def trouble(self) -> Mapping[str, str]:
        """Certificate → why it could not be issued in the last round."""
        return self._trouble

    def look(self) -> float:
        """One look at everything, and what follows from it; for how long to rest."""
        self._trouble.clear()
        self._ends = {}
        pause = REST_SECONDS
        if self.keeps():
            pause = self._keep()
        self._look_after_kubelet()
        for name, path in ((KUBELET_CLIENT, self._kubelet_file()), (KUBELET_SERVER, SERVING)):
            self._see(name, self._at(KUBELET_PKI) / path if path else None)
        metrics.certificates(self._ends)
        return LOOK_SECONDS if self._trouble else pause

    # --- leaves ------------------------------------------------------------------------------------------

    def _keep(self) -> float:
        try:
            plan = self._plan()
            wanted = [] if plan is None else leaves.leaves_of(self.node, plan)
        except Exception as error:  # see the contract
            self._fails("plan", error)
            return LOOK_SECONDS
        if plan is None:
            self._trouble["plan"] = "which certificates this node should have is not known yet"
            self.tell("certificates", self._trouble["plan"])
            return LOOK_SECONDS
        for leaf in wanted:
            self._keep_one(leaf, plan)
        return LOOK_SECONDS if plan.life < SHORT_LIFE else REST_SECONDS

    def _plan(self) -> leaves.Plan | None:
        """As the API tells it, which is written down for times without one; else as it was known last."""
        path, live = self._at(places.LEAVES_PLAN), self.told_plan()
        try:
            kept = leaves.read(path.read_text(errors="replace"))
        except FileNotFoundError:
            kept = None
        except AutarkyError:
            if live is None:
                raise
            kept = None  # what the API tells takes its place
        if live is None:
            return kept if kept is not None and kept.address else None
        address = internal_address(self.own_node()) or (kept.address if kept is not None else "")
        try:
            plan = leaves.told(live).at(address)
        except AutarkyError as error:
            if kept is None or not kept.address:
                raise
            self._fails("plan", error)  # somebody's edit: what is on the disk is as good as it was
            return kept
        if not address:
            return None
        if plan != kept:
            write_private(path, leaves.written(plan).encode())
        return plan

    def _keep_one(self, leaf: leaves.Leaf, plan: leaves.Plan) -> None:
        wanted = self._wanted(leaf, plan)
        name = leaf.name_on(self.node)
        try:
            now = self._now()
            wanted.files.settle_directory()
            authority = read_authority(self._at(places.PKI), leaf.spec.ca, now)
            if authority is None:
                self._trouble[name] = f"the key of the CA {leaf.spec.ca} is not on this node"
            elif (why := why_anew(wanted, authority, now)) is not None:
                put_in_place(wanted, authority, now)
                self.tell(f"certificate {name}", f"{name} is issued anew: {why}")
                metrics.RENEWALS.labels(name).inc()
        except Exception as error:  # see the contract
            self._fails(name, error)
        self._see(name, wanted.files.certificate)

    def _wanted(self, leaf: leaves.Leaf, plan: leaves.Plan) -> Wanted:
        files = Files(self._at(leaf.certificate), self._at(leaf.key), leaves.GROUP if leaf.shared else None)
        return Wanted(leaf.spec, files, plan.algorithm, timedelta(seconds=leaf.life(plan)))

    # --- the kubelet ---------------------------------------------------------------------------------------

    def _kubelet_file(self) -> str:
        return CURRENT if (self._at(KUBELET_PKI) / CURRENT).exists() else ""

    def _look_after_kubelet(self) -> None:
        """Only what has ended, or is none: it renews by itself what has not. Wherever the CA's key is, which a node has
        some time before it is a control node and after: its kubelet asks nobody else. A kubelet does not sync what it
        writes, so a power cut leaves an empty file, or none.

        The host starts it anew when GIVEN is there. A mark that names what is yet to be told of comes before the
        certificate, so that an agent that ends between the two is followed by one that tells. Where the kubelet has got
        another one meanwhile there is nothing to tell. A mark of an earlier release names none: it is told, since one
        restart too many hurts no pod."""
        try:
            now, given = self._now(), self._at(GIVEN)
            untold = given.with_name(f".{given.name}")
            if (end := self._kubelet_end()) is None or end <= now:
                self._give_kubelet(now, end, untold)
                end = self._kubelet_end()
            if untold.exists() and end is not None and now < end:
                self._tell_the_host(untold, given)
        except Exception as error:  # see the contract
            self._fails(KUBELET_CLIENT, error)

    def _tell_the_host(self, untold: Path, given: Path) -> None:
        current, named = self._at(KUBELET_PKI) / CURRENT, untold.read_bytes()
        if not named or (current.is_symlink() and current.readlink().name.encode() == named):
            untold.replace(given)
        else:
            untold.unlink()

    def _kubelet_end(self) -> datetime | None:
        """Of its rotated certificate; else of the first one, which is in its kubeconfig. None where neither is one.
        OSError: that of a disk that cannot be read, which says nothing."""
        rotated = self._at(KUBELET_PKI) / CURRENT
        if rotated.exists():
            return end_of_pem(rotated.read_bytes())
        try:
            pem = read_kubeconfig(self._at(KUBELET_KUBECONFIG)).client_cert_pem
        except UserError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, _NOT_THERE):
                raise error.__cause__ from error
            return None  # it is not there, is empty, or names what is not there
        return None if pem is None else end_of_pem(pem)

    def _give_kubelet(self, now: datetime, end: datetime | None, untold: Path) -> None:
        """As the kubelet writes it: a file with the time in its name, and a link that is switched in one rename."""
        authority = read_authority(self._at(places.PKI), "ca", now)
        if authority is None:
            return
        name = f"kubelet-client-{now:%Y-%m-%d-%H-%M-%S}.pem"
        write_private(untold, name.encode())
        why = "cannot be read" if end is None else f"ended at {end}"
        self.tell("kubelet's certificate", f"that of the kubelet {why}: it gets another one")
        spec = CertSpec(KUBELET_CLIENT, "ca", f"system:node:{self.node}", ("system:nodes",))
        pair = issue_leaf(spec, authority, "EC", now, timedelta(seconds=max(self._life(), 600)))
        directory = self._at(KUBELET_PKI)
        write_private(directory / name, pair.certificate + pair.key)
        temporary = directory / f".{CURRENT}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(f"{KUBELET_PKI}/{name}" if self.root == Path("/") else name)
        temporary.replace(directory / CURRENT)

    def _life(self) -> int:
        try:
            plan = self._plan()
        except (AutarkyError, OSError):
            plan = None  # it is told of with the leaves
        return 86400 if plan is None else plan.life

    # --- telling ---------------------------------------------------------------------------------------------

    def _see(self, name: str, path: Path | None) -> None:
        if path is not None and (end := end_of(path)) is not None:
            self._ends[name] = end

    def _fails(self, name: str, error: Exception) -> None:
        why = str(error) if isinstance(error, OSError) else unforeseen(error)
        self._trouble[name] = why
        self.tell(f"certificate {name}", f"{name} cannot be renewed: {why}")

    async def _announce(self) -> None:
        live = self.own_node()
        wanted = certificates.text(certificates.Told(self._ends, self._trouble))
        if live is None or (live["metadata"].get("annotations") or {}).get(certificates.ANNOTATION) == wanted:
            return
        try:
            patch = {"metadata": {"annotations": {certificates.ANNOTATION: wanted}}}
            await self.kube.patch("v1", "Node", self.node, patch)
        except AutarkyError as error:
            self.tell("telling certificates", f"how long certificates are good for could not be told: {error}")

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time(), UTC)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")
