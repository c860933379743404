"""What belongs to one module of scenarios alone counts in its hashes; what several share does not."""

from __future__ import annotations

import pytest

from cases.beside import own_files

TRACED = 'PROGRAM = HERE.with_name("tracer.py")'
HELPER = '''"""A helper."""

import subprocess
from inner import deep

from autarky.render import files

LIMIT = 30
"""Seconds."""


def helps():
    """A sentence."""
    return deep(files.CURRENT, LIMIT)  # at once


if __name__ == "__main__":
    helps()
'''
FILES = {
    "conftest.py": "from every import cluster",
    "every.py": "cluster = 1",
    "ha.py": TRACED,
    "tracer.py": "trace = 1",
    "own.py": HELPER,
    "inner.py": 'deep = open("inner.json")',
    "inner.json": "{}",
    "list.txt": "one",
    "test_a.py": 'import own\nfrom ha import x\nLIST = "list.txt"',
    "test_b.py": "from ha import y\nfrom every import cluster",
}
A, B = "test_a.py", "test_b.py"


def own(**changes: str) -> dict[str, dict[str, str]]:
    """Of those files; `changes`: of which texts, by names with __ for the dot."""
    changed = {name.replace("__", "."): text for name, text in changes.items()}
    return own_files({name: text.encode() for name, text in {**FILES, **changed}.items()})


def test_it_is_what_a_module_names_and_no_other_uses() -> None:
    assert {module: set(files) for module, files in own().items()} == {A: {"own.py", "list.txt"}, B: set()}


def test_what_another_module_takes_out_of_a_module_of_scenarios_it_has_with_its_helpers() -> None:
    """Which are shared then; the module itself is no helper."""
    found = own(test_b__py="from test_a import z")
    assert {module: set(files) for module, files in found.items()} == {A: {"list.txt"}, B: set()}


def test_what_two_use_is_shared_also_through_a_helper_of_one_of_them() -> None:
    of_both = {"test_b__py": f"{FILES[B]}\nimport inner"}
    assert own(**of_both)[A].keys() == {"own.py", "list.txt"}
    assert own(**of_both)[A] == own(**of_both, inner__py="deep = 2")[A]


def test_what_all_have_by_conftest_is_shared() -> None:
    assert own(test_a__py="from every import cluster", test_b__py="")[A] == {}


def test_a_program_that_is_run_by_its_name_is_a_helper() -> None:
    found = own(test_a__py=TRACED, test_b__py="", ha__py="")
    assert found[A].keys() == {"tracer.py"}
    assert own(test_a__py=TRACED, test_b__py=TRACED)[A] == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 30", "LIMIT = 31"),
        ("deep(files", "deep(1, files"),
        ("    helps()\n", "    pass\n"),
        ("import subprocess", "import sys"),
    ],
)
def test_a_helper_counts_with_all_that_it_does(old: str, new: str) -> None:
    text = HELPER.replace(old, new)
    assert text != HELPER
    assert own(own__py=text)[A]["own.py"] != own()[A]["own.py"]


def test_a_helper_counts_with_what_it_names_itself() -> None:
    assert own(inner__py="deep = 2")[A]["own.py"] != own()[A]["own.py"]
    assert own(inner__json="[]")[A]["own.py"] != own()[A]["own.py"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A helper."""', ""),
        ('"""Seconds."""', '"""Minutes."""'),
        ('    """A sentence."""\n', ""),
        ("  # at once", ""),
        ("deep(files.CURRENT, LIMIT)", "deep(\n        files.CURRENT,\n        LIMIT,\n    )"),
        ("from autarky.render import files", "from autarky.hosts import paths as files"),
    ],
)
def test_words_layout_and_where_the_product_has_something_do_not_count(old: str, new: str) -> None:
    text = HELPER.replace(old, new)
    assert text != HELPER
    assert own(own__py=text) == own()


def test_data_counts_by_its_content() -> None:
    assert own(list__txt="one\n")[A]["list.txt"] != own()[A]["list.txt"]
    assert own(list__txt="one\n")[A]["own.py"] == own()[A]["own.py"]
