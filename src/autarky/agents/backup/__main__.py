"""Start of the program; what is asked for is in the environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from autarky.agents.backup.wiring import run
from autarky.control.backup.manifests.pods import REQUEST, SAID

if __name__ == "__main__":
    sys.exit(run(os.environ[REQUEST], Path(SAID)))
