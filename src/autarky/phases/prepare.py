"""Preparing hosts for a kubelet: binaries, container runtime, images, files. Nothing of Kubernetes runs yet.

Contract: files are compared by digest and mode, binaries by the links to them (`binaries`). A service is restarted only
when something that it reads at its start has changed. The programs of kubelet and runtime belong to generations
(`generations`), which change through the API once the node is in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from autarky import places
from autarky.control.addons import images_of
from autarky.control.certificates.manifests import leaves
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.control.kubelet.manifests import files as kubelet_files
from autarky.control.kubelet.manifests import service as kubelet_service
from autarky.control.kubelet.manifests import units as change_units
from autarky.control.slots import manifests as standby
from autarky.engine.phase import Change, Warn
from autarky.model.cluster import Node
from autarky.model.components import WITH_STANDBY
from autarky.model.files import File
from autarky.payload import Binary, Image
from autarky.phases import balancer, former_settings, generations, members, standbys
from autarky.phases.binaries import install_binaries, missing_binaries, point_links
from autarky.phases.context import Context, for_each_or_left_out, left_out_since
from autarky.phases.files import changed_files
from autarky.phases.labelled import is_labelled
from autarky.phases.version_check import refuse_newer_kubelet
from autarky.ports import Host, Progress
from autarky.render import cluster_record
from autarky.render import node as render_node
from autarky.render.node_marker import node_marker

SEEN_WITHIN, PREPARED_WITHIN = 120.0, 420.0
"""Seconds for the host of one worker that has joined before, which is left out after that: together less than the
phase has. A machine that is twenty times slower than usual takes 180 s for all binaries and images."""
OTHER_BINARIES = {name: path for name, path in render_node.BINARIES.items() if name not in kubelet_files.PROGRAMS}
CTR = (f"{places.BIN}/ctr", "--namespace", "k8s.io")
PINNED = "io.cri-containerd.pinned=pinned"


@dataclass(slots=True)
class NodeWork:
    """What is to be done on one host; empty when nothing is."""

    binaries: dict[str, Binary] = field(default_factory=dict)
    first: generations.First | None = None
    """What its kubelet is to start with."""
    links: dict[str, str] = field(default_factory=dict)
    """Those to the programs in force."""
    left: list[str] = field(default_factory=list)
    """Files of an earlier release."""
    files: list[File] = field(default_factory=list)
    leaves: list[File] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    revisions: list[standby.Revision] = field(default_factory=list)
    start_runtime: bool = False
    watch: bool = False
    """Whether to start or restart the units that watch for what the node's agent asks for."""
    renewable: frozenset[str] = frozenset()
    """The components whose standby nobody else restarts."""
    outdated: list[str] = field(default_factory=list)
    """Those of them whose standby runs in another revision than the current one."""
    warnings: list[Warn] = field(default_factory=list)

    def __bool__(self) -> bool:
        services = self.start_runtime or self.watch
        of_standby = self.revisions or self.outdated
        programs = self.binaries or self.first or self.links or self.left
        return bool(programs or self.files or self.leaves or self.images or of_standby or services)

    def sentences(self, node: Node) -> list[str]:
        result = []
        binaries = {**self.binaries, **(self.first.programs if self.first is not None else {})}
        if binaries:
            result.append(f"install {len(binaries)} binaries on {node.name}")
        if self.first is not None:
            result.append(f"make {self.first.generation.name} the generation of the kubelet of {node.name}")
        result += [f"point {link} to the program in force on {node.name}" for link in self.links]
        result += [f"remove {path} from {node.name}" for path in self.left]
        result += [f"write {file.path} on {node.name}" for file in self.files]
        result += [f"write {file.path} on {node.name}" for file in self.leaves]
        if self.watch:
            result.append(f"watch for what the agent of {node.name} asks for its kubelet")
        if self.start_runtime:
            result.append(f"start containerd on {node.name}")
        if self.images:
            result.append(f"import {len(self.images)} images on {node.name}")
        result += [f"put standby {r.name} of {r.component} in place on {node.name}" for r in self.revisions]
        result += [
            f"restart the standby of {component} on {node.name} with its current revision"
            for component in self.outdated
        ]
        return result


@dataclass(frozen=True, slots=True)
class PrepareHosts:
    name: str = "prepare-hosts"
    title: str = "Prepare the hosts"
    timeout: float = 600
    # It notes on the hosts what these run, and whose they are: what refuses a file has to come before it.
    needs: tuple[str, ...] = ("check-file", "upgrade-control-plane", "get-payload", "issue-certificates")

    async def plan(self, context: Context) -> Sequence[Change | Warn]:
        if not context.addresses_known or context.payload is None or not context.pki.complete():
            return [Change(f"prepare host {node.name}") for node in context.cluster.nodes]
        before = set(context.absent)
        work = await self._look(context)
        found: list[Change | Warn] = [
            Change(s) for node in members.that_answer(context) for s in work[node.name].sentences(node)
        ]
        found += [warning for one in work.values() for warning in one.warnings]
        return found + left_out_since(context, before)

    async def run(self, context: Context, progress: Progress) -> None:
        work = await self._look(context, progress)
        firsts = [one.first for one in work.values() if one.first is not None]
        if any(one.ours for one in firsts) and await context.api_answers():
            await refuse_newer_kubelet(context)  # these start with our program, also if their hosts only boot

        async def one(node: Node) -> None:
            if work[node.name]:
                await carry_out(context.host(node), work[node.name], progress)

        await for_each_or_left_out(context, members.that_answer(context), one, progress, seconds=PREPARED_WITHIN)

    async def _look(self, context: Context, progress: Progress | None = None) -> Mapping[str, NodeWork]:
        return await for_each_or_left_out(
            context, members.that_answer(context), lambda node: look(context, node), progress, seconds=SEEN_WITHIN
        )


async def look(context: Context, node: Node) -> NodeWork:
    """Compare the host with what the node needs."""
    payload = context.require_payload()
    host = context.host(node)
    inputs = context.inputs()
    files = [_marker(context, node), *render_node.system_files(inputs, node), *render_node.kubelet_files(inputs, node)]
    if node.control_plane:
        files += cluster_record.files(inputs, certificate_specs(context.complete))
    revisions = standbys.wanted_revisions(context, node)
    if not context.founded and node.name != context.first.name:
        files += [file for revision in revisions for file in revision.files]
        revisions = []
    work = NodeWork(binaries=await missing_binaries(host, payload, OTHER_BINARIES))
    work.first = await generations.first(context, host, node)
    work.links = await generations.missing_links(host)
    work.left = sorted(await host.digests(former_settings.LEFT))
    work.files = await changed_files(host, await balancer.without_kept(host, context.cluster, files))
    work.leaves = await missing_leaves(context, host, node)
    work.revisions = await standbys.revisions_to_put(context, host, revisions)
    work.renewable = await standbys.renewable(context, host, revisions)
    work.outdated = [c for c in await standbys.outdated(host) if c in work.renewable] if work.renewable else []
    work.warnings = await standbys.untouched(context, host, node, work.revisions)
    work.watch = await lacks_watch(host, work.files)
    runtime = await host.run(["systemctl", "is-active", "containerd"], check=False)
    work.start_runtime = runtime.text != "active" or any(f.path == render_node.CONTAINERD_CONFIG for f in work.files)
    wanted = [payload.images[name] for name in images_of(context.cluster)]
    work.images = await _missing_images(host, wanted, readable=not work.start_runtime and not work.binaries)
    return work


async def carry_out(host: Host, work: NodeWork, progress: Progress) -> None:
    """Ordered so that a kill leaves nothing that misleads the next run."""
    for file in work.files:
        if file.path == places.NODE_MARKER:
            await host.write_files([file])
    await settle_kernel(host, work.files)
    await install_binaries(host, work.binaries, progress)
    if work.first is not None:  # before the unit that starts it
        await install_binaries(host, work.first.by_path, progress, unlinked=work.first.by_path)
        await host.write_files([kubelet_files.script()])
        await generations.make(host, work.first)
    await point_links(host, work.links)
    await host.write_files([file for file in work.files if file.path != places.NODE_MARKER])
    if any(file.path in _UNITS for file in work.files):
        await host.run(["systemctl", "daemon-reload"])
    await write_leaves(host, work.leaves)
    await balancer.reload_after(host, work.files)
    if work.watch:
        await _watch(host)
    await host.remove(work.left)  # once systemd has read the unit that does without them
    if work.start_runtime:
        await _start_runtime(host)
    if work.start_runtime or work.images:
        await import_images(host, work.images, progress)
    for revision in work.revisions:
        await standbys.put_revision(host, revision)
    await standbys.renew_outdated(host, work.renewable)
    progress.note(f"{host.name} is prepared")


# --- files -----------------------------------------------------------------------------------------


def _marker(context: Context, node: Node) -> File:
    initial_members = [each.name for each in context.complete.initial_members] if node.control_plane else []
    version = str(context.cluster.kubernetes_version)
    return node_marker(context.cluster.name, node.name, initial_members, version=version, ca=context.ours.ca)


async def settle_kernel(host: Host, files: Sequence[File]) -> None:
    """Apply the modules and sysctls among these files to the kernel before the files are written: after a kill in
    between, the next run finds the files missing. Modules come first: their settings do not exist without them.

    That a module cannot be loaded (in a container, with a kernel that has it built in) is no failure: preflight has
    checked that the kernel has what is needed.
    """
    for file in files:
        if file.path == render_node.MODULES_FILE:
            await host.run(["sh", "-c", _LOAD_MODULES, "sh", *render_node.MODULES], timeout=60)
    for file in files:
        if file.path in (render_node.MODULES_FILE, render_node.SYSCTLS):
            settings = render_node.SYSCTL_SETTINGS.encode()
            await host.run(["sysctl", "--quiet", "--load=-"], stdin=settings, check=False)
            return


_LOAD_MODULES = 'for m; do [ -d "/sys/module/$m" ] || modprobe -q "$m" 2>/dev/null || :; done'

# --- leaf certificates -----------------------------------------------------------------------------

# The components' group may read its files; nobody else may even list them.
_MAKE_LEAF_DIRECTORIES = f"""\
install -d -m 700 {places.LEAVES} && cd {places.LEAVES} && install -d -m 750 -g {leaves.GROUP} -- "$@"
"""
_SHARE_LEAVES = f"""\
cd {places.LEAVES} && for name; do chgrp {leaves.GROUP} -- "$name"/* || exit 1; done
"""


async def is_given_leaves(context: Context, host: Host, node: Node) -> bool:
    """node: as it is in the file, or as it joins. What the disk of a worker of the file says counts for nothing: root
    there can write it, and would be given the control plane's keys. Its label does, which no kubelet may set; while the
    API does not answer it is given nothing."""
    if members.as_it_joins(node).control_plane or node.name in context.active_in_api:
        return True
    return any(one.name == node.name for one in context.cluster.control_nodes) and await is_labelled(host)


async def missing_leaves(context: Context, host: Host, node: Node) -> list[File]:
    """The certificates that a control node starts with and lacks: those that exist are renewed by its agent. A control
    node made by its label gets them from its agent, unless an earlier release made it: then its agent does not know of
    them yet."""
    if not await is_given_leaves(context, host, node):
        return []
    paths = render_node.leaf_paths(context.complete, node)
    seen = await host.digests(paths)
    if seen.keys() >= set(paths):
        return []
    *wanted, plan = render_node.leaf_files(context.inputs(), node)
    # A certificate and its key are written together: each run issues others.
    absent = {PurePosixPath(file.path).with_suffix("") for file in wanted if seen.get(file.path) is None}
    missing = [file for file in wanted if PurePosixPath(file.path).with_suffix("") in absent]
    return [*missing, plan]


async def write_leaves(host: Host, files: Sequence[File]) -> None:
    """The plan is written last: leaves without it are looked for again."""
    if files:
        *first, plan = files
        await host.run(["sh", "-c", _MAKE_LEAF_DIRECTORIES, "sh", *WITH_STANDBY])
        await host.write_files(first)
        await host.run(["sh", "-c", _SHARE_LEAVES, "sh", *WITH_STANDBY])
        await host.write_files([plan])


# --- container runtime and images ------------------------------------------------------------------


_UNITS = (render_node.CONTAINERD_UNIT, kubelet_service.KUBELET_UNIT)
_WATCHES = (kubelet_service.GIVEN_UNITS, change_units.PATHS)
"""(path unit, service): for certificates given to the kubelet, and for what its agent asks for."""
_KUBELET_AND_WATCHES = ("kubelet.service", *(PurePosixPath(path).name for pair in _WATCHES for path in pair))


async def lacks_watch(host: Host, written: Sequence[File]) -> bool:
    """Whether a kubelet runs, or is about to, without the units that watch for what its agent has given it or asks for,
    or with outdated ones; starting a kubelet starts them too. systemd is asked, since what this run writes does not
    tell: the run that wrote the units may have been killed before it started the watch."""
    said = await host.run(
        ["systemctl", "show", "--property=ActiveState", "--property=NeedDaemonReload", *_KUBELET_AND_WATCHES],
        check=False,
    )
    kubelet, *watches = (block.splitlines() for block in said.text.split("\n\n"))
    if not {"ActiveState=active", "ActiveState=activating"} & set(kubelet):
        return False
    watch = all("ActiveState=active" in unit for unit in watches[::2])
    is_old = any("NeedDaemonReload=yes" in unit for unit in watches)
    return not watch or is_old or any(file.path in pair for pair in _WATCHES for file in written)


async def _watch(host: Host) -> None:
    await host.run(["systemctl", "daemon-reload"])
    for pair in _WATCHES:
        await host.run(["systemctl", "restart", PurePosixPath(pair[0]).name])


async def _start_runtime(host: Host) -> None:
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "enable", "containerd"])
    await host.run(["systemctl", "restart", "containerd"], timeout=60)


async def present_images(host: Host) -> dict[str, str] | None:
    """Reference → manifest digest; None where the runtime does not answer."""
    listing = await host.run([*CTR, "images", "ls"], check=False)
    if listing.status != 0:
        return None
    rows = [line.split() for line in listing.text.splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}


async def _missing_images(host: Host, wanted: Sequence[Image], *, readable: bool) -> list[Image]:
    """Compared by manifest digest; all of them where the runtime does not answer yet."""
    present = (await present_images(host) or {}) if readable else {}
    return [image for image in wanted if present.get(image.reference) != image.manifest_digest]


async def import_images(host: Host, images: Sequence[Image], progress: Progress) -> None:
    """Images that are there are left alone."""
    missing = await _missing_images(host, images, readable=True)
    for number, image in enumerate(missing):
        progress.progress(f"{host.name}: images", number, len(missing))
        archive = f"{places.RUN}/import-{image.sha256[:16]}.tar"
        await host.push(image.archive, archive, mode=0o600)
        # Pinned from the start: after a kill in between, it would count as present, and the kubelet would remove it.
        await host.run([*CTR, "images", "import", "--label", PINNED, archive], timeout=300)
        await host.remove([archive])
