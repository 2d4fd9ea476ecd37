"""Models and endpoints as the data plane sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Self
from urllib.parse import quote

from msgspec import Struct

if TYPE_CHECKING:
    from tollhouse.accounting.types import Price


@dataclass(frozen=True, slots=True)
class RequestBuilder:
    """Builds the URL of a request to a provider, from a path below its base URL.

    In a path, `{model}` stands for the provider's name of the model. It may have a query string.
    """

    path: str
    stream_path: str | None = None
    """The path of a request whose reply is streamed; None if it is the same."""

    def url(self, base_url: str, model: str, *, stream: bool, query: str = "") -> str:
        """Return the URL of a request; the query is the client's, as far as it is forwarded."""
        path = self.stream_path if stream and self.stream_path is not None else self.path
        if "{model}" in path:
            path = path.replace("{model}", quote(model, safe=""))
        if query:
            path = f"{path}{'&' if '?' in path else '?'}{query}"
        return f"{base_url}/{path}"


class Dialect(StrEnum):
    """An API format that providers have, with what builds its requests; the value is its name."""

    builder: RequestBuilder

    def __new__(cls, name: str, builder: RequestBuilder) -> Self:
        """Return a dialect; as an enum's member it is compared and pickled by its name."""
        dialect = str.__new__(cls, name)
        dialect._value_ = name
        dialect.builder = builder
        return dialect

    CHAT = "chat/completions", RequestBuilder("chat/completions")
    RESPONSES = "responses", RequestBuilder("responses")
    MESSAGES = "messages", RequestBuilder("messages")
    COUNT_TOKENS = "messages/count_tokens", RequestBuilder("messages/count_tokens")
    COMPLETIONS = "completions", RequestBuilder("completions")
    EMBEDDINGS = "embeddings", RequestBuilder("embeddings")


OutputLimit = Literal["max_tokens", "max_completion_tokens"]
"""A name of the limit of a chat's output."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a provider's server besides its dialects."""

    usage_in_streams: bool = True
    """Whether it knows `stream_options.include_usage`."""
    refuses: frozenset[str] = frozenset()
    """Top-level fields of a request that it answers with an error, whatever the dialect."""
    refuses_in_chat: frozenset[str] = frozenset()
    """Those that it refuses in chats besides."""
    takes_extensions: bool = False
    """Whether it knows the public gateway's additions to the other dialects, too."""
    output_limit: OutputLimit = "max_tokens"
    """What it calls the limit of a chat's output."""
    takes_reasoning_as: Literal["reasoning_content", "reasoning_details"] | None = None
    """The field of a chat's history for reasoning of which nobody knows who made it. What a
    provider made goes back to it in the field in which it came."""
    refuses_reasoning: bool = False
    """Whether it refuses chats with such a field."""

    @property
    def refused_in_chat(self) -> frozenset[str]:
        """Every field that it refuses in chats."""
        return self.refuses | self.refuses_in_chat if self.refuses_in_chat else self.refuses


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider's offer of a model."""

    provider: str
    """The provider's slug."""
    model: str
    """The provider's own name of the model."""
    price: Price
    idempotent: bool = False
    """Work that the provider does in vain costs nothing."""
    dialects: frozenset[Dialect] | None = None
    """What the model can be asked in; None for all that its provider speaks."""
    profile: Profile = field(default_factory=Profile)
    max_completion_tokens: int | None = None
    """The most that the model writes, where that is known."""
    provider_name: str = ""
    """As users see it."""
    keeps_data: bool = True
    """Whether its provider may keep what it is sent."""
    free_limits: bool = True
    """Whether requests to a free model count towards the account's limits here."""
    batch_price_factor: Decimal = Decimal(1)
    """What token prices are multiplied with where a batch is served."""


FREE_VARIANT: Final = ":free"
"""How the ids of free models end."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the catalogue."""

    id: str
    name: str
    description: str
    context_length: int
    max_completion_tokens: int | None
    endpoints: tuple[Endpoint, ...]
    """In the order in which they are tried."""
    requests_per_minute: int | None = None
    """Of one account; None for what holds for all models of its kind."""
    aliases: tuple[str, ...] = ()
    """Other names by which requests may name it."""

    @property
    def author(self) -> str:
        """Its id's part before the slash."""
        return self.id.partition("/")[0]

    @property
    def slug(self) -> str:
        """Its id without the author."""
        return self.id.partition("/")[2]

    @property
    def is_free_variant(self) -> bool:
        """Whether the limits of free models hold for it."""
        return self.id.endswith(FREE_VARIANT)


@dataclass(frozen=True, slots=True)
class MaxPrice:
    """The most that an endpoint may cost: USD for a million tokens, a request, an image."""

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None
    image: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a request says about who may serve it. Providers go by slug or name."""

    models: tuple[str, ...] = ()
    """Tried, in this order, after the model that was asked for."""
    order: tuple[str, ...] = ()
    """Providers that are tried before all others, in this order."""
    only: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    allow_fallbacks: bool = True
    """False: a model's first endpoint has the last word."""
    require_parameters: bool = False
    """Only endpoints that take every parameter of the request."""
    deny_data_collection: bool = False
    """Only providers that keep nothing."""
    unsupported_guarantees: bool = False
    """Something is required that no endpoint here claims."""
    zdr: bool = False
    """Nothing may be kept at all: no endpoint claims that, but customers do of their own keys."""
    by_price: bool = False
    """The cheapest first."""
    max_price: MaxPrice | None = None


NO_PREFERENCES: Final = Preferences()


class Demand(Struct, frozen=True):
    """What a request asks for, before any endpoint."""

    input_tokens: int
    """Estimated from its bytes."""
    output_tokens: int | None
    """What its limits allow, for all its answers together; None where it sets none that can be
    read, 0 where nothing is written."""
    images: int
    choices: int = 1
    """How many are written, each as long as the limit allows."""
    reasoning_tokens: int = 0
    """The tokens by which an output limit below the reasoning budget may be raised."""
    searches: int = 0
    """How many searches of the web it lets the provider make; 0 where it sets no limit."""


Reason = Literal[
    "not_spoken",
    "policy",
    "only",
    "ignore",
    "unvouched",
    "data_collection",
    "max_price",
    "require_parameters",
    "allow_fallbacks",
    "free_limits",
    "own_keys",
]
"""Why an endpoint is not tried: a word of `provider`, or what else stands against it."""


@dataclass(frozen=True, slots=True)
class ExcludedEndpoint:
    """An endpoint that a request does not try."""

    model: Model
    endpoint: Endpoint
    reason: Reason
    details: tuple[str, ...] = ()
    """What the policies say, a sentence each."""


class ReplyIdentity(Struct, frozen=True, gc=False):
    """What every piece of one reply says of itself."""

    id: str
    model: str
    provider: str
    """The provider's name."""
    created: int
    """Unix seconds."""
    maker: str = ""
    """The provider's slug, with which values are marked that only it can read."""
    input_tokens: int = 0
    """An estimate of the request's, for streams that begin with it."""
