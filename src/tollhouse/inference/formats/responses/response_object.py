"""The response object around what the model said: our identity, and what the request asked for.

Source: https://platform.openai.com/docs/api-reference/responses/object; the public gateway's
clients need every key of these.
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
"""What the request asked for, or the format's default."""
_NO_TOOLS: Final = Raw(b"[]")
_choice = msgspec.json.Decoder(Fields)
_tools = msgspec.json.Decoder(list[Fields])


def blank_response(request: ResponsesRequest, identity: ReplyIdentity) -> dict[str, object]:
    """Return a response in which nothing has been said yet, with every key that clients need."""
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
    """Return a tool choice; the public gateway's clients know no custom tool here."""
    if given == NULL:
        return "auto"
    try:
        choice = _choice.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return given
    return {**choice, "type": "function"} if choice.get("type") == raw("custom") else choice


def _echoed_tools(given: Raw) -> Raw:
    """Return the tools as JSON: a stream writes them three times, and there may be many."""
    try:
        tools = _tools.decode(given)
    except (msgspec.DecodeError, RecursionError):
        # The provider would have refused them; a stream that breaks can still say so.
        return _NO_TOOLS
    return raw([_echoed_tool(tool) for tool in tools])


def _echoed_tool(tool: Fields) -> Fields:
    if tool.get("type") == raw("function"):
        return {"parameters": NULL, "strict": Raw(b"false"), **tool}
    return tool
