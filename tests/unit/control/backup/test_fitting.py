"""Whether an archive may be restored into a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autarky.control.backup.decide.fitting import (
    OWN_VERSION,
    SAME_CLUSTER,
    Side,
    refuse_another_kubernetes,
    refuse_unfit,
)
from autarky.errors import Refused, UserError

CA = "c0ffee" * 10
CLUSTER = Side("demo", CA, "v1.36.4", "3.6.16")


def test_a_cluster_is_restored_from_its_own_backup() -> None:
    refuse_unfit(CLUSTER, CLUSTER)


def test_the_name_is_no_proof_and_no_obstacle() -> None:
    """The CA is what makes it the same one."""
    refuse_unfit(replace(CLUSTER, cluster="old-name"), CLUSTER)
    with pytest.raises(Refused):
        refuse_unfit(replace(CLUSTER, ca="d" * 60), CLUSTER)


@pytest.mark.parametrize("archive", [None, "", "d" * 60, CA[:-1]])
@pytest.mark.parametrize("cluster", [None, "", CA])
def test_rule_8_another_ca_and_one_that_nobody_knows_are_refused_with_both(
    archive: str | None, cluster: str | None
) -> None:
    if archive == cluster == "":
        return
    with pytest.raises(Refused, match="demo") as refused:
        refuse_unfit(replace(CLUSTER, ca=archive), replace(CLUSTER, ca=cluster))
    assert SAME_CLUSTER in str(refused.value)
    for one in (archive, cluster):
        assert (one[:16] if one else "unknown") in str(refused.value)


@pytest.mark.parametrize("version", ["3.5.0", "3.6.0", "3.6.16", "v3.6.16", "3.6.99", "2.9.0", "3.6.0-rc.1"])
def test_data_of_an_older_etcd_or_of_another_patch_of_it_is_read(version: str) -> None:
    refuse_unfit(replace(CLUSTER, etcd=version), CLUSTER)


@pytest.mark.parametrize("version", ["3.7.0", "3.10.0", "4.0.0"])
def test_data_of_a_newer_etcd_is_refused(version: str) -> None:
    with pytest.raises(Refused, match=f"its snapshot is of etcd {version}") as refused:
        refuse_unfit(replace(CLUSTER, etcd=version), CLUSTER)
    assert OWN_VERSION in str(refused.value)


@pytest.mark.parametrize("version", ["v1.36.3", "v1.36.5", "v1.37.0", "v1.35.4"])
def test_the_control_plane_of_another_version_is_refused_as_it_would_not_fit_the_nodes(version: str) -> None:
    with pytest.raises(Refused, match=f"with Kubernetes {version}, and this cluster has v1.36.4:") as refused:
        refuse_another_kubernetes(version, "v1.36.4")
    assert f"bring the cluster to {version}" in str(refused.value)
    with pytest.raises(Refused, match=f"with Kubernetes {version}, and the file says v1.36.4"):
        refuse_unfit(replace(CLUSTER, kubernetes=version), CLUSTER)


def test_while_an_upgrade_is_under_way_data_of_either_version_fits() -> None:
    for version in ("v1.36.4", "v1.37.1"):
        refuse_another_kubernetes(version, "v1.36.4", "v1.37.1")
    with pytest.raises(Refused, match=r"this cluster has v1\.36\.4 and v1\.37\.1:"):
        refuse_another_kubernetes("v1.35.4", "v1.36.4", "v1.37.1")


def test_one_version_may_be_written_in_two_ways() -> None:
    refuse_unfit(replace(CLUSTER, kubernetes="1.36.4"), CLUSTER)


@pytest.mark.parametrize("odd", ["", "latest", "v1", "1.x.4", "1.36", "1.36.4.5", "\n"])
def test_what_an_archive_says_that_is_no_version_is_an_error_of_the_user(odd: str) -> None:
    """Who knows a recipient can make an archive with any content."""
    with pytest.raises(UserError, match="is no version of Kubernetes"):
        refuse_unfit(replace(CLUSTER, kubernetes=odd), CLUSTER)


@pytest.mark.parametrize("odd", ["", "latest", "v3", "3.x.4"])
def test_so_is_one_of_etcd(odd: str) -> None:
    with pytest.raises(UserError, match="is no version of etcd"):
        refuse_unfit(replace(CLUSTER, etcd=odd), CLUSTER)
