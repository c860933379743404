"""The agent image's tag tells contents apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from autarky import __version__
from autarky.payload import agent_content, image_reference, known_versions, load_release


def test_every_release_names_the_agent_image_by_version_and_content():
    for version in known_versions():
        name, _, tag = image_reference(load_release(version), "agent").rpartition(":")
        assert name == "autarky.dev/agent"
        assert tag.startswith(f"{__version__}-")


def test_the_same_content_is_the_same_tag_and_anything_else_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tag(base: str = "base") -> str:
        agent_content.agent_tag.cache_clear()
        return agent_content.agent_tag(base)

    first = tag()
    assert tag() == first
    seen = {first, tag("another base")}
    sources = agent_content.package_sources()
    monkeypatch.setattr(agent_content, "package_sources", lambda: sources[1:])
    seen.add(tag())
    lock = tmp_path / "lock"
    lock.write_text("httpx2==0")
    monkeypatch.setattr(agent_content, "dependencies_lock", lambda: lock)
    seen.add(tag())
    agent_content.agent_tag.cache_clear()
    assert len(seen) == 4
