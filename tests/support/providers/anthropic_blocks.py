"""Validates the content blocks of the Anthropic stub, and renders their text for an echo.

Each block is checked alone; `anthropic_requests` checks their order.

Source: https://docs.anthropic.com/en/api/messages (request body, `messages`),
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking (signatures).
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from tests.support.providers.stub_text import (
    Attachment,
    JsonObject,
    attachment_from_base64,
    attachment_from_url,
    is_token,
    join_parts,
    signed,
)

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_IMAGE_TYPES: Final = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_SOURCES: Final = {
    "image": {"base64", "url", "file"},
    "document": {"base64", "text", "content", "url", "file"},
}
_FIELDS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "text": ({"text"}, {"citations"}),
    "image": ({"source"}, {"transformations"}),
    "document": ({"source"}, {"citations", "context", "title"}),
    "search_result": ({"content", "source", "title"}, {"citations"}),
    "thinking": ({"thinking", "signature"}, set()),
    "redacted_thinking": ({"data"}, set()),
    "tool_use": ({"id", "name", "input"}, {"caller", "toolset_name"}),
    "tool_result": ({"tool_use_id"}, {"content", "is_error", "toolset_name"}),
}
"""The required and the optional fields by type."""
_NOT_CACHED: Final = {"thinking", "redacted_thinking"}
_ONLY_FROM: Final = {
    "image": "user",
    "document": "user",
    "search_result": "user",
    "tool_result": "user",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
}
_IN_RESULTS: Final = {"text", "image", "document", "search_result"}


class RejectedMessagesRequest(Exception):
    """The request is invalid; carries the HTTP status and the message."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def check_fields(path: str, given: JsonObject, required: set[str], optional: set[str]) -> None:
    """Reject an object with a missing or an unknown field."""
    for name in sorted(required - given.keys()):
        raise RejectedMessagesRequest(f"{path}.{name}: Field required")
    for name in sorted(given.keys() - required - optional):
        raise RejectedMessagesRequest(f"{path}.{name}: Extra inputs are not permitted")


def check_object(path: str, value: object) -> JsonObject:
    """Return an object; reject any other value."""
    if not isinstance(value, dict):
        raise RejectedMessagesRequest(f"{path}: Input should be a valid dictionary")
    return cast("JsonObject", value)


def check_list(path: str, value: object) -> list[Any]:
    """Return a list; reject any other value."""
    if not isinstance(value, list):
        raise RejectedMessagesRequest(f"{path}: Input should be a valid list")
    return cast("list[Any]", value)


def check_text(path: str, value: object) -> str:
    """Return a string; reject any other value."""
    if not isinstance(value, str):
        raise RejectedMessagesRequest(f"{path}: Input should be a valid string")
    return value


def check_content(path: str, role: str, content: object) -> list[JsonObject]:
    """Return a message's blocks; a string is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = check_list(path, content)
    return [check_block(f"{path}.{at}", role, block) for at, block in enumerate(blocks)]


def check_block(path: str, role: str, value: object) -> JsonObject:
    """Return a block that matches the published schema and the role of its message."""
    block = check_object(path, value)
    kind = block.get("type")
    if kind not in _FIELDS:
        known = ", ".join(f"'{each}'" for each in _FIELDS)
        raise RejectedMessagesRequest(
            f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected "
            f"tags: {known}"
        )
    if _ONLY_FROM.get(kind, role) != role:
        raise RejectedMessagesRequest(
            f"{path}: `{kind}` blocks can only be in `{_ONLY_FROM[kind]}` messages"
        )
    required, optional = _FIELDS[kind]
    cached = set[str]() if kind in _NOT_CACHED else {"cache_control"}
    check_fields(f"{path}.{kind}", block, required | {"type"}, optional | cached)
    _check_inside(path, kind, block)
    return block


def _check_inside(path: str, kind: str, block: JsonObject) -> None:
    if kind == "text":
        _check_said(check_text(f"{path}.text.text", block["text"]))
    elif kind in _SOURCES:
        echoed_source(path, kind, block["source"])
    elif kind == "thinking":
        if block["signature"] != signed("sig", check_text(path, block["thinking"])):
            raise RejectedMessagesRequest(f"{path}: Invalid `signature` in `thinking` block")
    elif kind == "redacted_thinking":
        if not is_token("redacted", block["data"]):
            raise RejectedMessagesRequest(f"{path}: Invalid `data` in `redacted_thinking` block")
    elif kind == "tool_use":
        check_object(f"{path}.tool_use.input", block["input"])
        _check_id(f"{path}.tool_use.id", block["id"])
    elif kind == "tool_result":
        _check_id(f"{path}.tool_result.tool_use_id", block["tool_use_id"])
        _check_result(f"{path}.tool_result.content", block)


def _check_said(text: str) -> None:
    if not text:
        raise RejectedMessagesRequest("messages: text content blocks must be non-empty")
    if not text.strip():
        raise RejectedMessagesRequest(
            "messages: text content blocks must contain non-whitespace text"
        )


def _check_id(path: str, value: object) -> None:
    if not _ID.fullmatch(check_text(path, value)):
        raise RejectedMessagesRequest(f"{path}: String should match pattern '^[a-zA-Z0-9_-]+$'")


def _check_result(path: str, block: JsonObject) -> None:
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    for at, each in enumerate(check_list(path, content)):
        kind = check_object(f"{path}.{at}", each).get("type")
        if kind not in _IN_RESULTS:
            raise RejectedMessagesRequest(
                f"{path}.{at}: Input tag '{kind}' is not expected in a tool result"
            )
        check_block(f"{path}.{at}", "user", each)


# --------------------------------------------------------------------------------- echoed text


def echoed_source(path: str, kind: str, value: object) -> Attachment:
    """Return the text by which an echo acknowledges an image or a document."""
    source = check_object(f"{path}.{kind}.source", value)
    how = source.get("type")
    at = f"{path}.{kind}.source.{how}"
    if how not in _SOURCES[kind]:
        raise RejectedMessagesRequest(
            f"{path}.{kind}.source: Input tag '{how}' does not match any expected tag"
        )
    if how == "base64":
        check_fields(at, source, {"type", "media_type", "data"}, set())
        allowed = _IMAGE_TYPES if kind == "image" else {"application/pdf"}
        if source["media_type"] not in allowed:
            expected = " or ".join(f"'{each}'" for each in sorted(allowed))
            raise RejectedMessagesRequest(f"{at}.media_type: Input should be {expected}")
        return _attached(at, kind, source)
    if how == "text":
        check_fields(at, source, {"type", "media_type", "data"}, set())
        size = len(check_text(f"{at}.data", source["data"]).encode())
        return Attachment(f"[{kind} {source['media_type']} {size} bytes]")
    name = {"url": "url", "file": "file_id", "content": "content"}[str(how)]
    check_fields(at, source, {"type", name}, set())
    if how == "url" and not str(source["url"]).startswith(("https://", "http://")):
        raise RejectedMessagesRequest(f"{at}.url: Only HTTP(S) URLs are supported.")
    return (
        Attachment(f"[{kind} content]")
        if how == "content"
        else attachment_from_url(kind, str(source[name]))
    )


def _attached(path: str, kind: str, source: JsonObject) -> Attachment:
    data = check_text(f"{path}.data", source["data"])
    try:
        return attachment_from_base64(kind, source["media_type"], data)
    except ValueError as wrong:
        raise RejectedMessagesRequest(f"{path}.data: {wrong}") from None


def echoed_text(block: JsonObject) -> str:
    """Return the text of a block in an echo; empty for reasoning and tool calls."""
    match block["type"]:
        case "text":
            return block["text"]
        case "image" | "document":
            return echoed_source("", block["type"], block["source"])
        case "search_result":
            return Attachment(f"[search_result {block['source']}]")
        case "tool_result":
            content = block.get("content") or ""
            text = (
                content
                if isinstance(content, str)
                else join_parts(echoed_text(each) for each in content)
            )
            return f"[error] {text}" if block.get("is_error") else text
        case _:
            return ""
