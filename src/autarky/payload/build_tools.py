"""The tools on this machine that a build needs, checked before it starts: a build takes ten minutes, and some tools are
needed only near its end.

Contract: one error names all that is missing, and the one command that installs it. Only what is needed for what is
still to be built is looked for: with a warm store nothing is.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from autarky.errors import AutarkyError, UserError
from autarky.payload.programs import run_tool

_PROGRAMS_OF_CGO = {"gcc": "gcc", "pkg-config": "pkg-config"}
_PROGRAMS_OF_LAYERS = {"mmdebstrap": "mmdebstrap"}
"""Program → Debian package."""
_HEADERS_OF_CGO = {"stdlib.h": "libc6-dev"}
_HEADERS_OF = {"runc": {"seccomp.h": "libseccomp-dev"}}
"""Component → header → Debian package."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What is still to be built. cgo: components with C in them; layers: Debian packages for images; pip: Python
    packages, or Go, where the one on PATH is missing or too old."""

    cgo: Sequence[str] = ()
    layers: bool = False
    pip: bool = False


async def refuse_missing_tools(needs: Needs) -> None:
    """UserError with all that is missing."""
    found = await _missing_packages(needs)
    lines = [f"{what} ({package})" for what, package in found.items()]
    fixes = [f"apt-get install {' '.join(dict.fromkeys(found.values()))}"] if found else []
    if needs.pip and importlib.util.find_spec("pip") is None:
        lines.append(f"pip for the Python that runs autarky ({sys.executable})")
        fixes.append(f"{sys.executable} -m ensurepip")
    if lines:
        raise UserError(f"building the components needs missing tools: {', '.join(lines)}", fix="; ".join(fixes))


async def _missing_packages(needs: Needs) -> dict[str, str]:
    """What is missing → its Debian package."""
    programs = {**(_PROGRAMS_OF_CGO if needs.cgo else {}), **(_PROGRAMS_OF_LAYERS if needs.layers else {})}
    missing = {name: package for name, package in programs.items() if shutil.which(name) is None}
    headers = dict(_HEADERS_OF_CGO) if needs.cgo else {}
    for component in needs.cgo:
        headers |= _HEADERS_OF.get(component, {})
    # Without a compiler they cannot be looked for; naming packages that are installed does no harm.
    return missing | {name: package for name, package in headers.items() if not await _compiles(name)}


async def _compiles(header: str) -> bool:
    if shutil.which("gcc") is None:
        return False
    try:
        await run_tool(["gcc", "-E", "-x", "c", "-include", header, "-o", "/dev/null", "/dev/null"])
    except AutarkyError:
        return False
    return True
