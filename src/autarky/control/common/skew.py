"""Rule 4: the version skew that is allowed between control plane components, at every moment. Pure.

The rules are those of the Kubernetes version skew policy: API servers are within one minor of each other;
controller-manager and scheduler are never newer than any API server, and at most one minor older; kube-proxy and
kubelets are never newer either, and at most three minors older. The component whose version changes is judged against
the ones that stay: a healthy component that does not change is never rolled back for it. (No API server is held back
for kube-proxy or a kubelet here.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from autarky.model.components import KUBE_PROXY, KUBELET
from autarky.model.versions import Version

MINORS_BEHIND = {KUBE_PROXY: 3, KUBELET: 3}
"""How many minors a component may be older than an API server, where that is not 1."""
NO_IMAGES: Mapping[str, str] = MappingProxyType({})


def image_version(image: str) -> Version | None:
    """The version in an image's tag; None where the tag is not a version (a digest, `latest`): then it is unknown."""
    tag = image.partition("@")[0].rpartition("/")[2].rpartition(":")[2]
    try:
        return Version.parse(tag)
    except ValueError:
        return None


def repository_of(image: str) -> str:
    """Without tag and digest. A colon before a slash is that of a registry's port."""
    name = image.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    return name if not colon or "/" in tag else repository


def breaks_skew(
    component: str,
    image: str,
    running: Iterable[str],
    *,
    is_api_server: bool,
    level_3: Mapping[str, str] = NO_IMAGES,
) -> str:
    """How the image would break the rules, given the images of the running API servers and, for an API server, those
    of level 3 (component → image); empty if it does not.

    Images without a version are skipped: unknown is not wrong.
    """
    wanted = image_version(image)
    if wanted is None:
        return ""
    versions = [version for other in running if (version := image_version(other)) is not None]
    if is_api_server:
        return _beside_api_servers(wanted, versions) or _beside_level_3(wanted, level_3)
    return _of_level_3(component, wanted, versions)


def _of_level_3(component: str, wanted: Version, api_servers: Sequence[Version]) -> str:
    if not api_servers:
        return ""
    oldest, newest = min(api_servers), max(api_servers)
    if minor_of(wanted) > minor_of(oldest):
        return f"{component} {wanted} is newer than the oldest API server that runs ({oldest}) (rule 4)"
    behind = MINORS_BEHIND.get(component, 1)
    if _is_too_old(wanted, newest, behind):
        minors = "one minor" if behind == 1 else f"{behind} minors"
        return f"{component} {wanted} is more than {minors} older than API server {newest} (rule 4)"
    return ""


def _beside_api_servers(wanted: Version, api_servers: Sequence[Version]) -> str:
    for other in (min(api_servers), max(api_servers)) if api_servers else ():
        if wanted.major != other.major or abs(wanted.minor - other.minor) > 1:
            return f"API server {wanted} is more than one minor away from {other}, which runs (rule 4)"
    return ""


def _beside_level_3(wanted: Version, images: Mapping[str, str]) -> str:
    """The rules of level 3 from the other side: downgrades start with level 3, upgrades end with it."""
    versions = {name: version for name in sorted(images) if (version := image_version(images[name])) is not None}
    newer = {name: version for name, version in versions.items() if minor_of(version) > minor_of(wanted)}
    if newer:
        return f"API server {wanted} is older than {_listed(newer)}: move {' and '.join(newer)} down first (rule 4)"
    older = {name: version for name, version in versions.items() if _is_too_old(version, wanted)}
    if older:
        what = f"API server {wanted} is more than one minor newer than {_listed(older)}"
        return f"{what}: move {' and '.join(older)} up first (rule 4)"
    return ""


def _is_too_old(level_3: Version, api_server: Version, behind: int = 1) -> bool:
    return level_3.major != api_server.major or level_3.minor < api_server.minor - behind


def _listed(versions: Mapping[str, Version]) -> str:
    return " and ".join(f"{name} {version}" for name, version in versions.items())


def minor_of(version: Version) -> tuple[int, int]:
    """What versions are compared by: a patch breaks no rule."""
    return version.major, version.minor
