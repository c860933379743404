"""What every benchmark has around it: its options, the payload, and the ratio at the end."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
from collections.abc import Awaitable, Callable, Sequence

from _autarky import STATE

from autarky.cli.wiring import Silence
from autarky.payload import Payload, default_version, get_payload, load_release


def main(description: str | None, run: Callable[[Payload, int], Awaitable[bool]], rounds: int = 1) -> None:
    """`run` gets the payload and the number of rounds, and says whether all is as wanted: else the exit code is 1."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    os.environ["XDG_STATE_HOME"] = str(STATE)
    if not asyncio.run(_run(run, parser.parse_args().rounds)):
        raise SystemExit(1)


async def _run(run: Callable[[Payload, int], Awaitable[bool]], rounds: int) -> bool:
    release = load_release(default_version())
    return await run(await get_payload(release, Silence(), groups=("cluster", "test", "bench")), rounds)


def report(what: str, ours: Sequence[float], theirs: Sequence[float], wanted: float | None) -> bool:
    """Print the medians of all rounds, in seconds; whether their ratio is as wanted (None: it is only told)."""
    a, k = statistics.median(ours), statistics.median(theirs)
    limit = "" if wanted is None else f" (at most {wanted} is wanted)"
    print(f"{what}: autarky {a:.1f} s, kubeadm {k:.1f} s, ratio {a / k:.2f}{limit}", flush=True)
    return wanted is None or a / k <= wanted
