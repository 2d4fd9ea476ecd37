"""Translates between a client's format and a provider's, by way of the canonical form.

    client's body ── ClientFormat.parse_request ─▶ CanonicalRequest
        ── ProviderFormat.render_request ──▶ provider's body
    provider's body ── ProviderFormat.parse_response ─▶ CanonicalResponse
        ── ClientFormat.render_response ──▶ client's body
    provider's stream ── StreamDecoder.feed ─▶ CanonicalEvent
        ── StreamEncoder.write ──▶ client's stream

Formats have no state and are pure: bytes and values in, bytes and values out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    FormatAdapter,
    MalformedResponse,
    StreamEnding,
    counted,
)
from tollhouse.inference.formats.canonical import (
    Block,
    CanonicalEvent,
    CanonicalRequest,
    CanonicalResponse,
    ChoiceFinished,
    NotCarriedError,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    given_parameters,
    place_of,
    without_turns,
)
from tollhouse.inference.formats.sequencing import ResponseBuilder
from tollhouse.inference.formats.tools import ToolNames
from tollhouse.inference.formats.wire import says_nothing, text_bytes
from tollhouse.inference.sse import EventParser, is_event_stream
from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity
from tollhouse.kernel.errors import Bug, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.tools import NameRule
    from tollhouse.kernel.errors import TollhouseError


class StreamDecoder(ABC):
    """Decodes one stream of a provider's dialect."""

    done = False
    """Whether the dialect's terminal event arrived; nothing follows it."""
    tool_names: Collection[str] = ()
    """The names of the request's tools."""

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self.done

    def feed(self, data: bytes) -> Sequence[CanonicalEvent]:
        """Consume the data of one provider event; return the canonical events.

        Raises `MalformedResponse` if it is not of the dialect or out of order, and `ErrorEvent`.
        """
        if self.done:
            return tuple(self._after_end(data))
        return () if says_nothing(data) else self._decode(data)

    @abstractmethod
    def _decode(self, data: bytes) -> Sequence[CanonicalEvent]: ...

    def _after_end(self, data: bytes) -> Iterable[CanonicalEvent]:
        """Return what an event after the terminal one tells: a usage, or nothing."""
        del data
        return ()


class StreamEncoder(StreamEnding):
    """Encodes one stream in a client's format; its output is always a legal sequence."""

    @abstractmethod
    def write(self, event: CanonicalEvent) -> bytes:
        """Return the bytes for the client; raises `MalformedResponse` for an event out of order."""


@dataclass(frozen=True, slots=True)
class ProviderFormat:
    """The provider side of a format."""

    dialect: Dialect
    supported_parameters: frozenset[str]
    """The parameters that the dialect has, by the names that `given_parameters` returns."""
    canonical_names: Mapping[str, str]
    """Those names, by the dialect's own where they differ."""
    render_request: Callable[[CanonicalRequest, Endpoint], bytes]
    """Returns the provider's request body; parameters that the dialect lacks are left out.

    Raises `NotCarriedError` for content that the dialect cannot carry (a file, audio).
    """
    parse_response: Callable[[bytes], CanonicalResponse]
    """Parses a complete response; raises `MalformedResponse` and `ErrorEvent`."""
    stream_decoder: Callable[[], StreamDecoder]
    tool_names: NameRule
    """What names of tools the dialect takes; others are changed, and told back."""

    def accepted_parameters(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider of the dialect accepts."""
        refused = profile.refused_in_chat if self.dialect is Dialect.CHAT else profile.refuses
        return self.supported_parameters - {
            self.canonical_names.get(name, name) for name in refused
        }


@dataclass(frozen=True, slots=True)
class ClientFormat:
    """The client side of a format."""

    parse_request: Callable[[Any, bytes], CanonicalRequest]
    """Reads a parsed request and its body; raises `Invalid` if a field is of the wrong type."""
    render_response: Callable[[TranslationSource, CanonicalResponse, ReplyIdentity, Charge], bytes]
    """Returns the body of a complete response."""
    stream_encoder: Callable[[TranslationSource, ReplyIdentity], StreamEncoder]


class TranslationSource:
    """A client's request and what is kept of its canonical form, for all dialects."""

    def __init__(self, request: ClientRequest, client_format: ClientFormat) -> None:
        self.request = request
        self.client_format = client_format
        self._prompt: CanonicalRequest | None = None

    @property
    def prompt(self) -> CanonicalRequest:
        """The request in canonical form, without its turns; it was read before."""
        if self._prompt is None:
            raise Bug("a request that was not read is translated")
        return self._prompt

    @property
    def is_read(self) -> bool:
        """Whether `read` has succeeded."""
        return self._prompt is not None

    def read(self, body: bytes) -> CanonicalRequest:
        """Return the request in canonical form; raises `Invalid` if it has none."""
        whole = self.client_format.parse_request(self.request, body)
        self._prompt = without_turns(whole)
        return whole


# Translation


class TranslatingAdapter(FormatAdapter):
    """Translates a request to the dialect of another format."""

    def __init__(self, source: TranslationSource, provider_format: ProviderFormat) -> None:
        self.dialect = provider_format.dialect
        self._source = source
        self._provider_format = provider_format
        self._names: ToolNames | None = None

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        if not self._source.is_read:
            raise Invalid("The request cannot be translated.")
        accepted = self._provider_format.accepted_parameters(endpoint.profile)
        return given_parameters(self._source.prompt) - accepted

    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body."""
        prompt = self._source.read(body)
        names = self._names = _names_of(prompt, self._provider_format.tool_names)
        if names.changed:
            prompt = _renamed(prompt, names)
        try:
            return self._provider_format.render_request(prompt, endpoint)
        except NotCarriedError as error:
            place = place_of(error.block, body, self._source.request.content_field)
            raise Invalid(f"{place}: {error.reason}") from None

    def parse_response(self, body: bytes) -> TranslatedResponse:
        """Parse a provider's complete response."""
        streamed = is_event_stream(body)
        reply = self._joined(body) if streamed else self._provider_format.parse_response(body)
        if self._tool_names.changed:
            reply = _with_own_names(reply, self._tool_names)
        if self._hides_reasoning:
            reply = _without_reasoning(reply)
        if not reply.choices:
            raise MalformedResponse("the reply has no content")
        reported, seen = counted(
            reply.usage, self._source.request.size, lambda: _output_size(reply)
        )
        first = reply.choices[0]
        said = bool(first.native_finish_reason or _output_size(reply))
        return TranslatedResponse(
            reported=reported,
            seen=seen,
            finish_reason=first.finish_reason if said else None,
            native_finish_reason=first.native_finish_reason,
            upstream_id=reply.upstream_id,
            source=self._source,
            reply=reply,
        )

    def _joined(self, body: bytes) -> CanonicalResponse:
        """Return what a stream says that came although none was asked for."""
        decoder, parser, builder = self._decoder(), EventParser(), ResponseBuilder()
        for data in (*parser.feed(body), *parser.end()):
            for event in decoder.feed(data):
                builder.add(event)
        if not decoder.complete:
            raise MalformedResponse("the stream in place of a reply is not complete")
        return builder.build()

    def _decoder(self) -> StreamDecoder:
        decoder = self._provider_format.stream_decoder()
        tools = self._source.prompt.tools
        decoder.tool_names = frozenset(self._tool_names.add(tool.name) for tool in tools)
        return decoder

    def open_stream(self, identity: ReplyIdentity) -> TranslatedStream:
        """Return the adapter of one streamed response."""
        return TranslatedStream(
            self._decoder(),
            self._source.client_format.stream_encoder(self._source, identity),
            self._source.request.size,
            hides_reasoning=self._hides_reasoning,
            names=self._tool_names if self._tool_names.changed else None,
        )

    @property
    def _tool_names(self) -> ToolNames:
        """What the provider calls the client's tools."""
        if self._names is None:
            self._names = _names_of(self._source.prompt, self._provider_format.tool_names)
        return self._names

    @property
    def _hides_reasoning(self) -> bool:
        thinking = self._source.prompt.thinking
        return thinking is not None and thinking.exclude


@dataclass(slots=True, repr=False)
class TranslatedResponse(AdaptedResponse):
    """A provider's complete response in canonical form."""

    source: TranslationSource
    reply: CanonicalResponse

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body."""
        render = self.source.client_format.render_response
        return render(self.source, self.reply, identity, charge)


class TranslatedStream(AdaptedStream):
    """A provider's stream, translated event by event."""

    def __init__(
        self,
        decoder: StreamDecoder,
        encoder: StreamEncoder,
        request_size: int,
        *,
        hides_reasoning: bool,
        names: ToolNames | None,
    ) -> None:
        super().__init__(request_size)
        self._hides_reasoning = hides_reasoning
        self._names = names
        """Where some differ from the client's."""
        self._decoder = decoder
        self._encoder = encoder

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._decoder.complete

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        written: list[bytes] = []
        for event in self._decoder.feed(data):
            shown = event
            if isinstance(event, TextDelta):
                self._seen_bytes += text_bytes(event.text)
            else:
                self._note(event)
                if self._names is not None and isinstance(event, ToolCallStarted):
                    shown = replace(event, name=_own_name(event.name, self._names))
            if not (self._hides_reasoning and _is_thought(event)):
                written.append(self._encoder.write(shown))
        self.done = self._decoder.done
        return b"".join(written)

    def _end(self, charge: Charge) -> bytes:
        return self._encoder.end(charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return self._encoder.fail(error)

    def _note(self, event: CanonicalEvent) -> None:
        spoken = _TEXT_FIELDS.get(type(event))
        if spoken is not None:
            self._seen_bytes += text_bytes(getattr(event, spoken))
        elif isinstance(event, StreamStarted):
            self.upstream_id = event.upstream_id
            self._begin(event.usage)
        elif isinstance(event, UsageReported):
            self.reported = event.usage
        elif isinstance(event, ChoiceFinished):
            self.finish_reason = event.finish_reason
            self.native_finish_reason = event.native_finish_reason
            self._settle()


_OF_CALLS: Final = "extra_content"


def _is_thought(part: CanonicalEvent | Block) -> bool:
    """Return whether a client that hides reasoning hides this; the proof of a call is none."""
    thoughts = (ReasoningBlock, ReasoningDelta, ReasoningSignature)
    return isinstance(part, thoughts) and part.field != _OF_CALLS


_TEXT_FIELDS: Final[Mapping[type[CanonicalEvent], str]] = {
    RefusalDelta: "text",
    ReasoningDelta: "text",
    ToolCallStarted: "name",
    ToolCallDelta: "arguments",
}
"""The field that holds an event's output text."""


def _names_of(prompt: CanonicalRequest, rule: NameRule) -> ToolNames:
    """Return the names of all tools of a request: of those that are there, then of former ones."""
    given = dict.fromkeys(tool.name for tool in prompt.tools)
    called = dict.fromkeys(
        block.name for turn in prompt.turns for block in turn.blocks if isinstance(block, ToolCall)
    )
    names = ToolNames.of(((name,) for name in given), rule)
    for name in called:
        names.add(name)
    return names


def _renamed(prompt: CanonicalRequest, names: ToolNames) -> CanonicalRequest:
    """Return a request with the provider's names of its tools."""
    choice = prompt.tool_choice
    if choice is not None and choice.name is not None:
        choice = replace(choice, name=names.add(choice.name))
    return replace(
        prompt,
        turns=tuple(
            replace(turn, blocks=tuple(_called(block, names.add) for block in turn.blocks))
            for turn in prompt.turns
        ),
        tools=tuple(replace(tool, name=names.add(tool.name)) for tool in prompt.tools),
        tool_choice=choice,
    )


def _with_own_names(reply: CanonicalResponse, names: ToolNames) -> CanonicalResponse:
    """Return a reply with the client's names of its tools."""

    def own(name: str) -> str:
        return _own_name(name, names)

    choices = tuple(
        replace(choice, blocks=tuple(_called(block, own) for block in choice.blocks))
        for choice in reply.choices
    )
    return replace(reply, choices=choices)


def _called(block: Block, rename: Callable[[str], str]) -> Block:
    return replace(block, name=rename(block.name)) if isinstance(block, ToolCall) else block


def _own_name(name: str, names: ToolNames) -> str:
    [own] = names.path(name)
    return own


def _without_reasoning(reply: CanonicalResponse) -> CanonicalResponse:
    choices = tuple(
        replace(
            choice,
            blocks=tuple(block for block in choice.blocks if not _is_thought(block)),
        )
        for choice in reply.choices
    )
    return replace(reply, choices=choices)


def _output_size(reply: CanonicalResponse) -> int:
    return sum(_block_size(block) for choice in reply.choices for block in choice.blocks)


def _block_size(block: Block) -> int:
    if isinstance(block, (TextBlock, RefusalBlock, ReasoningBlock)):
        return text_bytes(block.text)
    if isinstance(block, ToolCall):
        return text_bytes(block.name) + text_bytes(block.arguments)
    return 0
