"""Removing a cluster.

Contract: on lab hosts the machine itself goes. On other hosts everything that autarky put there goes:
units, containers, mounts, network interfaces, rules, files; etcd data and CA keys are moved aside with a
time stamp (rule 3: data is never deleted unless that was asked for by name). The marker goes last, so
that the next `down` resumes a killed one.

A host that does not answer holds nobody up: the others are cleaned, and the cluster's directory stays: by its CA the
next `down` recognizes the host as ours. Hosts that are left on purpose are not asked, and keep what is on them.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath

from autarky import places
from autarky.control.addons import ADD_ONS
from autarky.control.hosts.decide.belonging import Refusal
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files as generations
from autarky.control.kubelet.manifests import hosted
from autarky.control.kubelet.manifests import service as kubelet_service
from autarky.control.kubelet.manifests.units import PATHS as CHANGE_UNITS
from autarky.control.kubelet.manifests.units import UNIT as CHANGE_UNIT
from autarky.engine.phase import Change
from autarky.errors import AutarkyError, CommandFailed, Inaccessible, Problems, Refused, Unreachable
from autarky.model.cluster import Node
from autarky.model.components import LINKS
from autarky.phases import belonging
from autarky.phases.context import Context, for_each
from autarky.phases.migration.marking import ONE_ETCD, read_mark
from autarky.ports import SHORT, Host, Progress
from autarky.render import node as render_node

_MADE_BY_OTHERS = " ".join(
    (
        *("/opt/containerd/bin", "/opt/containerd/lib", "/opt/containerd"),
        *("/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume"),
        *("/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes"),
    )
)
"""By containerd (its opt plugin) and the kubelet (volume plugins) at each start, whether or not anybody uses them."""


def end_shims(root: str) -> str:
    """Shell: end what containerd was too slow to end: its shims below `root` outlive it, and what they started outlives
    them. Those of this host alone: hosts that are containers on this machine, a lab's or others', have theirs under the
    same path, and PID namespaces of their own, all of which can be seen from here."""
    return f"""\
for shim in $(pgrep --ns $$ --nslist pid -f '^{root}/[a-z]*/containerd-shim'); do
  pkill -KILL -P "$shim"; kill -KILL "$shim" 2>/dev/null
done"""


# Stops the kubelets first, so that they restart nothing; then every container; then the mounts they leave.
def _of_addons(what: str) -> str:
    return " ".join(one for addon in ADD_ONS for one in getattr(addon, what))


SUPERVISOR = PurePosixPath(hosted.SCRIPT_PATH).name
"""As the kernel calls it."""
_CLEAN = f"""\
set -u
systemctl stop {kubelet_service.GIVEN_UNIT}.path 2>/dev/null
systemctl stop {CHANGE_UNIT}.path {CHANGE_UNIT}.service 2>/dev/null
systemctl disable --now kubelet 2>/dev/null
pkill -KILL --ns $$ --nslist pid -x {SUPERVISOR} # it would start both kubelets again
[ ! -x {generations.SCRIPT_PATH} ] || {generations.SCRIPT_PATH} aside
systemctl stop kubelet 2>/dev/null
umount -l {generations.LOCK} 2>/dev/null
ctr="{places.BIN}/ctr -n k8s.io"
if $ctr version >/dev/null 2>&1; then
  for task in $($ctr tasks ls -q); do $ctr tasks kill -s KILL -a "$task" 2>/dev/null; done
  sleep 1
  for container in $($ctr containers ls -q); do
    $ctr tasks delete -f "$container" >/dev/null 2>&1; $ctr containers delete "$container" 2>/dev/null
  done
fi
systemctl disable --now containerd 2>/dev/null
{end_shims(places.HOST_ROOT)}
awk '$2 ~ "^(/var/lib/kubelet/|/run/containerd/|/var/lib/containerd/|/run/netns/cni-)" {{print $2}}' \\
  /proc/self/mounts | sort -r | while read -r point; do umount -l "$point"; done
for link in {" ".join(LINKS)}; do ip link delete "$link" 2>/dev/null; done
for netns in /run/netns/cni-*; do [ -e "$netns" ] && ip netns delete "${{netns##*/}}" 2>/dev/null; done
for table in {_of_addons("tables")}; do
  for family in ip ip6 inet; do nft delete table "$family" "$table" 2>/dev/null; done
done
for family in iptables ip6tables; do # what the kubelet and the portmap plugin leave
  command -v $family-save >/dev/null && $family-save | grep -vE 'KUBE-|CNI-' | $family-restore
done
rm -rf --one-file-system /run/containerd
rm -rf {places.MANIFESTS} {places.RUN} {_of_addons("paths")} \\
  /var/lib/cni /var/lib/kubelet /var/log/pods /var/log/containers \\
  {render_node.CONTAINERD_CONFIG} {render_node.SYSCTLS} \\
  {render_node.MODULES_FILE} \\
  {render_node.CONTAINERD_UNIT} {kubelet_service.KUBELET_UNIT} \\
  {" ".join((*kubelet_service.GIVEN_UNITS, *CHANGE_UNITS))} \\
  {kubelet_credentials.KUBELET_KUBECONFIG} {kubelet_credentials.BOOTSTRAP_KUBECONFIG} \\
  {places.STANDBY} {places.CHECKPOINTS} \\
  {places.HOST_ROOT}/nllb {places.LEAVES}
for plugin in bridge loopback host-local portmap; do
  case "$(readlink {render_node.CNI_BIN}/$plugin)" in {places.HOST_ROOT}/*) rm -f {render_node.CNI_BIN}/$plugin ;; esac
done
rmdir {_MADE_BY_OTHERS} 2>/dev/null # each where it is empty
for place in {render_node.CNI_BIN} {render_node.CNI_CONF} {render_node.CONTAINERD_CONFIG}; do
  rmdir "$place" "$(dirname "$place")" 2>/dev/null # neither what is in use, nor /opt
done
systemctl daemon-reload
"""
# What a worker has there, certificates and no key, need not be kept.
# A mount point cannot be renamed: then what is in it moves into a directory of its own.
_KEEP = f"""\
set -eu
if [ -d {places.PKI} ] && needed=$(find {places.PKI} ! -type d ! -name '*.crt') && [ -z "$needed" ]; then
  rm -rf {places.PKI} || mountpoint -q {places.PKI}
fi
for kept in {places.ETCD_DATA} {places.PKI}; do
  [ -n "$(ls -A "$kept" 2>/dev/null)" ] || continue
  if mountpoint -q "$kept"; then
    mkdir -m 700 "$kept/kept.$1"
    find "$kept" -mindepth 1 -maxdepth 1 ! -name 'kept.*' -exec mv -t "$kept/kept.$1" {{}} +
    echo "$kept/kept.$1"
  else
    mv "$kept" "$kept.$1"
    echo "$kept.$1"
  fi
done
"""
_EMPTY = 'find "$1" -mindepth 1 -delete; rmdir "$1" 2>/dev/null || mountpoint -q "$1"'
_PURGE = f"rm -rf {places.ETCD_DATA}/* {places.PKI} /var/lib/containerd/*; rmdir {places.ETCD_DATA} 2>/dev/null || true"


@dataclass(frozen=True, slots=True)
class CleanHosts:
    """Hosts that are not lab hosts: everything of ours is removed from them. Those that do not answer are noted in the
    context."""

    purge: bool
    leave: frozenset[str] = frozenset()
    name: str = "clean-hosts"
    title: str = "Clean the hosts"
    timeout: float = 300

    async def plan(self, context: Context) -> Sequence[Change]:
        ours = await self._ours(context)
        if not self.purge:
            await _refuse_closed_etcd(context, [node for node in ours if node.control_plane])
        return [Change(f"remove everything of autarky from host {n.name}") for n in ours]

    async def run(self, context: Context, progress: Progress) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")

        async def one(node: Node) -> None:
            try:
                await clean(context.host(node), stamp, progress, purge=self.purge)
            except (Unreachable, CommandFailed, Inaccessible) as error:  # root on it can make it fail; the others go on
                _leave(context, node, error)

        ours, others = await hosts_to_clean(context, self.leave)
        for sentence in others:
            progress.note(sentence)
        await for_each(ours, one)

    async def _ours(self, context: Context) -> list[Node]:
        return (await hosts_to_clean(context, self.leave))[0]


async def _refuse_closed_etcd(context: Context, nodes: Sequence[Node]) -> None:
    """An etcd of somebody's, which a copy that was cut has closed: who could open it would be gone with the hosts."""
    for node in nodes:
        mark = read_mark(await context.host(node).read(places.ETCD_COPY, most=SHORT))
        if mark is not None and not mark.opened:
            raise Refused(
                ONE_ETCD,
                f"a copy of the etcd at {', '.join(mark.urls)} was cut, and that refuses everybody until it goes back",
                "run `autarky etcd migrate` with the cluster's former file first; or, if that etcd is not needed any"
                " more, `autarky down --purge`",
            )


async def hosts_to_clean(context: Context, leave: Collection[str] = ()) -> tuple[list[Node], list[str]]:
    """(the nodes whose hosts are ours and have something on them, why others are left alone, as sentences). From here
    on the context has those that do not answer.

    Problems where this state directory has no CA to recognize its own hosts by. A host that was given to another
    cluster meanwhile is left alone, and does not keep the rest from being removed.
    """
    ours: list[Node] = []
    refused: dict[str, Refusal] = {}
    context.absent = {}
    for node in context.cluster.nodes:
        if node.host.driver == "lab" or node.name in leave:
            continue
        try:
            found = await belonging.refusals(context, [node], by_name=True)
        except (Unreachable, CommandFailed, Inaccessible) as error:  # as unknown as what does not answer
            _leave(context, node, error)
            continue
        refused |= {name: why for name, why in found.items() if why is not None}
        ours += [node] if found == {node.name: None} else []
    foreign = belonging.problems(refused)
    if foreign and context.ours.ca is None:
        raise Problems("these hosts are not known to be ours, and stay as they are", foreign)
    others = [f"{problem.what}: it is left alone" for problem in foreign]
    others += [f"node {name} does not answer and keeps all of autarky: {why}" for name, why in context.absent.items()]
    return ours, [*others, *(f"node {name} keeps all of autarky, as --leave says" for name in sorted(leave))]


def _leave(context: Context, node: Node, why: AutarkyError) -> None:
    """Raises it where a control node does not let us in: that is for the user to correct."""
    if node.control_plane and isinstance(why, Inaccessible):
        raise why
    context.absent[node.name] = str(why)


async def doomed(context: Context, *, purge: bool, leave: Collection[str] = ()) -> list[str]:
    """What `down` would remove, as sentences for whoever is asked to confirm: hosts, and what becomes of their
    data. Problems as `hosts_to_clean`."""
    ours, others = await hosts_to_clean(context, leave)
    data = "are deleted" if purge else "are moved aside"
    lines = [f"node {n.name} on {n.host}: all of autarky goes; etcd's data and the CA keys {data}" for n in ours]
    lines += [f"{sentence}, with its disk" for sentence in await context.machines.removable()]
    for change in await ForgetCluster(purge=purge).plan(context):
        lines.append(f"{change.sentence}: the keys, kubeconfig and journal of the cluster {context.cluster.name} here")
    if context.absent:
        lines.append(
            f"{context.directory} stays until the hosts that do not answer are cleaned, or left (--leave NAME)"
        )
    return [*lines, *others]


async def clean(host: Host, stamp: str, progress: Progress, *, purge: bool) -> None:
    """Remove everything of ours from the host; `stamp`: the suffix of the names under which data is kept."""
    await host.run(["sh", "-c", _CLEAN], timeout=120)
    if purge:
        await host.run(["sh", "-c", _PURGE], timeout=120)
    else:
        kept = (await host.run(["sh", "-c", _KEEP, "sh", stamp])).text.split()
        if kept:
            progress.note(f"{host.name}: kept {' and '.join(kept)}")
    await host.remove([places.NODE_MARKER])
    await host.run(["sh", "-c", _EMPTY, "sh", places.HOST_ROOT])


@dataclass(frozen=True, slots=True)
class RemoveLabHosts:
    name: str = "remove-lab-hosts"
    title: str = "Remove the lab hosts"
    timeout: float = 120

    async def plan(self, context: Context) -> Sequence[Change]:
        return [Change(sentence) for sentence in await context.machines.removable()]

    async def run(self, context: Context, progress: Progress) -> None:
        await context.machines.remove(progress)


@dataclass(frozen=True, slots=True)
class ForgetCluster:
    """The cluster's directory here: keys, kubeconfig, journal. Not while a host is still to be cleaned."""

    purge: bool
    name: str = "forget-cluster"
    title: str = "Forget the cluster"
    timeout: float = 30

    async def plan(self, context: Context) -> Sequence[Change]:
        if context.absent or not (context.directory / "cluster.json").exists():
            return []
        return [Change(f"{'delete' if self._delete(context) else 'move aside'} {context.directory}")]

    async def run(self, context: Context, progress: Progress) -> None:
        if self._delete(context):
            shutil.rmtree(context.directory)
            return
        kept = places.state_dir() / "kept" / f"{context.cluster.name}.{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        context.directory.rename(kept)
        progress.note(f"the cluster's CA keys are kept in {kept}")

    def _delete(self, context: Context) -> bool:
        """With nothing but lab hosts, whose data went with them, the keys are useless."""
        return self.purge or all(node.host.driver == "lab" for node in context.cluster.nodes)
