"""Reasoning parameters of a request, and reasoning that is sent back."""

from __future__ import annotations

from tests.support.seams.inference import ANTHROPIC, OPENAI, ReasoningBlock, pack
from tests.unit.inference.formats.features.feature import MARK, Body, RequestFeature
from tests.unit.inference.formats.features.request_parts import (
    HELLO,
    SAID,
    SAID_ITEM,
    fields,
    model,
    turns,
)


def _reasoning() -> dict[str, RequestFeature]:
    effort: dict[str, Body] = {
        "chat": {"reasoning": {"effort": "low"}},
        "responses": {"reasoning": {"effort": "low"}},
        "messages": {"output_config": {"effort": "low"}},
    }
    summary: dict[str, Body] = fields(
        ("chat", "responses"), reasoning={"effort": "low", "summary": "detailed"}
    )
    hidden = fields(
        ("chat", "responses"), reasoning={"effort": "low", "summary": "detailed", "exclude": True}
    )
    return {
        "reasoning effort": RequestFeature(
            says=effort,
            own={
                "chat": {"reasoning_effort": "low"},
                "responses": {"reasoning.effort": "low"},
                "messages": {"output_config.effort": "low", "thinking.type": "adaptive"},
            },
            covers=("ThinkingOptions.effort", "CanonicalRequest.thinking"),
            parameter="thinking",
        ),
        "reasoning budget": RequestFeature(
            says={
                **fields(("chat", "responses"), reasoning={"max_tokens": 5000}),
                "messages": {"thinking": {"type": "enabled", "budget_tokens": 5000}},
            },
            own={"messages": {"thinking": {"type": "enabled", "budget_tokens": 5000}}},
            other={
                "chat": {"reasoning_effort": "medium"},
                "responses": {"reasoning.effort": "medium"},
                "messages": {"thinking": {"type": "adaptive"}},
            },
            covers=("ThinkingOptions.budget_tokens",),
            parameter="thinking",
        ),
        "reasoning enabled": RequestFeature(
            says={
                **fields(("chat", "responses"), reasoning={"enabled": True}),
                "messages": {"thinking": {"type": "adaptive"}},
            },
            own={"messages": {"thinking": {"type": "adaptive"}}},
            other={"responses": {"reasoning": {"summary": "auto"}}},
            covers=("ThinkingOptions.enabled",),
            parameter="thinking",
        ),
        "reasoning disabled": RequestFeature(
            says={
                **fields(("chat", "responses"), reasoning={"enabled": False}),
                "messages": {"thinking": {"type": "disabled"}},
            },
            parameter="thinking",
        ),
        "reasoning effort `none`": RequestFeature(
            says=fields(("chat", "responses"), reasoning={"effort": "none"}),
            own={
                "chat": {"reasoning_effort": "none"},
                "responses": {"reasoning.effort": "none"},
            },
            parameter="thinking",
        ),
        "reasoning summary": RequestFeature(
            says={
                **summary,
                "messages": {"thinking": {"type": "adaptive", "display": "summarized"}},
            },
            beside={name: effort[name] for name in ("chat", "responses")},
            own={"responses": {"reasoning.summary": "detailed"}},
            other={
                "messages -> responses": {"reasoning.summary": "auto"},
                "messages": {"thinking.display": "summarized"},
            },
            covers=("ThinkingOptions.summary",),
        ),
        "reasoning excluded from the reply (`reasoning.exclude`)": RequestFeature(
            says=hidden,
            beside=summary,
            other={
                "responses": {"reasoning": {"effort": "low"}},
                "messages": {"thinking": {"type": "adaptive"}},
            },
            covers=("ThinkingOptions.exclude",),
        ),
        **_thoughts(),
    }


def _thoughts() -> dict[str, RequestFeature]:
    """Return reasoning that is sent back, in the form in which each client received it."""
    signed = ReasoningBlock(text="thought", signature=MARK, format=ANTHROPIC)
    redacted = ReasoningBlock(encrypted=MARK, format=ANTHROPIC)
    sealed = ReasoningBlock("thought", is_summary=True, encrypted=MARK, id="rs_1", format=OPENAI)
    plain = ReasoningBlock(text=MARK)
    summary = {"type": "summary_text", "text": "thought"}

    def packed(block: ReasoningBlock) -> Body:
        return {"type": "reasoning", "summary": [], "encrypted_content": pack(block)}

    def then_said(said: dict[str, Body]) -> dict[str, Body]:
        first, thought, last = said["responses"]["input"]
        return {**said, "responses": {"input": [first, thought, SAID_ITEM, last]}}

    def shown(block: ReasoningBlock) -> Body:
        return {"type": "thinking", "thinking": block.text, "signature": pack(block)}

    def details(*given: Body) -> Body:
        return {"content": "said", "reasoning_details": [*given]}

    beside = turns(
        [HELLO, {"role": "assistant", "content": "said"}, HELLO],
        [HELLO, SAID_ITEM, HELLO],
        [HELLO, {"role": "assistant", "content": [SAID]}, HELLO],
    )
    return {
        "Anthropic's reasoning, sent back": RequestFeature(
            says=then_said(
                model(
                    details(
                        {
                            "type": "reasoning.text",
                            "text": "thought",
                            "signature": MARK,
                            "format": ANTHROPIC,
                        }
                    ),
                    packed(signed),
                    {"type": "thinking", "thinking": "thought", "signature": MARK},
                )
            ),
            beside=beside,
            own={
                "messages": {
                    "messages.1.content.0": {
                        "type": "thinking",
                        "thinking": "thought",
                        "signature": MARK,
                    }
                }
            },
            covers=("ReasoningBlock.text", "ReasoningBlock.signature", "ReasoningBlock.format"),
        ),
        "Anthropic's redacted reasoning, sent back": RequestFeature(
            says=then_said(
                model(
                    details({"type": "reasoning.encrypted", "data": MARK, "format": ANTHROPIC}),
                    packed(redacted),
                    {"type": "redacted_thinking", "data": MARK},
                )
            ),
            beside=beside,
            own={"messages": {"messages.1.content.0": {"type": "redacted_thinking", "data": MARK}}},
        ),
        "OpenAI's reasoning, sent back": RequestFeature(
            says=then_said(
                model(
                    details(
                        {"type": "reasoning.summary", "summary": "thought", "format": OPENAI},
                        {
                            "type": "reasoning.encrypted",
                            "data": MARK,
                            "id": "rs_1",
                            "format": OPENAI,
                        },
                    ),
                    {
                        "type": "reasoning",
                        "id": "rs_1",
                        "summary": [summary],
                        "encrypted_content": MARK,
                    },
                    shown(sealed),
                )
            ),
            beside=beside,
            own={
                "responses": {
                    "input.1": {
                        "type": "reasoning",
                        "id": "rs_1",
                        "summary": [summary],
                        "encrypted_content": MARK,
                    }
                }
            },
            covers=("ReasoningBlock.encrypted", "ReasoningBlock.id", "ReasoningBlock.is_summary"),
        ),
        "reasoning without a signature, sent back": RequestFeature(
            says=then_said(
                model({"content": "said", "reasoning": MARK}, packed(plain), shown(plain))
            ),
            beside=beside,
        ),
    }


REASONING_REQUESTS: dict[str, RequestFeature] = {**_reasoning()}
