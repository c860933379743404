"""Another version of etcd and other arguments, by an edit of the ControlPlane, under load: of the only member, for
which a second one on the same node stands in meanwhile.

The cluster stays at the newer version: the tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from etcd_versions import (
    NEVER_WORKS,
    NEWER,
    a_newer_image_that_never_works,
    command_line,
    condition,
    etcd_now,
    is_alone,
    static_etcd,
    up_changes_nothing,
    wait_until_changed,
    wanted,
)
from ha import member_objects, nothing_failed
from harness import TestCluster, one_node
from judgement import only_writes_under_way_failed
from rollouts import patch_plane
from slots import settled

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

QUOTA = 3 * 2**30


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    cluster = make_cluster("t-etcd-version", **one_node())
    cluster.up()
    return cluster


@pytest.mark.chain("version")
def test_a_quota_reaches_the_only_member_while_it_serves(cluster: TestCluster) -> None:
    before, was = wanted(cluster), member_objects(cluster)["n1"]["status"]["memberID"]
    with cluster.probed() as reports:
        patch_plane(cluster, etcd={"quotaBytes": QUOTA})
        wait_until_changed(cluster, before)
    only_writes_under_way_failed(reports[0], moves=2)
    assert f"--quota-backend-bytes={QUOTA}" in command_line(cluster, "n1")
    assert member_objects(cluster)["n1"]["status"]["memberID"] != was
    is_alone(cluster)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    up_changes_nothing(cluster)


@pytest.mark.chain("version")
def test_a_mistake_leaves_the_only_member_as_it_is_and_says_why(cluster: TestCluster) -> None:
    before, pods = wanted(cluster), static_etcd(cluster)
    with cluster.probed() as reports:
        patch_plane(cluster, componentArguments={"etcd": {"nonsense": "1"}})
        cluster.wait(
            "it is rolled back",
            lambda: condition(cluster, "SpecApplied")["reason"] == "EtcdRolledBack",
            seconds=200,
        )
        assert "flag provided but not defined" in condition(cluster, "SpecApplied")["message"]
        cluster.wait("as before", lambda: wanted(cluster) == before and static_etcd(cluster) == pods)
    nothing_failed(reports[0])
    is_alone(cluster)
    patch_plane(cluster, componentArguments={"etcd": {"nonsense": None}})
    cluster.wait("nothing is left to say", lambda: condition(cluster, "SpecApplied")["status"] == "True")
    assert wanted(cluster) == before


@pytest.mark.chain("version")
def test_a_newer_minor_that_does_not_work_leaves_the_only_member_as_it_is_and_says_why(cluster: TestCluster) -> None:
    """And the former version is asked for. The next test asks for the same one again, with an image that works."""
    before, pods = wanted(cluster), static_etcd(cluster)
    with a_newer_image_that_never_works(cluster, "n1"):
        with cluster.probed() as reports:
            patch_plane(cluster, etcd={"version": NEWER})
            cluster.wait(
                "it is rolled back", lambda: NEVER_WORKS in condition(cluster, "SpecApplied")["message"], seconds=200
            )
            assert condition(cluster, "SpecApplied")["reason"] == "EtcdRolledBack"
            cluster.wait("as before", lambda: wanted(cluster) == before and static_etcd(cluster) == pods)
        nothing_failed(reports[0])
        is_alone(cluster)
    assert etcd_now(cluster)["n1"]["version"] != NEWER
    patch_plane(cluster, etcd={"version": None})
    cluster.wait("nothing is left to say", lambda: condition(cluster, "SpecApplied")["status"] == "True")
    assert wanted(cluster) == before


@pytest.mark.chain("version")
def test_a_newer_minor_reaches_the_only_member_while_it_serves(cluster: TestCluster) -> None:
    cluster.autarky("payload", "etcd", "push", NEWER, "--cluster", cluster.name)
    before = wanted(cluster)
    with cluster.probed() as reports:
        patch_plane(cluster, etcd={"version": NEWER})
        wait_until_changed(cluster, before)
    only_writes_under_way_failed(reports[0], moves=2)
    assert etcd_now(cluster)["n1"]["version"] == NEWER
    is_alone(cluster)
    cluster.wait("everything is healthy", lambda: settled(cluster), seconds=120)
    up_changes_nothing(cluster)


@pytest.mark.chain("version")
def test_an_older_minor_and_a_version_that_is_not_there_change_nothing(cluster: TestCluster) -> None:
    before, pods = wanted(cluster), static_etcd(cluster)
    for version, why in (("3.6.16", "an older minor cannot read"), ("3.9.0", "minors are not skipped")):
        patch_plane(cluster, etcd={"version": version})
        cluster.wait(version, lambda why=why: why in condition(cluster, "SpecApplied")["message"], seconds=60)
    patch_plane(cluster, etcd={"version": "3.7.99"})
    cluster.wait("no image", lambda: "payload etcd push" in condition(cluster, "SpecApplied")["message"], seconds=400)
    patch_plane(cluster, etcd={"version": NEWER})
    cluster.wait("nothing is left to say", lambda: condition(cluster, "SpecApplied")["status"] == "True")
    assert (wanted(cluster), static_etcd(cluster)) == (before, pods)
