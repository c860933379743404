"""The mark of a copy of etcd into the cluster: on the control node where the new etcd begins, until all is done.

Contract: it is there before anything is made, and complete or absent. `opened` is the decision: from when it is on disk
the former etcd is never opened again, and until then the new one never is; so at no time do two of them take writes.
Whoever finds a mark that is not opened goes back (`returning`); with an opened one the copy can only be completed.

Danger: it has the password of the etcd that is copied. So that this is not lost with the node, the other control nodes
and the administrator's machine keep it as well, under another name, until all is done; what they have decides nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from autarky import places
from autarky.errors import Refused, UserError
from autarky.model.cluster import Node
from autarky.model.files import File
from autarky.parsing import parsed
from autarky.phases.context import Context, for_each
from autarky.ports import SHORT
from autarky.store import write_private

ONE_ETCD = "one etcd at a time"
FENCE = "nobody writes to an etcd that is being copied"
SAME_COMMAND = "autarky etcd migrate -f FILE --copy"


@dataclass(frozen=True, slots=True)
class Mark:
    """seat: the node where the new etcd begins. former: the id of the cluster that is copied, in hex; urls: where it
    is. plans: control node → which certificates its agent kept before, None where it kept none. paused: since when
    (Unix seconds) nobody is answered; 0 before."""

    id: str
    seat: str
    former: str
    urls: Sequence[str]
    plans: Mapping[str, str | None]
    password: str = field(repr=False)
    paused: float = 0.0
    opened: bool = False

    @property
    def work(self) -> str:
        """A directory on the seat."""
        return f"{places.ETCD_DATA}/copy.{self.id}"

    def token(self, cluster: str) -> str:
        """Of the new etcd: no two copies make the same one."""
        return f"{cluster}-{self.id}"

    def file(self, path: str = places.ETCD_COPY) -> File:
        return File(path, json.dumps(asdict(self), indent=1).encode() + b"\n", 0o600)


def new_mark(seat: str, former: int, urls: Sequence[str], plans: Mapping[str, str | None]) -> Mark:
    return Mark(secrets.token_hex(6), seat, f"{former:x}", tuple(urls), dict(plans), secrets.token_urlsafe(32))


def read_mark(content: bytes | None) -> Mark | None:
    """UserError where it cannot be understood."""
    if content is None:
        return None
    try:
        found = parsed(content)
        return Mark(
            id=str(found["id"]),
            seat=str(found["seat"]),
            former=str(found["former"]),
            urls=tuple(map(str, found["urls"])),
            plans={str(name): None if plan is None else str(plan) for name, plan in found["plans"].items()},
            password=str(found["password"]),
            paused=float(found["paused"]),
            opened=bool(found["opened"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{places.ETCD_COPY} cannot be read: {error}",
            fix="see which etcd the API servers use, and remove that file when no copy is under way",
        ) from error


async def find_mark(context: Context) -> Mark | None:
    """Of the copy that is under way, if any. A control node that does not answer is passed over."""
    for node in context.present(context.cluster.control_nodes):
        host = context.machines.host(node.name)
        mark = None if host is None else read_mark(await host.read(places.ETCD_COPY, most=SHORT))
        if mark is not None:
            return mark
    return None


async def write_mark(context: Context, mark: Mark) -> None:
    await context.host(seat_of(context, mark)).write_files([mark.file()])


async def keep_password(context: Context, mark: Mark) -> None:
    """Beside the seat, before anybody is refused."""
    others = [node for node in context.control_nodes if node.name != mark.seat]
    write_private(kept_here(context), mark.file().content)
    await for_each(others, lambda node: context.host(node).write_files([mark.file(places.ETCD_COPIED)]))


async def forget_password(context: Context, mark: Mark) -> None:
    """Only that of this copy."""

    async def forget(node: Node) -> None:
        host = context.host(node)
        found = await host.read(places.ETCD_COPIED, most=SHORT)
        if found is not None and mark.id.encode() in found:
            await host.remove([places.ETCD_COPIED])

    there = context.present(context.control_nodes)
    await for_each([node for node in there if node.name != mark.seat], forget)
    kept_here(context).unlink(missing_ok=True)


def kept_here(context: Context) -> Path:
    """Where the administrator's machine keeps it."""
    return context.directory / Path(places.ETCD_COPIED).name


def seat_of(context: Context, mark: Mark) -> Node:
    return context.cluster.node(mark.seat)


async def refuse_under_way(context: Context) -> None:
    """For whatever else would start, replace or roll an etcd."""
    mark = await find_mark(context)
    if mark is not None:
        raise under_way(mark)


def under_way(mark: Mark) -> Refused:
    return Refused(
        ONE_ETCD,
        f"etcd is being copied into the cluster, and {mark.seat} is where that was begun",
        f"complete it, or let it go back, with the same command as before: `{SAME_COMMAND}`",
    )
