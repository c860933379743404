"""The pod that works for a Backup: what it may, and what it sees."""

from __future__ import annotations

import json

import pytest

from autarky.control.backup.manifests import definitions, pods
from autarky.ports import Object

PLANE: Object = {"spec": {"version": "v1.37.1"}, "status": {"nodes": ["many"]}}


def made(plane: Object | None = PLANE, **target: object) -> Object:
    spec = {"target": target, "encryption": {"recipients": ["age1x"]}}
    backup = definitions.backup("b", spec)
    backup["metadata"]["uid"] = "0f3a"
    return pods.pod(backup, "make", "n1", 1, image="registry.example/autarky:1", plane=plane)


def paths(pod: Object) -> dict[str, bool]:
    """Of the node, that it sees → whether it may write there."""
    (container,) = pod["spec"]["containers"]
    writes = {mount["name"]: not mount["readOnly"] for mount in container["volumeMounts"]}
    return {
        volume["hostPath"]["path"]: writes[volume["name"]] for volume in pod["spec"]["volumes"] if "hostPath" in volume
    }


def test_it_sees_keys_and_writes_only_where_archives_go() -> None:
    assert paths(made(directory=definitions.DEFAULT_DIRECTORY)) == {"/etc/kubernetes": False, "/var/lib/autarky": True}
    elsewhere = paths(made(directory="/mnt/backups"))
    assert elsewhere == {"/etc/kubernetes": False, "/var/lib/autarky": True, "/mnt/backups": True}
    assert paths(made(directory="/var/lib/autarky-other"))["/var/lib/autarky-other"]


def test_a_directory_of_ones_own_has_to_exist() -> None:
    """A file server that is not mounted would be the node's own disk."""
    volumes = made(directory="/mnt/backups")["spec"]["volumes"]
    assert {one["hostPath"]["type"] for one in volumes if "hostPath" in one} == {"Directory"}


def test_it_has_no_account_and_no_capability() -> None:
    spec = made(directory="/mnt/b")["spec"]
    assert not spec["automountServiceAccountToken"]
    assert "serviceAccountName" not in spec
    context = spec["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"]


def test_credentials_are_mounted_and_in_no_environment() -> None:
    pod = made(s3={"bucket": "b", "credentialsSecret": "mine"})
    assert "mine" in [one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one]
    (asked,) = [one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == pods.REQUEST]
    assert json.loads(asked)["controlPlane"] == {"spec": PLANE["spec"]}


@pytest.mark.parametrize(
    ("asked", "gigabytes"),
    [
        ({}, 2),
        ({"etcd": {"quotaBytes": 8 * 2**30}}, 8),
        ({"componentArguments": {"etcd": {"quota-backend-bytes": str(8 * 2**30)}}}, 8),
        ({"etcd": {"quotaBytes": 16 * 2**20}}, 2),
        ({"componentArguments": {"etcd": {"quota-backend-bytes": "0"}}}, 2),
    ],
)
def test_its_memory_has_an_end_which_leaves_room_for_the_etcd_that_tries_the_snapshot(
    asked: Object, gigabytes: int
) -> None:
    """A database may be larger than a quota that was lowered."""
    plane = {"spec": {**PLANE["spec"], **asked}}
    (container,) = made(plane, directory="/mnt/b")["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": str(2**29 + gigabytes * 2**31)}


@pytest.mark.parametrize("plane", [None, {}, {"spec": None}, {"spec": {"etcd": 7, "componentArguments": {"etcd": 7}}}])
def test_where_nobody_says_etcds_quota_it_is_etcds_own(plane: Object | None) -> None:
    (container,) = made(plane, directory="/mnt/b")["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": str(2**29 + 2 * 2**31)}


def test_nothing_in_a_pod_says_how_the_next_one_is_called() -> None:
    """Who may list pods would take that name first, with a mirror pod."""
    assert "0f3a" not in json.dumps(made())


@pytest.mark.parametrize("other", [("0f3a", "make", 2), ("0f3a", "remove", 1), ("0f3b", "make", 1)])
def test_each_attempt_has_a_name_of_its_own(other: tuple[str, str, int]) -> None:
    assert pods.name("0f3a", "make", 1) == pods.name("0f3a", "make", 1) != pods.name(*other)
    assert len(pods.name(*other)) <= 63
