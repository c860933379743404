"""docs/measurements.md, of a run and of none."""

from __future__ import annotations

import re
from dataclasses import replace

from _document import PARTS, SECTIONS, document
from _figures import Figure
from _floor import API, CONTROLLERS, FLOOR, FLOORS, KUBELET, POD, SCHEDULER
from _record import Machine, Record, Trees
from _tree import Tree
from all import BENCHMARKS

TIME = Figure("up", "everything Ready", "s", (14.04, 13.0, 16.25), (22.0, 25.0, 20.0), 0.6)
MEMORY = Figure("up", "memory: all processes", "MiB", (900.0, 910.0, 905.0), (700.0, 710.0, 705.0))
ALONE = Figure("up", "memory: haproxy", "MiB", (18.0, 18.0, 18.0), (None, None, None))
RECORD = Record(
    date="2026-11-29T10:11:12+00:00",
    began=Trees(Tree("0123abc", (), "feed")),
    machine=Machine(cores=2, memory=24 * 2**30, kernel="6.1.0", cgroup=1),
    versions={"autarky": "0.1.0", "etcd": "v3.6.16"},
    figures=(TIME, MEMORY, ALONE),
)


def headings(text: str) -> list[str]:
    return re.findall("^#+ .+$", text, re.MULTILINE)


def section(text: str, benchmark: str) -> str:
    return text.partition(f"## {SECTIONS[benchmark].title}\n")[2].partition("\n## ")[0]


def test_without_a_run_it_says_so_and_has_no_figure():
    text = document(None)
    assert "No run has been recorded yet" in text
    assert all("Not measured yet." in section(text, name) for name in SECTIONS)
    assert "|" not in text


def test_of_a_run_it_tells_when_of_which_tree_and_where():
    text = document(RECORD)
    assert "No run has been recorded" not in text
    for reported in (
        RECORD.date,
        "`0123abc` |",
        "2 cores, 24.0 GiB",
        "Linux 6.1.0, cgroup v1",
        "autarky 0.1.0, etcd v3.6.16",
    ):
        assert reported in text


def test_every_figure_is_there_beside_kubeadms_with_its_range_its_ratio_and_what_is_wanted():
    rows = [line for line in section(document(RECORD), "up").splitlines() if line.startswith("|")]
    assert rows == [
        "| in 3 rounds | autarky | kubeadm | ratio | wanted |",
        "|---|---|---|---|---|",
        "| everything Ready | 14.0 s (13.0–16.2) | 22.0 s (20.0–25.0) | 0.64 | at most 0.6: missed |",
        "| in 3 rounds, MiB | autarky | kubeadm | ratio |",
        "|---|---|---|---|",
        "| memory: all processes | 905.0 (900.0–910.0) | 705.0 (700.0–710.0) | 1.28 |",
        "| memory: haproxy | 18.0 (18.0–18.0) | – | – |",
    ]


def test_a_measured_0_is_there_as_that():
    away = Figure("up", "outage", "s", (0.0, 0.0, 0.0), (0.0, 4.0, 5.0), most=0.0)
    assert "| outage | 0.0 s (0.0–0.0) | 4.0 s (0.0–5.0) | 0.00 | at most 0 s |" in document(
        replace(RECORD, figures=(away,))
    )


def test_what_was_not_measured_in_a_run_is_told():
    text = document(RECORD)
    assert "Not measured yet." in section(text, "reboot")
    assert "Not measured yet." not in section(text, "up")


def test_headings_are_the_same_with_a_run_and_without_so_that_links_lead_somewhere():
    assert headings(document(None)) == headings(document(RECORD))


def test_every_benchmark_has_a_section_and_each_section_a_benchmark():
    assert [FLOOR, *SECTIONS] == list(BENCHMARKS)


# --- the floor ------------------------------------------------------------------------------------

PARTS_ALONE = {KUBELET: 1.0, API: 3.0, SCHEDULER: 2.0, CONTROLLERS: 2.5, POD: 0.5}
WITH_FLOOR = RECORD.extended(
    Figure(FLOOR, part, "s", (each, each + 1, each + 2), (None, None, None)) for part, each in PARTS_ALONE.items()
)


def test_of_a_run_with_the_parts_alone_each_time_has_its_floor_before_it_and_says_what_that_is_the_sum_of():
    found = section(document(WITH_FLOOR), "up")
    assert SECTIONS["up"].floor in found
    rows = [line for line in found.splitlines() if line.startswith("|")]
    assert rows[0] == "| in 3 rounds | floor | autarky | kubeadm | ratio | wanted |"
    assert rows[2].startswith(
        "| everything Ready | 11.0 s (7.0–15.0) | 14.0 s (13.0–16.2) | 22.0 s (20.0–25.0) | 0.64 |"
    )
    assert rows[3] == "| in 3 rounds, MiB | autarky | kubeadm | ratio |"


def test_a_time_without_a_floor_says_that_it_has_none():
    returned = Figure("up", "the last command returned", "s", (5.0,), (4.0,))
    assert "| the last command returned | – | 5.0 s | 4.0 s | 1.25 | – |" in document(WITH_FLOOR.extended([returned]))


def test_the_parts_themselves_have_a_section_with_their_ranges():
    found = document(WITH_FLOOR).partition(f"## {PARTS.title}\n")[2].partition("\n## ")[0]
    assert "| in 3 rounds | alone |" in found
    assert f"| {API} | 4.0 s (3.0–5.0) |" in found


def test_a_record_of_before_has_no_floor_anywhere():
    text = document(RECORD)
    assert "| floor |" not in text
    assert not any(one.floor in text for one in SECTIONS.values())
    assert "Not measured yet." in text.partition(f"## {PARTS.title}\n")[2].partition("\n## ")[0]


def test_every_section_with_a_floor_says_what_it_is_the_sum_of():
    assert {name for name, one in SECTIONS.items() if one.floor} == {benchmark for benchmark, _ in FLOORS}
