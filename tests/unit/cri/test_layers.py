"""Files in layers: found and copied whatever the windows are; damaged, hidden and hostile ones."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.cri import layers
from autarky.cri.layers import ABSENT, Blob, Damaged, Place, copy, look, path_in

Content = bytes | None
"""Of a file; None: a directory."""


def tar(*entries: tuple[str, Content], kind: bytes | None = None, **fields: object) -> bytes:
    """kind, fields: of the last entry."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number, (name, content) in enumerate(entries):
            entry = tarfile.TarInfo(name)
            entry.size = len(content or b"")
            entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            if number == len(entries) - 1:
                entry.type = kind or entry.type
                for field, value in fields.items():
                    setattr(entry, field, value)
            archive.addfile(entry, io.BytesIO(content or b""))
    return out.getvalue()


def blob(content: bytes, window: int = layers.WINDOW) -> Blob:
    def fetch(offset: int, size: int) -> bytes:
        assert 0 < size <= window
        assert offset + size <= len(content)
        return content[offset : offset + size]

    return Blob(fetch, len(content), window)


def digest_of(content: bytes | bytearray) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def content_of(layer: bytes, path: str, window: int = layers.WINDOW) -> bytes:
    place = look(blob(layer, window), [path])[path]
    assert isinstance(place, Place)
    found = bytearray()
    copy(blob(layer, window), digest_of(layer), [(place, found.extend)])
    return bytes(found)


# --- reading in windows ----------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=300), st.integers(1, 400), st.lists(st.integers(0, 90)))
def test_a_blob_is_read_as_a_file_whatever_its_windows_are(content: bytes, window: int, sizes: list[int]) -> None:
    read, file = blob(content, window), io.BytesIO(content)
    assert [read.read(size) for size in sizes] == [file.read(size) for size in sizes]
    assert read.tell() == file.tell()
    read.verify(digest_of(content))


@given(st.binary(min_size=2, max_size=300), st.integers(1, 100), st.data())
def test_a_blob_of_which_a_part_was_skipped_is_not_verified(content: bytes, window: int, data: st.DataObject) -> None:
    read = blob(content, window)
    read.read(data.draw(st.integers(0, len(content) - 1)))
    beyond = min(len(content), read.tell() - read.tell() % window + window) + 1
    read.seek(beyond)
    if beyond < len(content):
        read.read(1)
        with pytest.raises(Damaged, match="digest"):
            read.verify(digest_of(content))


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d/e/b"])
WHITEOUTS = st.sampled_from([".wh.a", "d/.wh.a", ".wh.d", "d/e/.wh.b", "d/.wh.e", "d/.wh..wh..opq", ".wh..wh..opq"])
ENTRIES = st.lists(
    st.one_of(st.tuples(NAMES, st.binary(max_size=2000)), st.tuples(WHITEOUTS, st.just(b""))), max_size=6
)


def applied(stack: Sequence[Sequence[tuple[str, bytes]]]) -> dict[str, bytes]:
    """What a runtime makes of the layers."""
    tree: dict[str, bytes] = {}
    for layer in stack:
        for name, _ in layer:
            directory, _, last = name.rpartition("/")
            if last == ".wh..wh..opq":
                tree = {path: c for path, c in tree.items() if directory and not path.startswith(f"{directory}/")}
            elif last.startswith(".wh."):
                gone = f"{directory}/{last[4:]}".lstrip("/")
                tree = {path: c for path, c in tree.items() if path != gone and not path.startswith(f"{gone}/")}
        tree |= {name: content for name, content in layer if ".wh." not in name}
    return tree


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.integers(64, 5000), st.booleans())
def test_layers_give_the_files_that_a_runtime_would_show(
    stack: list[list[tuple[str, bytes]]], window: int, packed: bool
) -> None:
    wanted = {"a", "b", "d/a", "d/b", "d/e/a", "d/e/b"}
    shown: dict[str, bytes] = {}
    known: dict[str, Place | str] = {}
    for entries in reversed(stack):
        layer = tar(*((f"./{name}", content) for name, content in entries))
        layer = gzip.compress(layer) if packed else layer
        seen = look(blob(layer, window), wanted - known.keys())
        places = {path: place for path, place in seen.items() if isinstance(place, Place)}
        taken = {path: bytearray() for path in places}
        copy(blob(layer, window), digest_of(layer), [(place, taken[path].extend) for path, place in places.items()])
        shown |= {path: bytes(content) for path, content in taken.items()}
        known |= seen
    assert shown == applied(stack)
    assert all(isinstance(why, Place) or why == ABSENT for why in known.values())


def test_gzip_in_several_members_is_one_layer() -> None:
    layer = tar(("kubelet", b"k" * 3000))
    packed = gzip.compress(layer[:700]) + gzip.compress(layer[700:])
    assert content_of(packed, "kubelet", window=100) == b"k" * 3000


def test_long_names_and_attributes_are_understood() -> None:
    long = "/".join(["directory"] * 30) + "/kubelet"
    assert content_of(tar((long, b"k"), pax_headers={"SCHILY.xattr.user.x": "y" * 5000}), long) == b"k"


@pytest.mark.parametrize("name", ["kubelet", "/kubelet", "./kubelet", "a/../kubelet", "//kubelet", "../kubelet"])
def test_a_path_has_one_form(name: str) -> None:
    assert path_in(name) == "kubelet"


# --- what is in a file's place ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (tarfile.SYMTYPE, "is a symbolic link"),
        (tarfile.LNKTYPE, "is a hard link"),
        (tarfile.CHRTYPE, "is a device"),
        (tarfile.BLKTYPE, "is a device"),
        (tarfile.FIFOTYPE, "is a pipe"),
        (tarfile.DIRTYPE, "is a directory"),
    ],
)
def test_what_is_no_file_is_named(kind: bytes, says: str) -> None:
    layer = tar(("bin/kubelet", b""), kind=kind, linkname="bin/other")
    assert look(blob(layer), ["bin/kubelet"]) == {"bin/kubelet": says}


def test_a_file_below_a_link_or_a_file_is_not_looked_for_further_down() -> None:
    link = tar(("usr/bin", b""), kind=tarfile.SYMTYPE, linkname="/bin")
    assert look(blob(link), ["usr/bin/kubelet"]) == {"usr/bin/kubelet": "lies below usr/bin, which is a symbolic link"}
    file = tar(("usr", b"no directory"))
    assert look(blob(file), ["usr/bin/kubelet"]) == {"usr/bin/kubelet": "lies below usr, which is a file"}


def test_a_file_with_holes_is_none() -> None:
    layer = tar(("kubelet", b"0\n" + b"\0" * 510), pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    assert look(blob(layer), ["kubelet"]) == {"kubelet": "is a file with holes"}


def test_the_last_of_several_of_one_name_wins() -> None:
    assert content_of(tar(("kubelet", b"first"), ("./kubelet", b"last")), "kubelet") == b"last"
    link = tar(("kubelet", b"first"), ("kubelet", b""), kind=tarfile.SYMTYPE, linkname="x")
    assert look(blob(link), ["kubelet"]) == {"kubelet": "is a symbolic link"}


# --- damaged and absurd ones --------------------------------------------------------------------------------


@given(st.data(), st.booleans())
def test_a_torn_layer_never_gives_a_part_of_a_file(data: st.DataObject, packed: bool) -> None:
    layer = tar(("other", b"o" * 700), ("kubelet", b"k" * 1500), ("last", b"l"))
    layer = gzip.compress(layer) if packed else layer
    torn = layer[: data.draw(st.integers(1, len(layer) - 1))]
    try:
        seen = look(blob(torn), ["kubelet"])
        assert isinstance(seen["kubelet"], Place)
        assert content_of(torn, "kubelet") == b"k" * 1500
    except Damaged:
        pass


@given(st.data())
def test_another_content_than_that_of_the_digest_is_refused(data: st.DataObject) -> None:
    layer = bytearray(tar(("other", b"o" * 700), ("kubelet", b"k" * 1500)))
    digest = digest_of(layer)
    place = look(blob(bytes(layer)), ["kubelet"])["kubelet"]
    assert isinstance(place, Place)
    layer[data.draw(st.integers(0, len(layer) - 1))] ^= 1
    with pytest.raises(Damaged):
        copy(blob(bytes(layer)), digest, [(place, len)])


def _header(kind: bytes, size: int) -> bytes:
    entry = tarfile.TarInfo("kubelet")
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (b"no archive" * 200, "is no tar archive"),
        (b"\x28\xb5\x2f\xfd" + b"\0" * 2000, "is compressed with zstd"),
        (b"\x1f\x8b" + b"\0" * 2000, "is no tar archive"),
        (_header(tarfile.XHDTYPE, 2**30) + b"\0" * 1024, "has a header of"),
        (_header(tarfile.GNUTYPE_LONGNAME, 2**33) + b"\0" * 1024, "has a header of"),
        (_header(tarfile.REGTYPE, 2**40) + b"\0" * 1024, "MiB when it is unpacked"),
        (_header(tarfile.REGTYPE, -(2**20)) + b"\0" * 1024, "goes backwards"),
        (_header(tarfile.REGTYPE, 5000) + b"\0" * 1024, "is no tar archive"),
        (tar(("a", b""))[:512] + b"x" * 512, "breaks off"),
        (tar(("a", b""), ("b", b""))[:700], "breaks off"),
    ],
)
def test_what_is_no_layer_is_refused(layer: bytes, says: str) -> None:
    with pytest.raises(Damaged, match=says):
        look(blob(layer), ["kubelet"])


def test_a_compressed_layer_never_goes_back_to_its_begin() -> None:
    layer = tar(("a", b"a" * 5120))[: 512 + 5120] + _header(tarfile.REGTYPE, -(2**20)) + b"\0" * 1024
    with pytest.raises(Damaged, match="goes backwards"):
        look(blob(gzip.compress(layer)), ["kubelet"])


def test_a_blob_never_goes_back_to_a_window_that_it_has_left() -> None:
    read = blob(b"0123456789", window=4)
    assert read.read(6) == b"012345"
    assert read.seek(4) == 4
    with pytest.raises(Damaged, match="goes backwards"):
        read.seek(3)


def test_a_file_that_is_shorter_than_it_was_found_is_refused() -> None:
    layer = tar(("kubelet", b"k"))
    with pytest.raises(Damaged, match="breaks off"):
        copy(blob(layer), digest_of(layer), [(Place(512, len(layer)), len)])


def test_a_file_of_an_absurd_size_is_refused() -> None:
    size = layers.LARGEST_FILE + 1
    header = _header(tarfile.REGTYPE, size)
    padded = 512 + (size + 511) // 512 * 512

    def fetch(offset: int, length: int) -> bytes:
        return (header[offset:] if offset < 512 else b"").ljust(length, b"\0")[:length]

    assert look(Blob(fetch, padded + 1024), ["kubelet"]) == {"kubelet": f"has {size} bytes"}


@pytest.mark.parametrize("size", [0, -1, layers.LARGEST_LAYER + 1])
def test_a_blob_of_an_absurd_size_is_refused(size: int) -> None:
    with pytest.raises(Damaged, match=f"has {size} bytes"):
        Blob(lambda *_: b"", size)


def test_entries_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_ENTRIES", 10)
    assert look(blob(tar(*((str(n), b"") for n in range(10)))), ["kubelet"]) == {}
    with pytest.raises(Damaged, match="more than 10 entries"):
        look(blob(tar(*((str(n), b"") for n in range(11)))), ["kubelet"])


# --- memory ---------------------------------------------------------------------------------------------------


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_more_than_a_window_and_a_piece_of_a_large_file_is_in_memory() -> None:
    size = 64 * 2**20
    header = _header(tarfile.REGTYPE, size)

    def fetch(offset: int, length: int) -> bytes:
        return (header[offset:] if offset < 512 else b"").ljust(length, b"\0")[:length]

    sizes: list[int] = []

    def read() -> None:
        place = look(Blob(fetch, size + 1536), ["kubelet"])["kubelet"]
        assert place == Place(512, size)
        with pytest.raises(Damaged, match="digest"):
            copy(Blob(fetch, size + 1536), "", [(place, lambda piece: sizes.append(len(piece)))])

    assert peak(read) < 4 * layers.WINDOW
    assert sum(sizes) == size


def test_entries_are_not_kept() -> None:
    layer, window = tar(*((f"file-{number}", b"") for number in range(6000))), 64 * 1024
    assert peak(lambda: look(blob(layer, window), ["kubelet"])) < 16 * window
