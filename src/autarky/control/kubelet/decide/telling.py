"""What the ControlPlane's status says of kubelets: written by the operator, read by commands and by people. Pure.

    kubelets:
      pools:
      - {name: workers, wanted: [v1.37.1], done: 1, total: 3, stopped: "w1: no space"}
      changing: [w2]
      failed: [{node: w1, why: …}]
      waits: [{node: w3, why: …}]
      said: [{node: w4, why: …}]
      more: {failed: 2}
      hosted:
        behind: …
        failed: [{node: w1, why: …}]
        waits: [{node: w2, why: …}]
        more: {waits: 7}

waits: why a node gets no order now. said: why one stays as it is, or does not get what was asked for. hosted: of hosted
kubelets (level 0). behind: why their DaemonSet does not follow, and how it would; failed: why the host's is in force;
waits: why one gets no turn now. more: of a list, how many are not in it. trouble: what of the spec cannot be
understood; then there is nothing else.

Contract: of each list at most MOST_NAMED, however many there are, control nodes first, since any number of workers may
say anything; and each text is short and in one line: workers have written some of it. The part is absent in a cluster
that does not use it (`is_used`). Reading returns for any JSON, and never raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from autarky.control.common.shapes import MOST_NAMED, items, mapping, plain, within
from autarky.control.kubelet.decide import wanted
from autarky.control.kubelet.decide.turns import Decision
from autarky.model.kubelets import MOST_POOLS

MOST = MOST_POOLS + 2
"""Pools: with the two that are always there."""
MOST_NODES = 10**6
"""More no cluster has."""


@dataclass(frozen=True, slots=True)
class Pool:
    """wanted: versions, as texts. stopped: which node stops it, and why; or empty."""

    name: str
    wanted: tuple[str, ...]
    done: int
    total: int
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Hosted:
    """See the module's docstring."""

    behind: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reported:
    """See the module's docstring."""

    pools: tuple[Pool, ...] = ()
    changing: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    hosted: Hosted = field(default_factory=Hosted)
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """Whether each kubelet has what is wanted of it. Where a hosted one is not in force, the host's is."""
        held = bool(self.trouble or self.failed or self.changing or self.waits or self.hosted.behind)
        left = any(pool.done < pool.total for pool in self.pools)
        return not held and not left and not any(why != wanted.NOT_FOLLOWED for why in self.said.values())


def is_used(plane: Mapping[str, Any]) -> bool:
    """Whether anything may be asked of kubelets through the API: where no `up` has said so, they stay as it has left
    them."""
    return within(plane, "spec", "kubelets", "follow") is not None or within(plane, "spec", "pools") is not None


def reported(decision: Decision, said: Mapping[str, str], control: Collection[str] = ()) -> Reported:
    """said: as `nodes.found` says it. control: the names of control nodes."""
    pools = [
        Pool(name, _few(map(str, one.wanted)), one.done, one.total, plain(one.stopped))
        for name, one in sorted(decision.pools.items())
        if one.total
    ]
    # Those for whom something is in the way come first.
    grave = dict(sorted(said.items(), key=lambda one: (one[1] == wanted.NOT_FOLLOWED, *_rank(one[0], control))))
    changing, failed, waits = decision.memory.turns, decision.failed, decision.waits
    return Reported(
        tuple(pools),
        _few(sorted(changing, key=lambda name: _rank(name, control))),
        _first(failed, control),
        _first(waits, control),
        _reasons(grave.items()),
        more=_more(changing=changing, failed=failed, waits=waits, said=said),
    )


def hosted(behind: str, failed: Mapping[str, str], waits: Mapping[str, str], control: Collection[str] = ()) -> Hosted:
    return Hosted(behind, _first(failed, control), _first(waits, control), _more(failed=failed, waits=waits))


def status(found: Reported) -> dict[str, Any]:
    """The part `kubelets` of the status."""
    if found.trouble:
        return {"trouble": plain(found.trouble)}
    written: dict[str, Any] = {"pools": [_pool(one) for one in found.pools]}
    written |= {"changing": list(found.changing)} if found.changing else {}
    for key, reasons in (("failed", found.failed), ("waits", found.waits), ("said", found.said)):
        if reasons:
            written[key] = _written_reasons(reasons)
    written |= {"more": dict(found.more)} if found.more else {}
    if hosted := _written_hosted(found.hosted):
        written["hosted"] = hosted
    return written


def read(plane: Mapping[str, Any]) -> Reported | None:
    """What the operator says; None where it says nothing."""
    said = within(plane, "status", "kubelets")
    if not isinstance(said, Mapping):
        return None
    found = islice((mapping(one) for one in items(said.get("pools"))), MOST)
    return Reported(
        pools=tuple(_read_pool(one) for one in found if isinstance(one.get("name"), str)),
        changing=_few(one for one in items(said.get("changing")) if isinstance(one, str)),
        failed=_read_reasons(said.get("failed")),
        waits=_read_reasons(said.get("waits")),
        said=_read_reasons(said.get("said")),
        trouble=plain(said.get("trouble")),
        hosted=_read_hosted(mapping(said.get("hosted"))),
        more=_read_more(said.get("more")),
    )


def sentence(found: Reported) -> str:
    """What is to be said of kubelets that are not all current, in one line."""
    if found.trouble:
        return f"no kubelet is changed: {plain(found.trouble)}"
    said = [f"{one.name}: {one.done} of {one.total} have {', '.join(one.wanted)}" for one in _unfinished(found)]
    said += [f"{node} failed: {why}" for node, why in found.failed.items()]
    said += [f"{node} changes" for node in found.changing]
    said += [f"{node} waits: {why}" for node, why in found.waits.items() if node not in found.failed]
    said += [f"{node}: {why}" for node, why in found.said.items() if why != wanted.NOT_FOLLOWED]
    said += not_named(found)
    said += [found.hosted.behind] if found.hosted.behind else []
    said += [f"the hosted kubelet of {node} failed: {why}" for node, why in found.hosted.failed.items()]
    said += [f"and {more} more hosted ones failed"] if (more := found.hosted.more.get("failed")) else []
    return "; ".join(said)


def not_named(found: Reported) -> Iterator[str]:
    """How many more nodes there are than the lists name."""
    does = {"failed": "failed", "changing": "change", "waits": "wait"}
    return (f"and {found.more[key]} more {what}" for key, what in does.items() if found.more.get(key))


def _unfinished(found: Reported) -> Iterable[Pool]:
    return (one for one in found.pools if one.done < one.total)


def _few(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(plain(one) for one in islice(names, MOST_NAMED))


def _rank(name: str, control: Collection[str]) -> tuple[bool, str]:
    return name not in control, name


def _first(found: Mapping[str, str], control: Collection[str]) -> dict[str, str]:
    return _reasons(sorted(found.items(), key=lambda one: _rank(one[0], control)))


def _more(**lists: Collection[str]) -> dict[str, int]:
    return {key: len(found) - MOST_NAMED for key, found in lists.items() if len(found) > MOST_NAMED}


def _reasons(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {node: plain(why) for node, why in islice(found, MOST_NAMED)}


def _pool(one: Pool) -> dict[str, Any]:
    found = {"name": one.name, "wanted": list(one.wanted), "done": one.done, "total": one.total}
    return found | ({"stopped": one.stopped} if one.stopped else {})


def _read_pool(said: Mapping[str, Any]) -> Pool:
    counts = [one if type(one) is int and one >= 0 else 0 for one in (said.get("done"), said.get("total"))]
    versions = (one for one in items(said.get("wanted")) if isinstance(one, str))
    return Pool(plain(said.get("name")), _few(versions), counts[0], counts[1], plain(said.get("stopped")))


def _written_reasons(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"node": node, "why": why} for node, why in reasons.items()]


def _written_hosted(one: Hosted) -> dict[str, Any]:
    written: dict[str, Any] = {"behind": plain(one.behind)} if one.behind else {}
    lists = (("failed", one.failed), ("waits", one.waits))
    written |= {"more": dict(one.more)} if one.more else {}
    return written | {key: _written_reasons(reasons) for key, reasons in lists if reasons}


def _read_hosted(said: Mapping[str, Any]) -> Hosted:
    failed, waits = _read_reasons(said.get("failed")), _read_reasons(said.get("waits"))
    return Hosted(plain(said.get("behind")), failed, waits, _read_more(said.get("more")))


def _read_more(said: object) -> dict[str, int]:
    found = ((key, mapping(said).get(key)) for key in ("changing", "failed", "waits", "said"))
    return {key: count for key, count in found if type(count) is int and 0 < count <= MOST_NODES}


def _read_reasons(said: object) -> dict[str, str]:
    found = (mapping(one) for one in items(said))
    return _reasons((plain(one.get("node")), plain(one.get("why"))) for one in found if plain(one.get("node")))
