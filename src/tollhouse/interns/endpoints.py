"""`/interns`: making, listing, changing, running and removing interns, and chatting with one.

Requests are refused in this order: 401, 403 (region), 404 (programme), 404 (an intern's own key
elsewhere), for a chat 403 (the intern's own key), 413, 415, 400, 404 (the intern itself), for a
chat 429, then 409. The first two come from the request gate; a chat's daemon answers last.

Source: the public gateway's interns, and its chat with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from tollhouse.identity.callers import HoldingKey
from tollhouse.identity.types import Subject
from tollhouse.inference.sse import EVENT_STREAM
from tollhouse.interns import policy
from tollhouse.interns.chat.channels import HttpEvent
from tollhouse.interns.chat.channels.supervisor import Channels, Installation
from tollhouse.interns.chat.invocations import Invocation, Invocations
from tollhouse.interns.chat.request import ChatAnswer, ChatBody, ChatPrompt, InvokeBody
from tollhouse.interns.chat.service import ChatService, InternChatStream, SteeredChat
from tollhouse.interns.policy import Cursor
from tollhouse.interns.service import InternService
from tollhouse.interns.types import Intern, InternFilter
from tollhouse.interns.wire import (
    CreateBody,
    DaemonReply,
    DeleteBody,
    Deleting,
    InstallBody,
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
from tollhouse.kernel.json_body import JsonBodyReader, body_schema
from tollhouse.kernel.request_scope import lift_deadline, own_origin
from tollhouse.kernel.wire import ResponseModel, refusals
from tollhouse.storage.database import Database

_BODIES: Final = JsonBodyReader(policy.LARGEST_BODY, declared=True)
_INTERN: Final = "internId"
_INTERN_PATH: Final = "/interns/{internId}"
_REFUSED: Final = (400, 401, 403, 404, 408, 409, 429, 500, 502, 503)
_BODY_REFUSED: Final = (*_REFUSED, 413, 415)
_REPEATED: Final[dict[int | str, dict[str, Any]]] = {
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


@dataclass(frozen=True, slots=True)
class InternEndpoints:
    """The endpoints of interns."""

    _service: InternService
    _database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        self._add(routes, "GET", "/interns", self.list_interns, exclude_none=True)
        self._add(routes, "POST", "/interns", self.create_intern, CreateBody, status=201)
        self._add(routes, "GET", _INTERN_PATH, self.get_intern)
        self._add(routes, "PATCH", _INTERN_PATH, self.update_intern, PatchBody)
        self._add(routes, "DELETE", _INTERN_PATH, self.delete_intern, DeleteBody, status=202)
        provision = f"{_INTERN_PATH}/provision"
        self._add(routes, "POST", provision, self.provision_intern, NoBody, status=202)
        self._add(routes, "POST", f"{_INTERN_PATH}/suspend", self.suspend_intern, NoBody)
        self._add(routes, "GET", f"{_INTERN_PATH}/logs", self.list_logs)
        self._add(routes, "GET", f"{_INTERN_PATH}/daemon", self.get_daemon)
        self._add(routes, "GET", f"{_INTERN_PATH}/daemon-access", self.get_daemon_access)

    def _add(
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
            extra = dict(body_schema(body, required=body in {CreateBody, PatchBody}))
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
                **(_REPEATED if body is CreateBody else {}),
            },
            openapi_extra=extra,
            response_model_exclude_unset=exclude_none,
        )

    async def _admit(self, request: Request, caller: HoldingKey) -> None:
        await self._service.admit(caller, request.path_params.get(_INTERN))

    def _shown(self, intern: Intern) -> InternReply:
        return intern_reply(intern, self._service.hostname(intern))

    # All of a workspace

    async def list_interns(
        self, caller: HoldingKey, query: Annotated[InternsQuery, Query()]
    ) -> InternPage:
        """List the interns of the key's workspace, newest first."""
        wanted = InternFilter(caller.workspace_id, policy.parse_statuses(query.status))
        after = policy.decode_cursor(query.starting_after)
        policy.check_workspace(caller, query.workspace_id)
        async with self._database.reading() as read:
            found, has_more = await self._service.interns(read, wanted, after, query.limit)
        data = [self._shown(each) for each in found]
        if not has_more:
            return InternPage(data=data, has_more=False)
        cursor = policy.encode_cursor(Cursor(found[-1].created_at, found[-1].id))
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
        created = await self._service.create(caller, wanted, key)
        if not created.is_new:
            response.status_code = 200
        return self._shown(created.intern)

    # One

    async def get_intern(self, caller: HoldingKey, intern_id: InternId) -> InternReply:
        """Show an intern."""
        async with self._database.reading() as read:
            return self._shown(await self._service.intern(read, caller, intern_id))

    async def update_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> InternReply:
        """Change an intern's name, description, instructions or model, from its next boot on."""
        facts = _BODIES.parsed(request, PatchBody).facts()
        async with self._database.writing() as write:
            changed = await self._service.change(write, caller, intern_id, facts)
        return self._shown(changed)

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


_CHAT_BODIES: Final = JsonBodyReader(policy.LARGEST_BODY)
_CHAT_REFUSED: Final = (400, 401, 403, 404, 408, 409, 410, 413, 429, 502, 503, 504)
_INVOKE_REFUSED: Final = (400, 401, 403, 404, 408, 409, 413, 429, 500, 502, 503, 504)
_STREAMED: Final = """\
Chunks as `data:` lines: a role chunk, `content` and `reasoning`, perhaps one call of
`openrouter.provide_input`, which asks for an answer, a finish chunk (`stop`, `tool_calls` or
`error`), and one without choices that has `session_id` and `usage`; then `[DONE]`. The comment
`: keepalive` comes where nothing was written for 30 seconds."""


class SteeredReply(ResponseModel):
    """A message was handed into the run that works just now; its effect streams there."""

    session_id: str
    """The session of that run."""
    status: Literal["steered"] = "steered"
    """Always `steered`."""


_STEERED: Final[dict[str, Any]] = {
    "description": "The message was handed into the run that works in this session.",
    "content": {"application/json": {"schema": SteeredReply.model_json_schema()}},
}


@dataclass(frozen=True, slots=True)
class InternChatEndpoint:
    """The endpoint of chats."""

    _service: ChatService

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.add_api_route(
            "/interns/{internId}/chat/completions",
            self.create_intern_chat_completion,
            methods=["POST"],
            tags=["Interns"],
            dependencies=[Depends(self._admit), Depends(_CHAT_BODIES.read)],
            status_code=200,
            response_class=_ChatResponse,
            response_description=_STREAMED,
            response_model=None,
            responses={202: _STEERED, **refusals(*_CHAT_REFUSED)},
            openapi_extra=dict(body_schema(ChatBody)),
        )

    async def _admit(self, caller: HoldingKey, intern_id: InternId) -> None:
        await self._service.admit(caller, intern_id)

    async def create_intern_chat_completion(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> Response:
        """Send an intern a prompt, or the answer to its question, and stream what it does.

        Whoever leaves while it streams ends the run; whoever leaves after a question does not.
        """
        wanted = _CHAT_BODIES.parsed(request, ChatBody).wanted()
        return _ChatResponse(self._service, caller, intern_id, wanted)


class InvokedReply(ResponseModel):
    """A prompt that an intern has taken; the run goes on there."""

    session_id: str
    """The session of the run: send it with the next prompt, and the conversation goes on."""
    status: Literal["started", "steered"]
    """`steered` where the session had a run that works, which was handed the prompt."""


@dataclass(frozen=True, slots=True)
class InternInvokeEndpoint:
    """The endpoint of runs that nobody watches."""

    _service: ChatService
    _invocations: Invocations

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.add_api_route(
            "/interns/{internId}/invoke",
            self.invoke_intern,
            methods=["POST"],
            tags=["Interns"],
            dependencies=[Depends(self._admit), Depends(_CHAT_BODIES.read)],
            status_code=202,
            responses=refusals(*_INVOKE_REFUSED),
            openapi_extra=dict(body_schema(InvokeBody)),
        )

    async def _admit(self, caller: HoldingKey, intern_id: InternId) -> None:
        await self._service.admit(caller, intern_id)

    async def invoke_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> InvokedReply:
        """Have an intern do something without waiting for it.

        The run consents to its own tools, and what it asks is declined. It ends by itself, or after
        `interns.invoke_seconds`.
        """
        body = _CHAT_BODIES.parsed(request, InvokeBody)
        wanted = Invocation(intern_id, body.input, body.session_id)
        session, status = await self._invocations.invoke(caller, wanted)
        return InvokedReply(session_id=session, status=status)


class _ChatResponse(Response):
    """A reply that lasts as long as its stream, and ends with its reader.

    The intern is asked in here and not before, so that nothing lies between the answer of its
    daemon and whoever has to close it.
    """

    media_type = "text/event-stream"

    def __init__(
        self, service: ChatService, caller: Subject, intern_id: str, wanted: ChatPrompt | ChatAnswer
    ) -> None:
        super().__init__()
        self._service = service
        self._caller = caller
        self._intern_id = intern_id
        self._wanted = wanted
        self._conversation: InternChatStream | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.create_task(_wait_for_disconnect(receive))
        talking = asyncio.create_task(self._talk(scope, receive, send))
        try:
            await asyncio.wait({watching, talking}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done() and self._conversation is not None:
                self._conversation.leave()
        finally:
            watching.cancel()
            talking.cancel()  # does nothing after the end
            await asyncio.wait({watching, talking})
        if not talking.cancelled():
            talking.result()

    async def _talk(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._service.converse(self._caller, self._intern_id, self._wanted)
        async with asked as found:
            if isinstance(found, SteeredChat):
                body = SteeredReply(session_id=found.session).model_dump_json()
                await Response(body, 202, media_type="application/json")(scope, receive, send)
                return
            if not lift_deadline(scope):
                return
            self._conversation = found
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})

            async def write(data: bytes) -> None:
                await send({"type": "http.response.body", "body": data, "more_body": True})

            try:
                await found.run(write)
            except TimeoutError:
                return  # nobody reads: the server closes the connection
        await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


@dataclass(frozen=True, slots=True)
class InternChannelEndpoints:
    """The endpoints of interns in chat services. Ours."""

    _service: InternService
    _channels: Channels

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.add_api_route(
            f"{_INTERN_PATH}/install",
            self.install_intern,
            methods=["POST"],
            tags=["Interns"],
            dependencies=[Depends(self._admit), Depends(_BODIES.read)],
            responses=refusals(*_BODY_REFUSED),
            openapi_extra=dict(body_schema(InstallBody)),
        )
        routes.add_api_route(
            f"{_INTERN_PATH}/slack/events",
            self.receive_slack_event,
            methods=["POST"],
            tags=["Interns"],
            response_class=Response,
            dependencies=[Depends(_CHAT_BODIES.read)],
            responses=refusals(*_BODY_REFUSED),
            openapi_extra={"security": []},
        )

    async def _admit(self, caller: HoldingKey, intern_id: InternId) -> None:
        await self._service.admit(caller, intern_id)

    async def install_intern(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> InternReply:
        """Install an intern's app in its chat service; an intern that waited for it boots.

        The tokens are tried first, and can be replaced in the same way.
        """
        body = _BODIES.parsed(request, InstallBody)
        wanted = Installation(body.tokens(), body.allowed, body.approval_mode)
        intern = await self._channels.install(caller, intern_id, wanted)
        return intern_reply(intern, self._service.hostname(intern))

    async def receive_slack_event(self, request: Request, intern_id: InternId) -> Response:
        """Take an event of Slack's, which its signature has to prove; needs no API key."""
        event = HttpEvent(_CHAT_BODIES.raw(request), dict(request.headers))
        answer = await self._channels.receive(intern_id, event)
        return Response(answer, media_type="application/json" if answer else None)


def router(
    service: InternService,
    chats: ChatService,
    invocations: Invocations,
    channels: Channels,
    database: Database,
) -> APIRouter:
    """Return the routes of interns."""
    routes = APIRouter()
    InternEndpoints(service, database).add_to(routes)
    InternChatEndpoint(chats).add_to(routes)
    InternInvokeEndpoint(chats, invocations).add_to(routes)
    InternChannelEndpoints(service, channels).add_to(routes)
    return routes
