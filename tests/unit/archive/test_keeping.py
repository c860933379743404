"""An archive is read back before anything says that it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from autarky.archive import Directory, Lock, Part, fresh_identity
from autarky.archive.contents import Contents, EtcdSeen
from autarky.archive.keeping import digest, keep
from autarky.archive.streams import Reader
from autarky.errors import UserError

CONTENTS = Contents("c", "f", "2026-11-26T00:00:00Z", "n1", "0.1", "v1.37.1", EtcdSeen("3.6.16", "abc", 7, 4, 100))
LOCK = Lock((fresh_identity()[1],))


class Forgetful(Directory):
    """What is read is not what was written."""

    @contextmanager
    def reading(self, name: str) -> Iterator[Reader]:
        yield BytesIO(b"something else")


def test_the_archive_is_there_and_then_what_says_so(tmp_path: Path) -> None:
    target = Directory(tmp_path)
    sealed, verified = keep(target, "a.tar.gz.age", CONTENTS, [Part("x", b"1")], LOCK, lambda: "now")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.json", "a.tar.gz.age"]
    assert digest(target, "a.tar.gz.age") == sealed.sha256
    assert verified == "now"


def test_what_reads_back_as_something_else_does_not_stay(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reads back as something else"):
        keep(Forgetful(tmp_path), "a.tar.gz.age", CONTENTS, [Part("x", b"1")], LOCK, lambda: "now")
    assert list(tmp_path.iterdir()) == []
