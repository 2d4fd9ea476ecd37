"""A transport that answers every request with the same response, or the same error."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tollhouse.outbound.http.port import (
    ResponseReceiver,
    ResponseTooLarge,
    TakeResponse,
    UpstreamError,
    UpstreamRequest,
)


@dataclass
class FakeResponse:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    pieces: Sequence[bytes] = ()
    broken: UpstreamError | None = None
    at_once: bool = False
    """Whether all of it is read at once."""
    closed: int = 0

    def calls(
        self, receiver: ResponseReceiver, on_whole: TakeResponse | None
    ) -> Sequence[Callable[[], None]]:
        """Return the calls that give it to a receiver."""
        if self.at_once and on_whole is not None and self.broken is None:
            return [partial(on_whole, self.status, self.headers, b"".join(self.pieces))]
        head = partial(receiver.on_head, self.status, self.headers)
        end = receiver.on_end
        if self.broken is not None:
            end = partial(receiver.on_error, self.broken.anew())
        return [head, *(partial(receiver.on_body, piece) for piece in self.pieces), end]

    async def read(self, limit: int) -> bytes:
        body = b"".join([piece async for piece in self.chunks()])
        if len(body) > limit:
            raise ResponseTooLarge("too large", sent=True)
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.broken is not None:
            raise self.broken

    async def close(self) -> None:
        self.note_closed()

    def note_closed(self) -> None:
        self.closed += 1


class FakeExchange:
    """Makes one call of a receiver in each turn of the loop."""

    waits = False

    def __init__(self, calls: Sequence[Callable[[], None]], on_over: Callable[[], None]) -> None:
        self._calls = deque(calls)
        self._on_over = on_over
        self._paused = False
        self._cancelled = False
        self._turn = asyncio.get_running_loop().call_soon(self._call)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._turn.cancel()
        self._turn = asyncio.get_running_loop().call_soon(self._call)

    def cancel(self) -> None:
        self._cancelled = True
        self._calls.clear()
        self._over()

    def _over(self) -> None:
        on_over, self._on_over = self._on_over, lambda: None
        on_over()

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def _call(self) -> None:
        if self._calls and not self._paused:
            call = self._calls.popleft()
            if not self._calls:
                self._over()
            call()
            self._turn = asyncio.get_running_loop().call_soon(self._call)


@dataclass
class FakeUpstream:
    answer: FakeResponse | UpstreamError
    requests: list[UpstreamRequest] = field(default_factory=list)
    closed: bool = False

    def start(
        self,
        request: UpstreamRequest,
        receiver: ResponseReceiver,
        on_whole: TakeResponse | None = None,
    ) -> FakeExchange:
        self.requests.append(request)
        answer = self.answer
        if isinstance(answer, UpstreamError):
            return FakeExchange([partial(receiver.on_error, answer)], lambda: None)
        return FakeExchange(answer.calls(receiver, on_whole), answer.note_closed)

    async def send(self, request: UpstreamRequest) -> FakeResponse:
        self.requests.append(request)
        if isinstance(self.answer, UpstreamError):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True
