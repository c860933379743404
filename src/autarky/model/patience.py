"""How long anybody waits for anybody else, in one table, and the rules that bind these numbers to each other.

Contract: whoever waits for an answer takes the number from here. Seconds. A rule says in words what must be less than
what, and names both; `tests/unit/model/test_patience.py` holds the table to all of them. For people: docs/timeouts.md.

What binds everything: refused, reset or unreachable is down at once; only what is slow gets patience. A machine may be
twenty times slower than usual (an emulated one, a starved one) and everything still goes on: then whoever gives up
before the other side could answer begins anew for ever.

Not here: how often something is looked at, and how long something must have been well before it counts. These belong
to the decision that they are part of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# --- a load balancer and its servers -------------------------------------------------------------------------------

PREFERRED_CHECK: Final = 0.8
"""Between two looks whether an API server is ready, and for TCP and TLS handshake of one. Who fails one gets no new
connections while another one passes: a preference, no verdict. Measured: a server that hangs or is cut off leaves
within 1.6 s."""
PREFERRED_ANSWER: Final = 1.0
"""For the answer to such a look."""
SLOWEST_ANSWER: Final = 3.2
"""Of an API server that lives, to a look of a load balancer: TCP, TLS and the answer. A TLS handshake costs the two
sides 5 ms; twenty times slower, with ten others at the same time, that is a second."""
LOOK_AGAIN: Final = 0.3
"""Between a look that failed and the next one."""
LOOKS_BEFORE_DEAD: Final = 2
DEAD: Final = LOOKS_BEFORE_DEAD * SLOWEST_ANSWER + (LOOKS_BEFORE_DEAD - 1) * LOOK_AGAIN
"""Without any answer: then a server that accepts connections is dead, and its sessions are cut."""
CUT: Final = SLOWEST_ANSWER + DEAD
"""That at the latest, since the first of these looks may only just have been answered."""
REFUSED: Final = 1.2
"""For so long an API server has refused connections, or is said to be out of reach, when it counts as down even where
none is ready: two looks. The sessions with one that is out of reach are cut then; a link of one's own that is away for
a moment is borne with."""
DRAINED: Final = 390.0
"""For so long an API server has refused connections when the sessions with it are cut. A refusal is the word of a
kernel that lives. It has ended the sessions of a process that is gone; one that closed its listener to end may still
answer what it was asked before. What is left after that is of a host that was without power for a moment, and has
forgotten."""
UNANSWERED: Final = 4.0
"""For so long nobody has answered attempts to connect (nothing comes back, not even a refusal) when a server is dead:
its host has lost power or network. Three looks: SYNs get lost."""
HOLD: Final = 8.0
"""A new connection waits for the first API server since the load balancer began."""
SECOND_BEST: Final = DEAD
"""When one has lived for so long and none is ready, it is as good as it gets: nobody waits for better any more."""
PASSED_OVER: Final = 2 * PREFERRED_CHECK
"""Until all load balancers have seen that a server is not ready."""
MEMBER_ANSWER: Final = 2.0
"""Of a live member of etcd to the same: it asks the quorum."""
LOOKS_BEFORE_DEAD_MEMBER: Final = 5
DEAD_MEMBER: Final = LOOKS_BEFORE_DEAD_MEMBER * MEMBER_ANSWER + (LOOKS_BEFORE_DEAD_MEMBER - 1) * LOOK_AGAIN
"""While a leader is elected no member has a quorum, and to cut every session then would make a pause an outage."""
HOLD_FOR_ETCD: Final = 15.0
LUA_RUN: Final = 30.0
"""Of processor time, for all looks of one held connection (`tune.lua.session-timeout`, 4 s of itself, which a slow
machine reaches: the hold ends, and the connection with it)."""
UNACKNOWLEDGED: Final = 15.0
"""Data that a server's host does not acknowledge ends the session (`tcp-ut`)."""

# --- clients -------------------------------------------------------------------------------------------------------

CONNECT: Final = 2.0
"""For a TCP handshake, which the kernel of the other side makes: slow programs do not delay it. Then the next server
is tried."""
SECURE: Final = 10.0
"""For a TLS handshake, as in client-go: the program on the other side makes it, and a load balancer that holds the
connection makes it wait."""
REQUEST: Final = 30.0
"""For one request with all its attempts."""
HANDSHAKES: Final = CONNECT + SECURE
HEALTH: Final = 15.0
"""For an API to say that it is ready, handshakes and hold included."""
HEAD_START: Final = 1.5
"""For the server that the kubeconfig names to say that it is there, before the others are asked as well."""
RENEWAL: Final = 5.0
"""For one attempt to renew a lease: as in client-go, half of what there is until the lease is lost."""
LEASE: Final = 15
RENEW_DEADLINE: Final = 10.0
LEASE_RETRY: Final = 2.0
"""client-go's LeaseDuration, RenewDeadline and RetryPeriod."""
LEVEL_3_RETRY: Final = 0.8
"""client-go waits up to 2.2 times this before it tries for a lease again: 2 s would mean gaps of 4.4 s."""
WATCH: Final = 80
"""For which a watch of ours asks to go on: its end is a sign of life. API servers send bookmarks once a minute, but
only about what has changed."""
WATCH_IDLE: Final = 90.0
"""Without a line before a watch counts as dead."""
CLIENT_GO_SECURE: Final = 10.0
"""Others' number: client-go's TLSHandshakeTimeout (kubelets, controllers, kubectl)."""
GRPC_CONNECT: Final = 20.0
"""Others' number: gRPC's MinConnectTimeout, for an attempt to connect (API servers to etcd)."""

# --- looks: what is not heard in time is not known, and asked again ------------------------------------------------

OWN_PORT: Final = SLOWEST_ANSWER
"""The node agent's, at a port of its node. As patient as a load balancer's."""
PLAIN_PORT: Final = 2.0
"""The same in plain HTTP, of the load balancer on the node: no TLS, no disk, nobody to ask."""
LEASE_LOOK: Final = 5.0
"""Once more before a standby is activated. Beside the node agent's rounds: the other slots do not wait meanwhile."""
RUNTIME_LOOK: Final = 2.0
"""At the container runtime, in the node agent's round, and the other slots wait meanwhile."""
RUNTIME: Final = 5.0
"""For the container runtime elsewhere: a busy containerd answers in milliseconds."""
OTHER_CLOCK: Final = 5.0
"""For another control node to say what time it is."""
MEMBER_LOOK: Final = 5.0
"""For a list or the status of a member of etcd."""
MEMBER_CHANGE: Final = 15.0
"""For a change of membership: it waits for a majority of the disks."""
CONTROL_NODE: Final = 6.0
"""For an API server on another node to say that it serves, while a control node is about to go."""

# --- kubelets' probes ----------------------------------------------------------------------------------------------

PROBE: Final = 15
"""Timeout of a probe of the control plane: kubeadm's."""
ADDON_PROBE: Final = 5
"""Of what is no control plane, in plain HTTP: kubeadm's for CoreDNS."""
KUBEADM_PROBE: Final = 15
"""Others' number."""
STARTS: Final = 240
"""For a control plane component to answer after its start, when it refuses connections until then: kubeadm's."""
SLOW_ROLLOUT: Final = 2 * STARTS
"""A new revision has at least twice what the last good one took to start, and that at the most."""

# --- a server that goes --------------------------------------------------------------------------------------------

HAND_OVER: Final = 45.0
"""The preStop hook of a hosted API server waits for the standby to serve."""
SLOW_HAND_OVER: Final = HAND_OVER + STARTS
"""And so long while nobody else serves and the standby's process runs: then it is on its way, which takes its time on a
slow machine, until its kubelet ends a start that takes longer than STARTS."""
HOSTED_DRAIN: Final = 15
"""A hosted server serves on for this long after SIGTERM while saying not-ready: three times what the standby needs to
start (5 s), so that a bare `kubectl set image` on one node loses nothing."""
STANDBY_DRAIN: Final = 3
"""The standby goes only when the hosted one answers, so this covers no more than the load balancers' checks."""
REQUESTS_END: Final = 60
"""What a server has after its drain for the requests that it has: upstream's, who ends by itself after that."""
GOING: Final = SLOW_HAND_OVER + HOSTED_DRAIN + REQUESTS_END
GRACE: Final = 365
"""The kubelet kills it after that; the hook counts. One that has nothing left to answer ends long before."""
PROBED_GRACE: Final = HOSTED_DRAIN + REQUESTS_END
"""The same of a server that its kubelet ends because it fails its probes: nobody waits for its standby, and one that
hangs heeds no SIGTERM."""

# --- the node agent's lock -----------------------------------------------------------------------------------------

BEAT: Final = 5.0
"""Between two beats of the agent that acts."""
HANG: Final = 60.0
"""Without a beat: it hangs, and is ended."""
LONGEST_ROUND: Final = 180.0

# --- waits of a command --------------------------------------------------------------------------------------------

STILL: Final = 30.0
"""A wait ends at its deadline, unless things have come on so lately: then it goes on."""
STEP: Final = STARTS + 10.0
"""The same where components come one after the other: while one starts, nothing else can be seen to happen."""
CEILING: Final = 5
"""So many times its deadline is the most that a wait may last: a machine that goes on at a fifth of the usual pace."""
API_STARTS: Final = 180.0
PIVOT: Final = 240.0
PROMOTION: Final = 240.0
WORKLOADS: Final = 240.0
STANDBY_SERVES: Final = 120.0
HOSTED_ENDS: Final = 420.0
JOINS: Final = 120.0
"""For a node that joins to be known, and again for its certificate."""
TOLD: Final = 10.0
"""For what the operator has done to be in the status of the ControlPlane: it writes that in the same round."""
WRITTEN: Final = 60.0
"""For what is written again and again until an API that starts takes it."""
EXTERNAL_ETCD: Final = 15.0
ROUNDS_OFF: Final = 60.0
"""What a phase has beyond its longest wait."""


def most(*waits: float) -> float:
    """For a phase that waits for these, one after the other: when it is broken off, whatever it says."""
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
    Rule("a server drains for longer than it takes to be passed over", "PASSED_OVER", "STANDBY_DRAIN"),
    Rule("so does a hosted one, whose standby begins meanwhile", "STANDBY_DRAIN", "HOSTED_DRAIN"),
    Rule("a rollout where starts are slow is judged later than a kubelet gives one up", "STARTS", "SLOW_ROLLOUT"),
    Rule("a standby that starts is waited for until its kubelet gives it up", "STARTS", "SLOW_HAND_OVER"),
    Rule("one of which nothing runs is given up sooner", "HAND_OVER", "STARTS"),
    Rule("a server is not killed before it has handed over, drained and answered what it has", "GOING", "GRACE"),
    Rule("the sessions of one that refuses are cut no sooner than it would have been killed", "GRACE", "DRAINED"),
    Rule("nor one that fails its probes before it has drained", "HOSTED_DRAIN", "PROBED_GRACE"),
    Rule("that which was hosted ends is waited for until its kubelet has killed it", "GRACE", "HOSTED_ENDS"),
    Rule("who leads level 3 tries often before its lease is lost", "LEVEL_3_RETRY", "RENEW_DEADLINE"),
    Rule("a probe has longer than a server's slowest answer", "SLOWEST_ANSWER", "PROBE"),
    Rule("so has one of an add-on", "SLOWEST_ANSWER", "ADDON_PROBE"),
    Rule("an agent beats often before it counts as hung", "BEAT", "HANG"),
    Rule("a wait in which something happens goes on for longer than a handshake takes", "SECURE", "STILL"),
    Rule("and where components start, for longer than one of them may take", "STARTS", "STEP"),
    Rule("what an operator has done is told before a wait counts as still", "TOLD", "STILL"),
    Rule("what is written again and again is tried more than once", "REQUEST", "WRITTEN"),
    Rule("a command's wait is not given up between two attempts of a client", "REQUEST", "API_STARTS"),
)
"""Each strict."""


def broken(numbers: Mapping[str, float]) -> list[str]:
    """The words of the rules that a table with these numbers does not keep."""
    return [rule.words for rule in RULES if not numbers[rule.lesser] < numbers[rule.greater]]
