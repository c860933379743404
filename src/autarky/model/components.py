"""The table of components: their properties that hold everywhere.

Level, kind of workload, ports of each slot, labels, lease and image are said here and nowhere else. What a component's
pods contain is `render`'s. Names, labels and ports are on the wire and on disk: changing one is a migration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from autarky.model import ports
from autarky.model.cluster import Level

NAME_LABEL: Final = "k8s-app"
SLOT_LABEL: Final = "autarky.dev/slot"
HOSTED: Final = "hosted"
HOST: Final = "host"
"""The slot of the kubelet that is a unit of the host."""
STANDBY: Final = "standby"
STATIC: Final = "static"
"""The slot of components that are only a static pod."""

KUBELET: Final = "kubelet"
CONTAINER_RUNTIME: Final = "container-runtime"
"""The image in which containerd and runc come."""
CONTAINERD: Final = "containerd"
ETCD: Final = "etcd"
LOAD_BALANCER: Final = "node-load-balancer"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KUBE_PROXY: Final = "kube-proxy"
NODE_AGENT: Final = "node-agent"
OPERATOR: Final = "autarky-operator"
FLANNEL: Final = "kube-flannel"
COREDNS: Final = "coredns"

NO_PORT: Final = 0
Kind = Literal["systemd unit", "static pod", "DaemonSet", "Deployment"]


@dataclass(frozen=True, slots=True)
class Component:
    """A component of the control plane, of its nodes or of the add-ons.

    port: of its health check, in the hosted slot if it has two slots; `NO_PORT` if it has none on the host.
    standby_ports: of its standby; the second one serves while the first is still draining. leads_by_lease: one of
    several is active, as the Lease of the component's name in kube-system says. image: its name in a release, "" if it
    is not a container. label: see `label_value`. links: the network devices that it makes on hosts.
    """

    name: str
    level: Level
    kind: Kind
    port: int
    standby_ports: tuple[int, ...] = ()
    leads_by_lease: bool = False
    image: str = ""
    label: str = ""
    links: tuple[str, ...] = ()

    @property
    def ports(self) -> tuple[int, ...]:
        return (*((self.port,) if self.port else ()), *self.standby_ports)

    @property
    def standby_port(self) -> int:
        return self.standby_ports[0]

    @property
    def label_value(self) -> str:
        """The value of `NAME_LABEL` on its pods."""
        return self.label or self.name

    @property
    def only_static(self) -> bool:
        """Whether it runs as a static pod on every level of self-hosting."""
        return self.kind == "static pod"

    def slot_of(self, labels: Mapping[str, str]) -> str:
        """The slot of its pod with these labels. A component that is only a static pod has no other slot, whatever
        labels a kubelet writes."""
        return STATIC if self.only_static else labels.get(SLOT_LABEL) or HOSTED

    @property
    def for_kubectl(self) -> str:
        return f"{'ds' if self.kind == 'DaemonSet' else 'deploy'}/{self.name}"

    @property
    def name_selector(self) -> str:
        """Label selector of all its pods."""
        return f"{NAME_LABEL}={self.label_value}"

    def selector(self, slot: str) -> str:
        """Label selector of its pods in that slot."""
        return f"{SLOT_LABEL}={slot},{self.name_selector}"


def _table(*components: Component) -> dict[str, Component]:
    return {component.name: component for component in components}


COMPONENTS: Final[Mapping[str, Component]] = _table(
    # Beside the unit of that name, which every host has, and which waits while the DaemonSet's is in force.
    Component(KUBELET, Level.KUBELET, "DaemonSet", ports.KUBELET_HOSTED_HEALTH, image="kubelet"),
    Component(CONTAINERD, Level.KUBELET, "systemd unit", NO_PORT),
    Component(ETCD, Level.ETCD, "static pod", ports.ETCD_CLIENT, image="etcd"),
    Component(LOAD_BALANCER, Level.API_SERVER, "static pod", ports.NLLB_API, image="haproxy"),
    Component(
        API_SERVER,
        Level.API_SERVER,
        "DaemonSet",
        ports.API_HOSTED,
        (ports.API_STANDBY, ports.API_STANDBY_SPARE),
        image="kube-apiserver",
    ),
    Component(
        CONTROLLER_MANAGER,
        Level.CONTROLLERS,
        "Deployment",
        ports.CONTROLLER_MANAGER_HOSTED,
        (ports.CONTROLLER_MANAGER_STANDBY,),
        leads_by_lease=True,
        image="kube-controller-manager",
    ),
    Component(
        SCHEDULER,
        Level.CONTROLLERS,
        "Deployment",
        ports.SCHEDULER_HOSTED,
        (ports.SCHEDULER_STANDBY,),
        leads_by_lease=True,
        image="kube-scheduler",
    ),
    Component(KUBE_PROXY, Level.CONTROLLERS, "DaemonSet", ports.PROXY_HEALTH, image="kube-proxy"),
    Component(NODE_AGENT, Level.ADD_ONS, "DaemonSet", ports.NODE_AGENT, image="agent"),
    Component(OPERATOR, Level.ADD_ONS, "Deployment", ports.OPERATOR, leads_by_lease=True, image="agent"),
    Component(
        FLANNEL, Level.ADD_ONS, "DaemonSet", ports.POD_NETWORK_HEALTH, image="flannel", links=("cni0", "flannel.1")
    ),
    # The label that its Service has had since kube-dns.
    Component(COREDNS, Level.ADD_ONS, "Deployment", NO_PORT, image="coredns", label="kube-dns"),
)
"""By name, in the order in which people read them: by level."""

WITH_STANDBY: Final = tuple(component.name for component in COMPONENTS.values() if component.standby_ports)
"""Of the control plane: each has two slots."""
LED_BY_LEASE: Final = tuple(name for name in WITH_STANDBY if COMPONENTS[name].leads_by_lease)
"""Those of which one leads while the others wait for its lease."""
MOVED: Final = (KUBELET, *WITH_STANDBY)
"""Those whose hosted workload comes and goes with its level, in the order in which they go."""
_AGENTS: Final = (NODE_AGENT, OPERATOR)
_WORKLOADS: Final = tuple(
    component for component in COMPONENTS.values() if component.kind in ("DaemonSet", "Deployment")
)
JUDGED_ADD_ONS: Final = frozenset(
    component.name for component in _WORKLOADS if component.level is Level.ADD_ONS and component.name not in _AGENTS
)
"""Those of the workloads: the others run the cluster."""
JUDGED: Final = tuple(
    sorted(
        (component.name for component in _WORKLOADS),
        key=lambda name: (name in _AGENTS, name in JUDGED_ADD_ONS, name == KUBELET),
    )
)
"""Those whose rollouts the operator judges, and rolls back: all workloads of the table. First the control plane, then
the kubelet, which comes on top of the hosts', then add-ons, and last autarky's own agents."""
IMAGES: Final = tuple(
    dict.fromkeys([*(one.image for one in COMPONENTS.values() if one.image and one.name != KUBELET), "pause"])
)
"""The names of their images in a release, and that of every pod's sandbox. Every node has all of them before it
starts, so that nothing is ever pulled: a label can make any node a control node, and there may be no registry then.
The kubelet's comes where its level is hosted (`control.addons.images_of`)."""
LINKS: Final = tuple(link for component in COMPONENTS.values() for link in component.links)
"""All network devices that autarky makes on a host."""
_BY_LABEL: Final = {component.label_value: component for component in COMPONENTS.values() if component.image}


def labelled(labels: Mapping[str, str]) -> Component | None:
    """Whose pod it is, according to its labels. Anybody can label a pod: see `control.common.pods.is_what_it_says`."""
    return _BY_LABEL.get(labels.get(NAME_LABEL, ""))
