"""The standby: revisions of static pods kept complete on a control node's disk, and the script that
activates them.

On the host:

    /var/lib/autarky/standby/COMPONENT/REVISION/pod.json     with placeholders for name and uid
    /var/lib/autarky/standby/COMPONENT/REVISION/files/…      what Secrets and ConfigMaps hold, root only
    /var/lib/autarky/standby/COMPONENT/current               → REVISION, switched in one rename
    /var/lib/autarky/standby/COMPONENT/previous              → the REVISION that was current before it
    /etc/kubernetes/manifests/standby-COMPONENT-ACTIVATION.json   while it is active

A revision is named by its content and never changed; it counts only once `current` points to it, which
happens after everything in it was synced: complete or absent. A file that is incomplete all the same (empty or
truncated, by hand or by a damaged disk) counts as absent: then `previous` is activated. The script needs no API and no
container, only a POSIX shell with coreutils (and bash to try a port), and may fail without harm: the kubelet's unit
runs it, for the API server before the kubelet starts. The other components can do nothing without an API, and once
there is one the kubelet starts their hosted pods: their standbys are activated only where those do not answer in time,
since components that start at the same time delay each other. For the same reason it checks no more than once a second:
each check starts a process.
"""

from __future__ import annotations

from dataclasses import dataclass

from autarky import places
from autarky.control.api_server import manifests as api_server
from autarky.control.etcd.decide.lineage import FORMER
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.leadership import manifests as controllers
from autarky.errors import Unreachable
from autarky.model import ports
from autarky.model.components import API_SERVER, COMPONENTS, LED_BY_LEASE, WITH_STANDBY
from autarky.model.files import File
from autarky.programs import program
from autarky.render import pods
from autarky.render.values import Inputs, Object, content_hash, pretty_json

SCRIPT_PATH = f"{places.BIN}/standby"
BOOT_FILE = f"{places.RUN}/boot"
"""Boot id and start of this boot (seconds since the epoch, before any control plane process), on a tmpfs. The time is
for people only: clocks get changed."""
REST_SECONDS = 60
"""Hosted pods of level 3 answer 10 to 30 s after the kubelet has started. The agent, which sees a stale lease, does not
wait for the script."""
LOCK_SECONDS = 20
"""How long the script waits for its lock: each writer needs a second at most, a few on a slow disk."""
TURN_SECONDS = 2
"""Between two members of etcd that boot at once. From its kubelet's start to where it serves a member needs as long as
the next one, but for half a second; without turns each waits for 7 s for each other one (etcd's ReqTimeout, at its
initial check for corruption)."""
NO_LOCK = 75
"""The script's exit status when it did nothing because it did not get its lock (EX_TEMPFAIL: try again)."""
ACTIVATION_NAME = "[0-9a-f]" * 8
"""The pattern of an activation's name: the start of its uid."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One immutable revision of one component's standby."""

    component: str
    name: str
    files: tuple[File, ...]

    @property
    def directory(self) -> str:
        return f"{places.STANDBY}/{self.component}/{self.name}"


def revision(inputs: Inputs, component: str) -> Revision:
    """The standby of a component as the cluster file describes it."""
    contents = _files(inputs, component)
    name = content_hash([_spec(inputs, component, "@DIRECTORY@"), contents])
    directory = f"{places.STANDBY}/{component}/{name}"
    pod = pods.standby_pod(component, name, _spec(inputs, component, f"{directory}/files"))
    files = [File(f"{directory}/files/{file}", text.encode(), 0o600) for file, text in contents.items()]
    return Revision(component, name, (*files, File(f"{directory}/pod.json", pretty_json(pod), 0o600)))


def _spec(inputs: Inputs, component: str, directory: str) -> Object:
    if component == API_SERVER:
        return api_server.standby_spec(inputs, directory)
    return controllers.standby_spec(inputs, component, directory)


def _files(inputs: Inputs, component: str) -> dict[str, str]:
    if component == API_SERVER:
        return api_server.standby_files(inputs)
    return controllers.standby_files(inputs, component)


def script() -> File:
    """The script. It checks the hosted slot's own port, never the shared one, where another node may answer."""
    return File(SCRIPT_PATH, _PROGRAM.encode(), 0o755)


_ETCDCTL = " ".join(
    (
        f"{places.BIN}/etcdctl --command-timeout=3s --dial-timeout=1s",
        f"--cacert={etcd.PKI}/ca.crt --cert={etcd.PKI}/server.crt --key={etcd.PKI}/server.key",
    )
)
_PROGRAM = program(
    __file__,
    "standby.sh",
    run=places.RUN,
    standby=places.STANDBY,
    manifests=places.MANIFESTS,
    etcd_member=etcd.MEMBER_DIRECTORY,
    etcd_former=places.ETCD_FORMER,
    etcd_change=places.ETCD_CHANGE,
    etcd_fence=places.ETCD_FENCE,
    etcd_fenced=places.ETCD_FENCED,
    etcd_cluster=places.ETCD_CLUSTER,
    etcd_members=places.MEMBERS_FILE,
    etcd_client=_ETCDCTL,
    control_node_state=places.CONTROL_NODE_STATE,
    etcd_port=ports.ETCD_CLIENT,
    etcd_peer_port=ports.ETCD_PEER,
    former_key=FORMER,
    components=" ".join(WITH_STANDBY),
    api=API_SERVER,
    led_by_lease=" ".join(LED_BY_LEASE),
    hosted_ports=" ".join(f"{name}={COMPONENTS[name].port}" for name in WITH_STANDBY),
    api_port=ports.API_STANDBY,
    spare_port=ports.API_STANDBY_SPARE,
    revision_key=pods.REVISION,
    activation_name=ACTIVATION_NAME,
    activation_mark=pods.ACTIVATION,
    uid_mark=pods.ACTIVATION_UID,
    rest_seconds=REST_SECONDS,
    lock_seconds=LOCK_SECONDS,
    turn_seconds=TURN_SECONDS,
    no_lock=NO_LOCK,
)


def is_complete(content: bytes) -> bool:
    """Whether this is a complete pod as autarky writes it: the same test as the script's."""
    return content.startswith(b"{") and content.endswith(b"}\n") and b'"kind": "Pod"' in content


def parse_list(text: str) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """`standby list` as component → (current revision or None, activations). Unreachable where it is malformed: what
    it does not say must not be taken for an absent standby."""
    result: dict[str, tuple[str | None, tuple[str, ...]]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2:
            raise Unreachable(f"the host's list of standbys cannot be parsed: {line[:40]!a}")
        component, current, *activations = words
        result[component] = (None if current == "-" else current, tuple(activations))
    return result


def parse_boot(text: str) -> str:
    """The boot's id, from the content of BOOT_FILE. ValueError."""
    boot_id, _ = text.split()  # the time beside it is for people
    return boot_id
