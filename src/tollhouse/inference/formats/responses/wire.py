r"""Schemas of the parts of the responses format that the gateway decodes; the rest stays raw.

    response ─ output ─┬─ message ─┬─ output_text
                       │           └─ refusal
                       ├─ reasoning: summary and content
                       ├─ function_call
                       └─ custom_tool_call

Source: https://platform.openai.com/docs/api-reference/responses/object
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.raw_json import NULL, encoder, join_lines
from tollhouse.inference.formats.responses.errors import parse_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.canonical.response import FinishReason

DONE: Final = b"[DONE]"
TERMINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})
"""Events that end a successful stream."""
FAILURE_EVENTS: Final = frozenset({"error", "response.failed", "response.cancelled"})
"""Events that end a failed stream."""
DONE_EVENT: Final = b"data: [DONE]\n\n"


class ResponsesPart(msgspec.Struct):
    """A part of a message's or a reasoning item's content."""

    type: str | None = None
    text: str = ""
    refusal: str = ""
    logprobs: list[Raw] | None = None


class ResponsesItem(msgspec.Struct):
    """The `type` of an output item, which determines its other fields."""

    type: str | None = None


class ResponsesMessage(msgspec.Struct):
    """An item of type `message`."""

    content: list[ResponsesPart] = []


class ResponsesCall(msgspec.Struct):
    """An item of type `function_call` or `custom_tool_call`."""

    name: str
    call_id: str
    arguments: str = ""
    input: str = ""


class ResponsesReasoningItem(msgspec.Struct):
    """An item of type `reasoning`."""

    id: str | None = None
    summary: list[ResponsesPart] | None = None
    content: list[ResponsesPart] | None = None
    encrypted_content: str | None = None


class IncompleteDetails(msgspec.Struct):
    """Why a response is incomplete."""

    reason: str | None = None


class ResponseObject(msgspec.Struct):
    """A response object, as far as the gateway decodes it."""

    output: list[Raw] | None = None
    id: str | None = None
    status: str | None = None
    error: Raw = NULL
    incomplete_details: IncompleteDetails | None = None
    usage: Raw = NULL
    service_tier: str | None = None


item_decoder: Final = msgspec.json.Decoder(ResponsesItem)
message_decoder: Final = msgspec.json.Decoder(ResponsesMessage)
call_decoder: Final = msgspec.json.Decoder(ResponsesCall)
reasoning_decoder: Final = msgspec.json.Decoder(ResponsesReasoningItem)
response_decoder: Final = msgspec.json.Decoder(ResponseObject)

CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})
_INCOMPLETE: Final[Mapping[str | None, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}


def output_items(response: ResponseObject) -> list[Raw]:
    """Return a response's output.

    Raises:
        MalformedResponse: The response has no output.
    """
    if response.output is None:
        message = "the response has no output"
        raise MalformedResponse(message)
    return response.output


def parse_finish_reason(response: ResponseObject, *, calls: bool) -> tuple[FinishReason, str]:
    """Return a response's finish reason, normalized and as the provider reported it.

    Args:
        response: A provider's complete response, or that of a terminal event.
        calls: Whether it contains a tool call.

    Raises:
        MalformedResponse: The response has not ended.
        ErrorEvent: The response failed.
    """
    status = response.status or "completed"
    if status in {"failed", "cancelled"} or response.error != NULL:
        raise ErrorEvent(status, None) if response.error == NULL else parse_error(response.error)
    if status == "completed":
        return ("tool_calls" if calls else "stop"), status
    if status != "incomplete":
        message = "the response has not ended"
        raise MalformedResponse(message)
    reason = response.incomplete_details.reason if response.incomplete_details else None
    return _INCOMPLETE.get(reason, "length"), reason or status


class NumberedEventWriter:
    """Writes the events of one stream with consecutive sequence numbers."""

    def __init__(self) -> None:
        self.count = 0

    def event(self, kind: str, fields: Mapping[str, object]) -> bytes:
        """Return the next event, with its type and its sequence number."""
        data = encoder.encode({"type": kind, **fields, "sequence_number": self.count})
        self.count += 1
        return b"event: " + kind.encode() + b"\ndata: " + join_lines(data) + b"\n\n"
