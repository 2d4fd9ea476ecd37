"""Finish reasons and usage of a reply."""

from __future__ import annotations

from tests.unit.inference.formats.features.feature import MARK, Body, Places, ReplyFeature, in_all
from tests.unit.inference.formats.features.reply_parts import (
    CHAT_USAGE,
    PLAIN,
    USAGE,
    chat,
    message,
    replies,
    response,
)

TIERED = replies(
    {**chat(), "service_tier": "priority"},
    response(service_tier="priority"),
    message(usage={**USAGE, "service_tier": "priority"}),
)
TIER: dict[str, Places] = {
    "chat": {"service_tier": "priority"},
    "responses": {"service_tier": "priority"},
    "messages": {"usage.service_tier": "priority"},
    "completions": {"service_tier": "priority"},
}


def _ends() -> dict[str, ReplyFeature]:
    return {
        "finish reason: output limit": ReplyFeature(
            says=replies(
                chat({"finish_reason": "length"}),
                response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
                message(stop_reason="max_tokens"),
            ),
            own={
                **in_all(("chat", "completions"), {"choices.0.finish_reason": "length"}),
                "responses": {
                    "status": "incomplete",
                    "incomplete_details": {"reason": "max_output_tokens"},
                },
                "messages": {"stop_reason": "max_tokens"},
            },
            covers=("Choice.finish_reason",),
        ),
        "finish reason: content filter": ReplyFeature(
            says=replies(
                chat({"finish_reason": "content_filter"}),
                response(status="incomplete", incomplete_details={"reason": "content_filter"}),
                message(stop_reason="refusal"),
            ),
            own={
                **in_all(("chat", "completions"), {"choices.0.finish_reason": "content_filter"}),
                "responses": {
                    "status": "incomplete",
                    "incomplete_details": {"reason": "content_filter"},
                },
                "messages": {"stop_reason": "refusal"},
            },
        ),
        "provider's own finish reason": ReplyFeature(
            says=replies(
                chat({"finish_reason": "eos"}),
                None,
                message(stop_reason="pause_turn"),
            ),
            own={
                "chat": {"choices.0.native_finish_reason": "pause_turn"},
            },
            covers=("Choice.native_finish_reason",),
        ),
        "stop sequence that was matched": ReplyFeature(
            says=replies(None, None, message(stop_reason="stop_sequence", stop_sequence=MARK)),
            aside=("choices.0.native_finish_reason",),
            covers=("Choice.stop_sequence",),
        ),
        "provider's id of the reply": ReplyFeature(
            says={name: {**body, "id": MARK} for name, body in PLAIN.items()},
            covers=("CanonicalResponse.upstream_id",),
        ),
        "`system_fingerprint`": ReplyFeature(says=replies({**chat(), "system_fingerprint": MARK})),
        "served `service_tier`, whole": ReplyFeature(
            says=TIERED, own=TIER, covers=("CanonicalResponse.service_tier",), streamed=False
        ),
        "served `service_tier`, streamed": ReplyFeature(says=TIERED, own=TIER, whole=False),
    }


def _usage() -> dict[str, ReplyFeature]:
    """Return the token counts, each in a usage of 90 where the minimal reply has less."""

    def counted(chat_usage: Body, responses: Body | None, messages: Body) -> dict[str, Body]:
        return replies(
            {**chat(), "usage": {**CHAT_USAGE, **chat_usage}},
            None if responses is None else response(usage={**USAGE, **responses}),
            message(usage={**USAGE, **messages}),
        )

    def shown(chat_name: str, name: str, count: int, messages: str) -> dict[str, Places]:
        return {
            **in_all(("chat", "completions"), {f"usage.{chat_name}": count}),
            "responses": {f"usage.{name}": count},
            "messages": {f"usage.{messages}": 90},
        }

    chat_input, details = "prompt_tokens_details", "input_tokens_details"
    cached = {"cached_tokens": 90}
    written = {"cache_write_tokens": 90}
    thought = {"reasoning_tokens": 90}
    read_name, write_name = "cache_read_input_tokens", "cache_creation_input_tokens"
    hour = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 90}
    return {
        "input tokens": ReplyFeature(
            says=counted({"prompt_tokens": 90}, {"input_tokens": 90}, {"input_tokens": 90}),
            own=shown("prompt_tokens", "input_tokens", 90, "input_tokens"),
            covers=("CanonicalResponse.usage",),
        ),
        "output tokens": ReplyFeature(
            says=counted({"completion_tokens": 90}, {"output_tokens": 90}, {"output_tokens": 90}),
            own=shown("completion_tokens", "output_tokens", 90, "output_tokens"),
        ),
        "reasoning tokens": ReplyFeature(
            says=counted(
                {"completion_tokens": 100, "completion_tokens_details": thought},
                {"output_tokens": 100, "output_tokens_details": thought},
                {"output_tokens": 100, "output_tokens_details": {"thinking_tokens": 90}},
            ),
            own=shown(
                "completion_tokens_details.reasoning_tokens",
                "output_tokens_details.reasoning_tokens",
                90,
                "output_tokens_details.thinking_tokens",
            ),
        ),
        "tokens read from the cache": ReplyFeature(
            says=counted(
                {"prompt_tokens": 100, chat_input: cached},
                {"input_tokens": 100, details: cached},
                {read_name: 90},
            ),
            own=shown(f"{chat_input}.cached_tokens", f"{details}.cached_tokens", 90, read_name),
        ),
        "tokens written to the cache": ReplyFeature(
            says=counted(
                {"prompt_tokens": 100, chat_input: written},
                {"input_tokens": 100, details: written},
                {write_name: 90},
            ),
            own=shown(
                f"{chat_input}.cache_write_tokens", f"{details}.cache_write_tokens", 90, write_name
            ),
        ),
        "tokens written to the cache for an hour": ReplyFeature(
            says={"messages": message(usage={**USAGE, write_name: 90, "cache_creation": hour})},
            other=shown(
                f"{chat_input}.cache_write_tokens", f"{details}.cache_write_tokens", 90, write_name
            ),
        ),
    }


FINISH_REASONS: dict[str, ReplyFeature] = {**_ends(), **_usage()}
