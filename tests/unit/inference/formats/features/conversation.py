"""The roles and messages of a conversation."""

from __future__ import annotations

from tests.unit.inference.formats.features.feature import MARK, RequestFeature
from tests.unit.inference.formats.features.request_parts import (
    HELLO,
    PNG,
    SAID,
    SAID_ITEM,
    model,
    turns,
    user,
)


def _conversation() -> dict[str, RequestFeature]:
    return {
        "system prompt": RequestFeature(
            says={
                "chat": {"messages": [{"role": "system", "content": MARK}, HELLO]},
                "responses": {"instructions": MARK},
                "messages": {"system": MARK},
            },
            own={
                "chat": {"messages.0": {"role": "system", "content": MARK}},
                "responses": {"instructions": MARK},
                "messages": {"system.0.text": MARK},
            },
            covers=("CanonicalRequest.turns", "Turn.role", "Turn.blocks"),
        ),
        "system message later in the conversation": RequestFeature(
            says=turns(*[[HELLO, {"role": "system", "content": MARK}, HELLO]] * 3),
            own={
                "chat": {"messages.1": {"role": "system", "content": MARK}},
                "responses": {"input.1.role": "developer", "input.1.content.0.text": MARK},
            },
            other={"messages": {"system.0.text": MARK}},
        ),
        "prompt": RequestFeature(
            says={"completions": {"prompt": MARK}},
            other={
                "chat": {"messages": [{"role": "user", "content": MARK}]},
                "responses": {"input.0.role": "user", "input.0.content.0.text": MARK},
                "messages": {"messages.0.role": "user", "messages.0.content.0.text": MARK},
            },
        ),
        "several prompts": RequestFeature(says={"completions": {"prompt": [MARK, "hello"]}}),
        "prompt as token ids": RequestFeature(says={"completions": {"prompt": [1, 2]}}),
        "text of a user message": RequestFeature(
            says=turns(*[[{"role": "user", "content": MARK}]] * 3),
            own={
                "chat": {"messages.0.content": MARK},
                "responses": {"input.0.content.0": {"type": "input_text", "text": MARK}},
                "messages": {"messages.0.content.0": {"type": "text", "text": MARK}},
            },
            covers=("TextBlock.text",),
        ),
        "text of an assistant message": RequestFeature(
            says=turns(*[[HELLO, {"role": "assistant", "content": MARK}, HELLO]] * 3),
            own={
                "chat": {"messages.1": {"role": "assistant", "content": MARK}},
                "responses": {"input.1.role": "assistant", "input.1.content.0.text": MARK},
                "messages": {"messages.1.role": "assistant", "messages.1.content.0.text": MARK},
            },
        ),
        "assistant message at the end (prefill)": RequestFeature(
            says=turns(*[[HELLO, {"role": "assistant", "content": MARK}]] * 3),
            own={
                "chat": {"messages.-1": {"role": "assistant", "content": MARK}},
                "responses": {"input.-1.role": "assistant", "input.-1.content.0.text": MARK},
                "messages": {"messages.-1.role": "assistant", "messages.-1.content.0.text": MARK},
            },
        ),
        "refusal of an assistant message": RequestFeature(
            says=model(
                {"refusal": MARK},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "refusal", "refusal": MARK}],
                },
            ),
            own={
                "chat": {"messages.1.content.0": {"type": "refusal", "refusal": MARK}},
                "responses": {"input.1.content.0": {"type": "refusal", "refusal": MARK}},
            },
            other={"messages": {"messages.1.content.0": {"type": "text", "text": MARK}}},
            covers=("RefusalBlock.text",),
        ),
        "first message from the assistant": RequestFeature(
            says=turns(*[[{"role": "assistant", "content": MARK}, HELLO]] * 3),
            own={
                "chat": {"messages.0": {"role": "assistant", "content": MARK}},
                "responses": {"input.0.role": "assistant", "input.0.content.0.text": MARK},
            },
            other={
                "messages": {
                    "messages.0.content.0.text": ".",
                    "messages.1.role": "assistant",
                    "messages.1.content.0.text": MARK,
                }
            },
        ),
        "name of a message's author (`name`)": RequestFeature(
            says=turns([{**HELLO, "name": MARK}]),
        ),
        "unknown content type in a user message": RequestFeature(
            says=user(*[{"type": "novelty", "novelty": MARK}] * 3)
        ),
        "unknown content type in an assistant message": RequestFeature(
            says=turns(
                [HELLO, {"role": "assistant", "content": [SAID, {"type": "novelty"}]}, HELLO],
                [
                    HELLO,
                    {**SAID_ITEM, "content": [*SAID_ITEM["content"], {"type": "novelty"}]},
                    HELLO,
                ],
                [HELLO, {"role": "assistant", "content": [SAID, {"type": "novelty"}]}, HELLO],
            ),
            beside=turns(*[[HELLO, {"role": "assistant", "content": "said"}, HELLO]] * 3),
        ),
        "generated images, sent back": RequestFeature(
            says=model(
                {"content": "said", "images": [{"image_url": {"url": PNG}}]},
                {"type": "image_generation_call", "id": "ig_1", "result": "bWFyaw=="},
            ),
            beside={
                **model({"content": "said"}),
                "responses": {"input": [HELLO, HELLO]},
            },
        ),
        "calls and results of the provider's own tools": RequestFeature(
            says=model(
                None,
                {"type": "web_search_call", "id": "ws_1", "action": {"query": MARK}},
                {
                    "type": "server_tool_use",
                    "id": "srv_1",
                    "name": "web_search",
                    "input": {"query": MARK},
                },
            ),
            beside={
                "responses": {"input": [HELLO, HELLO]},
                "messages": {"messages": [HELLO, {"role": "assistant", "content": [SAID]}, HELLO]},
            },
        ),
    }


CONVERSATION: dict[str, RequestFeature] = {**_conversation()}
