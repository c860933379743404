"""Names of images as containerd stores them, from names as pods give them."""

from __future__ import annotations

_HUB = "docker.io"


def stored_name(reference: str) -> str:
    """The full name: with a registry, and with a tag or (which wins) a digest. An id stays as it is."""
    if reference.startswith("sha256:"):
        return reference
    name, _, digest = reference.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # the colon of a registry's port
        path, tag = name, "latest"
    return _with_registry(path) + (f"@{digest}" if digest else f":{tag}")


def _with_registry(path: str) -> str:
    first, slash, _ = path.partition("/")
    if not slash:
        return f"{_HUB}/library/{path}"
    is_registry = "." in first or ":" in first or first == "localhost"
    return path if is_registry else f"{_HUB}/{path}"
