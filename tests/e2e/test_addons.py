"""Add-ons, on one node: the user's own from a directory beside the cluster file, a Corefile that is edited, and bad
rollouts of CoreDNS and flannel, which go back.

The tests of this module build on each other, in order.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import Ended, TestCluster, one_node
from rollouts import (
    adding_flag,
    condition,
    edit,
    goes_back,
    judged,
    judged_after,
    last_good,
    ready_on,
    set_image,
)
from slots import SYSTEM

from autarky.render.values import immutable_config_map

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.rotation, pytest.mark.timeout(900)]

COREFILE_SECONDS = 240
"""Until a kubelet has brought an edit into the pods (up to 90 s), and CoreDNS has looked (30 s and more)."""
LOOK_UP = """\
import socket, sys
try:
    print(socket.gethostbyname(sys.argv[1]))
except OSError as error:
    print(f"no answer: {error}")
"""


LOOK_UP_EVERY_SECOND = """\
import json, os, socket, sys, time
name, file = sys.argv[1:]
if os.fork():
    sys.exit()
os.setsid()
for descriptor in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
seen = {"answers": 0, "failures": [], "longest": 0.0}
while not os.path.exists(file + ".stop"):
    began = time.monotonic()
    try:
        socket.gethostbyname(name)
        seen["answers"] += 1
    except OSError as error:
        seen["failures"].append(str(error))
    took = time.monotonic() - began
    seen["longest"] = max(seen["longest"], took)
    with open(file + ".new", "w") as new:
        json.dump(seen, new)
    os.replace(file + ".new", file)
    time.sleep(max(0.0, 1.0 - took))
"""
WATCHED = "/tmp/dns"
LONGEST_ANSWER = 4.5
"""Seconds. A resolver asks again after 5: then a question was lost."""
COREDNS, FLANNEL = "deploy/coredns", "ds/kube-flannel"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-addons", **one_node())
    cluster.up()
    return cluster


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of its own for the cluster file: all others share one."""
    return tmp_path_factory.mktemp("cluster")


def command(cluster: TestCluster, place: Path, *argv: str, check: bool = True) -> Ended:
    file = place / "cluster.yaml"
    file.write_text(cluster.file.read_text())
    return cluster.autarky(*argv, "-f", str(file), check=check)


def up(cluster: TestCluster, place: Path, *argv: str, check: bool = True) -> Ended:
    return command(cluster, place, "up", "-o", "plain", *argv, check=check)


def planned(cluster: TestCluster, place: Path) -> str:
    ended = command(cluster, place, "plan")
    return ended.stdout + ended.stderr


def drift(cluster: TestCluster, place: Path) -> list[dict[str, str]]:
    lines = command(cluster, place, "plan", "-o", "json").stdout.splitlines()
    return [event for line in lines if (event := json.loads(line))["kind"] == "drift"]


def add_on(place: Path, file: str, *objects: dict[str, Any]) -> None:
    directory = place / "addons"
    directory.mkdir(exist_ok=True)
    (directory / file).write_text("---\n".join(json.dumps(obj) + "\n" for obj in objects))


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "own"}, "data": data}


def namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}


def agent_image(cluster: TestCluster) -> str:
    """An image that is on every node, and has a Python."""
    path = "jsonpath={.spec.template.spec.containers[0].image}"
    return cluster.kubectl(*SYSTEM, "get", "ds/node-agent", "-o", path)


def deployment(cluster: TestCluster, name: str, *, ready_after: int = 0, cpu: Any = 0.01) -> dict[str, Any]:
    """It is Ready that many seconds after its start. Its request is spelled as the API does not spell it."""
    code = f"import time, pathlib; time.sleep({ready_after}); pathlib.Path('/tmp/ready').touch(); time.sleep(10 ** 6)"
    container = {
        "name": "main",
        "image": agent_image(cluster),
        "command": ["python3", "-c", code],
        "resources": {"requests": {"cpu": cpu}},
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
    }
    labels = {"app": name}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "own"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version],
        },
    }


def gadget() -> dict[str, Any]:
    meta = {"name": "g", "namespace": "own"}
    return {"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": meta, "spec": {"size": 1}}


def made(cluster: TestCluster, *what: str) -> str:
    path = "jsonpath={.metadata.creationTimestamp}"
    return cluster.kubectl("-n", "own", "get", *what, "-o", path)


def was_so_since(cluster: TestCluster, what: str, kind: str) -> str:
    """When that condition of it became true."""
    path = f"jsonpath={{.status.conditions[?(@.type=='{kind}')].lastTransitionTime}}"
    return cluster.kubectl("-n", "own", "get", what, "-o", path)


def there(cluster: TestCluster, *what: str) -> bool:
    return bool(cluster.kubectl("-n", "own", "get", *what, "--ignore-not-found", "-o", "name"))


def looked_up(cluster: TestCluster, name: str) -> str:
    """As a pod of the user's looks it up."""
    return cluster.kubectl("-n", "own", "exec", "deploy/web", "--", "python3", "-c", LOOK_UP, name).strip()


def dns_answers(cluster: TestCluster) -> bool:
    service = cluster.kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    return looked_up(cluster, "kubernetes.default.svc.cluster.local.") == service


# --- one's own -----------------------------------------------------------------------------------------


def test_mistakes_are_refused_with_their_document_before_anything_is_changed(cluster: TestCluster, place: Path) -> None:
    ours = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", "namespace": "kube-system"}}
    add_on(place, "10-ours.yaml", namespace(), ours)
    refused = up(cluster, place, check=False)
    assert (refused.status, "10-ours.yaml (document 2" in refused.stderr) == (2, True), refused
    (place / "addons/20-broken.yaml").write_text("a: [\n")
    add_on(place, "10-ours.yaml", namespace(), {"kind": "ConfigMap", "metadata": {}})
    refused = up(cluster, place, check=False)
    assert refused.status == 2, refused
    for said in ("10-ours.yaml (document 2", "apiVersion is missing", "20-broken.yaml (document 1", "not YAML"):
        assert said in refused.stderr, refused.stderr
    assert not there(cluster, "namespace/own")
    shutil.rmtree(place / "addons")


def test_files_are_applied_in_their_order_and_each_waits_for_the_health_of_the_one_before(
    cluster: TestCluster, place: Path
) -> None:
    add_on(place, "10-base.yaml", config("first", a="1"), namespace(), definition())
    add_on(place, "20-web.yaml", deployment(cluster, "web", ready_after=8), gadget())
    add_on(place, "30-last.yaml", config("last", a="1", b="1"))
    plan = planned(cluster, place)
    assert "Deployment own/web" in plan or "Deployment web" in plan, plan
    up(cluster, place)
    cluster.kubectl("-n", "own", "rollout", "status", "deploy/web", "--timeout=1s")
    assert made(cluster, "cm/first") <= made(cluster, "deploy/web")
    assert was_so_since(cluster, "deploy/web", "Available") <= made(cluster, "cm/last")
    assert made(cluster, "deploy/web") < made(cluster, "cm/last")
    assert there(cluster, "gadgets.example.org/g")
    again = up(cluster, place)
    assert "up: unchanged" in again.stderr, again.stderr
    assert drift(cluster, place) == []


def test_a_changed_document_changes_its_object_and_an_edit_beside_it_stands(cluster: TestCluster, place: Path) -> None:
    cluster.kubectl("-n", "own", "patch", "cm/last", "--type=merge", "-p", '{"data": {"a": "theirs", "more": "1"}}')
    [found] = drift(cluster, place)
    assert (found["subject"], found["field"], found["ours"], found["live"], found["manager"]) == (
        *("ConfigMap own/last", "data.a", "1", "theirs"),
        "kubectl-patch",
    )
    add_on(place, "30-last.yaml", config("last", a="1", b="2"))
    up(cluster, place)
    data = json.loads(cluster.kubectl("-n", "own", "get", "cm/last", "-o", "jsonpath={.data}"))
    assert data == {"a": "theirs", "b": "2", "more": "1"}
    assert "up: unchanged" in up(cluster, place).stderr
    up(cluster, place, "--take-ownership")
    data = json.loads(cluster.kubectl("-n", "own", "get", "cm/last", "-o", "jsonpath={.data}"))
    assert data == {"a": "1", "b": "2", "more": "1"}
    assert drift(cluster, place) == []


def test_what_is_not_healthy_stops_the_files_after_it_and_is_named(cluster: TestCluster, place: Path) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "fails", "namespace": "own"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": agent_image(cluster), "command": ["python3", "-c", "1/0"]}
                    ],
                }
            },
        },
    }
    add_on(place, "25-job.yaml", job)
    add_on(place, "40-after.yaml", config("after"))
    failed = up(cluster, place, check=False)
    assert failed.status == 2, failed
    assert "Job own/fails has failed" in failed.stderr
    assert not there(cluster, "cm/after")
    (place / "addons/25-job.yaml").unlink()
    up(cluster, place)
    assert there(cluster, "cm/after")
    assert not there(cluster, "job/fails")
    pods = ("-n", "own", "get", "pods", "-l", "job-name=fails", "-o", "name")
    cluster.wait("its pod has gone with it", lambda: not cluster.kubectl(*pods))


def test_what_is_taken_out_is_deleted_unless_somebody_has_edited_it_or_others_would_go_with_it(
    cluster: TestCluster, place: Path
) -> None:
    cluster.kubectl("-n", "own", "patch", "cm/last", "--type=merge", "-p", '{"data": {"a": "theirs"}}')
    (place / "addons/30-last.yaml").unlink()
    (place / "addons/40-after.yaml").unlink()
    add_on(place, "10-base.yaml", config("first", a="1"), namespace())
    plan = planned(cluster, place)
    assert "delete ConfigMap own/after" in plan, plan
    assert "CustomResourceDefinition gadgets.example.org is no longer wanted and stays" in plan, plan
    assert "ConfigMap own/last is no longer wanted and stays: its data.a was edited" in plan, plan
    up(cluster, place)
    assert not there(cluster, "cm/after")
    assert there(cluster, "cm/last")
    assert there(cluster, "gadgets.example.org/g")
    again = up(cluster, place)
    assert "up: unchanged" in again.stderr, again.stderr
    assert "ConfigMap own/last" in again.stderr, "what stays is reported again"


def test_no_directory_deletes_nothing_and_says_so(cluster: TestCluster, place: Path) -> None:
    (place / "addons").rename(place / "away")
    said = up(cluster, place)
    assert "up: unchanged" in said.stderr, said.stderr
    assert "has no add-ons" in said.stderr
    (place / "addons").mkdir()
    assert "up: unchanged" in up(cluster, place).stderr
    assert "up: unchanged" in cluster.autarky("up", "--cluster", cluster.name, "-o", "plain").stderr
    assert there(cluster, "deploy/web")
    (place / "addons").rmdir()
    (place / "away").rename(place / "addons")
    assert "up: unchanged" in up(cluster, place).stderr


# --- CoreDNS -------------------------------------------------------------------------------------------


def dns_pods(cluster: TestCluster) -> dict[str, int]:
    """uid → restarts of its container."""
    found = json.loads(cluster.kubectl(*SYSTEM, "get", "pods", "-l", "k8s-app=kube-dns", "-o", "json"))["items"]
    return {
        pod["metadata"]["uid"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
        for pod in found
    }


def set_corefile(cluster: TestCluster, change: Callable[[str], str]) -> str:
    """Returns what it was."""
    before = cluster.kubectl(*SYSTEM, "get", "cm/coredns", "-o", "jsonpath={.data.Corefile}")
    patch = json.dumps({"data": {"Corefile": change(before)}})
    cluster.kubectl(*SYSTEM, "patch", "cm/coredns", "--type=merge", "-p", patch)
    return before


def with_host(corefile: str) -> str:
    hosts = "    hosts {\n        192.0.2.77 edited.example\n        fallthrough\n    }\n    prometheus"
    assert "    prometheus" in corefile
    return corefile.replace("    prometheus", hosts, 1)


def test_coredns_answers_by_an_edited_corefile_without_a_restart_and_the_edit_stands(
    cluster: TestCluster, place: Path
) -> None:
    assert dns_answers(cluster)
    pods = dns_pods(cluster)
    set_corefile(cluster, with_host)
    cluster.wait(
        "CoreDNS answers by it",
        lambda: {looked_up(cluster, "edited.example.") for _ in range(4)} == {"192.0.2.77"},
        seconds=COREFILE_SECONDS,
        pause=2,
    )
    assert dns_pods(cluster) == pods
    assert dns_answers(cluster)
    [found] = drift(cluster, place)
    assert (found["subject"], found["field"]) == ("ConfigMap kube-system/coredns", "data.Corefile")
    assert found["manager"] == "kubectl-patch"
    assert "up: unchanged" in up(cluster, place).stderr
    assert looked_up(cluster, "edited.example.") == "192.0.2.77"


def test_a_corefile_that_coredns_cannot_use_is_not_taken_and_dns_goes_on(cluster: TestCluster, place: Path) -> None:
    pods = dns_pods(cluster)
    good = set_corefile(cluster, lambda corefile: corefile.replace("    prometheus", "    nonsense\n    prometheus", 1))

    def refused() -> bool:
        logs = cluster.kubectl(*SYSTEM, "logs", "-l", "k8s-app=kube-dns", "--tail=50", "--prefix")
        assert dns_answers(cluster)
        return "nonsense" in logs

    cluster.wait("CoreDNS has refused it", refused, seconds=COREFILE_SECONDS, pause=2)
    assert looked_up(cluster, "edited.example.") == "192.0.2.77"
    assert dns_pods(cluster) == pods
    set_corefile(cluster, lambda _: good)


def test_ownership_of_the_corefile_can_be_taken_back(cluster: TestCluster, place: Path) -> None:
    up(cluster, place, "--take-ownership")
    corefile = cluster.kubectl(*SYSTEM, "get", "cm/coredns", "-o", "jsonpath={.data.Corefile}")
    assert "edited.example" not in corefile
    assert drift(cluster, place) == []
    cluster.wait(
        "CoreDNS answers by it",
        lambda: "no answer" in looked_up(cluster, "edited.example."),
        seconds=COREFILE_SECONDS,
        pause=2,
    )


# --- rollouts that go back -----------------------------------------------------------------------------


@contextmanager
def dns_watched(cluster: TestCluster) -> Iterator[None]:
    """A pod of the user's gets an answer in each second of the block."""
    within = ("-n", "own", "exec", "deploy/web", "--")
    name = "kubernetes.default.svc.cluster.local."
    cluster.kubectl(*within, "rm", "-f", WATCHED, f"{WATCHED}.stop")
    cluster.kubectl(*within, "python3", "-c", LOOK_UP_EVERY_SECOND, name, WATCHED)
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    seen = json.loads(cluster.kubectl(*within, "cat", WATCHED))
    cluster.kubectl(*within, "touch", f"{WATCHED}.stop")
    assert (seen["failures"], seen["longest"] < LONGEST_ANSWER) == ([], True), seen
    assert seen["answers"] >= 0.7 * seconds, (seen, seconds)


def no_image(cluster: TestCluster) -> None:
    set_image(cluster, COREDNS, "v0.0.1")


def no_such_flag(cluster: TestCluster) -> None:
    edit(cluster, COREDNS, adding_flag(COREDNS, "--no-such-flag"))


@pytest.mark.parametrize(
    ("change", "why"), [(no_image, "coredns:v0.0.1"), (no_such_flag, "it last exited with code 2")]
)
def test_a_bad_coredns_goes_back_by_itself_and_dns_answers_in_every_second(
    cluster: TestCluster, place: Path, change: Callable[[TestCluster], None], why: str
) -> None:
    cluster.wait("CoreDNS has a last good revision", lambda: last_good(cluster, COREDNS), seconds=90)
    judged(cluster)
    with judged_after(cluster, 20), dns_watched(cluster):
        back = goes_back(cluster, COREDNS, lambda: change(cluster))
    assert why in back.explanation
    reported = condition(cluster, "RolledBack")
    assert (reported["status"], "coredns: pod " in reported["message"]) == ("True", True), reported
    judged(cluster)
    assert drift(cluster, place) == []
    assert "up: unchanged" in up(cluster, place).stderr


def test_a_bad_flannel_goes_back_by_itself_and_pods_have_their_network(cluster: TestCluster, place: Path) -> None:
    """Those that run, and one that starts meanwhile."""
    cluster.wait("flannel has a last good revision", lambda: last_good(cluster, FLANNEL), seconds=90)
    judged(cluster)

    def change_and_start_a_pod() -> None:
        set_image(cluster, FLANNEL, "v0.0.1")
        cluster.wait("flannel is away", lambda: not ready_on(cluster, FLANNEL))
        sleeps = ("--command", "--", "sleep", "900")
        cluster.kubectl("-n", "own", "run", "later", f"--image={agent_image(cluster)}", "--restart=Never", *sleeps)
        cluster.kubectl("-n", "own", "wait", "pod/later", "--for=condition=Ready", "--timeout=50s")
        assert not ready_on(cluster, FLANNEL), "it was away all the time"

    with judged_after(cluster, 60), dns_watched(cluster):
        back = goes_back(cluster, FLANNEL, change_and_start_a_pod)
        asked = ("-n", "own", "exec", "later", "--", "python3", "-c", LOOK_UP)
        assert "no answer" not in cluster.kubectl(*asked, "kubernetes.default.svc.cluster.local.")
    cluster.kubectl("-n", "own", "delete", "pod/later", "--grace-period=1")
    assert "kube-flannel:v0.0.1" in back.explanation
    judged(cluster)
    assert drift(cluster, place) == []
    assert "up: unchanged" in up(cluster, place).stderr


def test_a_configuration_that_a_release_before_left_is_deleted_once_nothing_uses_it(
    cluster: TestCluster, place: Path
) -> None:
    """As such a release has it: another ConfigMap, named by its content, that the Deployment mounts; no inventory."""
    corefile = cluster.kubectl(*SYSTEM, "get", "cm/coredns", "-o", "jsonpath={.data.Corefile}")
    former = cluster.kubectl(*SYSTEM, "get", "cm/coredns", "-o", "jsonpath={.metadata.labels}")
    left = immutable_config_map("coredns", {"Corefile": corefile})
    name = left["metadata"]["name"]
    assert json.loads(former)["app.kubernetes.io/managed-by"] == "autarky"
    cluster.kubectl("apply", "--server-side", "--field-manager=autarky-coredns", "-f", "-", stdin=json.dumps(left))
    volume = [{"op": "replace", "path": "/spec/template/spec/volumes/0/configMap/name", "value": name}]
    cluster.kubectl(*SYSTEM, "patch", "deploy/coredns", "--type=json", "-p", json.dumps(volume))
    cluster.kubectl(*SYSTEM, "rollout", "status", "deploy/coredns", "--timeout=120s")
    cluster.kubectl(*SYSTEM, "delete", "cm/autarky-applied", "cm/coredns")
    said = up(cluster, place)
    kept = cluster.kubectl(*SYSTEM, "get", "cm", name, "-o", "name")
    assert kept, "the Deployment uses it: that is an edit, which stands"
    assert f"{name} is no longer wanted, and stays while Deployment kube-system/coredns uses it" in said.stderr
    assert dns_answers(cluster)
    up(cluster, place, "--take-ownership")
    assert not cluster.kubectl(*SYSTEM, "get", "cm", name, "--ignore-not-found", "-o", "name")
    assert dns_answers(cluster)
    assert "up: unchanged" in up(cluster, place).stderr


def test_a_comment_in_place_of_all_add_ons_has_them_deleted(cluster: TestCluster, place: Path) -> None:
    """After the inventory was lost, it knows them again since the last `up` found them in the directory."""
    shutil.rmtree(place / "addons")
    (place / "addons").mkdir()
    (place / "addons/none.yaml").write_text("# nothing is wanted\n")
    up(cluster, place)
    assert not there(cluster, "deploy/web")
    assert not there(cluster, "cm/first")
    assert there(cluster, "namespace/own")
    assert "up: unchanged" in up(cluster, place).stderr
