"""Objects by the hundred thousand, written into etcd beside the API server: through it they would take an hour.

They are ConfigMaps as kube-apiserver has them in etcd (its protobuf form), so that it serves them, too. Their content
is the same in every run: words from a small vocabulary, which gzip makes as much smaller as it does most real objects.

Danger: the API server learns of them by its watch only. Wait until it has seen them before anything is measured.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from autarky.model import ports

SMALL_BYTES = 1000
LARGE_BYTES = 1024 * 1024
"""The most that a ConfigMap may have."""
IN_ONE_TRANSACTION = 128
"""etcd's default for the most operations of one (--max-txn-ops)."""
_VOCABULARY, _POOL = 64, 8 * 1024 * 1024
_CREATED = 1_750_000_000
_REPORTED = 100
"""Transactions between two reports."""


@dataclass(frozen=True)
class Keep:
    """One key of etcd."""

    key: bytes
    value: bytes


def objects(namespace: str, small: int, large: int) -> Iterator[Sequence[Keep]]:
    """As many small and large ConfigMaps, in the portions in which they are written."""
    source = random.Random(1)  # noqa: S311 # the same in every run
    text = _text_of(source, _POOL)
    each = (_keep(source, text, namespace, f"small-{number:07}", SMALL_BYTES) for number in range(small))
    while portion := list(islice(each, IN_ONE_TRANSACTION)):
        yield portion
    for number in range(large):
        yield [_keep(source, text, namespace, f"large-{number:05}", LARGE_BYTES)]


def _text_of(source: random.Random, size: int) -> bytes:
    """So many bytes or a few more."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(source.choices(letters, k=source.randint(3, 9))).encode() for _ in range(_VOCABULARY)]
    return b" ".join(source.choices(words, k=size // 4))


def _keep(source: random.Random, text: bytes, namespace: str, name: str, size: int) -> Keep:
    """With a piece of the text, which is much longer than what gzip remembers."""
    uid = str(uuid.UUID(int=source.getrandbits(128), version=4))
    begin = source.randrange(len(text) - size)
    content = text[begin : begin + size]
    return Keep(f"/registry/configmaps/{namespace}/{name}".encode(), config_map(namespace, name, uid, content))


def config_map(namespace: str, name: str, uid: str, content: bytes) -> bytes:
    """As kube-apiserver writes it: k8s.io/apimachinery's runtime.Unknown around a core/v1 ConfigMap."""
    meta = b"".join(
        (
            _bytes(1, name.encode()),
            _bytes(3, namespace.encode()),
            _bytes(5, uid.encode()),
            _bytes(8, _varint(1 << 3) + _varint(_CREATED)),
        )
    )
    entry = _bytes(1, b"content") + _bytes(2, content)
    raw = _bytes(1, meta) + _bytes(2, entry)
    kind = _bytes(1, b"v1") + _bytes(2, b"ConfigMap")
    return b"k8s\0" + _bytes(1, kind) + _bytes(2, raw) + _bytes(3, b"") + _bytes(4, b"")


def _bytes(field: int, content: bytes) -> bytes:
    """A field with a length (wire type 2)."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def fill(address: str, tls: ssl.SSLContext, portions: Iterator[Sequence[Keep]], tell: Callable[[str], None]) -> int:
    """Write them through that member, a transaction for each portion; how many keys it were. SystemExit where it
    refuses one."""
    connection = http.client.HTTPSConnection(address, ports.ETCD_CLIENT, context=tls, timeout=60)
    count = 0
    try:
        for number, portion in enumerate(portions, 1):
            connection.request("POST", "/v3/kv/txn", _transaction(portion))
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                raise SystemExit(f"etcd has not taken a transaction: {answer.status}: {said[:300]!r}")
            count += len(portion)
            if number % _REPORTED == 0:
                tell(f"{count:,} objects")
    finally:
        connection.close()
    return count


def _transaction(portion: Sequence[Keep]) -> bytes:
    puts = [{"requestPut": {"key": _text(one.key), "value": _text(one.value)}} for one in portion]
    return json.dumps({"success": puts}).encode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
