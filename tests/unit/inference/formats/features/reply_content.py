"""The content of a reply besides reasoning."""

from __future__ import annotations

from typing import Any

from tests.unit.inference.formats.features.feature import MARK, Body, ReplyFeature
from tests.unit.inference.formats.features.reply_parts import (
    CALL,
    CHAT_USAGE,
    OBJECT,
    SAID,
    SPOKEN,
    chat,
    message,
    replies,
    response,
    spoken,
)

TOKEN: Body = {"token": "said", "logprob": -0.5, "bytes": None, "top_logprobs": []}
SECOND = {
    "index": 1,
    "message": {"role": "assistant", "content": MARK},
    "finish_reason": "stop",
}


def _said() -> dict[str, ReplyFeature]:
    refusal = {"type": "refusal", "refusal": MARK}
    return {
        "text": ReplyFeature(
            says=replies(
                chat(content=MARK),
                response(spoken({**SAID, "text": MARK})),
                message({**SPOKEN, "text": MARK}),
            ),
            own={
                "chat": {"choices.0.message.content": MARK},
                "responses": {"output.0.content.0.text": MARK, "output_text": MARK},
                "messages": {"content.0": {"type": "text", "text": MARK}},
                "completions": {"choices.0.text": MARK},
            },
            covers=("CanonicalResponse.choices", "Choice.blocks"),
        ),
        "refusal": ReplyFeature(
            says=replies(chat(content=None, refusal=MARK), response(spoken(refusal))),
            own={
                "chat": {"choices.0.message.refusal": MARK},
                "responses": {"output.0.content.0": refusal},
            },
            other={
                "messages": {"content.0.text": MARK, "stop_reason": "refusal"},
                "completions": {"choices.0.text": MARK},
            },
        ),
        "citations": ReplyFeature(
            says=replies(
                chat(annotations=[{"type": "url_citation", "url_citation": {"url": MARK}}]),
                response(spoken({**SAID, "annotations": [{"type": "url_citation", "url": MARK}]})),
                message({**SPOKEN, "citations": [{"type": "page_location", "cited_text": MARK}]}),
            )
        ),
        "calls and results of the provider's own tools": ReplyFeature(
            says=replies(
                None,
                response(
                    {"type": "web_search_call", "id": "ws_1", "action": {"query": MARK}},
                    spoken(SAID),
                ),
                message(
                    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
                    SPOKEN,
                ),
            )
        ),
        "images and audio": ReplyFeature(
            says=replies(
                chat(images=[{"image_url": {"url": MARK}}], audio={"id": "a", "data": MARK}),
                response(
                    {"type": "image_generation_call", "id": "ig_1", "result": MARK}, spoken(SAID)
                ),
            )
        ),
        "log-probabilities": ReplyFeature(
            says=replies(
                chat({"logprobs": {"content": [TOKEN], "refusal": None}}),
                response(spoken({**SAID, "logprobs": [TOKEN]})),
            ),
            own={
                "chat": {"choices.0.logprobs.content": [TOKEN]},
                "responses": {"output.0.content.0.logprobs": [TOKEN]},
            },
            covers=("Choice.logprobs",),
        ),
        "several choices": ReplyFeature(
            says=replies({**chat(), "choices": [*chat()["choices"], SECOND]}),
            own={
                "chat": {"choices.1.message.content": MARK},
                "completions": {"choices.1.text": MARK},
            },
            covers=("Choice.index",),
        ),
    }


def _piece(index: int, arguments: str, **more: Any) -> Body:
    call = {"index": index, "function": {"arguments": arguments}, **more}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
    return {"id": "up-1", "choices": [choice]}


ALTERNATING: list[Body] = [
    {"id": "up-1", "choices": [{"index": 0, "delta": {"content": "said"}, "finish_reason": None}]},
    _piece(0, '{"at"', id="call_1"),
    _piece(1, '{"at":', id="call_2"),
    _piece(0, ':"marker"}'),
    _piece(1, '"marker"}'),
    {"id": "up-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"id": "up-1", "choices": [], "usage": CHAT_USAGE},
]


def _calls() -> dict[str, ReplyFeature]:
    function = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look"}
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "marker"}}
    ends: Body = {"finish_reason": "tool_calls"}

    def calls(arguments: str, name: str = "look") -> Body:
        return chat(ends, tool_calls=[{**CALL, "function": {"name": name, "arguments": arguments}}])

    return {
        "tool call": ReplyFeature(
            says=replies(
                calls(OBJECT),
                response(spoken(SAID), {**function, "arguments": OBJECT}),
                message(SPOKEN, use, stop_reason="tool_use"),
            ),
            own={
                "chat": {"choices.0.message.tool_calls": [{**CALL, "index": 0}]},
                "responses": {"output.1.call_id": "call_1", "output.1.arguments": OBJECT},
                "messages": {"content.1": use},
            },
            aside=("choices.0.finish_reason",),
        ),
        "tool call arguments that are not a JSON object": ReplyFeature(
            says=replies(calls(MARK), response(spoken(SAID), {**function, "arguments": MARK})),
            own={
                "chat": {"choices.0.message.tool_calls.0.function.arguments": MARK},
                "responses": {"output.1.arguments": MARK},
            },
            other={
                "messages": {"content.1.input": {"input": MARK}},
            },
            aside=("choices.0.finish_reason",),
            streamed=False,
        ),
        "custom tool call": ReplyFeature(
            says=replies(
                calls(f'{{"input":"{MARK}"}}', "patch"),
                response(
                    spoken(SAID),
                    {
                        "type": "custom_tool_call",
                        "id": "ctc_1",
                        "call_id": "call_1",
                        "name": "patch",
                        "input": MARK,
                    },
                ),
                message(
                    SPOKEN,
                    {**use, "name": "patch", "input": {"input": MARK}},
                    stop_reason="tool_use",
                ),
            ),
            asks={
                "chat": {"tools": [{"type": "custom", "custom": {"name": "patch"}}]},
                "responses": {"tools": [{"type": "custom", "name": "patch"}]},
            },
            own={"responses": {"output.1.type": "custom_tool_call", "output.1.input": MARK}},
            other={
                "chat": {
                    "choices.0.message.tool_calls.0.function": {
                        "name": "patch",
                        "arguments": f'{{"input":"{MARK}"}}',
                    }
                },
                "messages": {"content.1.input": {"input": MARK}},
            },
            aside=("choices.0.finish_reason",),
        ),
        "interleaved pieces of several tool calls": ReplyFeature(
            says=replies(chat(tool_calls=[CALL, {**CALL, "id": "call_2"}])),
            streams={"chat": ALTERNATING},
            own={
                "responses": {"output.1.arguments": OBJECT, "output.2.arguments": OBJECT},
                "messages": {
                    "content.1.input": {"at": "marker"},
                    "content.2.input": {"at": "marker"},
                },
            },
            aside=("choices.0.finish_reason",),
        ),
    }


REPLY_CONTENT: dict[str, ReplyFeature] = {**_said(), **_calls()}
