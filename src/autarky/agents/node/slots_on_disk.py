"""The node's own disk: active standbys, the wanted level, and which boot this is. Reading costs microseconds.

Contract: nothing here raises for what is absent; what cannot be read is None, which is never "no".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from autarky import places
from autarky.decide.dead_leases import Boot
from autarky.errors import CommandFailed, Unreachable
from autarky.render import agent, standby
from autarky.store import write_private

WANTED = Path(f"{places.HOST_STATE}/wanted.json")
LAST_BOOT = Path(f"{places.HOST_STATE}/last-boot")
THIS_BOOT = Path(standby.BOOT_FILE)
SCRIPT_SECONDS = 30.0


def active_standbys() -> Mapping[str, bool] | None:
    """Component → whether an activation of its standby is in place; None when that cannot be read."""
    try:
        names = [path.name for path in Path(places.MANIFESTS).iterdir()]
    except OSError:
        return None
    return {c: any(name.startswith(f"standby-{c}-") for name in names) for c in standby.COMPONENTS}


def manifests_of(component: str) -> list[Path]:
    """The manifests of a component's standby in place, or of the parked agent; OSError."""
    prefix = agent.STANDBY_POD if component == agent.COMPONENT else f"standby-{component}"
    return sorted(Path(places.MANIFESTS).glob(f"{prefix}-*.json"))


def activations() -> Mapping[str, frozenset[str]] | None:
    """Component → the pod uids of its standby's manifests in place; None when they cannot be read."""
    found: dict[str, set[str]] = {component: set() for component in standby.COMPONENTS}
    try:
        for component, uids in found.items():
            for path in manifests_of(component):
                uids.add(json.loads(path.read_text())["metadata"]["uid"])
    except (OSError, ValueError, KeyError):
        return None
    return {component: frozenset(uids) for component, uids in found.items()}


def wanted_level() -> int | None:
    """The lowest hosted level as it was last known, or None."""
    try:
        level = json.loads(WANTED.read_text())["lowestHosted"]
    except (OSError, ValueError, KeyError):
        return None
    return level if isinstance(level, int) else None


def remember_wanted_level(level: int) -> None:
    """Durable, so that the level is known after a reboot with no API."""
    if wanted_level() != level:
        write_private(WANTED, json.dumps({"lowestHosted": level}).encode())


def this_boot() -> Boot | None:
    """What `standby boot` wrote before the kubelet started; None when it did not run."""
    try:
        boot_id, began = THIS_BOOT.read_text().split()
        last = LAST_BOOT.read_text().strip() if LAST_BOOT.exists() else None
        return Boot(boot_id, datetime.fromtimestamp(float(began), UTC), last)
    except (OSError, ValueError):
        return None


def remember_boot(boot: Boot) -> None:
    """From now on, what this boot's processes hold is theirs until the next boot."""
    if boot.last_id != boot.id:
        write_private(LAST_BOOT, f"{boot.id}\n".encode())


async def run_script(verb: str, *arguments: str) -> None:
    """Carry out an action on the slots; CommandFailed or Unreachable."""
    argv = ["/bin/bash", standby.SCRIPT_PATH, verb, *arguments]
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(SCRIPT_SECONDS):
            _, stderr = await process.communicate()
    except TimeoutError as error:
        raise Unreachable(f"{' '.join(argv)} did not end within {SCRIPT_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise CommandFailed("this node", argv, process.returncode, stderr.decode(errors="replace"))
