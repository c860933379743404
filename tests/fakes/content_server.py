"""The part of containerd that gives the content of images, at a socket of its own. The real one: tests/contract/cri."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from grpclib import GRPCError
from grpclib.const import Cardinality, Handler, Status
from grpclib.server import Server, Stream

from autarky.cri import containerd_pb2 as pb

_CONTENT = "/containerd.services.content.v1.Content"
MESSAGE = 1000
"""Bytes in one answer; containerd has 32 KiB."""


@dataclass
class ContentServer:
    """images: name → digest of what it points to. asked: (digest, offset, size) of every read. shorter: bytes that each
    read lacks. frozen: nothing is answered while it is set."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    shorter: int = 0
    frozen: asyncio.Event | None = None

    def put(self, blob: bytes) -> str:
        digest = f"sha256:{sha256(blob).hexdigest()}"
        self.blobs[digest] = blob
        return digest

    def put_manifest(self, layers: Sequence[bytes]) -> str:
        described = [{"digest": self.put(layer), "size": len(layer)} for layer in layers]
        return self.put(json.dumps({"schemaVersion": 2, "layers": described}).encode())

    def put_image(self, name: str, *layers: bytes) -> str:
        self.images[name] = self.put_manifest(layers)
        return self.images[name]

    @asynccontextmanager
    async def at(self, socket: str) -> AsyncIterator[None]:
        server = Server([self])
        await server.start(path=socket)
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()

    def __mapping__(self) -> dict[str, Any]:
        one, many = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        images = "/containerd.services.images.v1.Images/List"
        return {
            images: Handler(self._list, one, pb.ListImagesRequest, pb.ListImagesResponse),
            f"{_CONTENT}/Info": Handler(self._info, one, pb.ContentInfoRequest, pb.ContentInfoResponse),
            f"{_CONTENT}/Read": Handler(self._read, many, pb.ReadContentRequest, pb.ReadContentResponse),
        }

    async def _list(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        found = [pb.Image(name=name, target=pb.Descriptor(digest=digest)) for name, digest in self.images.items()]
        await stream.send_message(pb.ListImagesResponse(images=found))

    async def _info(self, stream: Stream[Any, Any]) -> None:
        request = await _asked(stream)
        size = len(self._blob(request.digest))
        await stream.send_message(pb.ContentInfoResponse(info=pb.ContentInfo(digest=request.digest, size=size)))

    async def _read(self, stream: Stream[Any, Any]) -> None:
        request = await _asked(stream)
        self.asked.append((request.digest, request.offset, request.size))
        if self.frozen is not None:
            await self.frozen.wait()
        blob = self._blob(request.digest)
        left = blob[request.offset : request.offset + (request.size or len(blob))]
        left = left[: len(left) - self.shorter]
        for offset in range(0, len(left), MESSAGE):
            await stream.send_message(pb.ReadContentResponse(offset=offset, data=left[offset : offset + MESSAGE]))

    def _blob(self, digest: str) -> bytes:
        if digest not in self.blobs:
            raise GRPCError(Status.NOT_FOUND, f"content digest {digest}: not found")
        return self.blobs[digest]


async def _asked(stream: Stream[Any, Any]) -> Any:
    return await stream.recv_message()
