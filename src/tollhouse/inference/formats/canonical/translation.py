"""Adapts a request to another format's dialect, by way of the canonical form."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse, without_content
from tollhouse.inference.formats.canonical.blocks import (
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.events import (
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    RefusalDelta,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.canonical.request import given_parameters, without_turns
from tollhouse.inference.formats.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.canonical.blocks import Block
    from tollhouse.inference.formats.canonical.ports import (
        ClientFormat,
        ProviderFormat,
        StreamDecoder,
        StreamEncoder,
    )
    from tollhouse.inference.formats.canonical.request import CanonicalRequest
    from tollhouse.inference.formats.canonical.response import CanonicalResponse
    from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class TranslatingAdapter:
    """Implements `formats.adapter.FormatAdapter`."""

    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(
        self, request: ClientRequest, client_format: ClientFormat, provider_format: ProviderFormat
    ) -> None:
        self._request = request
        self._client_format = client_format
        self._provider_format = provider_format

    @property
    def dialect(self) -> Dialect:
        """The dialect of the provider's request and response."""
        return self._provider_format.dialect

    @cached_property
    def _prompt(self) -> CanonicalRequest:
        return self._client_format.parse_request()

    def without_content(self, *, parsed: bool = False) -> TranslatingAdapter:
        """Return a copy without the conversation; unless parsed, it cannot render responses."""
        prompt: CanonicalRequest | None = None
        if parsed or "_prompt" in self.__dict__:
            prompt = without_turns(self._prompt)
        client_format = self._client_format.without_content(prompt)
        adapter = TranslatingAdapter(
            without_content(self._request), client_format, self._provider_format
        )
        if prompt is not None:
            adapter._prompt = prompt
        return adapter

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        given = given_parameters(self._prompt)
        supported = (
            self._provider_format.supported_parameters
            - self._provider_format.rejected_parameters(endpoint.profile)
        )
        return given - supported

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body."""
        return self._provider_format.render_request(self._prompt, endpoint)

    def parse_response(self, body: bytes) -> TranslatedResponse:
        """Parse a provider's complete response."""
        reply = self._provider_format.parse_response(body)
        if self._hides_reasoning:
            reply = _without_reasoning(reply)
        return TranslatedResponse(reply, self._client_format, self._request.size)

    def open_stream(self, identity: ReplyIdentity) -> TranslatedStream:
        """Return the adapter of one streamed response."""
        return TranslatedStream(
            self._provider_format.stream_decoder(),
            self._client_format.stream_encoder(identity),
            self._request.size,
            hides_reasoning=self._hides_reasoning,
        )

    @property
    def _hides_reasoning(self) -> bool:
        thinking = self._prompt.thinking
        return thinking is not None and thinking.exclude


class TranslatedResponse:
    """Implements `formats.adapter.AdaptedResponse`."""

    def __init__(
        self, reply: CanonicalResponse, client_format: ClientFormat, request_size: int
    ) -> None:
        if not reply.choices:
            message = "the reply has no content"
            raise MalformedResponse(message)
        self._reply = reply
        self._client_format = client_format
        self.reported = reply.usage
        self.seen = reply.usage or _estimate(request_size, sum(map(_output_size, _blocks(reply))))
        self.finish_reason: str | None = reply.choices[0].finish_reason
        self.native_finish_reason = reply.choices[0].native_finish_reason
        self.upstream_id = reply.upstream_id

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body."""
        return self._client_format.render_response(self._reply, identity, charge)


class TranslatedStream:
    """Implements `formats.adapter.AdaptedStream`."""

    def __init__(
        self,
        decoder: StreamDecoder,
        encoder: StreamEncoder,
        request_size: int,
        *,
        hides_reasoning: bool = False,
    ) -> None:
        """Start before the first event.

        Args:
            decoder: Of the provider's stream.
            encoder: Of the client's stream.
            request_size: Bytes of the request, for an estimate of its tokens.
            hides_reasoning: Whether reasoning is left out of the client's stream.
        """
        self._hides_reasoning = hides_reasoning
        self._decoder = decoder
        self._encoder = encoder
        self._input = Usage(input_tokens=estimate_tokens(request_size))
        self._seen_bytes = 0
        self.reported: Usage | None = None
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None

    @property
    def done(self) -> bool:
        """Whether the provider's terminal event arrived."""
        return self._decoder.done

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._decoder.complete

    @property
    def seen(self) -> Usage:
        """The tokens seen so far; the output is estimated from its bytes."""
        counted = self._input
        return Usage(
            input_tokens=counted.input_tokens,
            cache_read_tokens=counted.cache_read_tokens,
            cache_write_tokens=counted.cache_write_tokens,
            cache_write_1h_tokens=counted.cache_write_1h_tokens,
            output_tokens=estimate_tokens(self._seen_bytes),
        )

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        written: list[bytes] = []
        for event in self._decoder.feed(data):
            self._note(event)
            if not (self._hides_reasoning and isinstance(event, _REASONING_EVENTS)):
                written.append(self._encoder.write(event))
        return b"".join(written)

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream."""
        return self._encoder.end(charge)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        return self._encoder.fail(error)

    def _note(self, event: CanonicalEvent) -> None:
        spoken = _TEXT_FIELDS.get(type(event))
        if spoken is not None:
            self._seen_bytes += len(getattr(event, spoken).encode("utf-8", "surrogatepass"))
        elif isinstance(event, StreamStarted):
            self.upstream_id = event.upstream_id
            self._input = event.usage or self._input
        elif isinstance(event, UsageReported):
            self.reported = event.usage
        elif isinstance(event, ChoiceFinished):
            self.finish_reason = event.finish_reason
            self.native_finish_reason = event.native_finish_reason


_REASONING_EVENTS: Final = (ReasoningDelta, ReasoningSignature)
_TEXT_FIELDS: Final[Mapping[type[CanonicalEvent], str]] = {
    TextDelta: "text",
    RefusalDelta: "text",
    ReasoningDelta: "text",
    ToolCallStarted: "name",
    ToolCallDelta: "arguments",
}
"""The field that holds an event's output text."""


def _without_reasoning(reply: CanonicalResponse) -> CanonicalResponse:
    choices = tuple(
        replace(
            choice,
            blocks=tuple(block for block in choice.blocks if not isinstance(block, ReasoningBlock)),
        )
        for choice in reply.choices
    )
    return replace(reply, choices=choices)


def _blocks(reply: CanonicalResponse) -> list[Block]:
    return [block for choice in reply.choices for block in choice.blocks]


def _output_size(block: Block) -> int:
    if isinstance(block, (TextBlock, RefusalBlock, ReasoningBlock)):
        return len(block.text.encode("utf-8", "surrogatepass"))
    if isinstance(block, ToolCall):
        return len(f"{block.name}{block.arguments}".encode("utf-8", "surrogatepass"))
    return 0


def _estimate(request_size: int, output_size: int) -> Usage:
    return Usage(
        input_tokens=estimate_tokens(request_size), output_tokens=estimate_tokens(output_size)
    )
