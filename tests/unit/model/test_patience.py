"""The table of how long anybody waits keeps its own rules, and nobody else has such a number."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autarky
from autarky.agents.node import end_hung, lock
from autarky.agents.operator import loop
from autarky.control.control_nodes.decide import serving as seen_to_serve
from autarky.control.load_balancer.manifests import haproxy as nllb
from autarky.kube.elector import Elector
from autarky.model import patience
from autarky.phases.finish import AwaitWorkloads
from autarky.phases.pivot import Pivot
from autarky.phases.promote import MakeControlNodes
from autarky.phases.start import StartControlPlane

SOURCES = Path(autarky.__file__).parent
TABLE = {name: value for name, value in vars(patience).items() if name.isupper() and isinstance(value, int | float)}


@pytest.mark.parametrize("rule", patience.RULES, ids=lambda rule: rule.words)
def test_every_rule_holds(rule: patience.Rule) -> None:
    assert TABLE[rule.lesser] < TABLE[rule.greater]


def test_the_complete_table_breaks_no_rule() -> None:
    assert patience.broken(TABLE) == []


@given(st.sampled_from(patience.RULES))
def test_a_number_that_breaks_a_rule_is_found_with_the_rules_words(rule: patience.Rule) -> None:
    assert rule.words in patience.broken({**TABLE, rule.lesser: TABLE[rule.greater]})


def test_the_rules_of_the_chain_are_there() -> None:
    """A client waits longer than the hold, the hold longer than declaring a server dead, that longer than a live
    server's slowest answer; for the API and for etcd."""
    pairs = {(rule.lesser, rule.greater) for rule in patience.RULES}
    assert {("SLOWEST_ANSWER", "DEAD"), ("DEAD", "HOLD"), ("HOLD", "SECURE"), ("HOLD", "CLIENT_GO_SECURE")} <= pairs
    assert {("MEMBER_ANSWER", "DEAD_MEMBER"), ("DEAD_MEMBER", "HOLD_FOR_ETCD")} <= pairs
    assert ("HOLD_FOR_ETCD", "GRPC_CONNECT") in pairs
    assert patience.PROBE == patience.KUBEADM_PROBE


def test_each_number_of_the_load_balancer_is_bound_by_a_rule() -> None:
    bound = {name for rule in patience.RULES for name in (rule.lesser, rule.greater)}
    source = Path(patience.__file__).read_text()
    section = source.partition("# --- a load balancer")[2].partition("# --- clients")[0]
    free = set(re.findall(r"^([A-Z_]+): Final", section, re.MULTILINE)) - bound
    # The first is smaller than anything; the others are factors of DEAD.
    assert free == {"PREFERRED_ANSWER", "LOOK_AGAIN", "LOOKS_BEFORE_DEAD", "LOOKS_BEFORE_DEAD_MEMBER"}
    assert patience.PREFERRED_ANSWER < patience.SLOWEST_ANSWER


def test_a_server_that_is_cut_off_is_dead_no_later_than_before_there_was_a_table() -> None:
    """A look began at most 2 s after the one before it, and three had 2 s each: 8.6 s; refused, 2.6 s."""
    assert 2 * patience.PREFERRED_CHECK + patience.UNANSWERED + patience.LOOK_AGAIN < 8.6
    assert patience.PREFERRED_CHECK + patience.REFUSED + patience.LOOK_AGAIN < 2.6


def test_a_server_has_after_hand_over_and_drain_what_upstream_gives_to_requests() -> None:
    assert patience.GRACE - patience.HAND_OVER - patience.HOSTED_DRAIN > patience.REQUESTS_END


def test_rules_contradict_each_other_nowhere() -> None:
    pairs = {(rule.lesser, rule.greater) for rule in patience.RULES}
    assert len(pairs) == len(patience.RULES)
    assert len({rule.words for rule in patience.RULES}) == len(patience.RULES)
    assert not [one for one, other in combinations(sorted(pairs), 2) if one == other[::-1]]


# --- whoever does not import the table, and other tables --------------------------------------------------------------


def test_the_lock_has_the_tables_numbers_though_it_imports_nothing() -> None:
    """Whoever waits for it is a process that stays small."""
    assert (lock.HANG_SECONDS, lock.BEAT_SECONDS) == (patience.HANG, patience.BEAT)
    assert end_hung.STOP_SECONDS < end_hung.LONGEST_SECONDS < patience.HANG
    assert loop.HUNG_SECONDS == patience.LONGEST_PASS


def test_a_look_at_a_control_node_that_is_about_to_go_ends_before_the_one_before_it_is_too_old() -> None:
    assert patience.CONTROL_NODE < seen_to_serve.LATELY_SECONDS


def test_an_elector_is_as_patient_as_the_table() -> None:
    fields = {name: field.default for name, field in Elector.__dataclass_fields__.items()}
    assert fields["lease_seconds"] == patience.LEASE
    assert fields["renew_seconds"] == patience.RENEW_DEADLINE
    assert fields["retry_seconds"] == patience.LEASE_RETRY


@pytest.mark.parametrize(
    ("phase", "wait"),
    [
        (StartControlPlane(), patience.API_STARTS),
        (Pivot(), patience.PIVOT),
        (MakeControlNodes(), patience.PROMOTION),
        (AwaitWorkloads(), patience.WORKLOADS),
    ],
)
def test_a_phase_is_broken_off_later_than_its_wait_gives_up(phase: Pivot, wait: float) -> None:
    assert phase.timeout > patience.CEILING * wait


# --- the document ---------------------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[3] / "docs/timeouts.md"


def test_the_document_has_every_number_and_every_rule() -> None:
    text = DOCUMENT.read_text()
    reported = {
        name: float(value) for name, value in re.findall(r"^\| `([A-Z_0-9]+)` \| ([\d.]+) \|", text, re.MULTILINE)
    }
    assert reported == TABLE
    rules = re.findall(r"^- (.+): `([A-Z_0-9]+)` < `([A-Z_0-9]+)`$", text, re.MULTILINE)
    assert [patience.Rule(*rule) for rule in rules] == list(patience.RULES)


# --- nobody else ----------------------------------------------------------------------------------------------------

_PATIENT = {"poll_until", "https_probe", "http_probe", "healthy", "KubeClient", "EtcdClient", "Endpoints"}
_TIMES = {"timeout", "change_timeout", "still", "idle_timeout"}
_TALK_TO_SERVERS = (
    *("agents", "cli", "control", "cri", "doctor", "engine", "etcd"),
    *("kube", "net", "phases", "render", "status", "workflows"),
)


def _numbers(source: str) -> list[str]:
    """What waits for so many seconds as are written there, with its line."""
    return [
        f"{node.lineno}: {_name(node)} {value.value!r}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for value in _given(node)
        if isinstance(value, ast.Constant) and value.value is not None
    ]


def _given(call: ast.Call) -> list[ast.expr]:
    if _name(call) == "timeout":  # of asyncio
        return call.args[:1]
    return [word.value for word in call.keywords if _name(call) in _PATIENT and word.arg in _TIMES]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_whoever_waits_for_a_server_takes_its_time_from_the_table() -> None:
    """Not so who waits for a program on this machine, or by ssh."""
    assert all((SOURCES / part).is_dir() for part in _TALK_TO_SERVERS)
    paths = [path for part in _TALK_TO_SERVERS for path in sorted((SOURCES / part).rglob("*.py"))]
    found = {str(path.relative_to(SOURCES)): _numbers(path.read_text()) for path in paths}
    assert {path: numbers for path, numbers in found.items() if numbers} == {}
    assert len(paths) > 250


@pytest.mark.parametrize(
    "source",
    [
        "poll_until(what, look, timeout=60)",
        "kube.healthy('/x', timeout=2.0)",
        "asyncio.timeout(5)",
        "a.http_probe(timeout=5)",
    ],
)
def test_such_a_number_is_found(source: str) -> None:
    assert len(_numbers(source)) == 1
    assert _numbers(re.sub(r"\d+(\.\d)?", "patience.IT", source)) == []


def test_the_load_balancer_has_no_times_of_its_own() -> None:
    """But how often it looks for one that is down, and how long a watch may be silent."""
    source = Path(nllb.__file__).read_text()
    written = re.findall(r"\b(?:\w*inter|tcp-ut|timeout \w+|inspect-delay|lua\.hold \w+) \d+\w*", source)
    assert set(written) == {"downinter 1s", "timeout client 1h", "timeout server 1h"}
