"""`autarky payload etcd`, as far as it needs no cluster."""

from __future__ import annotations

import json

import pytest

from autarky.cli.main import main
from autarky.payload import known_etcd_versions


def test_all_known_versions_are_listed_with_what_the_store_has(capsys):
    assert main(["payload", "etcd", "list", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["etcd"] for row in rows} == set(map(str, known_etcd_versions()))
    assert {tuple(row) for row in rows} == {("etcd", "kind", "name", "sha256", "size")}
    assert all(row["sha256"] is None for row in rows)


def test_people_get_a_table(capsys):
    assert main(["payload", "etcd", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["ETCD", "KIND", "NAME", "SIZE", "SHA256"]
    assert len(rows) == 4 * len(known_etcd_versions())


@pytest.mark.parametrize("command", ["get", "push"])
@pytest.mark.parametrize(("version", "said"), [("3.4.0", "is not known"), ("3.7", "write it as 3.7.3")])
def test_a_version_that_is_not_known_is_refused_before_anything_else(capsys, command, version, said):
    assert main(["payload", "etcd", command, version]) == 2
    assert said in capsys.readouterr().err


def test_a_version_has_to_be_named(capsys):
    assert main(["payload", "etcd", "get"]) == 2
    assert "VERSION" in capsys.readouterr().err
