"""The way in for `tollhouse egress run`, on the server's own machine alone.

    POST /egress-sessions      one line of JSON; the session lives until the client leaves

It is no part of the API: what it answers with is a folder of this machine.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from tollhouse.identity.access import Operating, caller_of
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import LocalOperator
from tollhouse.kernel.errors import Forbidden, Unavailable
from tollhouse.kernel.wire import Body, Reference
from tollhouse.storage.database import Database
from tollhouse.vault.egress.programs import Program, Programs
from tollhouse.vault.egress.service import Egress

_PULSE_SECONDS: Final = 15.0


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
        egress: Egress | None,
        programs: Programs | None,
        identity: IdentityService,
        database: Database,
    ) -> None:
        """Take who serves sessions; nobody where this is no server."""
        self._egress = egress
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
        if self._programs is None or self._egress is None:
            message = "No server runs on the data folder: start one with `tollhouse serve`."
            raise Unavailable(message)
        async with self._database.reading() as read:
            home = await self._identity.home(read, who, body.account_id)
            workspace = await self._identity.workspace(read, home, body.workspace_id)
        async with AsyncExitStack() as stack:
            program = await stack.enter_async_context(self._programs.running(who, workspace))
            lines = _lines(program, self._egress.stopping, stack.pop_all())
            return StreamingResponse(lines, media_type="application/x-ndjson")


async def _lines(
    program: Program, stopping: asyncio.Event, session: AsyncExitStack
) -> AsyncIterator[bytes]:
    facts = {
        "session": program.session,
        "folder": str(program.folder),
        "password": program.password.reveal(),
    }
    async with session:
        yield json.dumps({"data": facts}).encode() + b"\n"
        while not stopping.is_set():
            try:
                async with asyncio.timeout(_PULSE_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                yield b"\n"
