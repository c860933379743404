"""An etcd of somebody else, of the minor before ours and with a CA that issues nothing for us, is copied into the
cluster.

The tests build on each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from copies import said
from ha import member_phases
from harness import Show, TestCluster
from migrations import dialled, members, moved
from somebodys_etcd import INSIDE, STORE, Authority, member_on, outside, start_etcd

from autarky.model.versions import Version
from autarky.payload import find_binary, load_etcd

pytestmark = [pytest.mark.e2e, pytest.mark.rotation, pytest.mark.timeout(900, func_only=True)]

OLDER = "3.5.35"
_COPIED = "/var/lib/autarky/state/etcd-copied.json"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[..., TestCluster], authority: Authority) -> TestCluster:
    cluster = make_cluster("t-migration-copy-own", **INSIDE)
    cluster.autarky("payload", "get")
    cluster.autarky("payload", "etcd", "get", OLDER)
    cluster.autarky("lab", "up", cluster.name, "--hosts", "2")
    member = member_on(cluster)
    authority.issue(member.name, member.address, "127.0.0.1")
    authority.issue("apiserver")
    program = find_binary(load_etcd(Version.parse(OLDER)), "etcd")
    assert program is not None
    start_etcd(cluster, authority, member, program=program.path)
    cluster.spec = outside(authority, member)
    cluster.up()
    return cluster


@pytest.mark.chain("copied")
def test_members_of_another_minor_do_not_join(cluster: TestCluster) -> None:
    cluster.spec = INSIDE
    before = dialled(cluster)
    refused = cluster.autarky("etcd", "migrate", "-f", str(cluster.file), "--yes", "-o", "plain", check=False)
    assert refused.status == 6
    assert f"runs etcd {OLDER}" in refused.stderr
    assert dialled(cluster) == before


@pytest.mark.chain("copied")
def test_it_is_copied_under_load_and_refuses_everybody_afterwards(cluster: TestCluster, show: Show) -> None:
    done = moved(cluster, show, INSIDE, "--copy", outside={STORE: member_on(cluster).etcdctl})
    assert "shut it down" in said(done)
    assert list(members(cluster, "n1")) == ["n1"]
    assert dialled(cluster) == {"https://127.0.0.1:2378"}
    cluster.wait("the member is known", lambda: member_phases(cluster) == {"n1": "Member"}, seconds=60)
    assert "nothing was changed" in cluster.up().stdout


@pytest.mark.chain("copied")
def test_with_the_password_that_is_kept_it_can_be_opened(cluster: TestCluster, authority: Authority) -> None:
    url = member_on(cluster).client
    for name in ("ca.crt", "apiserver.crt", "apiserver.key"):
        content = (authority.directory / name).read_text()
        cluster.shell("n1", f"umask 077; mkdir -p /srv/client; cat >/srv/client/{name} <<'PEM'\n{content}PEM\n")
    files = "--cacert=/srv/client/ca.crt --cert=/srv/client/apiserver.crt --key=/srv/client/apiserver.key"
    etcdctl = f"/var/lib/autarky/bin/etcdctl --endpoints={url} {files}"
    assert "denied" in cluster.shell("n1", f"{etcdctl} put /registry/x 1 2>&1 || true")
    assert cluster.shell("n1", f"stat -c %a {_COPIED}").strip() == "600"
    password = f'$(sed -n \'s/.*"password": "\\(.*\\)".*/\\1/p\' {_COPIED})'
    opened = cluster.shell("n1", f"ETCDCTL_USER=root ETCDCTL_PASSWORD={password} {etcdctl} auth disable")
    assert "Authentication Disabled" in opened
