"""Has kept replies in Anthropic's format read by the `anthropic` library's types, strictly.

These take null wherever a field is optional, and other published clients do not: what a block lacks
is left out. Environment: as `replies`.
"""

import json

from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from replies import Parser, check_replies

EVENT = TypeAdapter(RawMessageStreamEvent)
NEVER_NULL = ("citations", "caller", "toolset_name", "signature", "input")
"""Fields of a block that @ai-sdk/anthropic takes with a value or not at all."""


def check_block(block: dict) -> None:
    null = [name for name in NEVER_NULL if name in block and block[name] is None]
    if null:
        message = f"null in a block's {null}"
        raise ValueError(message)


def whole(text: str) -> None:
    Message.model_validate_json(text, strict=True)
    for block in json.loads(text)["content"]:
        check_block(block)


def event(text: str) -> None:
    fields = json.loads(text)
    if fields["type"] == "error":
        assert {"type", "message"} <= fields["error"].keys()
    elif fields["type"] != "ping":
        EVENT.validate_json(text, strict=True)
        check_block(fields.get("content_block", {}))


check_replies({"messages": Parser(whole, event)})
