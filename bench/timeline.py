"""What runs when, and on whose processor time, while a cluster comes up or comes back: as a picture.

    up         from prepared hosts to a cluster that is Ready, of one node, as the benchmark of that name
    reboot     power cut of the only node, as that benchmark; ha_reboot: of three control nodes and a worker

autarky's side alone, once. The picture has a lane for each unit, container, lease and phase, with the moments that the
benchmark times over all of them; below, processor time by component, and who used most. Pale bars: what is being made
or starts; full ones: what runs. Of pods and Nodes, a line: in the API, ring: scheduled, dot: Ready.

All times are of one clock, this machine's monotonic one: test hosts are containers here and share its kernel. Times
that come from the API have no fraction of a second.

What looks costs something itself (one or two hundredths of the machine, drawn as "this benchmark", with the kubectls of
the benchmark's own polls): figures belong in measurements, which are made without.

    ./run bench timeline up|reboot|ha_reboot [--svg FILE] [--product DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ha_reboot
import reboot
import up
from _alone import alone, take_leftovers_away
from _autarky import STATE, AutarkyCluster
from _power import POD, READY, CutCluster, cut_and_return
from _product import product_of
from _ready import HOSTED, until_ready
from _rounds import STEADY_SECONDS
from _timeline_collect import Collected, FirstReady, collected, sampling
from _timeline_lanes import (
    Clock,
    Lane,
    Mark,
    container_lanes,
    in_order,
    lease_lanes,
    node_lanes,
    phase_lanes,
    pod_and_container,
    pod_marks,
    unit_lanes,
    with_marks,
)
from _timeline_svg import Picture, draw
from _timeline_usage import Usage, read_looks, report, usage
from _up import READY as ALL_READY
from _up import RETURNED

from autarky.cli.wiring import Silence
from autarky.lab import Lab
from autarky.payload import Payload, default_version, get_payload, load_release

TAIL_SECONDS = 10
"""After the last moment that is timed: what is still coming then is part of the picture."""
BEFORE_SECONDS = 1.0
CLOCK_TOLERANCE = 0.05
COMMAND, CLUSTER = "the command", "the cluster"
"""What stands above the hosts."""


@dataclass(frozen=True)
class Watched:
    """One run. begin, end: monotonic seconds, when the clock started and when the looks ended."""

    begin: float
    end: float
    moments: Sequence[Mark]
    first_ready: FirstReady
    events: str = ""


@dataclass(frozen=True)
class Scenario:
    cluster: AutarkyCluster
    watch: Callable[[Payload, AutarkyCluster, Path], Awaitable[Watched]]
    looks: Path = field(default=STATE / "timeline.looks")


async def watch_up(_payload: Payload, cluster: AutarkyCluster, looks: Path) -> Watched:
    _say("hosts with everything in place")
    cluster.prepare()
    _say("up")
    with sampling(looks), FirstReady(cluster, booting=False) as first_ready:
        ready, (begin, returned) = await asyncio.gather(_all_ready(cluster), asyncio.to_thread(_timed_up, cluster))
        await asyncio.sleep(TAIL_SECONDS)
        end = time.monotonic()
    moments = [Mark(ready, ALL_READY), Mark(returned, RETURNED)]
    return Watched(begin, end, moments, first_ready, cluster.log.read_text())


async def _all_ready(cluster: AutarkyCluster) -> float:
    await until_ready(cluster.kubeconfig, {**dict.fromkeys(HOSTED, 1), **up.ADDONS})
    return time.monotonic()


def _timed_up(cluster: AutarkyCluster) -> tuple[float, float]:
    """When the command began and when it returned."""
    took = cluster.timed("up")
    returned = time.monotonic()
    return returned - took, returned


async def watch_power_cut(payload: Payload, cluster: AutarkyCluster, looks: Path) -> Watched:
    _say("a cluster")
    cluster.write()
    cluster.up()
    _say(f"it rests for {STEADY_SECONDS} s")
    await asyncio.sleep(STEADY_SECONDS)
    _say("the power is cut and comes back")
    with tempfile.TemporaryDirectory() as directory:
        kubectl = [*cluster.kubectl(payload), f"--cache-dir={directory}/cache"]
        hosts = (*cluster.control, *cluster.workers)
        with sampling(looks), FirstReady(cluster, booting=True) as first_ready:
            found = await cut_and_return(CutCluster(Lab.open(cluster.name), hosts, kubectl), "after-1")
            # It returns the moment the pod was seen to run; its clock starts with the power, after the cut.
            begin = time.monotonic() - found.pod
            await asyncio.sleep(TAIL_SECONDS)
            end = time.monotonic()
    return Watched(begin, end, [Mark(begin + found.ready, READY), Mark(begin + found.pod, POD)], first_ready)


SCENARIOS = {
    "up": Scenario(up.CLUSTER, watch_up),
    "reboot": Scenario(reboot.OURS, watch_power_cut),
    "ha_reboot": Scenario(ha_reboot.OURS, watch_power_cut),
}


# --- the picture ----------------------------------------------------------------------------------


def lanes_of(watched: Watched, found: Collected, clock: Clock) -> list[Lane]:
    marks = pod_marks(found.pods, clock, watched.begin)
    lanes = [*phase_lanes(COMMAND, watched.events, clock), *lease_lanes(CLUSTER, found.leases, clock, watched.begin)]
    lanes += node_lanes(found.nodes, clock, watched.begin)
    for (host, which), mark in watched.first_ready.marks.items():
        lanes.append(Lane(host, f"/readyz, {which}", (), (mark,)))
    for host, of_host in found.hosts.items():
        lanes += unit_lanes(host, of_host.journal)
        containers = container_lanes(host, clock, of_host.sandboxes, of_host.containers, watched.begin)
        lanes += with_marks(containers, marks)
    return in_order(lanes, (COMMAND, CLUSTER, *found.hosts))


def usage_of(cluster: AutarkyCluster, watched: Watched, found: Collected, looks: Path) -> Usage:
    network = Lab.open(cluster.name).network
    groups = {network.netns(name): name for name in found.hosts}
    pods = {
        container.id: pod_and_container(container)
        for of_host in found.hosts.values()
        for container, _ in of_host.containers
    }
    return usage(read_looks(looks.read_text()), groups, pods, watched.begin)


def picture(name: str, watched: Watched, found: Collected, used: Usage) -> Picture:
    ahead = time.time() - time.monotonic()
    return Picture(
        title=f"autarky: {name}",
        notes=[
            "Seconds of one clock: the test hosts share this machine's kernel. Beside each lane: began → ran ⊣ ended.",
            "Pale: being made, or starting. Line: in the API, ring: scheduled, dot: Ready: within the second after it.",
        ],
        zero=watched.begin,
        begin=watched.begin - BEFORE_SECONDS,
        end=watched.end,
        lanes=lanes_of(watched, found, Clock(ahead)),
        moments=watched.moments,
        steps=used.steps,
        processors=os.cpu_count() or 1,
        text=report(used),
    )


async def run(name: str, payload: Payload, cluster: AutarkyCluster, place: Path) -> None:
    scenario = SCENARIOS[name]
    ahead = time.time() - time.monotonic()
    watched = await scenario.watch(payload, cluster, scenario.looks)
    _say("journals, containers and objects are collected")
    found = await collected(cluster)
    used = usage_of(cluster, watched, found, scenario.looks)
    if abs(time.time() - time.monotonic() - ahead) > CLOCK_TOLERANCE:
        _say("the time of day was set meanwhile: bars of containers, leases and phases may lie off the others'")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(draw(picture(name, watched, found, used)))
    cluster.down()
    for mark in watched.moments:
        print(f"{mark.at - watched.begin:6.1f} s  {mark.text}")
    print("\n".join(("", *report(used), "", f"the picture: {place}")), flush=True)


def _say(what: str) -> None:
    print(f"timeline: {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SCENARIOS)
    parser.add_argument("--svg", type=Path, metavar="FILE", help=f"default: timeline-NAME.svg in {STATE}")
    parser.add_argument("--product", type=Path, metavar="DIR", help="a checkout whose commands are run, not this one's")
    options = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = str(STATE)
    place = (options.svg or STATE / f"timeline-{options.name}.svg").absolute()
    with alone():
        asyncio.run(_prepared(options.name, options.product, place))


async def _prepared(name: str, directory: Path | None, place: Path) -> None:
    release = load_release(default_version())
    product = product_of(directory, release)
    payload = await get_payload(release, Silence(), groups=("cluster", "test", "bench"))
    await take_leftovers_away(product)
    await run(name, payload, SCENARIOS[name].cluster.of(product), place)


if __name__ == "__main__":
    main()
