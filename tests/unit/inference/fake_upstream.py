"""A transport that answers every request with the same response, or the same error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tollhouse.inference.upstream.errors import ResponseTooLarge, UpstreamError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from tollhouse.inference.upstream.port import UpstreamRequest


@dataclass
class FakeResponse:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    broken: UpstreamError | None = None
    closed: int = 0

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
        self.closed += 1


@dataclass
class FakeUpstream:
    answer: FakeResponse | UpstreamError
    requests: list[UpstreamRequest] = field(default_factory=list)
    closed: bool = False

    async def send(self, request: UpstreamRequest) -> FakeResponse:
        self.requests.append(request)
        if isinstance(self.answer, UpstreamError):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True
