"""The reasoning in a reply."""

from __future__ import annotations

from tests.support.seams.inference import ANTHROPIC, OPENAI, ReasoningBlock, pack
from tests.unit.inference.formats.features.feature import MARK, Body, Places, ReplyFeature
from tests.unit.inference.formats.features.reply_parts import (
    SAID,
    SPOKEN,
    chat,
    message,
    replies,
    response,
    spoken,
)


def _thoughts() -> dict[str, ReplyFeature]:
    summary = {"type": "reasoning.summary", "summary": "thought", "format": OPENAI}
    sealed = {"type": "reasoning.encrypted", "data": MARK, "id": "rs_1", "format": OPENAI}
    signed = {"type": "reasoning.text", "text": "thought", "signature": MARK, "format": ANTHROPIC}
    redacted = {"type": "reasoning.encrypted", "data": MARK, "format": ANTHROPIC}
    item = {"type": "reasoning", "id": "rs_1"}
    told = [{"type": "summary_text", "text": "thought"}]
    openai = replies(
        chat(reasoning_details=[summary, sealed]),
        response({**item, "summary": told, "encrypted_content": MARK}, spoken(SAID)),
    )
    block = pack(
        ReasoningBlock("thought", is_summary=True, encrypted=MARK, id="rs_1", format=OPENAI)
    )
    kept: dict[str, Places] = {
        "chat": {
            "choices.0.message.reasoning_details.1.data": MARK,
            "choices.0.message.reasoning_details.1.id": "rs_1",
            "choices.0.message.reasoning_details.1.format": OPENAI,
        },
        "responses": {"output.0.id": "rs_1", "output.0.encrypted_content": MARK},
    }
    packed: dict[str, Places] = {
        "messages": {"content.0.signature": block},
        "responses": {"output.0.encrypted_content": block},
    }

    def thinks(text: str) -> dict[str, Body]:
        return replies(
            chat(reasoning=text),
            response({**item, "content": [{"type": "reasoning_text", "text": text}]}, spoken(SAID)),
            message({"type": "thinking", "thinking": text, "signature": "sig"}, SPOKEN),
        )

    hidden = {"reasoning": {"exclude": True}}
    return {
        "reasoning text": ReplyFeature(
            says=thinks(MARK),
            own={
                "chat": {"choices.0.message.reasoning": MARK},
                "responses": {"output.0.content.0": {"type": "reasoning_text", "text": MARK}},
                "messages": {"content.0.type": "thinking", "content.0.thinking": MARK},
            },
        ),
        "reasoning, with `reasoning.exclude`": ReplyFeature(
            says=thinks(MARK),
            asks={"chat": hidden, "responses": hidden},
            clients=("chat", "responses"),
        ),
        "reasoning summary": ReplyFeature(
            says=replies(
                chat(reasoning_details=[{**summary, "summary": MARK}]),
                response(
                    {**item, "summary": [{"type": "summary_text", "text": MARK}]}, spoken(SAID)
                ),
            ),
            own={
                "chat": {
                    "choices.0.message.reasoning_details.0.type": "reasoning.summary",
                    "choices.0.message.reasoning_details.0.summary": MARK,
                },
                "responses": {"output.0.summary": [{"type": "summary_text", "text": MARK}]},
            },
            other={"messages": {"content.0.type": "thinking", "content.0.thinking": MARK}},
        ),
        "Anthropic's reasoning signature": ReplyFeature(
            says=replies(
                chat(reasoning_details=[signed]),
                None,
                message({"type": "thinking", "thinking": "thought", "signature": MARK}, SPOKEN),
            ),
            own={
                "chat": {
                    "choices.0.message.reasoning_details.0.signature": MARK,
                    "choices.0.message.reasoning_details.0.format": ANTHROPIC,
                },
                "messages": {"content.0.signature": MARK},
            },
            other={
                "responses": {
                    "output.0.encrypted_content": pack(
                        ReasoningBlock("thought", signature=MARK, format=ANTHROPIC)
                    )
                }
            },
        ),
        "Anthropic's redacted reasoning": ReplyFeature(
            says=replies(
                chat(reasoning_details=[redacted]),
                None,
                message({"type": "redacted_thinking", "data": MARK}, SPOKEN),
            ),
            own={
                "chat": {
                    "choices.0.message.reasoning_details.0.data": MARK,
                    "choices.0.message.reasoning_details.0.format": ANTHROPIC,
                },
                "messages": {"content.0": {"type": "redacted_thinking", "data": MARK}},
            },
            other={
                "responses": {
                    "output.0.encrypted_content": pack(
                        ReasoningBlock(encrypted=MARK, format=ANTHROPIC)
                    )
                }
            },
        ),
        "OpenAI's encrypted reasoning, whole": ReplyFeature(
            says=openai, own=kept, other=packed, streamed=False
        ),
        "OpenAI's encrypted reasoning, streamed": ReplyFeature(
            says=openai, own=kept, other=packed, whole=False
        ),
    }


REASONING_REPLIES: dict[str, ReplyFeature] = {**_thoughts()}
