"""What is written to hosts: configuration that follows what the host can do, and no secret readable by others."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import tomllib
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings

from autarky import places
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.kubelet.manifests import configuration as kubelet_configuration
from autarky.control.kubelet.manifests import credentials as kubelet_credentials
from autarky.control.kubelet.manifests import files as generations
from autarky.control.kubelet.manifests import service as kubelet_service
from autarky.hosts.facts import FEATURES
from autarky.model.cluster import ExternalEtcd, HostRef, Taint
from autarky.model.components import IMAGES
from autarky.phases import teardown
from autarky.render import node as render_node
from autarky.render.kubeconfig import bootstrap_kubeconfig
from fakes.clusters import FACTS, a_cluster, credentials_of, inputs_of
from unit.render.rendered import EXTERNAL, host_files, some_inputs

PRIVATE = b"PRIVATE key"
RUNTIME = "io.containerd.cri.v1.runtime"


def kubelet(facts=None, **changes):
    cluster = a_cluster()
    node = replace(cluster.nodes[0], **changes)
    return kubelet_configuration.kubelet_config(
        inputs_of(replace(cluster, nodes=(node,)), facts and {"n1": facts}), node
    )


def test_only_a_test_host_measures_the_disk_in_bytes_for_it_sees_that_of_the_entire_machine():
    assert kubelet()["evictionHard"]["nodefs.available"] == "1Gi"
    assert "evictionHard" not in kubelet(host=HostRef("local", ""))


def containerd(facts=None):
    cluster = a_cluster()
    inputs = inputs_of(cluster, facts and {"n1": facts})
    return tomllib.loads(render_node.containerd_config(inputs, cluster.nodes[0]))


def systemd_cgroup(config):
    return config["plugins"][RUNTIME]["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"]


def unit_of(inputs, name):
    files = render_node.kubelet_files(inputs, inputs.cluster.node(name))
    [unit] = [file.content.decode() for file in files if file.path == kubelet_service.KUBELET_UNIT]
    return unit


def holds_a_private_key(content: bytes) -> bool:
    """Plain, or in the base64 of a kubeconfig."""
    return PRIVATE in content or base64.b64encode(PRIVATE[:9]) in content


@settings(max_examples=25, deadline=None)
@given(some_inputs())
def test_private_keys_are_in_root_only_files(inputs):
    held = [file for _, file in host_files(inputs) if holds_a_private_key(file.content)]
    assert held
    shared = f"{places.LEAVES}/"  # of the components' group, in a directory that is root's alone
    assert {file.mode for file in held if not file.path.startswith(shared)} == {0o600}
    assert {file.mode for file in held if file.path.startswith(shared)} == {0o640}


@settings(max_examples=25, deadline=None)
@given(some_inputs())
def test_a_worker_holds_no_private_key_of_the_cluster(inputs):
    workers = {node.name for node in inputs.cluster.workers}
    assert not [file.path for host, file in host_files(inputs) if host in workers and holds_a_private_key(file.content)]


@settings(max_examples=25, deadline=None)
@given(some_inputs())
def test_no_file_is_written_twice_on_a_host(inputs):
    paths = [(host, file.path) for host, file in host_files(inputs)]
    assert len(paths) == len(set(paths))


def test_the_content_of_files_and_credentials_is_not_shown():
    inputs = inputs_of(a_cluster())
    assert "PRIVATE" not in repr(inputs)
    assert not any("PRIVATE" in repr(file) for _, file in host_files(inputs))


@pytest.mark.parametrize("facts", [None, FACTS], ids=["not seen yet", "seen"])
def test_an_ordinary_machine_has_systemd_cgroups_of_version_2(facts):
    assert kubelet(facts)["cgroupDriver"] == "systemd"
    assert "failCgroupV1" not in kubelet(facts)
    assert systemd_cgroup(containerd(facts)) is True


def test_with_cgroup_v1_kubelet_and_containerd_agree_on_cgroupfs():
    facts = replace(FACTS, cgroup_version=1)
    assert kubelet(facts)["cgroupDriver"] == "cgroupfs"
    assert kubelet(facts)["failCgroupV1"] is False
    assert systemd_cgroup(containerd(facts)) is False


def test_a_host_that_may_not_lower_oom_scores_is_not_asked_to():
    facts = replace(FACTS, may_lower_oom_score=False)
    assert kubelet(facts)["oomScoreAdj"] == 0
    assert containerd(facts)["plugins"][RUNTIME]["restrict_oom_score_adj"] is True
    assert "oomScoreAdj" not in kubelet(FACTS)
    assert containerd(FACTS)["plugins"][RUNTIME]["restrict_oom_score_adj"] is False


def test_pods_are_given_the_real_name_servers_where_the_host_has_a_stub():
    facts = replace(FACTS, upstream_resolv_conf="/run/systemd/resolve/resolv.conf")
    assert kubelet(facts)["resolvConf"] == "/run/systemd/resolve/resolv.conf"
    assert "resolvConf" not in kubelet(FACTS)
    assert "resolvConf" not in kubelet()


def test_the_modules_that_preflight_asks_for_are_loaded_at_every_boot():
    inputs = inputs_of(a_cluster())
    files = {file.path: file for file in render_node.system_files(inputs, inputs.cluster.nodes[0])}
    listed = files["/etc/modules-load.d/autarky.conf"].content.decode().split()
    assert set(listed) == set(FEATURES) - {"seccomp"}


def test_the_kubelet_listens_to_nobody_it_does_not_know():
    config = kubelet()
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["readOnlyPort"] == 0
    assert config["serverTLSBootstrap"] is config["rotateCertificates"] is True


def test_taints_come_from_the_file():
    assert "registerWithTaints" not in kubelet()
    assert kubelet(taints=(Taint("dedicated", "gpu", "NoSchedule"),))["registerWithTaints"] == [
        {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    ]


def test_the_sandbox_image_is_pinned_by_name():
    assert (
        containerd()["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"]
        == "registry.example/pause:v1"
    )


def test_standbys_are_put_in_place_before_the_kubelet_and_a_failure_does_no_harm():
    inputs = inputs_of(a_cluster(controls=1, workers=1))
    for node in ("n1", "n2"):  # a worker may become a control node by a label
        assert "ExecStartPre=-/var/lib/autarky/bin/standby boot\n" in unit_of(inputs, node)
        assert 'ExecStartPost=-/bin/sh -c "/var/lib/autarky/bin/standby boot-rest &"\n' in unit_of(inputs, node)


def below(root, text):
    for path, there in (("/etc/kubernetes", f"{root}/kubernetes"), ("/var/lib", str(root)), ("/run/", f"{root}/run/")):
        text = text.replace(path, there)
    return text


def command_of(unit, root):
    """What systemd would run (systemd.service(5), "Command lines"), with files below the root."""
    [line] = [line.removeprefix("ExecStart=") for line in unit.splitlines() if line.startswith("ExecStart=")]
    return [below(root, word.replace("$$", "$").replace("%%", "%")) for word in shlex.split(line)]


def put_generation(inputs, name, root):
    """What the unit starts, below the root: the script, and a generation whose kubelet says what it is given."""
    made = kubelet_configuration.first_generation(inputs, inputs.cluster.node(name), {})
    directory = root / "autarky/kubelet" / made.name
    directory.mkdir(parents=True)
    (directory.parent / "current").symlink_to(made.name)
    for file, content in made.contents.items():
        (directory / file).write_text(below(root, content.decode()))
    script, program = root / "autarky/bin/kubelet-slots", directory / "kubelet"
    script.parent.mkdir()
    script.write_text(below(root, generations.script().content.decode()))
    program.write_text('#!/bin/sh\necho $$\nprintf "%s\\n" "$@"\n')
    for one in (script, program):
        one.chmod(0o755)
    return directory


def arguments_of(inputs, name):
    made = kubelet_configuration.first_generation(inputs, inputs.cluster.node(name), {})
    return made.contents[generations.ARGUMENTS].decode().splitlines()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_kubelet_asks_for_its_certificate_by_another_credential_where_no_agent_signs_it_one(tmp_path, node):
    """A kubelet whose request waits for an operator never looks for what its agent has signed: of a control node none
    may ask, and where the CA's key is no more, any must. The kubelet is the unit's own process."""
    (tmp_path / "kubernetes/pki").mkdir(parents=True)
    odd = {"kubelet": {"node-labels": "a=b c", "v": "$4 %i \\ 'q\""}}
    inputs = inputs_of(a_cluster(controls=1, workers=1, extra_args=odd))
    unit, generation = unit_of(inputs, node), put_generation(inputs, node, tmp_path)

    def started():
        with subprocess.Popen(command_of(unit, tmp_path), stdout=subprocess.PIPE, text=True) as process:
            said = process.stdout.read().splitlines()
        assert said[:2] == [str(process.pid), f"--config={generation}/config.json"]
        assert f"--hostname-override={node}" in said
        assert "--node-labels=a=b c" in said
        assert "--v=$4 %i \\ 'q\"" in said
        return [word for word in said if word.startswith("--bootstrap-kubeconfig=")]

    other = [f"--bootstrap-kubeconfig={tmp_path}/kubernetes/bootstrap-kubelet.conf"]
    ca_key, agent = (
        tmp_path / "kubernetes/pki/ca.key",
        tmp_path / "kubernetes/manifests/node-agent-standby-1a2b3c4d.json",
    )
    ca_key.write_text("PRIVATE")
    assert started() == other, "it is about to become a control node, and has no agent that signs without an API"
    agent.parent.mkdir()
    agent.write_text("{}")
    assert started() == other, "its kubeconfig was lost, and a kubelet with a bootstrap kubeconfig writes a new one"
    kubeconfig = tmp_path / "kubernetes/kubelet.conf"
    kubeconfig.write_text("")
    assert started() == other
    kubeconfig.write_text("users: [{name: default-auth, user: {client-certificate: /there, client-key: /there}}]")
    assert started() == other, "its certificate was lost, and one that may not ask would end at once"
    current = tmp_path / "kubelet/pki/kubelet-client-current.pem"
    current.parent.mkdir(parents=True)
    current.symlink_to("lost.pem")
    assert started() == other
    (tmp_path / "kubelet/pki/lost.pem").write_text("")
    assert started() == other
    (tmp_path / "kubelet/pki/lost.pem").write_text("a certificate")
    assert started() == []
    current.unlink()
    kubeconfig.write_text("users: [{name: default-auth, user: {client-certificate-data: YQ==}}]")
    assert started() == [], "as earlier releases wrote it"
    ca_key.unlink()
    assert started() == other


def test_before_a_kubelet_starts_what_the_power_took_of_its_certificates_is_removed(tmp_path):
    """With an empty certificate it would not start, ever; without one it asks for another."""
    pki = tmp_path / "kubelet/pki"
    pki.mkdir(parents=True)
    complete = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nMHc\n"
    without_key = complete[: complete.index("-----BEGIN EC")]
    complete += "-----END EC PRIVATE KEY-----\n"
    contents = {"intact": complete, "torn": complete[:60], "empty": "", "zeros": "\0" * 800, "lost": None}
    contents["without its key"] = without_key
    for name, content in contents.items():
        if content is not None:
            (pki / f"{name}.pem").write_text(content)
    unit = unit_of(inputs_of(a_cluster()), "n1")
    first = next(line for line in unit.splitlines() if line.startswith("ExecStartPre="))

    def left(client, server):
        links = {"kubelet-client-current.pem": client, "kubelet-server-current.pem": server}
        for link, name in links.items():
            (pki / link).unlink(missing_ok=True)
            (pki / link).symlink_to(f"{name}.pem")
        command = first.replace("ExecStartPre=-", "ExecStart=")
        subprocess.run(command_of(command, tmp_path), check=False, capture_output=True)
        return [name for link, name in links.items() if (pki / link).is_symlink()]

    assert left("intact", "intact") == ["intact", "intact"]
    for damage in contents.keys() - {"intact"}:
        assert left("intact", damage) == left(damage, "intact") == ["intact"], damage
    for name in contents.keys() - {"lost"}:
        assert (pki / f"{name}.pem").exists()
    (pki / "unreadable.pem").mkdir()
    assert left("unreadable", "unreadable") == ["unreadable"] * 2, "what cannot be read is not known to be damaged"


def test_the_users_kubelet_arguments_win():
    inputs = inputs_of(a_cluster(extra_args={"kubelet": {"node-ip": "198.51.100.1", "v": "4"}}))
    assert arguments_of(inputs, "n1")[-2:] == ["--node-ip=198.51.100.1", "--v=4"]
    assert "192.0.2.11" not in str(arguments_of(inputs, "n1"))


def test_a_kubelet_asks_for_its_next_certificate_with_the_newest_that_it_has_through_its_own_balancer():
    """One that stood in the kubeconfig would end one day, however often the kubelet has rotated its own."""
    inputs = inputs_of(a_cluster())
    first, file = kubelet_credentials.first_credentials(inputs, inputs.cluster.nodes[0])
    assert (first.content, first.mode) == (b"certificate of kubelet-n1\nPRIVATE key of kubelet-n1\n", 0o600)
    assert {first.path} == set(kubelet_credentials.FIRST_LINK.values())
    config = json.loads(file.content)
    assert file.mode == 0o600
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
    assert config["users"][0]["user"] == {"client-certificate": current, "client-key": current}
    assert config["current-context"] == config["contexts"][0]["name"] == "system:node:n1@demo"


def test_a_joining_kubelet_has_the_token_and_the_ca_and_nothing_more():
    config = json.loads(bootstrap_kubeconfig(b"the CA\n", "demo", "abcdef.0123456789abcdef"))
    assert config["users"] == [{"name": "kubelet-bootstrap", "user": {"token": "abcdef.0123456789abcdef"}}]


def test_the_etcd_ca_key_is_not_on_nodes_that_use_an_external_etcd():
    paths = {file.path for _, file in host_files(inputs_of(a_cluster(external_etcd=EXTERNAL)))}
    assert not [path for path in paths if path.startswith("/etc/kubernetes/pki/etcd/")]
    assert "/etc/kubernetes/pki/ca.key" in paths


def test_a_lab_host_for_etcd_gets_a_unit_and_its_certificates_only():
    etcd = ExternalEtcd((), "", "", "", lab_host="store")
    cluster = a_cluster(external_etcd=etcd).with_addresses({"store": "192.0.2.99"})
    assert cluster.external_etcd is not None
    assert cluster.external_etcd.endpoints == ("https://192.0.2.99:2379",)
    files = {file.path: file for host, file in host_files(inputs_of(cluster)) if host == "store"}
    unit = files.pop("/etc/systemd/system/etcd.service").content.decode()
    assert "--initial-cluster=store=https://192.0.2.99:2380" in unit
    assert all(path.startswith("/etc/kubernetes/pki/etcd/") and f.mode == 0o600 for path, f in files.items())


def test_every_node_gets_the_images_of_the_control_plane_and_its_tools():
    assert {"etcdctl", "etcdutl"} <= render_node.BINARIES.keys()
    assert {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} <= set(IMAGES)
    assert set(IMAGES) <= set(inputs_of(a_cluster()).images)


def test_an_address_that_is_not_known_yet_is_said():
    cluster = a_cluster()
    unknown = replace(cluster, nodes=(replace(cluster.nodes[0], address=None),))
    with pytest.raises(ValueError, match="the address of node n1 is not known yet"):
        credentials_of(unknown)


def test_the_unit_of_the_kubelet_is_the_same_on_every_host_and_in_every_cluster():
    """What differs is in the generation, which is proven, and taken back."""
    with_arguments = a_cluster(controls=1, workers=1, extra_args={"kubelet": {"v": "4"}})
    assert len({unit_of(inputs_of(one), one.nodes[-1].name) for one in (a_cluster(), with_arguments)}) == 1


def test_what_a_restart_of_the_machine_cut_is_undone_before_containerd_and_before_the_kubelet():
    inputs = inputs_of(a_cluster())
    system = {file.path: file.content.decode() for file in render_node.system_files(inputs, inputs.cluster.nodes[0])}
    slots = generations.SCRIPT_PATH
    assert system[slots] == generations.script().content.decode()
    for unit in (system[render_node.CONTAINERD_UNIT], unit_of(inputs, "n1")):
        assert 0 < unit.index(f"\nExecStartPre=-{slots} boot\n") < unit.index("\nExecStart=")


def test_the_host_restarts_the_kubelet_at_the_mark_that_its_agent_can_leave():
    inputs = inputs_of(a_cluster())
    files = {file.path: file.content.decode() for file in render_node.kubelet_files(inputs, inputs.cluster.nodes[0])}
    path, service = (files[f"/etc/systemd/system/autarky-kubelet-certificate.{kind}"] for kind in ("path", "service"))
    assert {"autarky-kubelet-certificate.path", "autarky-kubelet.path"} <= set(
        files[kubelet_service.KUBELET_UNIT].split()
    )
    assert f"PathExists={kubelet_credentials.GIVEN}\n" in path
    aside = f"{generations.SCRIPT_PATH} aside"
    assert (
        f"\nExecStart=/bin/sh -c 'systemctl try-restart kubelet; {aside}; rm -f {kubelet_credentials.GIVEN}'\n"
        in service
    )
    for pod in (agent.static_pod(inputs, inputs.cluster.nodes[0])["spec"], hosted_agent(inputs)):
        mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
        assert not mounts[str(PurePosixPath(kubelet_credentials.GIVEN).parent)].get("readOnly")


def hosted_agent(inputs):
    [found] = [one for one in agent.objects(inputs) if one["kind"] == "DaemonSet"]
    return found["spec"]["template"]["spec"]


def test_down_takes_every_unit_away_that_a_host_was_given():
    inputs = inputs_of(a_cluster())
    node = inputs.cluster.nodes[0]
    files = [*render_node.system_files(inputs, node), *render_node.kubelet_files(inputs, node)]
    units = [file.path for file in files if file.path.startswith("/etc/systemd/system/")]
    assert len(units) == 6
    removed = teardown._CLEAN.partition("rm -rf ")[2].split()
    assert set(units) <= set(removed)
    assert "rmdir -p" not in teardown._CLEAN, "an empty /opt is not ours"
    assert {"/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni"} <= set(removed)
