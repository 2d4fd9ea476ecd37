"""`POST /interns/{internId}/chat/completions`: talking to an intern.

What is refused comes in one order: 401, 403 (region), 404 (programme), 404 (another intern's own
key), 403 (its own), 413, 400, 404 (the intern itself), 429, 409, and then what its daemon says.

Source: the public gateway's chat with interns.
"""

import asyncio
from typing import Any, Final, Literal

from fastapi import APIRouter, Depends, Request, Response
from starlette.types import Receive, Scope, Send

from tollhouse.identity.access import HoldingKey
from tollhouse.identity.types import Subject
from tollhouse.inference.sse import EVENT_STREAM
from tollhouse.interns import policy
from tollhouse.interns.chat.request import Answer, ChatBody, Prompt
from tollhouse.interns.chat.service import ChatService, Conversation, Steered
from tollhouse.interns.endpoints.lifecycle import InternId
from tollhouse.kernel.bodies import Bodies, described
from tollhouse.kernel.deadline import lift_deadline
from tollhouse.kernel.wire import Reply, refusals

_BODIES: Final = Bodies(policy.LARGEST_BODY)
_REFUSED: Final = (400, 401, 403, 404, 408, 409, 410, 413, 429, 502, 503, 504)
_STREAMED: Final = """\
Chunks as `data:` lines: a role chunk, `content` and `reasoning`, perhaps one call of
`openrouter.provide_input`, which asks for an answer, a finish chunk (`stop`, `tool_calls` or
`error`), and one without choices that has `session_id` and `usage`; then `[DONE]`. The comment
`: keepalive` comes where nothing was written for 30 seconds."""


class SteeredReply(Reply):
    """A message was handed into the run that works just now; its effect streams there."""

    session_id: str
    """The session of that run."""
    status: Literal["steered"] = "steered"
    """Always `steered`."""


_STEERED: Final[dict[str, Any]] = {
    "description": "The message was handed into the run that works in this session.",
    "content": {"application/json": {"schema": SteeredReply.model_json_schema()}},
}


class Chats:
    """The endpoint of chats."""

    def __init__(self, service: ChatService) -> None:
        """Take what it needs."""
        self._service = service

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.add_api_route(
            "/interns/{internId}/chat/completions",
            self.create_intern_chat_completion,
            methods=["POST"],
            tags=["Interns"],
            dependencies=[Depends(self._admit), Depends(_BODIES.read)],
            status_code=200,
            response_class=_Chat,
            response_description=_STREAMED,
            response_model=None,
            responses={202: _STEERED, **refusals(*_REFUSED)},
            openapi_extra=dict(described(ChatBody)),
        )

    async def _admit(self, caller: HoldingKey, intern_id: InternId) -> None:
        await self._service.admit(caller, intern_id)

    async def create_intern_chat_completion(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> Response:
        """Send an intern a prompt, or the answer to its question, and stream what it does.

        Whoever leaves while it streams ends the run; whoever leaves after a question does not.
        """
        wanted = _BODIES.parsed(request, ChatBody).wanted()
        return _Chat(self._service, caller, intern_id, wanted)


class _Chat(Response):
    """A reply that lasts as long as its stream, and ends with its reader.

    The intern is asked in here and not before, so that nothing lies between the answer of its
    daemon and whoever has to close it.
    """

    media_type = "text/event-stream"

    def __init__(
        self, service: ChatService, caller: Subject, intern_id: str, wanted: Prompt | Answer
    ) -> None:
        super().__init__()
        self._service = service
        self._caller = caller
        self._intern_id = intern_id
        self._wanted = wanted
        self._conversation: Conversation | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.create_task(_until_gone(receive))
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
            if isinstance(found, Steered):
                await _steered(found.session)(scope, receive, send)
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


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _steered(session: str) -> Response:
    body = SteeredReply(session_id=session).model_dump_json()
    return Response(body, 202, media_type="application/json")
