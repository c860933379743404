"""How state machines run: until they have gone each way that they are there for, in batches of seeds of their own.

Hypothesis leaves out some rules in a batch and varies what it found there, so one batch in five goes a rare way hardly
at all, and a thousand more examples of the same batch do not change that. A machine that does not get there fails.

What fails is made smaller only in a run that repeats another one (AUTARKY_SEED). A machine takes longer for that than a
test may take, and one that is ended in the middle of it shows some other example, which does not fail.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from hypothesis import Phase, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LEAST = 10
"""Times that each way is gone, so that a refusal by chance does not count for a rule."""
BATCHES = 12


def run_until_all_ways_are_gone(
    machine: type[RuleBasedStateMachine], ways: Counter[str], wanted: Sequence[str], usual: settings, seed: str
) -> None:
    """ways: what the machine counts. seed: that of the run."""
    ways.clear()
    repeats = os.environ.get("AUTARKY_SEED")
    how = usual if repeats else settings(usual, phases=[Phase.reuse, Phase.generate], report_multiple_bugs=False)
    for batch in range(BATCHES):
        run_state_machine_as_test(with_seed(f"{seed}-{batch}")(machine), settings=how)
        if all(ways[way] > LEAST for way in wanted):
            return
    raise AssertionError(f"in {BATCHES} batches: {dict(ways)}; wanted {', '.join(wanted)}")
