"""Usage, prices, charges and the record of a generation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tollhouse.kernel.clock import from_millis
from tollhouse.kernel.money import NANO_DIGITS, decimals, scaled

if TYPE_CHECKING:
    from collections.abc import Sequence


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one reply in disjoint classes: the sum of the classes is the total.

    Providers count differently (chat's `prompt_tokens` contains the cached ones, Anthropic's
    `input_tokens` does not); adapters bring both to this form.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    """Input written to a cache for the usual five minutes."""
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    """All output, reasoning included."""
    reasoning_tokens: int = 0
    """How many of the output tokens were reasoning; not a class of its own."""
    searches: int = 0
    """Searches of the web that the provider made; they have a fee and are no tokens."""
    file_searches: int = 0
    """The same of files that it keeps."""

    @property
    def prompt_tokens(self) -> int:
        """All input tokens, cached or not."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.cache_write_1h_tokens
        )

    @property
    def total_tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.output_tokens

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens of each class by name, as they are stored."""
        return {
            name: count
            for name, count in msgspec.structs.asdict(self).items()
            if "searches" not in name
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """Exact prices in credits: for one token of each class, one request, one image, one search."""

    prompt: Decimal
    completion: Decimal
    cache_read: Decimal
    cache_write: Decimal
    cache_write_1h: Decimal
    request: Decimal = Decimal(0)
    reasoning: Decimal | None = None
    """For one output token that was reasoning; None: as any other, `completion`."""
    image: Decimal = Decimal(0)
    web_search: Decimal | None = None
    """For one search of the web that the provider made; None: nobody knows."""
    file_search: Decimal | None = None
    """The same of files."""
    units: Units = field(init=False, repr=False, compare=False)
    """The same as whole numbers, for sums that cost a tenth."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", Units.of(self))


class Units(NamedTuple):
    """Rates as whole numbers of one unit, a decimal fraction of a nano-credit."""

    per_nano: int
    prompt: int
    completion: int
    cache_read: int
    cache_write: int
    cache_write_1h: int
    request: int
    reasoning: int
    image: int
    web_search: int
    file_search: int
    output: int
    """Of any token of the output at most: the dearer of completion and reasoning."""

    @property
    def are_zero(self) -> bool:
        """Whether nothing costs anything."""
        return not any(self[1:])

    @classmethod
    def of(cls, rates: Rates) -> Units:
        """Return rates in the largest unit that they are all whole numbers of."""
        given = {name: getattr(rates, name) for name in cls._fields[1:-1]}
        if rates.reasoning is None:
            given["reasoning"] = rates.completion
        given |= {name: given[name] or _ZERO for name in ("web_search", "file_search")}
        digits = max(NANO_DIGITS, *map(decimals, given.values()))
        counts = {name: scaled(rate, digits) for name, rate in given.items()}
        output = max(counts["completion"], counts["reasoning"])
        return cls(10 ** (digits - NANO_DIGITS), **counts, output=output)


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates that hold for the whole request once its input is larger than `above_tokens`."""

    above_tokens: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs at one provider."""

    rates: Rates
    tiers: tuple[Tier, ...] = ()
    """In rising order of `above_tokens`."""
    units: tuple[Units, ...] = field(init=False, repr=False, compare=False)
    """Of the rates and of each tier's."""
    is_free: bool = field(init=False, repr=False, compare=False)
    has_images: bool = field(init=False, repr=False, compare=False)
    has_fees: bool = field(init=False, repr=False, compare=False)
    """Whether anything but tokens costs something: a request, its images or its searches."""

    def __post_init__(self) -> None:
        # Once: every request asks.
        units = (self.rates.units, *(tier.rates.units for tier in self.tiers))
        fees = (each.request or each.image or each.web_search for each in units)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "is_free", all(each.are_zero for each in units))
        object.__setattr__(self, "has_images", any(each.image for each in units))
        object.__setattr__(self, "has_fees", any(fees))


_ZERO = Decimal(0)
FREE = Price(Rates(_ZERO, _ZERO, _ZERO, _ZERO, _ZERO))


class Cost(msgspec.Struct, frozen=True, gc=False):
    """What a usage costs, in nano-credits."""

    total_nano: int
    """The exact sum, rounded once; the two parts add up to it."""
    prompt_nano: int
    """All but the completion: the input, the request, its images and searches."""
    completion_nano: int


class CostState(StrEnum):
    """How well a generation's cost is known."""

    EXACT = "exact"
    """From the usage that the provider reported."""
    ESTIMATED = "estimated"
    """The reply was broken off; from the tokens seen until then."""
    UNKNOWN = "unknown"
    """The reply ended and no usage came, so that nothing was charged; or it used what has no known
    price, so that the rest was. Somebody should look."""
    INTERRUPTED = "interrupted"
    """The gateway was killed while the provider was at work, so that nothing was charged; it may
    bill the work all the same."""


class Charge(msgspec.Struct, frozen=True):
    """What is booked for a generation."""

    state: CostState
    usage: Usage
    cost_nano: int
    provider_cost_nano: int | None
    """What the provider's work costs at its price; None where nobody knows."""
    cost: Cost | None
    """The customer's cost with its parts, for the reply; None where it is unknown. With an own key
    it is what the provider takes from the customer."""
    is_byok: bool = False
    """Whether the provider was shown the customer's own key."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What a request says of the program that sent it."""

    http_referer: str | None = None
    app_title: str | None = None
    user_agent: str | None = None
    external_user: str | None = None
    session_id: str | None = None
    categories: str | None = None
    """Of the program, separated by commas."""
    trace: str | None = field(default=None, repr=False)
    """A JSON object: how the caller's own tracing names the request."""
    metadata: str | None = field(default=None, repr=False)
    """A JSON object of texts, for the caller's own use."""


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One provider that was asked."""

    provider: str
    status: int | None
    """Its HTTP status; None where none came."""
    latency_ms: int
    """Until its response head, or its failure."""
    is_byok: bool = False
    """Whether it was shown a customer's own key."""


class Right(NamedTuple):
    """A part of what a process was granted of a budget, in nano-credits."""

    scope: str
    id: str
    window: str
    nano: int


class GenerationRecord(
    msgspec.Struct,
    array_like=True,
    tag=2,
    forbid_unknown_fields=True,
    frozen=True,
    gc=False,
):
    """One reply that a caller was owed, and its charge. The id makes settling it twice harmless.

    Its fields are the columns of `generations`, in their order, as these store them. The journal
    has them as a JSON array that begins with the tag: the version of this list. Change it with the
    fields, so that no record is read as what it is not.
    """

    id: str
    account_id: str
    workspace_id: str
    key_hash: str
    payer_hash: str | None
    """The key that answered for the one that it was asked with; it counts to both."""
    api_type: str
    model: str
    provider: str | None
    provider_model: str | None
    upstream_id: str | None
    is_byok: bool
    streamed: bool
    cancelled: bool
    finish_reason: str | None
    native_finish_reason: str | None
    cost_state: str
    """One of `CostState`."""
    cost_nano: int
    provider_cost_nano: int | None
    """What the provider's work costs at its price; None where nobody knows."""
    input_tokens: int
    """This and the other counts are those of `Usage`."""
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    reasoning_tokens: int
    images: int | None
    """How many images the request held; None where nothing is charged for them."""
    free_limited: bool
    """Whether it counts towards the account's limits of free models."""
    latency_ms: int | None
    """From the request's arrival to the first byte of the reply."""
    generation_ms: int | None
    attempts_json: str
    """The providers that were asked: a JSON array of `Attempt`."""
    http_referer: str | None
    """This and what follows is what `Attribution` says."""
    app_title: str | None
    user_agent: str | None
    external_user: str | None
    session_id: str | None
    categories: str | None
    trace: str | None
    metadata: str | None
    created_ms: int
    """When its request arrived, in milliseconds since the epoch."""
    estimate_nano: int | None = None
    """What an interrupted one was thought to cost at most; None for all others."""
    rights: tuple[Right, ...] = ()
    """What it uses up of what its process was granted of budgets. No column."""

    def __repr__(self) -> str:
        """Show which it is, and nothing that a caller or a provider said."""
        return f"{type(self).__name__}(id={self.id!r})"

    @property
    def key_hashes(self) -> tuple[str, ...]:
        """The keys whose counters it raises, its own first."""
        own, payer = self.key_hash, self.payer_hash
        return (own,) if payer is None else (own, payer)

    @property
    def created_at(self) -> datetime:
        """When its request arrived."""
        return from_millis(self.created_ms)

    @property
    def utc_day(self) -> date:
        """The UTC day that it counts towards: that of its request's arrival."""
        return _day(self.created_ms // _DAY_MS)

    @property
    def spend(self) -> Spend:
        """What it adds to the counters of its keys."""
        return Spend(self.cost_nano, (self.provider_cost_nano or 0) if self.is_byok else 0)

    @property
    def usage(self) -> Usage:
        """Its tokens."""
        return Usage(
            self.input_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.cache_write_1h_tokens,
            self.output_tokens,
            self.reasoning_tokens,
        )

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The providers that were asked."""
        return _decode_attempts(self.attempts_json)


def attempts_json(attempts: Sequence[Attempt]) -> str:
    """Return what a record holds of the providers that were asked."""
    return _encode(attempts).decode() if attempts else "[]"


_DAY_MS = 24 * 60 * 60 * 1000
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_encode = msgspec.json.Encoder().encode
_decode_attempts = msgspec.json.Decoder(tuple[Attempt, ...]).decode


@lru_cache(16)
def _day(days: int) -> date:
    """Return the date that is so many days after the epoch."""
    return date.fromordinal(_EPOCH_ORDINAL + days)


PURCHASES, GRANTS, ADJUSTMENTS, REVENUE = "purchases", "grants", "adjustments", "revenue"
"""The ledger accounts that are not a customer's."""
CUSTOMER = "customer:"
"""How the ledger accounts of customers begin."""


class PostingKind(StrEnum):
    """Why an amount moved."""

    PURCHASE = "purchase"
    GRANT = "grant"
    ADJUSTMENT = "adjustment"
    """A correction, in either direction."""
    REFUND = "refund"
    """A purchase that was paid back; the credits leave."""
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Posting:
    """An amount that moved from one ledger account to another: both sides in one row."""

    id: str
    account_id: str
    kind: PostingKind
    source: str
    destination: str
    amount_nano: int
    generation_id: str | None
    idempotency_key: str | None
    note: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Reservation:
    """Credits that are set aside for as long as something lasts: a batch."""

    id: str
    account_id: str
    key_hash: str
    amount_nano: int
    created_at: datetime
    payer_hash: str | None = None
    """The key that answers for `key_hash`; it counts towards both limits."""
    with_own_nano: int = 0
    """What limits that include own provider keys hold in place of the amount."""
    workspace_id: str | None = None
    """Whose limits hold."""

    @property
    def key_hashes(self) -> tuple[str, ...]:
        """The keys whose limits hold, its own first."""
        own, payer = self.key_hash, self.payer_hash
        return (own,) if payer is None else (own, payer)


@dataclass(frozen=True, slots=True)
class Credits:
    """An account's money, in nano-credits."""

    purchased_nano: int = 0
    granted_nano: int = 0
    used_nano: int = 0
    refunded_nano: int = 0
    adjusted_nano: int = 0
    """Corrections, negative where they took away."""

    @property
    def kept_purchases_nano(self) -> int:
        """What was paid for and not paid back."""
        return self.purchased_nano - self.refunded_nano

    @property
    def total_nano(self) -> int:
        """Everything that ever came in, less what was paid back."""
        return self.kept_purchases_nano + self.granted_nano + self.adjusted_nano

    @property
    def balance_nano(self) -> int:
        """What is left."""
        return self.total_nano - self.used_nano

    def __add__(self, other: Credits) -> Credits:
        """Return the totals with those of a change."""
        change = asdict(other)
        return Credits(**{name: value + change[name] for name, value in asdict(self).items()})


class Spend(msgspec.Struct, frozen=True, gc=False):
    """A key's use of credits over one period, in nano-credits."""

    usage_nano: int = 0
    byok_usage_nano: int = 0

    def __add__(self, other: Spend) -> Spend:
        """Return the use over both periods."""
        return Spend(
            self.usage_nano + other.usage_nano, self.byok_usage_nano + other.byok_usage_nano
        )

    def __sub__(self, other: Spend) -> Spend:
        """Return the use without that of another period."""
        return Spend(
            self.usage_nano - other.usage_nano, self.byok_usage_nano - other.byok_usage_nano
        )


NO_SPEND = Spend()


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """A key's counters: all time, and the current UTC day, week (from Monday) and month."""

    total: Spend = NO_SPEND
    daily: Spend = NO_SPEND
    weekly: Spend = NO_SPEND
    monthly: Spend = NO_SPEND
    last_used_at: datetime | None = None

    def since(self, reset: Reset | None) -> Spend:
        """Return what was used in the current window; over all time where nothing is reset."""
        windows = {Reset.DAILY: self.daily, Reset.WEEKLY: self.weekly, Reset.MONTHLY: self.monthly}
        return self.total if reset is None else windows[reset]


class Reset(StrEnum):
    """When a limit starts anew, in UTC."""

    DAILY = "daily"
    WEEKLY = "weekly"
    """On Mondays."""
    MONTHLY = "monthly"


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """What a key may use."""

    limit_nano: int | None = None
    reset: Reset | None = None
    """When it starts anew; None: never."""
    include_byok: bool = False


class BudgetScope(StrEnum):
    """What a budget belongs to, in the order in which budgets are enforced."""

    WORKSPACE_DEFAULT_MEMBER = "workspace_default_member"
    WORKSPACE_DEFAULT_KEY = "workspace_default_key"
    MEMBER = "member"
    END_USER = "end_user"
    """Ours: whom requests name as their `user`, in one workspace."""
    API_KEY = "api_key"
    WORKSPACE = "workspace"
    KEY_LIMIT = "key_limit"
    ACCOUNT = "account"
    """Ours: an account's balance."""
    FREE_REQUESTS = "free_requests"
    """Ours: how many requests to free models an account has in a day."""


@dataclass(frozen=True, slots=True)
class FreeRequests:
    """An account's requests to free models in the current UTC day."""

    used: int
    limit: int
    remaining: int
