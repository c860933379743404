"""All timeouts in one table, and the rules that relate these numbers to each other.

Contract: whatever waits for an answer takes the number from here. Seconds. A rule says in words what must be less than
what, and names both; `tests/unit/model/test_patience.py` holds the table to all of them. For people: docs/timeouts.md.

The principle: refused, reset or unreachable is down at once; only slow answers get patience. A machine may be twenty
times slower than usual (emulated, or short of CPU) and everything must still make progress: a client that gives up
before the other side could answer starts over forever.

Not here: how often something is checked, and how long something must have been healthy before it counts. These belong
to the decision that they are part of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# --- a load balancer and its servers -------------------------------------------------------------------------------

PREFERRED_CHECK: Final = 0.8
"""Between two readiness checks of an API server, and for the TCP and TLS handshakes of one. A server that fails one
gets no new connections while another one passes: a preference, no verdict."""
PREFERRED_ANSWER: Final = 1.0
"""For the answer to such a check."""
SLOWEST_ANSWER: Final = 3.2
"""Slowest answer of a live API server to a load balancer's check: TCP, TLS and the answer. A check costs both
sides 2 to 5 ms; twenty times slower, with ten others at the same time, that is a second."""
LOOK_AGAIN: Final = 0.3
"""Between a failed check and the next one."""
LOOKS_BEFORE_DEAD: Final = 2
DEAD: Final = LOOKS_BEFORE_DEAD * SLOWEST_ANSWER + (LOOKS_BEFORE_DEAD - 1) * LOOK_AGAIN
"""Without any answer for so long, a server that accepts connections counts as dead, and its sessions are cut."""
CUT: Final = SLOWEST_ANSWER + DEAD
"""The latest time for that, since the first of these checks may only just have been answered."""
REFUSED: Final = 1.2
"""An API server that has refused connections or been unreachable for so long counts as down even if none is ready: two
checks. The sessions with an unreachable one are cut then; a short failure of the node's own link is tolerated."""
DRAINED: Final = 390.0
"""The sessions with an API server that has refused connections for so long are cut. A refusal comes from a live kernel,
which has ended the sessions of a process that is gone; a server that closed its listener to stop may still answer
earlier requests. Sessions that are left after that belong to a host that lost power for a moment and has forgotten
them."""
UNANSWERED: Final = 4.0
"""A server that has not answered attempts to connect for so long (not even with a refusal) is dead: its host has lost
power or network. Three checks, since SYNs get lost."""
HOLD: Final = 8.0
"""How long a new connection is held until the first API server has been found since the load balancer started."""
SECOND_BEST: Final = DEAD
"""If a server has been alive for so long and none is ready, connections go to it: nothing waits for a better one."""
PASSED_OVER: Final = 2 * PREFERRED_CHECK
"""Until all load balancers have noticed that a server is not ready."""
MEMBER_ANSWER: Final = 2.0
"""The slowest answer of a live etcd member to a check: it asks the quorum."""
LOOKS_BEFORE_DEAD_MEMBER: Final = 5
DEAD_MEMBER: Final = LOOKS_BEFORE_DEAD_MEMBER * MEMBER_ANSWER + (LOOKS_BEFORE_DEAD_MEMBER - 1) * LOOK_AGAIN
"""While a leader is elected, no member has a quorum; cutting every session then would turn a pause into an outage."""
HOLD_FOR_ETCD: Final = 15.0
LUA_RUN: Final = 30.0
"""CPU time for all checks of one held connection (`tune.lua.session-timeout`; a slow machine reaches HAProxy's default
of 4 s: then the hold ends, and the connection with it)."""
UNACKNOWLEDGED: Final = 15.0
"""Data that a server's host does not acknowledge ends the session (`tcp-ut`)."""

# --- clients -------------------------------------------------------------------------------------------------------

CONNECT: Final = 2.0
"""For a TCP handshake, which the kernel of the other side does: slow programs do not delay it. Then the next server is
tried."""
SECURE: Final = 10.0
"""For a TLS handshake, as in client-go: the program on the other side does it, and a load balancer that holds the
connection delays it."""
REQUEST: Final = 30.0
"""For one request with all its attempts."""
HANDSHAKES: Final = CONNECT + SECURE
HEALTH: Final = 15.0
"""For an API to answer that it is ready, including handshakes and hold."""
HEAD_START: Final = 1.5
"""For the server that the kubeconfig names to answer, before the others are asked as well."""
RENEWAL: Final = 5.0
"""For one attempt to renew a lease: as in client-go, half of what there is until the lease is lost."""
LEASE: Final = 15
RENEW_DEADLINE: Final = 10.0
LEASE_RETRY: Final = 2.0
"""client-go's LeaseDuration, RenewDeadline and RetryPeriod."""
LEVEL_3_RETRY: Final = 0.8
"""client-go waits up to 2.2 times this before it tries for a lease again: 2 s would mean gaps of 4.4 s."""
WATCH: Final = 80
"""Length that our watches ask for: the end is a sign of life. API servers send bookmarks once a minute, but only if
something has changed."""
WATCH_IDLE: Final = 90.0
"""Without a line before a watch counts as dead."""
CLIENT_GO_SECURE: Final = 10.0
"""Not ours: client-go's TLSHandshakeTimeout (kubelets, controllers, kubectl)."""
GRPC_CONNECT: Final = 20.0
"""Not ours: gRPC's MinConnectTimeout, for an attempt to connect (API servers to etcd)."""

# --- observations: no answer in time means unknown, and is asked again ------------------------------------------------

OWN_PORT: Final = SLOWEST_ANSWER
"""The node agent's health check, at a port of its node. As patient as a load balancer's."""
PLAIN_PORT: Final = 2.0
"""The same in plain HTTP, of the load balancer on the node: no TLS, no disk, no other process involved."""
LEASE_LOOK: Final = 5.0
"""A last check before a standby is activated. Runs beside the node agent's reconciles: the other slots do not wait."""
RUNTIME_LOOK: Final = 2.0
"""A question to the container runtime in the node agent's reconcile; the other slots wait meanwhile."""
RUNTIME: Final = 5.0
"""For the container runtime elsewhere: a busy containerd answers in milliseconds."""
OTHER_CLOCK: Final = 5.0
"""For another control node to report its time."""
MEMBER_LOOK: Final = 5.0
"""For a list or the status of a member of etcd."""
MEMBER_CHANGE: Final = 15.0
"""For a change of membership: it waits for a majority of the disks."""
MEMBER_UPKEEP: Final = 120.0
"""For a defragmentation, a compaction, or a hash of all keys by an agent. A member that is busy for longer is restarted
by its kubelet (12 failed probes, one every 10 s)."""
CONTROL_NODE: Final = 6.0
"""For an API server on another node to answer that it serves, before a control node is removed."""

# --- kubelets' probes ----------------------------------------------------------------------------------------------

PROBE: Final = 15
"""Timeout of a control plane probe: kubeadm's."""
ADDON_PROBE: Final = 5
"""Timeout of an add-on's probe, in plain HTTP: kubeadm's for CoreDNS."""
KUBEADM_PROBE: Final = 15
"""Not ours."""
STARTS: Final = 240
"""For a control plane component to answer after its start, until when it refuses connections: kubeadm's."""
SLOW_ROLLOUT: Final = 2 * STARTS
"""A new revision gets at least twice the start time of the last good one, and this at most."""

# --- a server that stops --------------------------------------------------------------------------------------------

HAND_OVER: Final = 45.0
"""The preStop hook of a hosted API server waits for the standby to serve."""
SLOW_HAND_OVER: Final = HAND_OVER + STARTS
"""The same while nothing else serves and the standby's process runs: it is starting, maybe slowly, until
its kubelet ends a start that takes longer than STARTS."""
HOSTED_DRAIN: Final = 15
"""A hosted server keeps serving for this long after SIGTERM while it reports not ready: three times what the
standby needs to start (5 s), so that a bare `kubectl set image` on one node loses no request."""
STANDBY_DRAIN: Final = 3
"""The standby goes only when the hosted one answers, so this covers no more than the load balancers' checks."""
REQUESTS_END: Final = 60
"""Time after its drain for requests in flight: upstream's; the server exits by itself after that."""
GOING: Final = SLOW_HAND_OVER + HOSTED_DRAIN + REQUESTS_END
GRACE: Final = 365
"""The kubelet kills it after that, the hook included. A server without requests in flight exits long before."""
PROBED_GRACE: Final = HOSTED_DRAIN + REQUESTS_END
"""The same for a server that its kubelet stops because it fails its probes: nothing waits for its standby, and a
hanging server ignores SIGTERM."""

# --- the node agent's lock -----------------------------------------------------------------------------------------

BEAT: Final = 5.0
"""Between two heartbeats of the active agent."""
HANG: Final = 60.0
"""Without a heartbeat for so long, the agent counts as hung and is stopped."""
LONGEST_PASS: Final = 180.0

# --- waits of a command --------------------------------------------------------------------------------------------

STILL: Final = 30.0
"""A wait ends at its deadline, unless there was progress within this time: then it continues."""
STEP: Final = STARTS + 10.0
"""The same for components that start one after the other: while one starts, no other progress is visible."""
CEILING: Final = 5
"""The most that a wait may last, as a multiple of its deadline: a machine at a fifth of the usual speed."""
API_STARTS: Final = 180.0
PIVOT: Final = 240.0
PROMOTION: Final = 240.0
WORKLOADS: Final = 240.0
VERDICT: Final = 300.0
"""For the operator to judge what is available, before `up` ends without its word: 40 s where all is well, the limit of
90 s where it is not, and longer where starts are slow."""
ON_WORKERS: Final = 120.0
"""An add-on that got no further for so long, and lacks pods on workers only, is not waited for."""
STANDBY_SERVES: Final = 120.0
HOSTED_ENDS: Final = 420.0
JOINS: Final = 120.0
"""For a joining node to register, and again for its certificate."""
REPORTED: Final = 10.0
"""For the operator's actions to appear in the status of the ControlPlane: it writes that in the same reconcile."""
WRITTEN: Final = 60.0
"""For writes that are retried until a starting API accepts them."""
EXTERNAL_ETCD: Final = 15.0
ROUNDS_OFF: Final = 60.0
"""What a phase gets beyond its longest wait."""


def most(*waits: float) -> float:
    """For a phase with these waits, one after the other: then it is aborted, whatever its progress."""
    return CEILING * sum(waits) + ROUNDS_OFF


@dataclass(frozen=True, slots=True)
class Rule:
    """`lesser` and `greater`: names of the table."""

    words: str
    lesser: str
    greater: str


RULES: Final = (
    Rule("a preference is quicker than a verdict", "PREFERRED_CHECK", "SLOWEST_ANSWER"),
    Rule("a server is declared dead later than a live one's slowest answer comes", "SLOWEST_ANSWER", "DEAD"),
    Rule("so is a member of etcd", "MEMBER_ANSWER", "DEAD_MEMBER"),
    Rule("refused or unreachable is down sooner than slow", "REFUSED", "UNANSWERED"),
    Rule("who does not answer attempts to connect is dead sooner than who accepts and is silent", "UNANSWERED", "DEAD"),
    Rule("a connection is held longer than it takes to declare a server dead", "DEAD", "HOLD"),
    Rule("so is one to etcd", "DEAD_MEMBER", "HOLD_FOR_ETCD"),
    Rule("a connection may be given to the second best before its hold ends", "SECOND_BEST", "HOLD"),
    Rule("a hold does not end since HAProxy ends its action", "HOLD_FOR_ETCD", "LUA_RUN"),
    Rule("our clients wait longer than the hold", "HOLD", "SECURE"),
    Rule("kubelets and controllers wait longer than the hold", "HOLD", "CLIENT_GO_SECURE"),
    Rule("API servers wait for etcd longer than the hold", "HOLD_FOR_ETCD", "GRPC_CONNECT"),
    Rule("a client is still there when a server is declared dead, and comes elsewhere", "CUT", "SECURE"),
    Rule("the next server is tried long before a slow one is given up", "CONNECT", "SECURE"),
    Rule("a question for health outlasts the handshake of a connection that is held", "HANDSHAKES", "HEALTH"),
    Rule("a request has time for its handshakes, and then for its answer", "HEALTH", "REQUEST"),
    Rule("a session with a host that is gone ends before its clients' requests do", "UNACKNOWLEDGED", "REQUEST"),
    Rule("the sessions of a dead server are cut before who asks by them gives up", "CUT", "REQUEST"),
    Rule("who leads tries twice before it has lost its lease", "RENEWAL", "RENEW_DEADLINE"),
    Rule("who leads knows that its lease is lost before another one takes it", "RENEW_DEADLINE", "LEASE"),
    Rule("a lease is tried for again before it is lost", "LEASE_RETRY", "RENEWAL"),
    Rule("a watch ends by itself before it counts as dead", "WATCH", "WATCH_IDLE"),
    Rule("the node's own port is judged dead no sooner than it could answer", "OWN_PORT", "DEAD"),
    Rule("an API server of another node has longer than its slowest answer", "SLOWEST_ANSWER", "CONTROL_NODE"),
    Rule("so has one that is asked for a lease again", "SLOWEST_ANSWER", "LEASE_LOOK"),
    Rule("and one that is asked what time it is", "SLOWEST_ANSWER", "OTHER_CLOCK"),
    Rule("and a member of etcd that is asked for list or status", "SLOWEST_ANSWER", "MEMBER_LOOK"),
    Rule("upkeep of a member outlasts its other answers", "MEMBER_CHANGE", "MEMBER_UPKEEP"),
    Rule("and ends before the reconcile that waits for it", "MEMBER_UPKEEP", "LONGEST_PASS"),
    Rule("a server drains for longer than it takes to be passed over", "PASSED_OVER", "STANDBY_DRAIN"),
    Rule("so does a hosted one, whose standby begins meanwhile", "STANDBY_DRAIN", "HOSTED_DRAIN"),
    Rule("a rollout where starts are slow is judged later than a kubelet gives one up", "STARTS", "SLOW_ROLLOUT"),
    Rule("a standby that starts is waited for until its kubelet gives it up", "STARTS", "SLOW_HAND_OVER"),
    Rule("one of which nothing runs is given up sooner", "HAND_OVER", "STARTS"),
    Rule("a server is not killed before it has handed over, drained and answered what it has", "GOING", "GRACE"),
    Rule("the sessions of one that refuses are cut no sooner than it would have been killed", "GRACE", "DRAINED"),
    Rule("nor one that fails its probes before it has drained", "HOSTED_DRAIN", "PROBED_GRACE"),
    Rule("whoever waits for a hosted pod to end waits until its kubelet has killed it", "GRACE", "HOSTED_ENDS"),
    Rule("who leads level 3 tries often before its lease is lost", "LEVEL_3_RETRY", "RENEW_DEADLINE"),
    Rule("a probe has longer than a server's slowest answer", "SLOWEST_ANSWER", "PROBE"),
    Rule("so has one of an add-on", "SLOWEST_ANSWER", "ADDON_PROBE"),
    Rule("an agent beats often before it counts as hung", "BEAT", "HANG"),
    Rule("a wait that makes progress goes on for longer than a handshake takes", "SECURE", "STILL"),
    Rule("and where components start, for longer than one of them may take", "STARTS", "STEP"),
    Rule("what only workers lack holds up no wait until its deadline", "ON_WORKERS", "WORKLOADS"),
    Rule("an operator's verdict is waited for longer than a start that it judges may take", "STARTS", "VERDICT"),
    Rule("what an operator has done is reported before a wait counts as still", "REPORTED", "STILL"),
    Rule("what is written again and again is tried more than once", "REQUEST", "WRITTEN"),
    Rule("a command's wait is not given up between two attempts of a client", "REQUEST", "API_STARTS"),
)
"""All are strict inequalities."""


def broken(numbers: Mapping[str, float]) -> list[str]:
    """The rules that a table with these numbers violates."""
    return [rule.words for rule in RULES if not numbers[rule.lesser] < numbers[rule.greater]]
