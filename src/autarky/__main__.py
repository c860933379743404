"""`python -m autarky`: the same as the `autarky` command."""

from __future__ import annotations

import sys

from autarky.cli.main import main

sys.exit(main())
