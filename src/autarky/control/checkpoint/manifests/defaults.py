"""Removes what the API server fills in, so that the same template always gives the same bytes.

Contract: `pruned` never changes what a pod means to a kubelet. A default that a future Kubernetes adds and
that is not listed here causes one more revision when the cluster is upgraded to it, and nothing worse.
Source: the defaulting of the core/v1 API, Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from autarky.render.values import Object

_POD = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_PROBE = {
    "initialDelaySeconds": 0,
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_HTTP_GET = {"scheme": "HTTP", "path": "/"}
_MOUNT = {"readOnly": False}
_FILE_SOURCE = {"defaultMode": 0o644}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
HOOKS = ("postStart", "preStop")

_NOTHING_WHEN_EMPTY = frozenset({"securityContext", "capabilities", "resources", "lifecycle"})
"""An empty object often has a meaning, such as a volume's kind; for these fields it has none."""


def pruned(value: Any) -> Any:
    """Without empty values, which the API server drops too; elements of lists are kept."""
    if isinstance(value, dict):
        smaller = {key: pruned(item) for key, item in value.items()}
        return {key: item for key, item in smaller.items() if not _means_nothing(key, item)}
    if isinstance(value, list):
        return [pruned(item) for item in value]
    return value


def _means_nothing(key: str, item: Any) -> bool:
    return item is None or item in ("", []) or (item == {} and key in _NOTHING_WHEN_EMPTY)


def without_pod_defaults(spec: Object) -> Object:
    """A pod spec whose containers and volumes have been stripped already."""
    return _without(spec, _POD)


def without_container_defaults(container: Object) -> Object:
    bare = _without(container, _CONTAINER)
    for name in PROBES:
        if bare.get(name):
            bare[name] = _without(_bare_handler(bare[name]), _PROBE)
    if bare.get("lifecycle"):
        hooks = {name: _bare_handler(hook) for name, hook in bare["lifecycle"].items() if name in HOOKS}
        bare["lifecycle"] = {**bare["lifecycle"], **hooks}
    if bare.get("volumeMounts"):
        bare["volumeMounts"] = [_without(mount, _MOUNT) for mount in bare["volumeMounts"]]
    if bare.get("env"):
        bare["env"] = [_bare_variable(variable) for variable in bare["env"]]
    return bare


def without_volume_defaults(volume: Object) -> Object:
    bare = {**volume}
    for kind in ("downwardAPI", "projected"):
        if bare.get(kind):
            bare[kind] = _without(bare[kind], _FILE_SOURCE)
    if bare.get("downwardAPI"):
        bare["downwardAPI"] = _bare_downward(bare["downwardAPI"])
    if bare.get("projected"):
        sources = [
            {**source, "downwardAPI": _bare_downward(source["downwardAPI"])} if source.get("downwardAPI") else source
            for source in bare["projected"].get("sources") or ()
        ]
        bare["projected"] = {**bare["projected"], "sources": sources}
    if bare.get("image"):
        # As for containers: a standby must start when no registry can be reached.
        bare["image"] = {**bare["image"], "pullPolicy": "IfNotPresent"}
    return bare


def _bare_downward(source: Object) -> Object:
    return {**source, "items": [_bare_field_source(item) for item in source.get("items") or ()]}


def _bare_variable(variable: Object) -> Object:
    if not variable.get("valueFrom"):
        return variable
    return {**variable, "valueFrom": _bare_field_source(variable["valueFrom"])}


def _bare_field_source(source: Object) -> Object:
    bare = {**source}
    if bare.get("fieldRef"):
        bare["fieldRef"] = _without(bare["fieldRef"], {"apiVersion": "v1"})
    if bare.get("resourceFieldRef"):
        bare["resourceFieldRef"] = _without(bare["resourceFieldRef"], {"divisor": "0"})
    return bare


def _bare_handler(handler: Object) -> Object:
    if not handler.get("httpGet"):
        return handler
    return {**handler, "httpGet": _without(handler["httpGet"], _HTTP_GET)}


def _without(obj: Object, defaults: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in defaults or value != defaults[key]}
