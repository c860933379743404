"""Images that must stay on the node, through containerd's own API: implements ports.KeptImages.

Two things keep an image, each against a different danger:
- the label io.cri-containerd.pinned=pinned on its name: CRI shows it as pinned, and the kubelet's garbage
  collection passes it over (CRI has no call for that);
- a lease on its content, one for each name: when a user removes the name (`crictl rmi`, `ctr images rm`),
  containerd collects nothing of it, and the name is put back in a moment, with no registry.

The lease's labels say what the name pointed to, and whether the pin is ours to take away. That is the only
record: nothing is kept on the disk beside it.

Contract: `keep` brings the node to what is asked, so it may be interrupted anywhere and repeated: the lease is made
before the pin and removed after it. Danger: an image without a lease is never touched here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeVar

from google.protobuf.message import Message

from autarky import places
from autarky.cri import containerd_pb2 as pb
from autarky.cri.connection import Connection, Method
from autarky.cri.references import stored_name
from autarky.errors import ApiError
from autarky.model import patience

CALL_TIMEOUT: Final = patience.RUNTIME
"""Seconds for each call."""
NAMESPACE: Final = "k8s.io"
"""Where containerd keeps what comes through CRI."""
PINNED: Final = "io.cri-containerd.pinned"
_PIN: Final = {PINNED: "pinned"}
_LEASE = "autarky-image-"
_NAME, _DIGEST, _TYPE, _SIZE, _OUR_PIN = (
    f"autarky.dev/{key}" for key in ("image", "digest", "media-type", "size", "pinned-here")
)
_Asked = TypeVar("_Asked", bound=Message)
_Answered = TypeVar("_Answered", bound=Message)
_IMAGES = "/containerd.services.images.v1.Images"
_LEASES = "/containerd.services.leases.v1.Leases"
LIST = Method(f"{_IMAGES}/List", pb.ListImagesRequest, pb.ListImagesResponse)
_CREATE = Method(f"{_IMAGES}/Create", pb.CreateImageRequest, pb.CreateImageResponse)
_UPDATE = Method(f"{_IMAGES}/Update", pb.UpdateImageRequest, pb.UpdateImageResponse)
CONTENT_INFO = Method("/containerd.services.content.v1.Content/Info", pb.ContentInfoRequest, pb.ContentInfoResponse)
_LIST_LEASES = Method(f"{_LEASES}/List", pb.ListLeasesRequest, pb.ListLeasesResponse)
_CREATE_LEASE = Method(f"{_LEASES}/Create", pb.CreateLeaseRequest, pb.CreateLeaseResponse)
_DELETE_LEASE = Method(f"{_LEASES}/Delete", pb.DeleteLeaseRequest, pb.Empty)
_ADD_RESOURCE = Method(f"{_LEASES}/AddResource", pb.AddResourceRequest, pb.Empty)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a name points to."""

    digest: str
    media_type: str
    size: int


class ImageKeeper:
    """socket: the path of containerd's Unix socket. Use it in one event loop."""

    def __init__(self, socket: str = places.CONTAINERD_SOCKET, *, timeout: float = CALL_TIMEOUT) -> None:
        self._connection = Connection(socket, {"containerd-namespace": NAMESPACE})
        self._timeout = timeout
        self._held: set[tuple[str, str]] = set()
        """(lease, digest) of the leases that are known to hold their content."""

    async def close(self) -> None:
        await self._connection.close()

    async def keep(self, references: Collection[str]) -> frozenset[str]:
        images = {image.name: image for image in (await self._call(LIST, pb.ListImagesRequest())).images}
        leases = {lease.id: dict(lease.labels) for lease in await self._leases()}
        wanted = {_lease_of(stored_name(reference)) for reference in references}
        for lease in sorted(leases.keys() - wanted):
            await self._release(lease, leases[lease], images)
        return frozenset([r for r in references if await self._keep(stored_name(r), images, leases)])

    async def _leases(self) -> list[pb.Lease]:
        found = await self._call(_LIST_LEASES, pb.ListLeasesRequest())
        return [lease for lease in found.leases if lease.id.startswith(_LEASE)]

    async def _keep(self, name: str, images: Mapping[str, pb.Image], leases: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the node has it; it is held and pinned then."""
        lease = _lease_of(name)
        held = leases.get(lease)
        image = images.get(name)
        if image is None:
            return held is not None and await self._put_back(name, _target_of_lease(held))
        target = _target_of_image(image)
        is_pinned = image.labels.get(PINNED) == _PIN[PINNED]
        if held is not None and _target_of_lease(held) != target:  # the name has moved on
            await self._delete_lease(lease)
            is_pinned, held = is_pinned and held.get(_OUR_PIN) != "true", None
        if held is None:
            await self._create_lease(lease, name, target, our_pin=not is_pinned)
        await self._hold(lease, target)
        if image.labels.get(PINNED) != _PIN[PINNED]:
            await self._set_pin(image, _PIN[PINNED])
        return True

    async def _release(self, lease: str, labels: Mapping[str, str], images: Mapping[str, pb.Image]) -> None:
        name = labels.get(_NAME, "")
        if labels.get(_OUR_PIN) == "true" and name in images:
            await self._set_pin(images[name], "")
        await self._delete_lease(lease)

    # --- names ---

    async def _put_back(self, name: str, target: _Target) -> bool:
        """False when even the content is gone: we were killed between the lease and its content, and then the
        name was removed."""
        await self._hold(_lease_of(name), target)
        try:
            await self._call(CONTENT_INFO, pb.ContentInfoRequest(digest=target.digest))
        except ApiError as error:
            if error.reason == "NotFound":
                return False
            raise
        descriptor = pb.Descriptor(media_type=target.media_type, digest=target.digest, size=target.size)
        await self._create(_CREATE, pb.CreateImageRequest(image=pb.Image(name=name, labels=_PIN, target=descriptor)))
        return True

    async def _set_pin(self, image: pb.Image, value: str) -> None:
        """One label and nothing else; an empty value takes it away. An image that is gone has no pin.

        Danger: containerd 2.3.7 dies of a request without a target, though the mask says that it is not used.
        """
        changed = pb.Image(name=image.name, labels={PINNED: value}, target=image.target)
        try:
            mask = pb.FieldMask(paths=[f"labels.{PINNED}"])
            await self._call(_UPDATE, pb.UpdateImageRequest(image=changed, update_mask=mask))
        except ApiError as error:
            if error.reason != "NotFound":
                raise

    # --- leases ---

    async def _create_lease(self, lease: str, name: str, target: _Target, *, our_pin: bool) -> None:
        labels = {
            _NAME: name,
            _DIGEST: target.digest,
            _TYPE: target.media_type,
            _SIZE: str(target.size),
            _OUR_PIN: "true" if our_pin else "false",
        }
        await self._create(_CREATE_LEASE, pb.CreateLeaseRequest(id=lease, labels=labels))

    async def _hold(self, lease: str, target: _Target) -> None:
        """The manifest; containerd follows from there to its layers and their unpacked snapshots."""
        if (lease, target.digest) not in self._held:
            resource = pb.Resource(id=target.digest, type="content")
            await self._call(_ADD_RESOURCE, pb.AddResourceRequest(id=lease, resource=resource))
            self._held.add((lease, target.digest))

    async def _delete_lease(self, lease: str) -> None:
        self._held = {held for held in self._held if held[0] != lease}
        try:
            await self._call(_DELETE_LEASE, pb.DeleteLeaseRequest(id=lease))
        except ApiError as error:
            if error.reason != "NotFound":
                raise

    async def _create(self, method: Method[_Asked, _Answered], request: _Asked) -> None:
        """ "Already exists" is a success: a request whose answer was lost is sent twice."""
        try:
            await self._call(method, request)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _call(self, method: Method[_Asked, _Answered], request: _Asked) -> _Answered:
        return await self._connection.call(method, request, timeout=self._timeout)


def _lease_of(name: str) -> str:
    return _LEASE + sha256(name.encode()).hexdigest()[:24]


def _target_of_image(image: pb.Image) -> _Target:
    return _Target(image.target.digest, image.target.media_type, image.target.size)


def _target_of_lease(labels: Mapping[str, str]) -> _Target:
    return _Target(labels.get(_DIGEST, ""), labels.get(_TYPE, ""), int(labels.get(_SIZE, "0")))
