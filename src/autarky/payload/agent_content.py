"""What the agent image is made of, as hashes: the running package, and the list of its dependencies.

The image's tag is derived from them, so that other content is another image everywhere: in the DaemonSet, in the
operator's Deployment and in the standby agents, also while the version stays the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import autarky
from autarky import programs


def dependencies_lock() -> Path:
    """The locked list of the agents' dependencies."""
    return Path(str(resources.files("autarky.payload") / "requirements" / "agent.lock"))


def package_sources() -> list[Path]:
    """The running package: its Python files, the programs beside them, and the data that controllers read. Release
    files are not among them: agents have no payload."""
    package = Path(autarky.__file__).parent
    suffixes = {".py", *programs.SUFFIXES}
    code = {path for path in package.rglob("*") if path.suffix in suffixes and "__pycache__" not in path.parts}
    return sorted(code | set((package / "control").rglob(f"*{programs.DATA}")))


def sources_key(sources: Sequence[Path]) -> str:
    package = Path(autarky.__file__).parent
    digest = hashlib.sha256()
    for path in sources:
        digest.update(f"{path.relative_to(package)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def agent_tag(base: str) -> str:
    """`base`: the recipe of the layers below. The version is for people, the rest tells contents apart."""
    parts = [base.encode(), dependencies_lock().read_bytes(), sources_key(package_sources()).encode()]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    return f"{autarky.__version__}-{digest.hexdigest()[:10]}"
