"""A provider that speaks OpenAI's chat completions: the call, whole and streamed.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tollhouse.inference.providers.openai_compatible.errors import (
    from_status,
    from_transport,
    unreadable,
)
from tollhouse.inference.sse import EventParser, EventTooLarge
from tollhouse.inference.types import Dialect
from tollhouse.inference.upstream.errors import UpstreamError
from tollhouse.inference.upstream.port import TimeLimits, UpstreamRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from tollhouse.inference.providers.base import ProviderCall
    from tollhouse.inference.upstream.port import Upstream, UpstreamResponse
    from tollhouse.kernel.secret import Secret

_FIRST_ERROR_STATUS = 300
_LARGEST_ERROR = 64 * 1024


class OpenAICompatibleProvider:
    """One configured server."""

    dialects: Collection[Dialect] = frozenset({Dialect.CHAT, Dialect.EMBEDDINGS})

    def __init__(  # noqa: PLR0913 - each is a setting of the provider
        self,
        *,
        name: str,
        base_url: str,
        api_key: Secret | None,
        extra_headers: Sequence[tuple[str, str]],
        upstream: Upstream,
        limits: TimeLimits,
        largest_reply: int,
        on_disconnect: Literal["cancel", "drain"],
    ) -> None:
        """Prepare what is the same for every request."""
        self.name = name
        self.on_disconnect: Literal["cancel", "drain"] = on_disconnect
        self._urls = {each: f"{base_url.rstrip('/')}/{each}" for each in self.dialects}
        self._upstream = upstream
        self._limits = limits
        self._largest_reply = largest_reply
        credentials = () if api_key is None else (("authorization", f"Bearer {api_key.reveal()}"),)
        headers = (
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
            ("user-agent", "tollhouse"),
            *credentials,
            *extra_headers,
        )
        self._whole_headers = (*headers, ("accept", "application/json"))
        self._stream_headers = (*headers, ("accept", "text/event-stream"))

    async def open(self, call: ProviderCall) -> OpenAICompatibleReply:
        """Send a request; return once the provider accepted it.

        Raises:
            ProviderFailure: It could not be reached, or answered with an error status.
        """
        request = UpstreamRequest(
            method="POST",
            url=self._urls[call.dialect],
            headers=self._stream_headers if call.stream else self._whole_headers,
            body=call.body,
            limits=self._limits,
        )
        try:
            response = await self._upstream.send(request)
        except UpstreamError as error:
            raise from_transport(error, self.name) from error
        if response.status >= _FIRST_ERROR_STATUS:
            await self._refuse(response)
        return OpenAICompatibleReply(response, self.name, self._largest_reply)

    async def close(self) -> None:
        """Give up every connection."""
        await self._upstream.close()

    async def _refuse(self, response: UpstreamResponse) -> None:
        try:
            body = await response.read(_LARGEST_ERROR)
        except UpstreamError:
            # The status alone says enough; its text is a courtesy.
            body = b""
        finally:
            await response.close()
        raise from_status(response.status, response.headers, body, self.name)


class OpenAICompatibleReply:
    """A reply that the server has begun."""

    def __init__(self, response: UpstreamResponse, name: str, largest: int) -> None:
        """Take a response with a success status, whose body is unread."""
        self._response = response
        self._name = name
        self._largest = largest

    async def whole(self) -> bytes:
        """Return the body of a whole reply.

        Raises:
            ProviderFailure: It did not arrive whole.
        """
        try:
            return await self._response.read(self._largest)
        except UpstreamError as error:
            raise from_transport(error, self._name) from error

    async def events(self) -> AsyncIterator[Sequence[bytes]]:
        """Return the data of the events as they arrive.

        Raises:
            ProviderFailure: While iterating, where the stream broke.
        """
        parser = EventParser(self._largest)
        try:
            async for piece in self._response.chunks():
                if events := parser.feed(piece):
                    yield events
        except UpstreamError as error:
            raise from_transport(error, self._name) from error
        except EventTooLarge as error:
            raise unreadable(self._name) from error

    async def close(self) -> None:
        """End the exchange; a stream that is still under way is cancelled at the provider."""
        await self._response.close()
