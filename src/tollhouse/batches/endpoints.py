"""`/batches`: submitting many requests at once, and what became of them.

Every field of a batch is always there, null where there is nothing to say: the public gateway's
clients refuse one that lacks any. Its results are streamed behind it.

Source: the public gateway's batches, and its client library for them; `POST /batches/{id}/cancel`
and `GET /batches/{id}/results` are ours.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.requests import ClientDisconnect

from tollhouse.batches.service import BatchService, Submitter
from tollhouse.batches.stored_chunks import load_chunk
from tollhouse.batches.types import (
    HAVE_RESULTS,
    LONGEST_ID,
    Batch,
    BatchEndpoint,
    BatchFilter,
    BatchStatus,
    ResultPart,
)
from tollhouse.identity.callers import Billed, HoldingKey
from tollhouse.inference.request import PROVIDER_FIELDS, attribution
from tollhouse.kernel.clock import unix_seconds
from tollhouse.kernel.errors import PayloadTooLarge
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reference, ResponseModel, refusals
from tollhouse.storage.blobs import Blobs
from tollhouse.storage.database import Database

_PIECE = 256 * 1024


async def with_results(
    head: bytes, parts: Iterable[ResultPart], blobs: Blobs
) -> AsyncIterator[bytes]:
    """Give a JSON object, whose head has one other field at least, with `results` as its last.

    Raises:
        BlobMissing: A part is gone: the batch was deleted meanwhile.
        BlobsUnavailable: They cannot be read now.
        DamagedChunk: A part is not as it was written.
    """
    yield head.removesuffix(b"}") + b',"results":['
    comma = b""
    for part in parts:
        lines = await asyncio.to_thread(_joined, await load_chunk(blobs, part.key))
        yield comma
        for start in range(0, len(lines), _PIECE):
            yield lines[start : start + _PIECE]
        comma = b","
    yield b"]}"


async def as_lines(parts: Iterable[ResultPart], blobs: Blobs) -> AsyncIterator[bytes]:
    """Give results, a line of JSON each, piece by piece; raises as `with_results`."""
    for part in parts:
        lines = await load_chunk(blobs, part.key)
        for start in range(0, len(lines), _PIECE):
            yield lines[start : start + _PIECE]


def _joined(lines: bytes) -> bytes:
    return lines.removesuffix(b"\n").replace(b"\n", b",")


WITHHELD = "The batch has ended, but its charge is not covered: add credits to read its results."
_CLIENT_GONE = 499
_PAYMENT_REQUIRED = 402
_JSON_LINES = "application/jsonl"
ListedStatus = Literal["validating", "in_progress", "completed", "failed", "expired", "cancelled"]
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


def _each_once(values: list[ListedStatus]) -> list[ListedStatus]:
    return list(dict.fromkeys(values))


class BatchesQuery(BaseModel):
    """Which batches are wanted."""

    limit: int = Field(default=20, ge=1, le=100, description="How many to return at most.")
    after: Reference | None = Field(
        default=None, description="The `last_id` of the page before this one."
    )
    status: Annotated[list[ListedStatus], AfterValidator(_each_once)] = Field(
        default=[], description="Only those of these statuses; may be repeated."
    )
    created_after: Instant | None = Field(default=None, description="Only those made later.")
    created_before: Instant | None = Field(default=None, description="Only those made earlier.")


_ITEM: dict[str, Any] = {
    "type": "object",
    "required": ["custom_id", "body"],
    "properties": {
        "custom_id": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_ID,
            "description": "Unique in the batch.",
        },
        "body": {
            "type": "object",
            "description": "A request in the endpoint's format; `model` may be left out.",
            "additionalProperties": True,
        },
    },
}
_SUBMISSION: dict[str, Any] = {
    "type": "object",
    "required": ["endpoint", "model", "requests"],
    "properties": {
        "endpoint": {"enum": [each.value for each in BatchEndpoint]},
        "model": {
            "type": "string",
            "minLength": 1,
            "description": "The model of all requests; `:batch` may follow.",
        },
        "requests": {"type": "array", "minItems": 1, "items": _ITEM},
        "completion_window": {"const": "24h"},
        "provider": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {name: {} for name in sorted(PROVIDER_FIELDS)},
            "description": "Who may run it, as in a request; what an item says of its own narrows "
            "it.",
        },
    },
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Any order of fields. The whole is read as it comes.",
        "content": {"application/json": {"schema": _SUBMISSION}},
    }
}


class BatchErrorReply(ResponseModel):
    """Why all of a batch failed."""

    message: str
    """What happened."""


class CountsReply(ResponseModel):
    """How far a batch came; no count ever falls."""

    total: int
    """How many requests the batch has."""
    completed: int
    """Those that were answered."""
    failed: int
    """Those that were not."""


class PromptDetails(ResponseModel):
    """Input tokens that were not simply read."""

    cached_tokens: int
    """Read from a provider's cache."""
    cache_write_tokens: int
    """Written to a provider's cache, to be read by later requests."""


class CompletionDetails(ResponseModel):
    """Output tokens that are no answer."""

    reasoning_tokens: int
    """Spent on reasoning before the answer."""


class BatchUsageReply(ResponseModel):
    """What the requests took so far."""

    prompt_tokens: int
    """Input tokens."""
    completion_tokens: int
    """Output tokens."""
    total_tokens: int
    """Input and output tokens together."""
    cost: float
    """Credits that were charged."""
    is_byok: bool
    """Whether provider keys of one's own were used."""
    prompt_tokens_details: PromptDetails
    """How many of the input tokens came from a cache or went into one."""
    completion_tokens_details: CompletionDetails
    """How many of the output tokens were reasoning."""


class ItemErrorReply(ResponseModel):
    """Why a request has no response."""

    type: str
    """The kind of error, in OpenAI's words."""
    message: str
    """What happened."""
    param: str | None
    """The field that is wrong."""
    error_type: str | None = None
    """The error's type, as in `error.metadata.error_type` elsewhere; may be missing."""


class ItemResponseReply(ResponseModel):
    """How a request was answered."""

    status_code: int
    """Always 200."""
    request_id: str | None
    """The generation's id."""
    body: dict[str, object]
    """The reply, in the format of the batch's endpoint."""


class ItemResultReply(ResponseModel):
    """What became of a request: either `response` or `error` is null."""

    id: str
    """Names the result."""
    custom_id: str
    """What the request was called."""
    response: ItemResponseReply | None
    """The answer."""
    error: ItemErrorReply | None
    """The failure."""


class BatchReply(ResponseModel):
    """A batch."""

    id: str
    """The batch's id, which paths take."""
    object: Literal["batch"] = "batch"
    """Always batch."""
    endpoint: BatchEndpoint
    """Which endpoint its requests are for."""
    model: str
    """The model of all of them."""
    completion_window: Literal["24h"] = "24h"
    """Always 24h."""
    status: BatchStatus
    """How far it came."""
    created_at: int
    """Unix seconds."""
    expires_at: int | None
    """When no further request is begun; Unix seconds."""
    finalized_at: int | None
    """When it ended; Unix seconds."""
    error: BatchErrorReply | None
    """Why all of it failed."""
    provider: str | None
    """The provider that answered the first request; null until one did."""
    request_counts: CountsReply
    """How far it came."""
    usage: BatchUsageReply | None
    """What its requests took so far."""
    results: list[ItemResultReply] | None = None
    """What became of its requests, in no order; null until it ended, where it failed as a whole,
    and in lists."""


class BatchPage(ResponseModel):
    """Batches, newest first."""

    object: Literal["list"] = "list"
    """Always list."""
    data: list[BatchReply]
    """The batches."""
    first_id: str | None
    """The first one's id; null where there is none."""
    last_id: str | None
    """The last one's id: `after` of the next page."""
    has_more: bool
    """Whether there are more."""


class UpstreamDeletion(ResponseModel):
    """What became of a batch at its provider."""

    provider: str
    """The provider's name."""
    status: Literal["not_applicable"] = "not_applicable"
    """Nothing of it is stored there."""


class Deletion(ResponseModel):
    """What was deleted."""

    openrouter: Literal["deleted"] = "deleted"
    """Always deleted; the name is the published one, and means this gateway."""
    upstream: UpstreamDeletion | None = Field(default=None)
    """At its provider; missing where it has none."""


class BatchDeletion(ResponseModel):
    """A batch that was deleted."""

    id: str
    """What it was called."""
    object: Literal["batch"] = "batch"
    """Always batch."""
    deletion: Deletion
    """What was deleted."""


def batch_reply(batch: Batch) -> BatchReply:
    """Return a batch without its results."""
    failed = batch.status is BatchStatus.FAILED
    return BatchReply(
        id=batch.id,
        endpoint=batch.endpoint,
        model=batch.model,
        status=batch.status,
        created_at=unix_seconds(batch.created_at),
        expires_at=unix_seconds(batch.expires_at),
        finalized_at=None if batch.finalized_at is None else unix_seconds(batch.finalized_at),
        error=BatchErrorReply(message=_failure(batch)) if failed else None,
        provider=batch.provider,
        request_counts=CountsReply.model_validate(batch, from_attributes=True),
        usage=_usage(batch) if batch.provider is not None else None,
    )


def _failure(batch: Batch) -> str:
    return f"None of the {batch.total} requests can be run. The first that failed: {batch.error}"


def _usage(batch: Batch) -> BatchUsageReply:
    usage = batch.usage
    return BatchUsageReply(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cost=nano_to_float(batch.cost_nano),
        is_byok=batch.is_byok,
        prompt_tokens_details=PromptDetails(
            cached_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens + usage.cache_write_1h_tokens,
        ),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning_tokens),
    )


@dataclass(frozen=True, slots=True)
class BatchEndpoints:
    """The endpoints of batches."""

    service: BatchService
    database: Database
    blobs: Blobs
    largest_body: int
    """Bytes of what may be submitted."""

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        taken = refusals(400, 401, 402, 403, 409, 413, 422, 429, 500, 502)
        shown = refusals(401, 402, 404, 410, 429, 500, 502)
        lines = {**shown, 200: {"content": {_JSON_LINES: {"schema": {"type": "string"}}}}}
        cancelled = refusals(401, 404, 409, 410, 429, 500, 502)
        deleted = refusals(401, 404, 409, 429, 500, 502)
        routes.post(
            "/batches",
            status_code=202,
            response_model=BatchReply,
            responses=taken,
            openapi_extra=_BODY,
        )(self.create_batch)
        routes.get("/batches", responses=refusals(400, 401, 429, 500, 502))(self.list_batches)
        one = "/batches/{id}"
        routes.get(one, response_model=BatchReply, responses=shown)(self.get_batch)
        routes.get(f"{one}/results", response_class=Response, responses=lines)(
            self.get_batch_results
        )
        routes.post(f"{one}/cancel", responses=cancelled)(self.cancel_batch)
        routes.delete(one, response_model_exclude_none=True, responses=deleted)(self.delete_batch)

    async def create_batch(
        self, request: Request, subject: Billed, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Submit many requests for one model and endpoint; they are run in the background."""
        headers = dict(request.headers.raw)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self.largest_body:
            raise PayloadTooLarge(f"The batch is larger than {self.largest_body} bytes.")
        sender = Submitter(subject, attribution(headers), idempotency_key)
        try:
            batch = await self.service.submit(sender, request.stream())
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
        statuses = [BatchStatus(each) for each in query.status]
        wanted = BatchFilter(statuses, query.created_after, query.created_before)
        async with self.database.reading() as read:
            found, more = await self.service.page(read, subject, wanted, query.after, query.limit)
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
        async with self.database.reading() as read:
            batch = await self.service.get(read, subject, batch_id)
            if batch.status not in HAVE_RESULTS:
                return _json(batch, 200)
            parts = await self.service.results(read, batch)
        if parts is None:
            return _withheld(batch)
        await self.service.require_stored(batch, parts)
        await self.service.release(batch)
        head = batch_reply(batch).model_dump_json(exclude={"results"}).encode()
        return StreamingResponse(
            with_results(head, parts, self.blobs), media_type="application/json"
        )

    async def get_batch_results(self, subject: HoldingKey, batch_id: BatchId) -> Response:
        """Read the results of a batch as JSON Lines, also while it runs: those that there are.

        They come in no order, and are those of `GET /batches/{id}`, each with its `custom_id`. Ask
        for the batch before: if it had ended, these are all. A 402 is the batch itself, as there.
        """
        async with self.database.reading() as read:
            batch = await self.service.get(read, subject, batch_id)
            parts = await self.service.results(read, batch)
        if parts is None:
            return _withheld(batch)
        await self.service.require_stored(batch, parts)
        if batch.status in HAVE_RESULTS:
            await self.service.release(batch)
        return StreamingResponse(as_lines(parts, self.blobs), media_type=_JSON_LINES)

    async def cancel_batch(self, subject: HoldingKey, batch_id: BatchId) -> BatchReply:
        """Begin no further request of a batch. What is finished is kept, and charged."""
        async with self.database.writing() as write:
            batch = await self.service.cancel(write, subject, batch_id)
        return batch_reply(batch)

    async def delete_batch(self, subject: HoldingKey, batch_id: BatchId) -> BatchDeletion:
        """Delete a batch that has ended, with its requests and results."""
        gone = await self.service.delete(subject, batch_id)
        upstream = None if gone.provider is None else UpstreamDeletion(provider=gone.provider)
        return BatchDeletion(id=gone.id, deletion=Deletion(upstream=upstream))


def router(
    service: BatchService,
    database: Database,
    blobs: Blobs,
    *,
    largest_body: int,
    settled: Callable[[], Awaitable[None]],
) -> APIRouter:
    """Return the routes of batches; `settled` is awaited first, so that money is as it stands."""
    routes = APIRouter(tags=["Batches"], dependencies=[Depends(settled)])
    BatchEndpoints(service, database, blobs, largest_body).add_to(routes)
    return routes


def _json(batch: Batch, status: int) -> Response:
    body = batch_reply(batch).model_dump_json()
    return Response(body, status, media_type="application/json")


def _withheld(batch: Batch) -> Response:
    shown = batch_reply(batch).model_dump(mode="json")
    error = {"code": _PAYMENT_REQUIRED, "message": WITHHELD}
    return JSONResponse({**shown, "error": error}, _PAYMENT_REQUIRED)
