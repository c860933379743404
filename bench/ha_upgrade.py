"""As `upgrade`, of three control nodes and a worker: `kubeadm upgrade apply` on the first, `node` on the others.

./run bench ha_upgrade [--rounds 3] [--json FILE] [--product DIR]
"""

from __future__ import annotations

from _rounds import main
from upgrade import run_ha

if __name__ == "__main__":
    main(__doc__, [run_ha])
