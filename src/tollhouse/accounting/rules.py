"""The numbers of the limits that the requirements leave to the operator, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from tollhouse.kernel.money import NANO_PER_CREDIT, round_to_nano

if TYPE_CHECKING:
    from tollhouse.settings.sections import LimitsSettings


@dataclass(frozen=True, slots=True)
class AccountingRules:
    """The numbers that the operator may set; amounts in nano-credits."""

    fraction: Fraction = Fraction(1, 2)
    """The part of the balance that requests in flight may hold."""
    ceiling_nano: int = 50 * NANO_PER_CREDIT
    """The largest in-flight budget."""
    request_cap_nano: int = 2 * NANO_PER_CREDIT
    """The most that is held for one request; what is held where it names no output limit."""
    threshold_nano: int = 500 * NANO_PER_CREDIT
    """The balance from which no in-flight budget applies."""
    new_accounts: bool = False
    """Whether it applies, whatever the balance, to accounts that never used anything."""
    settlement_seconds: float = 5.0
    """How long a request's cost stays in the budget after its end."""
    wait_seconds: float = 2.0
    """How long a request waits for room that others hold."""
    hold_seconds: float = 3_600.0
    """When a hold ends whose request never did."""
    free_per_minute: int = 20
    free_per_day: int = 50
    free_per_day_raised: int = 1_000
    raised_from_nano: int = 9 * NANO_PER_CREDIT
    """Purchases from which the higher daily ceiling holds."""
    source_prefix: str = "service_"


def rules_of(settings: LimitsSettings) -> AccountingRules:
    """Return the rules that the settings give."""
    enough = settings.free_raised_from - settings.free_raised_tolerance
    return AccountingRules(
        fraction=Fraction(settings.in_flight_fraction),
        ceiling_nano=round_to_nano(settings.in_flight_ceiling),
        request_cap_nano=round_to_nano(settings.in_flight_request_cap),
        threshold_nano=round_to_nano(settings.in_flight_threshold),
        new_accounts=settings.in_flight_new_accounts,
        settlement_seconds=settings.settlement_seconds,
        wait_seconds=settings.admission_wait_seconds,
        free_per_minute=settings.free_requests_per_minute,
        free_per_day=settings.free_requests_per_day,
        free_per_day_raised=settings.free_requests_per_day_raised,
        raised_from_nano=round_to_nano(max(enough, Decimal(0))),
        source_prefix=settings.limit_source_prefix,
    )
