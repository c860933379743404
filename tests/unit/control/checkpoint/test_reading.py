"""What was read of a subject stands; what could not be read is read again, but not at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autarky.control.checkpoint.manifests import references
from autarky.control.checkpoint.node.reading import Content, Reading, pod_of_template, reading
from autarky.ports import Object

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "uid": "u", "resourceVersion": "1"},
    "data": {},
}
seconds = st.floats(0, 1e6)


def template(**more: object) -> Object:
    spec = {"hostNetwork": True, "containers": [{"name": "kube-scheduler", "image": "i"}], **more}
    return {"metadata": {"labels": {"k8s-app": "kube-scheduler"}}, "spec": spec}


def read(pod: Object) -> Reading[str]:
    content = Content(pod, {one: SECRET if one.kind == "Secret" else None for one in references(pod)})
    return reading("run", 0.0, "kube-scheduler", content, refused="no")


COMPLETE = read(pod_of_template("kube-scheduler", template(volumes=[{"name": "s", "secret": {"secretName": "s"}}])))


def test_what_a_standby_can_be_made_of_has_a_revision_and_its_sources() -> None:
    assert COMPLETE.revision is not None
    assert COMPLETE.sources is not None
    assert [source.name for source in COMPLETE.sources] == ["the Secret s"]


def test_a_refusal_says_why() -> None:
    missing = reading(
        "run",
        0.0,
        "kube-scheduler",
        Content(_naming_a_secret(), dict.fromkeys(references(_naming_a_secret()))),
        refused="no",
    )
    assert missing.refusal.startswith("no: ")
    assert missing.final


def _naming_a_secret() -> Object:
    return pod_of_template("kube-scheduler", template(volumes=[{"name": "s", "secret": {"secretName": "s"}}]))


@given(now=seconds)
def test_what_was_read_stands_until_there_is_another_subject(now: float) -> None:
    for known in (COMPLETE, Reading("run", 0.0, refusal="never", final=True)):
        assert known.stands("run", now, 5.0)
        assert not known.stands("another run", now, 5.0)


@given(now=seconds, refusal=st.sampled_from(["", "not yet"]))
def test_what_could_not_be_read_is_read_again_after_a_pause(now: float, refusal: str) -> None:
    assert Reading("run", 0.0, refusal=refusal).stands("run", now, 5.0) == (now < 5.0)
