"""Objects that are written beside the API server: their form in etcd, and how they are written."""

from __future__ import annotations

import json
from base64 import b64decode

from _objects import IN_ONE_TRANSACTION, LARGE_BYTES, SMALL_BYTES, _transaction, config_map, objects


def fields(message: bytes) -> dict[int, bytes | int]:
    """A protobuf message, by the numbers of its fields; of one that comes again the last."""
    found: dict[int, bytes | int] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        value = number()
        if key & 7 == 2:
            found[key >> 3] = message[at : at + value]
            at += value
        else:
            found[key >> 3] = value
    return found


def inner(message: dict[int, bytes | int], field: int) -> dict[int, bytes | int]:
    value = message[field]
    assert isinstance(value, bytes)
    return fields(value)


def test_a_config_map_has_the_form_that_the_api_server_reads():
    written = config_map("space", "one", "the-uid", b"x" * 300)
    assert written.startswith(b"k8s\0")
    envelope = fields(written[4:])
    assert inner(envelope, 1) == {1: b"v1", 2: b"ConfigMap"}
    obj = inner(envelope, 2)
    meta = inner(obj, 1)
    assert (meta[1], meta[3], meta[5]) == (b"one", b"space", b"the-uid")
    assert inner(meta, 8)[1]
    assert inner(obj, 2) == {1: b"content", 2: b"x" * 300}


def test_small_ones_go_together_and_large_ones_alone_and_every_run_has_the_same():
    portions = list(objects("space", IN_ONE_TRANSACTION + 2, 3))
    assert [len(portion) for portion in portions] == [IN_ONE_TRANSACTION, 2, 1, 1, 1]
    assert all(SMALL_BYTES < len(keep.value) < SMALL_BYTES + 200 for portion in portions[:2] for keep in portion)
    assert all(LARGE_BYTES < len(keep.value) < LARGE_BYTES + 200 for [keep] in portions[2:])
    keys = [keep.key for portion in portions for keep in portion]
    assert len(set(keys)) == len(keys)
    assert portions == list(objects("space", IN_ONE_TRANSACTION + 2, 3))


def test_a_transaction_puts_every_key_of_its_portion():
    [portion] = objects("space", 2, 0)
    puts = json.loads(_transaction(portion))["success"]
    assert [b64decode(put["requestPut"]["key"]) for put in puts] == [keep.key for keep in portion]
    assert [b64decode(put["requestPut"]["value"]) for put in puts] == [keep.value for keep in portion]
