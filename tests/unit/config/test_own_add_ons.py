"""The user's own add-ons as they are read: what is applied, in which order, and what is wrong with which document."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky.config.own_add_ons import read
from autarky.errors import Problems

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME, namespace: demo}\ndata: {a: b}\n"


def config_map(name: str) -> str:
    return MAP.replace("NAME", name)


def written(directory: Path, **files: str) -> Path:
    place = directory / "addons"
    place.mkdir(exist_ok=True)
    for name, text in files.items():
        (place / f"{name.replace('_', '-')}.yaml").write_text(text)
    return place


def names(directory: Path) -> list[str]:
    return [one.content["metadata"]["name"] for one in read(directory).objects]


def problems(directory: Path) -> list[tuple[str, str, str]]:
    """(where, what, fix)"""
    with pytest.raises(Problems) as caught:
        read(directory)
    return [(one.where.replace(f"{directory}/", ""), one.what, one.fix) for one in caught.value.problems]


def test_files_come_by_their_names_and_documents_as_they_are_written(tmp_path: Path) -> None:
    place = written(
        tmp_path, b_20=config_map("c"), a_10=f"---\n{config_map('b')}---\n# nothing\n---\n{config_map('a')}"
    )
    (place / "notes.txt").write_text("no add-on")
    (place / "more").mkdir()
    (place / ".hidden.yaml").write_text("{")
    assert names(place) == ["b", "a", "c"]
    found = read(place)
    assert found.given
    assert [(file, len(objects)) for file, objects in found.files()] == [("a-10.yaml", 2), ("b-20.yaml", 1)]


def test_no_file_says_nothing_and_one_with_a_comment_says_that_nothing_is_wanted(tmp_path: Path) -> None:
    assert not read(tmp_path / "addons").given
    assert not read(written(tmp_path)).given
    found = read(written(tmp_path, none="# nothing\n"))
    assert (found.given, found.objects) == (True, ())


def test_a_file_in_place_of_the_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "addons").write_text("")
    [(_, what, _)] = problems(tmp_path / "addons")
    assert "cannot read it" in what


def test_scalars_are_read_as_kubectl_reads_them(tmp_path: Path) -> None:
    values = "[0644, 0o17, 0x1f, 12, -3, 1.5, 1e3, true, False, null, ~, '012', 1.2.3, 12:30, 2020-01-01, 100m]"
    place = written(tmp_path, a=f"{config_map('a')}spec: {values}\n")
    [one] = read(place).objects
    assert one.content["spec"] == [
        *(420, 15, 31, 12, -3, 1.5, 1000.0, True, False, None, None),
        *("012", "1.2.3", "12:30", "2020-01-01", "100m"),
    ]


def test_everything_that_is_wrong_is_said_at_once_with_its_document(tmp_path: Path) -> None:
    place = written(
        tmp_path,
        a=f"{config_map('a')}---\nkind: ConfigMap\nmetadata: {{}}\n",
        b=f"{config_map('b')}---\na: [\n",
        c="[1, 2]\n",
        d=f"{config_map('a')}---\n{config_map('d')}",
    )
    assert [(where, what) for where, what, _ in problems(place)] == [
        ("a.yaml (document 2, line 6)", "apiVersion is missing"),
        ("a.yaml (document 2, line 6)", "metadata.name is missing, or no text"),
        ("b.yaml (document 2, line 7)", "not YAML: while parsing a flow node, did not find expected node content"),
        ("c.yaml (document 1, line 1)", "it is no object"),
        ("d.yaml (document 1, line 1)", f"ConfigMap a is in {place}/a.yaml (document 1, line 1) as well"),
    ]
    assert all(fix for *_, fix in problems(place))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x: yes", "'yes' is true or false to some readers of YAML"),
        ("x: Off", "'Off' is true or false to some readers of YAML"),
        ("x: &a 1", ""),
        ("x: &a 1\ny: *a", "aliases"),
        ("x: !binary abc", "tags"),
        ("x: 1\nx: 2", "duplicate key 'x'"),
        ("[1]: 2", "a key must be one word"),
        (f"x: {'[' * 120}{']' * 120}", "nested more than 100"),
    ],
)
def test_traps_are_refused(tmp_path: Path, text: str, what: str) -> None:
    place = written(tmp_path, a=f"{config_map('a')}{text}\n")
    if not what:
        assert names(place) == ["a"]
        return
    [(where, said, fix)] = problems(place)
    assert what in said
    assert where.startswith("a.yaml (document 1")
    assert fix


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("apiVersion: v1\nkind: List\nitems: []\n", "a List is not supported"),
        ("apiVersion: v1\nkind: Pod\n", "metadata is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n", "metadata.name is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: b}\n", "metadata.uid belongs to a live object"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {b: 1}}\n", "metadata.labels has a value"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: }\n", "metadata.namespace is missing"),
    ],
)
def test_what_is_no_object_to_apply_is_refused(tmp_path: Path, text: str, what: str) -> None:
    [(_, said, _)] = problems(written(tmp_path, a=text))
    assert said.startswith(what)


def test_the_same_object_by_two_versions_of_its_api_is_one(tmp_path: Path) -> None:
    one = "apiVersion: VERSION\nkind: Deployment\nmetadata: {name: a}\n"
    two = one.replace("VERSION", "apps/v1beta1").replace("name: a", "name: a, namespace: default")
    [(where, what, _)] = problems(written(tmp_path, a=one.replace("VERSION", "apps/v1"), b=two))
    assert where.startswith("b.yaml")
    assert "as well" in what


def test_what_is_no_text_is_said_of_its_file(tmp_path: Path) -> None:
    place = written(tmp_path, b=config_map("b"))
    (place / "a.yaml").write_bytes(b"\xff\xfe\x00")
    [(where, what, _)] = problems(place)
    assert (where, what) == ("a.yaml", "it is not UTF-8 text")
