"""What single values of the cluster file may be: one checker per kind of value, each with its fix.

Contract: a checker returns the value or raises the error of `refused`, which carries what is wrong and how
to fix it; `explain` turns it into an error with a position. The patterns are also published in the JSON
Schema, so that an editor marks the same values.

Sources: names, labels and taints are as the Kubernetes API validates them (RFC 1123 labels and subdomains,
qualified names); argument names are those of the components' flags and of KubeProxyConfiguration.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, StrictStr, ValidationError, ValidationInfo, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from autarky.model.cluster import CONTROL_PLANE_ROLE
from autarky.model.etcd_members import ETCD_VERSION
from autarky.model.names import LABEL, is_name
from autarky.model.versions import Version

_SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
_QUALIFIED = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_SSH_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SSH_HOST = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252})"
_IPV4 = r"\d{1,3}(\.\d{1,3}){3}"
LONGEST_SUBDOMAIN = 253

Component = Literal["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "etcd"]
RESERVED_LABELS = {
    CONTROL_PLANE_ROLE: "give the node the role control-plane",
    "node-restriction.kubernetes.io/autarky-control-plane": "give the node the role control-plane",
    "kubernetes.io/hostname": "leave it out: the kubelet sets it",
    "kubernetes.io/os": "leave it out: the kubelet sets it",
    "kubernetes.io/arch": "leave it out: the kubelet sets it",
}
"""Labels that another component owns: what to do instead."""


# --- how a problem is reported ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wrong:
    """One problem, at a place below the value that is being judged."""

    location: tuple[str | int, ...]
    what: str
    fix: str


def refused(what: str, fix: str) -> PydanticCustomError:
    """The error to raise from a checker."""
    return PydanticCustomError("refused", "{what}", {"what": what, "fix": fix})


def raise_all(found: Iterable[Wrong], judged: object) -> None:
    """Raise all problems at once, each at its place below `judged`; return if there are none."""
    details = [InitErrorDetails(type=refused(w.what, w.fix), loc=w.location, input=judged) for w in found]
    if details:
        raise ValidationError.from_exception_data("rules", details)


# --- names ----------------------------------------------------------------------------------------


def _published(pattern: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", **more})


def _dns_label(value: str) -> str:
    if not is_name(value):
        raise refused(
            f"{value!r} is not a DNS label", "use 1 to 63 of a-z, 0-9 and -, with a letter or number at both ends"
        )
    return value


def _subdomain(value: str) -> str:
    if len(value) > LONGEST_SUBDOMAIN or re.fullmatch(_SUBDOMAIN, value) is None:
        raise refused(f"{value!r} is not a domain name", "use labels of a-z, 0-9 and -, joined by dots")
    return value


def _label_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    if slash:
        _subdomain(prefix)
    if re.fullmatch(_QUALIFIED, name) is None:
        raise refused(f"{value!r} is not a label's key", "write NAME or DOMAIN/NAME, where NAME is a-z, A-Z, 0-9, -_.")
    return value


def _own_label_key(value: str) -> str:
    if value in RESERVED_LABELS:
        raise refused(f"the label {value} cannot be set here", RESERVED_LABELS[value])
    return _label_key(value)


def _label_value(value: str) -> str:
    if value and re.fullmatch(_QUALIFIED, value) is None:
        raise refused(f"{value!r} is not a label's value", "use up to 63 of a-z, A-Z, 0-9 and -_.")
    return value


Name = Annotated[str, AfterValidator(_dns_label), _published(LABEL)]
Domain = Annotated[str, AfterValidator(_subdomain), _published(_SUBDOMAIN, maxLength=LONGEST_SUBDOMAIN)]
LabelKey = Annotated[StrictStr, AfterValidator(_own_label_key), _published(rf"({_SUBDOMAIN}/)?{_QUALIFIED}")]
AnyLabelKey = Annotated[StrictStr, AfterValidator(_label_key), _published(rf"({_SUBDOMAIN}/)?{_QUALIFIED}")]
TaintKey = Annotated[StrictStr, AfterValidator(_label_key), _published(rf"({_SUBDOMAIN}/)?{_QUALIFIED}")]
LabelValue = Annotated[StrictStr, AfterValidator(_label_value), _published(f"({_QUALIFIED})?")]


# --- machines and networks ------------------------------------------------------------------------


def _host(value: str) -> str:
    driver, colon, target = value.partition(":")
    if value == "local":
        return value
    if driver == "lab" and (not colon or re.fullmatch(LABEL, target)):
        return value
    if driver == "lab":
        raise refused(f"{value!r} is not a test host", "write lab:NAME, where NAME is a DNS label such as n1")
    if value.startswith("ssh://"):
        return _ssh_url(value)
    raise refused(f"{value!r} must be lab, lab:NAME, local or ssh://…", "use lab for a test host on this machine")


def _ssh_url(value: str) -> str:
    """Stricter than ssh: user and host end up in the command lines of jump hosts' proxies."""
    user, at, rest = value.removeprefix("ssh://").rpartition("@")
    if ":" in user:
        raise refused("passwords are not allowed in the file", "use a key: write ssh://USER@HOST")
    if at and re.fullmatch(_SSH_USER, user) is None:
        raise refused(f"{user!r} is not a user name", "write ssh://USER@HOST")
    if "/" in rest:
        raise refused(f"{value!r} has a path", "write ssh://[USER@]HOST[:PORT]")
    bracketed, bracket, port = rest.rpartition("]")
    host, colon, port = (bracketed + bracket, port[:1], port[1:]) if bracket else rest.partition(":")
    if not _is_ssh_host(host):
        raise refused(f"{host!r} is not a host", "write an address, a name, or an alias of ssh_config: ssh://n1")
    if (colon and not (colon == ":" and _is_port(port))) or (port and not colon):
        raise refused(f"{value!r} has no valid port", "write ssh://HOST:PORT, with a port from 1 to 65535")
    return value


def _is_ssh_host(text: str) -> bool:
    if text.startswith("["):
        try:
            ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            return False
        return text.endswith("]")
    return re.fullmatch(_SSH_HOST, text) is not None


def _address(value: str) -> str:
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        raise refused(f"{value!r} is not an IPv4 address", "write one such as 192.0.2.11") from None
    if _unusable(ipaddress.IPv4Network(address)):
        raise refused(f"{value} is not an address that other nodes can reach", "give the host's own address")
    return value


def _network(value: str) -> str:
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError:
        raise refused(f"{value!r} is not an IPv4 network", _network_fix(value)) from None
    if _unusable(network):
        raise refused(f"{value} is not for hosts or pods", "choose a private network such as 10.244.0.0/16")
    return value


def _network_fix(value: str) -> str:
    try:
        meant = ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        return "write one such as 10.244.0.0/16"
    return f"it has host bits set: write {meant}"


def _unusable(network: ipaddress.IPv4Network) -> bool:
    return network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified


def _endpoint(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not _is_host(host) or not _is_port(port):
        raise refused(f"{value!r} is not host:port", "write a name or an IPv4 address and a port: api.example.org:6443")
    return value


def _etcd_url(value: str) -> str:
    scheme, _, rest = value.partition("://")
    if scheme != "https":
        raise refused("not https", "etcd without TLS would be open to everyone: use https://ADDRESS:2379")
    host, _, port = rest.rpartition(":")
    if not _is_host(host) or not _is_port(port):
        raise refused(f"{value!r} is not the URL of an etcd member", "write https://ADDRESS:2379")
    return value


def _is_host(text: str) -> bool:
    if re.fullmatch(_IPV4, text):
        return all(int(part) < 256 for part in text.split("."))
    return len(text) <= LONGEST_SUBDOMAIN and re.fullmatch(_SUBDOMAIN, text) is not None


def _is_port(text: str) -> bool:
    return re.fullmatch("[1-9][0-9]{0,4}", text) is not None and int(text) < 65536


HostName = Annotated[str, AfterValidator(_host), _published(rf"(local|lab|lab:{LABEL}|ssh://[^/]+)")]
Address = Annotated[str, AfterValidator(_address), _published(_IPV4)]
Cidr = Annotated[str, AfterValidator(_network), _published(rf"{_IPV4}/\d{{1,2}}")]
Endpoint = Annotated[str, AfterValidator(_endpoint), _published(r"[a-z0-9.-]+:\d{1,5}")]
EtcdUrl = Annotated[str, AfterValidator(_etcd_url), _published(r"https://[a-z0-9.-]+:\d{1,5}")]


# --- arguments and paths --------------------------------------------------------------------------


def _argument_name(value: str) -> str:
    if re.fullmatch("[A-Za-z][-A-Za-z0-9]*", value) is None:
        fix = f"write it without dashes: {value.lstrip('-')}" if value.startswith("-") else "use letters, numbers and -"
        raise refused(f"{value!r} is not an argument's name", fix)
    return value


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise refused("it has control characters or line breaks", "write it on one line")
    return value


def _path(value: str) -> str:
    if not value:
        raise refused("it is empty", "name a file or directory, or leave the key out")
    return _one_line(value)


def _lifetime(value: str) -> str:
    if re.fullmatch("[1-9][0-9]{0,6}[mh]", value) is None:
        raise refused(f"{value!r} is not a lifetime", "write minutes or hours, such as 90m or 720h")
    return value


ArgumentName = Annotated[str, AfterValidator(_argument_name), _published("[A-Za-z][-A-Za-z0-9]*")]
ArgumentValue = Annotated[StrictStr, AfterValidator(_one_line)]
Lifetime = Annotated[StrictStr, AfterValidator(_lifetime), _published("[1-9][0-9]{0,6}[mh]")]
LocalPath = Annotated[str, AfterValidator(_path), WithJsonSchema({"type": "string", "minLength": 1})]


# --- versions -------------------------------------------------------------------------------------


def _quoted(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        what = f"it is the number {value}, because it is not quoted"
        raise refused(what, 'write the complete version in quotes, such as "1.36.4"')
    return value


def _etcd_version(value: str) -> str:
    if re.fullmatch(ETCD_VERSION, value, re.ASCII) is None:
        raise refused(f"{value!r} is no version of etcd", "write it as 3.6.16")
    return value


def _known_version(value: str, info: ValidationInfo) -> str:
    try:
        version = Version.parse(value)
    except ValueError as error:
        raise refused(str(error), "write all three numbers, in quotes") from None
    known: Collection[Version] = (info.context or {}).get("known_versions", (version,))
    if version not in known:
        raise refused(f"there is no release file for {version}", _instead_of(version, known))
    return value


def _instead_of(version: Version, known: Collection[Version]) -> str:
    """No earlier version of the same minor: an existing cluster of that version would go back."""
    wanted, *names = (str(one).removeprefix("v") for one in (version, *sorted(known)))
    later = [one for one in sorted(known) if one > version and (one.major, one.minor) == (version.major, version.minor)]
    use = f'use "{str(later[0]).removeprefix("v")}"; ' if later else ""
    make = f"`autarky payload release add FILE`, or `autarky payload release new {wanted}`"
    return f"{use}known: {', '.join(names)}; for {wanted}: {make}"


EtcdVersion = Annotated[
    str,
    AfterValidator(_etcd_version),
    BeforeValidator(_quoted),
    WithJsonSchema({"type": "string", "pattern": ETCD_VERSION}),
]
KubernetesVersion = Annotated[
    str,
    AfterValidator(_known_version),
    BeforeValidator(_quoted),
    WithJsonSchema({"type": "string", "pattern": r"^v?\d+\.\d+\.\d+$"}),
]
