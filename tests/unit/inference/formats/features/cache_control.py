"""Cache breakpoints of a request."""

from __future__ import annotations

from typing import Any

from tests.unit.inference.formats.features.feature import Body, Places, RequestFeature
from tests.unit.inference.formats.features.request_parts import (
    ALL,
    CACHE,
    PDF,
    RESULTS,
    TOOL,
    URL,
    USE,
    fields,
    model,
    result,
    user,
)


def _cache_marks() -> dict[str, RequestFeature]:
    chat_tool = TOOL["chat"]["tools"][0]
    image = {"type": "image_url", "image_url": {"url": URL}}
    file = {"type": "file", "file": {"file_data": PDF}}
    source = {"type": "url", "url": URL}
    part: Places = {"messages.0.content.0.cache_control": CACHE}

    def marked(*parts: Any) -> dict[str, Body]:
        return user(*[each and {**each, "cache_control": CACHE} for each in parts])

    text = ({"type": "text", "text": "x"}, {"type": "input_text", "text": "x"})
    pictures = (
        image,
        {"type": "input_image", "image_url": URL},
        {"type": "image", "source": source},
    )
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "bWFyaw=="}
    documents = (
        file,
        {"type": "input_file", "file_data": PDF},
        {"type": "document", "source": pdf},
    )
    return {
        "`cache_control` on text": RequestFeature(
            says=marked(*text, text[0]),
            beside=user(*text, text[0]),
            own={"messages": part},
            covers=("TextBlock.cache",),
        ),
        "`cache_control` on an image": RequestFeature(
            says=marked(*pictures),
            beside=user(*pictures),
            own={"messages": part},
            covers=("ImageBlock.cache",),
        ),
        "`cache_control` on a document": RequestFeature(
            says=marked(*documents),
            beside=user(*documents),
            own={"messages": part},
            covers=("DocumentBlock.cache",),
        ),
        "`cache_control` on a tool": RequestFeature(
            says={
                "chat": {"tools": [{**chat_tool, "cache_control": CACHE}]},
                **{
                    name: {"tools": [{**TOOL[name]["tools"][0], "cache_control": CACHE}]}
                    for name in ("responses", "messages")
                },
            },
            beside=TOOL,
            own={"messages": {"tools.0.cache_control": CACHE}},
            covers=("ToolDefinition.cache",),
        ),
        "`cache_control` on a tool call": RequestFeature(
            says=model(messages={**USE, "cache_control": CACHE}),
            beside=model(messages=USE),
            covers=("ToolCall.cache",),
        ),
        "`cache_control` on a tool result": RequestFeature(
            says=result(messages={"content": "seen", "cache_control": CACHE}),
            beside=RESULTS,
            covers=("ToolResult.cache",),
        ),
        "`cache_control` on the request": RequestFeature(says=fields(ALL, cache_control=CACHE)),
    }


CACHE_MARKS: dict[str, RequestFeature] = {**_cache_marks()}
