"""The sections of the settings, as the rest of the program reads them.

    Settings
     ├─ server       ServerSettings
     ├─ accounting   AccountingSettings
     ├─ limits       LimitsSettings
     ├─ batches      BatchSettings
     ├─ blobs        BlobSettings
     ├─ vault        VaultSettings
     ├─ outbound     OutboundSettings
     ├─ egress       EgressSettings
     ├─ interns      InternSettings
     ├─ upstream     UpstreamSettings
     ├─ logging      LoggingSettings
     ├─ guardrails   GuardrailSettings, ...
     ├─ providers    ProviderSettings, ...
     └─ models       ModelSettings, ...
                      └─ endpoints   EndpointSettings, ...   └─ pricing   PricingSettings

Frozen, and complete: every field has its default here and nowhere else. The descriptions are
the reference that `docs/guide/configuration.md` and `tollhouse config env` show.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tollhouse.settings.agreement import SIMULATED, adds_simulated, agreement_problems
from tollhouse.settings.fields import (
    ApiKey,
    BaseUrl,
    Credits,
    DatabaseUrl,
    Filled,
    Folder,
    HeaderName,
    HeaderValue,
    HookUrl,
    Host,
    HostPattern,
    Listed,
    Lowered,
    ModelAlias,
    ModelId,
    NetworkField,
    Origin,
    Pause,
    Price,
    ProxyUrl,
    Refusal,
    Seconds,
    Share,
    Slug,
    Text,
    Whole,
)
from tollhouse.settings.hosted import InternSettings
from tollhouse.settings.outgoing import EgressSettings, OutboundSettings
from tollhouse.settings.section import Section
from tollhouse.settings.stored import BatchSettings, BlobSettings, VaultSettings

ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1"

AGREEMENT = "agreement"
"""The type of the validation error that `agreement_problems` raises through `Settings`."""

ProviderKind = Literal["openai_compatible", "anthropic", "simulated"]
DialectName = Lowered[Literal["chat", "responses", "messages", "completions", "embeddings"]]


class ServerSettings(Section):
    """Where and to whom the gateway listens."""

    host: Host = Field(
        default="127.0.0.1",
        description="Address or host name to listen on; 0.0.0.0 is every IPv4 address.",
    )
    port: Whole = Field(
        default=8080, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one."
    )
    regional_hostnames: Listed[HostPattern] = Field(
        default=(),
        description="Patterns (* and ?) of regional host names; requests for them below `/v1` get "
        "a 403.",
    )
    trusted_proxies: Listed[NetworkField] = Field(
        default=(),
        description="Addresses or networks of reverse proxies whose X-Forwarded-* headers count.",
    )
    cors_origins: Listed[Origin] = Field(
        default=(), description="Origins whose pages in a browser may call the API."
    )
    max_connections_per_address: Whole = Field(
        default=2048, ge=1, description="Connections that one client address may hold open."
    )
    max_requests_per_address_per_minute: Whole = Field(
        default=60_000, ge=1, description="Requests that one client address may send in a minute."
    )
    body_limit_bytes: Whole = Field(
        default=33_554_432, ge=1024, description="Largest body of an inference request, in bytes."
    )
    control_body_limit_bytes: Whole = Field(
        default=1_048_576, ge=1024, description="Largest body of every other request, in bytes."
    )
    large_body_workers: Whole = Field(
        default=2,
        ge=1,
        le=64,
        description="Processes that read bodies above 256 KB, so that they hold up nobody; they "
        "are started when they are needed.",
    )
    large_body_memory_bytes: Whole = Field(
        default=536_870_912,
        ge=1024,
        description="Memory that bodies above 256 KB may take at once, all together; one account's "
        "at most half of it. Others wait for their turn.",
    )
    large_body_wait_seconds: Seconds = Field(
        default=30.0,
        description="How long a body above 256 KB may wait for memory before it gets a 503.",
    )
    min_body_bytes_per_second: Whole = Field(
        default=1024,
        ge=0,
        description="Slowest rate at which a request's body may arrive, looked at every 30 "
        "seconds; a slower one gets a 408. 0 for no limit.",
    )
    keep_alive_seconds: Seconds = Field(
        default=15.0,
        description="How long a stream may be silent before it gets a comment that keeps its "
        "connection open.",
    )
    discover_local_models: bool = Field(
        default=False,
        description="Look for Ollama, vLLM, LM Studio and llama.cpp on this machine at the start, "
        "and put their models into the catalogue, free of charge.",
    )
    shutdown_seconds: Seconds = Field(
        default=30.0,
        description="How long running requests may take to finish after SIGTERM or SIGHUP.",
    )
    core_dumps: bool = Field(
        default=False,
        description="Whether the process may be dumped, and looked into by its own user, as "
        "profilers do. Secrets pass through its memory.",
    )


class AccountingSettings(Section):
    """Money that needs no request."""

    initial_grant: Credits = Field(
        default=Decimal(1000),
        description="Credits that the account made on the first start is given; 0 for none.",
    )
    journal_sync: Lowered[Literal["group", "always"]] = Field(
        default="group",
        description="When a charge survives a power failure: with its group, some 30 ms after the "
        "reply, or always before the reply's last byte. It survives the end of the process anyway.",
    )
    verify_seconds: Pause = Field(
        default=300.0,
        description="The pause before the books of the next few accounts are recomputed, beside "
        "serving; what differs is an error in the log and in /metrics. 0 for never.",
    )


class LimitsSettings(Section):
    """How much may be under way, and how often free models may be asked."""

    in_flight_fraction: Share = Field(
        default=Decimal("0.5"),
        description="The part of a prepaid account's balance that its requests under way may hold.",
    )
    in_flight_ceiling: Credits = Field(
        default=Decimal(50), description="The most that they may hold, in credits."
    )
    in_flight_request_cap: Credits = Field(
        default=Decimal(2),
        description="The most that is held for one request, in credits; what is held for one that "
        "names no limit of its output.",
    )
    in_flight_threshold: Credits = Field(
        default=Decimal(500),
        description="Accounts with a balance of so many credits hold what they like.",
    )
    in_flight_new_accounts: bool = Field(
        default=False,
        description="Whether accounts that never used anything are held to it whatever their "
        "balance.",
    )
    settlement_seconds: Pause = Field(
        default=5.0,
        description="How long a request's actual cost stays held after its end.",
    )
    admission_wait_seconds: Pause = Field(
        default=2.0,
        description="How long a request waits for what others hold before it gets a 402.",
    )
    free_requests_per_minute: Whole = Field(
        default=20,
        ge=0,
        description="Requests to free models (ids that end in :free) of one account in a minute.",
    )
    free_requests_per_day: Whole = Field(default=50, ge=0, description="The same in a UTC day.")
    free_requests_per_day_raised: Whole = Field(
        default=1000, ge=0, description="The same for accounts that purchased enough credits."
    )
    free_raised_from: Credits = Field(
        default=Decimal(10), description="Purchased credits that are enough."
    )
    free_raised_tolerance: Credits = Field(
        default=Decimal(1), description="How many of those may be missing."
    )
    limit_source_prefix: Text = Field(
        default="service_",
        description="What `limit_source` begins with in a 402; some clients look for a vendor's.",
    )


class UpstreamSettings(Section):
    """How the gateway talks to providers."""

    connect_seconds: Seconds = Field(
        default=5.0, description="Time for name lookup, TCP and TLS of a new connection."
    )
    pool_seconds: Seconds = Field(
        default=2.0, description="Time to wait for a place in the provider's connection pool."
    )
    head_seconds: Seconds = Field(
        default=60.0, description="Time from the request being sent to the head of the response."
    )
    idle_seconds: Seconds = Field(
        default=120.0, description="Time between two pieces of a response."
    )
    total_seconds: Seconds = Field(default=600.0, description="Hard limit of a whole exchange.")
    cool_down_seconds: Seconds = Field(
        default=30.0,
        description="How long an endpoint that failed is tried after those that did not.",
    )
    connections_per_host: Whole = Field(
        default=1000, ge=1, description="Connections to one provider host; further requests wait."
    )
    max_response_bytes: Whole = Field(
        default=67_108_864, ge=1024, description="Largest response that is not streamed, in bytes."
    )


class LoggingSettings(Section):
    """What is logged, and how it looks."""

    level: Lowered[Literal["debug", "info", "warning", "error"]] = Field(
        default="info", description="The least severe level that is logged."
    )
    format: Lowered[Literal["json", "console", "auto"]] = Field(
        default="auto",
        description="One JSON object a line, or text for people; auto is console on a terminal.",
    )


class GuardrailSettings(Section):
    """A service that policies may name: it is asked before a request goes to a provider."""

    slug: Slug = Field(description="The guardrail's short name, by which policies name it.")
    url: HookUrl = Field(
        description="Where a request's texts are sent by POST, and a verdict is read."
    )
    timeout_seconds: Seconds = Field(
        default=5.0, description="Hard limit of the whole exchange with it."
    )
    on_failure: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="What becomes of a request on which it gave no verdict: a 503, or it passes.",
    )
    headers: Mapping[HeaderName, HeaderValue] = Field(
        default_factory=dict[str, HeaderValue],
        description="Request headers, such as its credentials. Their values are never shown.",
    )


def _provider_name(known: dict[str, Any]) -> str:
    return str(known["slug"])


def _provider_base_url(known: dict[str, Any]) -> str | None:
    return ANTHROPIC_BASE_URL if known["kind"] == "anthropic" else None


class ProviderSettings(Section):
    """One provider account that requests are sent to."""

    slug: Slug = Field(description="The provider's short name, by which endpoints name it.")
    kind: ProviderKind = Field(
        description="What it speaks; simulated answers by itself, without any network."
    )
    base_url: BaseUrl | None = Field(
        default_factory=_provider_base_url,
        validate_default=True,
        description="Address of its API, up to and with /v1. Required for openai_compatible, "
        f"{ANTHROPIC_BASE_URL} for anthropic unless given, not for simulated.",
    )
    api_key: ApiKey | None = Field(
        default=None, description="The key it wants, where it wants one. Never shown."
    )
    name: Filled = Field(
        default_factory=_provider_name,
        description="The name that users see; the slug unless given.",
    )
    on_disconnect: Literal["cancel", "drain"] = Field(
        default="cancel",
        description="When the client hangs up: cancel the call, or (where the provider bills all "
        "the same) drain it to its end.",
    )
    idempotent: bool = Field(
        default=False,
        description="Whether work that it does in vain costs nothing, as with a local model "
        "server: a request that may have reached it and got no answer goes to the next endpoint.",
    )
    list_models: bool = Field(
        default=False,
        description="Put every model of its price list into the catalogue, as slug/model. So it is "
        "for the providers that OPENAI_API_KEY and ANTHROPIC_API_KEY stand for.",
    )
    keeps_data: bool = Field(
        default=True,
        description="Whether it may keep what it is sent; requests that deny data collection go "
        "to providers that do not.",
    )
    dialects: Listed[DialectName] = Field(
        default=(),
        description="What an openai_compatible server speaks: chat, responses, messages, "
        "completions, embeddings. Unless given, what is known of it; of an unknown one chat and "
        "embeddings.",
    )
    refuses: Listed[Filled] = Field(
        default=(),
        description="Request fields that an openai_compatible server answers with an error; they "
        "are left out, besides those that are known of it.",
    )
    head_seconds: Seconds | None = Field(
        default=None,
        description="Time from the request being sent to the head of its response.",
    )
    headers: Mapping[HeaderName, HeaderValue] = Field(
        default_factory=dict[str, HeaderValue],
        description="Further request headers. Their values are never shown.",
    )
    proxy: ProxyUrl | None = Field(
        default=None,
        description="HTTP proxy to reach it through, as http://user:password@host:port. Proxy "
        "variables of the environment are not read.",
    )

    @field_validator("base_url", mode="after")
    @classmethod
    def _base_url_where_needed(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("kind") == "openai_compatible":
            raise Refusal("is required for kind openai_compatible")
        return value

    @field_validator("dialects", "refuses", mode="after")
    @classmethod
    def _openai_compatible_alone(cls, value: object, info: ValidationInfo) -> object:
        if value and info.data.get("kind") != "openai_compatible":
            raise Refusal("has an effect for kind openai_compatible alone; leave it out")
        return value

    @field_validator("base_url", "api_key", "headers", "proxy", mode="after")
    @classmethod
    def _nothing_to_call(cls, value: object, info: ValidationInfo) -> object:
        if value and info.data.get("kind") == "simulated":
            raise Refusal("has no effect for kind simulated, which calls nobody; leave it out")
        return value


class PricingSettings(Section):
    """Prices in USD (= credits). A cached token without a price of its own costs `prompt`."""

    prompt: Price = Field(description="For one input token.")
    completion: Price = Field(description="For one output token, reasoning included.")
    reasoning: Price | None = Field(
        default=None,
        description="For one output token that was reasoning; completion unless given.",
    )
    input_cache_read: Price | None = Field(
        default=None, description="For one input token that was read from the provider's cache."
    )
    input_cache_write: Price | None = Field(
        default=None, description="For one input token that was written to the cache for minutes."
    )
    input_cache_write_1h: Price | None = Field(
        default=None,
        description="For one input token that was written to the cache for an hour; "
        "input_cache_write unless given.",
    )
    request: Price = Field(default=Decimal(0), description="For the request itself.")
    image: Price = Field(
        default=Decimal(0),
        description="For one image of the request, besides the input tokens that it takes.",
    )


PRICING_SHAPES = frozenset(("table", "free"))
"""What the library puts into the location of an error below `pricing`."""


def _shape_of_pricing(value: object) -> str:
    return "free" if isinstance(value, str) else "table"


Pricing = Annotated[
    Annotated[PricingSettings, Tag("table")] | Annotated[Literal["free"], Tag("free")],
    Discriminator(_shape_of_pricing),
]
"""A table of prices, or the word "free"."""


class EndpointSettings(Section):
    """One provider's offer of a model."""

    provider: Filled = Field(description="Slug of the provider.")
    model: Filled = Field(description="The provider's own name of the model.")
    dialects: Listed[DialectName] = Field(
        default=(),
        description="What this model can be asked in, where that is not all that its provider "
        "speaks: embeddings for an embedding model, completions for one that knows no chat.",
    )
    free_limits: bool = Field(
        default=True,
        description="Whether requests to a free model count towards the account's limits where "
        "this endpoint serves it.",
    )
    batch_price_factor: Share = Field(
        default=Decimal(1),
        description="What token prices are multiplied with where a batch is served. The provider "
        "is asked as for any other request: less than 1 is your own discount.",
    )
    pricing: Pricing | None = Field(
        default=None,
        description='Prices, or "free". Known list prices are used where it is left out; a model '
        "without a known price is refused at start.",
    )


class ModelSettings(Section):
    """One model of the catalogue."""

    id: ModelId = Field(
        description="The name that clients send: author/slug, with :variant where wanted."
    )
    aliases: Listed[ModelAlias] = Field(
        default=(),
        description="Other names that clients may send, such as gpt-4o. A name without an author "
        "is found without one as well, where only one model's id ends with it.",
    )
    name: Filled | None = Field(
        default=None, description="The name that users see; the id unless given."
    )
    description: Text | None = Field(
        default=None, description="A sentence or two for the model list."
    )
    context_length: Whole = Field(gt=0, description="Tokens of input and output together.")
    max_completion_tokens: Whole | None = Field(
        default=None,
        gt=0,
        description="Most output tokens of one reply, where there is such a limit.",
    )
    requests_per_minute: Whole | None = Field(
        default=None,
        ge=1,
        description="Requests of one account in a minute, of all its keys together. Unless given, "
        "free models share limits.free_requests_per_minute and others have no limit.",
    )
    endpoints: Annotated[tuple[EndpointSettings, ...], Field(min_length=1)] = Field(
        description="Who serves it; at least one."
    )


class Settings(Section):
    """Everything that can be set, in one frozen value."""

    server: ServerSettings = ServerSettings()
    accounting: AccountingSettings = AccountingSettings()
    limits: LimitsSettings = LimitsSettings()
    batches: BatchSettings = BatchSettings()
    blobs: BlobSettings = BlobSettings()
    vault: VaultSettings = VaultSettings()
    outbound: OutboundSettings = OutboundSettings()
    egress: EgressSettings = EgressSettings()
    interns: InternSettings = InternSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    logging: LoggingSettings = LoggingSettings()
    database_url: DatabaseUrl | None = Field(
        default=None,
        description="PostgreSQL as postgresql://user:password@host:5432/name. Without it a SQLite "
        "file in the data folder is used.",
    )
    data_dir: Folder = Field(
        description="The data folder. In the file, a relative path starts at the file's own folder."
    )
    guardrails: tuple[GuardrailSettings, ...] = Field(
        default=(), description="The guardrails that policies may name."
    )
    simulated_models: bool = Field(
        default=True,
        description="Whether the simulated provider is there beside those that are listed, with "
        "its models (simulated/echo and others). They answer without a network and cost what "
        "/models says of them; no other model ever falls back on them.",
    )
    providers: tuple[ProviderSettings, ...] = Field(
        default=(), validate_default=True, description="The providers."
    )
    models: tuple[ModelSettings, ...] = Field(
        default=(), description="The models of the catalogue."
    )

    @field_validator("providers", mode="after")
    @classmethod
    def _with_simulated(
        cls, value: tuple[ProviderSettings, ...], info: ValidationInfo
    ) -> tuple[ProviderSettings, ...]:
        wanted = info.data.get("simulated_models", True)
        if wanted and adds_simulated((each.slug, each.kind) for each in value):
            return (*value, ProviderSettings(slug=SIMULATED, kind=SIMULATED, name="Simulated"))
        return value

    @model_validator(mode="after")
    def _names_fit(self) -> Settings:
        named = self.model_dump(include={"simulated_models", "guardrails", "providers", "models"})
        problems = agreement_problems(named)
        if problems:
            # One text: pydantic has no way to report several places from here. `load` asks
            # `agreement_problems` itself, also where something else is wrong, and drops this.
            text = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
            raise PydanticCustomError(AGREEMENT, "{text}", {"text": text})
        return self
