"""Providers of each dialect that lead an agent through two tool calls to a text.

Which turn it is follows from the results in a request, whatever else the agent asks meanwhile. A
call goes to the first offered tool whose name its pattern finds.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.acceptance.wire import calling, said, told
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Call = tuple[str, dict[str, Any] | str]
"""A pattern of the tool's name, and the arguments, or the text for a tool that takes one."""

_RESULTS = {
    "chat": ("tool_call_id", "content"),
    "responses": ("call_id", "output"),
    "messages": ("tool_use_id", "content"),
}
FINAL = "All is done."


def turns(dialect: str, calls: Sequence[Call]) -> Callable[[Any], bytes]:
    """Return the answers of a provider: a call after the other, then the text."""

    def answer(body: Any) -> bytes:
        tools, number = offered(body), len(results(dialect, body))
        if number < len(calls) and tools:
            pattern, given = calls[number]
            tool = next((each for each in tools if re.search(pattern, each["name"])), None)
            if tool is None:
                return reply({"error": {"message": f"no {pattern} is offered"}}, 400)
            whole = _calling(dialect, f"call_{number}", tool, given)
            events = streamed(dialect, whole)
        else:
            whole, events = said(dialect, FINAL), told(dialect, FINAL)
        streams = body.get("stream")
        return stream(*events, done=dialect == "chat") if streams else reply(whole)

    return answer


def offered(body: Any) -> list[dict[str, Any]]:
    """Return the tools in a provider's request, those of namespaces and input items too."""
    return [
        each
        for each in _objects([body.get("tools"), body.get("input")])
        if isinstance(each.get("name"), str)
        and (each.keys() & {"parameters", "input_schema"} or each.get("type") == "custom")
    ]


def results(dialect: str, body: Any) -> dict[str, str]:
    """Return what the tools said, by call, where the dialect has it."""
    call, content = _RESULTS[dialect]
    where = _objects(body["input" if dialect == "responses" else "messages"])
    return {
        each[call]: json.dumps(each[content]) for each in where if {call, content} <= each.keys()
    }


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from _objects(each)


def _calling(dialect: str, call: str, tool: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return a reply with a text before a call."""
    text, name = "I call a tool.", tool["name"]
    if tool.get("type") == "custom":
        before = said(dialect, text)
        item = {"type": "custom_tool_call", "id": f"ctc_{call}", "call_id": call, "input": given}
        return before | {"output": [*before["output"], item | {"name": name}]}
    arguments = {"input": given} if isinstance(given, str) else given
    return calling(dialect, (call, name, arguments), text=text)
