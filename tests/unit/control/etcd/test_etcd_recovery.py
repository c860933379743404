"""Which member's data a new etcd is made of, and with which revision it begins."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.etcd.decide.recovery import BUMP, Log, beginning, choose

NODES = ("n1", "n2", "n3", "n4", "n5")


@st.composite
def logs(draw: st.DrawFn, clusters: int = 2) -> list[Log]:
    """Of some hosts, in the order in which they answer."""
    names = draw(st.lists(st.sampled_from(NODES), unique=True))
    figures = st.integers(0, 4)
    return [Log(name, draw(st.integers(1, clusters)), draw(figures), draw(figures)) for name in names]


def end(log: Log) -> tuple[int, int]:
    return log.term, log.index


# --- the choice ---------------------------------------------------------------------------------------------------


@given(logs(clusters=1))
def test_of_members_of_one_cluster_none_is_newer_than_the_chosen_one(found: list[Log]) -> None:
    """So it has whatever a majority of those that can be read acknowledged: Raft elects by the same order."""
    choice = choose(found)
    assert (choice.node is None) == (not found)
    for log in found:
        assert end(log) <= end(next(one for one in found if one.node == choice.node))
    assert choice.lost is None


@given(logs(), st.sampled_from([None, *NODES]))
def test_nothing_older_is_ever_chosen_unless_somebody_asked_for_it(found: list[Log], wanted: str | None) -> None:
    choice = choose(found, wanted)
    if choice.node is None:
        return
    chosen = next(one for one in found if one.node == choice.node)
    newer = [one for one in found if one.cluster == chosen.cluster and end(one) > end(chosen)]
    assert not newer or choice.node == wanted
    assert bool(newer) == (choice.lost is not None), "what is lost is always said"


@given(logs(clusters=3), st.sampled_from([None, *NODES]), st.sets(st.integers(1, 3)))
def test_data_of_an_etcd_that_was_replaced_is_never_chosen(
    found: list[Log], wanted: str | None, replaced: set[int]
) -> None:
    """And stands in nobody's way: the others are chosen from as if it were not there."""
    choice = choose(found, wanted, dict.fromkeys(replaced, "2027-01-15T08:00:00Z"))
    clusters = {one.node: one.cluster for one in found}
    assert choice.node is None or clusters[choice.node] not in replaced
    if clusters.get(wanted or "") in replaced:
        assert "that the recovery of 2027-01-15T08:00:00Z has replaced" in choice.sentence
    else:
        assert choice.node == choose([one for one in found if one.cluster not in replaced], wanted).node


@given(logs())
def test_data_of_different_clusters_is_never_compared(found: list[Log]) -> None:
    """Two entries of the same number say nothing about each other: a person has to choose."""
    choice = choose(found)
    different = len({one.cluster for one in found}) > 1
    assert not different or choice.node is None
    for log in found if different else ():
        assert f"{log.node}: {log.cluster:x}" in choice.sentence


@given(logs(clusters=1), st.sampled_from([None, *NODES]), st.randoms())
def test_the_choice_is_the_same_in_whatever_order_hosts_answer(found: list[Log], wanted, random) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    assert choose(shuffled, wanted) == choose(found, wanted)


@given(st.permutations(NODES))
def test_of_equals_it_is_always_the_same_one(names: list[str]) -> None:
    """A second look must not find another one, whose fence is not there."""
    assert choose([Log(name, 7, 3, 9) for name in names]) == choose([Log(name, 7, 3, 9) for name in NODES])


def test_a_later_term_is_newer_than_any_number_of_entries_of_an_earlier_one() -> None:
    """What the longer log has beyond it was never acknowledged by a majority."""
    assert choose([Log("n1", 7, 3, 900), Log("n2", 7, 4, 850)]).node == "n2"


def test_the_data_is_described_by_its_last_entry() -> None:
    assert choose([Log("n1", 7, 3, 12_345)]).sentence == "the newest: entry 12,345 of term 3"
    assert choose([Log("n1", 7, 3, 12_345)], "n1").sentence == "as asked: entry 12,345 of term 3"


def test_where_nothing_was_found_nothing_is_chosen() -> None:
    assert choose([]).node is None
    assert "no host that answers" in choose([]).sentence


def test_whoever_asks_for_older_data_hears_what_is_lost_and_who_has_it() -> None:
    found = [Log("n1", 7, 3, 100), Log("n2", 7, 3, 130), Log("n3", 7, 3, 140)]
    choice = choose(found, "n1")
    assert (choice.node, choice.lost) == ("n1", (40, "n3"))
    assert choose(found, "n3").lost is None


def test_data_of_another_cluster_is_no_loss_that_could_be_counted() -> None:
    assert choose([Log("n1", 7, 3, 100), Log("n2", 8, 9, 900)], "n1").lost is None


def test_a_node_without_data_is_refused_with_the_names_of_those_that_have_some() -> None:
    choice = choose([Log("n2", 7, 3, 1), Log("n1", 8, 3, 1)], "n9")
    assert choice.node is None
    assert "n9 has no data" in choice.sentence
    assert choice.sentence.endswith("these have: n1, n2")
    assert choose([], "n9").sentence.endswith("these have: none")


# --- damaged logs -------------------------------------------------------------------------------------------------


def test_an_undamaged_log_is_taken_that_has_all_that_can_be_read_of_the_damaged_one() -> None:
    found = [Log("n1", 7, 3, 100, damaged=True, lost=5), Log("n2", 7, 3, 105)]
    assert (choose(found).node, choose(found).lost) == ("n2", None)


def test_what_only_a_damaged_log_has_had_is_said() -> None:
    found = [Log("n1", 7, 3, 100, damaged=True, lost=9), Log("n2", 7, 3, 104), Log("n3", 7, 3, 103)]
    assert (choose(found).node, choose(found).lost) == ("n2", (5, "n1"))


def test_an_undamaged_log_is_not_taken_that_is_older_than_what_can_be_read_of_the_damaged_one() -> None:
    choice = choose([Log("n1", 7, 3, 100, damaged=True, lost=5), Log("n2", 7, 3, 20)])
    assert choice.node is None
    said = "n1: entry 100 of term 3, where its log is damaged; 5 entries from there on are lost; n2: entry 20 of term 3"
    assert said in choice.sentence


def test_a_damaged_log_is_taken_only_by_who_asks_for_it_and_hears_what_is_lost() -> None:
    found = [Log("n1", 7, 3, 100, damaged=True, lost=5)]
    assert choose(found).node is None
    assert "5 entries from there on are lost" in choose(found).sentence
    assert choose(found, "n1").node == "n1"
    assert "5 entries from there on are lost" in choose(found, "n1").sentence


@given(logs(clusters=1), st.sets(st.sampled_from(NODES)), st.integers(0, 3))
def test_no_damaged_log_is_ever_chosen_by_itself_nor_one_that_is_older_than_what_can_be_read(
    found: list[Log], damaged: set[str], lost: int
) -> None:
    marked = [replace(one, damaged=True, lost=lost) if one.node in damaged else one for one in found]
    choice = choose(marked)
    chosen = next((one for one in marked if one.node == choice.node), None)
    if chosen is None:
        return
    assert not chosen.damaged
    assert all(end(one) <= end(chosen) for one in marked)
    had = max((one.index + one.lost for one in marked if one.damaged), default=0)
    assert (choice.lost is not None) == (had > chosen.index)


# --- the beginning ------------------------------------------------------------------------------------------------

REVISIONS = st.integers(1, 2**40)


@given(REVISIONS, st.none() | REVISIONS, st.lists(REVISIONS, max_size=4))
def test_it_begins_far_above_whatever_is_known_of_any_history(source: int, current: int | None, begun) -> None:
    assert beginning(source, current, begun) >= max([source, current or 0, *begun]) + BUMP


@given(st.integers(1, BUMP - 1), st.lists(st.tuples(st.integers(0, BUMP - 1), st.booleans(), st.floats(0, 1))))
def test_no_client_ever_sees_a_revision_again_nor_a_lower_one_whatever_is_recovered_from_whatever(
    first: int, recoveries: list[tuple[int, bool, float]]
) -> None:
    """Each time after so many writes, from data of some earlier moment, with an etcd that answers or does not. A
    kubelet that has seen a later revision waits for it, and one that resumes a watch misses what happened."""
    began, seen, begun = 0, first, list[int]()
    for writes, answers, age in recoveries:
        seen = max(seen, began + writes)
        began = beginning(max(1, int(seen * age)), seen if answers else None, begun)
        assert began > seen
        seen = began
        begun.append(began)


def test_an_etcd_that_does_not_answer_has_written_since_its_own_beginning() -> None:
    """As much as anybody writes in one history."""
    assert beginning(500, None, [3 * BUMP]) == 5 * BUMP
    assert beginning(500, 3 * BUMP + 77, [3 * BUMP]) == 4 * BUMP + 77
