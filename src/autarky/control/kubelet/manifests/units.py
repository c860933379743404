"""The systemd units that start the script: a path unit that watches for an ask, and the oneshot that carries it out.

An agent is in a container and cannot start anything on the host, so systemd watches for what it writes. The path unit
starts the oneshot again as long as there is an ask, also after it was killed. Neither has a start limit: after that
nobody would go on with the trial. Nor has the oneshot a time limit: the script has its own.

Contract: kubelet.service `Wants` the path unit, so that each start of a kubelet brings it back. Danger: no order
between the oneshot and kubelet.service or containerd.service, which it restarts: each would wait for the other.
"""

from __future__ import annotations

from autarky.control.kubelet.manifests.files import ASK, SCRIPT_PATH
from autarky.model.files import File

UNIT = "autarky-kubelet"
PATHS = tuple(f"/etc/systemd/system/{UNIT}.{kind}" for kind in ("path", "service"))

_PATH = f"""\
[Unit]
Description=a change of the kubelet is asked for
StartLimitIntervalSec=0

[Path]
PathExists={ASK}
"""
_SERVICE = f"""\
[Unit]
Description=change the kubelet, and change it back unless it is proven in time
StartLimitIntervalSec=0

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart={SCRIPT_PATH} carry-out
"""


def units() -> list[File]:
    return [File(path, content.encode()) for path, content in zip(PATHS, (_PATH, _SERVICE), strict=True)]
