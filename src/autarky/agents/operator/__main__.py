"""`python3 -m autarky.agents.operator`: the entry point of the operator's image.

--kubeconfig (or KUBECONFIG): who to act as; without it, the pod's service account.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path

from autarky.agents.operator import wiring
from autarky.agents.operator.authorities import Authorities
from autarky.errors import AutarkyError
from autarky.model import ports
from autarky.render.operator import AUTHORITIES


def main() -> int:
    parser = argparse.ArgumentParser(prog="autarky-operator", description="Keeps a self-hosted control plane alive.")
    given = os.environ.get("KUBECONFIG")
    parser.add_argument(
        "--kubeconfig", type=Path, default=Path(given) if given else None, help="default: the service account"
    )
    parser.add_argument("--port", type=int, default=ports.OPERATOR, help="health and metrics, on loopback")
    parser.add_argument(
        "--authorities", type=Path, default=Path(AUTHORITIES), help="the directory with the CAs that it signs with"
    )
    parser.add_argument("--leaf-days", type=int, default=365, help="how long what it signs is good for")
    arguments = parser.parse_args()
    authorities = Authorities(arguments.authorities, timedelta(days=arguments.leaf_days))
    try:
        return wiring.run(arguments.kubeconfig, arguments.port, authorities)
    except AutarkyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
