from __future__ import annotations

import pytest
from _figures import Figure, table
from _floor import BOOTED, FLOOR


def figure(ours=(10.0, 30.0, 20.0), theirs=(40.0, 10.0, 25.0), wanted=None) -> Figure:
    return Figure("up", "everything Ready", "s", ours, theirs, wanted)


def test_the_ratio_is_that_of_the_medians_not_of_single_rounds_and_not_of_means():
    assert figure(ours=(1.0, 2.0, 90.0), theirs=(4.0, 4.0, 4.0)).ratio == 0.5


@pytest.mark.parametrize(("wanted", "kept"), [(None, True), (0.8, True), (0.79, False)])
def test_a_figure_is_kept_up_to_the_ratio_that_is_wanted(wanted, kept):
    assert figure(wanted=wanted).kept == kept


def test_what_kubeadm_has_not_has_no_ratio_and_keeps_none_that_is_wanted():
    for theirs in ((None, None, None), (0.0, 0.0, 0.0)):
        alone = figure(theirs=theirs, wanted=1.0)
        assert alone.ratio is None
        assert not alone.kept


@pytest.mark.parametrize(("ours", "theirs"), [((), ()), ((1.0,), ()), ((1.0, 2.0), (1.0,))])
def test_a_figure_that_was_not_measured_on_both_sides_in_every_round_is_none(ours, theirs):
    with pytest.raises(ValueError, match="everything Ready was measured in"):
        figure(ours=ours, theirs=theirs)


def test_the_table_has_every_figure_beside_kubeadms_and_says_what_was_missed():
    other = Figure("ha_reboot", "power on → /readyz", "s", (30.0,), (20.0,), 1.0)
    alone = Figure("up", "memory: haproxy", "MiB", (18.24,), (None,))
    assert table([figure(wanted=1.0), other, alone]).splitlines() == [
        "benchmark  figure              rounds   autarky  kubeadm  ratio               wanted",
        "up         everything Ready         3    20.0 s   25.0 s   0.80          at most 1.0",
        "ha_reboot  power on → /readyz       1    30.0 s   20.0 s   1.50  at most 1.0: missed",
        "up         memory: haproxy          1  18.2 MiB        –      –                    –",
    ]


def test_a_measured_0_is_a_figure_and_not_as_what_there_is_nothing_of():
    failed = Figure("upgrade", "requests that failed", "", (0.0, 0.0), (23.0, 0.0), most=0.0)
    away = Figure("upgrade", "outage", "s", (0.0,), (0.0,), most=0.0)
    sometimes = Figure("up", "memory: operator", "MiB", (None, 3.0), (None, None))
    assert table([failed, away, sometimes]).splitlines() == [
        "benchmark  figure                rounds  autarky  kubeadm  ratio       wanted",
        "upgrade    requests that failed       2      0.0     11.5   0.00    at most 0",
        "upgrade    outage                     1    0.0 s    0.0 s      –  at most 0 s",
        "up         memory: operator           2  1.5 MiB        –      –            –",
    ]


@pytest.mark.parametrize(("limits", "kept"), [({"most": 20.0}, True), ({"most": 19.9}, False)])
def test_a_limit_is_one_of_the_median_of_ours(limits, kept):
    assert Figure("backup", "memory", "MB", (10.0, 30.0, 20.0), (None, None, None), **limits).kept == kept


def test_of_what_may_never_be_each_round_counts():
    assert Figure("upgrade", "requests that failed", "", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), most=0.0).kept
    assert not Figure("upgrade", "requests that failed", "", (0.0, 0.0, 500.0), (1.0, 1.0, 1.0), most=0.0).kept


@pytest.mark.parametrize(("more", "kept"), [(5.0, True), (4.9, False)])
def test_a_difference_is_that_of_the_medians(more, kept):
    assert Figure("backup", "restore", "s", (10.0, 30.0, 20.0), (15.0, 1.0, 90.0), more=more).kept == kept


def test_the_table_says_every_limit_and_what_stands_beside():
    memory = Figure("backup", "memory", "MB", (120.0,), (None,), most=100.0)
    restore = Figure("backup", "restore", "s", (30.0,), (10.0,), more=30.0)
    assert table([memory, restore], "without").splitlines() == [
        "benchmark  figure   rounds   autarky  without  ratio                  wanted",
        "backup     memory        1  120.0 MB        –      –  at most 100 MB: missed",
        "backup     restore       1    30.0 s   10.0 s   3.00    +20.0, at most +30 s",
    ]


def test_where_the_parts_alone_were_measured_the_table_has_each_figures_floor_and_a_part_is_nobodys():
    ready = Figure("reboot", "power on → /readyz", "s", (5.0, 5.0), (4.0, 4.0), 1.25)
    part = Figure(FLOOR, BOOTED, "s", (3.0, 2.0), (None, None))
    other = Figure("reboot", "something else", "s", (5.0,), (4.0,))
    assert [" ".join(line.split()) for line in table([part, ready, other]).splitlines()] == [
        "benchmark figure rounds floor autarky kubeadm ratio wanted",
        f"floor {BOOTED} 2 2.5 s – – – –",
        "reboot power on → /readyz 2 2.5 s 5.0 s 4.0 s 1.25 at most 1.25",
        "reboot something else 1 – 5.0 s 4.0 s 1.25 –",
    ]
