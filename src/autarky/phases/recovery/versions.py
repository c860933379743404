"""Which version of etcd the members of a new etcd are.

Contract: the one that its data is of, which may be another than that of the release: by an edit of the ControlPlane, or
by a file of an earlier time. An older etcd does not start from data of a newer one, and is let into no etcd of it. Of
what a host says only the version counts, so that no host says what another one runs. It is a newer minor than before
only where the data is of one, or the seat has no older programs to make it with: that is said, and the image for it is
there, before anything is touched. An API that is of an earlier time than the data on the hosts is asked for that
version before anybody joins.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from autarky import places
from autarky.control.backup.decide.fitting import minor_of
from autarky.control.etcd.decide import template as etcd_template
from autarky.control.etcd.decide.template import Numbers, Request
from autarky.control.etcd.manifests import pods as etcd
from autarky.errors import Refused
from autarky.model.cluster import Node
from autarky.model.versions import Version
from autarky.parsing import parsed
from autarky.phases.context import Context
from autarky.phases.etcd_joining import wait
from autarky.phases.etcd_pods import static_pods
from autarky.phases.etcd_template import refusal
from autarky.phases.prepare import present_images
from autarky.phases.recovery.programs import Programs, newest_etcd, programs_of
from autarky.phases.recovery.state import Began, FromSnapshot, Recovery, began_in, nodes_of
from autarky.phases.version_check import live_control_plane
from autarky.ports import SHORT, Host, Kube, Object, Progress
from autarky.render.crds import API_VERSION
from autarky.render.values import SYSTEM


async def version_on(host: Host) -> Numbers | None:
    """Of the host's member, also where a recovery has taken its static pod away; None where nothing says one."""
    for content in await _own_pods(host):
        with suppress(ValueError, KeyError, TypeError):
            found = etcd_template.version_of(parsed(content)["spec"])
            if found is not None:
                return found
    return None


def member_pod(context: Context, node: Node, version: Numbers | None, founding: etcd.Founding | None = None) -> Object:
    """version: None for that of the release. founding: as of the manifest."""
    inputs = context.inputs()
    image = None if version is None else _image(etcd.template(inputs), etcd_template.text_of(version))
    return etcd.member_pod(inputs, node, founding, image=image)


@dataclass(frozen=True, slots=True)
class Beginning:
    """programs: what makes the data. newer: where the new etcd is of a later minor than before, a sentence about it."""

    programs: Programs
    newer: str = ""


async def how_it_begins(context: Context, recovery: Recovery) -> Beginning:
    """On the seat. Refused where its image of a later minor is not there: then nothing could start from the data."""
    node, source = context.cluster.node(recovery.seat), recovery.source
    host = context.host(node)
    pod = await _pod_before(context, recovery, node)
    has = etcd_template.version_of(pod["spec"])
    if has is None:
        return Beginning(Programs(Version.parse(await newest_etcd(context, host))))
    wrote = source.etcd if isinstance(source, FromSnapshot) else ""
    needed = max(has[:2], minor_of(wrote)) if wrote else has[:2]
    programs = await programs_of(context, host, needed)
    if programs.minor <= has[:2]:
        return Beginning(programs)
    why = f"the data is of {wrote}" if needed > has[:2] else f"{node.name} has no programs of {has[0]}.{has[1]}"
    newer = f"etcd on {node.name} was {etcd_template.text_of(has)}, and the new one is {programs.text}: {why}"
    await _refuse_absent(host, _image(pod["spec"], programs.text), programs.text, newer)
    return Beginning(programs, newer)


async def seat_pod(context: Context, recovery: Recovery, node: Node) -> Object:
    """What the new etcd begins as: as the seat's member was, or like the newest of the others; of the version that has
    made the data, where that is of a later minor. Data that says nothing of that was made by an earlier release."""
    host, pod = context.host(node), await _pod_before(context, recovery, node)
    began = Began.read(await host.read(began_in(recovery.work), most=SHORT))
    made_by = (began.etcd if began is not None else "") or await newest_etcd(context, host)
    has = etcd_template.version_of(pod["spec"])
    if has is not None and minor_of(made_by) > has[:2]:
        pod["spec"]["containers"][0]["image"] = _image(pod["spec"], made_by)
    return pod


async def _pod_before(context: Context, recovery: Recovery, node: Node) -> Object:
    """Of the seat's member, fenced or not; of a new one where it had none, or its pod cannot be understood."""
    for content in await _own_pods(context.host(node)):
        with suppress(ValueError, KeyError, TypeError, IndexError):
            found = dict(parsed(content))
            if isinstance(found["spec"]["containers"][0]["image"], str):
                return found
    return dict(member_pod(context, node, await _newest_of(context, recovery)))


async def _own_pods(host: Host) -> list[bytes]:
    """Of the host's member, also where a recovery has taken its static pod away."""
    found = [*(await static_pods(host)).values(), await host.read(places.ETCD_FENCED)]
    return [content for content in found if content is not None]


async def _refuse_absent(host: Host, image: str, version: str, why: str) -> None:
    present = await present_images(host)
    if present is not None and image in present:
        return
    is_there = f"{image} is not on {host.name}" if present is not None else f"containerd on {host.name} does not answer"
    raise Refused(
        "a new etcd begins only where its image is",
        f"{is_there}: {why}",
        f"run `autarky payload etcd push {version}`, and the same command again",
    )


async def ask_for_what_runs(context: Context, seat: Host, progress: Progress) -> None:
    """Where agents look after members, and the API is of a time when etcd was of an older minor: it would have them
    join with that one, which the new etcd lets in no more. Else nothing is changed. TimedOut."""
    runs = await version_on(seat)
    if runs is None or not _asks_for_older(await _template(context), runs):
        return
    version, kube = etcd_template.text_of(runs), context.kube()
    if await live_control_plane(kube) is None:
        return
    await kube.patch(API_VERSION, "ControlPlane", "cluster", {"spec": {"etcd": {"version": version}}})
    progress.note(f"spec.etcd.version of the ControlPlane is {version} now: members of the older minor could not join")

    async def followed() -> str | None:
        template = await _template(context)
        if template is None or not (_asks_for_older(template, runs) or _goes_back_to_older(template, runs)):
            return None
        await _forget_decisions(kube, template)
        why = refusal(await live_control_plane(kube) or {})
        return ": ".join(filter(None, ["the operator has not made a template of it", why]))

    await wait(context, f"the members of etcd are to be {version}", followed, progress)


async def _forget_decisions(kube: Kube, template: Object) -> None:
    """What the operator has decided for the etcd of that earlier time: to give this very version up, to go back to one
    that cannot join, or that no step leads from there to here. It decides again by what is asked for."""
    keys = (etcd.IN_FORCE_KEY, etcd.SETTLED_KEY, etcd.CONDEMNED_KEY, etcd.WHY_KEY)
    if (template.get("data") or {}).keys() & set(keys):
        gone = {"data": dict.fromkeys(keys)}
        await kube.patch("v1", "ConfigMap", etcd.TEMPLATE, gone, namespace=SYSTEM)


async def _template(context: Context) -> Object | None:
    return await context.kube().get("v1", "ConfigMap", etcd.TEMPLATE, SYSTEM)


def _asks_for_older(template: Object | None, runs: Numbers) -> bool:
    """Minor. Without a template nobody joins, nor where it says no version."""
    found = [] if template is None else [etcd.spec_in(template, key) for key in (etcd.IN_FORCE_KEY, etcd.TEMPLATE_KEY)]
    asked = etcd_template.version_of(next((spec for spec in found if spec is not None), None))
    return asked is not None and asked[:2] < runs[:2]


def _goes_back_to_older(template: Object, runs: Numbers) -> bool:
    settled = etcd_template.version_of(etcd.spec_in(template, etcd.SETTLED_KEY))
    return settled is not None and settled[:2] < runs[:2]


async def _newest_of(context: Context, recovery: Recovery) -> Numbers | None:
    """Of the control nodes' members. A worker has none."""
    nodes = [node for node in nodes_of(context, recovery) if node.control_plane]
    said = [await version_on(context.host(node)) for node in nodes]
    return max((one for one in said if one is not None), default=None)


def _image(spec: Object, version: str) -> str:
    return str(etcd_template.effective(spec, Request({}, version))["containers"][0]["image"])
