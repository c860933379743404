"""Whatever a pod holds: it is refused, or its checkpoint needs no API and shows no secret."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autarky.control.checkpoint.manifests import references
from autarky.control.slots.manifests import Revision
from autarky.errors import Refused
from autarky.render.values import Object
from fakes.hosted_pods import completed
from unit.render.checkpoints import a_pod, checkpoint, files_in, pod_in, spec_in
from unit.render.rendered import strings

HIDDEN = "hidden-from-everybody"
FORBIDDEN = {
    *("secret", "configMap", "secretRef", "configMapRef", "secretKeyRef", "configMapKeyRef", "serviceAccountToken"),
    *("persistentVolumeClaim", "ephemeral", "csi", "clusterTrustBundle", "podCertificate", "resourceClaims"),
    *("serviceAccountName", "serviceAccount", "imagePullSecrets", "envFrom", "ports", "limits", "memory"),
}
"""What the kubelet refuses in a static pod, and what would keep it from starting beside the hosted one."""

NAMES = st.sampled_from(["one", "two", "gone"])
KEYS = st.sampled_from(["a", "b.pem", "C_D"])
PATHS = st.sampled_from(["x", "deep/x", "deep/er/y", "../up"])
MODES = st.sampled_from([0o400, 0o644, 0o755])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """An object with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


items = st.lists(st.builds(lambda key, path: {"key": key, "path": path}, KEYS, PATHS), min_size=1, max_size=2)
file_source = some(items=items, optional=st.booleans(), defaultMode=MODES)
secret_source = st.builds(lambda name, rest: {"secret": {"secretName": name, **rest}}, NAMES, file_source)
config_source = st.builds(lambda name, rest: {"configMap": {"name": name, **rest}}, NAMES, file_source)
projected = st.lists(
    st.builds(
        lambda kind, name, rest: {kind: {"name": name, **rest}},
        st.sampled_from(["secret", "configMap"]),
        NAMES,
        some(items=items, optional=st.booleans()),
    )
    | st.just({"serviceAccountToken": {"path": "token"}})
    | st.just({"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}),
    max_size=3,
).map(lambda sources: {"projected": {"sources": sources}})
plain: st.SearchStrategy[Any] = st.sampled_from(
    [
        {"emptyDir": {}},
        {"hostPath": {"path": "/var/log"}},
        {"persistentVolumeClaim": {"claimName": "x"}},
        {"csi": {"driver": "x"}},
    ]
)
volumes = st.lists(secret_source | config_source | projected | plain, max_size=3).map(
    lambda sources: [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
)
variables = st.lists(
    st.builds(
        lambda kind, name, key, rest: {"valueFrom": {kind: {"name": name, "key": key, **rest}}},
        st.sampled_from(["configMapKeyRef"] * 3 + ["secretKeyRef"]),
        NAMES,
        KEYS,
        some(optional=st.booleans()),
    )
    | st.just({"value": "plain"})
    | st.just({"valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}),
    max_size=3,
).map(lambda found: [{"name": f"V{number}", **variable} for number, variable in enumerate(found)])
imports = st.lists(
    st.builds(
        lambda kind, name, rest: {kind: {"name": name, "optional": True}, **rest},
        st.sampled_from(["configMapRef"] * 3 + ["secretRef"]),
        NAMES,
        some(prefix=st.just("P_")),
    ),
    max_size=2,
)
users = some(runAsUser=st.sampled_from([0, 65532]), runAsNonRoot=st.booleans())


@st.composite
def some_pod(draw: st.DrawFn) -> Object:
    found = draw(volumes)
    mounts = [
        {"name": volume["name"], "mountPath": f"/{volume['name']}", "readOnly": draw(st.booleans())} for volume in found
    ]
    container = {
        "volumeMounts": mounts,
        "env": draw(variables),
        "envFrom": draw(imports),
        "securityContext": draw(users),
        "ports": [{"containerPort": 10259}],
    }
    return a_pod(container=container, volumes=found, securityContext=draw(users), serviceAccountName="x")


def text_of(kind: str, name: str) -> str:
    return f"{HIDDEN} {name}" if kind == "Secret" else f"of {name}"


def objects(kind: str) -> dict[str, Object | None]:
    def of(name: str) -> Object:
        text = text_of(kind, name)
        value = base64.b64encode(text.encode()).decode() if kind == "Secret" else text
        return {"metadata": {"name": name}, "data": {"a": value, "b.pem": value}}

    return {"one": of("one"), "two": of("two"), "gone": None}


def answer(pod: Object, secrets: dict[str, Object | None], config_maps: dict[str, Object | None]) -> Revision | Refused:
    try:
        return checkpoint(pod, secrets=secrets, config_maps=config_maps)
    except Refused as refusal:
        return refusal


def made(pod: Object) -> Revision | None:
    """Its checkpoint, or None where it was refused with rule and remedy."""
    found = answer(pod, objects("Secret"), objects("ConfigMap"))
    if isinstance(found, Revision):
        return found
    assert found.rule
    assert "spec." in str(found)
    assert "to go on: " in str(found)
    assert HIDDEN not in str(found)
    return None


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys(item)}
    return {key for item in value for key in keys(item)} if isinstance(value, list) else set()


@settings(max_examples=300, deadline=None)
@given(some_pod())
def test_a_checkpoint_needs_no_api_and_shows_no_secret(pod):
    revision = made(pod)
    if revision is None:
        return
    spec = spec_in(revision)
    assert not keys(spec) & FORBIDDEN
    assert references(pod_in(revision)) == ()
    assert not any(HIDDEN in text for text in strings(pod_in(revision)))
    for path, (_, mode) in files_in(revision).items():
        assert mode in (0o600, 0o700), "root alone"
        assert ".." not in path.split("/")
    places = {volume["name"]: volume.get("hostPath", {}).get("path", "") for volume in spec.get("volumes", [])}
    for mount in spec["containers"][0].get("volumeMounts", []):
        assert mount.get("readOnly") or not places[mount["name"]].startswith(revision.directory)
    directories = {path for path in places.values() if path.startswith(revision.directory)}
    assert directories == {f"{revision.directory}/files/{path.split('/')[0]}" for path in files_in(revision)}


@settings(max_examples=100, deadline=None)
@given(some_pod())
def test_what_the_api_adds_to_a_pod_changes_neither_the_answer_nor_the_name(pod):
    bare, full = made(pod), made(completed(pod))
    assert (bare is None) == (full is None)
    if bare is not None and full is not None:
        assert [(f.path, f.content) for f in bare.files] == [(f.path, f.content) for f in full.files]


@settings(max_examples=100, deadline=None)
@given(some_pod())
def test_every_content_that_is_not_told_to_be_read_is_not_needed(pod):
    """`references` names all that the rendering asks for, and nothing that it can do without reading."""
    named = references(pod)
    only = [{r.name: objects(r.kind)[r.name] for r in named if r.kind == kind} for kind in ("Secret", "ConfigMap")]
    found = answer(pod, only[0], only[1])
    complete = made(pod)
    if isinstance(found, Refused):
        assert "was not read" not in str(found)
        assert complete is None
    else:
        assert complete is not None
        assert found.name == complete.name
