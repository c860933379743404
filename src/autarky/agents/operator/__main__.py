"""`python3 -m autarky.agents.operator`: the entry point of the operator's image.

--kubeconfig (or KUBECONFIG): who to act as; without it, the pod's service account.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from autarky.agents.operator import wiring
from autarky.errors import AutarkyError
from autarky.model import ports


def main() -> int:
    parser = argparse.ArgumentParser(prog="autarky-operator", description="Keeps a self-hosted control plane alive.")
    given = os.environ.get("KUBECONFIG")
    parser.add_argument(
        "--kubeconfig", type=Path, default=Path(given) if given else None, help="default: the service account"
    )
    parser.add_argument("--port", type=int, default=ports.OPERATOR, help="health and metrics, on loopback")
    # Of templates of earlier releases, for as long as one is in place: the operator signs nothing any more.
    for former in ("--authorities", "--leaf-days"):
        parser.add_argument(former, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        return wiring.run(arguments.kubeconfig, arguments.port)
    except AutarkyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
