"""A control node's disk for tests of the node agent's duties, and a clock that tests move on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from autarky import places
from autarky.render.values import pretty_json


@dataclass
class Disk:
    root: Path

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    def manifest(self, name: str, uid: str, image: str = "image", revision: str = "") -> None:
        meta = {"name": name, "uid": uid, "annotations": {"autarky.dev/revision": revision}}
        pod = {"kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "image": image}]}}
        (self.manifests / f"{name}.json").write_bytes(pretty_json(pod))

    def revision(self, component: str, name: str, image: str) -> None:
        """A complete one, which becomes the current one."""
        directory = self.root / "standby" / component / name
        directory.mkdir(parents=True)
        meta = {"name": "pod-@ACTIVATION@", "uid": "@UID@", "annotations": {"autarky.dev/revision": name}}
        pod = {"kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "image": image}]}}
        (directory / "pod.json").write_bytes(pretty_json(pod))
        link = directory.parent / "current"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def in_place(self) -> list[str]:
        return sorted(path.name for path in self.manifests.iterdir())


def a_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(places, "STANDBY", str(root / "standby"))
    monkeypatch.setattr(places, "MANIFESTS", str(root / "manifests"))
    (root / "standby").mkdir()
    (root / "manifests").mkdir()
    return Disk(root)
