"""The client side of the chat format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.canonical.blocks import (
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.chat_completions.canonical_request import parse_canonical_request
from tollhouse.inference.formats.chat_completions.reasoning import render_details
from tollhouse.inference.formats.chat_completions.stream_encoder import ChatStreamEncoder
from tollhouse.inference.formats.chat_completions.usage import render_usage

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.request import CanonicalRequest
    from tollhouse.inference.formats.canonical.response import CanonicalResponse, Choice
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.types import ReplyIdentity


class ChatClientFormat:
    """Implements `formats.canonical.ports.ClientFormat`."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request

    def parse_request(self) -> CanonicalRequest:
        """Return the request in canonical form."""
        return parse_canonical_request(self._request.body, self._request.fields)

    def without_content(self, prompt: CanonicalRequest | None) -> ChatClientFormat:
        """Return a copy without the conversation's content."""
        del prompt
        return ChatClientFormat(without_content(self._request))

    def render_response(
        self, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return a chat completion."""
        return msgspec.json.encode(
            {
                "id": identity.id,
                "object": "chat.completion",
                "created": identity.created,
                "model": identity.model,
                "provider": identity.provider,
                "system_fingerprint": None,
                "service_tier": reply.service_tier,
                "choices": [_choice(choice) for choice in reply.choices],
                "usage": render_usage(charge, is_byok=False),
            }
        )

    def stream_encoder(self, identity: ReplyIdentity) -> ChatStreamEncoder:
        """Return the encoder of one stream."""
        return ChatStreamEncoder(self._request.fields, identity)


def _choice(choice: Choice) -> dict[str, object]:
    return {
        "index": choice.index,
        "message": _message(choice),
        "finish_reason": choice.finish_reason,
        "native_finish_reason": choice.native_finish_reason,
        "logprobs": choice.logprobs,
    }


def _message(choice: Choice) -> dict[str, object]:
    blocks = choice.blocks
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    refusals = [block.text for block in blocks if isinstance(block, RefusalBlock)]
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
    }
    reasoning_blocks = [block for block in blocks if isinstance(block, ReasoningBlock)]
    if reasoning_blocks:
        message["reasoning"] = "".join(block.text for block in reasoning_blocks) or None
        message["reasoning_details"] = render_details(reasoning_blocks)
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    if calls:
        message["tool_calls"] = [_call(call, index) for index, call in enumerate(calls)]
    return message


def _call(call: ToolCall, index: int) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": index, "id": call.id, "type": "function", "function": function}
