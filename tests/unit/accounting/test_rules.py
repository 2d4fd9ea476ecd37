"""The operator's numbers, from credits in the settings to nano-credits."""

from decimal import Decimal
from fractions import Fraction

from tollhouse.accounting.limits import AccountingRules, rules_of
from tollhouse.settings.sections import LimitsSettings

CREDIT = 1_000_000_000


def test_the_settings_defaults_are_the_rules_own() -> None:
    assert rules_of(LimitsSettings()) == AccountingRules()


def test_every_setting_reaches_its_rule() -> None:
    settings = LimitsSettings(
        in_flight_fraction=Decimal("0.25"),
        in_flight_ceiling=Decimal(3),
        in_flight_request_cap=Decimal("0.5"),
        in_flight_threshold=Decimal(7),
        in_flight_new_accounts=True,
        settlement_seconds=11.0,
        admission_wait_seconds=13.0,
        free_requests_per_minute=17,
        free_requests_per_day=19,
        free_requests_per_day_raised=23,
        free_raised_from=Decimal(29),
        free_raised_tolerance=Decimal(2),
        limit_source_prefix="ours_",
    )
    assert rules_of(settings) == AccountingRules(
        fraction=Fraction(1, 4),
        ceiling_nano=3 * CREDIT,
        request_cap_nano=CREDIT // 2,
        threshold_nano=7 * CREDIT,
        new_accounts=True,
        settlement_seconds=11.0,
        wait_seconds=13.0,
        free_per_minute=17,
        free_per_day=19,
        free_per_day_raised=23,
        raised_from_nano=27 * CREDIT,
        source_prefix="ours_",
    )


def test_a_tolerance_larger_than_what_is_enough_asks_for_nothing() -> None:
    settings = LimitsSettings(free_raised_from=Decimal(1), free_raised_tolerance=Decimal(2))
    assert rules_of(settings).raised_from_nano == 0
