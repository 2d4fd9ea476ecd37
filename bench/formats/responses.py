"""OpenAI's responses: the request, and how a reply is known to be whole.

No provider of the measurements speaks it.

Source: https://platform.openai.com/docs/api-reference/responses and
https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import Final

import msgspec

from bench.traffic import (
    ANSWER,
    CHUNKS,
    INSTRUCTIONS,
    PIECES,
    QUESTION,
    TEMPERATURE,
    Event,
    Truncated,
    check_text,
    check_usage,
    read_events,
)

PATH: Final = "/v1/responses"

_END = b"data: [DONE]\n\n"
_LEGAL = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    *["response.output_text.delta"] * CHUNKS,
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]
_DELTAS: Final = slice(4, 4 + CHUNKS)


class _Content(msgspec.Struct):
    type: str
    text: str | None = None


class _Item(msgspec.Struct):
    type: str
    content: list[_Content] = []


class _Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cost: float | None = None


class _Response(msgspec.Struct):
    status: str
    output: list[_Item]
    usage: _Usage | None = None


class _Event(msgspec.Struct):
    type: str
    sequence_number: int
    delta: str | None = None
    text: str | None = None
    response: _Response | None = None


_response = msgspec.json.Decoder(_Response)
_event = msgspec.json.Decoder(_Event)


def request_body(model: str, *, stream: bool) -> bytes:
    """Return a request of 2 KB, as the client sends it."""
    content = [{"type": "input_text", "text": QUESTION}]
    body: dict[str, object] = {
        "model": model,
        "instructions": INSTRUCTIONS,
        "input": [{"type": "message", "role": "user", "content": content}],
        "temperature": TEMPERATURE,
        "store": False,
    }
    return msgspec.json.encode(body | {"stream": True} if stream else body)


def check_whole(body: bytes, *, priced: bool) -> None:
    """Accept a whole reply; see `bench.formats.Check`."""
    try:
        response = _response.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Truncated(f"not a response: {error}") from None
    _check(response, ANSWER, priced=priced)


def check_stream(body: bytes, *, priced: bool) -> None:
    """Accept a stream; see `bench.formats.Check`."""
    if not body.endswith(_END):
        raise Truncated("a stream without [DONE] at its end")
    events = [_read(event) for event in read_events(body)[:-1]]
    if [event.type for event in events] != _LEGAL:
        raise Truncated("a stream whose events are not those of one text")
    if [event.sequence_number for event in events] != list(range(len(_LEGAL))):
        raise Truncated("a stream whose events are not numbered one by one")
    check_text(tuple(event.delta for event in events[_DELTAS]), PIECES)
    check_text(events[_DELTAS.stop].text, "".join(PIECES))
    end = events[-1].response
    if end is None:
        raise Truncated("no response at the end")
    _check(end, "".join(PIECES), priced=priced)


def _read(event: Event) -> _Event:
    try:
        read = _event.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Truncated(f"no event of responses: {error}") from None
    if read.type != event.name:
        raise Truncated(f"an event {event.name} that says {read.type}")
    return read


def _check(response: _Response, text: str, *, priced: bool) -> None:
    if response.status != "completed" or response.usage is None:
        raise Truncated("a response that is not completed, or has no usage")
    said = [(item.type, part.type, part.text) for item in response.output for part in item.content]
    check_text(said, [("message", "output_text", text)])
    usage = response.usage
    check_usage(usage.input_tokens, usage.output_tokens, usage.cost, priced=priced)
