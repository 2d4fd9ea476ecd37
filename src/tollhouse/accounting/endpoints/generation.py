"""`GET /generation`: what is known of one reply; its fields name those of the record.

Source: the public gateway's generation object. Its clients want every field; those that this
gateway has no value for are null.
"""

from typing import Annotated, Any, Final

import msgspec
from fastapi import Query
from pydantic import AliasPath, BeforeValidator, Field

from tollhouse.accounting.endpoints.shared import Credits, CreditsOrNone, Endpoints
from tollhouse.identity.callers import HoldingKey
from tollhouse.kernel.wire import Reference, ResponseModel, SentTime, endpoint

GenerationId = Annotated[
    Reference, Query(description="The reply's `id`, which is its `X-Generation-Id` too.")
]
_JSON: Final = BeforeValidator(lambda text: None if text is None else msgspec.json.decode(text))

ALWAYS_NULL: Final = Field(description="Always null.")
NoText = Annotated[str | None, ALWAYS_NULL]
NoNumber = Annotated[int | None, ALWAYS_NULL]


class ProviderResponse(ResponseModel):
    """One provider that was asked."""

    status: int | None
    """Its HTTP status; null where none came."""
    provider_name: str = Field(validation_alias="provider")
    """The provider."""
    latency: int = Field(validation_alias="latency_ms")
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
    total_cost: Credits = Field(validation_alias="cost_nano")
    """What it cost, in credits."""
    usage: Credits = Field(validation_alias="cost_nano")
    """The same as total_cost."""
    cost_state: str
    """How it is known: exact (reported), estimated (broken off), unknown (nothing booked),
    interrupted (the gateway was killed meanwhile; nothing booked)."""
    estimated_cost: CreditsOrNone = Field(validation_alias="estimate_nano")
    """What an interrupted one was thought to cost at most, in credits; null for all others."""
    is_byok: bool
    """Whether a provider key of one's own was used."""
    origin: Annotated[str, BeforeValidator(lambda address: address or "")] = Field(
        validation_alias="http_referer"
    )
    """Address of the program that asked; empty where it named none."""
    data_region: str = "global"
    """Where it was processed."""
    api_type: str
    """The kind of inference."""
    provider_name: str | None = Field(validation_alias="provider")
    """Who answered; null where nobody did."""
    streamed: bool
    """Whether the reply was streamed."""
    cancelled: bool
    """Whether the client went away before its end."""
    finish_reason: str | None
    """How the reply ended."""
    native_finish_reason: str | None
    """The same in the provider's words."""
    latency: int | None = Field(validation_alias="latency_ms")
    """Milliseconds from the request to the first byte of the reply."""
    moderation_latency: NoNumber = None
    generation_time: int | None = Field(validation_alias="generation_ms")
    """Milliseconds from the first byte of the reply to its end."""
    tokens_prompt: int = Field(validation_alias=AliasPath("usage", "prompt_tokens"))
    """Input tokens."""
    tokens_completion: int = Field(validation_alias="output_tokens")
    """Output tokens."""
    native_tokens_prompt: int = Field(validation_alias=AliasPath("usage", "prompt_tokens"))
    """Input tokens as the provider counts them."""
    native_tokens_completion: int = Field(validation_alias="output_tokens")
    """Output tokens as the provider counts them."""
    native_tokens_reasoning: int = Field(validation_alias="reasoning_tokens")
    """How many of the output tokens were reasoning."""
    native_tokens_cached: int = Field(validation_alias="cache_read_tokens")
    """How many of the input tokens came from a cache."""
    native_tokens_completion_images: NoNumber = None
    num_media_prompt: int | None = Field(validation_alias="images")
    """How many images the request held; null where nothing is charged for them."""
    num_media_completion: NoNumber = None
    num_input_audio_prompt: NoNumber = None
    num_search_results: NoNumber = None
    num_fetches: NoNumber = None
    cache_discount: Annotated[float | None, ALWAYS_NULL] = None
    upstream_id: str | None
    """The provider's own id of the reply."""
    upstream_inference_cost: CreditsOrNone = Field(validation_alias="provider_cost_nano")
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
    trace: Annotated[dict[str, Any] | None, _JSON]
    """The `trace` of the request."""
    metadata: Annotated[dict[str, str] | None, _JSON]
    """The `metadata` of the request."""
    user_agent: str | None
    """The client library that asked."""
    preset_id: NoText = None
    router: NoText = None
    service_tier: NoText = None
    web_search_engine: NoText = None
    workspace_id: str
    """UUID of the workspace."""
    provider_responses: list[ProviderResponse] = Field(validation_alias="attempts")
    """The providers that were asked, in order."""
    request_id: NoText = None
    session_id: str | None
    """The session that the request named."""
    response_cache_source_id: NoText = None


class GenerationReply(ResponseModel):
    """The envelope of a generation."""

    data: GenerationData
    """The generation."""


class GenerationEndpoints(Endpoints):
    """The endpoint of generations."""

    @endpoint("GET", "/generation", "Generations", 400, 401, 404, 429, 500)
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
        return GenerationReply.model_validate({"data": record})
