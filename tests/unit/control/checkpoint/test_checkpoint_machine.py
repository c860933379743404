"""Checkpoints on a simulated node: pods come and go, looks fail, and the power goes between any two writes.

The directory is modelled as the host keeps it: single files and links, each durable once it was synced, and
the one write that the power cuts may or may not have reached the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autarky.control.checkpoint.decide.revisions import (
    PROVEN_SECONDS,
    Action,
    Decision,
    Disk,
    Instance,
    Memory,
    Seen,
    Source,
    Verb,
    decide,
)
from autarky.control.slots.decide.pivot import Health, Slot

SECRET, POD = "files/secrets/key", "pod.json"
COMPLETE = frozenset({SECRET, POD})
CONTENTS = "abcd"
SHORT = st.sampled_from([1.0, 2.0, 4.0])
"""Seconds between two looks that count."""


@dataclass
class Directory:
    """A component's directory: what would be there after a power cut."""

    files: dict[str, set[str]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    in_use: set[str] = field(default_factory=set)

    def complete(self, revision: str) -> bool:
        return self.files.get(revision) == COMPLETE

    def seen(self) -> Disk:
        complete = frozenset(revision for revision in self.files if self.complete(revision))
        return Disk(
            self.links.get("current"),
            self.links.get("previous"),
            complete,
            frozenset(self.files) - complete,
            frozenset(self.in_use),
        )

    def steps(self, action: Action) -> Iterator[Callable[[], object]]:
        """The single writes of an action, in order; each looks before it acts."""
        revision = action.revision
        parts = self.files.setdefault(revision, set()) if action.verb is Verb.WRITE else self.files.get(revision, set())
        match action.verb:
            case Verb.WRITE:
                yield lambda: parts.add(SECRET)
                yield lambda: parts.add(POD)
            case Verb.SWITCH:
                assert self.complete(revision), "the script refuses what has no pod.json"
                current = self.links.get("current", revision)
                if current != revision:
                    yield lambda: self.links.update(previous=current)
                yield lambda: self.links.update(current=revision)
            case Verb.DELETE:
                yield lambda: parts.discard(POD)
                yield lambda: parts.discard(SECRET)
                yield lambda: self.files.pop(revision, None)


@dataclass
class Books:
    """The test's own account of how long the looks at one run with one content found it healthy."""

    run: Instance | None = None
    content: str = ""
    seconds: float = 0.0
    last: float | None = None

    def healthy(self, run: Instance, content: str, now: float) -> None:
        if (run, content) != (self.run, self.content):
            self.run, self.content, self.seconds, self.last = run, content, 0.0, None
        if self.last is not None and now - self.last <= 5.0:
            self.seconds += now - self.last
        self.last = now


class Node(RuleBasedStateMachine):
    """One component on one node: the world, the disk, the agent, and the test's own books."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.pods = 0
        self.content = "a"
        self.version = self.content_changed = 0
        self.volume: set[str] = set()
        self.etcd_up = True
        self.wanted = Slot.HOSTED
        self.memory = Memory()
        self.disk = Directory({"rendered": set(COMPLETE)}, {"current": "rendered"})
        self.books = Books()
        self.been_current = ["rendered"]
        self.a_new_pod()

    # --- what happens to it ---

    @rule(content=st.sampled_from(CONTENTS))
    def a_rollout(self, content: str) -> None:
        """An immutable Secret of another name and a new template: new content and a new pod at once."""
        self.its_content_changes_under_it(content)
        self.now += 1
        self.a_new_pod()

    def a_new_pod(self, *, seen: bool = True) -> None:
        """seen: whether the agent knew of it before it was started."""
        self.pods += 1
        self.version += 1
        self.run = Instance(f"uid-{self.pods}", 0, f"{self.now}", self.version if seen else None)
        self.began, self.volume = self.now, {self.content}
        self.hosted = Health.READY

    @rule(content=st.sampled_from(CONTENTS))
    def a_rollout_that_no_agent_sees(self, content: str) -> None:
        self.its_content_changes_under_it(content)
        self.the_agent_is_killed()
        self.a_new_pod(seen=False)
        self.the_agent_looks_again_and_again(33, 2.0)

    @rule(content=st.sampled_from(CONTENTS))
    def its_content_changes_under_it(self, content: str) -> None:
        if content != self.content:
            self.version += 1
            self.content, self.content_changed = content, self.version

    @rule()
    def the_container_restarts(self) -> None:
        """It reads what is in its volume: any content that there was since the pod began."""
        self.now += 1
        self.began = self.now
        self.volume.add(self.content)
        self.run = replace(self.run, restarts=self.run.restarts + 1, started=f"{self.now}")

    @rule(content=st.sampled_from(CONTENTS))
    def the_container_restarts_after_a_change(self, content: str) -> None:
        self.its_content_changes_under_it(content)
        self.the_container_restarts()
        self.the_agent_looks_again_and_again(33, 2.0)

    @rule(health=st.sampled_from([Health.READY] * 4 + [Health.NOT_READY, Health.TERMINATING, Health.ABSENT]))
    def the_hosted_slot_changes(self, health: Health) -> None:
        self.hosted = health

    @rule(up=st.sampled_from([True, True, False]))
    def etcd_comes_or_goes(self, up: bool) -> None:
        self.etcd_up = up

    @rule(wanted=st.sampled_from([Slot.HOSTED, Slot.HOSTED, Slot.STANDBY]))
    def the_level_is_hosted_or_not(self, wanted: Slot) -> None:
        self.wanted = wanted

    @rule()
    def the_standby_is_activated(self) -> None:
        self.disk.in_use = {self.disk.links["current"]}

    @rule()
    def the_standby_is_withdrawn(self) -> None:
        self.disk.in_use = set()

    @rule(seconds=st.sampled_from([6.0, 70.0, 1000.0]))
    def nobody_looks_for_a_while(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_agent_is_killed(self) -> None:
        """The next one finds a pod that runs."""
        self.memory, self.books = Memory(), Books()
        self.run = replace(self.run, version=None)

    # --- what the agent does ---

    @rule(seconds=SHORT)
    def the_agent_looks_and_acts(self, seconds: float) -> None:
        self.carry_out(self.observe(self.view(seconds)))

    @rule(looks=st.sampled_from([10, 20, 33]), seconds=SHORT)
    def the_agent_looks_again_and_again(self, looks: int, seconds: float) -> None:
        for _ in range(looks):
            self.the_agent_looks_and_acts(seconds)

    @rule(content=st.sampled_from(CONTENTS))
    def a_rollout_goes_well(self, content: str) -> None:
        self.a_rollout(content)
        self.the_agent_looks_again_and_again(33, 2.0)

    @rule(cut=st.integers(0, 4), reached_the_disk=st.booleans())
    def the_power_goes_between_two_writes(self, cut: int, reached_the_disk: bool) -> None:
        """At the first action of the next minute, whenever it comes."""
        for _ in range(33):
            decision = self.observe(self.view(2.0))
            if decision.actions:
                self.carry_out(decision, cut=cut, reached_the_disk=reached_the_disk)
                break
        self.the_agent_is_killed()

    @rule(content=st.sampled_from(CONTENTS), cut=st.integers(0, 4), reached_the_disk=st.booleans())
    def the_power_goes_during_a_rollout(self, content: str, cut: int, reached_the_disk: bool) -> None:
        self.a_rollout(content)
        self.the_power_goes_between_two_writes(cut, reached_the_disk)

    @rule(
        content=st.sampled_from(CONTENTS),
        looks=st.sampled_from([20, 28]),
        pause=st.sampled_from([3.0, 6.0, 60.0]),
        etcd=st.booleans(),
    )
    def the_looks_pause_and_go_on(self, content: str, looks: int, pause: float, etcd: bool) -> None:
        """Nobody looks, or etcd is down, just before the minute after a rollout is over."""
        self.etcd_up, self.wanted = True, Slot.HOSTED
        self.a_rollout(content)
        self.the_agent_looks_again_and_again(looks, 2.0)
        if etcd:
            self.observe(replace(self.view(1.0), etcd_up=False))
        self.now += pause
        self.the_agent_looks_again_and_again(4, 1.0)

    @rule(seconds=SHORT, what=st.sampled_from(["disk", "instance", "candidate", "sources", "images"]))
    def something_does_not_answer(self, seconds: float, what: str) -> None:
        decision = self.observe(replace(self.view(seconds), **{what: None}))
        if self.hosted is Health.READY:
            assert not [a for a in decision.actions if a.verb is not Verb.DELETE], "rule 2: unknown proves nothing"
        self.carry_out(decision)

    @rule(seconds=SHORT)
    def nobody_can_look_at_the_hosted_slot(self, seconds: float) -> None:
        decision = self.observe(replace(self.view(seconds), hosted=Health.UNKNOWN))
        assert decision.actions == (), "rule 2: unknown is not down"

    @rule(late=st.sampled_from([6.0, 100.0]))
    def the_observation_comes_late(self, late: float) -> None:
        seen = self.view(0.0)
        self.now += late
        before = self.memory
        decision = decide(seen, before, self.now)
        assert (decision.actions, decision.memory.healthy) == ((), before.healthy)
        self.memory = decision.memory

    def view(self, seconds: float) -> Seen:
        self.now += seconds
        return Seen(
            looked=self.now,
            wanted=self.wanted,
            hosted=self.hosted,
            disk=self.disk.seen(),
            etcd_up=self.etcd_up,
            instance=self.run,
            candidate=f"revision-{self.content}",
            sources=(Source("the Secret s", self.content_changed),),
            images=True,
        )

    def observe(self, seen: Seen) -> Decision:
        """Decide, and keep the test's own books."""
        decision = decide(seen, self.memory, self.now)
        self.memory = decision.memory
        known = seen.etcd_up and seen.hosted is not Health.UNKNOWN
        if not known or (seen.hosted is Health.READY and seen.instance is None):
            self.books.last = None
        elif seen.hosted is not Health.READY or seen.wanted is Slot.STANDBY:
            self.books = Books()
        else:
            self.books.healthy(self.run, self.content, self.now)
        for action in decision.actions:
            assert known, "rules 2 and 9"
            assert self.hosted is Health.READY, "rule 10: what is gone removes nothing"
            if action.verb is not Verb.DELETE:
                self.only_what_was_healthy_becomes_a_checkpoint(action)
        return decision

    def only_what_was_healthy_becomes_a_checkpoint(self, action: Action) -> None:
        assert action.revision == f"revision-{self.content}"
        assert self.books.seconds >= PROVEN_SECONDS
        assert self.began + PROVEN_SECONDS <= self.now
        assert self.volume == {self.content}, "the containers may have read something else"

    def carry_out(self, decision: Decision, *, cut: int | None = None, reached_the_disk: bool = True) -> None:
        """All writes, or those before the cut and, if it reached the disk, the one that was cut."""
        done = 0
        for action in decision.actions:
            for write in self.disk.steps(action):
                if cut is not None and done >= cut and not (done == cut and reached_the_disk):
                    return
                write()
                done += 1
                self.the_current_revision_is_complete()
                self.note_current()

    def note_current(self) -> None:
        current = self.disk.links["current"]
        if current != self.been_current[-1]:
            self.been_current.append(current)

    # --- what always holds ---

    @invariant()
    def the_current_revision_is_complete(self) -> None:
        assert self.disk.complete(self.disk.links["current"])

    @invariant()
    def the_previous_one_is_kept_complete(self) -> None:
        if len(self.been_current) > 1:
            assert self.disk.complete(self.been_current[-2])

    @invariant()
    def what_is_in_use_is_kept_complete(self) -> None:
        assert all(self.disk.complete(revision) for revision in self.disk.in_use)

    @precondition(lambda self: self.now < 1e6)
    @rule()
    def rule_5_it_converges_and_then_changes_nothing(self) -> None:
        """From wherever it is, with a new pod and nothing more going wrong."""
        self.etcd_up, self.wanted = True, Slot.HOSTED
        self.now += 2
        self.a_new_pod()
        for _ in range(70):
            self.the_agent_looks_and_acts(1.0)
        assert self.disk.links["current"] == f"revision-{self.content}"
        before = (dict(self.disk.files), dict(self.disk.links))
        decision = self.observe(self.view(1.0))
        assert (decision.actions, decision.settled) == ((), True)
        assert (self.disk.files, self.disk.links) == before


Node.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
test_the_rules_hold_whatever_order_failures_and_crashes_come_in = Node.TestCase
