"""A run has its labs for itself: it is the only one, and nothing of an interrupted one runs on beside it.

Such clusters would take time from what is measured, and make it look small: they share its pages (`_memory.py`).
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from _autarky import STATE, AutarkyCluster
from _product import Product

from autarky import places
from autarky.lab import Lab


@contextmanager
def alone() -> Iterator[None]:
    """SystemExit while another run goes on."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SystemExit("another run of benchmarks goes on on this machine: wait for its end") from error
        yield


async def take_leftovers_away(product: Product) -> None:
    """Of any benchmark: clusters by the command, which knows what belongs to one; then what labs there still are."""
    assert places.state_dir().is_relative_to(STATE), "the labs of its user are not a benchmark's to take away"
    for file in sorted(STATE.glob("*.yaml")):
        AutarkyCluster(file.stem, product=product).try_down()
    for lab in Lab.all():
        await lab.down()
