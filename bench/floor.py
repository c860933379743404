"""The floor: what the parts of a cluster take alone, by hand, on one host of the same kind, with the same binaries and
images as the other benchmarks. `_floor.py` says which of them must run one after the other, for which figure.

In every round a host is made, and then, each when the host has come to rest:
  kubelet       a kubelet without an API is started, whose static pod's image is in place, until its container runs;
                then it gets another static pod;
  etcd and API  both are started at once, as processes, with no data yet, until /readyz answers 200: what an API server
                does before it needs etcd is done meanwhile;
  leases        kube-scheduler and kube-controller-manager are started at once, until each holds its lease;
  power         the host loses its power, and gets it back: until containerd answers, and until /readyz does, of an etcd
                and an API server whose units are enabled, with the data of before.
Processes have the command lines that kubeadm writes for its static pods; all certificates were issued before, the
kubelet's as well. Every condition is looked at twenty times a second: the API's from outside, by one client that stays
connected, and a container's in the host's list of processes.

    ./run bench floor [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from _figures import SECONDS, Figure
from _floor import API, BOOTED, CONTAINERD, CONTROLLERS, FLOOR, KUBELET, PARTS, POD, SCHEDULER
from _kubeadm import CONFIG, KUBEADM, PKI, issue_certificates, kubeadm_config, lab_host, prepare_kubeadm_host
from _power import IMAGE
from _product import Product
from _rounds import main

from autarky import places
from autarky.cli.wiring import Silence, lab_supplies
from autarky.errors import AutarkyError
from autarky.hosts import LabHost
from autarky.hosts.shell import PATH
from autarky.kube import KubeClient
from autarky.lab import Lab
from autarky.model.files import File
from autarky.payload import Payload
from autarky.ports import Host

LAB, NAME = "bench-floor", "n1"
PROGRAMS: Mapping[str, str] = {
    "etcd": "etcd local",
    "kube-apiserver": "control-plane apiserver",
    "kube-controller-manager": "control-plane controller-manager",
    "kube-scheduler": "control-plane scheduler",
}
"""What runs by hand, and the phase of `kubeadm init` that writes its static pod: nobody runs that pod."""
AT_BOOT = ("etcd", "kube-apiserver")
LEASES = {SCHEDULER: "kube-scheduler", CONTROLLERS: "kube-controller-manager"}
OWN = "/root/floor"
STATIC_PODS = f"{OWN}/static-pods"
KUBELET_CONFIG = f"{OWN}/kubelet.json"
FURTHER_POD = f"{OWN}/further.json"
"""Until the running kubelet gets it."""
CALM_SECONDS = 10
"""Before each part. Less than other benchmarks rest: nothing runs here but what was started by hand."""
POLL_SECONDS = 0.05
WAIT_SECONDS = 120
# Arguments: a number of pods, and a command. Does it, and ends when the processes of so many pods run.
_UNTIL_PODS_RUN = """\
count=$1
shift
"$@" || exit 1
until [ "$(pgrep -cx agnhost)" -ge "$count" ]; do sleep 0.05; done
"""


async def run(payload: Payload, _: Product, rounds: int) -> list[Figure]:
    lab = Lab.open(LAB)
    return figures([await one_round(payload, lab, partial(_tell, number)) for number in range(1, rounds + 1)])


def figures(found: Sequence[Mapping[str, float]]) -> list[Figure]:
    """found: part → seconds, of each round."""
    nothing = (None,) * len(found)
    return [Figure(FLOOR, part, SECONDS, tuple(each[part] for each in found), nothing) for part in PARTS]


def _tell(number: int, part: str, seconds: float) -> None:
    print(f"{FLOOR}: {number}: {part}: {seconds:.2f} s", flush=True)


async def one_round(payload: Payload, lab: Lab, tell: Callable[[str, float], None]) -> dict[str, float]:
    """Of a host that is made for it, and taken away: etcd has no data, and no pod was ever there. Afterwards the two
    static pods, which do nothing, and all processes run on until the power is cut."""
    host = await _prepared(payload, lab)
    found: dict[str, float] = {}
    for part in (_static_pods, _control_plane, partial(_power, lab)):
        seconds = await part(host)
        for name, each in seconds.items():
            tell(name, each)
        found |= seconds
    await lab.down()
    return found


# --- before a clock starts ------------------------------------------------------------------------


async def _prepared(payload: Payload, lab: Lab) -> LabHost:
    """With everything in place, as kubeadm's hosts have it, and units for what is started by hand."""
    await lab.down()
    runc, seed = await lab_supplies(payload.release, Silence())
    await lab.ensure([NAME], runc=runc, seed=seed, progress=Silence())
    host = lab_host(lab.name, NAME)
    config = kubeadm_config(str(payload.release.kubernetes), NAME)
    await prepare_kubeadm_host(host, payload, config)
    # Without a configuration kubeadm's own kubelet would end and be restarted after the power cut.
    await host.run(["systemctl", "disable", "--quiet", "kubelet"])
    await issue_certificates({NAME: host})
    for program in PROGRAMS:
        await host.push(payload.binaries[program].path, f"/usr/local/bin/{program}", mode=0o755)
    commands = {program: await _command(host, program) for program in PROGRAMS}
    commands["kubelet"] = ["/usr/bin/kubelet", f"--config={KUBELET_CONFIG}"]
    await host.write_files(
        [
            *(
                File(f"/etc/systemd/system/{unit(program)}", unit_file(command))
                for program, command in commands.items()
            ),
            File(KUBELET_CONFIG, json.dumps(kubelet_config(config)).encode()),
            File(f"{STATIC_PODS}/first.json", static_pod("first")),
            File(FURTHER_POD, static_pod("further")),
        ]
    )
    await host.run(["systemctl", "daemon-reload"])
    return host


async def _command(host: Host, program: str) -> list[str]:
    await host.run([KUBEADM, "init", "phase", *PROGRAMS[program].split(), f"--config={CONFIG}"])
    return command_of(await host.read(f"{places.MANIFESTS}/{program}.yaml") or b"", program)


def command_of(manifest: bytes, program: str) -> list[str]:
    """The command line of kubeadm's static pod, with the program where it lies here."""
    document = yaml.safe_load(manifest)
    if not isinstance(document, dict):
        raise SystemExit(f"kubeadm has written no static pod of {program}")
    first, *arguments = document["spec"]["containers"][0]["command"]
    if first != program:
        raise SystemExit(f"kubeadm's static pod of {program} runs {first}")
    return [f"/usr/local/bin/{program}", *arguments]


def unit(program: str) -> str:
    return f"floor-{program}.service"


def unit_file(command: Sequence[str]) -> bytes:
    """Not restarted: what ends is seen. A kubelet's end leaves its pods alone."""
    words = " ".join('"' + word.replace("%", "%%").replace("$", "$$") + '"' for word in command)
    lines = [
        *("[Unit]", "After=network.target"),
        *("[Service]", f"Environment=PATH={places.BIN}:{PATH}", f"ExecStart={words}", "KillMode=process"),
        *("[Install]", "WantedBy=multi-user.target"),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def kubelet_config(kubeadm: str) -> dict[str, Any]:
    """kubeadm's for this kind of host, of a kubelet that has no API."""
    documents = [json.loads(document) for document in kubeadm.split("---\n")]
    found: dict[str, Any] = next(each for each in documents if each["kind"] == "KubeletConfiguration")
    return {
        **found,
        "staticPodPath": STATIC_PODS,
        "containerRuntimeEndpoint": f"unix://{places.CONTAINERD_SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        # Any will do: nobody connects. Without one it would make itself a key on the clock.
        "tlsCertFile": f"{PKI}/apiserver.crt",
        "tlsPrivateKeyFile": f"{PKI}/apiserver.key",
        "authorization": {"mode": "AlwaysAllow"},
    }


def static_pod(name: str) -> bytes:
    """On the host's network, since no other is there."""
    container = {
        "name": "pause",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/agnhost", "pause"],
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
    ).encode()


# --- on the clock ---------------------------------------------------------------------------------


async def _static_pods(host: LabHost) -> dict[str, float]:
    """The kubelet is stopped afterwards."""
    await asyncio.sleep(CALM_SECONDS)
    first = await _until_pods_run(host, 1, "systemctl", "start", "--no-block", unit("kubelet"))
    await asyncio.sleep(CALM_SECONDS)
    further = await _until_pods_run(host, 2, "mv", FURTHER_POD, STATIC_PODS)
    await host.run(["systemctl", "stop", unit("kubelet")], timeout=WAIT_SECONDS)
    return {KUBELET: first, POD: further}


async def _until_pods_run(host: LabHost, count: int, *action: str) -> float:
    begin = time.monotonic()
    try:
        await host.run(["sh", "-c", _UNTIL_PODS_RUN, "sh", str(count), *action], timeout=WAIT_SECONDS)
    except AutarkyError as error:
        raise SystemExit(f"{count} static pods do not run: {error}\n{await _journal(host)}") from error
    return time.monotonic() - begin


async def _control_plane(host: LabHost) -> dict[str, float]:
    async with _client(host) as kube:
        await asyncio.sleep(CALM_SECONDS)
        begin = time.monotonic()
        await _start(host, *AT_BOOT)
        api = await _seconds(host, begin, API, partial(_ready, kube))
        await asyncio.sleep(CALM_SECONDS)
        if held := [lease for lease in LEASES.values() if await _held(kube, lease)]:
            raise SystemExit(f"leases are held before anything is there to hold them: {', '.join(held)}")
        begin = time.monotonic()
        await _start(host, *LEASES.values())
        looks = {part: _seconds(host, begin, part, partial(_held, kube, lease)) for part, lease in LEASES.items()}
        return {API: api, **dict(zip(looks, await asyncio.gather(*looks.values()), strict=True))}


async def _power(lab: Lab, host: LabHost) -> dict[str, float]:
    """The clock starts with the power. What was written last is on the disk before: the certificates among it."""
    async with _client(host) as kube:
        await host.run(["systemctl", "enable", "--quiet", *map(unit, AT_BOOT)])
        await host.run(["sync", "--file-system", places.KUBERNETES], timeout=WAIT_SECONDS)
        await asyncio.sleep(CALM_SECONDS)
        await lab.cut(NAME)
        begin = time.monotonic()
        await lab.start(NAME, progress=Silence())
        again = lab_host(lab.name, NAME)
        booted = await _seconds(again, begin, BOOTED, partial(_ready, kube))
        return {CONTAINERD: await _answered(again) - begin, BOOTED: booted}


async def _answered(host: LabHost) -> float:
    """When containerd reported to systemd that it answers. Test hosts have this machine's monotonic clock."""
    argv = ["systemctl", "show", "--value", "--property=ActiveEnterTimestampMonotonic", "containerd"]
    said = (await host.run(argv)).text
    if said in ("", "0"):
        raise SystemExit(f"containerd does not answer after a power cut\n{await _journal(host, 'containerd')}")
    return int(said) / 1e6


async def _start(host: Host, *programs: str) -> None:
    await host.run(["systemctl", "start", "--no-block", *map(unit, programs)])


async def _seconds(host: LabHost, begin: float, what: str, holds: Callable[[], Awaitable[bool]]) -> float:
    """From `begin` until the condition holds."""
    while time.monotonic() < begin + WAIT_SECONDS:
        if await holds():
            return time.monotonic() - begin
        await asyncio.sleep(POLL_SECONDS)
    raise SystemExit(f"not within {WAIT_SECONDS} s: {what}\n{await _journal(host)}")


# --- looks ----------------------------------------------------------------------------------------


@asynccontextmanager
async def _client(host: LabHost) -> AsyncGenerator[KubeClient]:
    """With every right: `kubeadm init` would give admin.conf its own, which nobody runs here."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "kubeconfig")
        file.write_bytes(await host.read(f"{places.KUBERNETES}/super-admin.conf") or b"")
        kube = KubeClient.from_kubeconfig(file)
    try:
        yield kube
    finally:
        await kube.close()


async def _ready(kube: KubeClient) -> bool:
    return await kube.healthy(timeout=1) is None


async def _held(kube: KubeClient, lease: str) -> bool:
    try:
        found = await kube.get("coordination.k8s.io/v1", "Lease", lease, "kube-system")
    except AutarkyError:
        return False
    return found is not None and bool(found["spec"].get("holderIdentity"))


async def _journal(host: Host, units: str = "floor-*") -> str:
    """Its end, for whoever has to find out why."""
    argv = ["journalctl", "--no-pager", "--lines=40", f"--unit={units}"]
    return (await host.run(argv, check=False)).text


if __name__ == "__main__":
    main(__doc__, [run])
