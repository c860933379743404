"""What the scenarios of kubelets share: what Nodes say of them, and other kubelets than those of a release."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness import COMMAND, TestCluster, environment
from slots import events_by_name

from autarky import places
from autarky.control.kubelet.manifests import files
from autarky.payload import default_version, find_binary, load_release
from autarky.payload.layers import binary_layer
from autarky.payload.oci import ImageConfig, write_archive

REPORT, PIN, ORDER = "autarky.dev/kubelet", "autarky.dev/kubelet-version", "autarky.dev/kubelet-order"
CURRENT = "KubeletsCurrent"
"""The ControlPlane's condition."""
WENT_BACK, REFUSED = "KubeletWentBack", "KubeletRefused"
"""Reasons of events."""
BACK_SECONDS = 120.0
"""Within which a kubelet that does not work has to be the former one again, from when its trial began."""


def node(cluster: TestCluster, name: str = "n1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "node", name, "-o", "json"))
    return found


def kubelet_of(cluster: TestCluster, name: str = "n1") -> str:
    """The version of its kubelet."""
    return str(node(cluster, name)["status"]["nodeInfo"]["kubeletVersion"])


def report_of(cluster: TestCluster, name: str = "n1") -> dict[str, Any]:
    """What the node reports of it; empty where it reports nothing."""
    found: dict[str, Any] = json.loads(node(cluster, name)["metadata"].get("annotations", {}).get(REPORT, "{}"))
    return found


def pin(cluster: TestCluster, version: str | None, name: str = "n1") -> None:
    cluster.kubectl("annotate", "node", name, "--overwrite", f"{PIN}{'-' if version is None else f'={version}'}")


def orders_given(cluster: TestCluster, name: str) -> int:
    """How many the node has had for its kubelet: who has had fewer gets its turn first (`decide.turns`)."""
    annotations = node(cluster, name)["metadata"].get("annotations", {})
    return max(int(json.loads(annotations.get(key, "{}")).get("number", 0)) for key in (ORDER, REPORT))


def is_ready(cluster: TestCluster, name: str = "n1") -> bool:
    return shows_ready(node(cluster, name))


def shows_ready(node: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def kubelet_process(cluster: TestCluster, name: str = "n1") -> str:
    """Its process id, and when it began."""
    return cluster.shell(name, "systemctl show kubelet --property=MainPID,ExecMainStartTimestampMonotonic")


def says_by_an_event(
    cluster: TestCluster, reason: str, message: str, before: Collection[str], name: str = "n1"
) -> None:
    """On its Node, once, beside the events of that reason from before (`events_by_name`)."""
    found: list[str] = []

    def is_said() -> list[str]:
        new = {event: said for event, said in events_by_name(cluster, reason).items() if event not in before}
        found[:] = [said for event, said in new.items() if event.startswith(f"{name}.")]
        return found

    cluster.wait(f"an event {reason} of {name} says: {message}", is_said, seconds=30)
    assert found == [message], f"{reason} of {name}: {found}, not {message!r} alone"


# --- on the host's disk ------------------------------------------------------------------------------------


def on_disk(cluster: TestCluster, name: str = "n1") -> Path:
    """autarky's files on that host, as this machine sees them, until the host is off."""
    return Path(f"/proc/{cluster.host_process(name)}/root{places.HOST_ROOT}")


def uptime() -> float:
    """By the clock that the hosts' scripts go by: a lab's hosts share it with this machine."""
    return float(Path("/proc/uptime").read_text().split()[0])


def trial(cluster: TestCluster, name: str = "n1") -> tuple[str, float] | None:
    """The order that is on trial there, and the uptime at which that began, as the host's script has noted it: the most
    that a trial may take counts from there, and nothing moves it. None while there is none."""
    try:
        said = files.parse((on_disk(cluster, name) / "kubelet/trial").read_bytes())
    except FileNotFoundError:
        return None
    return said["order"], float(said["ceiling"]) - files.MOST_SECONDS


def trial_began(cluster: TestCluster, name: str = "n1", *, seconds: float = 90) -> float:
    """The uptime, of the one that is there within so many seconds."""
    found: list[float] = []

    def look() -> list[float]:
        seen = trial(cluster, name)
        found[:] = [] if seen is None else [seen[1]]
        return found

    cluster.wait(f"the kubelet of {name} is on trial", look, seconds=seconds, pause=0.1)
    return found[0]


def staged(cluster: TestCluster, name: str = "n1") -> set[str]:
    """Generations, also unfinished ones, and what there is in the store, also in part."""
    root = on_disk(cluster, name)
    generations = {f"kubelet/{path.name}" for path in (root / "kubelet").iterdir() if path.is_dir()}
    return generations | {f"store/{path.name}" for path in (root / "store").iterdir()}


def forget_generations(cluster: TestCluster, version: str, name: str) -> None:
    """As where a kubelet of that version has never been: else the next order for one takes that, and reads no image."""
    directory = on_disk(cluster, name) / "kubelet"
    current = (directory / "current").readlink().name
    for said in list(directory.glob("*/version")):
        path = said.parent
        if path.is_symlink() or path.name == current or said.read_text().strip() != version:
            continue
        with suppress(FileNotFoundError):
            if (directory / "previous").readlink().name == path.name:
                (directory / "previous").unlink()
        shutil.rmtree(path)


@contextmanager
def a_disk_that_fills_up_while_staging(cluster: TestCluster, leaves: int, name: str = "n1") -> Iterator[list[int]]:
    """As soon as a kubelet is being written to the store in the block, a file takes all room but so many bytes, until
    the block ends. Yields how many bytes of the kubelet were there then. etcd, on the same file system, has the room
    for its own writes beforehand; for those of its log it always has."""
    database = "/var/lib/etcd/member/snap/db"
    cluster.shell(name, f"fallocate -n -l $(($(stat -c %s {database}) + (64 << 20))) {database}")
    root = on_disk(cluster, name)
    part, filler = root / "store/.kubelet.part", root / "full"
    over, seen = threading.Event(), list[int]()

    def fill() -> None:
        while not over.wait(0.002):
            with suppress(FileNotFoundError):
                written = part.stat().st_size
                with filler.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(root).free - leaves)
                seen.append(written)
                return

    thread = threading.Thread(target=fill, name="filler")
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        filler.unlink(missing_ok=True)


# --- other kubelets ----------------------------------------------------------------------------------------

_PROGRAM = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "--version")) return puts("Kubernetes VERSION") < 0;
    fputs("Error: this one never works\\n", stderr);
    DOES
}
"""


def bring_program(cluster: TestCluster, version: str, does: str, name: str = "n1", *, more: int = 0) -> None:
    """Import an image with a program, in the place of the kubelet of that version, that knows its version, and else
    does this, in C. more: bytes that it is larger."""
    with tempfile.TemporaryDirectory() as directory:
        path = _compiled(Path(directory), "kubelet", version, does)
        with path.open("ab") as program:
            program.write(bytes(more))
        bring_kubelet(cluster, version, path, name)


def bring_hosted(cluster: TestCluster, version: str, does: str, name: str = "n1") -> None:
    """The same as the image of a hosted kubelet, with the shell of the one that runs there."""
    with tempfile.TemporaryDirectory() as directory:
        path, shell = _compiled(Path(directory), "kubelet", version, does), Path(directory, "busybox")
        shell.write_bytes(b64decode(cluster.shell(name, "base64 /proc/$(pgrep -o busybox)/root/bin/busybox")))
        shell.chmod(0o755)
        programs = {"kubelet": path, "busybox": shell}
        _bring(cluster, f"autarky.dev/kubelet:{version}", programs, name, [("bin/busybox", "/usr/local/bin/busybox")])


def bring_broken(cluster: TestCluster, reference: str, program: str, name: str = "n1") -> None:
    """Import an image whose program, of whatever it is, only says that it never works, and ends."""
    with tempfile.TemporaryDirectory() as directory:
        path = _compiled(Path(directory), program, "", "return 1;")
        _bring(cluster, reference, {program: path}, name)


def bring_kubelet(cluster: TestCluster, version: str, path: Path, name: str = "n1") -> None:
    """Import an image with that program as the kubelet of that version."""
    _bring(cluster, f"autarky.dev/kubelet:{version}", {"kubelet": path}, name)


NO_PROGRAM = b"\x7fELF, and nothing of a program behind it\n"
"""The kernel does not execute it."""


def bring_runtime(cluster: TestCluster, reference: str, others: Mapping[str, str | None], name: str = "n1") -> None:
    """Import an image with the release's containerd and runc, each with a byte behind it. others: program → what it
    does instead, in C; None where it is NO_PROGRAM."""
    with tempfile.TemporaryDirectory() as directory:
        found = {}
        for program in files.RUNTIME:
            own = find_binary(load_release(default_version()), program)
            assert own is not None, "autarky payload get"
            path = found[program] = Path(directory, program)
            path.write_bytes(own.path.read_bytes() + b"\0")
            path.chmod(0o755)
            if program not in others:
                continue
            if (does := others[program]) is None:
                path.write_bytes(NO_PROGRAM)
            else:
                _compiled(Path(directory), program, "", does)
        _bring(cluster, reference, found, name)


def _compiled(directory: Path, name: str, version: str, does: str) -> Path:
    source, path = directory / f"{name}.c", directory / name
    source.write_text(_PROGRAM.replace("VERSION", version).replace("DOES", does))
    subprocess.run(["gcc", "-static", "-o", str(path), str(source)], check=True, timeout=60)
    return path


def _bring(
    cluster: TestCluster,
    reference: str,
    programs: Mapping[str, Path],
    name: str,
    links: Sequence[tuple[str, str]] = (),
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory, "image.tar")
        layer = binary_layer(Path(directory, "layer.tar"), list(programs.items()), links)
        write_archive(archive, ImageConfig(reference, ["/usr/local/bin/program"]), [layer])
        argv = [*COMMAND, "lab", "shell", "--lab", cluster.name, name, "--"]
        argv += ["/var/lib/autarky/bin/ctr", "--namespace", "k8s.io", "images", "import", "-"]
        with archive.open("rb") as image:
            subprocess.run(argv, env=environment(), stdin=image, check=True, capture_output=True, timeout=60)
