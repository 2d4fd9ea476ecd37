"""The chat behaviours of the OpenAI stub; `openai_upstream` lists the model names.

A token is a word (a run of characters without white space), so that tests can count tokens.

Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.support.providers.byte_script import End, Pause, Script
from tests.support.providers.openai_replies import (
    DONE,
    EVENTS,
    JSON,
    ChatReply,
    JsonObject,
    cut,
    error,
    error_body,
    stream,
    usage_of,
    whole,
)
from tests.support.providers.openai_requests import (
    CheckedChatRequest,
    RejectedChatRequest,
    echoed_text,
)
from tests.support.providers.stub_faults import behaviour_of
from tests.support.providers.stub_text import (
    CHUNKS,
    FIXED_PIECES,
    HUGE_BYTES,
    REFUSAL,
    THOUGHT,
    arguments,
    before_stop_sequence,
    example,
    pieces,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Behaviour = Callable[..., Script]
"""Takes the request and the options from the model's name."""


# ------------------------------------------------------------------------- output


def _echo(request: CheckedChatRequest, **more: Any) -> ChatReply:
    messages = [m for m in request.messages if m.get("role") in {"user", "tool"}]
    return _text_reply(request, echoed_text(messages[-1]) if messages else "", **more)


def _text_reply(
    request: CheckedChatRequest,
    text: str,
    *,
    thought: str = "",
    **more: Any,
) -> ChatReply:
    """Return a text within the limits of the request."""
    listed = pieces(before_stop_sequence(text, request.stops)[0])
    fields = request.fields
    limit: int = fields.get("max_completion_tokens") or fields.get("max_tokens") or len(listed)
    spoken = tuple(listed[:limit])
    prompt = sum(words(echoed_text(message)) for message in request.messages)
    output = sum(len(spoken) + (index > 0) for index in range(request.choices))
    thinking = words(thought)
    return ChatReply(
        request.model,
        spoken,
        usage_of(prompt, output + thinking, reasoning=thinking),
        finish_reason="stop" if limit >= len(listed) else "length",
        thought=thought,
        top_logprobs=request.top_logprobs,
        choices=request.choices,
        **more,
    )


def _fixed(model: str) -> ChatReply:
    return ChatReply(model, FIXED_PIECES, usage_of(100, CHUNKS))


def _called(request: CheckedChatRequest) -> ChatReply:
    if request.messages[-1].get("role") == "tool":
        return _echo(request)
    tools: list[JsonObject] = request.fields.get("tools") or [{"function": {"name": "get_weather"}}]
    name: str = tools[0]["function"]["name"]
    pieces = ('{"ci', 'ty": "Pa', 'ris"}')
    return ChatReply(request.model, pieces, usage_of(20, 8), finish_reason="tool_calls", tool=name)


def _called_twice(request: CheckedChatRequest) -> ChatReply:
    tools: list[JsonObject] = request.fields.get("tools") or []
    results = list(takewhile(lambda m: m.get("role") == "tool", reversed(request.messages)))
    if results or not tools:
        text = " ".join(echoed_text(message) for message in reversed(results))
        return _text_reply(request, text) if results else _echo(request)
    functions: list[JsonObject] = [tool["function"] for tool in tools[:2]]
    calls = tuple((each["name"], _arguments(each)) for each in functions)
    reason = "tool_calls"
    return ChatReply(request.model, (), usage_of(20, 8), finish_reason=reason, calls=calls)


def _arguments(function: JsonObject) -> str:
    return msgspec.json.encode(arguments(function.get("parameters") or {})).decode()


# ----------------------------------------------------------------------------- good behaviours


def _echoed(request: CheckedChatRequest) -> Script:
    return request.answer(_echo(request))


def _echoed_with(usage: JsonObject | None) -> Behaviour:
    def behave(request: CheckedChatRequest) -> Script:
        return request.answer(ChatReply(request.model, _echo(request).pieces, usage))

    return behave


def _tools(request: CheckedChatRequest) -> Script:
    return request.answer(_called(request))


def _two_tools(request: CheckedChatRequest) -> Script:
    return request.answer(_called_twice(request))


def _reasoning(request: CheckedChatRequest) -> Script:
    return request.answer(_echo(request, thought=THOUGHT))


def _reasoning_details(request: CheckedChatRequest) -> Script:
    return request.answer(_echo(request, thought=THOUGHT, details=True))


def _refusal(request: CheckedChatRequest) -> Script:
    return request.answer(_text_reply(request, REFUSAL, refuses=True))


def _json(request: CheckedChatRequest) -> Script:
    schema = request.schema()
    if schema is None:
        return _echoed(request)
    return request.answer(_text_reply(request, msgspec.json.encode(example(schema)).decode()))


def _huge_event(request: CheckedChatRequest, size: str = str(HUGE_BYTES)) -> Script:
    return request.answer(ChatReply(request.model, ("x" * int(size),), usage_of(1, 1)))


def _benchmark(request: CheckedChatRequest) -> Script:
    return _precomputed(streams=request.streams, include_usage=request.include_usage)


@lru_cache(maxsize=4)
def _precomputed(*, streams: bool, include_usage: bool) -> Script:
    reply = _fixed("fixed")
    if not streams:
        return (whole(200, reply.completion()),)
    steps = stream([*reply.events(include_usage=include_usage), DONE])
    return (b"".join(step for step in steps if isinstance(step, bytes)),)


# ----------------------------------------------------------------------------- slow behaviours


def _slow_head(request: CheckedChatRequest, seconds: str) -> Script:
    return (Pause(float(seconds)), *_echoed(request))


def _slow_chunks(request: CheckedChatRequest, milliseconds: str) -> Script:
    reply = _fixed(request.model)
    if not request.streams:
        return request.answer(reply)
    return stream(request.events(reply), pause_seconds=float(milliseconds) / 1000)


def _drip(request: CheckedChatRequest, milliseconds: str) -> Script:
    data = b"".join(request.events(_echo(request)))
    pieces = (data[at : at + 1] for at in range(len(data)))
    return stream(pieces, pause_seconds=float(milliseconds) / 1000)


def _hang(_request: CheckedChatRequest) -> Script:
    return (End.HANG,)


# ----------------------------------------------------------------------------- failures


def _status(_request: CheckedChatRequest, status: str, *options: str) -> Script:
    values = [option.removeprefix("retry=") for option in options if option.startswith("retry=")]
    extra = "".join(f"Retry-After: {value}\r\n" for value in values)
    return (error(int(status), extra=extra),)


def _garbage(request: CheckedChatRequest) -> Script:
    if request.streams:
        return stream([b"data: {this is not JSON\n\n"])
    return (whole(200, b"this is not JSON"),)


def _html_502(_request: CheckedChatRequest) -> Script:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return (whole(502, page, "text/html"),)


def _error_in_stream(request: CheckedChatRequest) -> Script:
    if not request.streams:
        return (error(500),)
    events = request.events(_echo(request))[:3]
    return stream([*events, b"data: %b\n\n" % error_body(500)])


def _cut(request: CheckedChatRequest, size: str, how: str) -> Script:
    reply = _echo(request)
    if request.streams:
        return cut(request.events(reply), EVENTS, int(size), how)
    return cut([reply.completion()], JSON, int(size), how)


def _edited(edit: Callable[[list[bytes]], Iterable[bytes]]) -> Behaviour:
    """Return a behaviour that edits the events of an echo; complete responses stay unchanged."""

    def behave(request: CheckedChatRequest) -> Script:
        if not request.streams:
            return _echoed(request)
        return stream(edit(request.events(_echo(request))))

    return behave


def _with_comments(events: list[bytes]) -> list[bytes]:
    return [part for event in events for part in (b": keep-alive\n\n", event)]


def _without_end(events: list[bytes]) -> list[bytes]:
    return [event for event in events if b'"content"' in event]


BEHAVIOURS: Final[dict[str, Behaviour]] = {
    "echo": _echoed,
    "large-2026": _echoed,
    "fixed": _benchmark,
    "no-usage": _echoed_with(None),
    "zero-usage": _echoed_with(usage_of(0, 0)),
    "cached": _echoed_with(usage_of(2048, 300, cached=1920, reasoning=256)),
    "tools": _tools,
    "two-tools": _two_tools,
    "reasoning": _reasoning,
    "reasoning-details": _reasoning_details,
    "refusal": _refusal,
    "json": _json,
    "huge-event": _huge_event,
    "slow-head": _slow_head,
    "slow-chunks": _slow_chunks,
    "drip": _drip,
    "hang": _hang,
    "status": _status,
    "garbage": _garbage,
    "html-502": _html_502,
    "error-in-stream": _error_in_stream,
    "cut": _cut,
    "duplicate-done": _edited(lambda events: [*events, DONE]),
    "no-done": _edited(lambda events: events[:-1]),
    "no-finish": _edited(_without_end),
    "comments": _edited(_with_comments),
    "crlf": _edited(lambda events: [event.replace(b"\n", b"\r\n") for event in events]),
}


def chat_completion(body: object) -> Script:
    """Return the script of `POST /v1/chat/completions`.

    Args:
        body: The decoded JSON of the request; an invalid one gets an error.
    """
    try:
        request = CheckedChatRequest(body)
    except RejectedChatRequest as refused:
        return (refused.reply,)
    unknown = f"The model `{request.model}` does not exist or you do not have access to it."
    found = behaviour_of(request.model, BEHAVIOURS)
    if found is None:
        return (error(404, unknown),)
    behave, options = found
    try:
        return behave(request, *options)
    except (TypeError, ValueError):
        return (error(404, unknown),)  # the behaviour takes other options
