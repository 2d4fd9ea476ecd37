"""The wire models of the catalogue.

Source: the public gateway's model and endpoint objects. Its clients want every field; those that
this gateway has no value for are null. For requests with an `anthropic-version`,
https://docs.anthropic.com/en/api/models-list and https://docs.anthropic.com/en/api/models.
"""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from tollhouse.accounting.types import Price
from tollhouse.inference.price_texts import price_texts
from tollhouse.inference.types import Dialect, Endpoint, Model
from tollhouse.kernel.wire import ResponseModel

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


class Architecture(ResponseModel):
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


class LongPricing(ResponseModel):
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


class PricingReply(ResponseModel):
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
    web_search: str | None = Field(default=None, exclude_if=lambda price: price is None)
    """For one search of the web that the provider itself makes. Left out where it is not known, so
    that a reply with searches has an unknown cost."""
    file_search: str | None = Field(default=None, exclude_if=lambda price: price is None)
    """The same for one search of files that the provider keeps."""
    discount: float = 0.0
    """Always 0: the prices are what is charged."""
    overrides: list[LongPricing]
    """Prices of long requests, in rising order of length."""


class TopProvider(ResponseModel):
    """The provider that is asked first."""

    is_moderated: bool = False
    """Always false: nothing is filtered here."""
    context_length: int | None
    """Tokens of input and output together."""
    max_completion_tokens: int | None
    """Most output tokens of one reply; null: no such limit."""


class ModelLinks(ResponseModel):
    """Where to read on."""

    details: str
    """Path of the model's endpoints."""


class ModelReply(ResponseModel):
    """A model."""

    id: str
    """What requests name it by: in a list also an alias, if it begins with `claude` or
    `anthropic`."""
    object: Literal["model"] = "model"
    """Always model."""
    owned_by: str
    """The author: the id's part before the slash."""
    aliases: Sequence[str]
    """Other names that requests may use."""
    canonical_slug: str
    """The model's own id."""
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


class NextLink(ResponseModel):
    """The way to the rest of a list."""

    next: str | None
    """Path of the next part; null at the end."""


class ModelsPage(ResponseModel):
    """Part of the list of models, or all of it."""

    object: Literal["list"] = "list"
    """Always list."""
    data: list[ModelReply]
    """In the order of the settings."""
    total_count: int
    """How many there are altogether."""
    links: NextLink
    """Where the rest is."""


class OneModel(ResponseModel):
    """The envelope of one model."""

    data: ModelReply
    """The model."""


class CountData(ResponseModel):
    """A number of models."""

    count: int
    """How many there are."""


class CountReply(ResponseModel):
    """The envelope of a number of models."""

    data: CountData
    """The number."""


class ToolChoice(ResponseModel):
    """Which values of `tool_choice` are passed on: all of them."""

    auto: bool = True
    """`auto`: the model decides whether it calls a tool."""
    none: bool = True
    """`none`: the model calls no tool."""
    required: bool = True
    """`required`: the model has to call at least one tool."""
    function: bool = True
    """An object that names the function that the model has to call."""


class EndpointReply(ResponseModel):
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


class ModelEndpoints(ResponseModel):
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


class EndpointsReply(ResponseModel):
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
            context_length=model.context_length, max_completion_tokens=model.max_completion_tokens
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
    return PricingReply.model_validate(price_texts(price))


# In Anthropic's shapes

_ANTHROPICS_LIMIT: Final = 20
_NOT_KNOWN: Final = "1970-01-01T00:00:00Z"
"""What Anthropic says of a model whose release it does not know."""


class AnthropicModelsQuery(BaseModel):
    """Which part of the list is wanted by a client of Anthropic's."""

    after_id: str | None = Field(
        default=None, description="Anthropic's clients: the model behind which the part begins."
    )
    before_id: str | None = Field(
        default=None, description="Anthropic's clients: the model before which the part ends."
    )


class AnthropicModel(ResponseModel):
    """A model, as Anthropic shows one."""

    type: Literal["model"] = "model"
    """Always model."""
    id: str
    """What requests name it by."""
    display_name: str
    """The name that users see."""
    created_at: str = _NOT_KNOWN
    """Always the epoch: not known."""
    lifecycle: Literal["active"] = "active"
    """Always active."""
    max_input_tokens: int
    """Tokens of input and output together."""
    max_tokens: int | None
    """Most output tokens of one reply; null: no such limit."""


class AnthropicModelsPage(ResponseModel):
    """Part of the list of models, as Anthropic shows it."""

    data: list[AnthropicModel]
    """In the order of the settings."""
    has_more: bool
    """Whether there are others in the direction of the request."""
    first_id: str | None
    """The first of this part; null where it is empty."""
    last_id: str | None
    """The last of this part; null where it is empty."""


def anthropic_model(model: Model) -> AnthropicModel:
    """Return a model as Anthropic shows one."""
    return AnthropicModel(
        id=model.id,
        display_name=model.name,
        max_input_tokens=model.context_length,
        max_tokens=model.max_completion_tokens,
    )


def anthropic_page(
    models: Sequence[Model], query: AnthropicModelsQuery, limit: int | None
) -> AnthropicModelsPage:
    """Return a part of the list, with Anthropic's default of models unless a limit is given.

    An id of the query that is not there counts as the list's beginning or end.
    """
    ids = [model.id for model in models]
    size = limit or _ANTHROPICS_LIMIT
    if query.before_id in ids:
        end = ids.index(query.before_id)
        start = max(0, end - size)
        has_more = start > 0
    else:
        start = ids.index(query.after_id) + 1 if query.after_id in ids else 0
        end = min(len(ids), start + size)
        has_more = end < len(ids)
    shown = [anthropic_model(model) for model in models[start:end]]
    return AnthropicModelsPage(
        data=shown,
        has_more=has_more,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )
