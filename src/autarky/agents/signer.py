"""Signs certificates with the CA keys of this control node: for `autarky login`, and for an `up` without those keys.
Both run it as root over their connection to the host.

Contract: one line of JSON on standard input, one on standard output (pki/signing.py). Needs no API: it runs in the
agent image that is on the node, with only the host's CA directory mounted, read-only, and without a network.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from autarky import places
from autarky.errors import AutarkyError
from autarky.pki import signing


def main() -> int:
    """The exit code: 2 for what cannot be signed, with the reason on standard error."""
    try:
        said = signing.answer(sys.stdin.buffer.readline(), Path(places.PKI), datetime.now(UTC))
    except AutarkyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.buffer.write(said)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
