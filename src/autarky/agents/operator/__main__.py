"""`python3 -m autarky.agents.operator`: the entry point of the operator's image.

--kubeconfig (or KUBECONFIG): the credentials to use; default: the pod's service account.
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
    parser.add_argument("--own-address", default="", help="another loopback address, for probes of this revision alone")
    # Ignored: templates of earlier releases, which may still be in place, set them. The operator no longer signs.
    for former in ("--authorities", "--leaf-days"):
        parser.add_argument(former, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        return wiring.run(arguments.kubeconfig, arguments.port, arguments.own_address)
    except AutarkyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
