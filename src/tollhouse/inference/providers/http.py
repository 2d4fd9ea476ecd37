"""A provider behind HTTP: the call, whole and streamed, the same for every dialect.

What differs between kinds of provider (credentials, dialects, the words of their errors) is given
when one is made; see `registry`.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal
from weakref import WeakKeyDictionary

import msgspec

from tollhouse.inference.formats.provider_errors import error_in_place_of_reply, read_error
from tollhouse.inference.formats.whole_replies import events_of
from tollhouse.inference.formats.wire import is_done, replace_invalid_text, try_decode
from tollhouse.inference.ports import CancelledUnsent
from tollhouse.inference.providers.failures import failure, unreadable
from tollhouse.inference.providers.retry_hints import retry_after
from tollhouse.inference.sse import EventParser, EventTooLarge, is_event_stream
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.eager_task import Waiter
from tollhouse.kernel.errors import Bug, ProviderFailure, ProviderTimeout, ProviderUnavailable
from tollhouse.kernel.failpoints import failpoint
from tollhouse.outbound.http.credentials import Credentials
from tollhouse.outbound.http.port import (
    ConnectFailed,
    ConnectTimeout,
    HeadTimeout,
    IdleTimeout,
    PoolTimeout,
    ProtocolViolation,
    ResponseTooLarge,
    TimeLimits,
    TotalTimeout,
    UpstreamError,
    UpstreamRequest,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from tollhouse.inference.ports import ProviderCall
    from tollhouse.inference.types import Dialect
    from tollhouse.kernel.clock import Clock
    from tollhouse.outbound.http.port import Upstream, UpstreamExchange
    from tollhouse.provider_keys.types import OwnKey

_FIRST_ERROR_STATUS = 300
_LARGEST_ERROR = 64 * 1024
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
"""Tells `zlib` to see by itself which of the two it is."""


_PASSED: Final = frozenset(
    ("anthropic-beta", "anthropic-version", "api-version", "openai-beta", "openai-version")
)
"""Headers of the settings that go along with a customer's key: those that choose a version. Any
other may say who the operator is."""


@dataclass(frozen=True, slots=True, repr=False)
class _Shown:
    """What a server is shown with each call, and takes out of what it answers."""

    whole_headers: tuple[tuple[str, str], ...]
    stream_headers: tuple[tuple[str, str], ...]
    credentials: Credentials

    @classmethod
    def of(cls, headers: Sequence[tuple[str, str]], own_key: str = "") -> _Shown:
        """Return it with headers of this server's own, one of which shows a customer's key."""
        common = (
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            ("user-agent", "tollhouse"),
            *headers,
        )
        return cls(
            (*common, ("accept", "application/json")),
            (*common, ("accept", "text/event-stream")),
            Credentials(headers, own_key),
        )


@dataclass(kw_only=True, slots=True, repr=False, eq=False)
class HttpProvider:
    """One configured server."""

    slug: str
    """What the settings call it."""
    name: str
    """What replies and errors call it."""
    base_url: str
    """Its address, up to and with the version segment."""
    dialects: Collection[Dialect]
    headers: Sequence[tuple[str, str]]
    """Credentials, and whatever else it wants."""
    upstream: Upstream
    limits: TimeLimits
    largest_reply: int
    """Bytes of a whole reply, and of one event."""
    on_disconnect: Literal["cancel", "drain"]
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    """The header that shows a key, and what stands before it there."""
    clock: Clock = field(default_factory=SystemClock)
    _shown: _Shown = field(init=False)
    _own: WeakKeyDictionary[OwnKey, _Shown] = field(init=False)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    """That of all its calls; asked for once, since it costs a system call."""

    def __post_init__(self) -> None:
        self.base_url = self.base_url.rstrip("/")
        self._shown = _Shown.of(self.headers)
        self._own = WeakKeyDictionary()

    async def open(self, call: ProviderCall) -> HttpReply:
        """Send a request; return once the provider accepted it."""
        url = call.dialect.builder.url(
            self.base_url, call.endpoint.model, stream=call.stream, query=call.query
        )
        shown = self._shown if call.own_key is None else self._shown_with(call.own_key)
        headers = shown.stream_headers if call.stream else shown.whole_headers
        if call.headers:
            headers = _with(headers, call.headers)
        request = UpstreamRequest("POST", url, headers, call.body, self.limits)
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        reply = HttpReply(self.name, self.largest_reply, shown.credentials, loop, call.dialect)
        reply.exchange = self.upstream.start(request, reply, reply.on_whole)
        try:
            while not reply.status:
                await reply.more()
            if reply.status >= _FIRST_ERROR_STATUS:
                await self._refuse(reply, call.own_key)
        except BaseException as error:
            is_unsent = isinstance(error, asyncio.CancelledError) and reply.exchange.waits
            reply.drop()
            if is_unsent:
                raise CancelledUnsent from None
            raise
        await failpoint("provider.answered")
        return reply

    async def check(self) -> None:
        """Ask for its list of models, which costs nothing and usually takes a good key."""
        request = UpstreamRequest(
            "GET", f"{self.base_url}/models", self._shown.whole_headers, b"", self.limits
        )
        loop = asyncio.get_running_loop()
        reply = HttpReply(self.name, self.largest_reply, self._shown.credentials, loop)
        reply.exchange = self.upstream.start(request, reply, reply.on_whole)
        try:
            while not reply.status:
                await reply.more()
            if reply.status >= _FIRST_ERROR_STATUS:
                await self._refuse(reply)
        finally:
            reply.drop()

    async def close(self) -> None:
        """Give up every connection."""
        await self.upstream.close()

    def _shown_with(self, own_key: OwnKey) -> _Shown:
        """Return what a call with an own key shows: nothing that is the operator's secret."""
        shown = self._own.get(own_key)
        if shown is None:
            name, before = self.key_header
            secret = own_key.secret
            if secret is None:
                raise Bug("an own key that cannot be used was asked with")
            kept = [each for each in self.headers if each[0].lower() in _PASSED]
            key = secret.reveal()
            shown = _Shown.of([*kept, (name, f"{before}{key}")], key)
            self._own[own_key] = shown
        return shown

    async def _refuse(self, reply: HttpReply, own_key: OwnKey | None = None) -> None:
        try:
            body = await reply.refusal()
        except ProviderFailure:
            # The status alone says enough; its text is a courtesy.
            body = b""
        said = read_error(body)
        raise failure(
            self.name,
            reply.status,
            code=said.code,
            message=said.message,
            retry_after=retry_after(reply.headers, body, self.clock.now(), reply.status),
            slug=self.slug,
            own_key=None if own_key is None else own_key.stored.label,
        )


def _with(
    headers: Sequence[tuple[str, str]], further: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return both; where both have a name, the further one holds."""
    names = {name for name, _ in further}
    return (*(each for each in headers if each[0].lower() not in names), *further)


class HttpReply:
    """A reply that the server has begun; takes what the connection reads."""

    exchange: UpstreamExchange
    """Set once it was started."""
    status = 0
    """That of the reply, once the head is there."""
    headers: Mapping[str, str]
    """Set with the status."""
    _size = 0
    _parser: EventParser | None = None
    _instead: bytearray | None = None
    """What has come of a stream in place of events, until it cannot be an error or a reply."""
    _has_events = False
    _take: Callable[[Sequence[bytes]], bool] | None = None
    _inflate: Callable[[bytes, int], bytes] | None = None
    _ended = False
    _error: Exception | None = None

    def __init__(
        self,
        name: str,
        largest: int,
        credentials: Credentials,
        loop: asyncio.AbstractEventLoop,
        dialect: Dialect | None = None,
    ) -> None:
        """Take a reply of at most so many bytes, or of events of that size."""
        self._name = name
        self._dialect = dialect
        self._largest = self._most = largest
        self.credentials = credentials
        self._news = Waiter(loop)
        self._pieces: list[bytes] = []

    # What the connection calls

    def on_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Take all of it at once: who waits goes on once, and not for the head first."""
        if len(body) > min(self._largest, _LARGEST_ERROR) or "content-encoding" in headers:
            # It may be more than is read: who waits says how much that is, once there is a head.
            self.on_head(status, headers)
            if body and self._error is None and not self._ended:
                self.on_body(body)
            if self._error is None and not self._ended:
                self.on_end()
            return
        self.status = status
        self.headers = headers
        self._ended = True
        if body:
            self._pieces.append(body)
            self._size = len(body)
        self._news.wake()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        if "content-encoding" in headers:
            self._decompress(headers["content-encoding"].strip().lower())
        self._news.wake()

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        if self._inflate is not None and not (piece := self._inflated(piece, self._inflate)):
            return
        if self._take is not None:
            self._give(piece, self._take)
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._most:
            self._give_up(ResponseTooLarge("too large", sent=True))
        elif self._parser is not None:
            self.exchange.pause()

    def on_end(self) -> None:
        """Take note of the end."""
        self._ended = True
        self._news.wake()

    def on_error(self, error: UpstreamError) -> None:
        """Take note of a failure."""
        self._fail(_failure_of(error, self._name))

    def _decompress(self, coding: str) -> None:
        # Nobody is asked for it, but caches in between send what they have.
        match coding:
            case "identity" | "":
                pass
            case "gzip" | "x-gzip" | "deflate":
                self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB).decompress
            case _:
                self._give_up(ProtocolViolation("compressed in another way", sent=True))

    def _inflated(self, piece: bytes, inflate: Callable[[bytes, int], bytes]) -> bytes:
        """Return what a piece of a compressed body is; nothing where that cannot be said."""
        try:
            inflated = inflate(piece, self._most + 1)
        except zlib.error:
            self._give_up(ProtocolViolation("badly compressed", sent=True))
            return b""
        if len(inflated) > self._most:
            self._give_up(ResponseTooLarge("too large", sent=True))
            return b""
        return inflated

    def _give_up(self, error: UpstreamError) -> None:
        self.exchange.cancel()
        self._fail(_failure_of(error, self._name))

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._news.wake()

    # What the caller awaits

    async def more(self) -> None:
        """Wait for what comes next, or for the failure that comes in its place."""
        if self._error is None:
            await self._news
        error, self._error = self._error, None
        if error is not None:
            # Kept no longer: it refers to all that it passes on its way, and so to us.
            self._ended = True
            raise error

    def whole(self) -> bytes | Awaitable[bytes]:
        """Return the body of a whole reply, or what to await until it has come."""
        if self._ended and self._error is None:
            return self.credentials.hidden_in_reply(b"".join(self._pieces))
        return self._rest()

    async def _rest(self) -> bytes:
        while not self._ended:
            await self.more()
        return self.credentials.hidden_in_reply(b"".join(self._pieces))

    async def refusal(self) -> bytes:
        """Return what an answer with the status of a failure says, if that is not too long."""
        self._most = _LARGEST_ERROR
        while not self._ended:
            await self.more()
        return self.credentials.hidden_in_error(b"".join(self._pieces))

    async def relay(self, take: Callable[[Sequence[bytes]], bool]) -> bool:
        """Give a function the data of the events as they arrive; see `OpenedReply`."""
        if self._parser is None:
            self._parser = EventParser(self._largest)
            self._instead = bytearray()
        self._take = take
        pieces, self._pieces, self._size = self._pieces, [], 0
        for number, piece in enumerate(pieces):
            if self._take is None:
                self._pieces = pieces[number:]
                break
            self._give(piece, take)
        if self._take is not None:
            self.exchange.resume()
        while self._take is not None and not self._ended:
            await self.more()
        if self._ended and self._error is None and not self._pieces:
            self._give_last(take)
        if self._error is not None:  # what came in one piece with the end of the body, too
            await self.more()
        self._take = None
        return self._ended and not self._pieces

    def close(self, patience: float = 0.0) -> Awaitable[None] | None:
        """End the exchange; a stream that is still under way is cancelled at the provider."""
        if patience and not self._ended and self._error is None:
            return self._end_soon(patience)
        self.drop()
        return None

    async def _end_soon(self, seconds: float) -> None:
        self._take = lambda _: True
        self.exchange.resume()
        limit = asyncio.get_running_loop().call_later(seconds, self._news.wake)
        try:
            await self._news
        finally:
            limit.cancel()
            self.drop()

    def drop(self) -> None:
        """Cancel what is under way, and let go of what was not taken."""
        self.exchange.cancel()
        # Who still has this object keeps nothing that came with it.
        self._take = self._parser = self._instead = None
        self._pieces.clear()

    def _give(self, piece: bytes, take: Callable[[Sequence[bytes]], bool]) -> None:
        if self._instead is not None:
            self._instead += piece
            seen = bytes(self._instead[:_LONGEST_SPACE])
            if self._has_events or is_event_stream(seen) or len(self._instead) > self._largest:
                self._instead = None
        try:
            if self._parser is None or not (events := self._parser.feed(piece)):
                return
        except EventTooLarge:
            self._fail(unreadable(self._name))
            self._take = None
        else:
            self._hand(events, take)

    def _hand(self, events: list[bytes], take: Callable[[Sequence[bytes]], bool]) -> None:
        hidden = self.credentials.hidden_in_reply
        try:
            shown = list(map(hidden, events))
            if not self._has_events and self._dialect is not None:
                self._has_events = True
                shown[:1] = events_of(self._dialect, shown[0]) or shown[:1]
            wants_more = take(shown)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._fail(error)
            self._take = None
        else:
            if not wants_more:
                self._take = None
                self._news.wake()

    def _give_last(self, take: Callable[[Sequence[bytes]], bool]) -> None:
        """Give what came after the last blank line, unless it was cut off."""
        hidden = self.credentials.hidden_in_reply
        if self._instead and not self._has_events:
            body = hidden(bytes(self._instead))
            if error := error_in_place_of_reply(body):
                self._fail(error)
            elif self._dialect is not None and (whole := events_of(self._dialect, body)):
                self._has_events = True
                self._hand(whole, take)
                return
        parser = self._parser
        if parser is None or not (events := parser.end()):
            return
        data = replace_invalid_text(hidden(events[-1]))
        if is_done(data) or try_decode(_json, data) is not None:
            self._hand(events, take)


_LONGEST_SPACE: Final = 1000
_json: Final = msgspec.json.Decoder(msgspec.Raw)
_TIMEOUTS = (ConnectTimeout, HeadTimeout, IdleTimeout, TotalTimeout)


def _failure_of(error: UpstreamError, name: str) -> ProviderFailure:
    """Return our error for an exchange that failed."""
    if isinstance(error, _TIMEOUTS):
        return ProviderTimeout(
            f"{name} did not answer in time.", provider_name=name, ambiguous=error.sent
        )
    if isinstance(error, PoolTimeout):
        text = f"Every connection to {name} is busy."
    elif isinstance(error, ConnectFailed):
        text = f"{name} cannot be reached."
    elif isinstance(error, (ProtocolViolation, ResponseTooLarge)):
        text = f"{name} sent an invalid response."
    else:
        text = f"{name} closed the connection."
    return ProviderUnavailable(text, provider_name=name, ambiguous=error.sent)
