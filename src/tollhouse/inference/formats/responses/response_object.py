"""The response object before any output: the gateway's identity and the request's parameters.

Source: https://platform.openai.com/docs/api-reference/responses/object; the public gateway's
clients require every key of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.fields import Fields
from tollhouse.inference.formats.raw_json import NULL, raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity

_ECHOED: Final[Mapping[str, Raw]] = {
    "instructions": NULL,
    "max_output_tokens": NULL,
    "max_tool_calls": NULL,
    "metadata": raw({}),
    "temperature": NULL,
    "top_p": NULL,
    "presence_penalty": NULL,
    "frequency_penalty": NULL,
    "parallel_tool_calls": Raw(b"true"),
    "prompt_cache_key": NULL,
    "reasoning": raw({"effort": None, "summary": None}),
    "safety_identifier": NULL,
    "service_tier": NULL,
    "text": raw({"format": {"type": "text"}}),
    "truncation": raw("disabled"),
    "user": NULL,
}
"""Fields that repeat the request's value, with the format's defaults."""
_NO_TOOLS: Final = Raw(b"[]")
_choice = msgspec.json.Decoder(Fields)
_tools = msgspec.json.Decoder(list[Fields])


def blank_response(request: ResponsesRequest, identity: ReplyIdentity) -> dict[str, object]:
    """Return a response without output, with every key that clients require."""
    given = request.fields
    return {
        "id": identity.id,
        "object": "response",
        "created_at": identity.created,
        "completed_at": None,
        "model": identity.model,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        **{
            name: default if given.get(name, NULL) == NULL else given[name]
            for name, default in _ECHOED.items()
        },
        "tool_choice": _echoed_choice(given.get("tool_choice", NULL)),
        "tools": _echoed_tools(given.get("tools", NULL)),
        "background": False,
        "store": False,
        "previous_response_id": None,
    }


def _echoed_choice(given: Raw) -> object:
    """Return the tool choice; the public gateway's clients accept no custom tool here."""
    if given == NULL:
        return "auto"
    try:
        choice = _choice.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return given
    return {**choice, "type": "function"} if choice.get("type") == raw("custom") else choice


def _echoed_tools(given: Raw) -> Raw:
    """Return the tools as raw JSON: a stream renders them three times, and there may be many."""
    try:
        tools = _tools.decode(given)
    except (msgspec.DecodeError, RecursionError):
        # The provider would have rejected them; a failed stream must still be rendered.
        return _NO_TOOLS
    return raw([_echoed_tool(tool) for tool in tools])


def _echoed_tool(tool: Fields) -> Fields:
    if tool.get("type") == raw("function"):
        return {"parameters": NULL, "strict": Raw(b"false"), **tool}
    return tool
