"""The values of admission: requests, the facts of an account, limits and refusals.

Source: the public gateway's table of 402 errors; `limits` beyond it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from tollhouse.accounting.leases import FREE
from tollhouse.accounting.limits import interval_name
from tollhouse.accounting.owner import OwnerUse
from tollhouse.accounting.rights import Claim
from tollhouse.accounting.types import BudgetScope, Credits, KeyLimit, Spend
from tollhouse.identity.types import AccountType
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.errors import PaymentRequired, TollhouseError
from tollhouse.kernel.money import nano_to_float

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.accounting.leases import BudgetId
    from tollhouse.accounting.owner import Owner, OwnerLimit
    from tollhouse.accounting.types import GenerationRecord, Reset

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


@dataclass(slots=True)
class AdmissionRequest:
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


@dataclass(slots=True, eq=False)
class SpendClaim(Claim):
    """What a request may cost of each budget that it draws on."""

    with_own: Collection[BudgetId] = ()
    """Those that count what providers take from customers with own keys, too."""

    def costs(self, record: GenerationRecord) -> Mapping[BudgetId, int]:
        """Return what a charge costs of each of them."""
        return {budget: self._cost(budget, record) for budget in self.amounts}

    def _cost(self, budget: BudgetId, record: GenerationRecord) -> int:
        if budget.scope == FREE:
            return int(record.free_limited)
        own = record.spend.byok_usage_nano if budget in self.with_own else 0
        return record.cost_nano + own


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


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """What the books say of one limit."""

    limit: KeyLimit = field(default_factory=KeyLimit)
    total: Spend = field(default_factory=Spend)
    days: Mapping[date, Spend] = field(default_factory=dict[Any, Spend])
    """What was used on each UTC day, as far back as a week or a month reaches."""
    reserved_nano: int = 0
    """What batches have reserved of it; of a key's, those that it answers for too."""


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
class KeyFacts(BudgetFacts):
    """What the books say of a key."""

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


class LimitLabel(NamedTuple):
    """What a limit is called in a refusal."""

    source: Source
    limit: str
    noun: str = "key_limit"
    """In reasons."""


OWN = LimitLabel("key_limit", "the key's limit")
PAYERS = LimitLabel("payer_limit", "the limit of the key that answers for this intern")
LABELS = (OWN, PAYERS)
"""Of the limits of a request's or a batch's keys, in their order."""
_WHOSE = {
    BudgetScope.MEMBER: "the {} limit of the user who made the key",
    BudgetScope.END_USER: "the {} limit of the end user",
    BudgetScope.WORKSPACE: "the workspace's {} limit",
}


def label_of(scope: BudgetScope, reset: Reset | None) -> LimitLabel:
    """Return what the limit of a workspace, a person or an end user is called."""
    interval = interval_name(reset)
    return LimitLabel(f"{scope}:{interval}", _WHOSE[scope].format(interval), f"{scope}_limit")


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
