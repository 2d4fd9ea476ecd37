"""`/interns`: making, listing, changing, running and removing the interns of the key's workspace.

What is refused comes in one order: 401, 403 (region), 404 (programme), 404 (an intern's own key
elsewhere), 413, 415, 400, 404 (the intern itself), 409. The first two are the front's.

Source: the public gateway's interns.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, Field

from tollhouse.identity.access import HoldingKey
from tollhouse.identity.types import Subject
from tollhouse.interns import policy
from tollhouse.interns.endpoints.wire import (
    CreateBody,
    DaemonReply,
    DeleteBody,
    Deleting,
    InternPage,
    InternReply,
    LogLine,
    LogPage,
    NoBody,
    PatchBody,
    Provisioning,
    Suspended,
    intern_reply,
)
from tollhouse.interns.policy import Cursor
from tollhouse.interns.service import InternService
from tollhouse.interns.types import Intern, InternFilter, Wish
from tollhouse.kernel.bodies import Bodies, described
from tollhouse.kernel.origin import own_origin
from tollhouse.kernel.wire import refusals
from tollhouse.storage.database import Database

_BODIES: Final = Bodies(policy.LARGEST_BODY, declared=True)
_INTERN: Final = "internId"
_ONE: Final = "/interns/{internId}"
_REFUSED: Final = (400, 401, 403, 404, 408, 409, 429, 500, 502, 503)
_BODY_REFUSED: Final = (*_REFUSED, 413, 415)
_AGAIN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": InternReply, "description": "An equal request has made it before."}
}

InternId = Annotated[str, Path(alias=_INTERN, min_length=1, description="The intern.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Names this creation, 1 to 255 characters: sent again with the same body it "
        "goes on with what is missing. Without one, an equal body means the same creation.",
    ),
]


class InternsQuery(BaseModel):
    """Which interns are wanted."""

    limit: int = Field(default=100, ge=1, le=500, description="How many to return at most.")
    status: str | None = Field(
        default=None, description="Only those of these statuses, with commas between them."
    )
    starting_after: str | None = Field(
        default=None, description="The `next_cursor` of the page before this one."
    )
    workspace_id: str | None = Field(
        default=None, description="The key's workspace, where it is named at all."
    )


class LogsQuery(BaseModel):
    """How much of a log is wanted."""

    limit: int = Field(default=100, ge=1, le=5_000, description="How many lines at most.")


class Interns:
    """The endpoints of interns."""

    def __init__(self, service: InternService, database: Database) -> None:
        """Take what they need."""
        self._service = service
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        self._add(routes, "GET", "/interns", self.list_interns, exclude_none=True)
        self._add(routes, "POST", "/interns", self.create_intern, CreateBody, status=201)
        self._add(routes, "GET", _ONE, self.get_intern)
        self._add(routes, "PATCH", _ONE, self.update_intern, PatchBody)
        self._add(routes, "DELETE", _ONE, self.delete_intern, DeleteBody, status=202)
        provision = f"{_ONE}/provision"
        self._add(routes, "POST", provision, self.provision_intern, NoBody, status=202)
        self._add(routes, "POST", f"{_ONE}/suspend", self.suspend_intern, NoBody)
        self._add(routes, "GET", f"{_ONE}/logs", self.list_logs)
        self._add(routes, "GET", f"{_ONE}/daemon", self.get_daemon)
        self._add(routes, "GET", f"{_ONE}/daemon-access", self.get_daemon_access)

    def _add(  # noqa: PLR0913 - what a route consists of
        self,
        routes: APIRouter,
        method: str,
        path: str,
        endpoint: Callable[..., object],
        body: type[BaseModel] | None = None,
        *,
        status: int = 200,
        exclude_none: bool = False,
    ) -> None:
        """Add a route; its caller is judged before its body is read."""
        dependencies = [Depends(self._admit)]
        extra: dict[str, Any] | None = None
        if body is not None:
            dependencies.append(Depends(_BODIES.read))
            extra = dict(described(body, required=body in {CreateBody, PatchBody}))
        routes.add_api_route(
            path,
            endpoint,
            methods=[method],
            tags=["Interns"],
            status_code=status,
            dependencies=dependencies,
            deprecated=path.endswith("-access") or None,
            responses={
                **refusals(*(_REFUSED if body is None else _BODY_REFUSED)),
                **(_AGAIN if body is CreateBody else {}),
            },
            openapi_extra=extra,
            response_model_exclude_none=False,
            response_model_exclude_unset=exclude_none,
        )

    async def _admit(self, request: Request, caller: HoldingKey) -> None:
        await self._service.admit(caller, request.path_params.get(_INTERN))

    def _shown(self, request: Request, intern: Intern) -> InternReply:
        return intern_reply(intern, self._service.hostname(intern, own_origin(request.scope)))

    # All of a workspace

    async def list_interns(
        self, request: Request, caller: HoldingKey, query: Annotated[InternsQuery, Query()]
    ) -> InternPage:
        """List the interns of the key's workspace, newest first."""
        wanted = InternFilter(caller.workspace_id, policy.statuses(query.status))
        after = policy.cursor_of(query.starting_after)
        policy.check_workspace(caller, query.workspace_id)
        async with self._database.reading() as read:
            found, has_more = await self._service.interns(read, wanted, after, query.limit)
        data = [self._shown(request, each) for each in found]
        if not has_more:
            return InternPage(data=data, has_more=False)
        cursor = policy.cursor_text(Cursor(found[-1].created_at, found[-1].id))
        return InternPage(data=data, has_more=True, next_cursor=cursor)

    async def create_intern(
        self,
        request: Request,
        response: Response,
        caller: HoldingKey,
        idempotency_key: IdempotencyKey = None,
    ) -> InternReply:
        """Make an intern with a vault of its own; 200 where an equal request has made it before."""
        key = policy.check_idempotency_key(idempotency_key)
        body = _BODIES.parsed(request, CreateBody)
        wanted = body.wanted()
        policy.check_workspace(caller, body.workspace_id)
        created = await self._service.create(Wish(caller, wanted, key))
        if not created.is_new:
            response.status_code = 200
        return self._shown(request, created.intern)

    # One

    async def get_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> InternReply:
        """Show an intern."""
        async with self._database.reading() as read:
            return self._shown(request, await self._service.intern(read, caller, intern_id))

    async def update_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> InternReply:
        """Change an intern's name, description, instructions or model, from its next boot on."""
        facts = _BODIES.parsed(request, PatchBody).facts()
        async with self._database.writing() as write:
            changed = await self._service.change(write, caller, intern_id, facts)
        return self._shown(request, changed)

    async def delete_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> Deleting:
        """Remove an intern with its vault; its files are archived first."""
        body = _BODIES.parsed(request, DeleteBody, empty=DeleteBody())
        acknowledged = body.acknowledge_workspace_loss
        await self._service.delete(caller, intern_id, acknowledged=acknowledged)
        return Deleting()

    async def provision_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> Provisioning:
        """Have an intern run: for the first time, again after `suspend`, or after it failed."""
        _BODIES.parsed(request, NoBody, empty=NoBody())
        await self._service.provision(caller, intern_id)
        return Provisioning()

    async def suspend_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> Suspended:
        """Stop an intern and keep its files. A 408 means that it takes longer, and goes on."""
        _BODIES.parsed(request, NoBody, empty=NoBody())
        await self._service.suspend(caller, intern_id)
        return Suspended()

    async def list_logs(
        self, caller: HoldingKey, intern_id: InternId, query: Annotated[LogsQuery, Query()]
    ) -> LogPage:
        """List what became of an intern on the server's machine, the oldest first. Ours."""
        async with self._database.reading() as read:
            intern = await self._service.intern(read, caller, intern_id)
        found = await asyncio.to_thread(self._service.log, intern, query.limit)
        return LogPage(data=[LogLine(at=line.at, text=line.text) for line in found])

    async def get_daemon(
        self, request: Request, response: Response, caller: HoldingKey, intern_id: InternId
    ) -> DaemonReply:
        """Reveal how a running intern's daemon is reached; who asked is recorded."""
        return await self._reveal(request, response, caller, intern_id)

    async def get_daemon_access(
        self, request: Request, response: Response, caller: HoldingKey, intern_id: InternId
    ) -> DaemonReply:
        """Do what `/daemon` does; an earlier name of it."""
        return await self._reveal(request, response, caller, intern_id)

    async def _reveal(
        self, request: Request, response: Response, caller: Subject, intern_id: str
    ) -> DaemonReply:
        found = await self._service.daemon(caller, intern_id, own_origin(request.scope))
        response.headers["cache-control"] = "no-store"
        return DaemonReply(origin=found.origin, token=found.token.reveal())
