"""The node's own disk: active standbys, the wanted level, and which boot this is. Reading costs microseconds.

Contract: nothing here raises for what is absent; what cannot be read is None, which never means "no".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from autarky import places
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.leadership.decide.stale_leases import Noted
from autarky.control.slots import manifests as standby
from autarky.errors import CommandFailed, Unreachable
from autarky.model.components import NODE_AGENT, WITH_STANDBY
from autarky.store import NOT_UNDERSTOOD, write_private

WANTED = Path(f"{places.HOST_STATE}/wanted.json")
HOLDERS = Path(f"{places.HOST_STATE}/lease-holders.json")
THIS_BOOT = Path(standby.BOOT_FILE)
SCRIPT_SECONDS = 30.0


def active_standbys() -> Mapping[str, bool] | None:
    """Component → whether an activation of its standby is in place; None when that cannot be read."""
    try:
        return {component: bool(activations_of(component)) for component in WITH_STANDBY}
    except OSError:
        return None


def activations_of(component: str) -> list[bytes]:
    """The manifests in place. An incomplete file is no activation: the kubelet cannot start a pod from it. OSError."""
    return [content for content in manifests_of(component) if standby.is_complete(content)]


def manifests_of(component: str) -> list[bytes]:
    """All files that are named like activations, complete or not. OSError."""
    return [_read(path) for path in manifest_paths_of(component)]


def manifest_paths_of(component: str) -> list[Path]:
    """Those of a component's standby, or of the standby agent. OSError."""
    standby_agent = component == NODE_AGENT
    name = f"{agent.STANDBY_POD}-*.json" if standby_agent else f"standby-{component}-{standby.ACTIVATION_NAME}.json"
    return sorted(path for path in Path(places.MANIFESTS).iterdir() if path.match(name))


def _read(path: Path) -> bytes:
    """Empty when it was removed meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def activations() -> Mapping[str, frozenset[str]] | None:
    """Component → the pod uids of its standby's manifests in place; None when they cannot be read."""
    try:
        return {
            component: frozenset(json.loads(pod)["metadata"]["uid"] for pod in activations_of(component))
            for component in WITH_STANDBY
        }
    except NOT_UNDERSTOOD:
        return None


def wanted_level() -> int | None:
    """The lowest hosted level as it was last known, or None."""
    try:
        level = json.loads(WANTED.read_text())["lowestHosted"]
    except NOT_UNDERSTOOD:
        return None
    return level if type(level) is int else None


def remember_wanted_level(level: int) -> None:
    """Durable, so that the level is known after a reboot with no API. OSError."""
    if wanted_level() != level:
        write_private(WANTED, json.dumps({"lowestHosted": level}).encode())


def this_boot() -> str | None:
    """The id of this boot, as `standby boot` wrote it before the kubelet started; None when it did not run."""
    try:
        return standby.parse_boot(THIS_BOOT.read_text())
    except NOT_UNDERSTOOD:
        return None


def noted_holders() -> Mapping[str, Noted]:
    """Component → the process of this host that was last seen to hold its lease; empty where nothing was noted."""
    try:
        found = json.loads(HOLDERS.read_text())
        return {str(name): Noted(str(one["holder"]), str(one["boot"])) for name, one in found.items()}
    except NOT_UNDERSTOOD:
        return {}


def note_holders(holders: Mapping[str, Noted]) -> None:
    """Durable, so that the next boot knows which holders died with this one. OSError."""
    write_private(HOLDERS, json.dumps({name: asdict(one) for name, one in holders.items()}).encode())


async def run_script(verb: str, *arguments: str) -> None:
    """Carry out an action on the slots; CommandFailed or Unreachable."""
    argv = ["/bin/bash", standby.SCRIPT_PATH, verb, *arguments]
    none, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=none, stdout=none, stderr=pipe)
    except OSError as error:
        raise Unreachable(f"{' '.join(argv)} could not be started: {error}") from error
    try:
        async with asyncio.timeout(SCRIPT_SECONDS):
            _, stderr = await process.communicate()
    except TimeoutError as error:
        raise Unreachable(f"{' '.join(argv)} did not finish within {SCRIPT_SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise CommandFailed("this node", argv, process.returncode, stderr.decode(errors="replace"))
