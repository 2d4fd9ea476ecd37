"""What stubs do, by the name of the model; `openai_upstream` describes each.

A behaviour gets the exchange and the options that its name has, and returns a script.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tests.support.providers import chat_renderer, messages_renderer
from tests.support.providers.byte_script import End, Pause, Script
from tests.support.providers.framing import EVENTS, JSON
from tests.support.providers.stub_reply import CACHED, Call, Renderer, Said, StubRequest, Used
from tests.support.providers.stub_text import (
    CHUNKS,
    PIECES,
    REFUSAL,
    THOUGHT,
    arguments,
    before_stop_sequence,
    example,
    pieces,
    words,
)

CHAT_CALL: Final = '{"city": "Paris"}'


@dataclass(frozen=True)
class Exchange:
    """A checked request, and what writes its responses."""

    request: StubRequest
    renderer: Renderer

    def said(
        self, text: str = "", calls: tuple[Call, ...] = (), *, thought: str = "", **more: Any
    ) -> Said:
        """Return a text within the limits of the request, or calls."""
        asked, thinking = self.request, words(thought)
        text, sequence = before_stop_sequence(text, asked.stops)
        listed = pieces(text)
        limit = len(listed) if asked.limit is None else max(asked.limit - thinking, 0)
        if cut := len(listed) > limit:
            text, sequence = "".join(listed[:limit]), None
        output = words(text) + thinking + sum(call.tokens for call in calls)
        used = Used(asked.input_tokens(), output, thinking)
        if calls and self.renderer is chat_renderer:
            used = Used(20, 8)
        shown = {"shown": asked.shows_thought, "sealed": bool(thought) and asked.seals_thought}
        return Said(
            asked.fields,
            used,
            text,
            thought=thought,
            calls=calls,
            cut=cut,
            sequence=sequence,
            **shown | more,
        )

    def echo(self, **more: Any) -> Said:
        return self.said(self.request.last_said(), **more)

    def answer(self, said: Said) -> Script:
        """Return a response as the request wants it, whole or streamed."""
        if self.request.streams:
            return self.renderer.framing.stream(self.renderer.events(said))
        return (self.renderer.framing.whole(200, self.renderer.whole(said)),)


Behaviour = Callable[..., Script]

# ---------------------------------------------------------------------------------- what is said


def _echo(exchange: Exchange) -> Script:
    return exchange.answer(exchange.echo())


def _called(count: int, *, custom: bool = False) -> Behaviour:
    """Return a behaviour that calls the first tools, or the forced one, and echoes results."""

    def behave(exchange: Exchange) -> Script:
        asked = exchange.request
        tools = [tool for tool in asked.tools if tool.custom == custom]
        if asked.has_results() or not tools or not asked.may_call:
            return _echo(exchange)
        forced = [tool for tool in tools if tool.name == asked.forced_tool]
        calls: list[Call] = []
        for tool in (forced or tools)[: count if asked.parallel else 1]:
            text = msgspec.json.encode(arguments(tool.schema)).decode()
            if count == 1 and exchange.renderer is chat_renderer:
                text = CHAT_CALL
            calls.append(Call(tool.name, asked.last_said() if custom else text, custom))
        thought = THOUGHT if asked.thinks else ""
        return exchange.answer(exchange.said("", tuple(calls), thought=thought))

    return behave


def _thinking(exchange: Exchange) -> Script:
    return exchange.answer(exchange.echo(thought=THOUGHT if exchange.request.thinks else ""))


def _redacted(exchange: Exchange) -> Script:
    thinks = exchange.request.thinks
    return exchange.answer(exchange.echo(thought=THOUGHT if thinks else "", sealed=thinks))


def _reasoning(exchange: Exchange) -> Script:
    return exchange.answer(exchange.echo(thought=THOUGHT))


def _refusal(exchange: Exchange) -> Script:
    return exchange.answer(exchange.said(REFUSAL, refuses=True))


def _json(exchange: Exchange) -> Script:
    schema = exchange.request.schema()
    if schema is None:
        return _echo(exchange)
    return exchange.answer(exchange.said(msgspec.json.encode(example(schema)).decode()))


def _cached(exchange: Exchange) -> Script:
    fields = exchange.request.fields
    return exchange.answer(Said(fields, CACHED, exchange.echo().text))


# -------------------------------------------------------------------------------- what goes wrong


def _slow_head(exchange: Exchange, seconds: str) -> Script:
    return (Pause(float(seconds)), *_echo(exchange))


def _slow_chunks(exchange: Exchange, milliseconds: str) -> Script:
    pause, renderer = float(milliseconds) / 1000, exchange.renderer
    said = Said(exchange.request.fields, Used(100, CHUNKS), "".join(PIECES))
    if not exchange.request.streams:
        return (Pause(CHUNKS * pause), renderer.framing.whole(200, renderer.whole(said)))
    return renderer.framing.stream(renderer.events(said), pause_seconds=pause)


def _drip(exchange: Exchange, milliseconds: str) -> Script:
    body = b"".join(exchange.renderer.events(exchange.echo()))
    drops = [body[at : at + 1] for at in range(len(body))]
    return exchange.renderer.framing.stream(drops, pause_seconds=float(milliseconds) / 1000)


def _hang(_exchange: Exchange) -> Script:
    return (End.HANG,)


def _status(exchange: Exchange, status: str, *options: str) -> Script:
    values = [option.removeprefix("retry=") for option in options if option.startswith("retry=")]
    extra = "".join(f"Retry-After: {value}\r\n" for value in values)
    return (exchange.renderer.error(int(status), extra=extra),)


def _garbage(exchange: Exchange) -> Script:
    if exchange.request.streams:
        return exchange.renderer.framing.stream([b"data: {this is not JSON\n\n"])
    return (exchange.renderer.framing.whole(200, b"this is not JSON"),)


def _html_502(exchange: Exchange) -> Script:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return (exchange.renderer.framing.whole(502, page, "text/html"),)


def _cut(exchange: Exchange, size: str, how: str) -> Script:
    said, renderer = exchange.echo(), exchange.renderer
    if exchange.request.streams:
        return renderer.framing.cut(renderer.events(said), EVENTS, int(size), how)
    return renderer.framing.cut([renderer.whole(said)], JSON, int(size), how)


def _error_in_stream(exchange: Exchange) -> Script:
    """Fail after the first piece of the text, or before the whole of it."""
    said, renderer = exchange.echo(), exchange.renderer
    if not exchange.request.streams:
        return (renderer.error(500),)
    events = renderer.events(said)
    first = msgspec.json.encode(pieces(said.text)[0])
    end = next(at for at, event in enumerate(events) if first in event) + 1
    return renderer.framing.stream([*events[:end], renderer.failure(said, end)])


def _edited(edit: Callable[[list[bytes]], Iterable[bytes]]) -> Behaviour:
    """Return a behaviour that edits the events of an echo; whole responses stay unchanged."""

    def behave(exchange: Exchange) -> Script:
        if not exchange.request.streams:
            return _echo(exchange)
        events = exchange.renderer.events(exchange.echo())
        return exchange.renderer.framing.stream(edit(events))

    return behave


BEHAVIOURS: Final[dict[str, Behaviour]] = {
    "echo": _echo,
    "cached": _cached,
    "tools": _called(1),
    "two-tools": _called(2),
    "custom": _called(1, custom=True),
    "reasoning": _reasoning,
    "reasoning-details": _reasoning,
    "thinking": _thinking,
    "redacted": _redacted,
    "refusal": _refusal,
    "json": _json,
    "slow-head": _slow_head,
    "slow-chunks": _slow_chunks,
    "drip": _drip,
    "hang": _hang,
    "status": _status,
    "overloaded": lambda exchange: _status(exchange, "529"),
    "garbage": _garbage,
    "html-502": _html_502,
    "cut": _cut,
    "error-in-stream": _error_in_stream,
    "comments": _edited(lambda events: [b": keep-alive\n\n" + event for event in events]),
    "crlf": _edited(lambda events: [event.replace(b"\n", b"\r\n") for event in events]),
    "duplicate-done": _edited(lambda events: [*events, events[-1]]),
    "no-done": _edited(lambda events: events[:-1]),
    "no-stop": _edited(lambda events: events[:-1]),
    "no-finish": _edited(lambda events: [event for event in events if b'"content"' in event]),
    "ping": _edited(lambda events: [event + messages_renderer.PING for event in events]),
}


def respond(exchange: Exchange) -> Script:
    """Return the script of a request, or an error where no behaviour has its model's name."""
    unknown = (exchange.renderer.unknown(exchange.request.model),)
    found = behaviour_of(exchange.request.model)
    if found is None:
        return unknown
    behave, options = found
    try:
        return behave(exchange, *options)
    except (TypeError, ValueError):
        return unknown  # the behaviour takes other options


def behaviour_of(model: str) -> tuple[Behaviour, list[str]] | None:
    """Return the behaviour and the options of a model name; `*-2026` is an echo."""
    name, *options = model.split(":")
    if name in BEHAVIOURS:
        return BEHAVIOURS[name], options
    return (_echo, []) if model.endswith("-2026") else None
