"""The chat format as a client's side of a translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.base import without_said
from tollhouse.inference.formats.chat_completions.prompt import parse_prompt
from tollhouse.inference.formats.chat_completions.reasoning import render_details
from tollhouse.inference.formats.chat_completions.usage import render_usage
from tollhouse.inference.formats.chat_completions.writer import ChatWriter
from tollhouse.inference.formats.hub.parts import Reasoning, Refusal, Text, ToolCall

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.formats.hub.prompt import Prompt
    from tollhouse.inference.formats.hub.reply import Choice, Reply
    from tollhouse.inference.types import ReplyIdentity


class ChatListener:
    """Fulfils `formats.hub.ports.Listener`."""

    def __init__(self, request: ChatRequest) -> None:
        """Take the request."""
        self._request = request

    def parse(self) -> Prompt:
        """Return what the request asks."""
        return parse_prompt(self._request.body, self._request.fields)

    def told(self, prompt: Prompt | None) -> ChatListener:
        """Return this without what is said."""
        del prompt
        return ChatListener(without_said(self._request))

    def render(self, reply: Reply, identity: ReplyIdentity, charge: Charge) -> bytes:
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

    def writer(self, identity: ReplyIdentity) -> ChatWriter:
        """Begin to write a stream."""
        return ChatWriter(self._request.fields, identity)


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
    texts = [block.text for block in blocks if isinstance(block, Text)]
    refusals = [block.text for block in blocks if isinstance(block, Refusal)]
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
    }
    thoughts = [block for block in blocks if isinstance(block, Reasoning)]
    if thoughts:
        message["reasoning"] = "".join(block.text for block in thoughts) or None
        message["reasoning_details"] = render_details(thoughts)
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    if calls:
        message["tool_calls"] = [_call(call, index) for index, call in enumerate(calls)]
    return message


def _call(call: ToolCall, index: int) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": index, "id": call.id, "type": "function", "function": function}
