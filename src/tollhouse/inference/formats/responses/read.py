"""A provider's output items as the hub's blocks.

Source: https://platform.openai.com/docs/api-reference/responses/object#responses/object-output
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.base import Unreadable
from tollhouse.inference.formats.hub.parts import Block, Reasoning, Refusal, Text, ToolCall
from tollhouse.inference.formats.hub.reasoning import OPENAI
from tollhouse.inference.formats.hub.reply import Choice, Reply
from tollhouse.inference.formats.responses.errors import parse_error
from tollhouse.inference.formats.responses.usage import parse_usage
from tollhouse.inference.formats.responses.wire import (
    CALLS,
    call_decoder,
    finish_of,
    item_decoder,
    items_of,
    message_decoder,
    reasoning_decoder,
    response_decoder,
)
from tollhouse.inference.formats.wire import NULL, encoder, raw, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from msgspec import Raw

    from tollhouse.inference.formats.responses.wire import Call, Part, ReasoningItem, Response

PARAGRAPH: Final = "\n\n"
"""Stands between the parts of a summary, which are one text in the hub."""


def read_response(body: bytes) -> Response:
    """Return a provider's whole response, read as far as the gateway follows it.

    Raises:
        Unreadable: It is none.
        ErrorEvent: It is the provider's error, under a success status.
    """
    try:
        response = response_decoder.decode(well_formed(body))
    except (msgspec.DecodeError, RecursionError):
        message = "the reply is no response"
        raise Unreadable(message) from None
    if response.error != NULL:
        raise parse_error(response.error)
    return response


def read_reply(response: Response) -> Reply:
    """Return a response as a reply in no one's format.

    Raises:
        Unreadable: An item is not what its type promises, or the response has not ended.
        ErrorEvent: It failed.
    """
    items = items_of(response)
    blocks = read_blocks(items)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    finish_reason, native = finish_of(response, calls=calls)
    choice = Choice(
        blocks=tuple(blocks),
        finish_reason=finish_reason,
        native_finish_reason=native,
        logprobs=_logprobs(items),
    )
    return Reply(
        choices=(choice,),
        usage=parse_usage(response.usage),
        upstream_id=response.id,
        service_tier=response.service_tier,
    )


def read_blocks(items: Iterable[Raw]) -> list[Block]:
    """Return what a response's items say; items of the provider's own tools are passed over.

    Raises:
        Unreadable: An item is not what its type promises.
    """
    try:
        return [block for item in items for block in _item(item)]
    except (msgspec.DecodeError, RecursionError):
        message = "an item of the response is not what its type promises"
        raise Unreadable(message) from None


def _item(item: Raw) -> Sequence[Block]:
    kind = item_decoder.decode(item).type
    if kind == "message":
        parts = message_decoder.decode(item).content
        return [block for block in map(_content, parts) if block is not None]
    if kind in CALLS:
        return [read_call(call_decoder.decode(item), freeform=kind == "custom_tool_call")]
    if kind == "reasoning":
        return read_reasoning(reasoning_decoder.decode(item))
    return ()


def _content(part: Part) -> Block | None:
    if part.type == "output_text":
        return Text(part.text)
    return Refusal(part.refusal) if part.type == "refusal" else None


def read_call(call: Call, *, freeform: bool) -> ToolCall:
    """Return a call; one with a text for its input has it as the field `input` of an object."""
    arguments = encoder.encode({"input": call.input}).decode() if freeform else call.arguments
    return ToolCall(call.call_id, call.name, arguments)


def read_reasoning(item: ReasoningItem) -> list[Reasoning]:
    """Return what an item of reasoning holds: a summary, the text, or only the encrypted part.

    The encrypted part goes with the last block.
    """
    blocks: list[Reasoning] = []
    if summary := PARAGRAPH.join(part.text for part in item.summary or ()):
        blocks.append(Reasoning(text=summary, is_summary=True, format=OPENAI))
    if thoughts := "".join(part.text for part in item.content or ()):
        blocks.append(Reasoning(text=thoughts, format=OPENAI))
    if item.encrypted_content and not blocks:
        blocks.append(Reasoning(format=OPENAI))
    if blocks:
        proof = {"encrypted": item.encrypted_content, "id": item.id}
        blocks[-1] = msgspec.structs.replace(blocks[-1], **proof)
    return blocks


def _logprobs(items: Iterable[Raw]) -> Raw | None:
    """Return the log-probabilities of all texts, as the chat format has them."""
    tokens = [
        token
        for item in items
        if item_decoder.decode(item).type == "message"
        for part in message_decoder.decode(item).content
        for token in part.logprobs or ()
    ]
    return chat_logprobs(tokens)


def chat_logprobs(tokens: Sequence[Raw] | None) -> Raw | None:
    """Return tokens as the chat format's object; None where there are none."""
    return raw({"content": tokens, "refusal": None}) if tokens else None
