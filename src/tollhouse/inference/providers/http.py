"""A provider behind HTTP: the call, whole and streamed, the same for every dialect.

What differs between kinds of provider (credentials, dialects, the words of their errors) is given
when one is made; see the folders beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from tollhouse.inference.providers.failures import failure
from tollhouse.inference.providers.transport import from_transport, unreadable, whole_seconds
from tollhouse.inference.sse import EventParser, EventTooLarge
from tollhouse.inference.types import Dialect
from tollhouse.inference.upstream.credentials import Credentials
from tollhouse.inference.upstream.errors import UpstreamError
from tollhouse.inference.upstream.port import TimeLimits, UpstreamRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from tollhouse.inference.formats.adapter import ErrorEvent
    from tollhouse.inference.providers.base import ProviderCall
    from tollhouse.inference.upstream.port import Upstream, UpstreamResponse

ReadError = Callable[["msgspec.Raw | bytes"], "ErrorEvent"]
"""Reads the `error` object of an error reply in the provider's words; never raises."""

_FIRST_ERROR_STATUS = 300
_LARGEST_ERROR = 64 * 1024
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class HttpProvider:
    """One configured server."""

    def __init__(  # noqa: PLR0913 - each is a setting of the provider
        self,
        *,
        slug: str,
        name: str,
        base_url: str,
        dialects: Collection[Dialect],
        headers: Sequence[tuple[str, str]],
        read_error: ReadError,
        upstream: Upstream,
        limits: TimeLimits,
        largest_reply: int,
        on_disconnect: Literal["cancel", "drain"],
    ) -> None:
        """Prepare what is the same for every request.

        Args:
            slug: What the settings call it.
            name: What replies and errors call it.
            base_url: Its address, up to and with the version segment.
            dialects: What it speaks.
            headers: Credentials, and whatever else it wants.
            read_error: Reads its errors.
            upstream: Reaches it.
            limits: How long each part of a call may take.
            largest_reply: Bytes of a whole reply, and of one event.
            on_disconnect: What becomes of a call whose client went away.
        """
        self._slug = slug
        self.name = name
        self.dialects = dialects
        self.on_disconnect: Literal["cancel", "drain"] = on_disconnect
        root = base_url.rstrip("/")
        self._urls = {each: f"{root}/{each}" for each in Dialect}
        self._models_url = f"{root}/models"
        self._read_error = read_error
        self._upstream = upstream
        self._limits = limits
        self._largest_reply = largest_reply
        self._credentials = Credentials(headers)
        common = (
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            ("user-agent", "tollhouse"),
            *headers,
        )
        self._whole_headers = (*common, ("accept", "application/json"))
        self._stream_headers = (*common, ("accept", "text/event-stream"))

    async def open(self, call: ProviderCall) -> HttpReply:
        """Send a request; return once the provider accepted it.

        Raises:
            ProviderFailure: It could not be reached, or answered with an error status.
        """
        url = self._urls[call.dialect]
        headers = self._stream_headers if call.stream else self._whole_headers
        request = UpstreamRequest(
            method="POST",
            url=f"{url}?{call.query}" if call.query else url,
            headers=_with(headers, call.headers) if call.headers else headers,
            body=call.body,
            limits=self._limits,
        )
        response = await self._send(request)
        return HttpReply(response, self.name, self._largest_reply, self._credentials)

    async def check(self) -> None:
        """Ask for its list of models, which costs nothing and usually takes a good key.

        Raises:
            ProviderFailure: It could not be reached, or answered with an error status.
        """
        request = UpstreamRequest("GET", self._models_url, self._whole_headers, b"", self._limits)
        await (await self._send(request)).close()

    async def close(self) -> None:
        """Give up every connection."""
        await self._upstream.close()

    async def _send(self, request: UpstreamRequest) -> UpstreamResponse:
        try:
            response = await self._upstream.send(request)
        except UpstreamError as error:
            raise from_transport(error, self.name) from error
        if response.status >= _FIRST_ERROR_STATUS:
            await self._refuse(response)
        return response

    async def _refuse(self, response: UpstreamResponse) -> None:
        try:
            body = await response.read(_LARGEST_ERROR)
        except UpstreamError:
            # The status alone says enough; its text is a courtesy.
            body = b""
        finally:
            await response.close()
        said = self._read_error(_error_object(self._credentials.hidden_in_error(body)))
        raise failure(
            self.name,
            response.status,
            code=said.code,
            message=said.message,
            retry_after=whole_seconds(response.headers.get("retry-after")),
            slug=self._slug,
        )


def _error_object(body: bytes) -> msgspec.Raw | bytes:
    try:
        return _fields.decode(body).get("error", b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b"{}"


def _with(
    headers: Sequence[tuple[str, str]], further: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return both; where both have a name, the further one holds."""
    names = {name for name, _ in further}
    return (*(each for each in headers if each[0].lower() not in names), *further)


class HttpReply:
    """A reply that the server has begun."""

    def __init__(
        self, response: UpstreamResponse, name: str, largest: int, credentials: Credentials
    ) -> None:
        """Take a response with a success status, whose body is unread."""
        self._response = response
        self._name = name
        self._largest = largest
        self._credentials = credentials

    async def whole(self) -> bytes:
        """Return the body of a whole reply.

        Raises:
            ProviderFailure: It did not arrive whole.
        """
        try:
            body = await self._response.read(self._largest)
        except UpstreamError as error:
            raise from_transport(error, self._name) from error
        return self._credentials.hidden_in_reply(body)

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of the events as they arrive.

        Raises:
            ProviderFailure: While iterating, where the stream broke.
        """
        parser = EventParser(self._largest)
        try:
            async for piece in self._response.chunks():
                if events := parser.feed(piece):
                    yield [self._credentials.hidden_in_reply(data) for data in events]
        except UpstreamError as error:
            raise from_transport(error, self._name) from error
        except EventTooLarge as error:
            raise unreadable(self._name) from error

    async def close(self) -> None:
        """End the exchange; a stream that is still under way is cancelled at the provider."""
        await self._response.close()
