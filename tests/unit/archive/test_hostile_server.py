"""A server that speaks S3, and does as it likes."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256

import pytest

from autarky.archive import S3, targets
from autarky.archive.keeping import digest
from autarky.archive.targets import Bucket
from autarky.errors import Unreachable, UserError

CONTENT = bytes(range(256)) * 40
LIST = (
    "<ListBucketResult><Name>bucket</Name><Prefix/><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys>"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken></ListBucketResult>"
)
"""A page of nothing, and there is more."""
ERROR = "<Error><Code>{}</Code><Message>It is not there.</Message></Error>"


class Server(http.server.ThreadingHTTPServer):
    """says: the size by its answer to HEAD. longer: bytes that it sends beyond a range, shorter: that it leaves out.
    pause: seconds before each hundred bytes. sent: how many it has sent. missing: its code for what is not there.
    asked: how often it was."""

    daemon_threads = True
    says, longer, shorter, pause = len(CONTENT), 0, 0, 0.0
    sent = asked = 0
    missing = "NoSuchKey"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def _answer(self, status: int, size: int, **headers: str) -> None:
        self.send_response(status)
        given = {"Content-Length": str(size), "ETag": '"x"', "Last-Modified": "Tue, 21 Oct 2025 07:28:00 GMT"}
        for name, value in {**given, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_HEAD(self) -> None:
        if self.path.endswith("/none"):
            self._answer(404, 0)
        else:
            self._answer(200, self.server.says)

    def do_GET(self) -> None:
        self.server.asked += 1
        if "list-type" in self.path:
            self._say(200, LIST.format(self.server.asked))
        elif self.path.endswith("/none"):
            self._say(404, ERROR.format(self.server.missing))
        else:
            self._send()

    def _say(self, status: int, text: str) -> None:
        self._answer(status, len(text))
        self.wfile.write(text.encode())

    def _send(self) -> None:
        start, end = (int(word) for word in self.headers["Range"].removeprefix("bytes=").split("-"))
        content = CONTENT[start : end + 1].ljust(end + 1 - start, b"\0")
        content = content[: len(content) - self.server.shorter]
        span = f"bytes {start}-{end}/{self.server.says}"
        self._answer(206, len(content) + self.server.longer, Content_Range=span)
        with suppress(OSError):
            for number in range(0, len(content), 100):
                time.sleep(self.server.pause)
                self.wfile.write(content[number : number + 100])
            left = self.server.longer
            while left > 0:
                self.server.sent += self.wfile.write(bytes(min(left, 1 << 20)))
                left -= 1 << 20


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def bucket(server: Server) -> S3:
    return S3(Bucket("bucket", "k", "s", f"http://127.0.0.1:{server.server_port}", plain=True))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_RANGE", 3000)
    monkeypatch.setattr(targets, "_LEAST_PIECE", 64)


@pytest.mark.parametrize("size", [1, 999, 3000, 3001, 100_000])
def test_what_an_honest_one_has_is_read_range_by_range(bucket: S3, size: int) -> None:
    with bucket.reading("x") as reader:
        pieces = list(iter(lambda: reader.read(size), b"")) if size > 1 else [reader.read(1), reader.read()]
    assert b"".join(pieces) == CONTENT
    assert {len(piece) for piece in pieces[:-1]} <= {size}
    with pytest.raises(UserError, match="there is no s3://bucket/none"), bucket.reading("none"):
        pass


def test_an_empty_file_is_empty(bucket: S3, server: Server) -> None:
    server.says = 0
    with bucket.reading("x") as reader:
        assert reader.read(10) == reader.read() == b""


def test_one_that_sends_more_than_it_is_asked_for_is_not_listened_to(bucket: S3, server: Server) -> None:
    """All that would be in memory."""
    server.says, server.longer = 1000, 600 << 20
    with pytest.raises(Unreachable, match="it sends more than the 1,000 bytes that it was asked for"):
        digest(bucket, "x")
    assert server.sent < 64 << 20


def test_one_that_sends_less_has_not_sent_it(bucket: S3, server: Server) -> None:
    server.shorter = 1
    with pytest.raises(Unreachable):
        digest(bucket, "x")


def test_one_that_sends_next_to_nothing_is_not_waited_for(
    bucket: S3, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_RANGE_SECONDS", 0.3)
    server.pause = 0.1
    with pytest.raises(Unreachable, match=r"x: [0-9,]+ bytes have come in 0 s"):
        digest(bucket, "x")


def test_of_more_than_was_written_no_more_is_read_back(bucket: S3, server: Server) -> None:
    """It says that there are 10 TB, and sends and sends."""
    assert digest(bucket, "x", len(CONTENT)) == digest(bucket, "x") == sha256(CONTENT).hexdigest()
    server.says = 10**13
    assert digest(bucket, "x", len(CONTENT)) != sha256(CONTENT).hexdigest()


@pytest.mark.parametrize(("name", "there"), [("x", True), ("none", False)])
def test_whether_a_file_is_there_is_one_question_though_its_lists_have_no_end(
    bucket: S3, server: Server, name: str, there: bool
) -> None:
    """Before each backup it was asked for all names: 300,000 of them took half a GiB, and a page of nothing made it ask
    for the next one, for hours."""
    assert bucket.has(name) is there
    assert server.asked == 1


def test_a_bucket_that_is_not_there_is_named_before_anything_is_written(bucket: S3, server: Server) -> None:
    server.missing = "NoSuchBucket"
    with pytest.raises(Unreachable, match=r"bucket bucket at http://127.*: It is not there. \(NoSuchBucket\)"):
        bucket.has("none")


def test_one_that_sends_no_end_of_a_file_is_not_listened_to_where_it_is_only_asked_whether_it_is_there(
    bucket: S3, server: Server
) -> None:
    server.longer = 600 << 20
    assert bucket.has("x")
    assert server.sent < 64 << 20
