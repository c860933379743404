"""At no time two clusters: the members on each host are asked, again and again, for something that needs their quorum.

A host of ours has two places for a member, on ports of their own: a second one stands in for the only one while that is
changed. Both are asked. What nobody has answered shows nothing, and neither does a time in which nobody was asked: so
both fail. On a host that is off there is nobody to ask, and that is known at once.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ha import ETCDCTL
from harness import TestCluster
from two_clusters import Read, has_become_another, two_at_once
from watching import tries_went_on

from autarky.errors import AutarkyError
from autarky.model import ports
from autarky.model.etcd_members import SECOND_SUFFIX

LONGEST_SILENCE = 15.0
"""Seconds from one question to a member to the next. Where hosts start side by side on two processors, the program that
asks takes several to begin."""
_PAUSE = 0.5
_ANSWER_SECONDS = 2
_READ = f"--command-timeout={_ANSWER_SECONDS}s get none -w json"
_SECOND_ETCDCTL = ETCDCTL.replace(f":{ports.ETCD_CLIENT}", f":{ports.ETCD_SECOND_CLIENT}")


@dataclass
class _Place:
    """For a member. name: of who answers there. tries: when it was asked."""

    name: str
    host: str
    etcdctl: str
    tries: list[float] = field(default_factory=list)


@contextmanager
def one_etcd_at_a_time(
    cluster: TestCluster,
    *hosts: str,
    others: Mapping[str, str] | None = None,
    silent: Collection[str] = (),
    another: bool = False,
    pause: float = _PAUSE,
) -> Iterator[list[Read]]:
    """Fails where, during the block, an etcd was read after another one that had begun later; where a host has answered
    nothing, other than a `silent` one; and where etcd should have become `another`, as by a restore or a recovery, and
    has not. Gives the reads, as they come; each member is asked once more when it has ended. others: hosts of an etcd
    that is not ours, each with how `etcdctl` is called there. pause: seconds between two questions to the same member;
    they take processors."""
    others, ended, reads = others or {}, threading.Event(), list[Read]()
    places = [
        *(_Place(host, host, ETCDCTL) for host in hosts),
        *(_Place(f"{host}{SECOND_SUFFIX}", host, _SECOND_ETCDCTL) for host in hosts),
        *(_Place(host, host, etcdctl) for host, etcdctl in others.items()),
    ]
    threads = [threading.Thread(target=_ask, args=(cluster, place, ended, pause, reads)) for place in places]
    began = time.monotonic()
    for one in threads:
        one.start()
    try:
        yield reads
    finally:
        until = time.monotonic()
        ended.set()
        for one in threads:
            one.join()
    for place in places:
        every = pause + _ANSWER_SECONDS
        tries_went_on(place.name, place.tries, began=began, ended=until, every=every, longest=LONGEST_SILENCE)
    answered = {one.host.removesuffix(SECOND_SUFFIX) for one in reads}
    unknown = [host for host in (*hosts, *others) if host not in answered and host not in silent]
    assert not unknown, f"no etcd has answered on {', '.join(unknown)}"
    assert two_at_once(reads) == set(), "two etcds have answered by turns"
    assert not another or has_become_another(reads), "etcd has not become another one"


def _ask(cluster: TestCluster, place: _Place, ended: threading.Event, pause: float, reads: list[Read]) -> None:
    """Once more in the end: of who serves then the last word is wanted."""
    going_on = True
    while going_on:
        going_on = not ended.wait(pause)
        begun = time.monotonic()
        place.tries.append(begun)
        try:
            said = cluster.shell(place.host, f"{place.etcdctl} {_READ}")
            reads.append(Read(json.loads(said)["header"]["cluster_id"], begun, time.monotonic(), place.name))
        except (AssertionError, AutarkyError, ValueError, OSError, subprocess.SubprocessError):
            continue  # it is off, is not there yet, refuses everybody, or has no quorum
