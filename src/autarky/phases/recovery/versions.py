"""Which version of etcd the members of a new etcd are.

Contract: the one that its data is of, which may be another than that of the release: by an edit of the ControlPlane, or
by a file of an earlier time. An older etcd does not start from data of a newer one, and is let into no etcd of it. Of
what a host says only the version counts, so that no host says what another one runs. An API that is of an earlier time
than the data on the hosts is asked for that version before anybody joins.
"""

from __future__ import annotations

from contextlib import suppress

from autarky import places
from autarky.control.backup.decide.fitting import minor_of
from autarky.control.etcd.decide import template as etcd_template
from autarky.control.etcd.decide.template import Numbers, Request
from autarky.control.etcd.manifests import pods as etcd
from autarky.model.cluster import Node
from autarky.parsing import parsed
from autarky.phases.context import Context
from autarky.phases.etcd_joining import wait
from autarky.phases.etcd_pods import static_pods
from autarky.phases.recovery.judging import newest_etcd
from autarky.phases.recovery.state import FromSnapshot, Recovery, nodes_of
from autarky.phases.version_check import live_control_plane
from autarky.ports import Host, Object, Progress
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM


async def version_on(host: Host) -> Numbers | None:
    """Of the host's member, also where a recovery has taken its static pod away; None where nothing says one."""
    for content in [*(await static_pods(host)).values(), await host.read(places.ETCD_FENCED)]:
        with suppress(ValueError, KeyError, TypeError):
            found = etcd_template.version_of(parsed(content or b"")["spec"])
            if found is not None:
                return found
    return None


def member_pod(context: Context, node: Node, version: Numbers | None, founding: etcd.Founding | None = None) -> Object:
    """version: None for that of the release. founding: as of the manifest."""
    inputs = context.inputs()
    image = None if version is None else _image(etcd.template(inputs), etcd_template.text_of(version))
    return etcd.member_pod(inputs, node, founding, image=image)


async def seat_pod(context: Context, recovery: Recovery, node: Node) -> Object:
    """What the new etcd begins as: as the seat's member was, or like the newest of the others; and with the newest
    program that the host has, where the data is of a later minor than that."""
    host = context.host(node)
    there = await host.read(places.ETCD_FENCED)
    pod = parsed(there) if there is not None else member_pod(context, node, await _newest_of(context, recovery))
    has, source = etcd_template.version_of(pod["spec"]), recovery.source
    wrote = source.etcd if isinstance(source, FromSnapshot) else ""
    if wrote and has is not None and minor_of(wrote) > has[:2]:
        pod["spec"]["containers"][0]["image"] = _image(pod["spec"], await newest_etcd(context, host))
    return dict(pod)


async def ask_for_what_runs(context: Context, seat: Host, progress: Progress) -> None:
    """Where agents look after members, and the API is of a time when etcd was of an older minor: it would have them
    join with that one, which the new etcd lets in no more. Else nothing is changed."""
    runs = await version_on(seat)
    if runs is None or not _asks_for_older(await _template(context), runs):
        return
    version, kube = etcd_template.text_of(runs), context.kube()
    if await live_control_plane(kube) is None:
        return
    await kube.patch(API_VERSION, "ControlPlane", "cluster", {"spec": {"etcd": {"version": version}}})
    progress.note(f"spec.etcd.version of the ControlPlane is {version} now: members of the older minor could not join")

    async def followed() -> str | None:
        older = _asks_for_older(await _template(context), runs)
        return "the operator has not made a template of it" if older else None

    await wait(context, f"the members of etcd are to be {version}", followed, progress)


async def _template(context: Context) -> Object | None:
    return await context.kube().get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)


def _asks_for_older(template: Object | None, runs: Numbers) -> bool:
    """Minor. Without a template nobody joins, nor where it says no version."""
    found = [] if template is None else [etcd.spec_in(template, key) for key in (etcd.IN_FORCE_KEY, etcd.TEMPLATE_KEY)]
    asked = etcd_template.version_of(next((spec for spec in found if spec is not None), None))
    return asked is not None and asked[:2] < runs[:2]


async def _newest_of(context: Context, recovery: Recovery) -> Numbers | None:
    """Of the control nodes' members. A worker has none."""
    nodes = [node for node in nodes_of(context, recovery) if node.control_plane]
    said = [await version_on(context.host(node)) for node in nodes]
    return max((one for one in said if one is not None), default=None)


def _image(spec: Object, version: str) -> str:
    return str(etcd_template.effective(spec, Request({}, version))["containers"][0]["image"])
