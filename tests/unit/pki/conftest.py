from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autarky.model.cluster import CertificateSettings
from autarky.pki import PkiStore
from unit.pki.foreign import foreign_ca
from unit.pki.sample import NOW, SETTINGS, SPECS, put


@pytest.fixture
def store(tmp_path: Path) -> PkiStore:
    """An empty store, whose directory does not exist yet."""
    return PkiStore(tmp_path / "cluster" / "pki")


@pytest.fixture
def issued(store: PkiStore) -> PkiStore:
    """A store in which everything has been issued."""
    store.ensure(SPECS, SETTINGS, NOW)
    return store


@pytest.fixture
def given(tmp_path: Path) -> CertificateSettings:
    """Settings with a directory that holds one CA."""
    put(tmp_path / "given", "ca", foreign_ca(NOW))
    return replace(SETTINGS, ca_directory=str(tmp_path / "given"))
