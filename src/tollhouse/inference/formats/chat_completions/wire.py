"""Schemas of the parts of the chat format that the gateway decodes; the rest stays raw.

Source: https://platform.openai.com/docs/api-reference/chat and the public gateway's additions
(`provider`, `native_finish_reason`, `cost`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tollhouse.inference.formats.fields import Fields
from tollhouse.inference.formats.raw_json import NULL

if TYPE_CHECKING:
    from collections.abc import Mapping

DONE: Final = b"[DONE]"
"""The data of a stream's last event."""
FINISH_REASONS: Final = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "error": "error",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "end_turn": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
}
"""Providers' finish reasons to the five normalized ones; an unknown one counts as `stop`."""


class ChatPromptDetails(msgspec.Struct):
    """Parts of `prompt_tokens`."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class ChatCompletionDetails(msgspec.Struct):
    """Parts of `completion_tokens`."""

    reasoning_tokens: int | None = None


class ChatUsage(msgspec.Struct):
    """A provider's `usage`."""

    prompt_tokens: int
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: ChatPromptDetails | None = None
    completion_tokens_details: ChatCompletionDetails | None = None


class ChatDelta(msgspec.Struct):
    """A chunk's `delta` or a complete `message`, as far as token counts need it."""

    content: str | list[Raw] | None = None
    """Some providers send a list of parts."""
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: Raw = NULL
    """Not `Raw | None`, which the decoder takes for null only."""
    reasoning_details: Raw = NULL

    @property
    def lacks_reasoning(self) -> bool:
        """Whether one of the two fields in which clients look for the reasoning is missing."""
        text = self.reasoning or self.reasoning_content
        return bool(text) and (not self.reasoning or self.reasoning_details == NULL)


class CalledChatFunction(msgspec.Struct):
    """A called function, as far as token counts need it."""

    name: str | None = None
    arguments: str | None = None


class ChatToolCall(msgspec.Struct):
    """An item of `tool_calls`."""

    function: CalledChatFunction | None = None


class ChunkChoice(msgspec.Struct):
    """A chunk's choice, as far as the gateway needs it; fields that are absent stay unset."""

    index: int | None = None
    delta: ChatDelta | None = None
    finish_reason: str | UnsetType | None = UNSET


EMPTY_CHOICE: Final[Mapping[str, object]] = {
    "index": 0,
    "delta": {},
    "finish_reason": None,
    "logprobs": None,
}
"""The choice of a chunk without output."""
choices_decoder: Final = msgspec.json.Decoder(list[Fields])
chunk_choices_decoder: Final = msgspec.json.Decoder(list[ChunkChoice] | None)
message_decoder: Final = msgspec.json.Decoder(ChatDelta)
calls_decoder: Final = msgspec.json.Decoder(list[ChatToolCall] | None)
usage_decoder: Final = msgspec.json.Decoder(ChatUsage | None)


def normalize_finish_reason(native: str | None) -> str | None:
    """Return the normalized finish reason; None for null or an empty string."""
    return FINISH_REASONS.get(native, "stop") if native else None
