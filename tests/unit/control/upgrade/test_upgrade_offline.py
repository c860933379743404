"""Which nodes go back with the API down, to what; and that an interruption anywhere changes nothing about the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.common.skew import minor_of
from autarky.control.upgrade.decide import reported
from autarky.control.upgrade.decide.offline import (
    ORDER,
    Act,
    Cluster,
    Decision,
    Plane,
    Refusal,
    Revision,
    Seen,
    Standby,
    Verb,
    decide,
    plane_of,
)
from autarky.model.components import API_SERVER, CONTROLLER_MANAGER, LED_BY_LEASE
from autarky.model.versions import Version

OLDER, OLD, NEW, NEXT = Version(1, 35, 4), Version(1, 36, 4), Version(1, 37, 1), Version(1, 38, 0)
UPGRADED = Plane(OLD, frozenset({NEW}))
AFTER = Standby("new", "old", {"new": Revision(NEW), "old": Revision(OLD)}, active=True)
"""As a complete upgrade leaves it, with the standby in place, since the hosted one does not serve."""
NODE = Seen(dict.fromkeys(ORDER, replace(AFTER, active=False)) | {API_SERVER: AFTER}, frozenset({NEW}), OLD)


def decided(cluster: Cluster) -> Decision:
    found = decide(cluster)
    assert isinstance(found, Decision), found
    return found


def refused(cluster: Cluster) -> Refusal:
    found = decide(cluster)
    assert isinstance(found, Refusal), found
    return found


def with_server(**changes: Any) -> Seen:
    return replace(NODE, standbys={**NODE.standbys, API_SERVER: replace(AFTER, **changes)})


def test_after_an_upgrade_every_standby_goes_back_and_the_api_server_last() -> None:
    found = decided(Cluster({"n1": NODE}, UPGRADED))
    level_3 = [Act(Verb.SWITCH, one, "old") for one in LED_BY_LEASE]
    acts = [*level_3, Act(Verb.SWITCH, API_SERVER, "old"), Act(Verb.RENEW, API_SERVER)]
    assert found == Decision(OLD, {"n1": acts}, {}, leads={one: ["n1"] for one in LED_BY_LEASE})


def test_a_standby_that_is_not_in_place_is_activated_and_one_of_level_3_is_not() -> None:
    acts = decided(Cluster({"n1": with_server(active=False)}, UPGRADED)).acts["n1"]
    assert acts[-2:] == [Act(Verb.SWITCH, API_SERVER, "old"), Act(Verb.ACTIVATE, API_SERVER)]
    assert [act for act in acts if act.verb is Verb.ACTIVATE] == acts[-1:]


def test_what_is_done_is_not_done_again() -> None:
    back = Standby("old", "new", AFTER.revisions)
    done = Seen(dict.fromkeys(ORDER, back) | {API_SERVER: replace(back, active=True)}, frozenset({NEW}), OLD)
    assert decided(Cluster({"n1": done}, UPGRADED)).acts == {"n1": []}
    cut = replace(done, standbys={**done.standbys, API_SERVER: replace(back, active=True, outdated=True)})
    assert decided(Cluster({"n1": cut}, UPGRADED)).acts["n1"] == [Act(Verb.RENEW, API_SERVER)]


def test_a_switch_that_was_cut_between_its_links_has_lost_no_revision() -> None:
    acts = decided(Cluster({"n1": with_server(previous="new")}, UPGRADED)).acts["n1"]
    assert Act(Verb.SWITCH, API_SERVER, "old") in acts


def test_the_previous_one_goes_before_others_of_the_version() -> None:
    several = {"a": Revision(OLD), "new": Revision(NEW), "old": Revision(OLD)}
    assert (
        Act(Verb.SWITCH, API_SERVER, "old")
        in decided(Cluster({"n1": with_server(revisions=several)}, UPGRADED)).acts["n1"]
    )
    without = {**several, "old": Revision(OLD, "the node lacks an image")}
    assert (
        Act(Verb.SWITCH, API_SERVER, "a")
        in decided(Cluster({"n1": with_server(revisions=without)}, UPGRADED)).acts["n1"]
    )


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (with_server(revisions={"new": Revision(NEW)}), "it has no v1.36.4 on its disk, only v1.37.1"),
        (with_server(revisions={}), "no complete revision at all"),
        (with_server(revisions={**AFTER.revisions, "old": Revision(OLD, "the node lacks X")}), "the node lacks X"),
        (replace(NODE, trouble="its certificate has expired"), "its certificate has expired"),
    ],
)
def test_a_node_that_cannot_go_back_is_left_and_where_none_can_it_is_refused(node: Seen, why: str) -> None:
    found = decided(Cluster({"n1": node, "n2": NODE}, UPGRADED))
    assert why in found.left["n1"]
    assert set(found.acts) == {"n2"}
    assert f"n1: {found.left['n1']}" in refused(Cluster({"n1": node}, UPGRADED)).sentence


RAISED = {"new": Revision(NEW), "soaked": Revision(NEW, emulates="1.36")}
"""What is left on a disk when a soak has ended: two revisions are kept."""


def test_after_a_soak_what_has_emulated_the_minor_before_stands_for_it() -> None:
    raised = replace(NODE, standbys={one: Standby("new", "soaked", RAISED) for one in ORDER})
    found = decided(Cluster({"n1": raised}, UPGRADED))
    acts = [Act(Verb.SWITCH, one, "soaked") for one in ORDER]
    assert found.acts["n1"] == [*acts, Act(Verb.ACTIVATE, API_SERVER)]
    assert (
        "on n1 kube-apiserver goes back to v1.37.1 that emulates 1.36: the disk has no v1.36.4 any more" in found.kept
    )
    assert found.leads == {one: ["n1"] for one in LED_BY_LEASE}
    back = replace(raised, standbys={one: Standby("soaked", "new", RAISED, active=True) for one in ORDER})
    assert decided(Cluster({"n1": back}, UPGRADED)).acts["n1"] == [], "it is done"


def test_a_revision_of_the_version_itself_goes_before_one_that_stands_for_it() -> None:
    """In the middle of a soak."""
    both = {"soaked": RAISED["soaked"], "old": Revision(OLD)}
    soaking = replace(NODE, standbys={one: Standby("soaked", "old", both) for one in ORDER})
    acts = decided(Cluster({"n1": soaking}, UPGRADED)).acts["n1"]
    assert [act.revision for act in acts if act.verb is Verb.SWITCH] == ["old"] * len(ORDER)


@pytest.mark.parametrize("emulates", ["", "1.35", "1.37", "1.36,1.35"])
def test_what_emulates_anything_else_stands_for_nothing(emulates: str) -> None:
    lone = with_server(revisions={"new": Revision(NEW), "other": Revision(NEW, emulates=emulates)})
    assert "it has no v1.36.4 on its disk" in refused(Cluster({"n1": lone}, UPGRADED)).sentence


def test_what_stays_of_level_3_is_said() -> None:
    lone = {**NODE.standbys, CONTROLLER_MANAGER: Standby("new", None, {"new": Revision(NEW)})}
    found = decided(Cluster({"n1": replace(NODE, standbys=lone)}, UPGRADED))
    why = "it has no v1.36.4 on its disk, only v1.37.1"
    assert found.kept == (f"on n1 the standby of kube-controller-manager stays as it is: {why}",)
    assert CONTROLLER_MANAGER not in found.leads, "it would lead with the later version"


# --- which version ---------------------------------------------------------------------------------------


def test_where_etcd_says_nothing_the_latest_former_version_on_a_disk_counts() -> None:
    older = {**AFTER.revisions, "older": Revision(OLDER)}
    assert decided(Cluster({"n1": with_server(revisions=older), "n2": NODE})).to == OLD
    lone = with_server(revisions={"new": Revision(NEW)})
    assert (
        "no control node that answers has an API server of a former version" in refused(Cluster({"n1": lone})).sentence
    )


def test_a_control_plane_that_was_not_upgraded_has_no_way_back() -> None:
    assert "there is no version before" in refused(Cluster({"n1": NODE}, Plane(None, frozenset({NEW})))).sentence


@pytest.mark.parametrize("plane", [None, Plane(OLDER, frozenset({OLD})), Plane(OLDER, frozenset({OLD, NEW}))])
def test_never_two_minors_down_from_what_has_run(plane: Plane | None) -> None:
    """An upgrade from 1.36 to 1.37 in which no standby is of 1.37 yet, and the former standby is of 1.35."""
    server = Standby("old", "older", {"old": Revision(OLD), "older": Revision(OLDER)}, active=True)
    node = replace(NODE, standbys={**NODE.standbys, API_SERVER: server}, runs=frozenset({NEW}))
    found = refused(Cluster({"n1": node}, plane))
    assert "rule 4" in found.rule
    assert "v1.37.1 has run" in found.sentence


def test_never_up() -> None:
    assert "that is no way back" in refused(Cluster({"n1": NODE}, Plane(NEXT, frozenset({NEW})))).sentence


def test_a_kubelet_of_a_control_node_that_would_be_newer_is_refused_unless_that_is_accepted() -> None:
    brought = Cluster({"n1": replace(NODE, kubelet=NEW)}, UPGRADED)
    found = refused(brought)
    assert "the kubelet of n1 (v1.37.1) would be newer" in found.sentence
    assert "--accept-newer-kubelets" in found.fix
    assert "kubelets that follow go back by themselves" in found.fix
    assert decided(replace(brought, accepts_kubelets=True)).to == OLD


# --- what etcd says --------------------------------------------------------------------------------------


def a_plane(complete: Version | None, former: Version | None, asked: Version, **upgrade: Any) -> dict[str, Any]:
    status = {"version": complete, "formerVersion": former}
    said = {name: str(version) for name, version in status.items() if version is not None}
    return {"spec": {"version": str(asked)}, "status": said | ({"upgrade": upgrade} if upgrade else {})}


@pytest.mark.parametrize(
    ("plane", "back"),
    [
        (a_plane(NEW, OLD, NEW), OLD),
        (a_plane(OLD, OLDER, NEW, versions=[str(NEW)]), OLD),
        (a_plane(OLD, OLDER, OLD, versions=[str(NEW)]), OLD),
        (a_plane(NEW, OLD, OLD), OLD),
        (a_plane(NEW, OLD, OLD, versions=[str(OLD)], wanted=str(OLD), state="Upgrading"), OLD),
        (a_plane(OLD, NEW, OLD), None),
        (a_plane(OLD, NEW, NEW, versions=[str(NEW)]), OLD),
        (a_plane(OLD, None, OLD), None),
        (a_plane(None, None, OLD), None),
    ],
    ids=[
        "complete",
        "under way",
        "given up",
        "a way back that was only asked for",
        "a way back that is under way",
        "a way back that is complete",
        "once more up",
        "never upgraded",
        "no operator has said anything",
    ],
)
def test_a_rollback_that_is_asked_for_again_leads_where_it_led(plane: dict[str, Any], back: Version | None) -> None:
    assert reported.goes_back_to(plane) == back


def test_what_is_wanted_and_was_begun_has_perhaps_written_something() -> None:
    begun = plane_of(a_plane(OLD, None, NEW, versions=[str(NEW)]))
    assert begun == Plane(OLD, frozenset({OLD, NEW}))
    assert plane_of(a_plane(OLD, None, NEW)) == Plane(OLD, frozenset({OLD}))


@given(
    st.recursive(
        st.none() | st.text(), lambda one: st.dictionaries(st.sampled_from(["spec", "status", "version"]), one)
    )
)
def test_nothing_in_etcd_raises(found: object) -> None:
    plane_of(found)


# --- interruptions ---------------------------------------------------------------------------------------


@dataclass
class Disk:
    """A node's standbys as its program changes them, one step after the other."""

    standbys: dict[str, Standby]
    in_place: dict[str, str] = field(default_factory=dict)

    def seen(self, node: Seen) -> Seen:
        shown = {
            name: replace(
                one, active=name in self.in_place, outdated=self.in_place.get(name, one.current) != one.current
            )
            for name, one in self.standbys.items()
        }
        return replace(node, standbys=shown)

    def steps(self, act: Act) -> list[tuple[str, str, str]]:
        match act.verb:
            case Verb.SWITCH:
                return [("previous", act.component, ""), ("current", act.component, act.revision)]
            case Verb.RENEW:
                return [("renew", act.component, "")]
            case Verb.ACTIVATE:
                return [("activate", act.component, "")]

    def do(self, step: tuple[str, str, str]) -> None:
        verb, component, revision = step
        one = self.standbys[component]
        match verb:
            case "previous":
                self.standbys[component] = replace(one, previous=one.current or one.previous)
            case "current":
                self.standbys[component] = replace(one, current=revision)
            case "renew" if component in self.in_place:
                self.in_place[component] = str(one.current)
            case "activate" if component not in self.in_place:
                self.in_place[component] = str(one.current)


VERSIONS = st.sampled_from([OLDER, OLD, NEW, Version(1, 36, 3), NEXT])
REVISIONS = st.builds(Revision, st.none() | VERSIONS, st.sampled_from(["", "", "", "lacks an image"]))


@st.composite
def standbys(draw: st.DrawFn) -> Standby:
    found = draw(st.dictionaries(st.sampled_from("abc"), REVISIONS))
    links = st.none() | st.sampled_from("abc")
    return Standby(draw(links), draw(links), found)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Cluster, dict[str, Disk]]:
    names = draw(st.lists(st.sampled_from(["n1", "n2", "n3"]), unique=True, min_size=1))
    disks, nodes = {}, {}
    for name in names:
        disk = Disk({component: draw(standbys()) for component in ORDER})
        for component in draw(st.sets(st.sampled_from(ORDER))):
            disk.in_place[component] = draw(st.sampled_from("abc"))
        runs = draw(st.frozensets(st.sampled_from([OLD, NEW]), max_size=2))
        disks[name] = disk
        nodes[name] = disk.seen(Seen({}, runs, draw(st.none() | st.sampled_from([OLD, NEW]))))
    plane = draw(st.none() | st.builds(Plane, st.none() | VERSIONS, st.frozensets(VERSIONS, min_size=1, max_size=2)))
    return Cluster(nodes, plane, draw(st.booleans())), disks


@given(clusters(), st.data())
def test_cut_at_any_step_and_run_again_it_ends_where_it_would_have(
    given_cluster: tuple[Cluster, dict[str, Disk]], data: st.DataObject
) -> None:
    """And only revisions of that version are switched to, which would serve; level 3 before the API server; never by
    more than a minor."""
    cluster, disks = given_cluster
    first = decide(cluster)
    if isinstance(first, Refusal):
        assert first.fix
        return
    steps = [(name, step) for name, acts in first.acts.items() for act in acts for step in disks[name].steps(act)]
    for name, acts in first.acts.items():
        _are_in_order(acts)
        for act in (act for act in acts if act.verb is Verb.SWITCH):
            chosen = cluster.nodes[name].standbys[act.component].revisions[act.revision]
            assert chosen == Revision(first.to)
    for known in cluster.plane.known if cluster.plane is not None else frozenset():
        assert known.minor - first.to.minor <= 1

    for name, step in steps[: data.draw(st.integers(0, len(steps)))]:
        disks[name].do(step)
    nodes = {name: disks[name].seen(node) for name, node in cluster.nodes.items()}
    # The plane says where it leads; without it the disks do, of which none has lost a revision.
    again = decide(replace(cluster, nodes=nodes))
    assert isinstance(again, Decision), again
    assert again.to == first.to
    assert set(again.acts) == set(first.acts)
    for name, acts in again.acts.items():
        for act in acts:
            for step in disks[name].steps(act):
                disks[name].do(step)
        server, place = disks[name].standbys[API_SERVER], disks[name].in_place
        assert server.version == first.to
        assert place[API_SERVER] == server.current
    ended = {name: disks[name].seen(node) for name, node in cluster.nodes.items()}
    final = decide(replace(cluster, nodes=ended))
    assert isinstance(final, Decision)
    assert not any(final.acts.values()), "a second run changes nothing"


def _are_in_order(acts: Any) -> None:
    order = [ORDER.index(act.component) for act in acts]
    assert order == sorted(order)


@given(clusters())
def test_no_api_server_ends_beside_one_that_is_two_minors_away(given_cluster: tuple[Cluster, dict[str, Disk]]) -> None:
    """Those that were not reached may run what was known to run."""
    cluster, _ = given_cluster
    found = decide(cluster)
    if isinstance(found, Decision):
        for node in cluster.nodes.values():
            for other in (*node.runs, *filter(None, [node.standbys[API_SERVER].version])):
                assert minor_of(other)[1] - minor_of(found.to)[1] <= 1
