"""Providers of each dialect that lead an agent through two tool calls to a text.

Which turn it is follows from the results in a request, whatever else the agent asks meanwhile. A
call goes to the first offered tool whose name its pattern finds.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.acceptance.wire import said, told
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

_RESULTS = {
    "chat": ("tool_call_id", "content"),
    "responses": ("call_id", "output"),
    "messages": ("tool_use_id", "content"),
}
FINAL = "All is done."


def turns(dialect: str, calls: Sequence[tuple[str, Any]]) -> Callable[[Any], bytes]:
    """Return the answers of a provider: a call after the other, then the text."""

    def answer(body: Any) -> bytes:
        tools, number = offered(body), len(results(dialect, body))
        if number < len(calls) and tools:
            pattern, given = calls[number]
            tool = next((each for each in tools if re.search(pattern, each["name"])), None)
            if tool is None:
                return reply({"error": {"message": f"no {pattern} is offered"}}, 400)
            whole = _calling(dialect, number, tool, given)
            events = streamed(dialect, whole)
            if dialect == "messages":
                # Anthropic sends a signature whole; clients keep its last piece.
                at = [n for n, each in enumerate(events) if "signature" in each.get("delta", {})]
                events[at[-1]]["delta"]["signature"] = f"proof-{number}"
                del events[at[0] : at[-1]]
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


def proofs(body: Any) -> list[str]:
    """Return the proofs of thoughts in a provider's request."""
    return re.findall(r"proof-\d", json.dumps(body))


def _calling(dialect: str, number: int, tool: dict[str, Any], given: Any) -> dict[str, Any]:
    """Return a reply with a thought, which has its proof, a text and a call."""
    said_before, called = said(dialect, "I call a tool."), {"name": tool["name"]}
    call, proof = f"call_{number}", f"proof-{number}"
    arguments = {"input": given} if isinstance(given, str) else given
    match dialect:
        case "chat":
            called |= {"arguments": json.dumps(arguments)}
            calls = [{"index": 0, "id": call, "type": "function", "function": called}]
            message = {"reasoning_content": proof, "tool_calls": calls}
            message |= said_before["choices"][0]["message"]
            return said("chat", "", message=message, finish_reason="tool_calls")
        case "messages":
            thought = {"type": "thinking", "thinking": "A note.", "signature": proof}
            use = {"type": "tool_use", "id": call, "input": arguments} | called
            blocks = [thought, *said_before["content"], use]
            return said_before | {"content": blocks, "stop_reason": "tool_use"}
    thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": proof}
    called |= {"call_id": call, "status": "completed"}
    if tool.get("type") == "custom":
        called |= {"type": "custom_tool_call", "id": f"ctc_{number}", "input": given}
    else:
        called |= {"type": "function_call", "id": f"fc_{number}", "arguments": json.dumps(given)}
    return said_before | {"output": [thought, *said_before["output"], called]}
