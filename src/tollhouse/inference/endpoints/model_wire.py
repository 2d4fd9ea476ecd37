"""The wire models of the catalogue.

Source: the public gateway's model and endpoint objects. Its clients want every field; those that
this gateway has no value for are null.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, Literal

from pydantic import Field

from tollhouse.accounting.types import Price, Rates, Tier
from tollhouse.inference.types import Dialect, Endpoint, Model
from tollhouse.kernel.wire import Reply

PASSED_ON: Final = (
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "structured_outputs",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
)
"""The parameters of plain chat, in the wire's vocabulary.

Every one is passed on untouched, and clients offer only what stands here; whether a provider
honours it, it has to say itself.
"""
EMBEDDINGS_PASSED_ON: Final = ("dimensions", "encoding_format")
"""The same for embeddings."""


class Architecture(Reply):
    """What goes into a model and comes out of it."""

    input_modalities: Sequence[str] = ("text",)
    """Kinds of content that a request may hold, such as `text` and `image`."""
    output_modalities: Sequence[str] = ("text",)
    """Kinds of content that a reply may hold, such as `text`."""
    modality: str = "text->text"
    """Inputs and outputs in one text: `text+image->text`."""
    tokenizer: str = "Other"
    """Always Other."""
    instruct_type: str | None = None
    """Always null."""


class LongPricing(Reply):
    """Prices of a request with a long input, in USD (= credits) as plain decimal texts."""

    min_prompt_tokens: int
    """They hold for the whole request once it has more input tokens than this."""
    prompt: str
    """For one input token."""
    completion: str
    """For one output token."""
    internal_reasoning: str
    """For one output token that was reasoning."""
    input_cache_read: str
    """For one input token that was read from the provider's cache."""
    input_cache_write: str
    """For one input token that was written to the cache for minutes."""
    input_cache_write_1h: str
    """For one input token that was written to the cache for an hour."""


class PricingReply(Reply):
    """Prices in USD (= credits) as plain decimal texts."""

    prompt: str
    """For one input token."""
    completion: str
    """For one output token."""
    internal_reasoning: str
    """For one output token that was reasoning."""
    request: str
    """For the request itself."""
    image: str
    """For one image of the request, besides its tokens."""
    input_cache_read: str
    """For one input token that was read from the provider's cache."""
    input_cache_write: str
    """For one input token that was written to the cache for minutes."""
    input_cache_write_1h: str
    """For one input token that was written to the cache for an hour."""
    discount: float = 0.0
    """Always 0: the prices are what is charged."""
    overrides: list[LongPricing]
    """Prices of long requests, in rising order of length."""


class TopProvider(Reply):
    """The provider that is asked first."""

    is_moderated: bool = False
    """Always false: nothing is filtered here."""
    context_length: int | None
    """Tokens of input and output together."""
    max_completion_tokens: int | None
    """Most output tokens of one reply; null: no such limit."""


class ModelLinks(Reply):
    """Where to read on."""

    details: str
    """Path of the model's endpoints."""


class ModelReply(Reply):
    """A model."""

    id: str
    """What requests name it by."""
    object: Literal["model"] = "model"
    """Always model."""
    owned_by: str
    """The author: the id's part before the slash."""
    aliases: Sequence[str]
    """Other names that requests may use."""
    canonical_slug: str
    """The same as id."""
    name: str
    """The name that users see."""
    description: str
    """A sentence or two."""
    created: int = 0
    """Unix seconds; always 0: not known."""
    context_length: int
    """Tokens of input and output together."""
    architecture: Architecture = Architecture()
    """What goes in and comes out."""
    pricing: PricingReply
    """The prices of the provider that is asked first."""
    top_provider: TopProvider
    """The provider that is asked first."""
    per_request_limits: dict[str, int] | None = None
    """Always null."""
    supported_parameters: Sequence[str] = PASSED_ON
    """The parameters that are passed on."""
    default_parameters: dict[str, float] | None = None
    """Always null."""
    supported_voices: list[str] | None = None
    """Always null."""
    links: ModelLinks
    """Where to read on."""
    hugging_face_id: str | None = None
    """Always null."""
    expiration_date: str | None = None
    """Always null."""
    knowledge_cutoff: str | None = None
    """Always null."""


class NextLink(Reply):
    """The way to the rest of a list."""

    next: str | None
    """Path of the next part; null at the end."""


class ModelsPage(Reply):
    """Part of the list of models, or all of it."""

    object: Literal["list"] = "list"
    """Always list."""
    data: list[ModelReply]
    """In the order of the settings."""
    total_count: int
    """How many there are altogether."""
    links: NextLink
    """Where the rest is."""


class OneModel(Reply):
    """The envelope of one model."""

    data: ModelReply
    """The model."""


class CountData(Reply):
    """A number of models."""

    count: int
    """How many there are."""


class CountReply(Reply):
    """The envelope of a number of models."""

    data: CountData
    """The number."""


class ToolChoice(Reply):
    """Which values of `tool_choice` are passed on: all of them."""

    auto: bool = True
    """`auto`: the model decides whether it calls a tool."""
    none: bool = True
    """`none`: the model calls no tool."""
    required: bool = True
    """`required`: the model has to call at least one tool."""
    function: bool = True
    """An object that names the function that the model has to call."""


class EndpointReply(Reply):
    """One provider's offer of a model."""

    name: str
    """Provider and model."""
    model_id: str
    """The model's id."""
    model_name: str
    """The model's name."""
    provider_name: str
    """The name that users see of the provider."""
    tag: str
    """The provider's short name."""
    context_length: int
    """Tokens of input and output together."""
    max_completion_tokens: int | None
    """Most output tokens of one reply; null: no such limit."""
    max_prompt_tokens: int | None = None
    """Always null."""
    quantization: str | None = None
    """Always null."""
    pricing: PricingReply
    """What it charges."""
    supported_parameters: Sequence[str] = PASSED_ON
    """The parameters that are passed on."""
    supports_tool_choice: ToolChoice = ToolChoice()
    """Which values of `tool_choice` are passed on."""
    supports_implicit_caching: bool = False
    """Always false: not known."""
    supports_diarization: bool = False
    """Always false."""
    native_tools: dict[str, str] = Field(default={})
    """Always empty."""
    service_tier: str | None = None
    """Always null."""
    uptime_last_5m: float | None = None
    """Always null: not measured."""
    uptime_last_30m: float | None = None
    """Always null: not measured."""
    uptime_last_1d: float | None = None
    """Always null: not measured."""
    latency_last_30m: dict[str, float] | None = None
    """Always null: not measured."""
    throughput_last_30m: dict[str, float] | None = None
    """Always null: not measured."""


class ModelEndpoints(Reply):
    """A model and who serves it."""

    id: str
    """What requests name it by."""
    name: str
    """The name that users see."""
    created: int
    """Unix seconds; always 0: not known."""
    description: str
    """A sentence or two."""
    architecture: Architecture
    """What goes in and comes out."""
    endpoints: list[EndpointReply]
    """In the order in which they are asked."""


class EndpointsReply(Reply):
    """The envelope of a model's endpoints."""

    data: ModelEndpoints
    """The model and who serves it."""


def architecture(model: Model) -> Architecture:
    """Return what goes into a model and comes out of it."""
    if all(endpoint.dialects == frozenset({Dialect.EMBEDDINGS}) for endpoint in model.endpoints):
        return Architecture(output_modalities=("embeddings",), modality="text->embeddings")
    return Architecture()


def parameters(model: Model) -> Sequence[str]:
    """Return the parameters that a model's clients may offer."""
    embeds = architecture(model).output_modalities == ("embeddings",)
    return EMBEDDINGS_PASSED_ON if embeds else PASSED_ON


def model_reply(model: Model) -> ModelReply:
    """Return a model as it is shown."""
    return ModelReply(
        architecture=architecture(model),
        supported_parameters=parameters(model),
        id=model.id,
        owned_by=model.author,
        aliases=model.aliases,
        canonical_slug=model.id,
        name=model.name,
        description=model.description,
        context_length=model.context_length,
        pricing=pricing_reply(model.endpoints[0].price),
        top_provider=TopProvider(
            context_length=model.context_length,
            max_completion_tokens=model.max_completion_tokens,
        ),
        links=ModelLinks(details=f"/v1/models/{model.id}/endpoints"),
    )


def endpoint_reply(model: Model, endpoint: Endpoint, provider_name: str) -> EndpointReply:
    """Return an endpoint as it is shown."""
    return EndpointReply(
        supported_parameters=parameters(model),
        name=f"{provider_name} | {model.id}",
        model_id=model.id,
        model_name=model.name,
        provider_name=provider_name,
        tag=endpoint.provider,
        context_length=model.context_length,
        max_completion_tokens=model.max_completion_tokens,
        pricing=pricing_reply(endpoint.price),
    )


def pricing_reply(price: Price) -> PricingReply:
    """Return a price as it is shown."""
    rates = price.rates
    return PricingReply(
        prompt=plain(rates.prompt),
        completion=plain(rates.completion),
        internal_reasoning=plain(_reasoning(rates)),
        request=plain(rates.request),
        image=plain(rates.image),
        input_cache_read=plain(rates.cache_read),
        input_cache_write=plain(rates.cache_write),
        input_cache_write_1h=plain(rates.cache_write_1h),
        overrides=[_long_pricing(tier) for tier in price.tiers],
    )


def _long_pricing(tier: Tier) -> LongPricing:
    return LongPricing(
        min_prompt_tokens=tier.above_tokens,
        prompt=plain(tier.rates.prompt),
        completion=plain(tier.rates.completion),
        internal_reasoning=plain(_reasoning(tier.rates)),
        input_cache_read=plain(tier.rates.cache_read),
        input_cache_write=plain(tier.rates.cache_write),
        input_cache_write_1h=plain(tier.rates.cache_write_1h),
    )


def _reasoning(rates: Rates) -> Decimal:
    return rates.completion if rates.reasoning is None else rates.reasoning


def plain(amount: Decimal) -> str:
    """Return a decimal without an exponent and without trailing zeros."""
    return f"{amount.normalize():f}"
