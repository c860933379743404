"""Who starts etcd as a new cluster: known from the hosts' memory, and wrong only on the safe side."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.control_nodes.decide.initial import Memory, initial_members

THREE = ("n1", "n2", "n3")
WERE = Memory(frozenset(THREE), founded=True)
NOTHING = Memory()


def test_on_fresh_hosts_all_control_nodes_of_the_file_found_the_cluster():
    assert initial_members(THREE, dict.fromkeys(THREE, NOTHING)) == set(THREE)


def test_a_run_that_was_killed_while_hosts_were_prepared_continues_with_the_same_initial_members():
    begun = Memory(frozenset(THREE))
    assert initial_members(THREE, {"n1": begun, "n2": NOTHING, "n3": NOTHING}) == set(THREE)


def test_a_control_node_that_was_added_to_the_file_is_none_of_them():
    assert initial_members((*THREE, "n4"), {**dict.fromkeys(THREE, WERE), "n4": NOTHING}) == set(THREE)


def test_a_machine_that_was_replaced_does_not_found_the_cluster_again():
    assert initial_members(THREE, {"n1": NOTHING, "n2": WERE, "n3": WERE}) == {"n2", "n3"}


def test_a_host_that_does_not_answer_stays_what_the_others_remember():
    assert initial_members(THREE, {"n2": WERE, "n3": WERE}) == set(THREE)


def test_a_cluster_of_one_that_grows_keeps_its_single_initial_member():
    alone = Memory(frozenset({"n1"}), founded=True)
    assert initial_members(THREE, {"n1": alone, "n2": NOTHING, "n3": NOTHING}) == {"n1"}


@given(
    remembering=st.sets(st.sampled_from(THREE), min_size=1),
    silent=st.sets(st.sampled_from(("n1", "n2", "n3", "n4", "n5"))),
)
def test_once_founded_nobody_with_an_empty_disk_is_an_initial_member(remembering, silent):
    nodes = ("n1", "n2", "n3", "n4", "n5")
    seen = {name: WERE if name in remembering else NOTHING for name in nodes if name not in silent}
    if not any(memory.founded for memory in seen.values()):
        return
    found = initial_members(nodes, seen)
    assert found <= set(THREE)
    assert not {name for name in found if name in seen and not seen[name].initial_members}
