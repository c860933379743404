"""One gRPC connection over a Unix socket, made when it is first needed and again after it was lost.

Contract: what goes wrong is an error of errors.py. No answer, an answer that is not gRPC, and a runtime that
is still starting are Unreachable; a service or method that the runtime does not have is UserError; any other
status is ApiError with gRPC's number and word.

Danger: a call whose connection broke is sent once more, for the connection may have died between two calls
(containerd was restarted). Use it only for calls that may be carried out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError, Message
from grpclib import exceptions as grpc
from grpclib.client import Channel
from grpclib.const import Cardinality, Status

from autarky.errors import ApiError, AutarkyError, Unreachable, UserError

_Asked = TypeVar("_Asked", bound=Message)
_Answered = TypeVar("_Answered", bound=Message)
_Result = TypeVar("_Result")
_NO_ANSWER = frozenset({Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class Method(Generic[_Asked, _Answered]):
    """A call of a service: `path` is "/package.Service/Method"."""

    path: str
    asked: type[_Asked]
    answered: type[_Answered]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Connection:
    """socket: the path of a Unix socket. metadata: what is sent with every request."""

    def __init__(self, socket: str, metadata: Mapping[str, str] | None = None) -> None:
        self._socket = socket
        self._metadata = dict(metadata or {})
        self._channel: Channel | None = None

    async def call(self, method: Method[_Asked, _Answered], request: _Asked, *, timeout: float) -> _Answered:
        """One request, one answer, both within `timeout` seconds."""
        with self._explained(method.name, timeout):
            async with asyncio.timeout(timeout):
                try:
                    return await _in_own_task(self._exchange(method, request))
                except grpc.StreamTerminatedError:
                    return await _in_own_task(self._exchange(method, request))

    async def stream(
        self, method: Method[_Asked, _Answered], request: _Asked, *, timeout: float
    ) -> AsyncGenerator[_Answered, None]:
        """The answers to one request. `timeout` seconds to send it; none between the answers.

        They are read as they come, however slow the caller is: containerd waits for slow readers of its
        events, and nothing would start on the node.
        """
        arrived: asyncio.Queue[_Answered | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(method, request, timeout, arrived))
        try:
            while (answer := await arrived.get()) is not None:
                yield answer
            with self._explained(method.name, timeout):
                await reader
        finally:
            await _ended(reader)

    async def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            await asyncio.sleep(0)  # the transport closes its socket in the next turn of the loop

    async def _exchange(self, method: Method[_Asked, _Answered], request: _Asked) -> _Answered:
        channel = self._connected_on_use()
        how = (Cardinality.UNARY_UNARY, method.asked, method.answered)
        async with channel.request(method.path, *how, metadata=self._metadata) as stream:
            await stream.send_message(request, end=True)
            answer = await stream.recv_message()
        if answer is None:
            raise grpc.ProtocolError("success without an answer")
        return answer

    async def _read(
        self,
        method: Method[_Asked, _Answered],
        request: _Asked,
        timeout: float,
        arrived: asyncio.Queue[_Answered | None],
    ) -> None:
        channel = self._connected_on_use()
        try:
            how = (Cardinality.UNARY_STREAM, method.asked, method.answered)
            async with channel.request(method.path, *how, metadata=self._metadata) as stream:
                async with asyncio.timeout(timeout):
                    await stream.send_message(request, end=True)
                async for answer in stream:
                    arrived.put_nowait(answer)
        finally:
            arrived.put_nowait(None)

    def _connected_on_use(self) -> Channel:
        """grpclib connects at the next request, and again when it has seen the connection lost."""
        if self._channel is None:
            self._channel = Channel(path=self._socket)
        return self._channel

    @contextmanager
    def _explained(self, name: str, timeout: float) -> Iterator[None]:
        runtime = f"the container runtime at {self._socket}"
        try:
            yield
        except grpc.GRPCError as error:
            raise _of_status(runtime, name, error) from error
        except TimeoutError as error:
            raise Unreachable(f"{runtime} did not answer {name} within {timeout:g} s") from error
        except OSError as error:
            raise Unreachable(f"{runtime} does not answer {name}: {error.strerror or error}") from error
        except grpc.StreamTerminatedError as error:
            raise Unreachable(f"{runtime} broke off {name}: {error}") from error
        except (grpc.ProtocolError, DecodeError) as error:
            raise Unreachable(
                f"the server at {self._socket} answered {name}, but does not speak CRI: {error}"
            ) from error


def _of_status(runtime: str, name: str, error: grpc.GRPCError) -> AutarkyError:
    message = error.message or "no message"
    if error.status in _NO_ANSWER:
        return Unreachable(f"{runtime} cannot answer {name} now: {message}")
    if error.status is Status.UNIMPLEMENTED:
        fix = "use containerd 2 with its CRI plugin enabled (disabled_plugins in its config.toml)"
        return UserError(f"{runtime} does not have {name} of CRI v1: {message}", fix=fix)
    return ApiError(error.status.value, error.status.name.title().replace("_", ""), f"{name}: {message}")


async def _in_own_task(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Its result. grpclib ends waiting calls by cancelling their task, and never takes that back: a TaskGroup
    of the same task would then take its children's errors for a cancellation from outside."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
        return task.result()
    finally:
        await _ended(task)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancelled if it still runs; its error is looked at, so that nobody logs it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
