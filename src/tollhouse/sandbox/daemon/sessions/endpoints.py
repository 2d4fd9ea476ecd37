"""`/sessions`: conversations with the agent over HTTP; their events are sent as server-sent events.

Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final, cast
from unicodedata import category
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tollhouse.sandbox.daemon.http import RequestError, read_flag, read_number, wait_for_disconnect
from tollhouse.sandbox.daemon.sessions.log import (
    CLIENT_LEFT,
    EventFeed,
    SessionEvent,
    SessionLog,
    Subscriber,
)
from tollhouse.sandbox.daemon.sessions.log_file import LogFailed
from tollhouse.sandbox.daemon.sessions.runs import RunScheduler, error_from_log
from tollhouse.sandbox.daemon.settings import LONGEST_NAME, MOST_INPUT

LARGEST_BODY: Final = 1024 * 1024
"""Bytes."""
MODES: Final = ("self-drive", "manual")
_LISTED: Final = 100
MOST_LISTED: Final = 1000
_LARGEST_NUMBER: Final = 2**53
_MOST_ANSWER: Final = 256 * 1024
COMMENT_SECONDS: Final = 10.0
"""Between two comments that keep the connection alive."""
_COMMENT: Final = b": still here\n\n"
_PAGE: Final = 128
_LAST: Final = frozenset(("question", "run.ended"))
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The body of a request for a run."""

    text: str = field(repr=False)
    mode: str


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """The body of an answer to a question."""

    interaction: str
    answer: str = field(repr=False)


def read_run_request(body: bytes) -> RunRequest:
    """Read a request for a run."""
    fields = _json_object(body)
    text = _text_field(fields.get("input"), "input", MOST_INPUT)
    mode = fields.get("approval_mode", MODES[0])
    if mode not in MODES:
        raise _bad_request(f"approval_mode has to be {' or '.join(MODES)}.")
    return RunRequest(text, mode)


def read_answer_request(body: bytes) -> AnswerRequest:
    """Read an answer."""
    fields = _json_object(body)
    interaction = _text_field(fields.get("interaction"), "interaction", LONGEST_NAME)
    return AnswerRequest(interaction, _text_field(fields.get("answer"), "answer", _MOST_ANSWER))


def read_session(segment: bytes) -> str:
    """Read a session's name from a segment of a path."""
    try:
        name = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise _bad_request("A session's name has to be UTF-8.") from None
    if not 1 <= len(name) <= LONGEST_NAME or "Cc" in map(category, name):
        raise _bad_request(
            f"A session's name has 1 to {LONGEST_NAME} characters, none that controls."
        )
    return name


def _bad_request(message: str) -> RequestError:
    return RequestError(400, message, reason="bad_request")


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise _bad_request("The body has to be JSON.") from None
    if not isinstance(found, dict):
        raise _bad_request("The body has to be an object.")
    return cast("dict[str, Any]", found)


def _text_field(value: object, name: str, longest: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise _bad_request(f"{name} has to be a text of 1 to {longest} characters.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _bad_request(f"{name} has half a character.") from None
    return value


@dataclass(frozen=True, slots=True)
class SessionEndpoints:
    """Serves sessions."""

    log: SessionLog
    runs: RunScheduler

    async def serve(self, request: Request, path: bytes) -> ASGIApp:
        """Answer a request; `path` is what follows `/sessions`, as it was sent."""
        try:
            return await self._serve(request, path.split(b"/")[1:])
        except LogFailed as error:
            raise error_from_log(error) from None
        except RequestError as refused:
            if refused.reason is None:  # of a query's parameter, which files have, too
                raise _bad_request(refused.message) from None
            raise

    async def close(self) -> None:
        """End the run that works, and disconnect clients."""
        await self.runs.close()
        self.log.feed.disconnect()

    async def _serve(self, request: Request, path: list[bytes]) -> ASGIApp:
        match request.method, path:
            case "GET" | "HEAD", []:
                return self._listing(request)
            case "POST", [segment, b"runs"]:
                return await self._begin(request, read_session(segment))
            case "POST", [segment, b"answers"]:
                return await self._answer(request, read_session(segment))
            case "DELETE", [segment, b"runs", b"current"]:
                await self.runs.cancel(read_session(segment))
                return Response(status_code=204)
            case "GET", [segment, b"events"]:
                return self._events(request, read_session(segment))
            case _:
                raise _no_route(path)

    def _listing(self, request: Request) -> Response:
        query = request.query_params
        limit = read_number(query.get("limit"), "limit", default=_LISTED, largest=MOST_LISTED)
        if not self.log.exists():
            return JSONResponse({"data": [], "has_more": False})
        data, has_more = self.log.listed(query.get("after"), limit)
        return JSONResponse({"data": data, "has_more": has_more})

    async def _begin(self, request: Request, session: str) -> ASGIApp:
        prompt = read_run_request(await _body(request))
        run, after = await self.runs.begin(session, prompt.text, prompt.mode)
        if after is None:
            return JSONResponse({"status": "steered", "run": run}, 202)
        return self._stream_of(session, run, after)

    async def _answer(self, request: Request, session: str) -> ASGIApp:
        reply = read_answer_request(await _body(request))
        run, after = self.runs.answer(session, reply.interaction, reply.answer)
        return self._stream_of(session, run, after)

    def _stream_of(self, session: str, run: str, after: int) -> ASGIApp:
        leave = partial(self.runs.leave, run, CLIENT_LEFT)
        events, feed = self.runs.events, self.log.feed
        return EventStream(events, feed, session, after, of_run=True, when_left=leave)

    def _events(self, request: Request, session: str) -> ASGIApp:
        query = request.query_params
        told = request.headers.get("Last-Event-ID") or query.get("after")
        after = read_number(told, "after", default=0, largest=_LARGEST_NUMBER, least=0)
        follow = read_flag(query.get("follow"), "follow", default=True)
        return EventStream(self.runs.events, self.log.feed, session, after, follow=follow)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise RequestError(
                413, f"A body has at most {LARGEST_BODY} bytes.", reason="bad_request"
            )
    return bytes(body)


def _no_route(path: list[bytes]) -> RequestError:
    match path:
        case []:
            methods = "GET, HEAD"
        case [_, b"runs" | b"answers"]:
            methods = "POST"
        case [_, b"events"]:
            methods = "GET"
        case [_, b"runs", b"current"]:
            methods = "DELETE"
        case _:
            return RequestError(404, "There is nothing here.", reason="not_found")
    return RequestError(
        405, "The method is not known here.", {"Allow": methods}, reason="bad_request"
    )


@dataclass(slots=True)
class EventStream:
    """Sends a session's events after a number, with `follow` also those that are logged later.

    `read` returns so many events of a session that follow a number. With `of_run` the last one is a
    run's end, or its question. `when_left` is called if the client leaves before the last one.
    """

    read: Callable[[str, int, int], list[SessionEvent]]
    feed: EventFeed
    session: str
    after: int
    _: KW_ONLY
    follow: bool = True
    of_run: bool = False
    when_left: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send it."""
        left = asyncio.ensure_future(wait_for_disconnect(receive))
        sending = asyncio.ensure_future(self._send(send))
        try:
            await asyncio.wait({left, sending}, return_when=asyncio.FIRST_COMPLETED)
            complete = sending.done() and not sending.cancelled() and sending.exception() is None
            if not complete:
                self.when_left()
            if sending.done():
                # The client left, or there is no end to send: the response has none either.
                with suppress(OSError, LogFailed):
                    sending.result()
        except asyncio.CancelledError:  # the daemon ends
            self.when_left()
            raise
        finally:
            for task in (left, sending):
                task.cancel()
            await asyncio.gather(left, sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        with self.feed.following(self.session) as follower:
            while not await self._send_written(send):
                if follower.news.is_set():  # maybe the end, before it was cut
                    follower.news.clear()
                    continue
                if follower.cut and self.of_run:
                    raise ConnectionAbortedError  # the run has no end, so the response has none
                if follower.cut or not self.follow:
                    break
                await _wait(follower, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_written(self, send: Send) -> bool:
        """Send what is in the log; return whether that was the last of it."""
        is_more = True
        while is_more:
            events = self.read(self.session, self.after, _PAGE)
            is_more = len(events) == _PAGE
            for position, event in enumerate(events, 1):
                if self.of_run and event.kind in _LAST:
                    await _send_events(send, events[:position])
                    return True
            if events:
                await _send_events(send, events)
                self.after = events[-1].number
        return False


async def _send_events(send: Send, events: list[SessionEvent]) -> None:
    body = "".join(
        f"id: {event.number}\nevent: {event.kind}\ndata: {event.data}\n\n" for event in events
    )
    data = body.encode(errors="replace")
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _wait(follower: Subscriber, send: Send) -> None:
    try:
        async with asyncio.timeout(COMMENT_SECONDS):
            await follower.news.wait()
    except TimeoutError:
        await send({"type": "http.response.body", "body": _COMMENT, "more_body": True})
    follower.news.clear()
