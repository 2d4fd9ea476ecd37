"""The values of admission: requests, the facts of an account, limits and refusals.

Source: the public gateway's table of 402 errors; `limits` beyond it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from tollhouse.accounting.limits import interval_name
from tollhouse.accounting.owner import Owner, OwnerUse
from tollhouse.accounting.types import BudgetScope, Credits, KeyLimit, Spend
from tollhouse.identity.types import AccountType
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.errors import PaymentRequired, TollhouseError
from tollhouse.kernel.money import nano_to_float

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tollhouse.accounting.limits import Budget
    from tollhouse.accounting.owner import OwnerLimit
    from tollhouse.accounting.types import GenerationRecord

Source = str
"""Which limit of credits refuses: `credits`, `in_flight_budget`, `key_limit`, or `payer_limit`,
that of the key that answers for the caller; or a scope and an interval, as `workspace:daily`."""

FREE_PER_MINUTE = "free-models-per-min"
FREE_PER_DAY = "free-models-per-day"


class Rate(NamedTuple):
    """A limit of requests in a minute for each account."""

    bucket: str
    """Its name, for people and their clients."""
    model: str | None
    """The model that it counts; None for all free ones together."""
    per_minute: int


class AdmissionRequest(Struct):
    """What a request asks of admission. Not frozen: one is made for every request."""

    generation_id: str
    account_id: str
    key_hashes: tuple[str, ...]
    """The keys whose limits hold: the caller's, then the one that answers for it, if one does."""
    now: datetime
    estimate_nano: int = 0
    """What its tokens may cost, at most the cap of a request; 0 where tokens cost nothing. For the
    in-flight budget."""
    maximum_nano: int = 0
    """What it may cost at most, fees and images included, without a cap. For the limits of keys and
    for the balance."""
    minimum_nano: int = 0
    """What it costs before it writes anything. Of one with a limit of its output nobody asks."""
    fee_nano: int = 0
    """What of it is the fee of a request, whatever it reads and writes."""
    open_ended: bool = False
    """Whether it names no limit of its output, so that the estimate is the cap."""
    paid: bool = False
    """Whether it may cost anything at all: a request's fee alone is not estimated."""
    own_key: bool = False
    """Whether it is served with the customer's own keys or not at all: the amounts are what the
    provider takes from the customer then."""
    either_way: bool = False
    """Whether it may be served with own keys, and with the gateway's."""
    own_maximum_nano: int = 0
    """The most that the provider may take from the customer for it, where it may be served either
    way: limits that include that hold it, all others the fee of it."""
    own_minimum_nano: int = 0
    """The same before it writes anything, of one without a limit of its output."""
    free: bool = False
    """Whether one of its models is free and limited."""
    free_later: bool = False
    """Whether that is asked only once own keys have failed; until then no limit counts it."""
    counted: bool = False
    """Whether it is counted towards its limit of a minute, with other processes' requests."""
    others_use_free: bool = False
    """Whether other processes leave it none of the day's free requests."""
    only_free: bool = False
    """Whether all of them are: without room there it is refused."""
    rate: Rate | None = None
    """The requests that its model takes in a minute, where that is limited."""
    end_user: Owner | None = None
    """Whom it names as its user, in its workspace."""


class Admitted(NamedTuple):
    """How a request may begin."""

    may_use_free: bool
    spendable_nano: int | None = None
    """What it may cost, where it names no limit of its output and could cost more than is left;
    None where it needs no limit."""
    own_spendable_nano: int | None = None
    """The same of what a provider may take for it from a customer with an own key."""

    @property
    def is_limited(self) -> bool:
        """Whether some who may answer need a limit of its output."""
        return self.spendable_nano is not None or self.own_spendable_nano is not None


@dataclass(frozen=True, slots=True)
class AccountFacts:
    """What the books say of an account."""

    type: AccountType = AccountType.PREPAID
    free_limits_exempt: bool = False
    credits: Credits = field(default_factory=Credits)
    free_requests: Mapping[date, int] = field(default_factory=dict[Any, int])
    """Limited requests to free models of the latest UTC days."""
    reserved_nano: int = 0
    booked_seq: int = 0
    """The number of the last charge of this process that is in what else was read."""
    own_requests: Mapping[date, int] = field(default_factory=dict[Any, int])
    """Requests that own provider keys served, of the same days."""
    counted_from: date = date.min
    """The first of these days."""

    def fill(self, balance: Budget, unbooked: Iterable[GenerationRecord] = ()) -> Budget:
        """Have the budget of its balance say what is here; who pays afterwards has no limit."""
        limit = KeyLimit(self.credits.total_nano if self.type.needs_credits else None)
        return balance.load(limit, Spend(self.credits.used_nano), {}, self.reserved_nano, unbooked)


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """What the books say of a workspace, a person or an end user."""

    owner: Owner
    limits: Sequence[OwnerLimit] = ()
    use: OwnerUse = field(default_factory=OwnerUse)
    """As far as the limits ask for it."""
    keys: Collection[str] = ()
    """Those of a person, if she has a limit."""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What the books say of a key."""

    limit: KeyLimit = field(default_factory=KeyLimit)
    total: Spend = field(default_factory=Spend)
    """This and what follows is known as far as the limit asks for it."""
    days: Mapping[date, Spend] = field(default_factory=dict[Any, Spend])
    """What was used on each UTC day, as far back as a week or a month reaches."""
    reserved_nano: int = 0
    """What batches have reserved, those that it answers for too."""
    owners: Sequence[OwnerFacts] = ()
    """Who made it, and its workspace."""
    limits_end_users: bool = False
    """Whether an end user of its workspace has a limit."""


@dataclass(frozen=True, slots=True)
class CreditLimit:
    """One limit of credits, as it stands."""

    source: Source
    limit_nano: int
    used_nano: int
    """Booked: of the key's window; of all credits; of the settlement window."""
    held_nano: int
    """For requests under way, and what batches have reserved."""
    resets_at: datetime | None = None

    @classmethod
    def of(cls, budget: Budget, key_hash: str) -> CreditLimit:
        """Return how a budget stands for what a key asks."""
        held = budget.held_nano + budget.reserved_nano
        source = label_of(budget, key_hash).source
        return cls(source, budget.limit_nano, budget.spend_nano, held, budget.resets_at)

    @property
    def remaining_nano(self) -> int:
        """What is left; never negative."""
        return max(0, self.limit_nano - self.used_nano - self.held_nano)

    @property
    def is_payers(self) -> bool:
        """Whether it is the limit of the key that answers for the caller's."""
        return self.source == "payer_limit"

    def amounts(self) -> dict[str, float]:
        """Return its amounts in credits, by the names that the wire has for them."""
        return {
            "limit": nano_to_float(self.limit_nano),
            "used": nano_to_float(self.used_nano),
            "held": nano_to_float(self.held_nano),
            "remaining": nano_to_float(self.remaining_nano),
        }


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """One limit of requests, as it stands."""

    bucket: str
    limit: int
    used: int
    """Of the last minute, or booked of the UTC day."""
    held: int
    """Of the day, for requests under way."""
    resets_at: datetime | None
    """When some of it, of the day all of it, is free again; None where nothing is used."""

    @property
    def remaining(self) -> int:
        """What is left; never negative."""
        return max(0, self.limit - self.used - self.held)


@dataclass(frozen=True, slots=True)
class AdmissionPreview:
    """How a request would be received now."""

    credit_limits: Sequence[CreditLimit]
    """Every limit of credits that holds for it, the binding one first."""
    too_small: Collection[Source]
    """Those of them in which it does not fit."""
    request_limits: Sequence[RequestLimit]
    credits_nano: int
    key_nano: int
    admitted: Admitted
    """How it may begin; where it is refused, how it could without that."""
    error: TollhouseError | None
    own_fee: Fraction = Fraction(0)
    """The part of what the provider takes that an own key would cost it: none in the allowance."""


class Label(NamedTuple):
    """What a budget is called in a refusal."""

    source: Source
    named: str
    noun: str = "key_limit"
    """In reasons."""
    more: str = ""
    """What makes it larger; empty: it is raised."""

    @property
    def remedy(self) -> str:
        """What makes it larger."""
        return self.more or f"raise {self.named}"


OWN = Label("key_limit", "the key's limit")
PAYERS = Label("payer_limit", "the limit of the key that answers for this intern")
CREDITS = Label("credits", "the account's balance", "credits", "add credits")
WHOSE = {
    BudgetScope.MEMBER: "the {} limit of the user who made the key",
    BudgetScope.END_USER: "the {} limit of the end user",
    BudgetScope.WORKSPACE: "the workspace's {} limit",
}


def label_of(budget: Budget, key_hash: str) -> Label:
    """Return what a budget is called for what a key asks."""
    scope, interval = budget.scope, interval_name(budget.reset)
    if scope is BudgetScope.ACCOUNT:
        return CREDITS
    if scope is BudgetScope.KEY_LIMIT:
        return OWN if budget.owner_id == key_hash else PAYERS
    return Label(f"{scope}:{interval}", WHOSE[scope].format(interval), f"{scope}_limit")


class AdmissionRefusal(NamedTuple):
    """Why a request or a batch may not begin."""

    reason: str
    source: Source
    message: str
    remedy: str
    retry_after: float | None = None
    """Seconds after which waiting may have helped; None where waiting alone cannot."""

    def payment_required(self, limits: Sequence[CreditLimit], prefix: str) -> PaymentRequired:
        """Return the 402 with every limit of credits, the one that refuses first."""
        return PaymentRequired(
            self.message,
            metadata={
                "error_type": PaymentRequired.code,
                "reason": self.reason,
                "limit_source": limit_source(self.source, prefix),
                "remedy_hint": self.remedy,
                "limits": [_metadata(limit, prefix) for limit in limits],
            },
            retry_after=None if self.retry_after is None else max(1, ceil(self.retry_after)),
        )


def _metadata(limit: CreditLimit, prefix: str) -> dict[str, object]:
    return {
        "limit_source": limit_source(limit.source, prefix),
        "payer": limit.is_payers,
        **limit.amounts(),
        "resets_at": None if limit.resets_at is None else iso_utc_seconds(limit.resets_at),
    }


def limit_source(source: Source, prefix: str) -> str:
    """Return what a limit of credits is called on the wire: whosever a key's limit is.

    Of a workspace's, a person's or an end user's it is the scope, whatever the interval.
    """
    return prefix + ("key_limit" if source == "payer_limit" else source.partition(":")[0])
