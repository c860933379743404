"""What the host in memory promises, tried on it and on a test host: phases are tested on the one and run on the other.

What it does not promise, its docstring names.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.kubelet.manifests import files as kubelet_files
from autarky.control.kubelet.manifests import generation
from autarky.control.slots import manifests as standby
from autarky.errors import CommandFailed, Held
from autarky.model.components import WITH_STANDBY
from autarky.model.files import File
from autarky.model.versions import Version
from autarky.phases import binaries, etcd_programs, generations, standbys
from autarky.ports import Host
from autarky.render import node as render_node
from fakes.clusters import a_cluster, inputs_of
from fakes.host import FakeHost

HERE = "/var/lib/contract"
API, SCHEDULER = "kube-apiserver", "kube-scheduler"
UNIT = "contract.service"
_UNIT_TEXT = (
    b"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
)


@pytest.fixture(params=["fake", "lab"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    if request.param == "fake":
        yield FakeHost("n1")
        return
    machine = request.getfixturevalue("machine")
    _clean(machine.root)
    yield machine.entered
    _clean(machine.root)


def _clean(root: Path) -> None:
    for directory in (HERE, places.STANDBY, places.MANIFESTS, kubelet_files.KUBELETS, binaries.STORE, places.BIN):
        shutil.rmtree(root / directory.removeprefix("/"), ignore_errors=True)


async def status(host: Host, *argv: str) -> int:
    """Of a program that fails, also by the error that it is."""
    said = await host.run(argv, check=False)
    with pytest.raises(CommandFailed) as caught:
        await host.run(argv)
    assert (caught.value.status, caught.value.stderr) == (said.status, said.stderr)
    return said.status


# --- files -----------------------------------------------------------------------------------------


async def test_files_are_read_as_they_were_written_with_their_modes(host):
    files = [File(f"{HERE}/a/one", b"one\n"), File(f"{HERE}/a/two", bytes(range(256)), 0o600)]
    await host.write_files(files)
    assert [await host.read(file.path) for file in files] == [file.content for file in files]
    assert await host.read(f"{HERE}/absent") is None
    assert await host.digests([*(file.path for file in files), f"{HERE}/absent", f"{HERE}/a"]) == {
        file.path: (hashlib.sha256(file.content).hexdigest(), file.mode) for file in files
    }
    await host.write_files([File(files[0].path, b"another\n", 0o640)])
    assert await host.digests([files[0].path]) == {files[0].path: (hashlib.sha256(b"another\n").hexdigest(), 0o640)}


async def test_a_file_that_is_longer_than_it_may_be_is_not_read(host):
    await host.write_files([File(f"{HERE}/one", b"0123456789"), File(f"{HERE}/empty", b"")])
    assert await host.read(f"{HERE}/one", most=10) == b"0123456789"
    assert await host.read(f"{HERE}/empty", most=0) == b""
    assert await host.read(f"{HERE}/absent", most=9) is None
    with pytest.raises(CommandFailed, match="the file has more than 9 bytes"):
        await host.read(f"{HERE}/one", most=9)


async def test_a_file_is_pulled_privately_or_not_at_all(host, tmp_path):
    await host.write_files([File(f"{HERE}/one", b"one")])
    await host.pull(f"{HERE}/one", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"one"
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandFailed, match="no such file"):
        await host.pull(f"{HERE}/absent", tmp_path / "target")


async def test_a_directory_is_neither_read_nor_written_nor_removed_as_a_file(host, tmp_path):
    (tmp_path / "source").write_bytes(b"pushed")
    await host.write_files([File(f"{HERE}/a/b/one", b"one")])
    for path in (f"{HERE}/a", f"{HERE}/a/b"):
        with pytest.raises(CommandFailed, match="Is a directory"):
            await host.read(path)
        with pytest.raises(CommandFailed, match="Is a directory"):
            await host.read(path, most=9)
        with pytest.raises(CommandFailed, match="Is a directory"):
            await host.remove([path])
        with pytest.raises(CommandFailed, match="directory"):
            await host.write_files([File(path, b"")])
        with pytest.raises(CommandFailed, match="directory"):
            await host.push(tmp_path / "source", path, mode=0o644)
    assert await host.read(f"{HERE}/a/b/one") == b"one"


async def test_below_a_file_there_is_no_place_for_another(host, tmp_path):
    (tmp_path / "source").write_bytes(b"pushed")
    await host.write_files([File(f"{HERE}/file", b"one")])
    with pytest.raises(CommandFailed):
        await host.write_files([File(f"{HERE}/file/deeper", b"")])
    with pytest.raises(CommandFailed, match="push"):
        await host.push(tmp_path / "source", f"{HERE}/file/deeper", mode=0o644)
    assert await host.read(f"{HERE}/file/deeper") is None


async def test_files_before_one_that_cannot_be_written_are_there_and_none_after_it(host):
    await host.write_files([File(f"{HERE}/taken/one", b"")])
    with pytest.raises(CommandFailed):
        await host.write_files([File(f"{HERE}/{name}", b"new") for name in ("before", "taken", "after")])
    assert [await host.read(f"{HERE}/{name}") for name in ("before", "after")] == [b"new", None]


async def test_a_push_is_complete_and_leaves_alone_what_is_there(host, tmp_path):
    source, target = tmp_path / "source", f"{HERE}/new/target"
    source.write_bytes(b"pushed")
    await host.push(source, target, mode=0o755)
    assert await host.digests([target]) == {target: (hashlib.sha256(b"pushed").hexdigest(), 0o755)}
    before = await changes_of(host, target)
    await host.push(source, target, mode=0o755)
    assert await changes_of(host, target) == before
    await host.push(source, target, mode=0o700)
    assert (await host.digests([target]))[target][1] == 0o700
    source.write_bytes(b"another")
    await host.push(source, target, mode=0o700)
    assert await host.read(target) == b"another"
    assert await changes_of(host, target) != before


async def changes_of(host: Host, path: str) -> object:
    """Another one after each change of the file."""
    return len(host.log) if isinstance(host, FakeHost) else (await host.run(["stat", "-c", "%i %z", path])).text


async def test_removing_passes_over_what_is_absent(host):
    await host.write_files([File(f"{HERE}/one", b""), File(f"{HERE}/two", b"")])
    await host.remove([f"{HERE}/one", f"{HERE}/absent", f"{HERE}/absent/deeper", f"{HERE}/two"])
    assert [await host.read(f"{HERE}/{name}") for name in ("one", "two")] == [None, None]


# --- links -----------------------------------------------------------------------------------------


@pytest.fixture
async def linked(host: Host) -> Host:
    """There is a link to there/target."""
    await host.write_files([File(f"{HERE}/there/target", b"target", 0o640)])
    await binaries.point_links(host, {f"{HERE}/link": f"{HERE}/there/target"})
    return host


async def test_a_link_is_followed_to_be_read(linked):
    assert await linked.read(f"{HERE}/link") == b"target"
    digest = hashlib.sha256(b"target").hexdigest()
    assert await linked.digests([f"{HERE}/link"]) == {f"{HERE}/link": (digest, 0o640)}


async def test_a_link_is_moved_in_one_go_and_a_file_gives_way_to_one(linked):
    await linked.write_files([File(f"{HERE}/there/other", b"other"), File(f"{HERE}/plain", b"")])
    await binaries.point_links(linked, dict.fromkeys((f"{HERE}/link", f"{HERE}/plain"), f"{HERE}/there/other"))
    assert [await linked.read(f"{HERE}/{name}") for name in ("link", "plain")] == [b"other", b"other"]
    assert await linked.read(f"{HERE}/there/target") == b"target"


async def test_a_link_is_replaced_and_removed_itself_and_not_what_it_leads_to(linked):
    await linked.write_files([File(f"{HERE}/link", b"a file now")])
    assert [await linked.read(f"{HERE}/{name}") for name in ("link", "there/target")] == [b"a file now", b"target"]
    await binaries.point_links(linked, {f"{HERE}/link": f"{HERE}/there/target"})
    await linked.remove([f"{HERE}/link"])
    assert [await linked.read(f"{HERE}/{name}") for name in ("link", "there/target")] == [None, b"target"]


async def test_a_link_whose_target_has_gone_is_absent_to_whoever_reads(linked):
    await linked.remove([f"{HERE}/there/target"])
    assert await linked.read(f"{HERE}/link") is None
    assert await linked.digests([f"{HERE}/link"]) == {}


async def test_no_link_takes_the_place_of_a_directory_nor_a_directory_that_of_a_file(linked):
    with pytest.raises(CommandFailed, match="directory"):
        await binaries.point_links(linked, {f"{HERE}/there": f"{HERE}/there/target"})
    assert await linked.read(f"{HERE}/there/target") == b"target"
    assert await status(linked, "install", "-d", "-m", "700", f"{HERE}/there/target") == 1
    assert await linked.read(f"{HERE}/there/target") == b"target"


async def test_links_that_lead_to_each_other_are_absent_to_whoever_reads(linked):
    await linked.write_files([File(f"{HERE}/there/other", b"other")])
    await binaries.point_links(linked, {f"{HERE}/there/back": f"{HERE}/there/other"})
    await binaries.point_links(linked, {f"{HERE}/link": f"{HERE}/there/back"})
    await binaries.point_links(linked, {f"{HERE}/there/back": f"{HERE}/link"})
    assert await linked.read(f"{HERE}/link") is None
    assert await linked.digests([f"{HERE}/link"]) == {}
    await linked.remove([f"{HERE}/link"])
    assert await linked.read(f"{HERE}/there/back") is None


async def test_a_list_shows_files_links_and_directories_but_nothing_hidden(linked):
    await linked.write_files([File(f"{HERE}/.hidden", b""), File(f"{HERE}/plain", b"")])
    await linked.run(["install", "-d", "-m", "700", f"{HERE}/empty"])
    assert (await linked.run(["ls", HERE])).text.split() == ["empty", "link", "plain", "there"]
    assert (await linked.run(["ls", f"{HERE}/empty"])).text == ""


async def test_the_list_of_what_is_not_there_is_a_failure(host):
    assert await status(host, "ls", f"{HERE}/absent") == 2


# --- programs --------------------------------------------------------------------------------------


async def test_a_program_that_is_not_there_is_a_failure(host):
    assert await status(host, render_node.BINARIES["kubelet"], "--version") == 127


def etcds_program(version: str) -> tuple[str, File]:
    """Where it is called, and where it lies; what it says is what the three programs have in common."""
    content = f"#!/bin/sh\necho 'etcd Version: {version}'\necho 'API version: 9.9'\n".encode()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return f"{HERE}/bin/{digest}/etcd", File(f"{HERE}/store/etcd-{digest}", content, 0o755)


async def test_etcds_programs_are_of_the_version_that_they_say_while_they_are_intact(host):
    programs = [etcds_program(version) for version in ("3.7.3", "3.10.0", "main", "3.5.35")]
    await host.write_files([file for _, file in programs])
    await binaries.point_links(host, {path: file.path for path, file in programs})
    [new, newer, odd, damaged] = [path for path, _ in programs]
    await host.write_files([replace(programs[-1][1], content=programs[-1][1].content + b"\n")])
    plain = f"{HERE}/bin/etcd"
    await host.write_files([File(plain, programs[0][1].content, 0o755)])
    seen = await etcd_programs.versions(host, [new, newer, odd, damaged, plain, f"{HERE}/bin/absent"])
    assert seen == {new: Version(3, 7, 3), newer: Version(3, 10, 0)}
    stored = [file.path for _, file in programs]
    assert await etcd_programs.versions(host, stored) == {stored[0]: Version(3, 7, 3), stored[1]: Version(3, 10, 0)}


async def test_a_unit_is_active_from_its_start_to_its_stop(host):
    await host.write_files([File(f"/etc/systemd/system/{UNIT}", _UNIT_TEXT)])
    await host.run(["systemctl", "daemon-reload"])
    for starts in (["restart"], ["start"], ["enable", "--now"]):
        assert await status(host, "systemctl", "is-active", UNIT) == 3
        assert (await host.run(["systemctl", "is-active", UNIT], check=False)).text == "inactive"
        await host.run(["systemctl", *starts, UNIT])
        assert (await host.run(["systemctl", "is-active", UNIT])).text == "active"
        await host.run(["systemctl", "stop", UNIT])
    await host.run(["systemctl", "enable", UNIT])
    assert await status(host, "systemctl", "is-active", UNIT) == 3, "enabled for the next boot only"
    await host.run(["systemctl", "start", UNIT])
    await host.run(["systemctl", "disable", UNIT])
    assert (await host.run(["systemctl", "is-active", UNIT])).text == "active", "only the next boot is without it"
    await host.run(["systemctl", "disable", "--now", UNIT])
    assert await status(host, "systemctl", "is-active", UNIT) == 3
    await host.remove([f"/etc/systemd/system/{UNIT}"])


async def test_a_unit_whose_file_has_changed_is_to_be_read_again(host):
    path = f"/etc/systemd/system/{UNIT}"
    asked = ["systemctl", "show", "--property=ActiveState", "--property=NeedDaemonReload", UNIT, "contract-none.path"]

    async def said() -> list[set[str]]:
        return [set(block.splitlines()) for block in (await host.run(asked)).text.split("\n\n")]

    none = {"ActiveState=inactive", "NeedDaemonReload=no"}
    assert await said() == [none, none]
    await host.write_files([File(path, _UNIT_TEXT)])
    await host.run(["systemctl", "daemon-reload"])
    await host.run(["systemctl", "start", UNIT])
    assert await said() == [{"ActiveState=active", "NeedDaemonReload=no"}, none]
    await host.write_files([File(path, _UNIT_TEXT + b"# changed\n")])
    assert await said() == [{"ActiveState=active", "NeedDaemonReload=yes"}, none]
    await host.run(["systemctl", "daemon-reload"])
    assert await said() == [{"ActiveState=active", "NeedDaemonReload=no"}, none]
    await host.run(["systemctl", "stop", UNIT])
    await host.remove([path])


async def test_what_is_done_later_is_begun_once_under_one_name_until_it_is_called_off(host):
    later = ["systemd-run", "--quiet", "--collect", "--unit=contract-later", "--on-active=600", "true"]
    assert await status(host, "systemctl", "stop", "contract-later.timer") == 5
    for _ in range(2):
        await host.run(later)
        assert await status(host, *later) == 1
        await host.run(["systemctl", "stop", "contract-later.timer"])


async def test_a_host_says_what_it_is(host):
    facts = await host.facts()
    assert (host.name, facts.hostname) == ("n1", "n1")
    assert facts.memory_total > 0


async def test_of_two_holders_of_a_lock_the_second_is_told_who_the_first_is(host):
    path = f"{HERE}/lock"
    with pytest.raises(CommandFailed):  # it makes no directory
        async with host.hold(path, "me"):
            raise AssertionError("a lock in no place")
    await host.run(["install", "-d", "-m", "700", HERE])
    async with host.hold(path, "it's me"):
        assert await host.read(path) == b"it's me\n"
        assert (await host.digests([path]))[path][1] == 0o600, "no other user of the host may hold it instead"
        with pytest.raises(Held) as caught:
            async with host.hold(path, "you"):
                raise AssertionError("two of them")
        assert caught.value.holder == "it's me"
        async with host.hold(f"{HERE}/another", "you"):
            pass
    assert await host.read(path) is None
    async with host.hold(path, "you"):
        pass


# --- generations of the kubelet: what phases ask a host, and its script ----------------------------------------


@pytest.fixture
async def of_kubelets(host: Host) -> Host:
    """With programs, in the store, and the script; nothing is in bin/ but what a test puts there."""
    await host.write_files([kubelet_files.script(), *(File(path, b"#!/bin/sh\n", 0o755) for path in PROGRAMS.values())])
    return host


PROGRAMS = {name: f"{binaries.STORE}/{name}-contract" for name in kubelet_files.PROGRAMS}


def a_generation(config: bytes = b"{}\n") -> generations.First:
    contents = {kubelet_files.CONFIG: config, kubelet_files.ARGUMENTS: b"--v=1\n", kubelet_files.VERSION: b"v1.36.4\n"}
    return generations.First(generation.Generation(PROGRAMS, contents))


async def test_a_host_on_which_no_kubelet_runs_says_so(of_kubelets):
    assert await generations.running(of_kubelets) == ("", ())


async def test_a_generation_is_made_the_current_one_and_the_one_before_is_kept(of_kubelets):
    made, other = a_generation(), a_generation(b'{"kind": "x"}\n')
    for one in (made, made, other):
        await generations.make(of_kubelets, one)
        assert await of_kubelets.read(f"{kubelet_files.CURRENT}/{kubelet_files.CONFIG}") == one.files[0].content
    assert await of_kubelets.read(f"{kubelet_files.PREVIOUS}/{kubelet_files.CONFIG}") == made.files[0].content
    assert await of_kubelets.read(f"{kubelet_files.CURRENT}/kubelet") == b"#!/bin/sh\n"


@pytest.mark.parametrize("lacking", [kubelet_files.COMPLETE, "links"])
async def test_what_is_no_complete_generation_does_not_become_the_current_one(of_kubelets, lacking):
    made, other = a_generation(), a_generation(b'{"kind": "x"}\n')
    await generations.make(of_kubelets, made)
    directory = other.generation.directory
    await of_kubelets.write_files(other.files)
    if lacking == "links":
        await of_kubelets.write_files([File(f"{directory}/{kubelet_files.COMPLETE}", other.generation.complete)])
    else:
        await binaries.point_links(of_kubelets, {f"{directory}/{name}": path for name, path in PROGRAMS.items()})
    command = [kubelet_files.SCRIPT_PATH, "switch", other.generation.name]
    said = await of_kubelets.run(command, check=False)
    assert said.stderr.strip() == f"the generation {other.generation.name} is not complete"
    assert await status(of_kubelets, *command) == 1
    assert await of_kubelets.read(f"{kubelet_files.CURRENT}/{kubelet_files.CONFIG}") == made.files[0].content


async def test_links_in_bin_lead_to_the_generation_in_force_and_what_is_put_there_by_hand_is_left(of_kubelets):
    await generations.make(of_kubelets, a_generation())
    paths = render_node.BINARIES
    await of_kubelets.write_files([File(paths["ctr"], b"by hand", 0o755)])
    await binaries.point_links(of_kubelets, {paths["kubelet"]: PROGRAMS["kubelet"]})
    missing = await generations.missing_links(of_kubelets)
    assert missing == {path: target for path, target in generations.LINKS.items() if path != paths["ctr"]}
    where = [paths["kubelet"], paths["ctr"], f"{places.BIN}/nowhere"]
    assert await generations._in_place(of_kubelets, where) == [PROGRAMS["kubelet"], *where[1:]]
    await binaries.point_links(of_kubelets, missing)
    assert await generations.missing_links(of_kubelets) == {}
    assert await generations._in_place(of_kubelets, where) == [PROGRAMS["kubelet"], *where[1:]]


# --- the standby's script: the cases of tests/unit/render/test_standby_script.py that phases come to -----------


def revision(component: str = API, **cluster) -> standby.Revision:
    return standby.revision(inputs_of(a_cluster(**cluster)), component)


NEXT = revision(extra_args={API: {"v": "5"}})


@pytest.fixture
async def scripted(host: Host) -> Host:
    await host.write_files([standby.script()])
    return host


@pytest.fixture
async def ready(scripted: Host) -> Host:
    """A complete revision of every component."""
    for component in WITH_STANDBY:
        await standbys.put_revision(scripted, revision(component))
    return scripted


async def listed(host: Host) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    return standby.parse_list((await host.run([standby.SCRIPT_PATH, "list"])).text)


async def run(host: Host, *arguments: str) -> None:
    await host.run([standby.SCRIPT_PATH, *arguments])


async def test_a_host_without_standbys_lists_none(scripted):
    assert await listed(scripted) == dict.fromkeys(WITH_STANDBY, (None, ()))


async def test_an_activation_is_listed_and_a_second_one_changes_nothing(ready):
    await run(ready, "activate", API)
    found = await listed(ready)
    name, [activation] = found.pop(API)
    assert (name, len(activation)) == (revision().name, 8)
    assert found == {c: (revision(c).name, ()) for c in WITH_STANDBY if c != API}
    await run(ready, "activate", API)
    assert (await listed(ready))[API] == (revision().name, (activation,))


async def test_a_withdrawal_takes_away_this_components_activation_and_the_next_has_another_name(ready):
    seen = set()
    await run(ready, "activate", SCHEDULER)
    for _ in range(3):
        await run(ready, "activate", API)
        seen |= {*(await listed(ready))[API][1]}
        await run(ready, "withdraw", API)
        assert (await listed(ready))[API] == (revision().name, ())
    await run(ready, "withdraw", API)
    assert len(seen) == 3
    assert len((await listed(ready))[SCHEDULER][1]) == 1


async def test_a_switch_makes_a_revision_the_current_one_and_is_not_made_twice(ready):
    assert await standbys.missing_revisions(ready, [revision(), NEXT]) == [NEXT]
    for _ in range(2):
        await standbys.put_revision(ready, NEXT)
        assert (await listed(ready))[API] == (NEXT.name, ())
    assert await standbys.missing_revisions(ready, [revision(), NEXT]) == [revision()]
    pod = f"{places.STANDBY}/{API}/{{}}/pod.json"
    assert await ready.read(pod.format("current")) == NEXT.files[-1].content
    assert await ready.read(pod.format("previous")) == revision().files[-1].content


async def test_what_is_in_place_in_another_revision_is_outdated_until_it_is_renewed(ready):
    for component in (API, SCHEDULER):
        await run(ready, "activate", component)
    assert await standbys.outdated(ready) == []
    await standbys.put_revision(ready, NEXT)
    assert await standbys.outdated(ready) == [API]
    before = await listed(ready)
    await standbys.renew_outdated(ready, [SCHEDULER])
    assert await listed(ready) == before
    await standbys.renew_outdated(ready, WITH_STANDBY)
    after = await listed(ready)
    assert len(after[API][1]) == 1
    assert after[API][1] != before[API][1]
    assert after[SCHEDULER] == before[SCHEDULER]
    assert await standbys.outdated(ready) == []
    await run(ready, "withdraw", API)
    await run(ready, "renew", API)
    assert (await listed(ready))[API] == (NEXT.name, ())


@pytest.mark.parametrize(
    "there", [(), NEXT.files[:-1], (File(NEXT.files[-1].path, b"{"),)], ids=["absent", "cut", "torn"]
)
async def test_what_is_not_a_complete_revision_does_not_become_the_current_one(ready, there):
    await ready.write_files(there)
    said = await ready.run([standby.SCRIPT_PATH, "switch", API, NEXT.name], check=False)
    assert said.stderr.strip() == f"no revision {NEXT.name} of {API}"
    assert await status(ready, standby.SCRIPT_PATH, "switch", API, NEXT.name) == 1
    assert (await listed(ready))[API] == (revision().name, ())


async def test_without_a_complete_revision_nothing_is_activated(scripted):
    await scripted.write_files(revision().files)
    said = await scripted.run([standby.SCRIPT_PATH, "activate", API], check=False)
    assert said.stderr.strip() == f"no complete standby of {API}"
    assert await status(scripted, standby.SCRIPT_PATH, "activate", API) == 1
    assert (await listed(scripted))[API] == (None, ())


async def test_instead_of_a_torn_revision_the_previous_one_is_activated(ready):
    await standbys.put_revision(ready, NEXT)
    await ready.write_files([File(NEXT.files[-1].path, b"{")])
    await run(ready, "activate", API)
    assert len((await listed(ready))[API][1]) == 1
