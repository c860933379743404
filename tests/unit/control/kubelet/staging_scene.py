"""A node's disk for tests of what is staged on it, the images that its programs come from, and what must hold there."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from autarky.control.kubelet.decide.own import SPARE
from autarky.control.kubelet.manifests import files
from autarky.control.kubelet.node.staging import Source, Staging, Wanted
from fakes.image_files import FakeImageFiles

KUBELET, RUNTIME = "autarky.dev/kubelet:v1.37.1", "autarky.dev/runtime:2.3.7-1.4.0"
OLD = "autarky.dev/kubelet:v1.36.4"
RUNTIME_PROGRAMS = {name: f"{name} of the image\n".encode() * 100 for name in files.RUNTIME}
IMAGES = {
    KUBELET: {"/kubelet": b"the kubelet v1.37.1\n" * 200},
    OLD: {"/kubelet": b"the kubelet v1.36.4\n" * 200},
    RUNTIME: {f"/{name}": content for name, content in RUNTIME_PROGRAMS.items()},
}
SETTINGS = {
    files.CONFIG: b'{"kind": "KubeletConfiguration"}\n',
    files.ARGUMENTS: b"--config=/var/lib/autarky/kubelet/current/config.json\n",
}


async def says_its_version(program: Path) -> str:
    return program.read_text().split()[2]


def a_staging(root: Path, images: FakeImageFiles | None = None, *, free: int = 10 * SPARE) -> Staging:
    images = images or FakeImageFiles({image: dict(content) for image, content in IMAGES.items()})
    return Staging(images, root, free=lambda _: free, version_of=says_its_version)


def stored(name: str, content: bytes) -> str:
    return f"{name}-{sha256(content).hexdigest()[:16]}"


def wanted(
    image: str = KUBELET, *, runtime: bool = True, kept: Mapping[str, str] | None = None, version: str = ""
) -> Wanted:
    programs = {"kubelet": Source(image, "/kubelet")}
    programs |= {name: Source(RUNTIME, f"/{name}") for name in files.RUNTIME if runtime}
    return Wanted(version or image.rpartition(":")[2], programs, kept or {}, SETTINGS)


def as_up_has_left_it(root: Path) -> Path:
    """Programs in the store, and links in bin/ to them."""
    for name in ("store", "bin", "state"):
        (root / name).mkdir(parents=True)
    for name in files.PROGRAMS:
        put_by_up(root, name, f"{name} of up".encode())
    return root


def put_by_up(root: Path, name: str, content: bytes) -> None:
    path = root / "store" / stored(name, content)
    path.write_bytes(content)
    path.chmod(0o755)
    link = root / "bin" / name
    link.unlink(missing_ok=True)
    link.symlink_to(path)


OF_UP = {stored(name, f"{name} of up".encode()) for name in files.PROGRAMS}
NEW = {stored("kubelet", IMAGES[KUBELET]["/kubelet"])} | {stored(n, c) for n, c in RUNTIME_PROGRAMS.items()}


def in_store(root: Path) -> set[str]:
    return {path.name for path in (root / "store").iterdir()}


def generations(root: Path) -> set[str]:
    directory = root / "kubelet"
    return {path.name for path in directory.iterdir() if not path.is_symlink()} if directory.exists() else set()


def switch(root: Path, generation: str) -> None:
    """As the script does it; the links of bin/ go through `current` from then on."""
    current = root / "kubelet" / "current"
    if current.is_symlink():
        (root / "kubelet" / "previous").unlink(missing_ok=True)
        (root / "kubelet" / "previous").symlink_to(current.readlink())
        current.unlink()
    current.symlink_to(generation)
    for name in files.PROGRAMS:
        (root / "bin" / name).unlink()
        (root / "bin" / name).symlink_to(f"../kubelet/current/{name}")


def is_complete_for_the_script(root: Path, generation: str) -> bool:
    directory = root / "kubelet" / generation
    mark = directory / files.COMPLETE
    if not mark.exists() or files.parse(mark.read_bytes()) != {"generation": generation}:
        return False
    programs = [(directory / name).resolve(strict=True) for name in files.PROGRAMS]
    assert all(os.access(path, os.X_OK) and path.stat().st_size for path in programs)
    assert all(path.parent == root / "store" for path in programs)
    assert all((directory / name).read_bytes() == content for name, content in SETTINGS.items())
    return True


def every_program_is_intact(root: Path) -> bool:
    names = [path for path in (root / "store").iterdir() if not path.name.startswith(".")]
    return all(
        path.name == stored(path.name.rpartition("-")[0], path.read_bytes())
        and stat.S_IMODE(path.stat().st_mode) == 0o755
        for path in names
    )


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.rglob(".*") if path.is_symlink() or path.is_file()]
