"""Renews a control node's leaf certificates: each at two thirds of its life, with the CA keys on the disk.

It needs no API: the names that the certificates must have come from a ConfigMap (`manifests.leaves`), and from the
node's own disk while there is no API. Both slots of the control plane read the same files, and read them again when
they change, so nothing is restarted. A cluster that was off for longer than its leaves live has them renewed before its
etcd needs them.

Contract: only what is due is issued again, and a new certificate is verified before it replaces the old one
(`pki.kept`). What is unknown changes nothing: no plan, no CA key, an unreadable disk. A damaged leaf is issued
again. A failure with one holds up no other, and is reported. The wall clock only decides whether a certificate is
valid. A leaf is valid from the start of its CA, so one that was issued while the clock was ahead stays valid when the
clock is corrected.

Every node reports when all its certificates expire, the kubelet's included: on its Node, and as a metric. A kubelet
renews its own; only on a control node, one that has expired or was lost in a power cut is replaced here, since the
operator that would approve the kubelet's request does not run before the kubelet does.
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
from autarky.control.kubelet.manifests.credentials import CURRENT, GIVEN, KUBELET_KUBECONFIG, SERVING
from autarky.errors import AutarkyError, UserError
from autarky.kube.kubeconfig import read_kubeconfig
from autarky.model.files import CertSpec
from autarky.pki.issue import issue_leaf
from autarky.pki.kept import Files, Wanted, end_of, end_of_pem, put_in_place, read_authority, why_renewed
from autarky.ports import Clock, Kube, Object
from autarky.store import write_private

REST_SECONDS, LOOK_SECONDS = 60.0, 10.0
"""Between two looks: at leaves that live for days, and at those that live for minutes or could not be issued."""
SHORT_LIFE = 86400
KUBELET_CLIENT, KUBELET_SERVER = "kubelet-client", "kubelet-server"
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


@dataclass(slots=True)
class LeafKeeping(Controller):
    """live_plan: the live ConfigMap, None where it is not known; own_node: the live Node; keeps:
    whether this node has leaves to renew, as a control node does; root: where the host's files are (for tests)."""

    name: ClassVar[str] = "leaf certificates"
    gather: ClassVar[float] = 1.0
    """However often things change, there is at most one look per second."""

    node: str
    kube: Kube
    clock: Clock
    tell: Callable[[str, str], None]
    live_plan: Callable[[], Object | None]
    own_node: Callable[[], Object | None]
    keeps: Callable[[], bool]
    root: Path = Path("/")
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """To be set when the live plan or the live Node may have changed."""
    _trouble: dict[str, str] = field(default_factory=dict)
    _ends: dict[str, datetime] = field(default_factory=dict)

    async def reconcile(self) -> float:
        """Look, and report what was seen; returns for how long to rest."""
        pause = self.look()
        await self._announce()
        return pause

    @property
    def trouble(self) -> Mapping[str, str]:
        """Certificate → why it could not be issued in the last reconcile."""
        return self._trouble

    def look(self) -> float:
        """Look at everything once, and act; returns for how long to rest."""
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
            self._trouble["plan"] = "it is not known yet which certificates this node should have"
            self.tell("certificates", self._trouble["plan"])
            return LOOK_SECONDS
        for leaf in wanted:
            self._keep_one(leaf, plan)
        return LOOK_SECONDS if plan.life < SHORT_LIFE else REST_SECONDS

    def _plan(self) -> leaves.Plan | None:
        """From the API, and saved for times without one; else as last saved."""
        path, live = self._at(places.LEAVES_PLAN), self.live_plan()
        try:
            kept = leaves.read(path.read_text(errors="replace"))
        except FileNotFoundError:
            kept = None
        except AutarkyError:
            if live is None:
                raise
            kept = None  # the API's plan replaces it
        if live is None:
            return kept if kept is not None and kept.address else None
        address = internal_address(self.own_node()) or (kept.address if kept is not None else "")
        try:
            plan = leaves.plan_in(live).at(address)
        except AutarkyError as error:
            if kept is None or not kept.address:
                raise
            self._fails("plan", error)  # somebody's edit: the plan on the disk is still good
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
            if leaf.unless and self._at(leaf.unless).exists():
                return
            now = self._now()
            wanted.files.settle_directory()
            authority = read_authority(self._at(places.PKI), leaf.spec.ca, now)
            if authority is None:
                self._trouble[name] = f"the key of the CA {leaf.spec.ca} is not on this node"
            elif (why := why_renewed(wanted, authority, now)) is not None:
                put_in_place(wanted, authority, now)
                self.tell(f"certificate {name}", f"{name} is issued again: {why}")
                metrics.RENEWALS.labels(name).inc()
        except Exception as error:  # see the contract
            self._fails(name, error)
        finally:
            self._see(name, wanted.files.certificate)

    def _wanted(self, leaf: leaves.Leaf, plan: leaves.Plan) -> Wanted:
        files = Files(self._at(leaf.certificate), self._at(leaf.key), leaves.GROUP if leaf.shared else None)
        return Wanted(leaf.spec, files, plan.algorithm, timedelta(seconds=leaf.life(plan)))

    # --- the kubelet ---------------------------------------------------------------------------------------

    def _kubelet_file(self) -> str:
        return CURRENT if (self._at(KUBELET_PKI) / CURRENT).exists() else ""

    def _look_after_kubelet(self) -> None:
        """Only a certificate that has expired or is damaged: the kubelet renews others itself. On every node that has
        the CA's key, also shortly before it becomes a control node and after it stops being one. A kubelet does not
        sync what it writes, so a power cut leaves an empty file, or none.

        The host restarts the kubelet when GIVEN exists. A pending mark with the certificate's file name is written
        before the certificate, so that the next agent completes what a killed one started. If the kubelet has got
        another certificate meanwhile, the mark is deleted. A mark of an earlier release has no name: it counts, since
        an unneeded restart hurts no pod."""
        try:
            now, given = self._now(), self._at(GIVEN)
            pending = given.with_name(f".{given.name}")
            if (end := self._kubelet_end()) is None or end <= now:
                self._give_kubelet(now, end, pending)
                end = self._kubelet_end()
            if pending.exists() and end is not None and now < end:
                self._tell_the_host(pending, given)
        except Exception as error:  # see the contract
            self._fails(KUBELET_CLIENT, error)

    def _tell_the_host(self, pending: Path, given: Path) -> None:
        current, named = self._at(KUBELET_PKI) / CURRENT, pending.read_bytes()
        if not named or (current.is_symlink() and current.readlink().name.encode() == named):
            pending.replace(given)
        else:
            pending.unlink()

    def _kubelet_end(self) -> datetime | None:
        """Of its rotated certificate; else of the first one, in its kubeconfig. None where neither is usable.
        OSError: the disk cannot be read, which proves nothing."""
        rotated = self._at(KUBELET_PKI) / CURRENT
        if rotated.exists():
            return end_of_pem(rotated.read_bytes())
        try:
            pem = read_kubeconfig(self._at(KUBELET_KUBECONFIG)).client_cert_pem
        except UserError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, _NOT_THERE):
                raise error.__cause__ from error
            return None  # it does not exist, is empty, or names a file that does not exist
        return None if pem is None else end_of_pem(pem)

    def _give_kubelet(self, now: datetime, end: datetime | None, pending: Path) -> None:
        """As the kubelet does it: a file with the time in its name, and a link that is switched in one rename."""
        authority = read_authority(self._at(places.PKI), "ca", now)
        if authority is None:
            return
        name = f"kubelet-client-{now:%Y-%m-%d-%H-%M-%S}.pem"
        write_private(pending, name.encode())
        why = "cannot be read" if end is None else f"expired at {end}"
        self.tell("kubelet's certificate", f"the kubelet's certificate {why}: it gets a new one")
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
            plan = None  # reported with the leaves
        return 86400 if plan is None else plan.life

    # --- reporting -------------------------------------------------------------------------------------------

    def _see(self, name: str, path: Path | None) -> None:
        if path is not None and (end := end_of(path)) is not None:
            self._ends[name] = end

    def _fails(self, name: str, error: Exception) -> None:
        why = str(error) if isinstance(error, OSError) else unforeseen(error)
        self._trouble[name] = why
        self.tell(f"certificate {name}", f"{name} cannot be renewed: {why}")

    async def _announce(self) -> None:
        live = self.own_node()
        wanted = certificates.text(certificates.Reported(self._ends, self._trouble))
        if live is None or (live["metadata"].get("annotations") or {}).get(certificates.ANNOTATION) == wanted:
            return
        try:
            patch = {"metadata": {"annotations": {certificates.ANNOTATION: wanted}}}
            await self.kube.patch("v1", "Node", self.node, patch)
        except AutarkyError as error:
            self.tell("telling certificates", f"cannot report on the Node when certificates expire: {error}")

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time(), UTC)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")
