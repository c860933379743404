"""What all tests share."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """Say that there is no current event loop, before the first test.

    Otherwise looptime, which asks for it around every test, makes one that nobody closes, and some later
    test fails by its ResourceWarning.
    """
    asyncio.set_event_loop(None)
