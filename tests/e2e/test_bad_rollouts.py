"""Everything that can be wrong with a rollout of the control plane, on one node: it goes back, says why, and the
API never stops answering.

Each test begins with a cluster that is settled, and leaves no bad template behind. The limit is 20 s unless a test
says otherwise.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from harness import TestCluster, one_node
from leases import lease_watched
from rollouts import (
    API,
    CONTROLLER_MANAGER,
    NEVER_READY,
    PROXY,
    SCHEDULER,
    SYSTEM,
    adding_flag,
    component,
    condition,
    edit,
    explanations,
    generation,
    goes_back,
    last_good,
    live,
    quiet,
    ready,
    rolled_out,
    set_image,
    set_rollback,
    template,
    undisturbed,
)
from slots import standbys

from autarky.errors import UserError

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900)]
pytestmark += [pytest.mark.needs("v1.37.1")]

LIMIT = 20
NEXT = "v1.37.1"
LONGEST_GAP = 5.0
"""Seconds without a leader when the one that leads is stopped in order."""
STANDBY_LEADS = 30.0
"""Seconds without a leader at most, when what took the place of the one that led never leads."""


@pytest.fixture(scope="module")
def of_module(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-bad-rollouts", **one_node(rollback={"limitSeconds": LIMIT}))
    cluster.up()
    cluster.autarky("payload", "push", NEXT, "--cluster", cluster.name)
    return cluster


@pytest.fixture
def cluster(of_module: TestCluster) -> TestCluster:
    quiet(of_module)
    return of_module


def bad_flag(workload: str) -> str:
    return adding_flag(workload, "--no-such-flag")


def _secret_of_keys(cluster: TestCluster) -> str:
    (volume,) = [one for one in template(cluster, API)["spec"]["volumes"] if one["name"] == "secrets"]
    name: str = volume["secret"]["secretName"]
    return name


def _make_garbage(cluster: TestCluster) -> None:
    """A Secret as that of the API server's keys, with one certificate that is none."""
    secret = json.loads(cluster.kubectl(*SYSTEM, "get", "secret", _secret_of_keys(cluster), "-o", "json"))
    secret["metadata"] = {"name": "garbage", "namespace": "kube-system"}
    secret["data"]["ca.crt"] = base64.b64encode(b"no certificate").decode()
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(secret))


# --- the only API server -------------------------------------------------------------------------------


def test_an_image_that_cannot_be_had_goes_back(cluster: TestCluster) -> None:
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: set_image(cluster, API, "v1.36.99"))
    assert "kube-apiserver:v1.36.99" in back.explanation


def test_a_flag_that_does_not_exist_goes_back(cluster: TestCluster) -> None:
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: edit(cluster, API, bad_flag(API)))
    assert "unknown flag: --no-such-flag" in back.explanation


def test_up_ends_with_an_error_when_what_its_file_wants_goes_back(cluster: TestCluster) -> None:
    bad = TestCluster(cluster.name, {**cluster.spec, "extraArgs": {"kube-apiserver": {"no-such-flag": "1"}}})
    with undisturbed(cluster):
        ended = bad.up(check=False)
        assert ended.status == UserError.exit_code, ended.stderr
        assert "what was applied to DaemonSet kube-apiserver has gone back: kube-apiserver: " in ended.stderr
        cluster.up()
    assert "--no-such-flag=1" not in json.dumps(template(cluster, API))
    assert "up: unchanged" in cluster.up().stderr


def test_an_etcd_that_is_nowhere_goes_back(cluster: TestCluster) -> None:
    """The cluster's etcd is up, so this is the revision's own fault, and the clock runs."""
    script = "s#^\\( *- --etcd-servers=\\).*#\\1https://127.0.0.1:1#\n"
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: edit(cluster, API, script))
    assert "127.0.0.1:1" in back.explanation


def test_a_secret_that_does_not_exist_goes_back(cluster: TestCluster) -> None:
    script = "s#secretName: kube-apiserver-.*#secretName: no-such-secret#\n"
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: edit(cluster, API, script))
    assert 'secret "no-such-secret" not found' in back.explanation


def test_a_secret_whose_certificate_is_garbage_goes_back(cluster: TestCluster) -> None:
    good = _secret_of_keys(cluster)
    _make_garbage(cluster)
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: edit(cluster, API, f"s#secretName: {good}#secretName: garbage#\n"))
    assert "client-ca" in back.explanation or "client CA" in back.explanation


def test_a_deleted_secret_of_the_good_revision_is_restored_when_it_goes_back(cluster: TestCluster) -> None:
    name = _secret_of_keys(cluster)

    def delete_and_edit() -> None:
        cluster.kubectl(*SYSTEM, "delete", "secret", name)
        edit(cluster, API, bad_flag(API))

    with undisturbed(cluster):
        goes_back(cluster, API, delete_and_edit)
    assert cluster.kubectl(*SYSTEM, "get", "secret", name, "-o", "name")


@pytest.mark.parametrize("what", ["image", "flag", "readyz", "certificate"])
def test_with_the_default_limit_of_90_s_the_good_revision_serves_again_within_120_s(
    cluster: TestCluster, what: str
) -> None:
    breaks = {
        "image": lambda: set_image(cluster, API, "v1.36.99"),
        "flag": lambda: edit(cluster, API, bad_flag(API)),
        "readyz": lambda: edit(cluster, API, adding_flag(API, NEVER_READY)),
        "certificate": lambda: edit(cluster, API, f"s#secretName: {_secret_of_keys(cluster)}#secretName: garbage#\n"),
    }
    _make_garbage(cluster)
    set_rollback(cluster, limitSeconds=90)
    with undisturbed(cluster):
        back = goes_back(cluster, API, breaks[what], seconds=200)
    set_rollback(cluster, limitSeconds=LIMIT)
    assert back.ready_seconds <= 120
    assert back.ready_seconds <= back.template_seconds + 30


def test_one_that_ends_some_time_after_each_start_goes_back(cluster: TestCluster) -> None:
    """Ready for half a minute each time, until its kubelet ends it."""
    sooner = "s#failureThreshold: .*#failureThreshold: 3#"
    script = f"/livenessProbe:/,/path:/ {{ {sooner}; s#path: .*#path: /no-such-path# }}\n"
    with undisturbed(cluster):
        back = goes_back(cluster, API, lambda: edit(cluster, API, script), seconds=240)
    assert back.template_seconds > LIMIT, "it is Ready at the limit, and on trial"


def test_a_bad_flag_of_kube_proxy_goes_back(cluster: TestCluster) -> None:
    with undisturbed(cluster):
        back = goes_back(cluster, PROXY, lambda: edit(cluster, PROXY, bad_flag(PROXY)))
    assert "unknown flag: --no-such-flag" in back.explanation


def test_rule_4_a_kube_proxy_of_a_newer_minor_goes_back_at_once(cluster: TestCluster) -> None:
    back = goes_back(cluster, PROXY, lambda: set_image(cluster, PROXY, NEXT))
    assert f"kube-proxy {NEXT} is newer than the oldest API server that runs" in back.explanation
    assert back.template_seconds < LIMIT


# --- level 3: Ready says nothing -----------------------------------------------------------------------


@pytest.mark.parametrize("workload", [CONTROLLER_MANAGER, SCHEDULER])
def test_rule_4_level_3_of_a_newer_minor_goes_back_at_once(cluster: TestCluster, workload: str) -> None:
    with lease_watched(cluster, workload) as renewals:
        back = goes_back(cluster, workload, lambda: set_image(cluster, workload, NEXT))
    assert f"{component(workload)} {NEXT} is newer than the oldest API server that runs" in back.explanation
    assert back.template_seconds < LIMIT
    assert renewals.longest_gap < LONGEST_GAP


def test_rule_4_while_going_back_is_switched_off_the_standby_leads(cluster: TestCluster) -> None:
    """A controller-manager of the next minor would lead; such a scheduler never does."""
    good = template(cluster, SCHEDULER)
    set_rollback(cluster, enabled=False)
    with lease_watched(cluster, SCHEDULER) as renewals:
        set_image(cluster, SCHEDULER, NEXT)
        rolled_out(cluster, SCHEDULER)  # Kubernetes believes it
        cluster.wait("the standby is active", lambda: "standby-kube-scheduler" in standbys(cluster), seconds=60)
        before = len(renewals.stamps)
        cluster.wait("the standby leads", lambda: len(renewals.stamps) > before + 5, seconds=60)
        failed = condition(cluster, "RolloutFailed")
        assert failed["status"] == "True"
        assert "rolling back is switched off" in failed["message"]
        assert template(cluster, SCHEDULER) != good
        back = goes_back(cluster, SCHEDULER, lambda: set_rollback(cluster, enabled=True), good=good)
        quiet(cluster)
    assert renewals.longest_gap < STANDBY_LEADS
    assert f"{NEXT} is newer than the oldest API server" in back.explanation


def test_a_scheduler_whose_image_says_no_version_and_never_leads_goes_back(cluster: TestCluster) -> None:
    named, unnamed = (f"registry.k8s.io/kube-scheduler:{tag}" for tag in (NEXT, "newest"))
    cluster.shell("n1", f"/var/lib/autarky/bin/ctr -n k8s.io images tag --force {named} {unnamed}")
    with lease_watched(cluster, SCHEDULER) as renewals:
        back = goes_back(cluster, SCHEDULER, lambda: set_image(cluster, SCHEDULER, "newest"))
        quiet(cluster)
    # Ready while another leads, not Ready when it should: either is told, and what it lacks.
    assert "within 20 s" in back.explanation
    assert "devicetaintrules" in back.explanation
    assert renewals.longest_gap < STANDBY_LEADS


# --- afterwards ----------------------------------------------------------------------------------------


def test_the_users_next_edit_is_tried(cluster: TestCluster) -> None:
    goes_back(cluster, SCHEDULER, lambda: edit(cluster, SCHEDULER, bad_flag(SCHEDULER)))
    assert "kube-scheduler" in condition(cluster, "RolledBack")["message"]
    told, before = explanations(cluster, SCHEDULER), last_good(cluster, SCHEDULER)
    edit(cluster, SCHEDULER, adding_flag(SCHEDULER, "--v=1"))
    cluster.wait("the next edit is the last good revision", lambda: last_good(cluster, SCHEDULER) != before)
    cluster.wait(
        "that it went back is history", lambda: "kube-scheduler" not in condition(cluster, "RolledBack")["message"]
    )
    assert "--v=1" in template(cluster, SCHEDULER)["spec"]["containers"][0]["command"]
    assert explanations(cluster, SCHEDULER) == told


def test_the_same_again_goes_back_at_once_and_then_later_each_time(cluster: TestCluster) -> None:
    """A GitOps tool applies its bad template over and over: two tools must not fight at full speed."""

    def applied() -> float:
        return goes_back(
            cluster, CONTROLLER_MANAGER, lambda: edit(cluster, CONTROLLER_MANAGER, script)
        ).template_seconds

    script = bad_flag(CONTROLLER_MANAGER)
    with lease_watched(cluster, CONTROLLER_MANAGER) as renewals:
        first, second, third = applied(), applied(), applied()
    assert first >= LIMIT - 1
    assert second < LIMIT / 2
    assert third >= 10 - 2
    assert renewals.longest_gap < LONGEST_GAP


def test_what_went_back_has_its_whole_time_again_when_the_user_asks_for_it(cluster: TestCluster) -> None:
    def applied() -> float:
        return goes_back(cluster, SCHEDULER, lambda: edit(cluster, SCHEDULER, bad_flag(SCHEDULER))).template_seconds

    applied()
    said = _message_of_the_rollback(cluster, SCHEDULER)
    assert "goes back" in said, said
    asked = said.partition("first run `kubectl ")[2].partition("`")[0]
    assert asked, said
    cluster.kubectl(*asked.split())
    cluster.wait("it is forgotten", lambda: "try-again" not in cluster.kubectl(*SYSTEM, "get", SCHEDULER, "-o", "yaml"))
    assert applied() >= LIMIT - 1


def test_an_image_that_was_not_to_be_had_is_tried_again_when_it_is_there(cluster: TestCluster) -> None:
    """A registry that was away says nothing about the template."""
    there, wanted = (f"registry.k8s.io/kube-scheduler:{tag}" for tag in ("v1.36.4", "v1.36.98"))
    goes_back(cluster, SCHEDULER, lambda: set_image(cluster, SCHEDULER, "v1.36.98"))
    assert "nothing of it ever ran: to try it again, apply it again" in _message_of_the_rollback(cluster, SCHEDULER)
    for node in cluster.spec["nodes"]:
        cluster.shell(node["name"], f"/var/lib/autarky/bin/ctr -n k8s.io images tag --force {there} {wanted}")
    told, before = explanations(cluster, SCHEDULER), last_good(cluster, SCHEDULER)
    set_image(cluster, SCHEDULER, "v1.36.98")
    cluster.wait("it is good", lambda: last_good(cluster, SCHEDULER) != before, seconds=90)
    assert template(cluster, SCHEDULER)["spec"]["containers"][0]["image"] == wanted
    assert explanations(cluster, SCHEDULER) == told
    set_image(cluster, SCHEDULER, "v1.36.4")
    quiet(cluster)


def _message_of_the_rollback(cluster: TestCluster, workload: str) -> str:
    """Of this component, in the condition."""
    cluster.wait(
        "the condition says it", lambda: component(workload) in condition(cluster, "RolledBack").get("message", "")
    )
    message: str = condition(cluster, "RolledBack")["message"]
    return message.partition(component(workload))[2]


# --- rule 9 --------------------------------------------------------------------------------------------


@contextmanager
def etcd_stopped(cluster: TestCluster) -> Iterator[None]:
    """etcd hangs: connections to it stay open, and nothing is answered."""
    cluster.shell("n1", "pkill -STOP -x etcd")
    try:
        yield
    finally:
        cluster.shell("n1", "pkill -CONT -x etcd")


def test_rule_9_a_good_rollout_that_is_caught_by_an_etcd_outage_is_not_rolled_back(cluster: TestCluster) -> None:
    told, before = explanations(cluster, API), generation(cluster, API)
    edit(cluster, API, adding_flag(API, "--v=3"))
    cluster.wait("the new pod is there", lambda: _new_pods(cluster) > 0)
    with etcd_stopped(cluster):
        time.sleep(3 * LIMIT)  # what is waited for is that nothing happens
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    cluster.wait("the new revision is Ready", lambda: ready(cluster, API), seconds=120)
    quiet(cluster)
    assert generation(cluster, API) == before + 1
    assert explanations(cluster, API) == told


def test_rule_9_the_clock_of_a_bad_rollout_stands_still_while_etcd_is_down(cluster: TestCluster) -> None:
    good, told = template(cluster, SCHEDULER), len(explanations(cluster, SCHEDULER))
    edit(cluster, SCHEDULER, bad_flag(SCHEDULER))
    with etcd_stopped(cluster):
        time.sleep(2 * LIMIT)
    back_again = time.monotonic()
    cluster.wait("the API answers", cluster.api_answers, seconds=120)
    cluster.wait("the good template is back", lambda: template(cluster, SCHEDULER) == good, seconds=120)
    assert time.monotonic() - back_again > LIMIT / 2
    quiet(cluster)
    assert len(explanations(cluster, SCHEDULER)) == told + 1


def _new_pods(cluster: TestCluster) -> int:
    return int(live(cluster, API)["status"].get("updatedNumberScheduled", 0))
