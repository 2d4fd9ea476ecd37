"""`GET /generation`: what is known of one reply.

Source: the public gateway's generation object. Its clients want every field; those that this
gateway has no value for are null.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from pydantic import Field

from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import GenerationRecord
from tollhouse.identity.callers import HoldingKey
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reference, ResponseModel, SentTime, refusals
from tollhouse.storage.database import Database

_json = msgspec.json.Decoder(dict[str, Any])
GenerationId = Annotated[
    Reference, Query(description="The reply's `id`, which is its `X-Generation-Id` too.")
]


ALWAYS_NULL: Final = Field(description="Always null.")
NoText = Annotated[str | None, ALWAYS_NULL]
NoNumber = Annotated[int | None, ALWAYS_NULL]


class ProviderResponse(ResponseModel):
    """One provider that was asked."""

    status: int | None
    """Its HTTP status; null where none came."""
    provider_name: str
    """The provider."""
    latency: int
    """Milliseconds until its response began, or until it failed."""
    is_byok: bool
    """Whether it was shown an own key of the customer's."""


class GenerationData(ResponseModel):
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
    """How it is known: exact (reported), estimated (broken off), unknown (nothing booked),
    interrupted (the gateway was killed meanwhile; nothing booked)."""
    estimated_cost: float | None
    """What an interrupted one was thought to cost at most, in credits; null for all others."""
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
    moderation_latency: NoNumber = None
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
    native_tokens_completion_images: NoNumber = None
    num_media_prompt: int | None
    """How many images the request held; null where nothing is charged for them."""
    num_media_completion: NoNumber = None
    num_input_audio_prompt: NoNumber = None
    num_search_results: NoNumber = None
    num_fetches: NoNumber = None
    cache_discount: Annotated[float | None, ALWAYS_NULL] = None
    upstream_id: str | None
    """The provider's own id of the reply."""
    upstream_inference_cost: float | None
    """What the provider's work costs at its price, also where nothing is charged."""
    app_id: NoNumber = None
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
    preset_id: NoText = None
    router: NoText = None
    service_tier: NoText = None
    web_search_engine: NoText = None
    workspace_id: str
    """UUID of the workspace."""
    provider_responses: list[ProviderResponse]
    """The providers that were asked, in order."""
    request_id: NoText = None
    session_id: str | None
    """The session that the request named."""
    response_cache_source_id: NoText = None


class GenerationReply(ResponseModel):
    """The envelope of a generation."""

    data: GenerationData
    """The generation."""


@dataclass(frozen=True, slots=True)
class GenerationEndpoints:
    """The endpoint of generations."""

    accounting: AccountingService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        shown = refusals(400, 401, 404, 429, 500)
        routes.get("/generation", tags=["Generations"], responses=shown)(self.get_generation)

    async def get_generation(
        self,
        subject: HoldingKey,
        id: GenerationId,  # noqa: A002 - the parameter's published name
    ) -> GenerationReply:
        """Show a reply and what it cost.

        A management key sees all of its account, an API key those of its workspace, an intern's
        key its own.
        """
        async with self.database.reading() as read:
            record = await self.accounting.generation(read, subject, id)
        return GenerationReply(data=_reply(record))


def _reply(record: GenerationRecord) -> GenerationData:
    usage, facts = record.usage, msgspec.structs.asdict(record)
    at_provider, estimate = record.provider_cost_nano, record.estimate_nano
    for name in ("trace", "metadata"):
        facts[name] = None if facts[name] is None else _json.decode(facts[name])
    return GenerationData(
        total_cost=nano_to_float(record.cost_nano),
        usage=nano_to_float(record.cost_nano),
        estimated_cost=None if estimate is None else nano_to_float(estimate),
        origin=record.http_referer or "",
        created_at=record.created_at,
        provider_name=record.provider,
        latency=record.latency_ms,
        generation_time=record.generation_ms,
        tokens_prompt=usage.prompt_tokens,
        tokens_completion=usage.output_tokens,
        native_tokens_prompt=usage.prompt_tokens,
        native_tokens_completion=usage.output_tokens,
        native_tokens_reasoning=usage.reasoning_tokens,
        native_tokens_cached=usage.cache_read_tokens,
        num_media_prompt=record.images,
        upstream_inference_cost=None if at_provider is None else nano_to_float(at_provider),
        provider_responses=[
            ProviderResponse(
                status=each.status,
                provider_name=each.provider,
                latency=each.latency_ms,
                is_byok=each.is_byok,
            )
            for each in record.attempts
        ],
        **facts,
    )
