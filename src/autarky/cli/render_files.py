"""The files that `autarky render` writes.

    manifests/NN-PART.yaml   API objects, in the order in which they are applied
    hosts/NODE/PATH          what lies on each host, at its path there
    certificates.yaml        which certificates there are, and for whom
    kubeconfig               the user's; super-admin.conf: for the first `kubectl apply`, before any RBAC is there
    binaries/PATH            the same on every host
    images/NAME.tar          for `ctr images import`

Contract: files and directories have the modes that they have on hosts: a directory is closed where the first file in
it is (as `hosts.shell` makes it), or where a phase makes it so. What a host has already keeps its mode, if it is
unpacked as docs/by-hand.md does. Groups are those of whoever renders: a tar that is unpacked as root has root's, and
the leaves are to be given to their group there.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autarky import places
from autarky.model.components import WITH_STANDBY
from autarky.model.files import File

if TYPE_CHECKING:
    from autarky.model.cluster import Cluster, Node
    from autarky.payload import Release
    from autarky.ports import Progress
    from autarky.render.values import Inputs


def write_all(inputs: Inputs, directory: Path, *, in_file: Cluster | None = None) -> list[Path]:
    """Everything but the payload. `in_file`: the cluster of the file, if the inputs follow its ControlPlane instead."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = [*_manifests(inputs, directory / "manifests", in_file), *_hosts(inputs, directory / "hosts")]
    return [*written, *_kubeconfigs(inputs, directory), _certificates(inputs.cluster, directory)]


# --- manifests ------------------------------------------------------------------------------------------------


def _manifests(inputs: Inputs, directory: Path, in_file: Cluster | None) -> list[Path]:
    """One file per part, with the record of what was applied, as `up` writes it: later, an edit can be distinguished
    from a rendered value, whoever applied it."""
    from autarky.control.drift.decide import applied
    from autarky.render.objects import agent_parts, parts

    written = []
    for number, part in enumerate([*parts(inputs, in_file), *agent_parts(inputs)]):
        objects = [applied.with_record(obj, obj) if applied.is_recorded(obj) else obj for obj in part.objects]
        path = directory / f"{number:02d}-{part.name}.yaml"
        written.append(_write(path, "---\n".join(_yaml(obj) for obj in objects).encode(), 0o600))
    return written


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True)


# --- hosts ----------------------------------------------------------------------------------------------------


def _hosts(inputs: Inputs, directory: Path) -> list[Path]:
    return [path for node in inputs.cluster.nodes for path in _host(inputs, node, directory / node.name)]


def _host(inputs: Inputs, node: Node, root: Path) -> list[Path]:
    """A control node that is not an initial member joins as a worker, and is rendered as one. The standbys of the first
    initial member are in place; the others are put there once the API has answered (`standby switch`)."""
    from autarky.control.certificates.manifests import leaves
    from autarky.control.etcd.manifests import pods as etcd
    from autarky.control.kubelet.manifests import configuration as kubelet_configuration
    from autarky.control.kubelet.manifests import credentials as kubelet_credentials
    from autarky.control.kubelet.manifests import files as kubelet_files
    from autarky.control.slots import manifests as standby
    from autarky.phases.members import as_it_joins
    from autarky.render import node as render_node

    node = as_it_joins(node)
    files: list[File] = [
        _marker(inputs, node),
        *render_node.system_files(inputs, node),
        *render_node.kubelet_files(inputs, node),
    ]
    files += [*render_node.static_pods(inputs, node).values(), *render_node.agent_pod(inputs, node).values()]
    programs = {name: render_node.BINARIES[name] for name in kubelet_files.PROGRAMS}
    first = kubelet_configuration.first_generation(inputs, node, programs)
    files += [File(f"{first.directory}/{name}", content) for name, content in first.contents.items()]
    files.append(File(f"{first.directory}/{kubelet_files.COMPLETE}", first.complete))
    links = {f"{first.directory}/{name}": target for name, target in first.links.items()}
    links[kubelet_files.CURRENT] = first.name
    if node.control_plane:
        files += [*kubelet_credentials.first_credentials(inputs, node), *render_node.leaf_files(inputs, node)]
        links |= kubelet_credentials.FIRST_LINK
        for path, mode in leaves.DIRECTORIES.items():
            _directory(_below(root, path)).chmod(mode)
        revisions = [standby.revision(inputs, component) for component in WITH_STANDBY]
        files += [file for revision in revisions for file in revision.files]
        if node == inputs.cluster.initial_members[0]:
            links |= {f"{places.STANDBY}/{r.component}/current": r.name for r in revisions}
    if render_node.has_etcd(inputs, node):
        _directory(_below(root, etcd.MEMBER_DIRECTORY)).chmod(0o700)
        _below(root, places.ETCD_DATA).chmod(0o700)
        files += etcd.beginning(inputs)
    written = [_write(_below(root, file.path), file.content, file.mode) for file in files]
    return [*written, *(_link(_below(root, link), target) for link, target in links.items())]


def _marker(inputs: Inputs, node: Node) -> File:
    from autarky.model.fingerprint import fingerprint
    from autarky.render.node_marker import node_marker

    cluster = inputs.cluster
    initial_members = [each.name for each in cluster.initial_members] if node.control_plane else []
    version, ca = str(cluster.kubernetes_version), fingerprint(inputs.credentials["ca.crt"])
    return node_marker(cluster.name, node.name, initial_members, version=version, ca=ca)


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


# --- the rest ---------------------------------------------------------------------------------------------------


def _kubeconfigs(inputs: Inputs, directory: Path) -> list[Path]:
    from autarky.model import ports
    from autarky.render.kubeconfig import client_kubeconfig

    endpoint = inputs.cluster.control_plane_endpoint
    server = endpoint or f"{inputs.cluster.control_nodes[0].known_address()}:{ports.NLLB_API}"
    names = {"kubeconfig": ("kubernetes-admin", "admin"), "super-admin.conf": ("super-admin", "super-admin")}
    return [
        _write(directory / name, client_kubeconfig(inputs, *identity, server=f"https://{server}"), 0o600)
        for name, identity in names.items()
    ]


def _certificates(cluster: Cluster, directory: Path) -> Path:
    from autarky.control.certificates.manifests.leaves import first_specs
    from autarky.control.certificates.manifests.specs import certificate_specs

    first = [spec for spec, _ in first_specs(cluster, cluster.control_nodes)]
    specs = [
        {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(s).items()}
        for s in [*certificate_specs(cluster), *first]
    ]
    return _write(directory / "certificates.yaml", _yaml(specs).encode(), 0o644)


async def write_payload(release: Release, cluster: Cluster, directory: Path, progress: Progress) -> list[Path]:
    """Binaries at their paths on a host, and images as archives; built if the store lacks them."""
    from autarky.control.addons import images_of
    from autarky.payload import get_payload
    from autarky.render import node as render_node

    payload = await get_payload(release, progress)
    copies = {
        _below(directory / "binaries", path): payload.binaries[n].path for n, path in render_node.BINARIES.items()
    }
    copies |= {directory / "images" / f"{name}.tar": payload.images[name].archive for name in images_of(cluster)}
    for number, (target, source) in enumerate(copies.items()):
        progress.progress("files of the payload", number, len(copies))
        _directory(target.parent)
        shutil.copyfile(source, target)
        target.chmod(0o644 if target.suffix == ".tar" else 0o755)
    return list(copies)


# --- files ------------------------------------------------------------------------------------------------------


def _directory(path: Path, *, mode: int = 0o755) -> Path:
    """The directory; those above it are made open to all that may enter those above them. Whatever the umask is."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(mode if each == path else 0o755)
    return path


def _write(path: Path, content: bytes, mode: int) -> Path:
    from autarky.store import write_private

    _directory(path.parent, mode=0o755 if mode & 0o77 else 0o700)
    write_private(path, content, mode=mode)
    return path


def _link(path: Path, target: str) -> Path:
    _directory(path.parent)
    path.symlink_to(target)
    return path
