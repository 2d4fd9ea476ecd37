"""The sections of the settings, as the rest of the program reads them.

    Settings
     ├─ server       ServerSettings
     ├─ accounting   AccountingSettings
     ├─ limits       LimitsSettings
     ├─ byok         ByokSettings
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
what `docs/reference/configuration.md` and `tollhouse config env` show.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

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
    InvalidValue,
    Listed,
    Lowered,
    ModelAlias,
    ModelId,
    NetworkField,
    Origin,
    Pause,
    Percent,
    Price,
    ProxyUrl,
    Seconds,
    Section,
    Share,
    Slug,
    Text,
    Whole,
    WorkerCount,
)
from tollhouse.settings.problems import SIMULATED, adds_simulated, find_inconsistencies
from tollhouse.settings.service_sections import (
    BatchSettings,
    BlobSettings,
    EgressSettings,
    InternSettings,
    OutboundSettings,
    VaultSettings,
)

if TYPE_CHECKING:
    from tollhouse.kernel.secret import Secret

ANTHROPIC_BASE_URL = "https://api.anthropic.com/v1"

INCONSISTENT = "inconsistent"
"""Type of the validation error for what `find_inconsistencies` returns."""

ProviderKind = Literal["openai_compatible", "anthropic", "simulated"]
DialectName = Lowered[Literal["chat", "responses", "messages", "completions", "embeddings"]]
OutputLimitName = Lowered[Literal["max_tokens", "max_completion_tokens"]]


class ServerSettings(Section):
    """Where and to whom the gateway listens."""

    host: Host = "127.0.0.1"
    """Address or host name to listen on; 0.0.0.0 means every IPv4 address."""
    port: Whole = Field(default=8080, ge=0, le=65535)
    """TCP port to listen on; with 0 the system chooses a free one."""
    workers: WorkerCount = 1
    """How many processes answer requests to models; `auto` is one for each CPU. With more than one,
    one process besides serves the rest of the API, and one supervises them."""
    regional_hostnames: Listed[HostPattern] = ()
    """Patterns (* and ?) of regional host names; requests for them below `/v1` get a 403."""
    trusted_proxies: Listed[NetworkField] = ()
    """Addresses or networks of your reverse proxies. X-Forwarded-* headers are believed only from
    these."""
    cors_origins: Listed[Origin] = ()
    """Origins whose pages in a browser may call the API. `null` is that of files, and of pages in
    a sandbox: any site can make one."""
    max_connections_per_address: Whole = Field(default=2048, ge=1)
    """Connections that one client address may hold open."""
    max_requests_per_address_per_minute: Whole = Field(default=60_000, ge=1)
    """Requests that one client address may send in a minute."""
    body_limit_bytes: Whole = Field(default=33_554_432, ge=1024)
    """Largest body of an inference request, in bytes."""
    control_body_limit_bytes: Whole = Field(default=1_048_576, ge=1024)
    """Largest body of every other request, in bytes."""
    large_body_workers: Whole = Field(default=2, ge=1, le=64)
    """How many processes read request bodies above 256 KB, so that short requests need not wait
    behind them. They are started when they are first needed. One account gets all but one of
    them."""
    large_body_memory_bytes: Whole = Field(default=536_870_912, ge=1024)
    """Memory, in bytes, that all bodies above 256 KB together may take at once. One account gets at
    most half of it. Requests that do not fit wait for their turn; while one waits, a body that
    holds memory and arrives at less than 64 KB a second gets a 408."""
    large_body_wait_seconds: Seconds = 30.0
    """How long a body above 256 KB may wait for memory before it gets a 503."""
    min_body_bytes_per_second: Whole = Field(default=1024, ge=0)
    """Slowest rate at which a request's body may arrive, measured every 30 seconds; a slower one
    gets a 408. 0 means no limit."""
    keep_alive_seconds: Seconds = 15.0
    """How long a stream may be silent before the gateway sends a comment that keeps the connection
    open."""
    inference_driver: Lowered[Literal["callbacks", "tasks"]] = "callbacks"
    """What drives requests to models: the callbacks of their connections, or a task for each. Both
    do the same; callbacks cost less."""
    discover_local_models: bool = False
    """Look for Ollama, vLLM, LM Studio and llama.cpp on this machine at the start, and put their
    models into the catalogue, free of charge."""
    shutdown_seconds: Seconds = 30.0
    """How long running requests may take to finish after SIGTERM or SIGHUP."""
    core_dumps: bool = False
    """Whether the process may leave core dumps and be inspected by its own user, as profilers do.
    Secrets pass through its memory."""


class AccountingSettings(Section):
    """Money that needs no request."""

    initial_grant: Credits = Decimal(1000)
    """Credits given to the account that the first start creates; 0 for none."""
    journal_sync: Lowered[Literal["group", "always"]] = "group"
    """When a charge is safe from a power failure: `group` writes it to the disk with others, about
    a quarter of a second after the reply; `always` writes it before the reply's last byte. A crash
    of the process loses no charge in either case."""
    verify_seconds: Pause = 300.0
    """Pause between two checks in the background, each of which recomputes the balances of a few
    accounts. A difference is an error in the log and in /metrics. 0 means never."""


class LimitsSettings(Section):
    """How much may be under way, and how often free models may be asked."""

    in_flight_fraction: Share = Decimal("0.5")
    """Share of a prepaid account's balance that its running requests together may reserve: the
    in-flight budget. 0.5 is half of the balance."""
    in_flight_ceiling: Credits = Decimal(50)
    """Largest in-flight budget in credits, however large the balance."""
    in_flight_request_cap: Credits = Decimal(2)
    """Most credits of the in-flight budget that one request reserves. A request without
    `max_tokens` reserves exactly this."""
    in_flight_threshold: Credits = Decimal(500)
    """Balance in credits from which an account has no in-flight budget."""
    in_flight_new_accounts: bool = False
    """Whether accounts that never used anything have an in-flight budget even above the
    threshold."""
    settlement_seconds: Pause = 5.0
    """How long the actual cost of a finished request still counts towards the in-flight budget."""
    admission_wait_seconds: Pause = 2.0
    """How long a request waits for other requests of its account to free credits before it gets a
    402."""
    free_requests_per_minute: Whole = Field(default=20, ge=0)
    """Requests that one account may send in a minute to free models (ids that end in :free)."""
    free_requests_per_day: Whole = Field(default=50, ge=0)
    """Requests that one account may send to free models in a UTC day."""
    free_requests_per_day_raised: Whole = Field(default=1000, ge=0)
    """Requests to free models in a UTC day for accounts that purchased enough credits
    (limits.free_raised_from)."""
    free_raised_from: Credits = Decimal(10)
    """Credits that an account must have purchased, ever, for the higher limit a day."""
    free_raised_tolerance: Credits = Decimal(1)
    """Credits by which the purchases may fall short of limits.free_raised_from: with 10 and 1, 9
    purchased credits are enough."""
    limit_source_prefix: Text = "service_"
    """Prefix of `limit_source` in a 402, as in service_key_limit. Some clients look for the prefix
    of a certain vendor."""


class ByokSettings(Section):
    """What requests cost that customers' own provider keys serve (BYOK)."""

    fee_percent: Percent = Decimal(0)
    """Per cent of the model's price in the catalogue that such a request costs its account; what
    the provider takes, the customer pays to the provider. 0 means no fee."""
    free_requests_a_month: Whole = Field(default=0, ge=0)
    """How many such requests of one account in a UTC month cost no fee. 0 means none."""


class UpstreamSettings(Section):
    """How the gateway talks to providers."""

    connect_seconds: Seconds = 5.0
    """Time for name lookup, TCP and TLS of a new connection."""
    pool_seconds: Seconds = 2.0
    """Time to wait for a free connection to the provider's host (upstream.connections_per_host)."""
    head_seconds: Seconds = 60.0
    """Time from sending the request to the first line and headers of the response."""
    idle_seconds: Seconds = 120.0
    """Longest pause between two pieces of a response."""
    total_seconds: Seconds = 600.0
    """Longest time for a request to a provider with its whole response."""
    cool_down_seconds: Seconds = 30.0
    """For how long after a failure an endpoint is tried only after the endpoints that did not
    fail."""
    connections_per_host: Whole = Field(default=1000, ge=1)
    """Most connections to one host of a provider; further requests wait."""
    max_response_bytes: Whole = Field(default=67_108_864, ge=1024)
    """Largest response that is not streamed, in bytes."""


class LoggingSettings(Section):
    """What is logged, and how it looks."""

    level: Lowered[Literal["debug", "info", "warning", "error"]] = "info"
    """The least severe level that is logged."""
    format: Lowered[Literal["json", "console", "auto"]] = "auto"
    """`json` writes one JSON object a line, `console` text for people; `auto` is `console` on a
    terminal and `json` otherwise."""
    file_bytes: Whole = Field(default=52_428_800, ge=0)
    """How many bytes of the log `logs/server.log` in the data folder and its older files keep
    together, for `tollhouse logs`. 0 writes no file."""


class GuardrailSettings(Section):
    """A service that policies may name: it is asked before a request goes to a provider."""

    slug: Slug
    """The guardrail's short name, by which policies name it."""
    url: HookUrl
    """Address to which a request's texts are sent by POST, and which answers with a verdict."""
    timeout_seconds: Seconds = 5.0
    """Longest time for a call of the guardrail, with its answer."""
    on_failure: Literal["refuse", "allow"] = "refuse"
    """What happens to a request if the guardrail gives no verdict: `refuse` answers it with a 503,
    `allow` lets it pass."""
    headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict[str, HeaderValue])
    """Request headers for the guardrail, such as its credentials. Their values are never shown."""


def _provider_name(known: dict[str, Any]) -> str:
    return str(known["slug"])


def _provider_base_url(known: dict[str, Any]) -> str | None:
    return ANTHROPIC_BASE_URL if known["kind"] == "anthropic" else None


_SHORTEST_KEY: Final = 8
"""Characters of a provider's key: what is shorter is masked nowhere."""


class ProviderSettings(Section):
    """One provider account that requests are sent to."""

    slug: Slug
    """The provider's short name, by which endpoints name it."""
    kind: ProviderKind
    """Which API the provider speaks; `simulated` is built in and needs no network."""
    base_url: BaseUrl | None = Field(default_factory=_provider_base_url, validate_default=True)
    """Address of the provider's API, up to and including /v1. Required for openai_compatible,
    https://api.anthropic.com/v1 for anthropic if not given, not allowed for simulated."""
    api_key: ApiKey | None = None
    """The key that the provider requires, if it does (8 characters or more). Never shown."""
    name: Filled = Field(default_factory=_provider_name)
    """The name that users see; the slug if not given."""
    on_disconnect: Literal["cancel", "drain"] = "cancel"
    """What happens to a running call when the client disconnects: `cancel` ends it, `drain` reads
    it to its end (for providers that bill the whole reply anyway)."""
    idempotent: bool = False
    """Whether a request that is sent twice costs nothing extra, as with a local model server. If
    so, a request that may have reached this provider and got no answer is sent to the model's next
    endpoint."""
    list_models: bool = False
    """Whether every model of the provider's known price list is in the catalogue, as slug/model.
    The providers that OPENAI_API_KEY and ANTHROPIC_API_KEY add have it switched on."""
    keeps_data: bool = True
    """Whether the provider may keep what it is sent. Requests with `data_collection: deny` go only
    to providers with `false`."""
    dialects: Listed[DialectName] = ()
    """Which APIs an openai_compatible server has: chat, responses, messages, completions,
    embeddings. If not given: what is known of this server, or chat and embeddings for an unknown
    one."""
    refuses: Listed[Filled] = ()
    """Request fields that the server answers with an error. They are left out, as are those that
    are known of this server. Of max_tokens and max_completion_tokens, chats get the other one. A
    kind of item or tool of the responses format (agent_message) may be named, too: it becomes text,
    or the endpoint is not asked."""
    output_limit: OutputLimitName | None = None
    """What an openai_compatible server calls the limit of a chat's output: max_tokens or
    max_completion_tokens, whichever of the two the request has. If not given: what is known of this
    server, or max_tokens for an unknown one."""
    head_seconds: Seconds | None = None
    """As upstream.head_seconds, for this provider alone."""
    headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict[str, HeaderValue])
    """Further headers of every request to this provider. Their values are never shown."""
    proxy: ProxyUrl | None = None
    """HTTP proxy through which the provider is called, as http://user:password@host:port. Proxy
    variables of the environment are ignored."""

    @field_validator("base_url", mode="after")
    @classmethod
    def _base_url_where_needed(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("kind") == "openai_compatible":
            raise InvalidValue("is required for kind openai_compatible")
        return value

    @field_validator("dialects", "output_limit", mode="after")
    @classmethod
    def _openai_compatible_alone(cls, value: object, info: ValidationInfo) -> object:
        if value and info.data.get("kind") != "openai_compatible":
            raise InvalidValue("has an effect for kind openai_compatible alone; leave it out")
        return value

    @field_validator("base_url", "api_key", "headers", "proxy", "refuses", mode="after")
    @classmethod
    def _nothing_to_call(cls, value: object, info: ValidationInfo) -> object:
        if value and info.data.get("kind") == "simulated":
            raise InvalidValue("has no effect for kind simulated, which calls nobody; leave it out")
        return value

    @field_validator("api_key", mode="after")
    @classmethod
    def _can_be_masked(cls, value: Secret | None) -> Secret | None:
        if value is not None and len(value.reveal()) < _SHORTEST_KEY:
            raise InvalidValue(
                f"has fewer than {_SHORTEST_KEY} characters, so that it could not be masked where "
                "the provider repeats it; leave it out if the server requires none"
            )
        return value


class PricingSettings(Section):
    """Prices in USD (= credits). A cached token without a price of its own costs `prompt`."""

    prompt: Price
    """For one input token."""
    completion: Price
    """For one output token, reasoning included."""
    reasoning: Price | None = None
    """For one output token that was reasoning; `completion` if not given."""
    input_cache_read: Price | None = None
    """For one input token that was read from the provider's cache."""
    input_cache_write: Price | None = None
    """For one input token that was written to the provider's cache for some minutes."""
    input_cache_write_1h: Price | None = None
    """For one input token that was written to the provider's cache for an hour; `input_cache_write`
    if not given."""
    request: Price = Decimal(0)
    """For the request itself, whatever its length."""
    image: Price = Decimal(0)
    """For one image in the request, in addition to the input tokens that the provider counts for
    it."""
    web_search: Price | None = None
    """For one search of the web that the provider itself makes. If not given: 0.01 at Anthropic and
    at OpenAI; elsewhere a reply with searches has an unknown cost, and only the rest is charged."""
    file_search: Price | None = None
    """For one search of files that the provider keeps. If not given: 0.0025 at OpenAI; elsewhere a
    reply with such searches has an unknown cost, and only the rest is charged."""


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

    provider: Filled
    """Slug of the provider."""
    model: Filled
    """The name by which the provider knows the model."""
    dialects: Listed[DialectName] = ()
    """Which of the provider's APIs can be used for this model, if not all: embeddings for an
    embedding model, completions for a model without chat."""
    refuses: Listed[Filled] = ()
    """Request fields that the provider answers with an error for this model, besides those that it
    always refuses: temperature for a model that reasons."""
    output_limit: OutputLimitName | None = None
    """As the provider's, for this model alone: max_completion_tokens for a deployment of GPT-5."""
    free_limits: bool = True
    """Whether requests to a free model that this endpoint serves count towards the account's limits
    for free models."""
    batch_price_factor: Share = Decimal(1)
    """Factor for the prices of tokens in batches: 0.5 is half price. The provider charges you as
    for live requests, so less than 1 is a discount at your own expense."""
    pricing: Pricing | None = None
    """Prices, or "free". If left out, the known list price is used; a model without a known price
    is refused at the start."""


class ModelSettings(Section):
    """One model of the catalogue."""

    id: ModelId
    """The name that clients send, as author/slug, or author/slug:variant."""
    aliases: Listed[ModelAlias] = ()
    """Other names that clients may send, such as gpt-4o. A name without its author is found without
    an alias, too, if it ends the id of one model only. Those that begin with claude or anthropic
    are in the list of models: Claude Code offers no others."""
    name: Filled | None = None
    """The name that users see; the id if not given."""
    description: Text | None = None
    """A sentence or two for the model list."""
    context_length: Whole = Field(gt=0)
    """Most tokens of a request and its reply together."""
    max_completion_tokens: Whole | None = Field(default=None, gt=0)
    """Most output tokens of one reply, if the model has such a limit."""
    requests_per_minute: Whole | None = Field(default=None, ge=1)
    """Requests for this model that one account may send in a minute, with all its keys together. If
    not given, free models share limits.free_requests_per_minute and other models have no limit."""
    endpoints: Annotated[tuple[EndpointSettings, ...], Field(min_length=1)]
    """The providers that serve the model; at least one."""


class Settings(Section):
    """Everything that can be set, in one frozen value."""

    server: ServerSettings = ServerSettings()
    accounting: AccountingSettings = AccountingSettings()
    limits: LimitsSettings = LimitsSettings()
    byok: ByokSettings = ByokSettings()
    batches: BatchSettings = BatchSettings()
    blobs: BlobSettings = BlobSettings()
    vault: VaultSettings = VaultSettings()
    outbound: OutboundSettings = OutboundSettings()
    egress: EgressSettings = EgressSettings()
    interns: InternSettings = InternSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    logging: LoggingSettings = LoggingSettings()
    database_url: DatabaseUrl | None = None
    """PostgreSQL, as postgresql://user:password@host:5432/name. If not given, a SQLite file in the
    data folder is used."""
    data_dir: Folder
    """The data folder. A relative path in the file starts at the file's own folder."""
    guardrails: tuple[GuardrailSettings, ...] = ()
    """The guardrails that policies may name."""
    simulated_models: bool = True
    """Whether the built-in simulated provider is available besides the configured ones, with its
    models (simulated/echo and others). They need no network and cost what /models says. They answer
    only requests that name them, and are never a fallback for another model."""
    providers: tuple[ProviderSettings, ...] = Field(default=(), validate_default=True)
    """The providers."""
    models: tuple[ModelSettings, ...] = ()
    """The models of the catalogue."""

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
    def _consistent(self) -> Settings:
        named = self.model_dump(include={"simulated_models", "guardrails", "providers", "models"})
        problems = find_inconsistencies(named)
        if problems:
            # One text: pydantic has no way to report several places from here. `load` asks
            # `find_inconsistencies` itself, also where something else is wrong, and drops this.
            text = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
            raise PydanticCustomError(INCONSISTENT, "{text}", {"text": text})
        return self
