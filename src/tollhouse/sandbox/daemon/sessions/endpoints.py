"""`/sessions`: talking to the agent over HTTP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.files.names import read_flag, read_number
from tollhouse.sandbox.daemon.sessions.file import LogFailed
from tollhouse.sandbox.daemon.sessions.requests import (
    LARGEST_BODY,
    bad,
    read_prompt,
    read_reply,
    read_session,
)
from tollhouse.sandbox.daemon.sessions.runs import Runs, Steered, refusal_of_log
from tollhouse.sandbox.daemon.sessions.streams import EventStream, Wanted
from tollhouse.sandbox.daemon.sessions.values import CLIENT_LEFT

if TYPE_CHECKING:
    from starlette.requests import Request

    from tollhouse.sandbox.daemon.sessions.feed import Feed
    from tollhouse.sandbox.daemon.sessions.log import Log
    from tollhouse.sandbox.daemon.sessions.runs import Following

PREFIX: Final = b"/sessions"
_LISTED: Final = 100
MOST_LISTED: Final = 1000
_LARGEST_NUMBER: Final = 2**53


class Conversations:
    """Serves sessions."""

    def __init__(self, log: Log, feed: Feed, runs: Runs) -> None:
        """Take what it serves."""
        self._log = log
        self._feed = feed
        self._runs = runs

    async def serve(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            Refused: It cannot be done.
        """
        raw: bytes = request.scope["raw_path"]
        try:
            return await self._serve(request, raw.removeprefix(PREFIX).split(b"/")[1:])
        except LogFailed as error:
            raise refusal_of_log(error) from None
        except Refused as refused:
            if refused.reason is None:  # a query's, which files have, too
                raise bad(refused.message) from None
            raise

    async def close(self) -> None:
        """Let clients go, and end what runs."""
        await self._runs.close()
        self._feed.cut()

    async def _serve(self, request: Request, path: list[bytes]) -> Response:
        match request.method, path:
            case "GET" | "HEAD", []:
                return self._listing(request)
            case "POST", [segment, b"runs"]:
                return await self._begin(request, read_session(segment))
            case "POST", [segment, b"answers"]:
                return await self._answer(request, read_session(segment))
            case "DELETE", [segment, b"runs", b"current"]:
                await self._runs.cancel(read_session(segment))
                return Response(status_code=204)
            case "GET", [segment, b"events"]:
                return self._events(request, read_session(segment))
            case _:
                raise _unknown(path)

    def _listing(self, request: Request) -> Response:
        query = request.query_params
        limit = read_number(query.get("limit"), "limit", default=_LISTED, largest=MOST_LISTED)
        if not self._log.exists():
            return JSONResponse({"data": [], "has_more": False})
        data, has_more = self._log.listed(query.get("after"), limit)
        return JSONResponse({"data": data, "has_more": has_more})

    async def _begin(self, request: Request, session: str) -> Response:
        prompt = read_prompt(await _body(request))
        begun = await self._runs.begin(session, prompt.text, prompt.mode)
        if isinstance(begun, Steered):
            return JSONResponse({"status": "steered", "run": begun.run}, 202)
        return self._stream_of(session, begun)

    async def _answer(self, request: Request, session: str) -> Response:
        reply = read_reply(await _body(request))
        return self._stream_of(session, self._runs.answer(session, reply.interaction, reply.answer))

    def _stream_of(self, session: str, following: Following) -> Response:
        leave = partial(self._runs.leave, following.run, CLIENT_LEFT)
        wanted = Wanted(session, following.after, of_run=True)
        return EventStream(self._runs.events, self._feed, wanted, leave)

    def _events(self, request: Request, session: str) -> Response:
        query = request.query_params
        told = request.headers.get("Last-Event-ID") or query.get("after")
        after = read_number(told, "after", default=0, largest=_LARGEST_NUMBER, least=0)
        follow = read_flag(query.get("follow"), "follow", default=True)
        return EventStream(self._runs.events, self._feed, Wanted(session, after, follow=follow))


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise Refused(413, f"A body has at most {LARGEST_BODY} bytes.", reason="bad_request")
    return bytes(body)


def _unknown(path: list[bytes]) -> Refused:
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
            return Refused(404, "There is nothing here.", reason="not_found")
    return Refused(405, "The method is not known here.", {"Allow": methods}, reason="bad_request")
