from datetime import UTC, datetime

import pytest

from tollhouse.cli.commands.keys import kind_of, state_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("disabled", "expires_at", "expected"),
    [
        (False, None, "active"),
        (False, "2026-11-20T12:00:01.000Z", "active"),
        (False, "2026-11-20T12:00:00.000Z", "expired"),
        (True, None, "disabled"),
        (True, "2026-01-01T00:00:00.000Z", "disabled"),
    ],
)
def test_a_key_is_active_disabled_or_expired(
    expires_at: str | None, expected: str, *, disabled: bool
) -> None:
    assert state_of({"disabled": disabled, "expires_at": expires_at}, NOW) == expected


def test_an_operators_key_is_told_from_others() -> None:
    assert kind_of({"operator": True, "kind": "management"}) == "operator"
    assert kind_of({"operator": False, "kind": "management"}) == "management"
