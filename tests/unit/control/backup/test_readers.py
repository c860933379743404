"""What API servers with one encryption configuration read of what those with another one have stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.backup.decide.readers import (
    MOST_NOTED,
    Readers,
    Rule,
    is_known,
    lacking,
    noted,
    read,
    readers_of,
    sentence,
    writing,
)

Provider = dict[str, Any]
PLAIN: Provider = {"identity": {}}


def key(name: str, secret: str = "", kind: str = "secretbox") -> Provider:
    return {kind: {"keys": [{"name": name, "secret": secret or f"secret of {name}"}]}}


def readers(*entries: tuple[str, list[Provider]]) -> Readers:
    """entries: resources, separated by commas, and their providers."""
    listed = [{"resources": names.split(","), "providers": providers} for names, providers in entries]
    found = readers_of({"kind": "EncryptionConfiguration", "resources": listed})
    assert found is not None
    return found


def lacks(data: Readers, by: Readers) -> str:
    return sentence(lacking(data, by))


OLD, NEW = ("secrets", [key("old")]), ("secrets", [key("new")])
BOTH = ("secrets", [key("new"), key("old")])


@pytest.mark.parametrize(
    ("data", "by", "wanted"),
    [
        (readers(OLD), readers(OLD), ""),
        (readers(OLD), readers(NEW), "secretbox 'old' (secrets)"),
        (readers(OLD), readers(BOTH), ""),
        (readers(BOTH), readers(NEW), "secretbox 'old' (secrets)"),
        (readers(OLD), readers(("secrets", [key("old", "another")])), "secretbox 'old' (secrets)"),
        (readers(OLD), readers(("secrets", [key("old", "secret of old", "aescbc")])), "secretbox 'old' (secrets)"),
        (
            readers(OLD),
            readers(("configmaps", [key("old")])),
            "the provider identity (configmaps), secretbox 'old' (secrets)",
        ),
        (readers(OLD), Readers(), "secretbox 'old' (secrets)"),
        (Readers(), readers(NEW), "the provider identity (secrets)"),
        (Readers(), readers(("secrets", [key("new"), PLAIN])), ""),
        (readers(("secrets", [key("old"), PLAIN])), readers(OLD), "the provider identity (secrets)"),
        (Readers(), Readers(), ""),
    ],
)
def test_what_no_provider_of_theirs_reads_is_lacking(data: Readers, by: Readers, wanted: str) -> None:
    assert lacks(data, by) == wanted


@pytest.mark.parametrize(
    ("data", "by", "wanted"),
    [
        (readers(OLD), readers(("*.*", [key("old"), PLAIN])), ""),
        (readers(OLD), readers(("*.", [key("old"), PLAIN])), ""),
        (readers(OLD), readers(("*.apps", [key("old"), PLAIN])), "secretbox 'old' (secrets)"),
        (readers(("deployments.apps", [key("old")])), readers(("*.apps", [key("old"), PLAIN])), ""),
        (readers(("*.apps", [key("old")])), readers(("*.*", [key("new"), PLAIN])), "secretbox 'old' (*.apps)"),
        (Readers(), readers(("*.*", [key("new")])), "the provider identity (*.*)"),
        (Readers(), readers(NEW, ("*.*", [key("new"), PLAIN])), "the provider identity (secrets)"),
        (readers(OLD, ("*.*", [PLAIN])), readers(NEW), "secretbox 'old' (secrets)"),
    ],
)
def test_patterns_cover_what_is_named_nowhere_before(data: Readers, by: Readers, wanted: str) -> None:
    assert lacks(data, by) == wanted


def test_a_plugin_is_the_one_of_that_name_wherever_it_listens() -> None:
    def kms(endpoint: str, **more: str) -> Readers:
        return readers(("secrets", [{"kms": {"name": "vault", "endpoint": endpoint, **more}}]))

    assert lacks(kms("unix:///a"), kms("unix:///b", apiVersion="v1")) == ""
    assert lacks(kms("unix:///a", apiVersion="v2"), kms("unix:///a")) == "kms v2 'vault' (secrets)"


def test_a_secret_is_the_same_however_its_lines_are_broken() -> None:
    assert lacks(readers(("secrets", [key("a", "YWJj ZGVm\n")])), readers(("secrets", [key("a", "YWJjZGVm")]))) == ""


def test_what_is_written_is_stored_with_the_first_provider_alone() -> None:
    assert lacks(writing(readers(BOTH)), readers(NEW)) == ""
    assert lacks(writing(readers(BOTH)), readers(OLD)) == "secretbox 'new' (secrets)"
    assert lacks(writing(readers(("secrets", [PLAIN, key("new")]))), Readers()) == ""


def test_with_a_file_that_is_not_known_nothing_is_lacking_unless_nothing_is_encrypted_there() -> None:
    unknown = Readers(unknown="/etc/keys.yaml")
    assert (lacks(unknown, readers(NEW)), is_known(unknown, readers(NEW))) == ("", False)
    assert (lacks(readers(NEW), unknown), is_known(readers(NEW), unknown)) == ("", False)
    assert (lacks(Readers(), unknown), is_known(Readers(), unknown)) == ("", True)
    assert lacks(unknown, Readers()) == "what /etc/keys.yaml names (*.*)"
    assert is_known(readers(OLD), readers(NEW))


def test_no_key_is_in_what_is_said_shown_or_noted() -> None:
    found = readers(("secrets", [key("a", "c2VjcmV0")]))
    assert "c2VjcmV0" not in f"{found}{json.dumps(noted(found))}{lacks(found, Readers())}"


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"resources": []},
        {"resources": [{"resources": ["secrets"], "providers": []}]},
        {"resources": [{"resources": [], "providers": [PLAIN]}]},
        {"resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": []}}]}]},
        {"resources": [{"resources": ["secrets"], "providers": [{"of a later version": {"name": "a"}}]}]},
        {"resources": [{"resources": ["secrets"], "providers": [{"aescbc": {"keys": [{"name": "a"}]}}]}]},
        {"resources": [{"resources": ["secrets"], "providers": [PLAIN | key("a")]}]},
    ],
)
def test_what_cannot_be_understood_is_not_known(document: object) -> None:
    assert readers_of(document) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
shapes = st.fixed_dictionaries(
    {"resources": st.lists(st.fixed_dictionaries({"resources": anything, "providers": anything}), max_size=2)}
)
names, secrets = st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"])
providers = st.lists(st.just(PLAIN) | st.builds(key, names, secrets), min_size=1, max_size=3)
resources = st.sampled_from(["secrets", "configmaps", "pods", "*.", "*.*", "a.b", "*.b"])
configurations = st.lists(st.tuples(resources, providers), max_size=3).map(
    lambda some: readers(*some) if some else None
)
known = configurations.map(lambda found: found or Readers())


@given(anything | shapes, anything)
def test_no_content_raises(document: object, said: object) -> None:
    readers_of(document)
    read(said)
    read({"rules": said})


@given(known)
def test_whoever_reads_in_the_same_way_lacks_nothing_and_notes_say_the_same(some: Readers) -> None:
    assert lacks(some, some) == lacks(writing(some), some) == ""
    assert read(json.loads(json.dumps(noted(some)))) == some


@given(known, known, providers)
def test_a_further_provider_behind_the_others_costs_nothing(data: Readers, by: Readers, more: list[Provider]) -> None:
    [rule] = readers(("x", more)).rules
    wider = Readers(tuple(Rule(one.resources, one.providers + rule.providers) for one in by.rules))
    assert lacking(data, wider).keys() <= lacking(data, by).keys()


def test_a_host_notes_nothing_that_is_long() -> None:
    long = Readers((Rule(("x" * MOST_NOTED,), ("identity",)),))
    assert noted(long) == {}
    assert read({}) is read(None) is None
