"""Tool calls and their results in a request."""

from __future__ import annotations

from hashlib import sha256

from tests.unit.inference.formats.features.feature import MARK, RequestFeature
from tests.unit.inference.formats.features.request_parts import (
    CALL,
    CHAT_CALL,
    LONG,
    OUTPUT,
    PATCH,
    PDF,
    RESULTS,
    SAID,
    URL,
    USE,
    model,
    result,
)


def _calls() -> dict[str, RequestFeature]:
    chat_custom = {
        "tool_calls": [
            {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": MARK}}
        ]
    }
    custom = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": MARK}
    picture = {"type": "image", "source": {"type": "url", "url": URL}}
    return {
        "tool call": RequestFeature(
            says=model(CHAT_CALL, CALL, USE),
            beside={"messages": model(messages=SAID)["messages"]},
            own={
                "chat": {"messages.1.tool_calls": CHAT_CALL["tool_calls"]},
                "responses": {"input.1": CALL},
                "messages": {"messages.1.content.0": USE},
            },
            covers=("ToolCall.id", "ToolCall.name", "ToolCall.arguments"),
        ),
        "tool call id with a dot": RequestFeature(
            says=model(
                {"tool_calls": [{**CHAT_CALL["tool_calls"][0], "id": "call.1"}]},
                {**CALL, "call_id": "call.1"},
            ),
            own={
                "chat": {"messages.1.tool_calls.0.id": "call.1"},
                "responses": {"input.1.call_id": "call.1"},
            },
            other={"messages": {"messages.1.content.0.id": "call_1"}},
        ),
        "tool call id of more than 64 characters": RequestFeature(
            says=model(
                {"tool_calls": [{**CHAT_CALL["tool_calls"][0], "id": LONG}]},
                {**CALL, "call_id": LONG},
                {**USE, "id": LONG},
            ),
            own={
                "chat": {"messages.1.tool_calls.0.id": LONG},
                "messages": {"messages.1.content.0.id": LONG},
            },
            other={
                "responses": {"input.1.call_id": f"call_{sha256(LONG.encode()).hexdigest()[:40]}"}
            },
        ),
        "tool call arguments that are not a JSON object": RequestFeature(
            says=model(
                {
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "look", "arguments": MARK},
                        }
                    ]
                },
                {**CALL, "arguments": MARK},
            ),
            own={
                "chat": {"messages.1.tool_calls.0.function.arguments": MARK},
                "responses": {"input.1.arguments": MARK},
            },
            other={"messages": {"messages.1.content.0.input": {"input": MARK}}},
        ),
        "custom tool call": RequestFeature(
            says={
                name: {**PATCH[name], **body} for name, body in model(chat_custom, custom).items()
            },
            beside=PATCH,
            own={"responses": {"input.1": custom}},
            other={
                "chat": {"messages.1.tool_calls.0.function.arguments": f'{{"input":"{MARK}"}}'},
                "messages": {"messages.1.content.0.input": {"input": MARK}},
            },
        ),
        "tool result": RequestFeature(
            says=result(MARK, MARK, {"content": MARK}),
            own={
                "chat": {"messages.-1.role": "tool", "messages.-1.content": MARK},
                "responses": {"input.-1": {**OUTPUT, "output": MARK}},
                "messages": {
                    "messages.-1.content.0.tool_use_id": "call_1",
                    "messages.-1.content.0.content.0.text": MARK,
                },
            },
            covers=("ToolResult.call_id", "ToolResult.content"),
        ),
        "image in a tool result": RequestFeature(
            says=result(
                [{"type": "image_url", "image_url": {"url": URL}}],
                [{"type": "input_image", "image_url": URL}],
                {"content": [picture]},
            ),
            own={
                "responses": {"input.-1.output.0": {"type": "input_image", "image_url": URL}},
                "messages": {"messages.-1.content.0.content.0": picture},
            },
            other={
                "chat": {
                    "messages.-1.role": "user",
                    "messages.-1.content.0.image_url.url": URL,
                }
            },
        ),
        "document in a tool result": RequestFeature(
            says=result(
                [{"type": "file", "file": {"file_data": PDF}}],
                [{"type": "input_file", "file_data": PDF}],
                {
                    "content": [
                        {
                            "type": "document",
                            "source": {
                                "type": "base64",
                                "media_type": "application/pdf",
                                "data": "bWFyaw==",
                            },
                        }
                    ]
                },
            ),
            own={
                "responses": {"input.-1.output.0.file_data": PDF},
                "messages": {"messages.-1.content.0.content.0.source.data": "bWFyaw=="},
            },
            other={
                "chat": {"messages.-1.role": "user", "messages.-1.content.0.file.file_data": PDF}
            },
        ),
        "tool result that is an error": RequestFeature(
            says=result(messages={"content": "seen", "is_error": True}),
            beside=RESULTS,
            own={"messages": {"messages.-1.content.0.is_error": True}},
            covers=("ToolResult.is_error",),
        ),
    }


TOOL_CALLS: dict[str, RequestFeature] = {**_calls()}
