"""`GET /generation`: what is known of one reply.

Source: the public gateway's generation object. Its clients want every field; those that this
gateway has no value for are null.
"""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query

from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import Attempt, GenerationRecord
from tollhouse.identity.access import HoldingKey
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reference, Reply, SentTime, refusals
from tollhouse.storage.database import Database

_json = msgspec.json.Decoder(dict[str, Any])
GenerationId = Annotated[
    Reference, Query(description="The reply's `id`, which is its `X-Generation-Id` too.")
]


class ProviderResponse(Reply):
    """One provider that was asked."""

    status: int | None
    """Its HTTP status; null where none came."""
    provider_name: str
    """The provider."""
    latency: int
    """Milliseconds until its response began, or until it failed."""


class GenerationData(Reply):
    """A reply and its charge."""

    id: str
    """The reply's id."""
    model: str
    """The catalogue's id of the model."""
    created_at: SentTime
    """When the request came."""
    total_cost: float
    """What it cost, in credits."""
    usage: float
    """The same as total_cost."""
    cost_state: str
    """How it is known: exact (reported), estimated (broken off), unknown (nothing booked)."""
    is_byok: bool
    """Whether a provider key of one's own was used."""
    origin: str
    """Address of the program that asked; empty where it named none."""
    data_region: str = "global"
    """Where it was processed."""
    api_type: str
    """The kind of inference."""
    provider_name: str | None
    """Who answered; null where nobody did."""
    streamed: bool
    """Whether the reply was streamed."""
    cancelled: bool
    """Whether the client went away before its end."""
    finish_reason: str | None
    """How the reply ended."""
    native_finish_reason: str | None
    """The same in the provider's words."""
    latency: int | None
    """Milliseconds from the request to the first byte of the reply."""
    moderation_latency: int | None = None
    """Always null."""
    generation_time: int | None
    """Milliseconds from the first byte of the reply to its end."""
    tokens_prompt: int
    """Input tokens."""
    tokens_completion: int
    """Output tokens."""
    native_tokens_prompt: int
    """Input tokens as the provider counts them."""
    native_tokens_completion: int
    """Output tokens as the provider counts them."""
    native_tokens_reasoning: int
    """How many of the output tokens were reasoning."""
    native_tokens_cached: int
    """How many of the input tokens came from a cache."""
    native_tokens_completion_images: int | None = None
    """Always null."""
    num_media_prompt: int | None
    """How many images the request held; null where nothing is charged for them."""
    num_media_completion: int | None = None
    """Always null."""
    num_input_audio_prompt: int | None = None
    """Always null."""
    num_search_results: int | None = None
    """Always null."""
    num_fetches: int | None = None
    """Always null."""
    cache_discount: float | None = None
    """Always null."""
    upstream_id: str | None
    """The provider's own id of the reply."""
    upstream_inference_cost: float | None
    """What the provider's work costs at its price, also where nothing is charged."""
    app_id: int | None = None
    """Always null."""
    external_user: str | None
    """The `user` of the request."""
    http_referer: str | None
    """Address of the program that asked."""
    app_title: str | None
    """Name of the program that asked."""
    categories: str | None
    """What kind of program it is, by its own words, separated by commas."""
    trace: dict[str, Any] | None
    """The `trace` of the request."""
    metadata: dict[str, str] | None
    """The `metadata` of the request."""
    user_agent: str | None
    """The client library that asked."""
    preset_id: str | None = None
    """Always null."""
    router: str | None = None
    """Always null."""
    service_tier: str | None = None
    """Always null."""
    web_search_engine: str | None = None
    """Always null."""
    workspace_id: str
    """UUID of the workspace."""
    provider_responses: list[ProviderResponse]
    """The providers that were asked, in order."""
    request_id: str | None = None
    """Always null."""
    session_id: str | None
    """The session that the request named."""
    response_cache_source_id: str | None = None
    """Always null."""


class GenerationReply(Reply):
    """The envelope of a generation."""

    data: GenerationData
    """The generation."""


class GenerationEndpoints:
    """The endpoint of generations."""

    def __init__(self, accounting: AccountingService, database: Database) -> None:
        """Take what it needs."""
        self._accounting = accounting
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.get(
            "/generation", tags=["Generations"], responses=refusals(400, 401, 404, 429, 500)
        )(self.get_generation)

    async def get_generation(
        self,
        subject: HoldingKey,
        id: GenerationId,  # noqa: A002 - the parameter's published name
    ) -> GenerationReply:
        """Show a reply and what it cost.

        A management key sees all of its account, an API key those of its workspace, an intern's
        key its own.
        """
        async with self._database.reading() as read:
            record = await self._accounting.generation(read, subject, id)
        return GenerationReply(data=_reply(record))


def _reply(record: GenerationRecord) -> GenerationData:
    charge, usage, asked_by = record.charge, record.charge.usage, record.attribution
    at_provider = charge.provider_cost_nano
    return GenerationData(
        id=record.id,
        model=record.model,
        created_at=record.created_at,
        total_cost=nano_to_float(charge.cost_nano),
        usage=nano_to_float(charge.cost_nano),
        cost_state=charge.state.value,
        is_byok=record.is_byok,
        origin=asked_by.http_referer or "",
        api_type=record.api_type,
        provider_name=record.provider,
        streamed=record.streamed,
        cancelled=record.cancelled,
        finish_reason=record.finish_reason,
        native_finish_reason=record.native_finish_reason,
        latency=record.latency_ms,
        generation_time=record.generation_ms,
        tokens_prompt=usage.prompt_tokens,
        tokens_completion=usage.output_tokens,
        native_tokens_prompt=usage.prompt_tokens,
        native_tokens_completion=usage.output_tokens,
        native_tokens_reasoning=usage.reasoning_tokens,
        native_tokens_cached=usage.cache_read_tokens,
        num_media_prompt=record.images,
        upstream_id=record.upstream_id,
        upstream_inference_cost=None if at_provider is None else nano_to_float(at_provider),
        external_user=asked_by.external_user,
        http_referer=asked_by.http_referer,
        app_title=asked_by.app_title,
        categories=asked_by.categories,
        trace=None if asked_by.trace is None else _json.decode(asked_by.trace),
        metadata=None if asked_by.metadata is None else _json.decode(asked_by.metadata),
        user_agent=asked_by.user_agent,
        workspace_id=record.workspace_id,
        provider_responses=[_response(attempt) for attempt in record.attempts],
        session_id=asked_by.session_id,
    )


def _response(attempt: Attempt) -> ProviderResponse:
    return ProviderResponse(
        status=attempt.status, provider_name=attempt.provider, latency=attempt.latency_ms
    )
