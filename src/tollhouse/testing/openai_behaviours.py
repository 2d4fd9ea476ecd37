"""What the stand-in for OpenAI does for each model name; `openai_upstream` lists the names.

A token is a word (a run of characters without white space), so a test can count on its fingers.

Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.testing.openai_replies import (
    DONE,
    EVENTS,
    JSON,
    JsonObject,
    Reply,
    chunk,
    chunked_head,
    error,
    error_body,
    stream,
    usage_of,
    whole,
)
from tollhouse.testing.script import End, Pause, Script, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

CHUNKS: Final = 50
HUGE_BYTES: Final = 1_048_576
RST_AFTER_SECONDS: Final = 0.05
"""A reset overtakes what was written just before it; the pause lets the client read that."""

_FIXED_WORD: Final = "tollhouse-benchmark "
_PIECE: Final = re.compile(r"\s*\S+(?:\s+$)?")


class _Refused(Exception):
    """The request is wrong; carries the reply."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.reply = error(400, message, param)


class _Request:
    """A request that passed OpenAI's checks."""

    def __init__(self, body: object) -> None:
        if not isinstance(body, dict):
            raise _Refused("We could not parse the JSON body of your request.")
        fields = self.fields = cast("JsonObject", body)
        if not isinstance(fields.get("model"), str):
            raise _Refused("you must provide a model parameter")
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages:
            raise _Refused("Missing required parameter: 'messages'.", "messages")
        self.model: str = fields["model"]
        self.messages = [cast("JsonObject", m) for m in cast("list[Any]", messages)]
        if not all(isinstance(message, dict) for message in self.messages):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _Refused("Invalid type for 'messages[0]': expected an object.", "messages")
        self.streams = fields.get("stream") is True
        options: JsonObject | None = fields.get("stream_options")
        if options is not None and not self.streams:
            message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
            raise _Refused(message, "stream_options")
        self.include_usage = bool(options and options.get("include_usage"))

    def events(self, reply: Reply) -> list[bytes]:
        """Return all events of the streamed reply."""
        return [*reply.events(include_usage=self.include_usage), DONE]

    def answer(self, reply: Reply) -> Script:
        """Return the reply as the request wants it, whole or streamed."""
        if self.streams:
            return stream(self.events(reply))
        return (whole(200, reply.completion()),)


Behaviour = Callable[..., Script]
"""Takes the request and the options from the model's name."""


# ------------------------------------------------------------------------- what the model says


def _text(message: JsonObject) -> str:
    content: str | list[JsonObject] | None = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part.get("type") == "text")


def _echo(request: _Request) -> Reply:
    said = [m for m in request.messages if m.get("role") in {"user", "tool"}]
    pieces: list[str] = _PIECE.findall(_text(said[-1]) if said else "")
    fields = request.fields
    limit: int = fields.get("max_completion_tokens") or fields.get("max_tokens") or len(pieces)
    prompt = sum(len(_text(message).split()) for message in request.messages)
    return Reply(
        request.model,
        tuple(pieces[:limit]),
        usage_of(prompt, len(pieces[:limit])),
        finish_reason="stop" if limit >= len(pieces) else "length",
    )


def _fixed(model: str) -> Reply:
    return Reply(model, (_FIXED_WORD,) * CHUNKS, usage_of(100, CHUNKS))


def _called(request: _Request) -> Reply:
    if request.messages[-1].get("role") == "tool":
        return _echo(request)
    tools: list[JsonObject] = request.fields.get("tools") or [{"function": {"name": "get_weather"}}]
    name: str = tools[0]["function"]["name"]
    pieces = ('{"ci', 'ty": "Pa', 'ris"}')
    return Reply(request.model, pieces, usage_of(20, 8), finish_reason="tool_calls", tool=name)


# ----------------------------------------------------------------------------- good behaviours


def _echoed(request: _Request) -> Script:
    return request.answer(_echo(request))


def _echoed_with(usage: JsonObject | None) -> Behaviour:
    def behave(request: _Request) -> Script:
        return request.answer(Reply(request.model, _echo(request).pieces, usage))

    return behave


def _tools(request: _Request) -> Script:
    return request.answer(_called(request))


def _huge_event(request: _Request, size: str = str(HUGE_BYTES)) -> Script:
    return request.answer(Reply(request.model, ("x" * int(size),), usage_of(1, 1)))


def _benchmark(request: _Request) -> Script:
    return _precomputed(streams=request.streams, include_usage=request.include_usage)


@lru_cache(maxsize=4)
def _precomputed(*, streams: bool, include_usage: bool) -> Script:
    reply = _fixed("fixed")
    if not streams:
        return (whole(200, reply.completion()),)
    steps = stream([*reply.events(include_usage=include_usage), DONE])
    return (b"".join(step for step in steps if isinstance(step, bytes)),)


# ----------------------------------------------------------------------------- slow behaviours


def _slow_head(request: _Request, seconds: str) -> Script:
    return (Pause(float(seconds)), *_echoed(request))


def _slow_chunks(request: _Request, milliseconds: str) -> Script:
    reply = _fixed(request.model)
    if not request.streams:
        return request.answer(reply)
    return stream(request.events(reply), pause_seconds=float(milliseconds) / 1000)


def _drip(request: _Request, milliseconds: str) -> Script:
    data = b"".join(request.events(_echo(request)))
    pieces = (data[at : at + 1] for at in range(len(data)))
    return stream(pieces, pause_seconds=float(milliseconds) / 1000)


def _hang(_request: _Request) -> Script:
    return (End.HANG,)


# ----------------------------------------------------------------------------- failures


def _status(_request: _Request, status: str, *options: str) -> Script:
    values = [option.removeprefix("retry=") for option in options if option.startswith("retry=")]
    extra = "".join(f"Retry-After: {value}\r\n" for value in values)
    return (error(int(status), extra=extra),)


def _garbage(request: _Request) -> Script:
    if request.streams:
        return stream([b"data: {this is not JSON\n\n"])
    return (whole(200, b"this is not JSON"),)


def _html_502(_request: _Request) -> Script:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return (whole(502, page, "text/html"),)


def _error_in_stream(request: _Request) -> Script:
    if not request.streams:
        return (error(500),)
    events = request.events(_echo(request))[:3]
    return stream([*events, b"data: %b\n\n" % error_body(500)])


def _cut(request: _Request, size: str, how: str) -> Script:
    reply = _echo(request)
    events = request.events(reply) if request.streams else [reply.completion()]
    kind = EVENTS if request.streams else JSON
    counted = how == "short" or (how == "rst" and not request.streams)
    steps = (
        _cut_counted(events, kind, int(size)) if counted else _cut_chunked(events, kind, int(size))
    )
    return (*steps, Pause(RST_AFTER_SECONDS), End.RST) if how == "rst" else (*steps, End.EOF)


def _cut_counted(events: list[bytes], kind: str, left: int) -> Script:
    body = b"".join(events)
    head = whole(200, body, kind).removesuffix(body)
    return (head + body[:left],)


def _cut_chunked(events: list[bytes], kind: str, left: int) -> Script:
    """Return chunks up to the cut, which may lie inside of one."""
    steps: list[Step] = [chunked_head(kind)]
    for event in events:
        if left <= 0:
            break
        frame = chunk(event)
        steps.append(frame if left >= len(event) else frame[: frame.index(b"\n") + 1 + left])
        left -= len(event)
    return tuple(steps)


def _edited(edit: Callable[[list[bytes]], Iterable[bytes]]) -> Behaviour:
    """Return a behaviour that changes the events of an echo; a whole reply stays as it is."""

    def behave(request: _Request) -> Script:
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
        body: The decoded JSON of the request; anything that is no valid request is refused.
    """
    try:
        request = _Request(body)
    except _Refused as refused:
        return (refused.reply,)
    name, *options = request.model.split(":")
    unknown = f"The model `{request.model}` does not exist or you do not have access to it."
    if name not in BEHAVIOURS:
        return (error(404, unknown),)
    try:
        return BEHAVIOURS[name](request, *options)
    except (TypeError, ValueError):
        return (error(404, unknown),)  # options that the behaviour does not have
