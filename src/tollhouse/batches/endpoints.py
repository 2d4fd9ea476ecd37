"""`/batches`: submitting many requests at once, and what became of them.

Source: the public gateway's batches; `POST /batches/{id}/cancel` and `GET /batches/{id}/results`
are ours.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.requests import ClientDisconnect

from tollhouse.batches.lifecycle import HAVE_RESULTS
from tollhouse.batches.results import as_lines, with_results
from tollhouse.batches.service import BatchService, Sender
from tollhouse.batches.types import Batch, BatchFilter, Endpoint, Part, Status
from tollhouse.batches.wire import (
    BatchDeletion,
    BatchPage,
    BatchReply,
    batch_reply,
    deletion_reply,
)
from tollhouse.identity.access import Billed, HoldingKey
from tollhouse.inference.attribution import attribution
from tollhouse.inference.preferences import PROVIDER_FIELDS
from tollhouse.kernel.errors import PayloadTooLarge
from tollhouse.kernel.wire import Reference, refusals
from tollhouse.storage.blobs.port import Blobs
from tollhouse.storage.database import Database
from tollhouse.storage.transaction import Read

WITHHELD = "The batch has ended, but its charge is not covered: add credits to read its results."
_CLIENT_GONE = 499
_PAYMENT_REQUIRED = 402
_JSON_LINES = "application/jsonl"
Listed = Literal["validating", "in_progress", "completed", "failed", "expired", "cancelled"]
"""The statuses that a list filters by."""
BatchId = Annotated[Reference, Path(alias="id", description="The batch's id.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Names this batch: sending it again returns the first answer, and no second "
        "batch is made.",
    ),
]


def _instant(value: object) -> datetime:
    """Return the instant of a date (its beginning) or of a date with a time; in UTC unless said."""
    text = str(value)
    try:
        try:
            found = datetime.combine(date.fromisoformat(text), time())
        except ValueError:
            found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise PydanticCustomError(
            "instant", "must be a date or a time such as 2030-01-31 or 2030-01-31T12:00:00Z"
        ) from None


Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    WithJsonSchema({"type": "string", "description": "A date, or a date with a time."}),
]


def _each_once(values: list[Listed]) -> list[Listed]:
    return list(dict.fromkeys(values))


class BatchesQuery(BaseModel):
    """Which batches are wanted."""

    limit: int = Field(default=20, ge=1, le=100, description="How many to return at most.")
    after: Reference | None = Field(
        default=None, description="The `last_id` of the page before this one."
    )
    status: Annotated[list[Listed], AfterValidator(_each_once)] = Field(
        default=[], description="Only those of these statuses; may be repeated."
    )
    created_after: Instant | None = Field(default=None, description="Only those made later.")
    created_before: Instant | None = Field(default=None, description="Only those made earlier.")


_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Any order of fields. The whole is read as it comes.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["endpoint", "model", "requests"],
                    "properties": {
                        "endpoint": {"enum": [each.value for each in Endpoint]},
                        "model": {
                            "type": "string",
                            "minLength": 1,
                            "description": "The model of all requests; `:batch` may follow.",
                        },
                        "requests": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["custom_id", "body"],
                                "properties": {
                                    "custom_id": {
                                        "type": "string",
                                        "minLength": 1,
                                        "description": "Unique in the batch.",
                                    },
                                    "body": {
                                        "type": "object",
                                        "description": "A request in the endpoint's format; "
                                        "`model` may be left out.",
                                        "additionalProperties": True,
                                    },
                                },
                            },
                        },
                        "completion_window": {"const": "24h"},
                        "provider": {
                            "type": ["object", "null"],
                            "additionalProperties": False,
                            "properties": {name: {} for name in sorted(PROVIDER_FIELDS)},
                            "description": "Who may run it, as in a request; what an item says "
                            "of its own narrows it.",
                        },
                    },
                }
            }
        },
    }
}


class Batches:
    """The endpoints of batches."""

    def __init__(
        self, service: BatchService, database: Database, blobs: Blobs, largest_body: int
    ) -> None:
        """Take what they need."""
        self._service = service
        self._database = database
        self._blobs = blobs
        self._largest_body = largest_body

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.add_api_route(
            "/batches",
            self.create_batch,
            methods=["POST"],
            tags=["Batches"],
            status_code=202,
            response_model=BatchReply,
            responses=refusals(400, 401, 402, 403, 409, 413, 422, 429, 500, 502),
            openapi_extra=_BODY,
        )
        routes.get("/batches", tags=["Batches"], responses=refusals(400, 401, 429, 500, 502))(
            self.list_batches
        )
        routes.add_api_route(
            "/batches/{id}",
            self.get_batch,
            methods=["GET"],
            tags=["Batches"],
            response_model=BatchReply,
            responses=refusals(401, 402, 404, 410, 429, 500, 502),
        )
        routes.add_api_route(
            "/batches/{id}/results",
            self.get_batch_results,
            methods=["GET"],
            tags=["Batches"],
            response_class=Response,
            responses={
                **refusals(401, 402, 404, 410, 429, 500, 502),
                200: {"content": {_JSON_LINES: {"schema": {"type": "string"}}}},
            },
        )
        routes.add_api_route(
            "/batches/{id}/cancel",
            self.cancel_batch,
            methods=["POST"],
            tags=["Batches"],
            responses=refusals(401, 404, 409, 410, 429, 500, 502),
        )
        routes.add_api_route(
            "/batches/{id}",
            self.delete_batch,
            methods=["DELETE"],
            tags=["Batches"],
            response_model_exclude_none=True,
            responses=refusals(401, 404, 409, 429, 500, 502),
        )

    async def create_batch(
        self, request: Request, subject: Billed, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Submit many requests for one model and endpoint; they are run in the background."""
        headers = dict(request.headers.raw)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._largest_body:
            message = f"The batch is larger than {self._largest_body} bytes."
            raise PayloadTooLarge(message)
        sender = Sender(subject, attribution(headers), idempotency_key)
        try:
            batch = await self._service.submit(sender, request.stream())
        except ClientDisconnect:
            # Nobody reads it; nothing was kept.
            return Response(status_code=_CLIENT_GONE)
        return _json(batch, 202)

    async def list_batches(
        self, subject: HoldingKey, query: Annotated[BatchesQuery, Query()]
    ) -> BatchPage:
        """List the batches of the key's workspace, newest first.

        An intern's own key has those that it submitted: here, and wherever a batch is named.
        """
        statuses = [Status(each) for each in query.status]
        wanted = BatchFilter(statuses, query.created_after, query.created_before)
        async with self._database.reading() as read:
            found, more = await self._service.page(read, subject, wanted, query.after, query.limit)
        return BatchPage(
            data=[batch_reply(batch) for batch in found],
            first_id=found[0].id if found else None,
            last_id=found[-1].id if found else None,
            has_more=more,
        )

    async def get_batch(self, subject: HoldingKey, batch_id: BatchId) -> Response:
        """Show a batch, and its results once it has ended.

        A 402 is the batch itself without its results: it has ended, but its charge is not covered.
        Once there are credits the same request returns them.
        """
        async with self._database.reading() as read:
            batch = await self._service.get(read, subject, batch_id)
            if batch.status not in HAVE_RESULTS:
                return _json(batch, 200)
            parts = await self._parts(read, batch)
        if parts is None:
            return _withheld(batch)
        await self._release(batch)
        head = batch_reply(batch).model_dump_json(exclude={"results"}).encode()
        return StreamingResponse(
            with_results(head, parts, self._blobs), media_type="application/json"
        )

    async def get_batch_results(self, subject: HoldingKey, batch_id: BatchId) -> Response:
        """Read the results of a batch as JSON Lines, also while it runs: those that there are.

        They come in no order, and are those of `GET /batches/{id}`, each with its `custom_id`. Ask
        for the batch before: if it had ended, these are all. A 402 is the batch itself, as there.
        """
        async with self._database.reading() as read:
            batch = await self._service.get(read, subject, batch_id)
            parts = await self._parts(read, batch)
        if parts is None:
            return _withheld(batch)
        if batch.status in HAVE_RESULTS:
            await self._release(batch)
        return StreamingResponse(as_lines(parts, self._blobs), media_type=_JSON_LINES)

    async def _parts(self, read: Read, batch: Batch) -> Sequence[Part] | None:
        """Return where a batch's results are; None where they are withheld."""
        if await self._service.is_withheld(read, batch):
            return None
        return await self._service.parts(read, batch)

    async def _release(self, batch: Batch) -> None:
        if not batch.released:
            async with self._database.writing() as write:
                await self._service.release(write, batch)

    async def cancel_batch(self, subject: HoldingKey, batch_id: BatchId) -> BatchReply:
        """Begin no further request of a batch. What is finished is kept, and charged."""
        async with self._database.writing() as write:
            batch = await self._service.cancel(write, subject, batch_id)
        return batch_reply(batch)

    async def delete_batch(self, subject: HoldingKey, batch_id: BatchId) -> BatchDeletion:
        """Delete a batch that has ended, with its requests and results."""
        return deletion_reply(await self._service.delete(subject, batch_id))


def router(
    service: BatchService,
    database: Database,
    blobs: Blobs,
    *,
    largest_body: int,
    settled: Callable[[], Awaitable[None]],
) -> APIRouter:
    """Return the routes of batches.

    Args:
        service: The slice's use cases.
        database: Where batches are.
        blobs: Where their results are.
        largest_body: Bytes of what may be submitted.
        settled: Awaited before any of them looks, so that money is as it stands.
    """
    routes = APIRouter(dependencies=[Depends(settled)])
    Batches(service, database, blobs, largest_body).add_to(routes)
    return routes


def _json(batch: Batch, status: int) -> Response:
    body = batch_reply(batch).model_dump_json()
    return Response(body, status, media_type="application/json")


def _withheld(batch: Batch) -> Response:
    shown = batch_reply(batch).model_dump(mode="json")
    error = {"code": _PAYMENT_REQUIRED, "message": WITHHELD}
    return JSONResponse({**shown, "error": error}, _PAYMENT_REQUIRED)
