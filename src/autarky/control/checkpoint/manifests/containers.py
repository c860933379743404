"""Containers of a hosted pod as containers of a static pod.

The user. A hosted pod runs as a user of its own, and fsGroup lets it read its Secret volumes. The standby
runs as root, since its files are on the host and nobody else may read them (see `volumes`), and keeps all other
restrictions: dropped capabilities, read-only root file system, seccomp. Two things follow:
- root without capabilities cannot read another user's files: a container that ran as such a user and mounts
  storage of the host gets CAP_DAC_OVERRIDE back, which every ordinary container has;
- the hosted pod could not open files that root creates on the host (a hosted API server does not start when
  it cannot append to its audit log): writable storage of the host is refused for such users.

The environment. ConfigMap values become literal. A Secret in the environment is refused: the kubelet
publishes static pods as mirror pods, so the value would be readable in the API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from autarky.control.checkpoint.manifests.command import Move, moved_command
from autarky.control.checkpoint.manifests.defaults import HOOKS, PROBES, without_container_defaults
from autarky.control.checkpoint.manifests.references import Contents, Reference
from autarky.control.checkpoint.manifests.refusal import Rule, refused
from autarky.control.checkpoint.manifests.volumes import value_of_field
from autarky.model import ports
from autarky.model.components import API_SERVER
from autarky.render import pods
from autarky.render.values import Object

_ONLY_HOSTED = ("ports", "resources", "resizePolicy", "envFrom")
"""Declared ports would make scheduler and kubelet refuse the other slot. Resource requests might make the kubelet
reject the standby just when it is needed, so the component itself gets a small share instead."""
_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot")
_FOREIGN_CAPABILITY = "DAC_OVERRIDE"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container's translation depends on besides itself."""

    pod: Object
    contents: Contents
    move: Move | None
    dropped: frozenset[str]
    """Volumes that the standby does not have."""
    read_only: frozenset[str]
    """Volumes whose files are part of the revision."""
    foreign: frozenset[str]
    """Volumes that hold storage of the host."""


def standby_container(container: Object, around: Surroundings, where: str, *, is_component: bool) -> Object:
    """One container. `is_component`: whether it is the component itself, not a sidecar or an init container."""
    result = {key: value for key, value in container.items() if key not in _ONLY_HOSTED}
    result["imagePullPolicy"] = "IfNotPresent"
    if is_component:
        result["resources"] = pods.standby_share(container["name"])
    if around.move is not None:
        if is_component:
            for words in ("command", "args"):
                result.pop(words, None)
            result |= moved_command(container, around.move, where)
        result |= _moved_handlers(container, around.move)
    result["env"] = _environment(container, around, where)
    result["volumeMounts"] = _mounts(container, around)
    result["securityContext"] = _security(container, around, where)
    return without_container_defaults(result)


# --- probes ----------------------------------------------------------------------------------------


def _moved_handlers(container: Object, move: Move) -> Object:
    """Probes and hooks on the component's port get the standby's port; port names become numbers."""
    numbers = {port["name"]: port["containerPort"] for port in container.get("ports") or () if port.get("name")}
    probes = {name: _moved_handler(container[name], numbers, move) for name in PROBES if container.get(name)}
    result = {name: _with_own_drain(probe, move) for name, probe in probes.items()}
    if lifecycle := container.get("lifecycle"):
        kept = {name: hook for name, hook in lifecycle.items() if not (name in HOOKS and _asks_the_agent(hook))}
        hooks = {name: _moved_handler(kept[name], numbers, move) for name in HOOKS if kept.get(name)}
        result["lifecycle"] = {**kept, **hooks}
    return result


def _with_own_drain(probe: Object, move: Move) -> Object:
    """The API server's standby has its own grace period (`revision`), whatever stops it."""
    if move.component != API_SERVER:
        return probe
    return {key: value for key, value in probe.items() if key != "terminationGracePeriodSeconds"}


def _asks_the_agent(hook: Object) -> bool:
    """Whether the hook asks the node agent if the standby serves: the standby itself must not ask."""
    return bool((hook.get("httpGet") or {}).get("port") == ports.NODE_AGENT)


def _moved_handler(handler: Object, numbers: dict[str, int], move: Move) -> Object:
    result = {**handler}
    for kind in ("httpGet", "tcpSocket", "grpc"):
        if handler.get(kind):
            port = handler[kind]["port"]
            port = numbers.get(port, port)
            result[kind] = {**handler[kind], "port": move.port(int(port)) if str(port).isdigit() else port}
    if (handler.get("exec") or {}).get("command"):
        number = re.compile(rf"(?<!\d){move.hosted}(?!\d)")
        words = [number.sub(str(move.standby), word) for word in handler["exec"]["command"]]
        result["exec"] = {**handler["exec"], "command": words}
    return result


# --- environment -----------------------------------------------------------------------------------


def _environment(container: Object, around: Surroundings, where: str) -> list[Object]:
    """envFrom first, as the kubelet does it: later variables win, and may refer to earlier ones."""
    imported: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        imported |= _imported(source, around, f"{where}.envFrom")
    result = [_literal(name, value) for name, value in imported.items()]
    for variable in container.get("env") or ():
        result += _variable(variable, around, f"{where}.env[{variable['name']}]")
    return result


def _literal(name: str, value: str) -> Object:
    """A referenced value is not expanded, but a literal one in a pod is, so every $ is doubled."""
    return {"name": name, "value": value.replace("$", "$$")}


def _imported(source: Object, around: Surroundings, where: str) -> dict[str, str]:
    if secret := source.get("secretRef"):
        _refuse_secret(secret, around, where)
        return {}
    if not (config_map := source.get("configMapRef")):
        return {}
    prefix = source.get("prefix") or ""
    data = around.contents.data(_reference_to_config(config_map), where) or {}
    text_keys = (around.contents.config_maps[config_map["name"]] or {}).get("data") or {}
    return {f"{prefix}{key}": data[key].decode() for key in sorted(text_keys)}


def _variable(variable: Object, around: Surroundings, where: str) -> Iterator[Object]:
    source = variable.get("valueFrom") or {}
    if secret := source.get("secretKeyRef"):
        _refuse_secret(secret, around, where)
    elif config_map := source.get("configMapKeyRef"):
        data = around.contents.data(_reference_to_config(config_map), where) or {}
        if config_map["key"] in data:
            yield _literal(variable["name"], data[config_map["key"]].decode())
        elif not config_map.get("optional"):
            what = f"the ConfigMap {config_map['name']} has no key {config_map['key']}"
            raise refused(Rule.COMPLETE, where, what, "add the key, or remove the variable")
    elif field := source.get("fieldRef"):
        value = value_of_field(field["fieldPath"], around.pod)
        yield variable if value is None else _literal(variable["name"], value)
    elif not source or source.keys() <= {"resourceFieldRef", "fileKeyRef"}:
        yield variable
    else:
        fix = "give the variable a literal value, or one from a ConfigMap"
        raise refused(Rule.SELF_CONTAINED, where, f"unknown source {', '.join(sorted(source))}", fix)


def _refuse_secret(secret: Object, around: Surroundings, where: str) -> None:
    """Does not refuse where there is nothing to disclose: an optional Secret that does not exist or lacks the key."""
    optional = bool(secret.get("optional"))
    data = around.contents.data(Reference("Secret", secret["name"], optional), where)
    if data is None or (optional and "key" in secret and secret["key"] not in data):
        return
    fix = f"mount the Secret {secret['name']} as a volume and let the container read its file"
    raise refused(Rule.UNDISCLOSED, where, "the mirror pod of a standby would show the Secret", fix)


def _reference_to_config(source: Object) -> Reference:
    return Reference("ConfigMap", source["name"], bool(source.get("optional")))


# --- mounts and user -------------------------------------------------------------------------------


def _mounts(container: Object, around: Surroundings) -> list[Object]:
    mounts = [mount for mount in container.get("volumeMounts") or () if mount["name"] not in around.dropped]
    return [{**mount, "readOnly": True} if mount["name"] in around.read_only else mount for mount in mounts]


def _security(container: Object, around: Surroundings, where: str) -> Object:
    own = container.get("securityContext") or {}
    result = {key: value for key, value in own.items() if key not in _IDENTITY}
    foreign = [mount for mount in container.get("volumeMounts") or () if mount["name"] in around.foreign]
    if not foreign or _runs_as_root(own, around.pod["spec"].get("securityContext") or {}):
        return result
    for mount in foreign:
        if not mount.get("readOnly"):
            fix = "mount it with `readOnly: true`, or let the container run as root (`runAsUser: 0`)"
            what = "a standby runs as root, and the hosted pod could not use files that root creates there"
            raise refused(Rule.SAME_FILES, f"{where}.volumeMounts[{mount['name']}]", what, fix)
    capabilities = result.get("capabilities") or {}
    added = [name for name in capabilities.get("add") or () if name != _FOREIGN_CAPABILITY]
    return {**result, "capabilities": {**capabilities, "add": [*added, _FOREIGN_CAPABILITY]}}


def _runs_as_root(container: Object, pod: Object) -> bool:
    """By what the pod says; where it says nothing, the image decides, and the components' images use root."""
    user = container.get("runAsUser", pod.get("runAsUser"))
    if user is not None:
        return bool(user == 0)
    return not container.get("runAsNonRoot", pod.get("runAsNonRoot", False))
