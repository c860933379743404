"""The node's agent changes its kubelet, on a real disk: what it writes when, what it stages, what it refuses."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autarky.control.kubelet.decide import order
from autarky.control.kubelet.decide.order import Target
from autarky.control.kubelet.decide.own import FULL_SECONDS, SPARE
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.node import change
from autarky.control.kubelet.node.change import REST_SECONDS, WORK_SECONDS
from autarky.errors import ApiError, Unreachable
from fakes.cri import FakeCri
from fakes.kube import FakeKube
from unit.control.kubelet.node_scene import (
    DIGEST,
    NEW,
    OLD,
    V36,
    V37,
    Host,
    an_order,
    asked,
    on_trial,
    stage,
    state,
    until_asked,
)
from unit.control.kubelet.staging_scene import generations, put_by_up, switch

# --- a change --------------------------------------------------------------------------------------------------


async def test_a_change_from_the_order_to_its_end(host: Host) -> None:
    assert await host.passes() == REST_SECONDS
    assert host.report is not None
    assert (host.report.base, host.report.version, host.report.target) == (DIGEST, V36, OLD.digest)
    former = host.current

    given = host.gets(an_order())
    assert await host.passes() == WORK_SECONDS
    assert (state(host), asked(host)) == (State.STAGING, False)
    await until_asked(host)
    ask = host.read("ask")
    assert ask == {
        "order": given.id,
        "generation": ask["generation"],
        "boot": "boot-1",
        "uptime": str(int(host.clock.now) - 1),
        "limit": str(files.LIMIT),
    }
    assert (host.root / "kubelet" / ask["generation"] / files.VERSION).read_text() == f"{V37}\n"
    assert host.current == former, "only the script switches"
    assert state(host) is State.SWITCHING

    host.script_begins()
    host.change_node(runs=V37)
    await host.passes(9, beats=True)
    assert (state(host), host.read("verdict")["verdict"]) == (State.PROVING, "unproven")
    await host.passes(5, beats=True)
    assert host.read("verdict")["verdict"] == "good"

    host.script_ends("good")
    await host.passes(2)
    assert host.report is not None
    assert (host.report.order, host.report.state, host.report.version) == (given.id, State.DONE, V37)
    assert (host.report.former, host.report.target) == (V36, NEW.digest)
    assert host.events == [("Normal", "KubeletChanged", "the kubelet is v1.37.1 now")]
    assert await host.passes(5) == REST_SECONDS
    assert not asked(host)


async def test_nothing_is_left_of_what_nobody_can_go_back_to(host: Host) -> None:
    first = host.current
    for number, target in enumerate((NEW, OLD, Target(V37, DIGEST, config={"maxPods": 50})), 3):
        await on_trial(host, target=target, number=number)
        host.script_ends("good")
        await host.passes(2)
    left = generations(host.root) & {path.name for path in (host.root / "kubelet").iterdir() if path.is_dir()}
    assert left == {host.current, (host.root / "kubelet/previous").readlink().name}
    assert first in left, "it has come back to it"


async def test_what_is_not_proven_goes_back_and_is_not_tried_again(host: Host) -> None:
    given = await on_trial(host)
    host.health = None
    await host.passes(20, beats=True)
    verdict = host.read("verdict")
    assert verdict["verdict"] == "unproven"
    assert "it does not report that it is healthy" in verdict["why"]
    host.script_ends("back", "it was not proven in time")
    host.change_node(runs=V36)
    await host.passes(10, beats=True)
    assert host.report is not None
    assert (host.report.order, host.report.state) == (given, State.WENT_BACK)
    assert (host.report.why, host.report.version) == ("it was not proven in time", V36)
    assert host.events == [("Warning", "KubeletWentBack", "the kubelet is v1.36.4 again: it was not proven in time")]
    assert not asked(host)


@pytest.mark.parametrize("what", ["heartbeat", "version", "node"])
async def test_what_is_missing_is_seen_for_what_it_is(host: Host, what: str) -> None:
    await on_trial(host)
    if what == "version":
        host.change_node(runs=V36)
    if what == "node":
        host.kube.put({**host.node, "status": {**host.node["status"], "conditions": []}})
    await host.passes(30, beats=what != "heartbeat")
    missing = {"heartbeat": "no heartbeat", "version": "not v1.37.1", "node": "not Ready"}
    assert host.read("verdict")["verdict"] == "unproven"
    assert missing[what] in host.read("verdict")["why"]


@pytest.mark.parametrize(("after", "verdict"), [(1.0, "good"), (-1.0, "unproven"), (3600.0, "unproven")])
async def test_a_single_heartbeat_proves_it_if_the_former_kubelet_had_ended_by_then(
    host: Host, after: float, verdict: str
) -> None:
    """after: seconds since the script began to wait; a clock may have been set back."""
    await on_trial(host)
    since = host.clock.now
    os.utime(host.root / "kubelet/trial", (since, since))
    host.beat(datetime.fromtimestamp(since + after, UTC).isoformat())
    await host.passes(14)
    assert host.read("verdict")["verdict"] == verdict


async def test_while_the_api_is_away_the_scripts_clock_is_kept_stopped(host: Host) -> None:
    await on_trial(host)
    for outage in ("away", None):
        host.kube.set_outage(outage)
        for _ in range(20):
            await host.passes(beats=outage is None)
            verdict = host.read("verdict")
            if outage:
                assert verdict["verdict"] == "wait"
                assert host.clock.now - int(verdict["uptime"]) < files.WAIT_SECONDS / 2
    assert host.read("verdict")["verdict"] == "good"


async def test_a_report_does_not_hold_up_what_stops_the_clock(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    async def hangs(*arguments: object) -> None:
        tried.append(arguments)

    await on_trial(host)
    host.kube.set_outage("away")
    monkeypatch.setattr(FakeKube, "patch", hangs)
    await host.passes(3)
    assert (host.read("verdict")["verdict"], tried) == ("wait", [])


@pytest.mark.looptime
async def test_who_does_not_answer_is_not_waited_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the API, nor the runtime, nor the report: the script's clock goes on after ten seconds."""

    async def hangs(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    await on_trial(host)
    began = asyncio.get_running_loop().time()
    for kind, name in ((FakeKube, "get"), (FakeCri, "pods"), (FakeKube, "patch")):
        monkeypatch.setattr(kind, name, hangs)
    await host.passes()
    assert host.read("verdict")["verdict"] == "wait"
    assert asyncio.get_running_loop().time() - began + WORK_SECONDS < files.WAIT_SECONDS
    monkeypatch.undo()
    monkeypatch.setattr(change, "plain_status", host.healthz)
    monkeypatch.setattr(FakeKube, "patch", hangs)
    await host.passes()
    assert host.read("verdict")["verdict"] == "unproven"
    assert asyncio.get_running_loop().time() - began < 2 * files.WAIT_SECONDS


async def test_an_api_without_its_etcd_says_nothing_of_the_kubelet(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise ApiError(500, "InternalError", "etcdserver: request timed out")

    await on_trial(host)
    monkeypatch.setattr(FakeKube, "get", fails)
    await host.passes(3)
    assert host.read("verdict")["verdict"] == "wait"


async def test_an_api_that_answers_no_says_that_the_kubelet_is_not_proven(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(*_: object, **__: object) -> None:
        raise ApiError(403, "Forbidden", "no")

    await on_trial(host)
    monkeypatch.setattr(FakeKube, "get", forbidden)
    await host.passes(30)
    assert host.read("verdict")["verdict"] == "unproven"


async def test_a_runtime_that_does_not_answer_proves_nothing(host: Host) -> None:
    await on_trial(host)
    host.cri.set_outage("away")
    await host.passes(30, beats=True)
    assert "it is not known which pods run" in host.read("verdict")["why"]


async def test_a_verdict_is_written_when_it_says_something_new(host: Host) -> None:
    await on_trial(host)
    await host.passes(2)
    before = (host.root / "kubelet/verdict").stat().st_ino
    await host.passes(8)
    assert (host.root / "kubelet/verdict").stat().st_ino == before


async def test_a_trial_goes_on_without_its_order_and_with_another_agent(host: Host) -> None:
    given = await on_trial(host)
    await host.passes(3, beats=True)
    host.change_node(annotations={order.ANNOTATION: None})
    host.new_agent()
    await host.passes(15, beats=True)
    assert host.read("verdict")["verdict"] == "good"
    host.script_ends("good")
    host.new_agent()
    await host.passes(2)
    assert host.report is not None
    assert (host.report.order, host.report.state) == (given, State.DONE)


async def test_a_machine_that_restarted_in_the_middle_says_so(host: Host) -> None:
    await on_trial(host)
    host.boot = "boot-2"
    host.script_ends("back", "the machine restarted before it was proven")
    host.new_agent()
    await host.passes(2)
    assert host.report is not None
    assert (host.report.state, host.report.interrupted) == (State.WENT_BACK, True)


# --- what is staged ----------------------------------------------------------------------------------------------


async def test_a_change_of_settings_alone_needs_no_image(host: Host) -> None:
    host.images.there.clear()
    host.gets(an_order(Target(V36, DIGEST, config={"maxPods": 50}, arguments={"v": "4"})))
    await until_asked(host)
    directory = host.root / "kubelet" / host.read("ask")["generation"]
    assert json.loads((directory / files.CONFIG).read_bytes())["maxPods"] == 50
    assert "--v=4\n" in (directory / files.ARGUMENTS).read_text()
    assert (directory / "kubelet").resolve() == (host.root / "bin/kubelet").resolve()


async def test_what_is_on_the_disk_needs_no_image(host: Host) -> None:
    host.images.there.clear()
    name = stage(host.root, NEW)
    host.gets(an_order())
    await until_asked(host)
    assert host.read("ask")["generation"] == name


async def test_but_not_with_a_runtime_that_the_node_uses_no_more(host: Host) -> None:
    old = stage(host.root, NEW)
    for link in (host.root / "bin").iterdir():
        if link.name == "containerd":
            put_by_up(host.root, "containerd", b"a later one")
    host.gets(an_order())
    await until_asked(host)
    name = host.read("ask")["generation"]
    assert name != old
    assert (host.root / "kubelet" / name / "containerd").resolve().read_bytes() == b"a later one"


@pytest.mark.parametrize("missing", [files.COMPLETE, files.ARGUMENTS, "kubelet"])
async def test_nor_where_a_part_of_it_is_missing(host: Host, missing: str) -> None:
    name = stage(host.root, NEW)
    (host.root / "kubelet" / name / missing).unlink()
    host.images.there.clear()
    host.gets(an_order())
    await host.passes(5)
    assert (state(host), asked(host)) == (State.REFUSED, False)


async def test_a_runtime_comes_out_of_its_own_image(host: Host) -> None:
    """Also where the one of before is not autarky's."""
    (host.root / "bin/runc").unlink()
    (host.root / "bin/runc").symlink_to("/usr/bin/runc")
    programs = {f"/usr/local/bin/{name}": f"{name} of the image".encode() for name in files.RUNTIME}
    host.images.there["autarky.dev/runtime:2"] = programs
    host.gets(an_order(Target(V37, DIGEST, runtime="autarky.dev/runtime:2")))
    await until_asked(host)
    directory = host.root / "kubelet" / host.read("ask")["generation"]
    assert (directory / "runc").resolve().read_bytes() == b"runc of the image"


async def test_a_runtime_that_is_in_force_needs_its_image_no_more(host: Host) -> None:
    """Whoever has removed it since must not have stopped all other changes with that."""
    has = Target(V36, DIGEST, runtime="autarky.dev/runtime:2")
    switch(host.root, stage(host.root, has))
    host.images.there.clear()
    host.gets(an_order(replace(has, config={"maxPods": 50})))
    await until_asked(host)


async def test_what_runs_already_is_done(host: Host) -> None:
    host.gets(an_order(OLD))
    await host.passes(3)
    assert (state(host), asked(host), host.events) == (State.DONE, False, [])


# --- what is refused ---------------------------------------------------------------------------------------------


async def is_refused(host: Host, why: str) -> None:
    before = host.current
    await host.passes(6)
    assert host.report is not None
    assert (host.report.state, host.current, asked(host)) == (State.REFUSED, before, False)
    assert why in host.report.why
    assert [reason for _, reason, _ in host.events] == ["KubeletRefused"]


@pytest.mark.parametrize("free", [SPARE - 1, SPARE + 100])
async def test_a_full_disk(host: Host, free: int) -> None:
    """Also where there is no room only for the program."""
    host.free = free
    host.gets(an_order())
    why = "the disk is full" if free < SPARE else "there is no room"
    await host.passes(int(FULL_SECONDS))
    assert host.report is not None
    assert (host.report.state, why in host.report.why) == (State.STAGING, True)
    await is_refused(host, why)
    assert not host.images.asked
    host.free = 10 * SPARE
    await host.passes(5)
    assert not asked(host), "it has been answered"
    host.gets(an_order(number=4))
    await until_asked(host)


@pytest.mark.parametrize("free", [SPARE - 1, SPARE + 100])
async def test_a_disk_that_is_full_for_a_moment(host: Host, free: int) -> None:
    """As by a pod that is evicted for it."""
    host.free = free
    host.gets(an_order())
    await host.passes(20)
    assert state(host) is State.STAGING
    host.free = 10 * SPARE
    await until_asked(host)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_that_fills_up_while_it_is_staged(host: Host, number: int) -> None:
    host.images.breaks_off = OSError(number, "it is full")
    host.gets(an_order())
    await host.passes(20)
    assert host.report is not None
    assert (host.report.state, "is full" in host.report.why) == (State.STAGING, True)
    host.images.breaks_off = None
    await until_asked(host)


async def test_where_containerd_is_away_meanwhile_that_is_not_the_disk(host: Host) -> None:
    host.images.breaks_off = OSError(errno.ENOSPC, "it is full")
    host.gets(an_order())
    await host.passes(5)
    host.images.outage = "containerd starts"
    for _ in range(int(FULL_SECONDS)):
        with pytest.raises(Unreachable):
            await host.passes()
        host.clock.now += 1.0
    assert state(host) is State.STAGING
    host.images.breaks_off = host.images.outage = None
    await until_asked(host)


async def test_an_image_that_is_not_there(host: Host) -> None:
    host.images.there.clear()
    host.gets(an_order())
    await is_refused(host, "is not on this node fix: bring it")


async def test_another_base(host: Host) -> None:
    host.gets(an_order(Target(V37, "0123")))
    await is_refused(host, "another base.json")


async def test_a_runtime_that_is_not_in_the_store(host: Host) -> None:
    (host.root / "bin/runc").unlink()
    (host.root / "bin/runc").symlink_to("/usr/bin/runc")
    host.gets(an_order())
    await is_refused(host, "run `autarky up`")


async def test_an_argument_that_is_no_line(host: Host) -> None:
    host.gets(an_order(Target(V37, DIGEST, arguments={"v": "4\n--x"})))
    await is_refused(host, "has to be one line")


async def test_what_the_runtime_cannot_give_now_is_tried_again(host: Host) -> None:
    host.images.outage = "containerd starts"
    host.gets(an_order())
    with pytest.raises(Unreachable):
        await host.passes()
    assert state(host) is State.STAGING
    host.images.outage = None
    await until_asked(host)
