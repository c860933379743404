"""Labels make control nodes and workers in safe order, whatever users, failures and crashes do meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autarky.control.control_nodes.decide.observed import JOINING, LEAVE, READY, Member, Node, OwnNode, Record, State
from autarky.control.control_nodes.decide.procedure import Decision, OwnStep, Step
from autarky.control.control_nodes.decide.roles import asked_whether_they_serve, decide, own_row
from unit.control.machines import run_until_all_ways_are_gone

REPORTED = f"{READY}0123456789"
NAMES = ("n1", "n2", "n3", "n4")
ONE = st.sampled_from(NAMES)
SOME = st.sets(ONE) | ONE.map(lambda name: {name}) | ONE.map(lambda name: set(NAMES) - {name})


ONE_GOES = "one goes past others that do not serve"
LAST_WAITS = "the last one that serves waits"


@dataclass
class Machine:
    """A node as it really is; `node` as the API shows it. serves: as whoever asked it has seen."""

    node: Node
    serves: bool = True
    parts: bool = False
    granted: bool = False
    member: Member = Member.NONE


@dataclass
class World:
    machines: dict[str, Machine] = field(default_factory=dict)
    uids: int = 0

    def nodes(self) -> list[Node]:
        nodes = [replace(machine.node, member=machine.member) for machine in self.machines.values()]
        asked = asked_whether_they_serve(nodes)
        return [
            replace(node, obstacle=None) if node.name in asked and self.machines[node.name].serves else node
            for node in nodes
        ]

    def serving(self) -> set[str]:
        return {name for name, one in self.machines.items() if one.node.active and one.parts and one.serves}

    def facts(self) -> set[str]:
        return {name for name, one in self.machines.items() if one.node.active}

    def staying(self) -> set[str]:
        """Those of them that should remain."""
        return {name for name in self.serving() if self.machines[name].node.requested}


class Labels(RuleBasedStateMachine):
    """A user, an operator that may be killed after any write, agents that may be killed after any step."""

    ways: ClassVar[Counter[str]] = Counter()
    """What was reached, in all examples together: a rule that never had a chance to be broken is not shown to hold."""

    @initialize(made=st.sampled_from([0, 2, 3, 3]))
    def begin(self, made: int) -> None:
        """So many that were made control nodes; none: the one that `up` makes."""
        self.world = World()
        for number, name in enumerate(NAMES):
            control, reported = number < max(made, 1), REPORTED if number < made else None
            node = Node(
                name, f"{name}-0", control, control, reported, recorded=Record(f"{name}-0") if control else None
            )
            member = Member.THERE if control else Member.NONE
            self.world.machines[name] = Machine(node, parts=control, member=member)

    def change(self, name: str, **changes: Any) -> None:
        machine = self.world.machines[name]
        machine.node = replace(machine.node, **changes)

    # --- the user and the world ---

    @rule(name=ONE, requested=st.booleans())
    def label(self, name: str, requested: bool) -> None:
        self.change(name, requested=requested)

    @rule(name=ONE)
    def delete_and_create_again(self, name: str) -> None:
        self.world.uids += 1
        self.change(name, uid=f"{name}-{self.world.uids}", requested=False, active=False, reported=None)

    @rule(name=ONE, ready=st.sampled_from([True, False, None]))
    def be_seen(self, name: str, ready: bool | None) -> None:
        self.change(name, ready=ready)

    @rule(name=ONE, serves=st.booleans())
    def serve(self, name: str, serves: bool) -> None:
        """Its API servers answer, or no longer do; its Node stays Ready."""
        self.world.machines[name].serves = serves

    @rule(leaving=SOME, silent=SOME, rounds=st.integers(2, 6))
    def some_are_to_go_while_others_do_not_serve(self, leaving: set[str], silent: set[str], rounds: int) -> None:
        """The one that goes may be the last that serves; the Nodes of all others are Ready."""
        for name in NAMES:
            self.change(name, requested=self.world.machines[name].node.requested and name not in leaving, ready=True)
            self.serve(name, serves=name not in silent)
        self.go_on(rounds)

    @rule()
    def all_become_control_nodes(self) -> None:
        self.label_all(requested=True)
        for name in NAMES:
            self.be_seen(name, ready=True)
            self.serve(name, serves=True)
        self.go_on(5)
        for name in NAMES:
            self.join_etcd(name)

    @rule(requested=st.booleans())
    def label_all(self, requested: bool) -> None:
        for name in NAMES:
            self.change(name, requested=requested)

    @rule(name=ONE)
    def join_etcd(self, name: str) -> None:
        machine = self.world.machines[name]
        if machine.node.active and machine.node.requested:
            machine.member = Member.THERE

    # --- the operator ---

    @rule(writes=st.integers(1, 6))
    def operate(self, writes: int = 99) -> None:
        """One round, cut after some writes. Deletion and recreation are outside its safety: others go by its word."""
        seen = {node.name: node for node in self.world.nodes()}
        for name, decision in list(decide(seen.values()).items())[:writes]:
            self.carry_out(name, seen[name], decision)

    @rule(rounds=st.integers(1, 4))
    def go_on(self, rounds: int) -> None:
        """The operator and all agents, without interruption."""
        for _ in range(rounds):
            self.operate()
            for name in NAMES:
                self.act(name)

    def carry_out(self, name: str, seen: Node, decision: Decision) -> None:
        machine = self.world.machines[name]
        if "has been seen to serve" in decision.sentence and seen.active and not self.world.staying():
            self.ways[LAST_WAITS] += 1
        match decision.step:
            case Step.REMEMBER:
                self.change(name, recorded=Record(seen.uid))
            case Step.GRANT:
                was_made = seen.recorded is not None and seen.recorded.state is State.MADE
                self.change(name, recorded=Record(seen.uid, State.MADE if was_made else State.JOINING))
                machine.granted = True
            case Step.MARK:
                assert machine.parts or machine.node.reported == REPORTED
                self.change(name, recorded=Record(seen.uid), active=True)
            case Step.RESTORE:
                self.change(name, requested=True)
            case Step.REMOVE_MEMBER:
                machine.member = Member.NONE
            case Step.DISMISS:
                assert machine.member is Member.NONE
                if seen.active:
                    assert self.world.staying() - {name}, "the last one that serves"
                    self.ways[ONE_GOES] += self.world.facts() > self.world.serving() | {name}
                machine.granted = False
                self.change(name, active=False, reported=LEAVE, recorded=Record(seen.uid, State.DISMISSED))
            case Step.FORGET:
                assert not machine.parts
                self.change(name, recorded=None)
                machine.granted = False
            case _:
                pass

    # --- the agents ---

    @rule(name=ONE)
    def act(self, name: str) -> None:
        machine = self.world.machines[name]
        node = machine.node
        match own_row(OwnNode(node.requested, node.active, node.reported, REPORTED if machine.parts else None)).step:
            case OwnStep.ANNOUNCE:
                self.change(name, reported=REPORTED)
            case OwnStep.BECOME if machine.granted:
                machine.parts = True
            case OwnStep.BECOME:
                self.change(name, reported=f"{JOINING}it waits")
            case OwnStep.CEASE if machine.parts:
                assert machine.member is Member.NONE
                machine.parts = False
            case OwnStep.CEASE:
                self.change(name, reported=None)
            case _:
                pass

    # --- what holds ---

    @invariant()
    def nothing_runs_where_it_has_no_parts(self) -> None:
        for machine in self.world.machines.values():
            assert machine.parts or not machine.node.active

    @invariant()
    def there_is_always_a_node_with_everything(self) -> None:
        assert any(machine.parts for machine in self.world.machines.values())

    def teardown(self) -> None:
        """Left alone, with every node Ready, it comes to rest as the labels say."""
        if not hasattr(self, "world"):
            return
        for name in NAMES:
            self.change(name, ready=True)
            self.world.machines[name].serves = True
        self.go_on(40)
        requested = {name for name, one in self.world.machines.items() if one.node.requested}
        facts = self.world.facts()
        assert facts, "no control node is left"
        assert requested == facts or not requested, (requested, facts)


def test_labels_make_control_nodes_and_workers_in_safe_order(seed: str) -> None:
    usual = settings(max_examples=250, stateful_step_count=40, deadline=None)
    run_until_all_ways_are_gone(Labels, Labels.ways, (ONE_GOES, LAST_WAITS), usual, seed)
