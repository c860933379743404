"""`python3 -m autarky.agents.node`: wait for the node's lock, then become the agent.

NODE_NAME names the node; AUTARKY_SLOT is "hosted" or "standby".
"""

from __future__ import annotations

import os
import sys

from autarky.agents.node import lock


def main() -> int:
    """Wait for the lock, then act until a hosted agent wants the lock or the process is told to exit."""
    hold = lock.Hold(standby=os.environ.get("AUTARKY_SLOT") == "standby")
    from autarky.agents.node import wiring  # noqa: PLC0415 # a waiting agent has imported nothing big

    if wiring.run(os.environ["NODE_NAME"], hold):
        lock.park_again()
    return 0


if __name__ == "__main__":
    sys.exit(main())
