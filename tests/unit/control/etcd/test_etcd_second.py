"""A second member stands in for the only one while that is changed: the decisions together, on a simulated node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.etcd.decide import local as etcd_local
from autarky.control.etcd.decide.membership import LONGEST_NOTICE, Memory, decide, quorum, settled
from autarky.control.etcd.decide.second import Reported, with_second
from autarky.model.etcd_members import SECOND_SUFFIX, Desired, Member, Phase, Seen, Verb, second

FIRST, SECOND = "192.0.2.11", second("192.0.2.11")
OLD, NEW = "old", "new"
SPEC = Desired("n1", FIRST, reachable=True, revision=NEW, outdated=True)
VOTES = Member(1, FIRST, serves=True)
STANDS_IN = Member(2, SECOND, serves=True)


def present(*members: Member, spec: Desired = SPEC, others: tuple[Desired, ...] = ()) -> dict[str, bool]:
    return {one.name: one.present for one in with_second([spec, *others], members, {})}


BOTH = {"n1": True, f"n1{SECOND_SUFFIX}": True}


def test_where_nothing_is_to_change_there_is_no_second_one() -> None:
    assert present(VOTES, spec=replace(SPEC, outdated=False)) == {"n1": True}
    assert present(VOTES, spec=replace(SPEC, failed=True)) == {"n1": True}


def test_the_first_one_leaves_when_the_second_one_votes_and_serves() -> None:
    assert present(VOTES) == BOTH
    assert present(VOTES, replace(STANDS_IN, learner=True)) == BOTH
    assert present(VOTES, replace(STANDS_IN, serves=None)) == BOTH
    assert present(VOTES, replace(STANDS_IN, serves=False)) == BOTH
    assert present(VOTES, STANDS_IN) == {**BOTH, "n1": False}


def test_it_joins_again_beside_the_second_one_which_leaves_when_it_votes_and_serves() -> None:
    assert present(STANDS_IN) == BOTH
    made_new = replace(SPEC, outdated=False)
    assert present(STANDS_IN, replace(VOTES, learner=True), spec=made_new) == BOTH
    assert present(STANDS_IN, replace(VOTES, serves=False), spec=made_new) == BOTH
    assert present(STANDS_IN, VOTES, spec=made_new) == {**BOTH, f"n1{SECOND_SUFFIX}": False}


def test_a_template_that_fails_sends_the_second_one_away_and_leaves_the_first_one() -> None:
    learner = replace(STANDS_IN, learner=True, serves=False)
    assert present(VOTES, learner, spec=replace(SPEC, failed=True)) == {**BOTH, f"n1{SECOND_SUFFIX}": False}


def test_with_other_members_there_is_no_second_one_and_one_that_is_there_leaves() -> None:
    other, their = Desired("n2", "192.0.2.12"), Member(3, "192.0.2.12", serves=True)
    assert present(VOTES, their, others=(other,)) == {"n1": True, "n2": True}
    assert present(VOTES, others=(other,)) == {"n1": True, "n2": True}, "it will have one"
    assert present(VOTES, STANDS_IN, their, others=(other,))[f"n1{SECOND_SUFFIX}"] is False


# --- on a simulated node -------------------------------------------------------------------------------------------


@dataclass
class Seat:
    """manifest: the member that the static pod is for; disk: whose log there is; made_from: the template."""

    manifest: int | None = None
    disk: int | None = None
    made_from: str = OLD
    memory: etcd_local.Memory = field(default_factory=etcd_local.Memory)


@dataclass
class Node:
    """works: whether a process with the new template starts. deaf: looks in which nothing answers."""

    works: bool
    seats: dict[str, Seat] = field(default_factory=lambda: {FIRST: Seat(1, 1), SECOND: Seat()})
    members: dict[int, tuple[str, bool, bool]] = field(default_factory=lambda: {1: (FIRST, False, True)})
    leader: int = 1
    memory: Memory = field(default_factory=Memory)
    phases: dict[str, Phase] = field(default_factory=dict)
    failed: bool = False
    now: float = 0.0
    next_id: int = 2
    power: bool = True
    ran: set[int] = field(default_factory=lambda: {1})

    def runs(self, member: int) -> bool:
        seat = self.seats[self.members[member][0]]
        starts = seat.made_from == OLD or self.works
        return self.power and seat.manifest is not None and seat.disk == member and starts

    def listed(self) -> list[Member]:
        return [
            Member(member, address, learner, started, self.runs(member))
            for member, (address, learner, started) in self.members.items()
        ]

    def voters(self) -> list[int]:
        return [member for member, (_, learner, _) in self.members.items() if not learner]

    def has_quorum(self) -> bool:
        voters = self.voters()
        return sum(map(self.runs, voters)) >= quorum(len(voters))

    def desired(self) -> tuple[Desired, ...]:
        first = self.seats[FIRST]
        spec = Desired(
            "n1",
            FIRST,
            reachable=True,
            revision=NEW,
            outdated=first.manifest is None or first.made_from != NEW,
            failed=self.failed,
            reported=self.phases.get("n1") is Phase.LEAVING,
        )
        noted = Reported(self.phases.get(f"n1{SECOND_SUFFIX}") is Phase.LEAVING)
        return tuple(replace(one, reachable=True) for one in with_second([spec], self.listed(), {"n1": noted}))

    # --- the agent ---

    def membership(self) -> None:
        if not self.has_quorum():
            return
        if not self.runs(self.leader):
            self.leader = next(member for member in self.voters() if self.runs(member))
        seen = Seen(self.leader, self.leader, tuple(self.listed()), self.desired())
        decision = decide(seen, self.memory, self.now)
        self.memory = decision.memory
        self.phases = {name: one.phase for name, one in decision.reported.items()}
        if (action := decision.action) is not None:
            self.change(action.verb, action.address, action.member, action.target)

    def change(self, verb: Verb, address: str, member: int, target: int) -> None:
        match verb:
            case Verb.ADD:
                self.members[self.next_id] = (address, True, False)
                self.next_id += 1
            case Verb.PROMOTE if self.runs(member):
                self.members[member] = (address, False, True)
            case Verb.MOVE_LEADER:
                self.leader = target
            case Verb.REMOVE:
                assert member != self.leader or len(self.voters()) == 1
                del self.members[member]
        assert self.voters(), "the last member was removed"

    def own(self, address: str) -> None:
        if not self.has_quorum():
            return
        seat = self.seats[address]
        mine = next((m for m, (at, _, _) in self.members.items() if at == address), None)
        data = etcd_local.Data() if seat.disk is None else etcd_local.Data(seat.disk, 7, anything=True)
        seen = etcd_local.Seen(
            api=True,
            cluster=7,
            ids=frozenset(self.members),
            mine=None if mine is None else etcd_local.Listed(mine, self.members[mine][2]),
            data=data,
            manifests=() if seat.manifest is None else (etcd_local.Manifest(seat.manifest),),
            running=seat.manifest is not None,
            pod=seat.manifest is not None,
            certificates=True,
        )
        decision = etcd_local.decide(seen, seat.memory, self.now)
        seat.memory = decision.memory
        match decision.action:
            case etcd_local.Action.STOP:
                seat.manifest = None
            case etcd_local.Action.MOVE_ASIDE:
                seat.disk = None
            case etcd_local.Action.START if mine is not None:
                assert mine not in self.ran or seat.disk == mine, "it has forgotten what it acknowledged"
                seat.manifest, seat.made_from = mine, NEW
        if address == SECOND and mine is not None and self.members[mine][1] and not self.works:
            self.failed = self.failed or seat.manifest is not None

    def kubelet(self) -> None:
        """A member that starts for the first time publishes its name."""
        for member, (address, learner, _) in list(self.members.items()):
            seat = self.seats[address]
            if self.power and seat.manifest == member and (seat.made_from == OLD or self.works):
                seat.disk = member
                self.ran.add(member)
                self.members[member] = (address, learner, True)


STEPS = st.sampled_from(["membership", "first", "second", "kubelet", "killed", "cut", "start", "later"])


@settings(max_examples=300, deadline=None)
@given(st.booleans(), st.lists(STEPS, max_size=80))
def test_rules_1_and_3_cut_anywhere_there_is_always_a_member_with_all_data_and_it_converges(
    works: bool, steps: list[str]
) -> None:
    """Wherever the agent is killed or the power fails, there is a quorum whenever there is power; and in the end there
    is one member on its own ports, with the new template if that works."""
    node = Node(works)
    calm = ["start", "membership", "first", "second", "kubelet", "later"] * 60
    for step in [*steps, *calm]:
        node.now += 1
        match step:
            case "membership":
                node.membership()
            case "first" | "second":
                node.own(FIRST if step == "first" else SECOND)
            case "kubelet":
                node.kubelet()
            case "killed":
                node.memory = Memory()
                for seat in node.seats.values():
                    seat.memory = etcd_local.Memory()
            case "cut" | "start":
                node.power = step == "start"
            case "later":
                node.now += LONGEST_NOTICE
        if node.power:
            assert node.has_quorum(), (step, node)
    assert settled(node.listed(), node.desired())
    assert [address for address, _, _ in node.members.values()] == [FIRST]
    assert node.seats[FIRST].made_from == (NEW if works else OLD)
    assert node.seats[SECOND] == Seat(None, None, node.seats[SECOND].made_from, node.seats[SECOND].memory)
