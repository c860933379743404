"""The kubelet's files as the agent reads and writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autarky import places
from autarky.control.kubelet.decide import proof
from autarky.control.kubelet.decide.observed import Asked, Final, Outcome, Phase, Result, Trial
from autarky.control.kubelet.decide.proof import Verdict
from autarky.control.kubelet.decide.report import State
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.node.on_disk import FORMER_OF_UP, FRESH_SECONDS, KubeletFiles
from autarky.model import ports
from autarky.phases import former_settings
from unit.control.kubelet.node_scene import DIGEST, NEW, OLD, V36, V37, an_order, on_disk, stage
from unit.control.kubelet.staging_scene import switch

ORDER = an_order().id
ASKED = Asked(ORDER, 3, 1, V37, "boot-1", proof.Before(ready=False, sandboxes={"s": "u"}, pods={"u": "shop/web"}))
FINAL = Final(ORDER, 3, 1, State.WENT_BACK, "it was not proven", interrupted=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return on_disk(tmp_path / "root")


def read(root: Path):
    found = KubeletFiles(root).read()
    assert found is not None
    return found.disk


def put(root: Path, name: str, **values: object) -> None:
    (root / "kubelet" / name).write_bytes(files.written(values))


def test_what_is_in_force_is_known_by_the_links(root):
    assert (read(root).base, read(root).target, read(root).version, read(root).former) == (
        DIGEST,
        OLD.digest,
        V36,
        None,
    )
    switch(root, stage(root, NEW))
    assert (read(root).target, read(root).version, read(root).former) == (NEW.digest, V37, V36)
    (root / "kubelet/current").unlink()
    (root / "kubelet/current").symlink_to("../elsewhere")
    assert (read(root).current, read(root).target) == ("", "")


def test_what_cannot_be_read_is_not_nothing(root):
    (root / "kubelet/trial").mkdir()
    with pytest.raises(OSError, match="directory"):
        read(root)


@pytest.mark.parametrize(
    ("values", "trial"),
    [
        ({"order": "o", "former": "g", "phase": "forth"}, Trial("o", Phase.FORTH)),
        ({"order": "o", "former": "g", "phase": "proving"}, Trial("o", Phase.PROVING)),
        ({"order": "o", "former": "g", "phase": "back"}, Trial("o", Phase.BACK)),
        ({"order": "o", "former": "g", "phase": "of a later release"}, Trial("o", Phase.BACK)),
        ({"order": "o", "former": "../g", "phase": "proving"}, None),
        ({"former": "g", "phase": "proving"}, None),
    ],
)
def test_a_trial_is_read_as_the_script_reads_it(root, values, trial):
    put(root, "trial", **values)
    assert read(root).trial == trial


def test_an_ask_and_a_result(root):
    put(root, "ask", order="o")
    put(root, "result", order="o", result="failed", boot="b", why="it was not proven")
    assert (read(root).ask, read(root).result) == ("o", Result("o", Outcome.FAILED, "b", "it was not proven"))
    put(root, "result", order="o", result="of a later release")
    (root / "kubelet/ask").write_text("")
    assert read(root).result is None
    assert read(root).ask, "the script has yet to drop it"


def test_notes_are_read_as_they_were_written(root):
    disk = KubeletFiles(root)
    disk.note_asked(ASKED)
    assert (read(root).asked, read(root).last) == (ASKED, None)
    disk.note_final(FINAL)
    assert (read(root).asked, read(root).last) == (ASKED, FINAL)
    disk.note_asked(replace(ASKED, number=4))
    assert (read(root).asked, read(root).last) == (replace(ASKED, number=4), FINAL)
    assert (root / "state/kubelet-order.json").stat().st_mode & 0o777 == 0o600


def test_whether_settings_change_is_noted_and_true_in_a_note_of_an_earlier_release(root):
    disk, notes = KubeletFiles(root), root / "state/kubelet-order.json"
    disk.note_asked(replace(ASKED, settings=False))
    assert read(root).asked == replace(ASKED, settings=False)
    said = json.loads(notes.read_text())
    del said["asked"]["settings"]
    notes.write_text(json.dumps(said))
    assert read(root).asked == ASKED


def test_a_note_of_an_earlier_release_names_no_pods(root):
    disk, notes = KubeletFiles(root), root / "state/kubelet-order.json"
    disk.note_asked(ASKED)
    said = json.loads(notes.read_text())
    del said["asked"]["before"]["pods"]
    notes.write_text(json.dumps(said))
    assert read(root).asked == replace(ASKED, before=replace(ASKED.before, pods={}))


def test_one_note_that_is_damaged_is_not_both(root):
    disk = KubeletFiles(root)
    disk.note_asked(ASKED)
    disk.note_final(FINAL)
    notes = root / "state/kubelet-order.json"
    notes.write_text(notes.read_text().replace('"version": "v1.37.1"', '"version": 7'))
    assert (read(root).asked, read(root).last) == (None, FINAL)
    notes.write_text(notes.read_text().replace('"WentBack"', '"Proving"'))
    assert read(root).last is None


def test_an_ask_replaces_no_other(root):
    disk = KubeletFiles(root)
    assert disk.ask("mine", "gen", "boot", 7)
    assert not disk.ask("another", "gen", "boot", 8)
    values = files.parse((root / "kubelet/ask").read_bytes())
    assert values == {"order": "mine", "generation": "gen", "boot": "boot", "uptime": "7", "limit": str(files.LIMIT)}
    assert not list((root / "kubelet").glob(".*"))


def test_a_verdict_is_kept_fresh_only_where_that_counts(root):
    disk = KubeletFiles(root)

    def written(verdict: Verdict, uptime: int, why: str = "a reason") -> str:
        disk.give_verdict("o", verdict, uptime, why)
        return files.parse((root / "kubelet/verdict").read_bytes())["uptime"]

    assert written(Verdict.UNPROVEN, 1) == "1"
    assert written(Verdict.UNPROVEN, 100) == "1"
    assert written(Verdict.UNPROVEN, 101, "another\nreason ") == "101"
    assert written(Verdict.WAIT, 102) == "102"
    assert written(Verdict.WAIT, 101 + FRESH_SECONDS) == "102"
    assert written(Verdict.WAIT, 102 + FRESH_SECONDS) == str(102 + FRESH_SECONDS)
    assert written(Verdict.WAIT, 1) == "1", "another boot"
    assert FRESH_SECONDS < files.WAIT_SECONDS / 2


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        ("", ports.KUBELET_HEALTH),
        ("--v=2\n--healthz-port=10999\n", 10999),
        ("--healthz-port=1\n--healthz-port=2\n", 2),
        ("--healthz-port=2\n--healthz-port=0\n", None),
        ("--healthz-bind-address=192.0.2.1\n", None),
        ("--x=--healthz-bind-address=1\n", ports.KUBELET_HEALTH),
        ("--healthz-port=many\n", 0),
    ],
)
def test_where_a_kubelet_says_how_it_is(root, arguments, port):
    (root / "kubelet/current" / files.ARGUMENTS).write_text(arguments)
    assert KubeletFiles(root).health_port() == port


def test_what_an_up_of_before_is_in_the_middle_of(root):
    """By the name that it has there."""
    assert f"{places.HOST_ROOT}/{FORMER_OF_UP}" == former_settings.FORMER
    assert not KubeletFiles(root).is_changed_by_up()
    (root / FORMER_OF_UP).write_text("{}")
    assert KubeletFiles(root).is_changed_by_up()
