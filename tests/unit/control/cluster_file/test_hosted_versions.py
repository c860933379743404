"""What a control plane runs whose ControlPlane object is gone, and what has to be done by hand before it is made."""

from __future__ import annotations

from autarky.control.cluster_file.decide.hosted_versions import Hosted, runs, unsettled
from autarky.model.versions import Version

OLD, NEW = "v1.36.4", "v1.37.1"


def hosted(name: str, tag: str, emulates: str = "", kind: str = "Deployment") -> Hosted:
    return Hosted(name, kind, f"registry.k8s.io:443/{name}:{tag}", emulates)


def servers(tag: str, emulates: str = "") -> Hosted:
    return hosted("kube-apiserver", tag, emulates, "DaemonSet")


def test_the_api_servers_say_what_runs_where_they_are_hosted_and_of_a_version():
    found = runs([servers(NEW), hosted("kube-scheduler", OLD)])
    assert found is not None
    assert (found.version, found.source) == (Version(1, 37, 1), "its DaemonSet kube-apiserver")
    for others in ([], [hosted("kube-scheduler", OLD)], [servers("latest"), hosted("kube-scheduler", OLD)]):
        assert runs(others) is None
        assert unsettled(others) is None


def test_all_of_one_version_or_of_none_that_anybody_knows_is_settled():
    assert (
        unsettled([servers(NEW), hosted("kube-scheduler", NEW), hosted("kube-proxy", "mine", kind="DaemonSet")]) is None
    )


def test_what_is_behind_is_brought_to_the_version_of_the_api_servers_in_the_order_of_an_upgrade():
    found = unsettled(
        [servers(NEW), hosted("kube-controller-manager", OLD), hosted("kube-scheduler", f"{OLD}@sha256:1")]
    )
    assert found is not None
    seen, steps = found
    assert seen == f"kube-apiserver is of {NEW}, kube-controller-manager of {OLD}, kube-scheduler of {OLD}"
    first, second = steps.removeprefix("run ").split(", then ")
    assert first.startswith("`kubectl -n kube-system set image deployment/kube-controller-manager ")
    assert second.endswith(f" kube-scheduler=registry.k8s.io:443/kube-scheduler:{NEW}`")


def test_in_the_middle_of_placing_binaries_nothing_may_become_newer_than_what_the_api_servers_emulate():
    found = unsettled([servers(NEW, "1.36"), hosted("kube-scheduler", OLD)])
    assert found is not None
    assert "`kubectl -n kube-system edit daemonset/kube-apiserver`" in found[1]
    assert "set image" not in found[1]


def test_what_emulates_the_minor_before_is_not_of_its_version_yet():
    found = unsettled([servers(NEW, "1.36"), hosted("kube-scheduler", NEW)])
    assert found is not None
    assert found[0] == "kube-apiserver emulates 1.36"
    assert "--emulated-version" in found[1]
    assert "`kubectl -n kube-system edit daemonset/kube-apiserver`" in found[1]
