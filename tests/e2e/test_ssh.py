"""A cluster on machines that are reached by ssh, as real ones are: lab hosts, of which `up` is told only by ssh.

The lab's own ssh_config stands for the user's. The operator's machine is this one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import COMMAND, STATE, TestCluster, environment
from machines import Machines

from autarky import places
from autarky.control.agents.manifests.node_agent import STANDBY_POD
from autarky.control.checkpoint.manifests import is_checkpoint
from autarky.control.kubelet.manifests.files import KUBELETS
from autarky.control.kubelet.manifests.service import GIVEN_UNIT
from autarky.model.components import NODE_AGENT, WITH_STANDBY
from autarky.render.pods import REVISION
from autarky.workflows.up import PHASES

pytestmark = [pytest.mark.e2e, pytest.mark.chain, pytest.mark.timeout(600)]

SECOND = STATE / "second"

_NAMES = [phase.name for phase in PHASES]
ONLY_HOSTS = [f"--skip={name}" for name in _NAMES[_NAMES.index("start-control-plane") :]]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines("t-ssh-lab", 2)
    made.make()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def cluster(machines: Machines, make_cluster: Callable[..., TestCluster]) -> TestCluster:
    return make_cluster("t-ssh", nodes=[{"name": "n1", "host": "ssh://n1"}], sshConfig=str(machines.ssh_config))


# --- the life of a cluster -------------------------------------------------------------------------


def test_an_unknown_host_key_is_refused_before_anything_is_touched(machines: Machines, cluster: TestCluster) -> None:
    config = machines.config("t-ssh-unknown", "UserKnownHostsFile /dev/null")
    refused = TestCluster(cluster.name, {**cluster.spec, "sshConfig": config}).up(check=False)
    assert refused.status == 2
    assert "n1 (ssh://n1): its host key is not known here" in refused.stderr
    assert "compare the fingerprint: ssh n1" in refused.stderr
    assert (
        machines.shell(
            "n1", "ls -A /var/lib/autarky/ /etc/kubernetes/ | grep -v :; ls /run | grep autarky || true"
        ).split()
        == []
    )


def test_up_brings_a_cluster_up_on_a_machine_that_is_reached_by_ssh(cluster: TestCluster) -> None:
    cluster.up()
    assert healthy(cluster)
    assert "==> kubelet on n1 <==" in cluster.autarky("logs", "--cluster", cluster.name, "kubelet").stdout


def test_again_it_changes_nothing(cluster: TestCluster) -> None:
    assert "up: unchanged" in cluster.up().stderr


# --- another machine, with a state directory of its own ---------------------------------------------


DIRECTORIES = (places.KUBERNETES, places.LEAVES, places.BIN, places.STANDBY, KUBELETS, "/etc/systemd/system")
FILES = (places.NODE_MARKER, places.CLUSTER_RECORD, places.CLUSTER_KEYS)
"""Of what else lies beside them the node agent writes some anew whenever it likes."""


def on_the_machine(machines: Machines) -> list[str]:
    """What `up` and `down` would change: each file by its content, each link by where it leads. A file that is just
    being written has a name with a dot before it."""
    there = " ".join((*DIRECTORIES, *FILES))
    files = f"find {there} -type f ! -name '.*' -exec sha256sum {{}} + 2>/dev/null"
    links = f"find {there} -type l ! -name '.*' -printf '%l <- %p\\n' 2>/dev/null"
    found = sorted(machines.shell("n1", f"{files}; {links}; true").splitlines())
    lost = [path for path in (*DIRECTORIES, *FILES) if not any(f" {path}" in line for line in found)]
    assert lost == [], "nothing of it was read"
    return found


def copies_are_made(machines: Machines) -> bool:
    """Before that, standbys and the parked agent are replaced by copies of what runs, a minute after `up`."""
    directories = " ".join(f"{places.STANDBY}/{component}/current" for component in (*WITH_STANDBY, NODE_AGENT))
    revisions = machines.shell("n1", f"for one in {directories}; do readlink $one || echo; done").split()
    parked = f"{places.MANIFESTS}/{STANDBY_POD}-*.json"
    manifests = machines.shell("n1", f"ls {parked} | wc -l; grep -l {REVISION} {parked} | wc -l").split()
    return len(revisions) == 4 and all(map(is_checkpoint, revisions)) and manifests == ["1", "1"]


def test_up_from_a_second_state_directory_is_refused_and_changes_nothing(
    machines: Machines, cluster: TestCluster
) -> None:
    shutil.rmtree(SECOND, ignore_errors=True)
    cluster.wait("the copies are made", lambda: copies_are_made(machines), seconds=240)
    before = on_the_machine(machines)
    refused = second("up", "-f", str(cluster.file), "-o", "plain")
    assert refused.returncode == 2
    assert "host n1 belongs to a cluster t-ssh whose CA is " in refused.stderr
    assert "of which this state directory has nothing" in refused.stderr
    assert "`autarky login ssh://n1` fetches it" in refused.stderr
    past_the_check = second("up", "-f", str(cluster.file), "-o", "plain", "--skip=check-file", "--skip=check-hosts")
    assert past_the_check.returncode == 2
    assert "of which this state directory has nothing" in past_the_check.stderr
    assert on_the_machine(machines) == before
    assert not (SECOND / "autarky/clusters/t-ssh/pki").exists()


def test_down_from_a_second_state_directory_is_refused_and_changes_nothing(
    machines: Machines, cluster: TestCluster
) -> None:
    before = on_the_machine(machines)
    refused = second("down", "-f", str(cluster.file), "--yes", "-o", "plain")
    assert refused.returncode == 2
    assert "autarky login ssh://n1" in refused.stderr
    assert on_the_machine(machines) == before


def test_after_login_up_from_the_second_state_directory_changes_nothing(
    machines: Machines, cluster: TestCluster
) -> None:
    logged_in = second("login", "n1", "--ssh-config", str(machines.ssh_config), "-o", "plain")
    assert logged_in.returncode == 0, logged_in.stderr
    ended = second("up", "-f", str(cluster.file), "-o", "plain")
    assert "up: unchanged" in ended.stderr, ended.stderr


def test_after_login_both_administrators_work_and_no_key_of_the_cluster_has_come(
    machines: Machines, cluster: TestCluster
) -> None:
    theirs = second("kubectl", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert theirs.stdout == cluster.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert second("kubectl", "auth", "can-i", "*", "*").stdout.strip() == "yes"
    ours, came = (keys_below(state / "autarky/clusters/t-ssh/pki") for state in (STATE, SECOND))
    assert came.keys() == {"admin.key", "super-admin.key"}
    assert not set(came.values()) & set(ours.values())
    assert second("status", "-o", "json").returncode == 0


def test_login_by_the_file_finds_a_control_node_and_tells_of_a_file_that_was_not_applied(
    machines: Machines, cluster: TestCluster
) -> None:
    shutil.rmtree(SECOND)
    logged_in = second("login", "-f", str(cluster.file), "-o", "plain")
    assert logged_in.returncode == 0, logged_in.stderr
    assert "is not what was applied last" not in logged_in.stderr
    ended = second("up", "-f", str(cluster.file), "-o", "plain")
    assert "up: unchanged" in ended.stderr, ended.stderr
    document, other = json.loads(cluster.file.read_text()), STATE / "t-ssh-other.yaml"
    other.write_text(json.dumps({**document, "spec": {**document["spec"], "selfHosted": "4"}}))
    told = second("login", "-f", str(other), "-o", "plain")
    assert told.returncode == 0, told.stderr
    assert f"{other} is not what was applied last" in told.stderr
    assert "up: unchanged" in second("up", "--cluster", cluster.name, "-o", "plain").stderr


def keys_below(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*.key")}


def second(*argv: str) -> subprocess.CompletedProcess[str]:
    """A command of another machine."""
    environ = {**environment(), "XDG_STATE_HOME": str(SECOND)}
    return subprocess.run([*COMMAND, *argv], env=environ, capture_output=True, text=True, check=False, timeout=300)


def test_down_without_a_terminal_and_without_yes_takes_nothing_away(machines: Machines, cluster: TestCluster) -> None:
    before = on_the_machine(machines)
    asked = cluster.autarky("down", "-f", str(cluster.file), check=False)
    assert asked.status == 2
    assert "node n1 on ssh://n1: all of autarky goes; etcd's data and the CA keys are moved aside" in asked.stderr
    assert "fix: say --yes" in asked.stderr
    assert on_the_machine(machines) == before


def test_down_leaves_the_machine_clean_but_keeps_data_and_keys(machines: Machines, cluster: TestCluster) -> None:
    cluster.down()
    assert machines.shell("n1", "ls -A /var/lib/autarky; ls /run | grep autarky || true").strip() == ""
    kept = machines.shell("n1", "ls -d /var/lib/etcd/kept.*/member /etc/kubernetes/pki.*/ca.key")
    assert len(kept.split()) == 2
    units = ("kubelet", "containerd", f"{GIVEN_UNIT}.path")
    assert machines.shell("n1", f"systemctl is-active {' '.join(units)} || true").split() == ["inactive"] * len(units)


# --- what can go wrong on the way ------------------------------------------------------------------


def healthy(cluster: TestCluster) -> bool:
    status = cluster.status()
    assert status["healthy"], [row for row in status["rows"] if row["health"] not in {"ready", "dormant"}] or status
    return True


@contextmanager
def going_up(machines: Machines, cluster: TestCluster, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """`up` in the background, once it has begun to work on the machine; gone at the end of the block."""
    running = subprocess.Popen(
        [*COMMAND, "up", "-f", str(cluster.file), "-o", "plain", *argv],
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        cluster.wait("the machine is locked", lambda: "autarky up" in lock(machines), 120)
        yield running
    finally:
        running.kill()
        running.wait()


def lock(machines: Machines) -> str:
    return machines.shell("n1", "cat /run/autarky.lock 2>/dev/null || true")


@pytest.mark.rotation(alone=True)
def test_two_operators_do_not_work_on_the_same_machine_at_once(machines: Machines, cluster: TestCluster) -> None:
    """The second has a state directory of its own, as on another machine."""
    with going_up(machines, cluster, *ONLY_HOSTS) as first:
        second = subprocess.run(
            [*COMMAND, "up", "-f", str(cluster.file), "-o", "plain"],
            env={**environment(), "XDG_STATE_HOME": str(STATE / "elsewhere")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert second.returncode == 5
        assert "host n1 is in use by `autarky up` of " in second.stderr
        assert f"kill {first.pid}" in second.stderr
        assert first.wait(timeout=300) == 0


@pytest.mark.rotation(alone=True)
def test_a_killed_up_leaves_a_machine_that_the_next_takes_up_at_once(machines: Machines, cluster: TestCluster) -> None:
    with going_up(machines, cluster, *ONLY_HOSTS) as first:
        first.kill()
    cluster.up(*ONLY_HOSTS)


@pytest.mark.rotation(alone=True)
def test_connections_cut_in_the_middle_of_a_step_end_in_a_cluster_all_the_same(
    machines: Machines, cluster: TestCluster
) -> None:
    """Every session is killed on the machine's side, several times in one `up`; then it is run again."""
    with going_up(machines, cluster) as running:
        for _ in range(3):
            time.sleep(2)  # somewhere in the middle of a step: where does not matter
            machines.shell("n1", "pkill -KILL -f '[s]shd: root@notty' || true")
        assert running.wait(timeout=400) in {0, 3}
    cluster.up()
    assert healthy(cluster)
    cluster.down()


@pytest.mark.rotation(alone=True)
def test_a_network_that_goes_away_for_a_while_ends_in_a_cluster_all_the_same(
    machines: Machines, cluster: TestCluster
) -> None:
    with going_up(machines, cluster) as running:
        time.sleep(3)  # somewhere in the middle of a step
        with no_network_to(machines.address("n1")):
            time.sleep(20)  # longer than a silent connection is borne
        assert running.wait(timeout=400) in {0, 3, 4}
    cluster.up()
    assert healthy(cluster)
    cluster.down()


@contextmanager
def no_network_to(address: str) -> Iterator[None]:
    """This machine's cable to the lab is out."""
    route = subprocess.run(["ip", "-4", "route", "get", address], capture_output=True, text=True, check=True).stdout
    cable = ["ip", "link", "set", route.split(" dev ")[1].split()[0]]
    subprocess.run([*cable, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*cable, "up"], check=True)


# --- users and jump hosts --------------------------------------------------------------------------


@pytest.mark.rotation(alone=True)
def test_a_user_with_sudo_behind_a_jump_host_brings_a_cluster_up(
    machines: Machines, make_cluster: Callable[..., TestCluster]
) -> None:
    machines.shell(
        "n2",
        "id captain 2>/dev/null || useradd -m -s /bin/bash captain; cp -r /root/.ssh /home/captain/; "
        "chown -R captain: /home/captain/.ssh; echo 'captain ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/captain",
    )
    inner = f"Host inner\n  HostName {machines.address('n2')}\n  ProxyJump n1\n"
    behind = make_cluster(
        "t-ssh-jump",
        nodes=[{"name": "n2", "host": "ssh://captain@inner"}],
        sshConfig=machines.config("t-ssh-jump", inner),
    )
    behind.up()
    assert healthy(behind)
    through = machines.shell("n2", "ss -Htn state established sport = :22")
    assert machines.address("n1") in through
    behind.down()
    assert machines.shell("n2", "ls -A /var/lib/autarky").strip() == ""
