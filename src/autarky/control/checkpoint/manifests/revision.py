"""A live hosted pod as a revision of its component's standby.

Contract: `revision_from_pod` is pure and refuses (`Refused`, with the field, the rule and the remedy) what
a static pod cannot do; then there is no new checkpoint, and the existing one stays. The name follows from the
content alone: from everything the standby would run with, and from nothing that the API server, the
scheduler or a re-created pod adds.

Danger: the files hold private keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from autarky import places
from autarky.control.checkpoint.manifests.command import move_of
from autarky.control.checkpoint.manifests.containers import Surroundings, standby_container
from autarky.control.checkpoint.manifests.defaults import pruned, without_pod_defaults, without_volume_defaults
from autarky.control.checkpoint.manifests.references import Contents, all_containers, injected_token_volumes
from autarky.control.checkpoint.manifests.refusal import Rule, refused
from autarky.control.checkpoint.manifests.volumes import Translated, VolumeFile, is_foreign, translated
from autarky.control.slots.manifests import Revision
from autarky.model import patience
from autarky.model.components import API_SERVER
from autarky.model.files import File
from autarky.render import pods
from autarky.render.values import Object, canonical_json, content_hash, pretty_json

_PREFIX = "checkpoint-"
"""The prefix of a revision that was made from a live pod, not from the cluster file, so that `up` leaves it alone."""
_PLACE = "@DIRECTORY@"

_OF_THE_HOSTED_SLOT = frozenset(
    {
        # Where it runs and whether there is room: already decided, since the file is on this node.
        *("nodeName", "nodeSelector", "affinity", "topologySpreadConstraints", "tolerations", "schedulerName"),
        *("schedulingGates", "schedulingGroup", "workloadRef", "priority", "priorityClassName", "preemptionPolicy"),
        *("resources", "overhead"),
        # What only the API can provide or evaluate.
        *("serviceAccount", "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets"),
        *("enableServiceLinks", "readinessGates", "ephemeralContainers"),
        # Translated, or the same in every standby.
        *("containers", "initContainers", "volumes", "securityContext", "hostNetwork"),
    }
)
_POD_IDENTITY = frozenset({"runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "fsGroupChangePolicy"})
_REFUSED = {
    "runtimeClassName": ("the kubelet looks up runtime classes in the API", "remove the runtime class"),
    "resourceClaims": ("a static pod cannot claim resources", "remove the claims"),
}


def revision_from_pod(
    component: str, pod: Object, secrets: Mapping[str, Object | None], config_maps: Mapping[str, Object | None]
) -> Revision:
    """The checkpoint of a live pod. `secrets` and `config_maps`: all that `references(pod)` names, as read
    from the API, None where the API says there is none. Raises Refused."""
    clean = pruned({"metadata": pod["metadata"], "spec": pod["spec"]})
    _refuse_what_cannot_be_static(component, clean["spec"])
    contents = Contents(secrets, config_maps)
    spec, files = _spec_and_files(component, clean, contents)
    _refuse_placeholders(spec)
    name = _PREFIX + content_hash([spec, [[file.path, file.mode, file.content.hex()] for file in files]])
    return _laid_out(component, name, spec, files)


def is_checkpoint(revision: str) -> bool:
    """Whether a revision of this name was made from a live pod."""
    return revision.startswith(_PREFIX)


def images(revision: Revision) -> tuple[str, ...]:
    """The image references that a node must have before this revision may become the current one."""
    return images_of_pod(json.loads(revision.files[-1].content))


def images_of_pod(pod: Object) -> tuple[str, ...]:
    """The image references of a pod, sorted, each once."""
    spec = pod["spec"]
    volumes = [volume["image"]["reference"] for volume in spec.get("volumes") or () if "image" in volume]
    return tuple(sorted({container["image"] for _, container in all_containers(spec)} | set(volumes)))


def _refuse_what_cannot_be_static(component: str, spec: Object) -> None:
    for field, (why, fix) in _REFUSED.items():
        if field in spec:
            raise refused(Rule.SELF_CONTAINED, f"spec.{field}", why, fix)
    if not spec.get("hostNetwork"):
        fix = "set `hostNetwork: true`"
        raise refused(Rule.SELF_CONTAINED, "spec.hostNetwork", "after a reboot there is no pod network yet", fix)
    if component not in [container["name"] for container in spec["containers"]]:
        raise refused(
            Rule.OWN_PORT, "spec.containers", f"no container is named {component}", f"name the container {component}"
        )


def _refuse_placeholders(spec: Object) -> None:
    """An activation replaces them wherever they occur."""
    text = canonical_json(spec).decode()
    for placeholder in (pods.ACTIVATION, pods.ACTIVATION_UID):
        if placeholder in text:
            raise refused(
                Rule.COMPLETE, "spec", f"it holds {placeholder}, which every activation replaces", "rename it"
            )


def _spec_and_files(component: str, pod: Object, contents: Contents) -> tuple[Object, list[VolumeFile]]:
    """The pod spec, with a placeholder for the files' directory, and the files in order of their paths."""
    spec = pod["spec"]
    dropped = injected_token_volumes(spec)
    kept = [volume for volume in spec.get("volumes") or () if volume["name"] not in dropped]
    volumes = [translated(volume, pod, contents, _PLACE) for volume in sorted(kept, key=lambda v: str(v["name"]))]
    around = Surroundings(
        pod=pod,
        contents=contents,
        move=move_of(component),
        dropped=dropped,
        read_only=frozenset(one.volume["name"] for one in volumes if one.read_only),
        foreign=frozenset(volume["name"] for volume in kept if is_foreign(volume)),
    )
    result = {key: value for key, value in spec.items() if key not in _OF_THE_HOSTED_SLOT}
    result |= _drain(component, spec)
    result["securityContext"] = _as_root(spec.get("securityContext") or {})
    result["volumes"] = [without_volume_defaults(one.volume) for one in volumes]
    result |= _containers(component, spec, around)
    return pruned(without_pod_defaults(result)), _sorted_files(volumes)


def _containers(component: str, spec: Object, around: Surroundings) -> Object:
    groups: Object = {"initContainers": [], "containers": []}
    for where, container in all_containers(spec):
        group = where.removeprefix("spec.").partition("[")[0]
        is_component = group == "containers" and container["name"] == component
        groups[group].append(standby_container(container, around, where, is_component=is_component))
    return groups


def _drain(component: str, spec: Object) -> Object:
    """The API server's standby is withdrawn when the hosted one answers: it has its own drain, not the hosted one's."""
    if component == API_SERVER:
        return {"terminationGracePeriodSeconds": patience.STANDBY_DRAIN + patience.REQUESTS_END}
    kept = spec.get("terminationGracePeriodSeconds")
    return {} if kept is None else {"terminationGracePeriodSeconds": kept}


def _as_root(context: Object) -> Object:
    """Set explicitly, because an image may name another user: see `containers`."""
    kept = {key: value for key, value in context.items() if key not in _POD_IDENTITY}
    return {**kept, "runAsUser": 0, "runAsGroup": 0}


def _sorted_files(volumes: list[Translated]) -> list[VolumeFile]:
    return sorted((file for one in volumes for file in one.files), key=lambda file: file.path)


def _laid_out(component: str, name: str, spec: Object, files: list[VolumeFile]) -> Revision:
    """In the layout of `control.slots.manifests`: pod.json last, since it says that everything else is there."""
    directory = f"{places.STANDBY}/{component}/{name}"
    placed = {**spec, "volumes": [_placed(volume, f"{directory}/files") for volume in spec.get("volumes") or ()]}
    # A fixed order of keys, so that one name always means the same bytes.
    pod = json.loads(canonical_json(pods.standby_pod(component, name, placed)))
    contents = [File(f"{directory}/files/{file.path}", file.content, file.mode) for file in files]
    return Revision(component, name, (*contents, File(f"{directory}/pod.json", pretty_json(pod), 0o600)))


def _placed(volume: Object, directory: str) -> Object:
    path = (volume.get("hostPath") or {}).get("path", "")
    if not path.startswith(f"{_PLACE}/"):
        return volume
    return {**volume, "hostPath": {**volume["hostPath"], "path": directory + path.removeprefix(_PLACE)}}
