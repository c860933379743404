"""The load balancer's configuration between `up` and the node agent: `up` writes the first one, the agent the others.

Contract: a configuration that leads to any control node of the cluster file belongs to the agent and is left alone,
whatever else it says: the cluster may have changed since the file was written, and the agent of this release renders it
again. One that leads to none (or does not say what it was made from) is left over from an earlier use of the host, and
no agent could reach an API through it. Whoever writes a configuration makes a running HAProxy load it.
"""

from __future__ import annotations

from collections.abc import Sequence

from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.model.balancer import Balancer
from autarky.model.cluster import Cluster
from autarky.model.files import File
from autarky.ports import Host

_AGENTS = (nllb.CONFIG_PATH, nllb.LUA_PATH)
# A master of our HAProxy listens on our socket; its workers have the same command line, and the master as their parent.
# The user may run another HAProxy.
_RELOAD = """\
ours() { tr '\\0' '\\n' <"/proc/$1/cmdline" 2>/dev/null | grep -qx "/run/haproxy/master.sock,mode,600"; }
for directory in /proc/[0-9]*; do
  pid=${directory#/proc/}
  ours "$pid" || continue
  parent=$(sed -n 's/^PPid:[[:space:]]*//p' "$directory/status" 2>/dev/null) || continue
  ours "$parent" || kill -USR2 "$pid"
done
"""


async def configured(host: Host) -> Balancer | None:
    """What its configuration was made from; None where there is none, or it does not say."""
    found = await host.read(nllb.CONFIG_PATH)
    return None if found is None else nllb.parse(found.decode(errors="replace"))


async def configure(host: Host, wanted: Balancer) -> None:
    files = nllb.configuration_files(wanted)
    await host.write_files(files)
    await reload_after(host, files)


async def without_kept(host: Host, cluster: Cluster, files: Sequence[File]) -> list[File]:
    """The files that `up` manages on this host."""
    current = await configured(host)
    known = {(node.name, node.address) for node in cluster.control_nodes}
    if current is None or not any((node.name, node.address) in known for node in current.servers):
        return list(files)
    return [file for file in files if file.path not in _AGENTS]


async def reload_after(host: Host, written: Sequence[File]) -> None:
    """Make HAProxy reload if its configuration was written; does nothing where no HAProxy of ours runs."""
    if any(file.path == nllb.CONFIG_PATH for file in written):
        await host.run(["sh", "-c", _RELOAD])
