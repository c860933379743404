"""The composition root of the operator: its identity, its clients, its tasks, its shutdown."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prometheus_client import Counter, Gauge

from autarky.agents.log import logger
from autarky.agents.operator.loop import Loop
from autarky.clock import SystemClock
from autarky.control.admission import act as certificates
from autarky.control.admission.operator import Certificates
from autarky.control.backup.operator import Backups, Schedules
from autarky.control.base import health
from autarky.control.base.decision_log import Say
from autarky.control.base.operator_view import View
from autarky.control.certificates.operator import Serving
from autarky.control.checkpoint.operator import StandbyRights
from autarky.control.control_nodes.operator.api_servers import ApiServers
from autarky.control.control_nodes.operator.roles import ControlNodes, phases_of
from autarky.control.etcd.operator.members import EtcdMembers
from autarky.control.etcd.operator.template import EtcdTemplate
from autarky.control.guards.operator import Guards
from autarky.control.kubelet.decide import at_work
from autarky.control.kubelet.decide.turns import Node
from autarky.control.kubelet.operator.hosted import HostedKubelets
from autarky.control.kubelet.operator.kubelets import Kubelets
from autarky.control.levels.operator import Spec
from autarky.control.load_balancer.operator import Endpoints
from autarky.control.rollout.operator.rollouts import Rollouts
from autarky.control.rollout.operator.stepping import Stepping
from autarky.control.rollout.operator.workloads import JUDGED
from autarky.control.status.operator import PlaneStatus
from autarky.control.upgrade.operator import metrics as upgrade_metrics
from autarky.control.upgrade.operator.upgrade import Upgrade
from autarky.kube import KubeClient
from autarky.kube.elector import Elector
from autarky.kube.fenced import Fenced
from autarky.model.components import OPERATOR
from autarky.ports import Clock
from autarky.render.kubeconfig import LOCAL_SERVER
from autarky.render.values import SYSTEM

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WRITE_IS_FRESH = 5.0
"""Seconds: two renewals of the lease may fail before etcd counts as down. A renewal is a successful write."""

LEADS = Gauge("autarky_operator_leads", "Whether this operator holds the lease")
ROLLBACKS = Counter("autarky_operator_rollbacks_total", "Rollouts that were rolled back", ["component"])
CERTIFICATES = Counter(
    "autarky_operator_certificate_decisions_total", "Kubelets' certificate requests that were decided", ["verdict"]
)
AGES = Gauge("autarky_operator_source_age_seconds", "Seconds since a live copy was current", ["kind", "fields"])


def run(kubeconfig: Path | None, port: int, own_address: str = "") -> int:
    """Act until told to exit. Returns the exit status: 0 when it was told to."""
    return asyncio.run(_run(kubeconfig, port, own_address))


async def _run(kubeconfig: Path | None, port: int, own_address: str) -> int:
    log = logger(agent=OPERATOR, host=socket.gethostname())

    def say(sentence: str, **values: Any) -> None:
        log.info(sentence, **values)

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    kube, clock = client(kubeconfig), SystemClock()
    operator = Operator(kube, clock, say, f"{socket.gethostname()}_{uuid.uuid4()}")
    answering = asyncio.create_task(_answering(port, clock, operator.loop, say, own_address).run(), name="health")
    try:
        await _until(ended, operator)
    finally:
        answering.cancel()
        await kube.close()
    say("this operator exits")
    return 0


def _answering(port: int, clock: Clock, loop: Loop, say: Say, own: str = "") -> health.Answering:
    """For the kubelet's probes, by which it restarts an operator whose loop hangs."""
    return health.Answering(port, clock, loop.hangs, tell=lambda _, sentence: say(sentence), own=own)


async def _until(ended: asyncio.Event, operator: Operator) -> None:
    """Run it until it is told to exit, and shut down cleanly. An error of it, which is not expected, is raised."""
    acting = asyncio.create_task(operator.run(), name="operator")
    waiting = asyncio.create_task(ended.wait(), name="signals")
    await asyncio.wait({acting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (acting, waiting):
        task.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    try:
        await acting
    except asyncio.CancelledError:
        if not ended.is_set():
            raise


def client(kubeconfig: Path | None) -> KubeClient:
    """With a kubeconfig, or with the pod's service account through the node-local load balancer: that works without a
    service network, which may be what is broken."""
    if kubeconfig is not None:
        return KubeClient.from_kubeconfig(kubeconfig)
    token = ACCOUNT / "token"
    return KubeClient(
        [LOCAL_SERVER],
        ca_pem=(ACCOUNT / "ca.crt").read_bytes(),
        token=lambda: token.read_text().strip(),  # the kubelet renews it
    )


class Operator:
    """All parts of one operator. It also watches while another one leads, so that a new leader is up to date."""

    def __init__(self, kube: KubeClient, clock: Clock, say: Say, identity: str) -> None:
        self.loop = Loop(clock, say)
        self._view = View(kube, clock, self.loop.changed.set, lambda source, said: say(said, source=source))
        self._elector = Elector(kube, clock, SYSTEM, OPERATOR, identity, say=say)
        fenced = Fenced(kube, lambda: self._elector.leads)
        self._rollouts = Rollouts(
            say, self._view, fenced, clock, self._etcd_is_up, lambda name: ROLLBACKS.labels(name).inc()
        )
        self._standby_rights = StandbyRights(say, self._view, fenced, self._rollouts)
        self._spec = Spec(say, self._view, fenced, clock, self._rollouts)
        self._stepping = Stepping(say, self._view, fenced, clock)
        servers = ApiServers((ACCOUNT / "ca.crt").read_bytes)
        self._control_nodes = ControlNodes(
            say, self._view, fenced, clock, lambda: phases_of(self._view.etcd_members), servers.ask
        )
        self._etcd = EtcdMembers(say, self._view, fenced, lambda: self._control_nodes.steps)
        template = EtcdTemplate(say, self._view, fenced)

        schedules = Schedules(say, self._view, fenced, clock)
        kubelets = Kubelets(say, self._view, fenced, clock, self._at_work)
        self._hosted_kubelets = HostedKubelets(
            *(say, self._view, fenced, clock, kubelets, self._rollouts, self._at_work_besides)
        )
        upgrade = Upgrade(say, self._view, fenced, clock, self._rollouts, kubelets.down)
        upgrade_metrics.observe(lambda: upgrade.report)

        def counted(verdict: str) -> None:
            CERTIFICATES.labels(verdict).inc()

        self.controllers = (
            Guards(say, self._view, fenced),
            Endpoints(say, self._view, fenced),
            Certificates(say, self._view, fenced, clock, counted),
            self._control_nodes,
            self._rollouts,
            self._standby_rights,
            self._stepping,
            self._spec,
            kubelets,
            self._hosted_kubelets,
            upgrade,
            self._etcd,
            template,
            Backups(say, self._view, fenced, clock),
            schedules,
            Serving(say, self._view, fenced),
            PlaneStatus(
                *(say, self._view, fenced, clock, self._rollouts, self._spec),
                *(self._etcd, template, self._control_nodes, schedules, upgrade, kubelets),
            ),
        )
        self.loop.runs(self.controllers)
        for component in JUDGED:
            ROLLBACKS.labels(component.name)
        for verdict in certificates.JUDGED:
            CERTIFICATES.labels(verdict.value)
        LEADS.set_function(lambda: float(self._elector.leads))
        for source in self._view.sources:
            AGES.labels(source.kind, source.fields or "").set_function(functools.partial(getattr, source, "age"))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.beat(), name="beat")
            group.create_task(self._view.run(), name="view")
            group.create_task(self._elector.run(self._lead), name="elector")

    async def _lead(self) -> None:
        for controller in self.controllers:
            controller.begin_term()
        await self.loop.run()

    def _at_work(self, nodes: Sequence[Node]) -> str:
        return self._at_work_besides() or self._hosted_kubelets.at_work(nodes)

    def _at_work_besides(self) -> str:
        """Besides kubelets."""
        return at_work.clause(self._etcd.seen, self._control_nodes.decisions, self._rollouts.verdicts)

    def _etcd_is_up(self) -> bool:
        return self._elector.renewal_age < WRITE_IS_FRESH
