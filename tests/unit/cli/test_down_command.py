"""`autarky down` says what goes and asks; where nobody can answer it wants --yes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autarky import places
from autarky.cli.down import refuse_what_cannot_be_left, tell_of_silent
from autarky.cli.main import main
from autarky.control.certificates.manifests.specs import certificate_specs
from autarky.errors import CommandFailed, Refused, Unreachable, UserError
from autarky.model.cluster import HostRef
from autarky.payload import load_release
from autarky.phases.context import Context
from autarky.phases.migration.marking import new_mark
from autarky.phases.teardown import doomed
from autarky.pki import PkiStore
from autarky.places import NODE_MARKER, cluster_dir
from autarky.workflows.down import phases
from fakes.clusters import a_cluster
from fakes.host import CleanableHost, FakeMachines


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cluster.json"
    spec = {"nodes": [{"name": "n1", "host": "lab"}]}
    document = {"apiVersion": "autarky.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "gone"}, "spec": spec}
    path.write_text(json.dumps(document))
    return path


def answered(file, answer):
    """(status, what was said on standard error) of `down` on a terminal."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-m", "autarky", "down", "-f", str(file)],
        stdin=theirs, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    os.close(theirs)
    os.close(ours)
    return done.returncode, done.stdout, done.stderr


def test_without_a_terminal_it_wants_yes(file, capsys, monkeypatch):
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        for more in ((), ("-o", "json")):
            assert main(["down", "-f", str(file), *more]) == 2
            said = capsys.readouterr().err
            assert "Remove the cluster gone?" in said
            assert "fix: say --yes" in said


@pytest.fixture
def kept():
    """What this machine knows of the cluster."""
    path = cluster_dir("gone") / "cluster.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return path


@pytest.mark.parametrize("answer", ["n", "", "yesterday\nn"])
def test_on_a_terminal_it_asks_and_takes_nothing_away_unless_the_answer_is_yes(file, kept, answer):
    status, out, err = answered(file, answer)
    assert (status, out) == (130, "")
    assert "Remove the cluster gone?" in err
    assert f"delete {kept.parent}" in err
    assert kept.exists()


def test_with_y_for_an_answer_it_goes_on(file, kept):
    status, out, err = answered(file, "y")
    assert (status, out) == (0, "cluster gone is gone\n"), err
    assert "Remove the cluster gone?" in err
    assert not kept.parent.exists()


def test_a_dry_run_does_not_ask(file, capsys):
    assert main(["down", "-f", str(file), "--dry-run"]) == 0


async def test_it_names_cluster_hosts_and_what_becomes_of_the_data(make_down_context):
    context = make_down_context()
    (context.directory / "cluster.json").write_text("{}")
    kept, purged = await doomed(context, purge=False), await doomed(context, purge=True)
    assert kept[0] == "node n1 on ssh://n1: all of autarky goes; etcd's data and the CA keys are moved aside"
    assert purged[0].endswith("etcd's data and the CA keys are deleted")
    assert kept[1].startswith(f"move aside {context.directory}: the keys, kubeconfig and journal of the cluster demo")
    assert purged[1].startswith(f"delete {context.directory}")


# --- hosts that do not answer -----------------------------------------------------------------------------------


class SilentHost(CleanableHost):
    """Does not answer, until it is told to."""

    answers = False

    async def read(self, path, *, most=None):
        if not self.answers:
            raise Unreachable(f"{self.name}: no route to host")
        return await CleanableHost.read(self, path, most=most)


@pytest.fixture
def three(make_down_context):
    """Three hosts, of which the second one is silent."""
    context = make_down_context(a_cluster(controls=3))
    hosts = context.machines.hosts
    hosts["n2"] = SilentHost("n2", files=hosts["n2"].files)
    (context.directory / "cluster.json").write_text("{}")
    return context


async def taken_down(context, notes, **options):
    for phase in phases(purge=False, **options):
        if await phase.plan(context):
            await phase.run(context, notes)


def cleaned(context):
    return [name for name, host in context.machines.hosts.items() if NODE_MARKER not in host.files]


async def test_a_silent_host_is_named_and_holds_up_no_other(three, notes):
    said = await doomed(three, purge=False)
    assert "node n2 does not answer and keeps all of autarky: n2: no route to host" in said
    assert [line for line in said if line.startswith(f"{three.directory} stays until the hosts")]
    await taken_down(three, notes)
    assert cleaned(three) == ["n1", "n3"]
    assert (three.directory / "cluster.json").exists()
    with pytest.raises(Unreachable, match="node n2: n2: no route to host") as reported:
        tell_of_silent(three.absent, "demo", dry_run=False)
    assert "`autarky down` again when they do, or `autarky down --leave n2`" in str(reported.value)


async def test_a_host_whose_marker_cannot_be_read_holds_up_no_other(three, notes):
    """Root on it has written it so."""
    three.machines.hosts["n2"].answers = True
    three.machines.hosts["n2"].files[NODE_MARKER] = (b" " * 100_000, 0o644)
    await taken_down(three, notes)
    assert cleaned(three) == ["n1", "n3"]
    with pytest.raises(Unreachable, match=r"node n2: n2: cat .* the file has more than"):
        tell_of_silent(three.absent, "demo", dry_run=False)


async def test_a_host_on_which_a_program_fails_holds_up_no_other(three, notes, monkeypatch):
    """Root on it has exchanged one of those that clean it."""

    async def run(*_args, **_options):
        raise CommandFailed("n2", ["sh", "-c", "…"], 1, "umount: no")

    three.machines.hosts["n2"].answers = True
    monkeypatch.setattr(three.machines.hosts["n2"], "run", run)
    await taken_down(three, notes)
    assert cleaned(three) == ["n1", "n3"]
    assert three.directory.exists()
    assert "umount: no" in three.absent["n2"]


async def test_what_a_host_says_is_one_line_of_the_question(three, notes):
    lines = "\n\n  - nothing of it goes" * 9
    three.machines.hosts["n2"].answers = True

    async def read(*_args, **_options):
        raise CommandFailed("n3", ["cat", NODE_MARKER], 1, f"no{lines}")

    three.machines.hosts["n3"].read = read
    reported = await doomed(three, purge=False)
    assert [line for line in reported if "n3" in line]
    assert not [line for line in reported if "\n" in line]


async def test_a_second_down_finishes_when_the_host_is_back(three, notes):
    await taken_down(three, notes)
    three.machines.hosts["n2"].answers = True
    await taken_down(three, notes)
    assert cleaned(three) == ["n1", "n2", "n3"]
    assert not three.directory.exists()
    tell_of_silent(three.absent, "demo", dry_run=False)


async def test_a_host_that_is_left_is_not_asked_and_keeps_what_is_on_it(three, notes):
    await taken_down(three, notes, leave=frozenset({"n2"}))
    assert cleaned(three) == ["n1", "n3"]
    assert "node n2 keeps all of autarky, as --leave says" in notes.notes
    assert not three.directory.exists()


async def test_a_host_that_falls_silent_while_it_is_cleaned_is_done_by_the_next_down(three, notes):
    three.machines.hosts["n2"].answers = True
    three.machines.hosts["n3"].fail_at = 1
    await taken_down(three, notes)
    assert cleaned(three) == ["n1", "n2"]
    assert list(three.absent) == ["n3"]
    assert three.directory.exists()
    three.machines.hosts["n3"].fail_at = None
    await taken_down(three, notes)
    assert not three.directory.exists()


def test_only_hosts_that_are_nodes_and_no_test_hosts_can_be_left(three):
    refuse_what_cannot_be_left(three.cluster, {"n2"})
    with pytest.raises(UserError, match="there is no node n9"):
        refuse_what_cannot_be_left(three.cluster, {"n9"})
    with pytest.raises(UserError, match="removed with its lab"):
        refuse_what_cannot_be_left(a_cluster(), {"n1"})


class Notes:
    def __init__(self):
        self.notes = []

    def note(self, sentence):
        self.notes.append(sentence)


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def make_down_context(tmp_path):
    def make(cluster=None):
        cluster = cluster or a_cluster()
        cluster = replace(cluster, nodes=tuple(replace(n, host=HostRef("ssh", n.name)) for n in cluster.nodes))
        pki = PkiStore(tmp_path / "demo" / "pki")
        pki.ensure(certificate_specs(cluster), cluster.certificates, datetime.now(UTC))
        hosts = {node.name: CleanableHost(node.name) for node in cluster.nodes}
        for name, host in hosts.items():
            marker = {"cluster": "demo", "node": name, "founders": [name], "ca": pki.fingerprint()}
            host.files[NODE_MARKER] = (json.dumps(marker).encode(), 0o644)
        return Context(
            cluster=cluster, release=load_release(cluster.kubernetes_version), machines=FakeMachines(hosts),  # type: ignore[arg-type]
            pki=pki, connect=lambda *_: None, clock=None, directory=tmp_path / "demo", silence=None,
        )  # fmt: skip

    return make


@pytest.mark.parametrize(
    ("opened", "purge", "stays"), [(False, False, True), (False, True, False), (True, False, False)]
)
async def test_an_etcd_that_a_copy_has_closed_is_opened_before_its_password_goes(
    make_down_context, opened, purge, stays
):
    context = make_down_context(a_cluster(controls=3))
    mark = replace(new_mark("n1", 1, ["https://db1:2379"], {}), opened=opened)
    context.machines.hosts["n1"].files[places.ETCD_COPY] = (mark.file().content, 0o600)
    clean_hosts = phases(purge=purge)[0]
    if stays:
        with pytest.raises(Refused, match="a copy of the etcd at https://db1:2379 was cut"):
            await clean_hosts.plan(context)
    else:
        assert await clean_hosts.plan(context)
