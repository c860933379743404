"""Files of images that containerd has, through its own API: implements ports.ImageFiles.

The name of an image leads to a manifest, the manifest to the layers (`cri.layers`): all of them blobs in containerd's
content store, read in windows, since Connection.stream keeps everything in memory that has come. A manifest is verified
by its digest before it is used, a layer while it is read to its end.

tarfile and gzip pull what they read, so they work in a thread, which asks the event loop for each window.

Danger: content that nobody holds any more may vanish at any moment (the image was removed); then the next call says so.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import platform
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

from autarky import places
from autarky.cri import containerd_pb2 as pb
from autarky.cri.connection import Connection, Method
from autarky.cri.images import CONTENT_INFO, LIST, NAMESPACE
from autarky.cri.layers import ABSENT, WINDOW, Blob, Damaged, Place, Take, copy, look, path_in
from autarky.cri.references import stored_name
from autarky.errors import ApiError, Unreachable, UserError
from autarky.model import patience
from autarky.parsing import parsed
from autarky.ports import FoundFile, FoundImage
from autarky.threads import to_the_end

LARGEST_MANIFEST: Final = 4 * 2**20
"""As for registries."""
MOST_LAYERS: Final = 127
_READ = Method("/containerd.services.content.v1.Content/Read", pb.ReadContentRequest, pb.ReadContentResponse)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}
_BRING = "bring it to this node with `autarky payload push VERSION`"
_BUILD_AGAIN = "build the image again, with plain files in layers that are not compressed, or with gzip"
_Result = TypeVar("_Result")


class ImageFileReader:
    """socket: the path of containerd's Unix socket. timeout: seconds for each call, or window. Use it in one event
    loop."""

    def __init__(
        self, socket: str = places.CONTAINERD_SOCKET, *, timeout: float = patience.RUNTIME, window: int = WINDOW
    ) -> None:
        self._connection = Connection(socket, {"containerd-namespace": NAMESPACE})
        self._timeout = timeout
        self._window = window

    async def close(self) -> None:
        await self._connection.close()

    async def find(self, reference: str, paths: Collection[str]) -> FoundImage:
        digest, layers = await self._layers(reference)
        known: dict[str, FoundFile | str] = {}
        for layer in reversed(layers):  # the last one hides what those below it have
            left = {path_in(path) for path in paths} - known.keys()
            if not left:
                break
            seen = await self._in_layer(reference, layer, partial(look, wanted=left))
            known |= {path: _found(place, layer) for path, place in seen.items()}
        files = {path: known.get(path_in(path), ABSENT) for path in paths}
        if wrong := [f"{path} {why}" for path, why in files.items() if isinstance(why, str)]:
            raise UserError(f"the image {reference} cannot be used: {', '.join(wrong)}", fix=_BUILD_AGAIN)
        return FoundImage(reference, digest, {p: file for p, file in files.items() if isinstance(file, FoundFile)})

    async def read(self, found: FoundImage, into: Mapping[str, Take]) -> None:
        for layer in dict.fromkeys(found.files[path].layer for path in into):
            files = [(_place(file), into[p]) for p, file in found.files.items() if p in into and file.layer == layer]
            await self._in_layer(found.reference, layer, partial(copy, digest=layer, files=files))

    # --- from a name to layers ---

    async def _layers(self, reference: str) -> tuple[str, list[str]]:
        """The digest of the manifest, and those of the layers, the lowest first."""
        name = stored_name(reference)
        images = (await self._connection.call(LIST, pb.ListImagesRequest(), timeout=self._timeout)).images
        digest = next((image.target.digest for image in images if image.name == name), None)
        if digest is None:
            raise UserError(f"the image {reference} is not on this node", fix=_BRING)
        manifest = await self._manifest(reference, digest)
        if "manifests" in manifest:
            digest = _of_this_platform(manifest)
            manifest = {} if digest is None else await self._manifest(reference, digest)
        layers = [layer.get("digest") for layer in _objects(manifest.get("layers"))]
        if digest is None or not 0 < len(layers) <= MOST_LAYERS or not all(map(_is_digest, layers)):
            raise UserError(f"the image {reference} has no manifest with layers for this machine", fix=_BUILD_AGAIN)
        return digest, [str(layer) for layer in layers]

    async def _manifest(self, reference: str, digest: str) -> dict[str, Any]:
        size = await self._size(reference, digest)
        if size > LARGEST_MANIFEST:
            raise UserError(f"the manifest of the image {reference} has {size} bytes", fix=_BUILD_AGAIN)
        content = b""
        while len(content) < size:
            content += await self._part(digest, len(content), min(self._window, size - len(content)))
        try:
            found = parsed(content) if f"sha256:{sha256(content).hexdigest()}" == digest else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UserError(f"the manifest {digest[:19]} of the image {reference} is damaged", fix=_BRING)
        return found

    # --- content ---

    async def _size(self, reference: str, digest: str) -> int:
        try:
            found = await self._connection.call(
                CONTENT_INFO, pb.ContentInfoRequest(digest=digest), timeout=self._timeout
            )
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            raise _discarded(reference, digest) from error
        return int(found.info.size)

    async def _part(self, digest: str, offset: int, size: int) -> bytes:
        request = pb.ReadContentRequest(digest=digest, offset=offset, size=size)
        pieces = []
        try:
            async with (
                asyncio.timeout(self._timeout),
                aclosing(self._connection.stream(_READ, request, timeout=self._timeout)) as answers,
            ):
                async for answer in answers:
                    pieces.append(answer.data)  # noqa: PERF401 # the stream is closed however this ends
        except TimeoutError as error:
            raise Unreachable(f"containerd did not give {size} bytes within {self._timeout:g} s") from error
        part = b"".join(pieces)
        if len(part) != size:
            raise Unreachable(f"containerd gave {len(part)} bytes of {size}")
        return part

    async def _in_layer(self, reference: str, layer: str, work: Callable[[Blob], _Result]) -> _Result:
        """What `work` returns, with its errors as those of the image. It runs in a thread, and has ended on return."""
        size, loop = await self._size(reference, layer), asyncio.get_running_loop()
        asked: list[concurrent.futures.Future[bytes]] = []
        is_left = False

        def fetch(offset: int, size: int) -> bytes:
            asked[:] = [asyncio.run_coroutine_threadsafe(self._part(layer, offset, size), loop)]
            if is_left:
                asked[0].cancel()
            return asked[0].result()

        def leave() -> None:
            nonlocal is_left
            is_left = True
            for one in asked:
                one.cancel()

        try:
            return await to_the_end(lambda: work(Blob(fetch, size, self._window)), leave)
        except Damaged as error:
            short = layer[:19]
            raise UserError(f"the layer {short} of the image {reference} {error}", fix=_BUILD_AGAIN) from error
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            raise _discarded(reference, layer) from error


def _found(place: Place | str, layer: str) -> FoundFile | str:
    return place if isinstance(place, str) else FoundFile(place.size, layer, place.offset)


def _place(file: FoundFile) -> Place:
    return Place(file.offset, file.size)


def _discarded(reference: str, digest: str) -> UserError:
    fix = "let containerd keep layers (discard_unpacked_layers = false in its configuration), and then "
    return UserError(f"containerd has not kept {digest[:19]} of the image {reference}", fix=fix + _BRING)


def _of_this_platform(index: Mapping[str, Any]) -> str | None:
    """The digest of its manifest for this machine; one that says nothing of platforms is taken where it is alone."""
    manifests = _objects(index["manifests"])
    platforms = [(one.get("digest"), one.get("platform")) for one in manifests]
    ours = {"os": "linux", "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine())}
    fitting = [d for d, p in platforms if isinstance(p, dict) and ours.items() <= p.items()]
    if not fitting and len(platforms) == 1 and platforms[0][1] is None:
        fitting = [platforms[0][0]]
    return str(fitting[0]) if fitting and _is_digest(fitting[0]) else None


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _is_digest(found: object) -> bool:
    return isinstance(found, str) and _DIGEST.fullmatch(found) is not None
