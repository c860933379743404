"""What a restore takes away, by the keys of etcd. How a real API server names its keys:
tests/contract/kube/test_kinds_of_keys.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.backup.decide.loss import Loss, compare, kind_of, sentences

NOTHING = Loss((), (), ())


@pytest.mark.parametrize(
    ("key", "kind", "name"),
    [
        ("/registry/pods/demo/web-1", "pods", "demo/web-1"),
        ("/registry/namespaces/demo", "namespaces", "demo"),
        ("/registry/minions/n1", "nodes", "n1"),
        ("/registry/services/specs/demo/web", "services", "demo/web"),
        ("/registry/services/endpoints/demo/web", "endpoints", "demo/web"),
        ("/registry/endpointslices/demo/web-x", "endpointslices", "demo/web-x"),
        ("/registry/deployments/demo/web", "deployments", "demo/web"),
        ("/registry/autarky.dev/etcdmembers/n1", "etcdmembers.autarky.dev", "n1"),
        ("/registry/example.org/services/specs/web", "services.example.org", "specs/web"),
        ("/registry/apiregistration.k8s.io/apiservices/v1.apps", "apiservices.apiregistration.k8s.io", "v1.apps"),
        ("/registry/masterleases/192.0.2.11", "masterleases", "192.0.2.11"),
        ("/registry/ranges/serviceips", "ranges", "serviceips"),
        ("/registry/health", "health", ""),
        ("/registry/", "", ""),
    ],
)
def test_a_key_says_its_kind_and_its_name(key: str, kind: str, name: str) -> None:
    assert kind_of(key) == (kind, name)


@given(st.text())
def test_any_key_has_a_kind(rest: str) -> None:
    """Whoever may write to etcd may write any key."""
    kind_of(f"/registry/{rest}")


# --- the comparison -----------------------------------------------------------------------------------------------

KEYS = st.sampled_from([f"/registry/configmaps/demo/{name}" for name in "abcdef"])
STATES = st.dictionaries(KEYS, st.tuples(st.integers(1, 3), st.integers(1, 3)))


@given(STATES, STATES)
def test_each_key_that_is_not_as_it_was_is_in_one_list_and_no_other_is_in_any(then, now) -> None:
    loss = compare(then, now)
    listed = [*loss.created, *loss.changed, *loss.deleted]
    assert len(listed) == len(set(listed))
    assert set(listed) == {key for key in {**then, **now} if then.get(key) != now.get(key)}
    for keys in (loss.created, loss.changed, loss.deleted):
        assert list(keys) == sorted(keys)
    assert not set(loss.created) & then.keys()
    assert not set(loss.deleted) & now.keys()


@given(STATES, STATES)
def test_what_a_restore_takes_its_undoing_brings_back(then, now) -> None:
    one, other = compare(then, now), compare(now, then)
    assert (one.created, one.changed, one.deleted) == (other.deleted, other.changed, other.created)
    assert compare(then, then) == NOTHING


def test_what_was_deleted_and_created_again_was_changed() -> None:
    """It is another object, with another uid, under the same name."""
    key = "/registry/configmaps/demo/a"
    assert compare({key: (5, 5)}, {key: (9, 9)}) == Loss((), (key,), ())


# --- the sentences ------------------------------------------------------------------------------------------------


def keys(kind: str, *names: str) -> tuple[str, ...]:
    return tuple(f"/registry/{kind}/{name}" for name in names)


def test_each_list_is_a_sentence_with_the_kinds_and_their_names() -> None:
    loss = Loss(
        created=keys("deployments", "demo/web") + keys("pods", "demo/w-1", "demo/w-2"),
        changed=keys("configmaps", "demo/settings"),
        deleted=keys("secrets", "demo/old"),
    )
    assert sentences(loss) == [
        "created since the backup, and gone after the restore: 1 deployments (demo/web); 2 pods (demo/w-1, demo/w-2)",
        "changed since the backup, and again as they were: 1 configmaps (demo/settings)",
        "deleted since the backup, and back after the restore: 1 secrets (demo/old)",
    ]


def test_of_many_the_first_five_are_named_and_all_are_counted() -> None:
    [sentence] = sentences(Loss(keys("pods", *(f"demo/{number:04}" for number in range(1234))), (), ()))
    assert "1,234 pods (demo/0000, demo/0001, demo/0002, demo/0003, demo/0004, and 1,229 more)" in sentence


@pytest.mark.parametrize("kind", ["events", "leases", "masterleases", "services/endpoints", "endpointslices"])
def test_what_changes_by_itself_is_counted_and_not_listed(kind: str) -> None:
    fleeting = keys(kind, "demo/a", "demo/b")
    first, last = sentences(Loss((*keys("pods", "demo/web-1"), *fleeting), fleeting, fleeting))
    assert "demo/a" not in first + last
    assert last.startswith("6 events, leases")
    assert sentences(Loss(fleeting, fleeting, fleeting)) == ["nothing was written since the backup"]


def test_a_node_whose_status_has_changed_is_no_loss_and_one_that_has_joined_or_left_is() -> None:
    """A kubelet writes the status of its Node every few minutes."""
    node = keys("minions", "n1")
    assert sentences(Loss((), node, ())) == ["nothing was written since the backup"]
    assert "1 nodes (n1)" in sentences(Loss(node, (), ()))[0]
    assert "1 nodes (n1)" in sentences(Loss((), (), node))[0]


@given(STATES, STATES)
def test_whatever_is_lost_is_said(then, now) -> None:
    loss = compare(then, now)
    said = "\n".join(sentences(loss))
    for key in (*loss.created, *loss.changed, *loss.deleted)[:5]:
        assert key.removeprefix("/registry/configmaps/") in said
    assert (said == "nothing was written since the backup") == (loss == NOTHING)
