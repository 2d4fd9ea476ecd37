"""A receiver that checks how it is called, and the callback interface presented as the coroutine.

`CallbackUpstream` shares no code with what `HttpUpstream.send` returns: tests of `send` that run on
it say the same of `start`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Final

from tollhouse.outbound.http.port import (
    ClientClosed,
    ResponseTooLarge,
    Upstream,
    UpstreamError,
    UpstreamExchange,
    UpstreamRequest,
)

_ORDER: Final = re.compile(r"(hb*e?|(hb*)?x)?")
_MANY_BYTES: Final = 200_000


class RecordingReceiver:
    """Writes down what it is called with."""

    def __init__(self) -> None:
        self.calls = ""
        """The first letters of the calls: head, body, end; an error is an x."""
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.pieces: list[bytes] = []
        self.error: UpstreamError | None = None
        self.news = asyncio.Event()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        self._called("h")

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self._called("b" if piece else "(an empty piece)")

    def on_end(self) -> None:
        self._called("e")

    def on_error(self, error: UpstreamError) -> None:
        assert error.__traceback__ is None, "it holds on to frames, and so to bodies"
        self.error = error
        self._called("x")

    def _called(self, letter: str) -> None:
        self.calls += letter
        self.news.set()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def over(self) -> bool:
        """Whether the response has ended; fails if the calls so far make no sense."""
        assert _ORDER.fullmatch(self.calls), self.calls
        return self.calls.endswith(("e", "x"))


class WholeReceiver(RecordingReceiver):
    """Takes a response at once, too, and writes down the calls that would have given it."""

    def __init__(self) -> None:
        super().__init__()
        self.wholes = 0

    def on_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.wholes += 1
        self.on_head(status, headers)
        if body:
            self.on_body(body)
        self.on_end()


class CallbackResponse(RecordingReceiver):
    """A response that is read piece by piece; it pauses the exchange while much is unread."""

    def __init__(self, upstream: Upstream, request: UpstreamRequest) -> None:
        super().__init__()
        self._stopped: str | None = None
        self._exchange: UpstreamExchange = upstream.start(request, self)
        assert not self.calls, "called before `start` has returned"

    def on_body(self, piece: bytes) -> None:
        super().on_body(piece)
        if sum(map(len, self.pieces)) > _MANY_BYTES:
            self._exchange.pause()

    async def head(self) -> None:
        while not self.status:
            await self._more()

    async def read(self, limit: int) -> bytes:
        body = b""
        async for piece in self.chunks():
            body += piece
            if len(body) > limit:
                await self.close()
                raise ResponseTooLarge("more than the reader takes", sent=True)
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        while self.pieces or self.calls[-1] != "e":
            if self.pieces:
                pieces, self.pieces = self.pieces, []
                self._exchange.resume()
                yield b"".join(pieces)
            else:
                await self._more()

    async def close(self) -> None:
        if not self.over:
            self._stopped = self.calls
            self._exchange.cancel()

    async def _more(self) -> None:
        if self._stopped is not None:
            assert self.calls == self._stopped, "called after it was cancelled"
            raise ClientClosed("the reader has stopped", sent=True)
        if self.over:
            assert self.error is not None
            raise self.error.anew()
        self.news.clear()
        try:
            await self.news.wait()
        except asyncio.CancelledError:
            await self.close()
            raise


class CallbackUpstream:
    """Fulfils `Upstream`: both interfaces are the callbacks of another one."""

    def __init__(self, upstream: Upstream) -> None:
        self.start = upstream.start
        self.close = upstream.close
        self._upstream = upstream

    async def send(self, request: UpstreamRequest) -> CallbackResponse:
        response = CallbackResponse(self._upstream, request)
        await response.head()
        return response
