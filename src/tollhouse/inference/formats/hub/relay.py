"""A request that is asked in another dialect than it came in: the hub between two formats."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.base import Unreadable, without_said
from tollhouse.inference.formats.hub.events import (
    Event,
    Finished,
    ReasoningDelta,
    ReasoningProof,
    RefusalDelta,
    Reported,
    Started,
    TextDelta,
    ToolDelta,
    ToolStarted,
)
from tollhouse.inference.formats.hub.parts import Reasoning, Refusal, Text, ToolCall
from tollhouse.inference.formats.hub.prompt import for_replies, given_parameters
from tollhouse.inference.formats.tokens import estimated_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.base import ClientRequest
    from tollhouse.inference.formats.hub.parts import Block
    from tollhouse.inference.formats.hub.ports import Listener, Reader, Speaker, Writer
    from tollhouse.inference.formats.hub.prompt import Prompt
    from tollhouse.inference.formats.hub.reply import Reply
    from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class Translation:
    """Fulfils `formats.base.Relay`."""

    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(self, request: ClientRequest, listener: Listener, speaker: Speaker) -> None:
        """Take the request, its format and the dialect in which it is asked."""
        self._request = request
        self._listener = listener
        self._speaker = speaker

    @property
    def dialect(self) -> Dialect:
        """What is spoken with the provider."""
        return self._speaker.dialect

    @cached_property
    def _prompt(self) -> Prompt:
        return self._listener.parse()

    def told(self, *, parsed: bool = False) -> Translation:
        """Return this without what is said; unless it was parsed, it can write no reply yet."""
        prompt: Prompt | None = None
        if parsed or "_prompt" in self.__dict__:
            prompt = for_replies(self._prompt)
        listener = self._listener.told(prompt)
        told = Translation(without_said(self._request), listener, self._speaker)
        if prompt is not None:
            told._prompt = prompt
        return told

    def lost(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that an endpoint would not get."""
        given = given_parameters(self._prompt)
        said = self._speaker.says - self._speaker.refused(endpoint.profile)
        return given - said

    def ask(self, endpoint: Endpoint) -> bytes:
        """Return the body for a provider."""
        return self._speaker.ask(self._prompt, endpoint)

    def whole(self, body: bytes) -> TranslatedWhole:
        """Read a provider's whole reply."""
        reply = self._speaker.read(body)
        if self._hides_thoughts:
            reply = _without_thoughts(reply)
        return TranslatedWhole(reply, self._listener, self._request.size)

    def stream(self, identity: ReplyIdentity) -> TranslatedStream:
        """Begin to relay a stream."""
        return TranslatedStream(
            self._speaker.reader(),
            self._listener.writer(identity),
            self._request.size,
            hides_thoughts=self._hides_thoughts,
        )

    @property
    def _hides_thoughts(self) -> bool:
        thinking = self._prompt.thinking
        return thinking is not None and thinking.exclude


class TranslatedWhole:
    """Fulfils `formats.base.Whole`."""

    def __init__(self, reply: Reply, listener: Listener, request_size: int) -> None:
        """Take a reply that was read."""
        if not reply.choices:
            message = "the reply has no content"
            raise Unreadable(message)
        self._reply = reply
        self._listener = listener
        self.reported = reply.usage
        self.seen = reply.usage or _estimate(request_size, sum(map(_said, _blocks(reply))))
        self.finish_reason: str | None = reply.choices[0].finish_reason
        self.native_finish_reason = reply.choices[0].native_finish_reason
        self.upstream_id = reply.upstream_id

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body."""
        return self._listener.render(self._reply, identity, charge)


class TranslatedStream:
    """Fulfils `formats.base.Stream`."""

    def __init__(
        self, reader: Reader, writer: Writer, request_size: int, *, hides_thoughts: bool = False
    ) -> None:
        """Start before the first event.

        Args:
            reader: Reads the provider's stream.
            writer: Writes the client's.
            request_size: Bytes of the request, for an estimate of its tokens.
            hides_thoughts: Whether the client wants to see nothing of the model's reasoning.
        """
        self._hides_thoughts = hides_thoughts
        self._reader = reader
        self._writer = writer
        self._input = Usage(input_tokens=estimated_tokens(request_size))
        self._seen_bytes = 0
        self.reported: Usage | None = None
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None

    @property
    def done(self) -> bool:
        """Whether the provider's own end event came."""
        return self._reader.done

    @property
    def complete(self) -> bool:
        """Whether a clean end of the body is an end of the reply, too."""
        return self._reader.complete

    @property
    def seen(self) -> Usage:
        """The tokens that passed by; the output is estimated from its bytes."""
        counted = self._input
        return Usage(
            input_tokens=counted.input_tokens,
            cache_read_tokens=counted.cache_read_tokens,
            cache_write_tokens=counted.cache_write_tokens,
            cache_write_1h_tokens=counted.cache_write_1h_tokens,
            output_tokens=estimated_tokens(self._seen_bytes),
        )

    def feed(self, data: bytes) -> bytes:
        """Take the data of one of the provider's events; return what the client gets of it."""
        written: list[bytes] = []
        for event in self._reader.feed(data):
            self._note(event)
            if not (self._hides_thoughts and isinstance(event, _THOUGHTS)):
                written.append(self._writer.write(event))
        return b"".join(written)

    def end(self, charge: Charge) -> bytes:
        """Return the end of a stream that came to its end."""
        return self._writer.end(charge)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a stream that broke."""
        return self._writer.fail(error)

    def _note(self, event: Event) -> None:
        spoken = _SPOKEN.get(type(event))
        if spoken is not None:
            self._seen_bytes += len(getattr(event, spoken).encode("utf-8", "surrogatepass"))
        elif isinstance(event, Started):
            self.upstream_id = event.upstream_id
            self._input = event.usage or self._input
        elif isinstance(event, Reported):
            self.reported = event.usage
        elif isinstance(event, Finished):
            self.finish_reason = event.finish_reason
            self.native_finish_reason = event.native_finish_reason


_THOUGHTS: Final = (ReasoningDelta, ReasoningProof)
_SPOKEN: Final[Mapping[type[Event], str]] = {
    TextDelta: "text",
    RefusalDelta: "text",
    ReasoningDelta: "text",
    ToolStarted: "name",
    ToolDelta: "arguments",
}
"""The field of each event in which the model speaks."""


def _without_thoughts(reply: Reply) -> Reply:
    choices = tuple(
        replace(
            choice,
            blocks=tuple(block for block in choice.blocks if not isinstance(block, Reasoning)),
        )
        for choice in reply.choices
    )
    return replace(reply, choices=choices)


def _blocks(reply: Reply) -> list[Block]:
    return [block for choice in reply.choices for block in choice.blocks]


def _said(block: Block) -> int:
    if isinstance(block, (Text, Refusal, Reasoning)):
        return len(block.text.encode("utf-8", "surrogatepass"))
    if isinstance(block, ToolCall):
        return len(f"{block.name}{block.arguments}".encode("utf-8", "surrogatepass"))
    return 0


def _estimate(request_size: int, said: int) -> Usage:
    return Usage(input_tokens=estimated_tokens(request_size), output_tokens=estimated_tokens(said))
