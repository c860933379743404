"""docs/demos.md has the demonstrations in their order, and each block of commands in it is run by a case of
e2e/test_demos; what that takes for seen is on the page.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from itertools import groupby

import pytest

from e2e.demonstrations import AS_RUN, PAGE, PARTS
from e2e.documented import Step, headings, page, steps, steps_below
from unit.docs.documents import ROOT, blocks
from unit.docs.test_documents import invocations, what_is_wrong

DOCUMENT = page(PAGE)
STEPS = steps(DOCUMENT)
DEMONSTRATIONS = [
    "The pivot, watched",
    "Label and scale",
    "Four images by hand",
    "A flag, edited",
    "All schedulers lost",
    "Power cycle",
    "Permanent loss",
]
each_block = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.commands.partition("\n")[0])


# --- the page --------------------------------------------------------------------------------------


def test_the_demonstrations_are_there_in_their_order():
    assert headings(DOCUMENT) == DEMONSTRATIONS


def test_the_bootstrap_is_watched_before_during_and_after_the_pivot():
    watched = steps_below(DOCUMENT, "The pivot, watched")[0]
    remarks = [re.split("[: ]", line.partition("← ")[2])[0] for line in watched.seen]
    moments = ["before", "during", "after"]
    assert [remark for remark in remarks if remark in moments] == moments


def test_the_four_images_are_set_in_the_order_that_the_skew_rules_ask_for_and_taken_back_in_the_opposite_one():
    """API servers first on the way up and last on the way down, nothing but a wait between two of them."""
    there, back = steps_below(DOCUMENT, "Four images by hand")[1:]
    order = ["ds/kube-apiserver", "deploy/kube-controller-manager", "deploy/kube-scheduler", "ds/kube-proxy"]
    assert re.findall(r"set image (\S+)", there.commands) == order
    assert re.findall(r"for workload in (.*);", back.commands) == [" ".join(reversed(order))]


def test_all_that_looks_like_commands_or_output_is_one_of_the_blocks_that_the_cases_read():
    """Not in another language, nor with its fence anywhere else than at the beginning of a line."""
    fenced = blocks(ROOT / "docs" / PAGE)
    assert DOCUMENT.count("```") == 2 * len(fenced)
    assert [block.text for block in fenced if block.language == "sh"] == [step.commands for step in STEPS]
    seen = [tuple(block.text.splitlines()) for block in fenced if block.language == ""]
    assert seen == [step.seen for step in STEPS if step.seen]
    assert {block.language for block in fenced} == {"sh", ""}


@each_block
def test_bash_understands_each_block(step):
    done = subprocess.run(["bash", "-n", "-c", step.commands], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@each_block
def test_every_command_of_ours_in_a_block_exists_with_its_options(step):
    lines = step.commands.replace("\\\n", " ").splitlines()
    found = [command for line in lines for command in invocations(line)]
    assert len(found) == len(re.findall(r"\bautarky ", step.commands)) > 0
    assert [what_is_wrong(command) for command in found] == [None] * len(found)


# --- the cases -------------------------------------------------------------------------------------


def test_every_block_is_run_by_one_case_in_the_order_of_the_page():
    """Also one that is added before the first heading."""
    assert [step for part in PARTS for step in part.of(steps_below(DOCUMENT, part.heading))] == STEPS
    assert all(part.of(steps_below(DOCUMENT, part.heading)) for part in PARTS)


def test_there_is_a_case_for_each_demonstration_by_a_name_of_its_own():
    assert [heading for heading, _ in groupby(part.heading for part in PARTS)] == DEMONSTRATIONS
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_a_change_of_the_page_touches_the_cases():
    now = hashlib.sha256(repr([(step.commands, step.seen) for step in STEPS]).encode()).hexdigest()[:12]
    assert now == AS_RUN, f"set AS_RUN of e2e/demonstrations.py to {now}, and run the cases of e2e/test_demos.py"


# --- what counts as seen ---------------------------------------------------------------------------

SEEN = Step("", ("n1  hosted   v1  ready  ← after", "standby-…", "web … ready"))
SAID = ["node  slot", "n1    hosted  v1  ready", "standby-4fe1.json", "1 more", "  web 3m ready"]


def test_lines_are_seen_with_others_between_them_whatever_blanks_and_varying_parts_they_have():
    assert SEEN.unseen("\n".join(SAID)) is None


@pytest.mark.parametrize(
    ("said", "unseen"),
    [
        ([], SEEN.seen[0]),
        (["n1 hosted v1 not ready", *SAID[2:]], SEEN.seen[0]),
        ([f"{SAID[1]} yet", *SAID[2:]], SEEN.seen[0]),
        (["n1 hosted v1 ready", SAID[4], SAID[2]], SEEN.seen[2]),
        (SAID[:-1], SEEN.seen[2]),
    ],
    ids=["nothing", "another health", "more behind it", "another order", "one is missing"],
)
def test_a_line_that_is_missing_different_or_out_of_order_is_named(said, unseen):
    assert SEEN.unseen("\n".join(said)) == unseen


def test_one_line_does_not_stand_for_two():
    twice = Step("", ("ready", "ready"))
    assert twice.unseen("ready") == "ready"
    assert twice.unseen("ready\nready") is None


def test_every_line_that_is_to_be_seen_says_more_than_what_varies():
    found = [line for step in STEPS for line in step.seen]
    assert len(found) > 30
    assert all(re.sub(r"[\s…]", "", line.partition("←")[0]) for line in found)
