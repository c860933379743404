"""kubelet.service of the host's kubelet, and the units that restart it with a certificate that its agent has given it.

Contract: pure. What the unit starts is the script of the kubelet's slots. What is done before each start is best
effort: a kubelet starts, whatever comes of that.
"""

from __future__ import annotations

from autarky import places
from autarky.control.agents.manifests import node_agent as agent
from autarky.control.kubelet.manifests.credentials import CURRENT, GIVEN, SERVING
from autarky.control.kubelet.manifests.files import SCRIPT_PATH
from autarky.control.kubelet.manifests.units import UNIT as CHANGE_UNIT
from autarky.control.slots import manifests as standby
from autarky.model.files import File

KUBELET_UNIT = "/etc/systemd/system/kubelet.service"
GIVEN_UNIT = "autarky-kubelet-certificate"
GIVEN_UNITS = tuple(f"/etc/systemd/system/{GIVEN_UNIT}.{kind}" for kind in ("path", "service"))

# A kubelet whose certificate has expired requests a new one with its bootstrap kubeconfig, and waits for the operator
# to approve it: it never reads its files again. Where the CA's key is, the agent signs a certificate without an
# operator, and the kubelet is restarted to load it (`_GIVEN_PATH`). A label may change which kind of node this is, so
# the script tests that at each start. A kubelet never starts with a damaged certificate, nor with a kubeconfig that a
# power cut has left empty, since it does not sync that file.
_KUBELET_UNIT = """\
[Unit]
Description=kubelet
Wants=containerd.service {given}.path {change}.path
After=containerd.service network.target
StartLimitIntervalSec=0

[Service]
Environment=PATH={bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStartPre=-/bin/sh -c '{without_damaged}'
ExecStartPre=-{slots} boot
ExecStartPre=-{standby} boot
ExecStart={slots} start
ExecStop=-{slots} stop $MAINPID
ExecStartPost=-/bin/sh -c "{standby} boot-rest &"
KillMode=process
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""

# A kubelet without a valid certificate requests one with what its agent has put on the disk by then, waits a quarter of
# an hour for an operator that waits for this kubelet, and does not read its files again. The agent is in a container
# and cannot start anything on the host, so systemd watches for its mark. The mark is removed last: if the host goes
# down in between, there is one more restart.
_GIVEN_PATH = """\
[Unit]
Description=the kubelet's agent has given it a certificate

[Path]
PathExists={mark}
"""
_GIVEN_SERVICE = """\
[Unit]
Description=restart the kubelet with the certificate that its agent has given it

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'systemctl try-restart kubelet; {slots} aside; rm -f {mark}'
"""

# The file has a certificate and then its key. A file that cannot be read stays, since it may be good.
_WITHOUT_DAMAGED = (
    f"cd {agent.KUBELET_PKI} && for one in {CURRENT} {SERVING}; do [ -L $$one ] || continue;"
    " if [ -e $$one ]; then last=$$(tail -n 1 $$one) || continue;"
    " case $$last in -----END*KEY-----) continue;; esac; fi; rm $$one; done"
)


def kubelet_unit() -> File:
    content = _KUBELET_UNIT.format(
        bin=places.BIN,
        given=GIVEN_UNIT,
        change=CHANGE_UNIT,
        slots=SCRIPT_PATH,
        standby=standby.SCRIPT_PATH,
        without_damaged=_WITHOUT_DAMAGED,
    )
    return File(KUBELET_UNIT, content.encode())


def given_units() -> list[File]:
    """The units that restart the kubelet with a certificate that its agent has issued."""
    contents = (_GIVEN_PATH, _GIVEN_SERVICE)
    values = {"mark": GIVEN, "slots": SCRIPT_PATH}
    return [File(path, content.format(**values).encode()) for path, content in zip(GIVEN_UNITS, contents, strict=True)]
