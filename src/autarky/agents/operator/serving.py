"""The duty of keeping the API servers' serving certificate good for every control node.

One certificate covers them all. When a control node has joined that it does not name, it is issued anew: a new
Secret, named by its content, and a template that names it: an ordinary rollout, which goes back if it fails.

Contract: only a template that has been healthy is touched, once the control nodes have been the same for a while,
so that two that join at once are one rollout. What it writes is recorded as applied, so that it is no edit of a
user's. The names of a node that is a control node no more go the next time: without revocation, taking them out
would cost a rollout and take nothing from anybody.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autarky.agents.operator import node_record
from autarky.agents.operator.authorities import Authorities
from autarky.agents.operator.duty import Duty
from autarky.agents.operator.endpoints import internal_address
from autarky.agents.operator.rollouts import Rollouts
from autarky.agents.operator.view import View, current
from autarky.agents.operator.workloads import COMPONENTS, Component, revision_of, workload
from autarky.decide import applied
from autarky.duties import serving
from autarky.duties.certificates import inventory_of
from autarky.errors import Conflict
from autarky.pki.issue import Pair
from autarky.pki.names import names_of, reissued
from autarky.ports import Clock, Kube, Object
from autarky.render import api_server
from autarky.render.access import INVENTORY
from autarky.render.values import CONTROL_PLANE_FACT, CONTROL_PLANE_WISH, SYSTEM, immutable_secret, with_rendered_hash

SETTLED_SECONDS = 5.0
"""How long the control nodes must have been the same."""
LOOK_SECONDS = 1.0


@dataclass(slots=True)
class Serving(Duty):
    view: View
    kube: Kube
    clock: Clock
    authorities: Authorities
    rollouts: Rollouts
    name: str = "serving-certificate"
    _named: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """Secret → the names that its certificate is good for: an immutable one is read once."""
    _waiting: tuple[frozenset[str], float] = field(default=(frozenset(), 0.0), init=False)

    async def round(self) -> float | None:
        live = workload(self.view, _COMPONENT)
        if live is None or not current([self.view.nodes, self.view.daemon_sets, self.view.inventory]):
            return None
        secret = serving.secret_of(live["spec"]["template"])
        if secret is None:
            return None
        missing = self._wanted() - await self._names(secret)
        if not missing:
            self._waiting = (frozenset(), 0.0)
            return None
        if not self._may_go_on(live, missing):
            return LOOK_SECONDS
        await self._reissue(live, secret)
        return LOOK_SECONDS

    def _wanted(self) -> frozenset[str]:
        nodes = [node for node in self.view.nodes.items.values() if _has(node, CONTROL_PLANE_FACT)]
        addresses = {address for node in nodes if (address := internal_address(node)) is not None}
        return frozenset({node["metadata"]["name"] for node in nodes} | addresses)

    async def _names(self, secret: str) -> frozenset[str]:
        """Everything, where it cannot be told: then nothing is done."""
        if secret not in self._named:
            pair = await serving.read_pair(self.kube, secret)
            if pair is None:
                self.tell(f"the Secret {secret} holds no serving certificate: it is left alone")
                return self._wanted()
            try:
                self._named = {secret: names_of(pair.certificate).all}
            except ValueError as error:
                self.tell(f"the certificate in the Secret {secret} cannot be read, and is left alone: {error}")
                return self._wanted()
        return self._named[secret]

    def _may_go_on(self, live: Object, missing: frozenset[str]) -> bool:
        """Whether the control nodes are settled, and the template is one that has been healthy."""
        now = self.clock.monotonic()
        joining = any(
            _has(node, CONTROL_PLANE_WISH) and not _has(node, CONTROL_PLANE_FACT)
            for node in self.view.nodes.items.values()
        )
        if self._waiting[0] != missing:
            self._waiting = (missing, now)
        kept = self.rollouts.kept.get(_COMPONENT.name)
        good = kept is not None and kept.record.good == revision_of(live["spec"]["template"])
        settled = now - self._waiting[1] >= SETTLED_SECONDS * (4 if joining else 1)
        return good and settled

    async def _reissue(self, live: Object, secret: str) -> None:
        """A certificate that was issued for the same names before is used again: one that failed stays failed."""
        wanted = sorted(self._wanted())
        before = await node_record.serving_secret(self.kube)
        new = before.get("secret") if before.get("names") == wanted else None
        if not isinstance(new, str) or await serving.read_pair(self.kube, new) is None:
            new = await self._issue(secret, wanted)
        template = serving.with_secret(live["spec"]["template"], secret, new)
        kept = self.rollouts.kept.get(_COMPONENT.name)
        if kept is not None and kept.record.failure(revision_of(template)) is not None:
            self.tell(f"the API servers did not come up with the Secret {new}, which names {', '.join(wanted)}")
            return
        try:
            await self.kube.replace(_recorded({**live, "spec": {**live["spec"], "template": template}}, secret, new))
        except Conflict:
            return  # somebody has changed it meanwhile; the next round sees that
        self.tell(f"the API servers get a certificate for {', '.join(wanted)}", secret=new)

    async def _issue(self, secret: str, wanted: list[str]) -> str:
        found = await self.kube.get("v1", "Secret", secret, SYSTEM)
        if found is None:
            raise Conflict(f"the Secret {secret} has gone meanwhile")
        data = {name: base64.b64decode(value) for name, value in found["data"].items()}
        pair = reissued(
            Pair(data[serving.CERTIFICATE], data[serving.KEY]),
            self.authorities.read("ca"),
            add=wanted,
            drop=self._workers(),
            now=datetime.now(UTC),
        )
        text = {
            name: content.decode()
            for name, content in {**data, serving.CERTIFICATE: pair.certificate, serving.KEY: pair.key}.items()
        }
        new = with_rendered_hash(immutable_secret(api_server.COMPONENT, text))  # as `up` would
        await self.kube.create(new)
        name: str = new["metadata"]["name"]
        await node_record.keep_serving_secret(self.kube, wanted, name)
        return name

    def _workers(self) -> frozenset[str]:
        """The names and addresses of nodes that are control nodes no more, if they ever were."""
        inventory = inventory_of(self.view.inventory.items.get((SYSTEM, INVENTORY)))
        return frozenset(
            name for node, addresses in inventory.items() for name in (node, *addresses) if name not in self._wanted()
        )


_COMPONENT: Component = COMPONENTS[0]


def _has(node: Object, label: str) -> bool:
    return label in (node["metadata"].get("labels") or {})


def _recorded(live: Object, old: str, new: str) -> Object:
    """Recorded as applied, where the old one was: then it is no edit of somebody else's."""
    record = applied.record_of(live)
    if record is None:
        return live
    template = serving.with_secret(record["spec"]["template"], old, new)
    return applied.with_record(live, {"metadata": record["metadata"], "spec": {**record["spec"], "template": template}})
