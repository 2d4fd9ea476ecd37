"""What a provider's chat messages and chunks say, as far as passing them through needs it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from tollhouse.inference.formats.chat_calls import Called
from tollhouse.inference.formats.proofs import IN_DETAILS
from tollhouse.inference.formats.wire import (
    NULL,
    EventTemplate,
    Fields,
    fields_decoder,
    has_line_breaks,
    text_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class ChatDelta(Called):
    """A chunk's `delta` or a complete `message`, as far as token counts need it."""

    content: str | list[Raw] | None = None
    """Some providers send a list of parts."""
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    reasoning_details: Raw = NULL
    thinking_blocks: Raw = NULL
    extra_content: Raw = NULL
    provider_specific_fields: Raw = NULL
    usage: Raw = NULL

    @property
    def is_silent(self) -> bool:
        """Whether it says nothing."""
        details = self.reasoning_details != NULL or self.thinking_blocks != NULL
        thinks = self.reasoning or self.reasoning_content or details
        return not (self.content or self.refusal or thinks or self.calls)

    @property
    def needs_change(self) -> bool:
        """Whether it is not as clients read it.

        One of the two fields in which they look for the reasoning is missing, the text is in parts,
        or there is what only its maker can read, or a usage.
        """
        details = self.reasoning_details
        if self.reasoning if details == NULL else IN_DETAILS.search(bytes(details)):
            return True
        if self.function_call != NULL or self.thinking_blocks != NULL:
            return True
        if self.tool_calls != NULL and b"thought_signature" in bytes(self.tool_calls):
            return True
        if (self.reasoning_content and not self.reasoning) or isinstance(self.content, list):
            return True
        beside = self.extra_content != NULL or self.usage != NULL
        return beside or b"signature" in bytes(self.provider_specific_fields)

    @property
    def size(self) -> int:
        """The bytes of output."""
        size = self.called_bytes if self.calls else 0
        content, reasoning = self.content, self.reasoning or self.reasoning_content
        if isinstance(content, str):
            size += text_bytes(content)
        elif content:
            size += sum(map(len, content))
        if reasoning:
            size += text_bytes(reasoning)
        return size + text_bytes(self.refusal) if self.refusal else size


class ChunkChoice(Struct):
    """A chunk's choice, as far as the gateway needs it; fields that are absent stay unset."""

    index: int | None = None
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    """What some servers send in place of a delta, or once more at the end."""
    finish_reason: str | UnsetType | None = UNSET

    @property
    def needs_change(self) -> bool:
        """Whether it lacks a field that is required, is the last, or its delta needs a change."""
        if self.finish_reason is not None or self.index is None or self.message is not None:
            return True
        return self.delta is None or self.delta.needs_change


class ReplyChoice(Struct):
    """A complete reply's choice, as far as the gateway needs it."""

    message: ChatDelta
    finish_reason: str | None = None


reply_choices: Final = msgspec.json.Decoder(list[ReplyChoice])
delta_decoder: Final = msgspec.json.Decoder(ChatDelta)
choices_decoder: Final = msgspec.json.Decoder(list[Fields])
_index: Final = msgspec.json.Decoder(int)
_any: Final = msgspec.json.Decoder(Raw)
_text: Final = msgspec.json.Decoder(str)


class ChunkTemplate(NamedTuple):
    """What chunks of one choice have in common that need no change."""

    choice: int
    tells_text: bool
    """Whether they differ in the text of their deltas, not in these as a whole."""
    said_at: int
    others: Sequence[int]
    """Where the values of other fields are that differ."""
    given: EventTemplate
    shown: EventTemplate

    @classmethod
    def of(cls, data: bytes, shown: bytes, before: Fields, fields: Fields) -> Self | None:
        """Return what a chunk has in common with the one before, which has the same fields."""
        (choice,) = choices_decoder.decode(fields["choices"])
        delta = choice["delta"]
        text = _text_alone(delta)
        name_of_said = "delta" if text is None else "content"
        values: Fields = {}
        for name, value in fields.items():
            if name == "choices":
                values[name_of_said] = delta if text is None else text
            elif value != before[name]:
                values[name] = value
        given, ours = EventTemplate.of(data, values), EventTemplate.of(shown, values)
        if given is None or ours is None:
            return None
        said_at = list(values).index(name_of_said)
        others = [at for at in range(len(values)) if at != said_at]
        index = _index.decode(choice["index"])
        return cls(index, text is not None, said_at, others, given, ours)

    def read(self, data: bytes) -> tuple[str | ChatDelta, bytes] | None:
        """Return the text or the delta of a chunk of the same kind, and what the client gets of it.

        None if it may be of another kind.
        """
        values = self.given.values(data)
        if values is None:
            return None
        value = values[self.said_at]
        try:
            if not data.isascii():
                data.decode()
            if self.tells_text:
                said = _text.decode(value)
                # There may be spaces around it, line breaks among them.
                is_other = value[0] != _QUOTE or value[-1] != _QUOTE
            else:
                said = delta_decoder.decode(value)
                is_other = said.needs_change or has_line_breaks(value)
            for at in self.others:
                value = values[at]
                # A null may have to be left out, and spaces around a value have to.
                is_other = is_other or value == b"null" or len(_any.decode(value)) != len(value)
                is_other = is_other or (value[0] in _OPENING and has_line_breaks(value))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return None if is_other else (said, self.shown.fill(values))


def _text_alone(delta: Raw) -> Raw | None:
    """Return the text of a delta that holds nothing else, but perhaps a role."""
    said = delta_decoder.decode(delta)
    if not isinstance(said.content, str) or said != ChatDelta(content=said.content):
        return None
    fields = fields_decoder.decode(delta)
    return fields["content"] if fields.keys() <= _READ else None


_READ: Final = {"role", *ChatDelta.__struct_fields__}
_QUOTE: Final = ord('"')
_OPENING: Final = b"[{"
