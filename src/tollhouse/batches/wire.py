"""Batches as the wire has them.

Every field of a batch is always there, null where there is nothing to say: the public gateway's
clients refuse one that lacks any. Its results are no part of the model: they are streamed behind
it.

Source: the public gateway's client library for batches.
"""

from typing import Literal

from pydantic import Field

from tollhouse.batches.types import Batch, Endpoint, Status
from tollhouse.kernel.clock import unix_seconds
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reply


class BatchErrorReply(Reply):
    """Why all of a batch failed."""

    message: str
    """What happened."""


class CountsReply(Reply):
    """How far a batch came; no count ever falls."""

    total: int
    """How many requests the batch has."""
    completed: int
    """Those that were answered."""
    failed: int
    """Those that were not."""


class PromptDetails(Reply):
    """Input tokens that were not simply read."""

    cached_tokens: int
    """Read from a provider's cache."""
    cache_write_tokens: int
    """Written to a provider's cache, to be read by later requests."""


class CompletionDetails(Reply):
    """Output tokens that are no answer."""

    reasoning_tokens: int
    """Spent on reasoning before the answer."""


class BatchUsageReply(Reply):
    """What the requests took so far."""

    prompt_tokens: int
    """Input tokens."""
    completion_tokens: int
    """Output tokens."""
    total_tokens: int
    """Input and output tokens together."""
    cost: float
    """Credits that were charged."""
    is_byok: bool = False
    """Whether provider keys of one's own were used."""
    prompt_tokens_details: PromptDetails
    """How many of the input tokens came from a cache or went into one."""
    completion_tokens_details: CompletionDetails
    """How many of the output tokens were reasoning."""


class ItemErrorReply(Reply):
    """Why a request has no response."""

    type: str
    """The kind of error, in OpenAI's words."""
    message: str
    """What happened."""
    param: str | None
    """The field that is wrong."""
    error_type: str | None = None
    """The error's type, as in `error.metadata.error_type` elsewhere; may be missing."""


class ItemResponseReply(Reply):
    """How a request was answered."""

    status_code: int
    """Always 200."""
    request_id: str | None
    """The generation's id."""
    body: dict[str, object]
    """The reply, in the format of the batch's endpoint."""


class ItemResultReply(Reply):
    """What became of a request: either `response` or `error` is null."""

    id: str
    """Names the result."""
    custom_id: str
    """What the request was called."""
    response: ItemResponseReply | None
    """The answer."""
    error: ItemErrorReply | None
    """The failure."""


class BatchReply(Reply):
    """A batch."""

    id: str
    """The batch's id, which paths take."""
    object: Literal["batch"] = "batch"
    """Always batch."""
    endpoint: Endpoint
    """Which endpoint its requests are for."""
    model: str
    """The model of all of them."""
    completion_window: Literal["24h"] = "24h"
    """Always 24h."""
    status: Status
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


class BatchPage(Reply):
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


class UpstreamDeletion(Reply):
    """What became of a batch at its provider."""

    provider: str
    """The provider's name."""
    status: Literal["not_applicable"] = "not_applicable"
    """Nothing of it is stored there."""


class Deletion(Reply):
    """What was deleted."""

    openrouter: Literal["deleted"] = "deleted"
    """Always deleted; the name is the published one, and means this gateway."""
    upstream: UpstreamDeletion | None = Field(default=None)
    """At its provider; missing where it has none."""


class BatchDeletion(Reply):
    """A batch that was deleted."""

    id: str
    """What it was called."""
    object: Literal["batch"] = "batch"
    """Always batch."""
    deletion: Deletion
    """What was deleted."""


def batch_reply(batch: Batch) -> BatchReply:
    """Return a batch without its results."""
    failed = batch.status is Status.FAILED
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
        request_counts=CountsReply(
            total=batch.total, completed=batch.completed, failed=batch.failed
        ),
        usage=_usage(batch) if batch.provider is not None else None,
    )


def deletion_reply(batch: Batch) -> BatchDeletion:
    """Return what is said of a batch that was deleted."""
    upstream = None if batch.provider is None else UpstreamDeletion(provider=batch.provider)
    return BatchDeletion(id=batch.id, deletion=Deletion(upstream=upstream))


def _failure(batch: Batch) -> str:
    return f"None of the {batch.total} requests can be run. The first that failed: {batch.error}"


def _usage(batch: Batch) -> BatchUsageReply:
    usage = batch.usage
    return BatchUsageReply(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cost=nano_to_float(batch.cost_nano),
        prompt_tokens_details=PromptDetails(
            cached_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens + usage.cache_write_1h_tokens,
        ),
        completion_tokens_details=CompletionDetails(reasoning_tokens=usage.reasoning_tokens),
    )
