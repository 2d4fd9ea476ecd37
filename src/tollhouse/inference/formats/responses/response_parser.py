"""Converts a provider's response to a canonical response.

Source: https://platform.openai.com/docs/api-reference/responses/object#responses/object-output
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.blocks import (
    Block,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.reasoning import OPENAI
from tollhouse.inference.formats.canonical.response import CanonicalResponse, Choice
from tollhouse.inference.formats.raw_json import NULL, encoder, raw, replace_invalid_utf8
from tollhouse.inference.formats.responses.errors import parse_error
from tollhouse.inference.formats.responses.usage import parse_usage
from tollhouse.inference.formats.responses.wire import (
    CALL_TYPES,
    call_decoder,
    item_decoder,
    message_decoder,
    output_items,
    parse_finish_reason,
    reasoning_decoder,
    response_decoder,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from msgspec import Raw

    from tollhouse.inference.formats.responses.wire import (
        ResponseObject,
        ResponsesCall,
        ResponsesPart,
        ResponsesReasoningItem,
    )

PARAGRAPH: Final = "\n\n"
"""Joins the parts of a summary, which are one text in canonical form."""


def decode_response(body: bytes) -> ResponseObject:
    """Decode a provider's complete response, as far as the gateway needs it.

    Raises:
        MalformedResponse: The body is not a response.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    try:
        response = response_decoder.decode(replace_invalid_utf8(body))
    except (msgspec.DecodeError, RecursionError):
        message = "the reply is no response"
        raise MalformedResponse(message) from None
    if response.error != NULL:
        raise parse_error(response.error)
    return response


def parse_response(response: ResponseObject) -> CanonicalResponse:
    """Convert a response to a canonical response.

    Raises:
        MalformedResponse: An item does not match its type, or the response has not ended.
        ErrorEvent: The response failed.
    """
    items = output_items(response)
    blocks = parse_blocks(items)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    finish_reason, native = parse_finish_reason(response, calls=calls)
    choice = Choice(
        blocks=tuple(blocks),
        finish_reason=finish_reason,
        native_finish_reason=native,
        logprobs=_logprobs(items),
    )
    return CanonicalResponse(
        choices=(choice,),
        usage=parse_usage(response.usage),
        upstream_id=response.id,
        service_tier=response.service_tier,
    )


def parse_blocks(items: Iterable[Raw]) -> list[Block]:
    """Convert output items to blocks; items of the provider's own tools are skipped.

    Raises:
        MalformedResponse: An item does not match its type.
    """
    try:
        return [block for item in items for block in _item(item)]
    except (msgspec.DecodeError, RecursionError):
        message = "an item of the response is not what its type promises"
        raise MalformedResponse(message) from None


def _item(item: Raw) -> Sequence[Block]:
    kind = item_decoder.decode(item).type
    if kind == "message":
        parts = message_decoder.decode(item).content
        return [block for block in map(_content, parts) if block is not None]
    if kind in CALL_TYPES:
        return [parse_call(call_decoder.decode(item), freeform=kind == "custom_tool_call")]
    if kind == "reasoning":
        return parse_reasoning(reasoning_decoder.decode(item))
    return ()


def _content(part: ResponsesPart) -> Block | None:
    if part.type == "output_text":
        return TextBlock(part.text)
    return RefusalBlock(part.refusal) if part.type == "refusal" else None


def parse_call(call: ResponsesCall, *, freeform: bool) -> ToolCall:
    """Convert a call; the text of a custom call becomes the field `input` of an object."""
    arguments = encoder.encode({"input": call.input}).decode() if freeform else call.arguments
    return ToolCall(call.call_id, call.name, arguments)


def parse_reasoning(item: ResponsesReasoningItem) -> list[ReasoningBlock]:
    """Convert a reasoning item: its summary, its text, or only its encrypted content.

    The encrypted content is attached to the last block.
    """
    blocks: list[ReasoningBlock] = []
    if summary := PARAGRAPH.join(part.text for part in item.summary or ()):
        blocks.append(ReasoningBlock(text=summary, is_summary=True, format=OPENAI))
    if reasoning_text := "".join(part.text for part in item.content or ()):
        blocks.append(ReasoningBlock(text=reasoning_text, format=OPENAI))
    if item.encrypted_content and not blocks:
        blocks.append(ReasoningBlock(format=OPENAI))
    if blocks:
        proof = {"encrypted": item.encrypted_content, "id": item.id}
        blocks[-1] = msgspec.structs.replace(blocks[-1], **proof)
    return blocks


def _logprobs(items: Iterable[Raw]) -> Raw | None:
    """Return the log-probabilities of all text in the chat format."""
    tokens = [
        token
        for item in items
        if item_decoder.decode(item).type == "message"
        for part in message_decoder.decode(item).content
        for token in part.logprobs or ()
    ]
    return chat_logprobs(tokens)


def chat_logprobs(tokens: Sequence[Raw] | None) -> Raw | None:
    """Return tokens as the chat format's `logprobs` object; None if there are none."""
    return raw({"content": tokens, "refusal": None}) if tokens else None
