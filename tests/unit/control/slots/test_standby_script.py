"""The standby's script, run for real by sh in a directory of the test's own."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.control_nodes.node import role_on_disk
from autarky.control.control_nodes.node.role_on_disk import State
from autarky.control.etcd.manifests import pods as etcd
from autarky.control.slots import manifests as standby
from autarky.model.components import COMPONENTS, WITH_STANDBY
from autarky.model.files import File
from autarky.render import node as render_node
from autarky.render import pods
from fakes.clusters import a_cluster, inputs_of
from fakes.hosted_pods import pod_of_revision

API = "kube-apiserver"


@dataclass
class Place:
    """A control node's disk, as far as standbys go; `ports` are the hosted slots' own."""

    root: Path
    ports: dict[str, int]
    sockets: Mapping[str, socket.socket]
    """Bound to those ports."""
    attempts: int = 0
    """How often `boot-rest` looks for the hosted ones before it goes on without them."""

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    def write(self, revision: standby.Revision) -> None:
        for file in revision.files:
            path = Path(self.moved(file.path))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)

    def moved(self, text: str) -> str:
        text = text.replace(places.STANDBY, f"{self.root}/standby").replace(places.MANIFESTS, str(self.manifests))
        text = text.replace(places.RUN, f"{self.root}/run").replace(places.ETCD_FORMER, f"{self.root}/former.json")
        text = text.replace(etcd.MEMBER_DIRECTORY, f"{self.root}/member")
        text = text.replace(places.CONTROL_NODE_STATE, f"{self.root}/control-node.json")
        text = re.sub(r"rest_seconds=\d+", f"rest_seconds={self.attempts}", text)
        text = text.replace(f"lock_seconds={standby.LOCK_SECONDS}", "lock_seconds=1")
        for component in WITH_STANDBY:
            port = COMPONENTS[component].port
            text = text.replace(f"{component}={port}", f"{component}={self.ports[component]}")
        return text

    def run(self, *arguments: str, broken: str = "", noted: str = "") -> subprocess.CompletedProcess[str]:
        """Run the script; `broken` names a program that fails, as if the power went just there, `noted` one that does
        nothing but to write its arguments into a file of its name."""
        script = self.root / "script"
        script.write_text(self.moved(standby.script().content.decode()))
        path = os.environ["PATH"]
        for name, does in ((broken, "exit 1"), (noted, f'echo "$@" >>{self.root}/{noted}')):
            if name:
                shims = self.root / f"no-{name}"
                shims.mkdir(exist_ok=True)
                (shims / name).write_text(f"#!/bin/sh\n{does}\n")
                (shims / name).chmod(0o755)
                path = f"{shims}:{path}"
        return subprocess.run(
            ["sh", str(script), *arguments], env={"PATH": path}, capture_output=True, text=True, check=False, timeout=60
        )

    def ok(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        return result.stdout

    def active(self) -> list[dict]:
        """The manifests that the kubelet would see: it passes over names that begin with a dot."""
        files = sorted(path for path in self.manifests.glob("*") if not path.name.startswith("."))
        return [json.loads(path.read_text()) for path in files]

    def current(self, component: str = API) -> str | None:
        return self.points_to(component, "current")

    def previous(self) -> str | None:
        return self.points_to(API, "previous")

    def points_to(self, component: str, name: str) -> str | None:
        link = self.root / "standby" / component / name
        return str(link.readlink()) if link.is_symlink() else None


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Ports that are taken and refuse: nothing hosted answers yet."""
    sockets = {component: socket.socket() for component in WITH_STANDBY}
    for taken in sockets.values():
        taken.bind(("127.0.0.1", 0))
    yield Place(tmp_path, {component: taken.getsockname()[1] for component, taken in sockets.items()}, sockets)
    for taken in sockets.values():
        taken.close()


def revision(component: str = API, **cluster) -> standby.Revision:
    return standby.revision(inputs_of(a_cluster(**cluster)), component)


@pytest.fixture
def ready(place: Place) -> Place:
    """A complete revision of every component."""
    for component in WITH_STANDBY:
        place.write(revision(component))
        place.ok("switch", component, revision(component).name)
    return place


def test_an_activation_puts_one_complete_pod_in_place(ready):
    ready.ok("activate", API)
    [pod] = ready.active()
    expected = pod_of_revision(revision())
    assert pod["metadata"]["name"].startswith(f"{API}-standby-")
    assert pod["metadata"]["annotations"] == {"autarky.dev/revision": revision().name}
    assert pod["spec"] == expected["spec"]
    [file] = ready.manifests.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_second_activation_changes_nothing_while_one_is_in_place(ready):
    ready.ok("activate", API)
    before = ready.active()
    ready.ok("activate", API)
    assert ready.active() == before


def test_every_activation_has_a_name_and_a_uid_that_were_never_used(ready):
    seen = []
    for _ in range(4):
        ready.ok("activate", API)
        [pod] = ready.active()
        seen.append((pod["metadata"]["name"], pod["metadata"]["uid"]))
        ready.ok("withdraw", API)
    assert len({name for name, _ in seen}) == len({uid for _, uid in seen}) == 4
    for name, uid in seen:
        assert uuid.UUID(uid).version == 4
        assert name == f"{API}-standby-{uid.partition('-')[0]}"


def test_a_renewal_replaces_what_is_in_place_by_an_activation_of_its_own(ready):
    ready.ok("activate", API)
    ready.ok("activate", "kube-scheduler")
    before = {pod["metadata"]["uid"]: pod["metadata"]["labels"]["k8s-app"] for pod in ready.active()}
    ready.ok("renew", API)
    after = {pod["metadata"]["uid"]: pod["metadata"]["labels"]["k8s-app"] for pod in ready.active()}
    assert sorted(after.values()) == [API, "kube-scheduler"]
    assert [before[uid] for uid in before.keys() & after.keys()] == ["kube-scheduler"]


def switch_to_newer(ready: Place) -> standby.Revision:
    """The API server's current revision is another one from now on."""
    newer = revision(extra_args={API: {"v": "5"}})
    ready.write(newer)
    ready.ok("switch", API, newer.name)
    return newer


def test_outdated_is_what_is_in_place_in_another_revision_than_the_current_one(ready):
    assert ready.ok("outdated") == ""
    for component in WITH_STANDBY:
        ready.ok("activate", component)
    assert ready.ok("outdated") == ""
    switch_to_newer(ready)
    assert ready.ok("outdated").split() == [API]
    ready.ok("renew", API)
    assert ready.ok("outdated") == ""


def test_what_is_not_in_place_is_not_outdated_nor_is_what_could_not_be_replaced(ready):
    ready.ok("activate", API)
    newer = switch_to_newer(ready)
    ready.write(replace(newer, files=(File(newer.files[-1].path, b"{"),)))
    assert ready.ok("outdated") == "", "the current one is incomplete: there is nothing better"
    ready.ok("withdraw", API)
    assert ready.ok("outdated") == ""


def test_what_is_in_place_is_not_outdated_where_its_revision_was_torn_since(ready):
    """Else the former one, which it has replaced, would come back."""
    newer = switch_to_newer(ready)
    ready.ok("activate", API)
    ready.write(replace(newer, files=(File(newer.files[-1].path, b"{"),)))
    assert ready.ok("outdated") == ""


def test_on_a_host_with_nothing_on_it_nothing_is_outdated(place):
    assert place.ok("outdated") == ""


def test_one_of_two_activations_that_is_of_another_revision_is_outdated(ready):
    """A renewal that was cut leaves both."""
    ready.ok("activate", API)
    switch_to_newer(ready)
    ready.run("renew", API, broken="rm")
    assert len(ready.active()) == 2
    assert ready.ok("outdated").split() == [API]


def test_what_was_withdrawn_meanwhile_is_not_renewed(ready):
    ready.ok("renew", API)
    assert ready.active() == []


@pytest.mark.parametrize("broken", ["cat", "sed", "mv", "rm"])
def test_a_renewal_that_is_cut_leaves_something_in_place(ready, broken):
    ready.ok("activate", API)
    ready.run("renew", API, broken=broken)
    assert ready.active()
    ready.ok("renew", API)
    assert len(ready.active()) == 1


def test_a_withdrawal_takes_away_this_components_pods_and_no_others(ready):
    (ready.manifests).mkdir()
    (ready.manifests / "etcd-1234.json").write_text("{}")
    for component in WITH_STANDBY:
        ready.ok("activate", component)
    ready.ok("withdraw", "kube-scheduler")
    names = sorted(path.name.rpartition("-")[0] for path in ready.manifests.iterdir())
    assert names == ["etcd", "standby-kube-apiserver", "standby-kube-controller-manager"]


def test_the_list_is_read_back(ready):
    ready.ok("activate", API)
    listed = standby.parse_list(ready.ok("list"))
    [pod] = ready.active()
    activation = pod["metadata"]["name"].removeprefix(f"{API}-standby-")
    assert listed == {
        API: (revision().name, (activation,)),
        "kube-controller-manager": (revision("kube-controller-manager").name, ()),
        "kube-scheduler": (revision("kube-scheduler").name, ()),
    }


def test_the_list_of_a_host_with_nothing_on_it_is_read_back(place):
    assert standby.parse_list(place.ok("list")) == dict.fromkeys(WITH_STANDBY, (None, ()))


def test_a_switch_makes_a_complete_revision_the_current_one_and_keeps_the_old(ready):
    new = revision(extra_args={API: {"v": "5"}})
    assert new.name != revision().name
    ready.write(new)
    ready.ok("switch", API, new.name)
    assert ready.current() == new.name
    assert (ready.root / "standby" / API / revision().name / "pod.json").exists()
    ready.ok("activate", API)
    assert "--v=5" in ready.active()[0]["spec"]["containers"][0]["command"]


def test_a_switch_remembers_the_revision_that_was_current_before_it(ready):
    assert ready.previous() is None
    first, second, third = (revision(extra_args={API: {"v": level}}) for level in "567")
    for new, before in ((first, revision()), (second, first), (third, second), (second, third)):
        ready.write(new)
        ready.ok("switch", API, new.name)
        assert (ready.current(), ready.previous()) == (new.name, before.name)


def test_a_second_switch_to_the_same_revision_changes_nothing(ready):
    new = revision(extra_args={API: {"v": "5"}})
    ready.write(new)
    for _ in range(2):
        ready.ok("switch", API, new.name)
        assert (ready.current(), ready.previous()) == (new.name, revision().name)


def test_a_revision_that_is_not_there_does_not_become_the_current_one(ready):
    result = ready.run("switch", API, "ffffffffff")
    assert (result.returncode, result.stderr) == (1, f"no revision ffffffffff of {API}\n")
    assert ready.current() == revision().name


def test_a_revision_counts_only_once_its_pod_was_written_which_comes_last(place):
    """What write_files leaves when the power goes between two files."""
    cut = revision()
    place.write(standby.Revision(cut.component, cut.name, cut.files[:-1]))
    assert place.run("switch", API, cut.name).returncode == 1
    assert place.current() is None


def test_without_a_current_revision_nothing_is_activated(place):
    place.write(revision())
    result = place.run("activate", API)
    assert (result.returncode, result.stderr) == (1, f"no complete standby of {API}\n")
    assert place.active() == []


TORN = ("empty", "half", "zeros", "garbage", "absent")


def tear(path: Path, how: str) -> None:
    """What a damaged disk, or a hand, makes of a file."""
    content = path.read_bytes()
    path.unlink()
    if how != "absent":
        torn = {"empty": b"", "half": content[: len(content) // 2], "zeros": bytes(len(content)), "garbage": b"{}\n"}
        path.write_bytes(torn[how])


@pytest.mark.parametrize("how", TORN)
@pytest.mark.parametrize("verb", ["boot", "activate"])
def test_instead_of_a_torn_revision_the_previous_one_is_activated(ready, verb, how):
    new = revision(extra_args={API: {"v": "5"}})
    ready.write(new)
    ready.ok("switch", API, new.name)
    tear(ready.root / "standby" / API / new.name / "pod.json", how)
    said = ready.run(verb, *([API] if verb == "activate" else [])).stderr
    assert f"the current revision of {API} is incomplete" in said
    [pod] = [pod for pod in ready.active() if pod["metadata"]["labels"]["k8s-app"] == API]
    assert pod["metadata"]["annotations"] == {"autarky.dev/revision": revision().name}


def test_a_link_that_points_to_nothing_is_passed_over(ready):
    new = revision(extra_args={API: {"v": "5"}})
    ready.write(new)
    ready.ok("switch", API, new.name)
    current = ready.root / "standby" / API / "current"
    current.unlink()
    current.symlink_to("no-such-revision")
    assert ready.run("activate", API).returncode == 0
    assert [pod["metadata"]["annotations"]["autarky.dev/revision"] for pod in ready.active()] == [revision().name]


@pytest.mark.parametrize("how", TORN)
def test_a_torn_revision_becomes_neither_the_current_nor_the_previous_one(ready, how):
    new = revision(extra_args={API: {"v": "5"}})
    ready.write(new)
    pod = ready.root / "standby" / API / new.name / "pod.json"
    complete = pod.read_bytes()
    tear(pod, how)
    assert ready.run("switch", API, new.name).returncode == 1
    assert ready.current() == revision().name
    pod.write_bytes(complete)
    ready.ok("switch", API, new.name)
    tear(pod, how)
    third = revision(extra_args={API: {"v": "6"}})
    ready.write(third)
    ready.ok("switch", API, third.name)
    assert (ready.current(), ready.previous()) == (third.name, revision().name)


@pytest.mark.parametrize("how", TORN[:-1])
@pytest.mark.parametrize("verb", ["boot", "activate"])
def test_a_torn_manifest_is_no_activation_and_a_complete_one_takes_its_place(ready, verb, how):
    ready.ok("activate", API)
    [manifest] = ready.manifests.iterdir()
    tear(manifest, how)
    assert standby.parse_list(ready.ok("list"))[API] == (revision().name, ())
    ready.ok(verb, *([API] if verb == "activate" else []))
    found = [pod for pod in ready.active() if pod["metadata"]["labels"]["k8s-app"] == API]
    assert len(found) == 1
    assert not manifest.exists()


def test_garbage_in_the_manifest_directory_is_left_alone_and_stops_nothing(ready):
    ready.manifests.mkdir()
    names = ("standby-kube-apiserver-", "standby-kube-apiserver-x y.json", "garbage.json", "-rf", "*")
    for name in names:
        (ready.manifests / name).write_text("{")
    ready.ok("boot")
    ready.ok("boot-rest")
    complete = {path.name for path in ready.manifests.iterdir()} - set(names)
    assert len(complete) == len(WITH_STANDBY)
    for component in WITH_STANDBY:
        ready.ok("withdraw", component)
    assert {path.name for path in ready.manifests.iterdir()} == set(names)


@pytest.mark.parametrize("broken", ["ln", "mv"])
def test_a_switch_that_is_cut_leaves_the_old_revision_and_the_next_one_heals_it(ready, broken):
    new = revision(extra_args={API: {"v": "5"}})
    ready.write(new)
    assert ready.run("switch", API, new.name, broken=broken).returncode != 0
    assert ready.current() == revision().name
    ready.ok("switch", API, new.name)
    assert ready.current() == new.name


@pytest.mark.parametrize("broken", ["cat", "mkdir", "sed", "mv"])
def test_an_activation_that_is_cut_is_absent_and_the_next_one_is_complete(ready, broken):
    assert ready.run("activate", API, broken=broken).returncode != 0
    assert ready.active() == []
    assert standby.parse_list(ready.ok("list"))[API] == (revision().name, ())
    ready.ok("activate", API)
    assert len(ready.active()) == 1


def test_at_boot_everything_that_does_not_answer_on_its_own_port_gets_its_standby(ready):
    with socket.create_server(("127.0.0.1", 0)) as hosted:
        ready.ports["kube-scheduler"] = hosted.getsockname()[1]
        ready.ok("boot")
        assert [pod["metadata"]["labels"]["k8s-app"] for pod in ready.active()] == [API]
        ready.ok("boot-rest")
    components = {pod["metadata"]["labels"]["k8s-app"] for pod in ready.active()}
    assert components == {API, "kube-controller-manager"}


def test_at_boot_what_answers_after_a_while_gets_no_standby(ready):
    ready.attempts = 1_000_000
    with ThreadPoolExecutor() as beside:
        waiting = beside.submit(ready.ok, "boot-rest")
        time.sleep(0.3)
        assert not waiting.done()
        for component in set(WITH_STANDBY) - {API}:
            ready.sockets[component].listen()
        waiting.result(timeout=30)
    assert ready.active() == []


def test_at_boot_nothing_is_waited_for_where_there_is_nothing_to_activate(place):
    place.attempts = 1_000_000
    place.ok("boot-rest")
    assert place.active() == []


def test_at_boot_nothing_is_waited_for_where_level_3_lives_in_the_standby_slot(ready):
    for component in set(WITH_STANDBY) - {API}:
        ready.ok("activate", component)
    before = ready.active()
    ready.attempts = 1_000_000
    ready.ok("boot-rest")
    assert ready.active() == before


def test_at_boot_a_missing_standby_keeps_no_other_from_coming_up(place):
    for component in ("kube-controller-manager", "kube-scheduler"):
        place.write(revision(component))
        place.ok("switch", component, revision(component).name)
    place.run("boot")
    place.ok("boot-rest")
    assert len(place.active()) == 2


def test_boot_twice_is_boot_once(ready):
    ready.ok("boot")
    ready.ok("boot-rest")
    before = ready.active()
    ready.ok("boot")
    ready.ok("boot-rest")
    assert ready.active() == before


@pytest.mark.parametrize("state", [State.READY, State.CEASING])
def test_at_boot_a_node_that_ceases_to_be_a_control_node_starts_no_standby(ready, monkeypatch, state: State):
    """A power cut may bring back what was removed."""
    monkeypatch.setattr(role_on_disk, "FILE", ready.root / "control-node.json")
    role_on_disk.remember(state)
    ready.ok("boot")
    ready.ok("boot-rest")
    assert len(ready.active()) == (0 if state is State.CEASING else len(WITH_STANDBY))
    assert (ready.root / "run/boot").exists()


# --- etcd's former static pod ------------------------------------------------------------------------


@pytest.fixture
def cut(ready):
    """`up` has taken etcd's static pod away, and nothing more was heard of it."""
    inputs = inputs_of(a_cluster())
    file = render_node.manifest(etcd.member_pod(inputs, inputs.cluster.node("n1")))
    (ready.root / "former.json").write_bytes(file.content)
    (ready.root / "member/wal").mkdir(parents=True)
    ready.manifests.mkdir(exist_ok=True)
    return ready, ready.manifests / Path(file.path).name, file.content


@pytest.mark.parametrize("verb", ["restore-etcd", "boot"])
def test_a_static_pod_of_etcd_that_was_taken_away_comes_back_complete(cut, verb):
    place, path, content = cut
    place.ok(verb)
    assert path.read_bytes() == content
    before = sorted(place.manifests.iterdir())
    place.ok("restore-etcd")
    assert sorted(place.manifests.iterdir()) == before


@pytest.mark.parametrize(
    "why", ["another is there", "its data has gone", "nothing is kept", "what is kept is incomplete"]
)
def test_it_does_not_come_back_where_a_member_runs_or_has_left(cut, why):
    place, path, content = cut
    match why:
        case "another is there":
            (place.manifests / "etcd-00000000.json").write_text("{}")
        case "its data has gone":
            (place.root / "member/wal").rmdir()
        case "nothing is kept":
            (place.root / "former.json").unlink()
        case _:
            (place.root / "former.json").write_bytes(content[: len(content) // 2] + b"\n")
    place.ok("restore-etcd")
    assert not path.exists()


def test_anything_else_explains_itself(place):
    result = place.run("help")
    assert result.returncode == 2
    assert "standby boot" in result.stderr


# --- revisions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", WITH_STANDBY)
def test_a_revision_is_named_by_its_content(component):
    assert revision(component) == revision(component)
    assert revision(component).name != revision(component, extra_args={component: {"v": "5"}}).name
    others = {revision(other).directory for other in WITH_STANDBY}
    assert len(others) == len(WITH_STANDBY)


@pytest.mark.parametrize("component", WITH_STANDBY)
def test_a_revision_holds_all_its_pod_mounts_root_only(component):
    made = revision(component)
    assert all(file.mode == 0o600 for file in made.files)
    assert all(isinstance(file, File) and file.path.startswith(f"{made.directory}/") for file in made.files)
    own, leaves = pod_of_revision(made)["spec"]["volumes"]
    assert own["hostPath"] == {"path": f"{made.directory}/files", "type": "Directory"}
    assert leaves["hostPath"] == {"path": f"/var/lib/autarky/leaves/{component}", "type": "Directory"}
    assert pods.ACTIVATION in pod_of_revision(made)["metadata"]["name"]


def test_the_script_may_be_run_by_root_only_to_write_and_by_all_to_read():
    assert (standby.script().path, standby.script().mode) == ("/var/lib/autarky/bin/standby", 0o755)


# --- the lock ----------------------------------------------------------------------------------------------


@contextmanager
def held(place: Place) -> Iterator[None]:
    """Somebody else has the lock and does not let it go."""
    lock = place.root / "run/standby.lock"
    with subprocess.Popen(["flock", "--no-fork", str(lock), "sleep", "60"]) as holder:
        while subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode == 0:
            time.sleep(0.01)
        try:
            yield
        finally:
            holder.kill()


NEXT = revision(extra_args={API: {"v": "5"}})


@pytest.mark.parametrize(
    "arguments",
    [
        ("activate", "kube-scheduler"),
        ("renew", API),
        ("withdraw", API),
        ("switch", API, NEXT.name),
        ("boot-rest",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_its_lock_the_script_changes_nothing_and_says_so(ready: Place, arguments: tuple[str, ...]) -> None:
    """Where there is something to do for each verb, as is seen once the lock is free."""
    ready.ok("activate", API)
    ready.write(NEXT)
    before = contents(ready.root)
    with held(ready):
        ended = ready.run(*arguments)
        assert ended.returncode == standby.NO_LOCK
        assert "nothing was done" in ended.stderr
        assert "standby.lock is held" in ended.stderr
        assert contents(ready.root) == before
    ready.ok(*arguments)
    assert contents(ready.root) != before


def test_without_its_lock_the_kubelets_start_goes_on(ready: Place) -> None:
    with held(ready):
        ended = ready.run("boot")
    assert ended.returncode == 0
    assert "going on without the lock" in ended.stderr
    assert [pod["metadata"]["name"].startswith(API) for pod in ready.active()] == [True]


def test_where_the_lock_cannot_be_made_the_kubelets_start_goes_on_and_nothing_else(ready: Place) -> None:
    lock = ready.root / "run/standby.lock"
    lock.unlink()
    lock.mkdir()
    assert ready.run("activate", API).returncode == standby.NO_LOCK
    assert ready.active() == []
    assert ready.run("boot").returncode == 0
    assert len(ready.active()) == 1


def test_nobody_but_root_may_open_the_lock(ready: Place) -> None:
    """Who may read it may hold it. One that an earlier release has left open to all is closed."""
    run, lock = ready.root / "run", ready.root / "run/standby.lock"
    run.chmod(0o755)
    lock.chmod(0o644)
    ready.ok("activate", API)
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert stat.S_IMODE(run.stat().st_mode) == 0o700


def contents(root: Path) -> dict[str, bytes | str]:
    """All that the script may change: path → where a link points to, or what is in a file; "" for a directory."""
    found: dict[str, bytes | str] = {}
    for path in root.rglob("*"):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path != root / "script":
            found[str(path)] = path.read_bytes() if path.is_file() else ""
    return found
