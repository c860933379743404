"""What a labelled node still lacks, in the order of the steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.control_nodes.decide.promotion import Seen, come, missing

DONE = Seen(requested=True, prepared=True, active=True, serves=True, member="Member")


def test_a_control_node_lacks_nothing():
    assert missing("n4", DONE) is None


def test_a_node_without_a_member_of_etcd_or_a_hosted_api_server_may_be_a_control_node_as_well():
    assert missing("n4", replace(DONE, serves=None, member=None)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requested": False}, "does not carry the label"),
        ({"prepared": False}, "the node agent of n4 has not prepared it"),
        ({"active": False}, "the operator has not made n4 a control node"),
        ({"serves": False}, "the API server of n4 is not Ready"),
        ({"member": ""}, "there is no EtcdMember n4 yet"),
        ({"member": "Blocked", "message": "n2 is not healthy"}, "the EtcdMember n4 is Blocked: n2 is not healthy"),
    ],
)
def test_what_is_missing_is_named(change, said):
    assert said in (missing("n4", replace(DONE, **change)) or "")


def test_the_first_thing_that_is_missing_is_named_alone():
    assert "label" in (
        missing("n4", Seen(requested=False, prepared=False, active=False, serves=False, member="")) or ""
    )


def test_each_step_is_another_value_and_no_words_are():
    joining = Seen(requested=True, prepared=False, active=False, serves=False, member="")
    steps = [joining]
    for change in (
        {"prepared": True},
        {"active": True},
        {"serves": True},
        {"member": "Learner"},
        {"member": "Member"},
    ):
        steps.append(replace(steps[-1], **change))
    assert len({come(seen) for seen in steps}) == len(steps)
    assert come(replace(DONE, message="another sentence")) == come(DONE)
