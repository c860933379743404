"""Rule 4: how far the versions of control plane components may be apart, at every moment. Pure.

The rules are those of the Kubernetes version skew policy: API servers are within one minor of each other;
controller-manager and scheduler are never newer than any API server, and at most one minor older.
"""

from __future__ import annotations

from collections.abc import Iterable

from autarky.model.versions import Version


def image_version(image: str) -> Version | None:
    """The version in an image's tag; None where the tag is none (a digest, «latest»): then nothing is known."""
    tag = image.partition("@")[0].rpartition("/")[2].rpartition(":")[2]
    try:
        return Version.parse(tag)
    except ValueError:
        return None


def breaks_skew(component: str, image: str, running: Iterable[str], *, is_api_server: bool) -> str:
    """How the image would break the rules beside the API servers that run (their images); empty if it does not.

    What carries no version is passed over: unknown is not wrong.
    """
    wanted = image_version(image)
    versions = [version for other in running if (version := image_version(other)) is not None]
    if wanted is None or not versions:
        return ""
    oldest, newest = min(versions), max(versions)
    if is_api_server:
        return _api_server(wanted, oldest, newest)
    if _minor(wanted) > _minor(oldest):
        return f"{component} {wanted} is newer than the oldest API server that runs ({oldest}) (rule 4)"
    if wanted.major != newest.major or wanted.minor < newest.minor - 1:
        return f"{component} {wanted} is more than one minor older than API server {newest} (rule 4)"
    return ""


def _api_server(wanted: Version, oldest: Version, newest: Version) -> str:
    for other in (oldest, newest):
        if wanted.major != other.major or abs(wanted.minor - other.minor) > 1:
            return f"API server {wanted} is more than one minor away from {other}, which runs (rule 4)"
    return ""


def _minor(version: Version) -> tuple[int, int]:
    return version.major, version.minor
