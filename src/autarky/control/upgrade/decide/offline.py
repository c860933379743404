"""Which control nodes go back to the version from before an upgrade while no API server serves, and how. Pure.

Contract: `decide(seen)` returns what to do on each node, in order, or why nothing may be done. What it does is to lead
the standby on a node's disk back to a revision of that version which is there, and to put it in place. The hosted pods
stay as they are: without an API nobody can change them, and the operator does that once there is one.

- Where the last of that version is gone from a disk, because there was a soak and it was raised since, a revision that
  emulates its minor will do: it has served for all of the soak, and serves and writes what that version does. The
  operator does the rest.
- Only a complete revision whose images are on the node, and whose keys and stores are those of today, is gone back to
  (`Revision.trouble`).
- Never more than one minor down from anything that has run since (rule 4): what that has written to etcd only the minor
  before it can read. Never up. No kubelet of a control node becomes newer than its API servers, unless that is
  accepted: only with an API can it be brought back.
- On each node the API server goes last: when it answers, what an agent activates of level 3 is of that version, too.
- Every action may be interrupted anywhere, also inside: between its two links a switch leaves a revision that neither
  names. So all complete revisions count, whatever names them, and what is done already is not done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from autarky.control.common.emulation import means, minor_text
from autarky.control.common.shapes import mapping
from autarky.control.common.skew import minor_of
from autarky.control.upgrade.decide import reported
from autarky.model.components import API_SERVER, LED_BY_LEASE
from autarky.model.versions import Version

ORDER = (*LED_BY_LEASE, API_SERVER)


@dataclass(frozen=True, slots=True)
class Revision:
    """A complete one on a node's disk. version: of its image, None where the tag is none. trouble: why it would not
    serve there now, a clause. emulates: the minor that its command line names, alone."""

    version: Version | None
    trouble: str = ""
    emulates: str = ""

    def stands_for(self, to: Version) -> bool:
        """Whether it does what that version does, without being of it."""
        is_next = self.version is not None and minor_of(self.version) == (to.major, to.minor + 1)
        return is_next and means(self.emulates, minor_text(to))


@dataclass(frozen=True, slots=True)
class Standby:
    """Of one component on one node. current, previous: where the links lead. active: whether an activation is in place;
    outdated: whether one is of another revision than the current one."""

    current: str | None = None
    previous: str | None = None
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    active: bool = False
    outdated: bool = False

    @property
    def version(self) -> Version | None:
        found = self.revisions.get(self.current or "")
        return None if found is None else found.version

    def is_back(self, to: Version) -> bool:
        """Also with one that stands for that version, where none of it is any better."""
        found = self.revisions.get(self.current or "")
        is_there = found is not None and found.stands_for(to) and not _fit(self, to)
        return self.version == to or is_there


NO_STANDBY = Standby()


@dataclass(frozen=True, slots=True)
class Seen:
    """standbys: component → its standby. runs: the versions of the API servers' containers, those that have ended as
    well. kubelet: its version. trouble: why no revision would serve on this node, a clause."""

    standbys: Mapping[str, Standby]
    runs: frozenset[Version] = frozenset()
    kubelet: Version | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Plane:
    """What etcd has of the ControlPlane. back: where a rollback leads; known: what has been wanted, or complete, since
    that."""

    back: Version | None
    known: frozenset[Version]


def plane_of(obj: object) -> Plane | None:
    """Of the ControlPlane as it is in etcd, which is the same as in the API; None where it does not say which version
    the control plane has. Returns for any JSON."""
    plane = mapping(obj)
    complete = reported.complete_version(plane)
    if complete is None:
        return None
    return Plane(reported.goes_back_to(plane), frozenset({complete, *reported.noted_versions(plane)}))


@dataclass(frozen=True, slots=True)
class Cluster:
    """nodes: the control nodes whose hosts answer. plane: None where etcd does not say. accepts_kubelets: whether
    kubelets may be newer for a while."""

    nodes: Mapping[str, Seen]
    plane: Plane | None = None
    accepts_kubelets: bool = False


class Verb(Enum):
    """As the standby's program has them. RENEW only where one is in place, which ACTIVATE leaves alone."""

    SWITCH = "switch"
    RENEW = "renew"
    ACTIVATE = "activate"


@dataclass(frozen=True, slots=True)
class Act:
    """revision: where a standby is switched to, else empty."""

    verb: Verb
    component: str
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """to: the version. acts: node → what is done there, in this order; nothing where it has been done. left: node → why
    it stays as it is, a clause. kept: what stays of level 3 on nodes that go back, and what only stands for that
    version, as sentences. leads: component of
    level 3 → the nodes where its standby is of that version then."""

    to: Version
    acts: Mapping[str, Sequence[Act]]
    left: Mapping[str, str]
    kept: Sequence[str] = ()
    leads: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is done, and what to do instead. rule: the safety rule, empty where it is none."""

    sentence: str
    fix: str
    rule: str = ""


KUBELETS_GO_BACK = (
    "as soon as an API answers, kubelets that follow go back by themselves; where they do not, set"
    " spec.kubelets.follow of the ControlPlane to true then"
)
SKEW = "the version skew that Kubernetes supports (rule 4)"


def decide(seen: Cluster) -> Decision | Refusal:
    """See the module's contract."""
    to = _target(seen)
    if isinstance(to, Refusal):
        return to
    if (refusal := _of_versions(seen, to) or _of_kubelets(seen, to)) is not None:
        return refusal
    acts: dict[str, Sequence[Act]] = {}
    left: dict[str, str] = {}
    kept: list[str] = []
    for name, node in sorted(seen.nodes.items()):
        found = _on_node(node, to)
        if isinstance(found, str):
            left[name] = found
        else:
            acts[name] = found
            kept += [f"on {name} {one}" for one in _kept(node, to)]
    if not acts:
        said = "; ".join(f"{name}: {why}" for name, why in left.items())
        return Refusal(
            f"no control node that answers can go back to {to}: {said}",
            "reach the others, by power, network or ssh; images that are missing come with `autarky payload push"
            f" {str(to).removeprefix('v')}`",
        )
    leads = {one: [name for name in acts if _leads(seen.nodes[name], one, to)] for one in LED_BY_LEASE}
    return Decision(to, acts, left, tuple(kept), {one: names for one, names in leads.items() if names})


# --- which version ---------------------------------------------------------------------------------------


def _target(seen: Cluster) -> Version | Refusal:
    """As etcd has it; where that says nothing, the latest former one on any disk."""
    if seen.plane is not None:
        if seen.plane.back is not None:
            return seen.plane.back
        return Refusal(
            "the control plane was not upgraded, or has gone back already: there is no version before",
            "`autarky doctor` says why the API does not answer",
        )
    found = {version for node in seen.nodes.values() for version in _former(_standby(node, API_SERVER))}
    if found:
        return max(found)
    return Refusal(
        "no control node that answers has an API server of a former version on its disk",
        "reach the others; `autarky doctor` says why the API does not answer",
    )


def _former(standby: Standby) -> set[Version]:
    """The versions of its revisions that are older than the latest one there."""
    versions = {one.version for one in standby.revisions.values() if one.version is not None}
    return versions - {max(versions)} if versions else set()


def _newest(seen: Cluster) -> Version | None:
    """Of all that has served, or might have."""
    of_disks = (_standby(node, API_SERVER).version for node in seen.nodes.values())
    of_containers = (version for node in seen.nodes.values() for version in node.runs)
    known = seen.plane.known if seen.plane is not None else frozenset()
    return max(filter(None, (*of_disks, *of_containers, *known)), default=None)


def _of_versions(seen: Cluster, to: Version) -> Refusal | None:
    newest = _newest(seen)
    if newest is None:
        return None
    if minor_of(to) > minor_of(newest):
        return Refusal(
            f"{to} is newer than what has run last ({newest}): that is no way back",
            "`autarky doctor` says why the API does not answer",
        )
    if to.major != newest.major or to.minor < newest.minor - 1:
        return Refusal(
            f"{newest} has run, and what it has written {to} may not be able to read: no API server goes back by two"
            " minors",
            "`autarky doctor` says why the API does not answer; a backup from before takes everything back:"
            " `autarky restore`",
            SKEW,
        )
    return None


def _of_kubelets(seen: Cluster, to: Version) -> Refusal | None:
    """Of control nodes. What a worker's host says of itself stops nobody."""
    found = {name: node.kubelet for name, node in sorted(seen.nodes.items()) if node.kubelet is not None}
    newer = [f"{name} ({version})" for name, version in found.items() if minor_of(version) > minor_of(to)]
    if not newer or seen.accepts_kubelets:
        return None
    return Refusal(
        f"the kubelet of {', '.join(newer)} would be newer than its API server {to}",
        f"say --accept-newer-kubelets: {KUBELETS_GO_BACK}",
        SKEW,
    )


# --- on one node -----------------------------------------------------------------------------------------


def _on_node(node: Seen, to: Version) -> Sequence[Act] | str:
    """What to do; or why the node stays as it is, a clause."""
    server = _standby(node, API_SERVER)
    why = "" if server.is_back(to) else node.trouble or _choice(server, to).why
    return why or [act for component in ORDER for act in _of(component, _standby(node, component), to)]


def _of(component: str, standby: Standby, to: Version) -> Iterable[Act]:
    outdated = standby.outdated
    if not standby.is_back(to):
        chosen = _choice(standby, to).revision
        if not chosen:
            return
        yield Act(Verb.SWITCH, component, chosen)
        outdated = True
    if standby.active and outdated:
        yield Act(Verb.RENEW, component)
    elif not standby.active and component == API_SERVER:
        yield Act(Verb.ACTIVATE, component)


def _kept(node: Seen, to: Version) -> Iterable[str]:
    for component in LED_BY_LEASE:
        standby = _standby(node, component)
        if not standby.is_back(to) and (why := _choice(standby, to).why):
            yield f"the standby of {component} stays as it is: {why}"
    for component in ORDER:
        standby = _standby(node, component)
        chosen = standby.revisions.get(_choice(standby, to).revision)
        if chosen is not None and to not in (chosen.version, standby.version):
            what = f"{chosen.version} that emulates {minor_text(to)}"
            yield f"{component} goes back to {what}: the disk has no {to} any more"


def _leads(node: Seen, component: str, to: Version) -> bool:
    standby = _standby(node, component)
    return standby.is_back(to) or bool(_choice(standby, to).revision)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A revision to switch to; or why there is none."""

    revision: str = ""
    why: str = ""


def _choice(standby: Standby, to: Version) -> _Choice:
    """The one before the current one goes first: it has served last."""
    found = {name: one for name, one in standby.revisions.items() if one.version == to or one.stands_for(to)}
    if fit := _fit(standby, to) or [name for name, one in sorted(found.items()) if not one.trouble]:
        return _Choice(standby.previous if standby.previous in fit else fit[0])
    if found:
        return _Choice(why="; ".join(dict.fromkeys(one.trouble for one in found.values())))
    versions = sorted({one.version for one in standby.revisions.values() if one.version is not None})
    there = f"only {', '.join(map(str, versions))}" if versions else "no complete revision at all"
    return _Choice(why=f"it has no {to} on its disk, {there}")


def _fit(standby: Standby, to: Version) -> list[str]:
    """The revisions of that version that would serve."""
    return [name for name, one in sorted(standby.revisions.items()) if one.version == to and not one.trouble]


def _standby(node: Seen, component: str) -> Standby:
    return node.standbys.get(component, NO_STANDBY)
