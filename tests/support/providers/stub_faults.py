"""Behaviours that every stub has: slow, cut, failing and fixed responses.

`openai_upstream` describes them by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tests.support.providers.byte_script import End, Pause
from tests.support.providers.framing import EVENTS, JSON, Framing
from tests.support.providers.stub_text import CHUNKS, PIECES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.support.providers.byte_script import Script


class StubReply(Protocol):
    """A response in a provider's dialect."""

    def body(self) -> bytes: ...

    def events(self) -> list[bytes]:
        """Return the events of the stream, from the first to the last."""
        ...


class StubExchange(Protocol):
    """A checked request and the responses of its dialect."""

    framing: Framing
    model: str
    streams: bool

    def echo(self) -> StubReply: ...

    def say(self, pieces: Sequence[str]) -> StubReply: ...

    def error(self, status: int, extra: str = "") -> bytes:
        """Return an error response; `extra` holds further header lines."""
        ...


def render_answer(exchange: StubExchange, reply: StubReply) -> Script:
    """Return a response as the request wants it, complete or streamed."""
    if exchange.streams:
        return exchange.framing.stream(reply.events())
    return (exchange.framing.whole(200, reply.body()),)


def _echoed(exchange: StubExchange) -> Script:
    return render_answer(exchange, exchange.echo())


def _slow_head(exchange: StubExchange, seconds: str) -> Script:
    return (Pause(float(seconds)), *_echoed(exchange))


def _slow_chunks(exchange: StubExchange, milliseconds: str) -> Script:
    pause = float(milliseconds) / 1000
    reply = exchange.say(PIECES)
    if not exchange.streams:
        return (Pause(CHUNKS * pause), exchange.framing.whole(200, reply.body()))
    return exchange.framing.stream(reply.events(), pause_seconds=pause)


def _drip(exchange: StubExchange, milliseconds: str) -> Script:
    body = b"".join(exchange.echo().events())
    drops = [body[at : at + 1] for at in range(len(body))]
    return exchange.framing.stream(drops, pause_seconds=float(milliseconds) / 1000)


def _hang(_exchange: StubExchange) -> Script:
    return (End.HANG,)


def _status(exchange: StubExchange, status: str, *options: str) -> Script:
    values = [option.removeprefix("retry=") for option in options if option.startswith("retry=")]
    extra = "".join(f"Retry-After: {value}\r\n" for value in values)
    return (exchange.error(int(status), extra),)


def _garbage(exchange: StubExchange) -> Script:
    if exchange.streams:
        return exchange.framing.stream([b"data: {this is not JSON\n\n"])
    return (exchange.framing.whole(200, b"this is not JSON"),)


def _html_502(exchange: StubExchange) -> Script:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return (exchange.framing.whole(502, page, "text/html"),)


def _cut(exchange: StubExchange, size: str, how: str) -> Script:
    reply = exchange.echo()
    if exchange.streams:
        return exchange.framing.cut(reply.events(), EVENTS, int(size), how)
    return exchange.framing.cut([reply.body()], JSON, int(size), how)


def edited(edit: Callable[[list[bytes]], Iterable[bytes]]) -> Callable[[StubExchange], Script]:
    """Return a behaviour that edits the events of an echo; complete responses stay unchanged."""

    def behave(exchange: StubExchange) -> Script:
        if not exchange.streams:
            return _echoed(exchange)
        return exchange.framing.stream(edit(exchange.echo().events()))

    return behave


def _with_comments(events: list[bytes]) -> list[bytes]:
    return [part for event in events for part in (b": keep-alive\n\n", event)]


FAULTS: Final[dict[str, Callable[..., Script]]] = {
    "echo": _echoed,
    "slow-head": _slow_head,
    "slow-chunks": _slow_chunks,
    "drip": _drip,
    "hang": _hang,
    "status": _status,
    "garbage": _garbage,
    "html-502": _html_502,
    "cut": _cut,
    "comments": edited(_with_comments),
    "crlf": edited(lambda events: [event.replace(b"\n", b"\r\n") for event in events]),
}


def respond(
    exchange: StubExchange, behaviours: dict[str, Callable[..., Script]], unknown: bytes
) -> Script:
    """Return the script of a request; `unknown` is the response where no behaviour has its name."""
    found = behaviour_of(exchange.model, behaviours)
    if found is None:
        return (unknown,)
    behave, options = found
    try:
        return behave(exchange, *options)
    except (TypeError, ValueError):
        return (unknown,)  # the behaviour takes other options


def behaviour_of(
    model: str, behaviours: dict[str, Callable[..., Script]]
) -> tuple[Callable[..., Script], list[str]] | None:
    """Return the behaviour and the options of a model name; `*-2026` is an echo."""
    name, *options = model.split(":")
    if name in behaviours:
        return behaviours[name], options
    return (behaviours["echo"], []) if model.endswith("-2026") else None
