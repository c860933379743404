"""The file by which an API server reads what it has stored encrypted, as a backup has it or lacks it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky import places
from autarky.control.backup.decide.encryption import Encryption, encryption_of, lacking
from autarky.model.components import API_SERVER
from autarky.render.values import Object
from autarky.upkeep.backup import encryption_in
from fakes.clusters import a_cluster, inputs_of
from fakes.encrypting import CONFIGURATION, IN_SECRET, MOUNT, archived, on_host

LEAVES = f"{places.LEAVES}/{API_SERVER}"
FLAG = "--encryption-provider-config"
POD = f"host{places.STANDBY}/{API_SERVER}/current/pod.json"


@pytest.mark.parametrize(
    "flags",
    [
        (f"{FLAG}={MOUNT}/config.yaml",),
        (FLAG, f"{MOUNT}/config.yaml"),
        ("--encryption_provider_config", f"{MOUNT}/config.yaml"),
        (f"{FLAG}=/not/this", f"{FLAG}={MOUNT}//config.yaml"),
    ],
)
def test_a_file_of_a_secret_is_among_the_standbys_own(flags: tuple[str, ...]) -> None:
    found = encryption_in(archived(IN_SECRET, *flags))
    assert found is not None
    assert (found.content, found.is_own) == (CONFIGURATION, True)
    assert found.path.startswith(f"{places.STANDBY}/{API_SERVER}/checkpoint-")
    assert lacking(found) == ""


def test_also_where_it_is_mounted_alone() -> None:
    alone = {"mountPath": "/etc/keys.yaml", "subPath": "config.yaml"}
    found = encryption_in(archived(IN_SECRET, f"{FLAG}=/etc/keys.yaml", mount=alone))
    assert found is not None
    assert (found.content, found.is_own) == (CONFIGURATION, True)


@pytest.mark.parametrize("directory", [places.PKI, LEAVES])
def test_one_of_the_host_is_where_a_backup_has_it(directory: str) -> None:
    files = archived(on_host(directory)) | {f"host{directory}/config.yaml": b"kind: x\n"}
    assert encryption_in(files) == Encryption(f"{directory}/config.yaml", "kind: x\n")


@pytest.mark.parametrize("directory", ["/etc/keys", places.MANIFESTS, f"{places.HOST_ROOT}/state"])
def test_elsewhere_on_the_host_it_is_in_no_backup_whatever_an_archive_says(directory: str) -> None:
    """An archive's files are written to a host: nowhere but where its owner may keep such a file."""
    files = archived(on_host(directory)) | {f"host{directory}/config.yaml": b"kind: x\n"}
    found = encryption_in(files)
    assert found == Encryption(f"{directory}/config.yaml")
    assert f"with {directory}/config.yaml, which is in no backup" in lacking(found)


def test_one_that_no_volume_has_is_named_as_the_flag_does() -> None:
    assert encryption_in(archived({"emptyDir": {}})) == Encryption(f"{MOUNT}/config.yaml")
    assert encryption_in(archived(IN_SECRET, f"{FLAG}=/image/keys.yaml")) == Encryption("/image/keys.yaml")


def test_a_path_cannot_lead_out_of_where_it_may_be() -> None:
    volume = on_host(f"{places.PKI}/../manifests")
    files = archived(volume) | {f"host{places.MANIFESTS}/config.yaml": b"kind: Pod\n"}
    assert encryption_in(files) == Encryption(f"{places.MANIFESTS}/config.yaml")


def test_without_that_flag_there_is_nothing_to_read_with() -> None:
    assert encryption_in({}) is None
    assert lacking(None) == ""
    pod = json.loads(archived()[POD])
    container = next(one for one in pod["spec"]["containers"] if one["name"] == API_SERVER)
    container["command"] = [word for word in container["command"] if not word.startswith(FLAG)]
    assert encryption_in({POD: json.dumps(pod).encode()}) is None


def test_no_key_is_shown() -> None:
    assert "secretbox" not in repr(encryption_in(archived()))
    assert "secretbox" not in repr(replace(inputs_of(a_cluster()), encryption=CONFIGURATION))


ODD = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "mountPath", "hostPath", "path", "subPath"]), inner, max_size=3)
    ),
)


@given(command=ODD, mounts=ODD, volumes=ODD)
def test_it_returns_for_any_content(command: object, mounts: object, volumes: object) -> None:
    line = [f"{FLAG}=/etc/x", *(command if isinstance(command, list) else [])]
    container: Object = {"name": API_SERVER, "command": line, "args": command, "volumeMounts": mounts}
    pod = {"spec": {"containers": [container], "volumes": volumes}}
    assert encryption_of(json.dumps(pod).encode(), {}) is not None
    assert encryption_of(json.dumps(command).encode(), {}) is None
    assert encryption_of(b"{", {}) is None
