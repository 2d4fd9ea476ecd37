"""The way in for `tollhouse egress run`, on the server's own machine alone.

    POST /egress-sessions      one line of JSON; the session lives until the client leaves

It is no part of the API: what it answers with is a folder of this machine.
"""

import asyncio
import json

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from tollhouse.identity.access import Operating, caller_of
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import LocalOperator
from tollhouse.kernel.errors import Forbidden, Unavailable
from tollhouse.kernel.wire import Body, Reference
from tollhouse.storage.database import Database
from tollhouse.vault.egress.programs import Program, Programs


class SessionBody(Body):
    """A session that is wanted."""

    workspace_id: Reference
    """Id or slug of the workspace whose secrets it receives."""
    account_id: Reference | None = None
    """Its account, where there are several."""


class EgressSessions:
    """The endpoint."""

    def __init__(
        self,
        programs: Programs | None,
        identity: IdentityService,
        database: Database,
    ) -> None:
        """Take who serves sessions; nobody where this is no server."""
        self._programs = programs
        self._identity = identity
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.post("/egress-sessions", include_in_schema=False)(self.begin_session)

    async def begin_session(self, request: Request, who: Operating, body: SessionBody) -> Response:
        """Serve a session until the client leaves, or the server stops."""
        if not isinstance(caller_of(request.scope), LocalOperator):
            message = "Sessions of programs are for the server's own machine."
            raise Forbidden(message)
        if self._programs is None:
            message = "No server runs on the data folder: start one with `tollhouse serve`."
            raise Unavailable(message)
        async with self._database.reading() as read:
            home = await self._identity.home(read, who, body.account_id)
            workspace = await self._identity.workspace(read, home, body.workspace_id)
        program = await self._programs.begin(who, workspace)
        return _Held(program, self._programs)


class _Held(Response):
    """A reply that lasts as long as its session, which ends when anything ends the reply."""

    media_type = "application/x-ndjson"

    def __init__(self, program: Program, programs: Programs) -> None:
        super().__init__()
        self._program = program
        self._programs = programs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await self._begin(send)
            await self._wait(receive)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._programs.leave(self._program)

    async def _begin(self, send: Send) -> None:
        facts = {
            "session": self._program.session,
            "folder": str(self._program.folder),
            "password": self._program.password.reveal(),
        }
        line = json.dumps({"data": facts}).encode() + b"\n"
        headers = [(b"content-type", self.media_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": line, "more_body": True})

    async def _wait(self, receive: Receive) -> None:
        """Wait until the client has left, or the server stops."""
        waiting = {
            asyncio.ensure_future(_disconnected(receive)),
            asyncio.ensure_future(self._programs.stopping.wait()),
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
