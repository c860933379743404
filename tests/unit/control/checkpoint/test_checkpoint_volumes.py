"""Volumes of a hosted pod as a checkpoint has them: files that root alone can read, or refused."""

from __future__ import annotations

import pytest

from autarky.control.checkpoint.manifests import references
from autarky.errors import Refused
from autarky.render.values import Object
from unit.render.checkpoints import a_pod, checkpoint, config_map, container_in, contents_in, files_in, secret, spec_in

TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}


def with_volume(source: Object, **mount: object) -> Object:
    """A pod with one volume `v`, mounted at /v."""
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return a_pod(container={"volumeMounts": mounts}, volumes=[{"name": "v", **source}])


def of_secret(data: Object | None, **source: object) -> dict[str, tuple[bytes, int]]:
    pod = with_volume({"secret": {"secretName": "s", **source}})
    return files_in(checkpoint(pod, secrets={"s": data}))


def of_config(data: Object | None, **source: object) -> dict[str, tuple[bytes, int]]:
    pod = with_volume({"configMap": {"name": "c", **source}})
    return files_in(checkpoint(pod, config_maps={"c": data}))


def test_a_secret_becomes_files_that_root_alone_can_read():
    assert of_secret(secret(tls_key=b"\x00\xff", ca_crt="x")) == {
        "v/tls.key": (b"\x00\xff", 0o600),
        "v/ca.crt": (b"x", 0o600),
    }


def test_a_config_map_becomes_files_of_its_texts_and_of_its_binaries():
    assert of_config(config_map(a_txt="ä", binary={"b": b"\xff"})) == {
        "v/a.txt": ("ä".encode(), 0o600),
        "v/b": (b"\xff", 0o600),
    }


def test_the_volume_is_the_directory_of_its_files_and_cannot_be_written():
    revision = checkpoint(with_volume({"secret": {"secretName": "s"}}), secrets={"s": secret(k="x")})
    [volume] = spec_in(revision)["volumes"]
    assert volume == {"name": "v", "hostPath": {"path": f"{revision.directory}/files/v", "type": "Directory"}}
    assert container_in(revision)["volumeMounts"] == [{"name": "v", "mountPath": "/v", "readOnly": True}]


def test_items_choose_keys_and_paths():
    items = [{"key": "a", "path": "deep/er/A"}, {"key": "b", "path": "B", "mode": 0o755}]
    assert of_secret(secret(a="1", b="2", c="3"), items=items) == {
        "v/deep/er/A": (b"1", 0o600),
        "v/B": (b"2", 0o700),
    }


@pytest.mark.parametrize(("mode", "ours"), [(0o644, 0o600), (0o400, 0o600), (0o555, 0o700), (0o710, 0o700)])
def test_what_could_be_executed_still_can_be_and_by_nobody_but_root(mode, ours):
    assert of_config(config_map(k="x"), defaultMode=mode)["v/k"][1] == ours


@pytest.mark.parametrize("of", [of_secret, of_config])
def test_an_optional_object_that_does_not_exist_is_an_empty_directory(of):
    assert of(None, optional=True) == {}
    revision = checkpoint(with_volume({"secret": {"secretName": "s", "optional": True}}), secrets={"s": None})
    assert spec_in(revision)["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_an_optional_item_without_its_key_is_left_out():
    assert of_secret(secret(a="1"), items=[{"key": "b", "path": "b"}], optional=True) == {}


def test_a_sub_path_leads_to_the_same_file():
    pod = with_volume({"secret": {"secretName": "s"}}, subPath="k", readOnly=True)
    revision = checkpoint(pod, secrets={"s": secret(k="x")})
    assert container_in(revision)["volumeMounts"][0]["subPath"] == "k"
    assert contents_in(revision) == {"v/k": b"x"}


@pytest.mark.parametrize(
    "source",
    [
        {"hostPath": {"path": "/etc/ssl/certs", "type": "Directory"}},
        {"emptyDir": {}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"image": {"reference": "registry.example/x:1", "pullPolicy": "IfNotPresent"}},
        {"nfs": {"server": "192.0.2.1", "path": "/x"}},
    ],
    ids=lambda source: next(iter(source)),
)
def test_volumes_that_need_no_api_are_kept_as_they_are(source):
    revision = checkpoint(with_volume(source, readOnly=True))
    assert spec_in(revision)["volumes"] == [{"name": "v", **source}]
    assert files_in(revision) == {}


def test_a_volume_without_a_source_is_an_empty_directory():
    assert spec_in(checkpoint(with_volume({})))["volumes"] == [{"name": "v", "emptyDir": {}}]


# --- projected volumes -----------------------------------------------------------------------------


def test_a_projected_volume_becomes_one_directory_and_its_last_source_wins():
    sources = [
        {"secret": {"name": "s"}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "both", "mode": 0o500}]}},
    ]
    pod = with_volume({"projected": {"sources": sources, "defaultMode": 0o440}})
    revision = checkpoint(pod, secrets={"s": secret(both="1", own="2")}, config_maps={"c": config_map(k="3")})
    assert files_in(revision) == {"v/both": (b"3", 0o700), "v/own": (b"2", 0o600)}


def test_a_token_is_left_out_of_a_projected_volume_and_the_rest_stays():
    sources = [TOKEN, {"configMap": {"name": "c"}}]
    revision = checkpoint(with_volume({"projected": {"sources": sources}}), config_maps={"c": config_map(k="x")})
    assert contents_in(revision) == {"v/k": b"x"}
    alone = checkpoint(with_volume({"projected": {"sources": [TOKEN]}}))
    assert spec_in(alone)["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_downward_items_beside_files_become_files_where_the_pod_tells_their_value():
    items = [
        {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
        {"path": "zone", "fieldRef": {"fieldPath": "metadata.labels['zone']"}},
    ]
    sources = [{"downwardAPI": {"items": items}}, {"configMap": {"name": "c"}}]
    revision = checkpoint(with_volume({"projected": {"sources": sources}}), config_maps={"c": config_map(k="x")})
    assert contents_in(revision) == {"v/namespace": b"kube-system", "v/zone": b"a", "v/k": b"x"}


def test_a_projected_volume_of_downward_items_alone_is_kept():
    source = {"projected": {"sources": [{"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "x"}}]}}]}}
    assert spec_in(checkpoint(with_volume(source)))["volumes"] == [{"name": "v", **source}]


@pytest.mark.parametrize("suffix", ["abcde", "fghij"])
def test_the_injected_service_account_volume_is_gone_whatever_its_name(suffix):
    name = f"kube-api-access-{suffix}"
    mount = {"name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    sources = [TOKEN, {"configMap": {"name": "kube-root-ca.crt"}}]
    pod = a_pod(container={"volumeMounts": [mount]}, volumes=[{"name": name, "projected": {"sources": sources}}])
    assert references(pod) == ()
    assert checkpoint(pod).name == checkpoint(a_pod()).name


# --- what is refused -------------------------------------------------------------------------------

API_VOLUMES = {
    "persistentVolumeClaim": {"claimName": "data"},
    "ephemeral": {"volumeClaimTemplate": {}},
    "csi": {"driver": "x.example.org"},
    "azureFile": {"secretName": "s", "shareName": "x"},
    "somethingNew": {"a": 1},
}


@pytest.mark.parametrize("kind", API_VOLUMES)
def test_volumes_that_need_the_api_are_refused(kind):
    with pytest.raises(Refused, match=rf"(?s)spec\.volumes\[v\]\.{kind}: .*hostPath") as refusal:
        checkpoint(with_volume({kind: API_VOLUMES[kind]}, readOnly=True))
    assert refusal.value.rule == "a standby needs nothing but the disk of its node"


@pytest.mark.parametrize("kind", ["clusterTrustBundle", "podCertificate"])
def test_projected_sources_that_need_the_api_are_refused(kind):
    with pytest.raises(Refused, match=rf"projected\.{kind}"):
        checkpoint(with_volume({"projected": {"sources": [{kind: {"path": "x"}}]}}))


def test_storage_that_needs_a_secret_of_its_own_is_refused():
    iscsi = {"targetPortal": "192.0.2.1", "iqn": "x", "lun": 0, "secretRef": {"name": "chap"}}
    with pytest.raises(Refused, match="secretRef"):
        checkpoint(with_volume({"iscsi": iscsi}, readOnly=True))


def test_a_downward_item_that_only_the_kubelet_knows_cannot_become_a_file():
    items = [{"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}}]
    sources = [{"downwardAPI": {"items": items}}, {"configMap": {"name": "c"}}]
    with pytest.raises(Refused, match="downwardAPI"):
        checkpoint(with_volume({"projected": {"sources": sources}}), config_maps={"c": config_map(k="x")})


def test_unknown_is_not_absent_what_was_not_read_is_refused_even_when_optional():
    with pytest.raises(Refused, match="the Secret s was not read"):
        checkpoint(with_volume({"secret": {"secretName": "s", "optional": True}}))


def test_an_object_that_does_not_exist_is_refused():
    with pytest.raises(Refused, match="the ConfigMap c does not exist"):
        of_config(None)


def test_a_key_that_does_not_exist_is_refused():
    with pytest.raises(Refused, match="the Secret s has no key b"):
        of_secret(secret(a="1"), items=[{"key": "b", "path": "b"}])


@pytest.mark.parametrize("path", ["../x", "/etc/shadow", "a/../../x"])
def test_a_path_never_leaves_the_revision(path):
    with pytest.raises(Refused, match="leaves its volume"):
        of_secret(secret(a="1"), items=[{"key": "a", "path": path}])


def test_content_that_cannot_be_decoded_is_refused_and_not_shown():
    with pytest.raises(Refused) as refusal:
        of_secret({"metadata": {"name": "s"}, "data": {"k": "!private!"}})
    assert "private" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__


def test_a_reference_is_optional_only_if_every_mention_is():
    volumes = [
        {"name": "a", "secret": {"secretName": "s", "optional": True}},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "c", "optional": True}},
    ]
    found = [(r.kind, r.name, r.optional) for r in references(a_pod(volumes=volumes))]
    assert found == [("ConfigMap", "c", True), ("Secret", "s", False)]
