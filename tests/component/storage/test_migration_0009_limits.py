"""An upgrade to limits of several intervals: those of keys stay, days count what was booked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_BEFORE = """
INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0);
INSERT INTO workspaces (id, account_id, is_default, name, slug, preferences, created_at)
    VALUES ('w', 'a', true, 'W', 'w', '{}', 0);
INSERT INTO api_keys (hash, kind, operator, account_id, workspace_id, name, label, disabled,
    created_at) VALUES ('k', 'api', false, 'a', 'w', 'K', 'k', false, 0);
INSERT INTO limits VALUES ('key', 'k', 5, NULL, true, 3);
INSERT INTO limits VALUES ('key', 'l', NULL, 'daily', false, 4);
INSERT INTO reservations (id, account_id, key_hash, amount_nano, created_at)
    VALUES ('r', 'a', 'k', 7, 0);
INSERT INTO generations (id, account_id, workspace_id, key_hash, api_type, model, is_byok, streamed,
    cancelled, cost_state, cost_nano, provider_cost_nano, input_tokens, cache_read_tokens,
    cache_write_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, attempts,
    external_user, created_at)
    SELECT column1, 'a', 'w', 'k', 'chat', 'm', column2, false, false, 'exact', column3, 9, 0, 0, 0,
    0, 0, 0, '[]', column4, column5 FROM (VALUES ('1', true, 0, 'u:1', 1772323200000),
    ('2', false, 2, 'u:1', 1772323200000), ('3', false, 3, '', 1772409599999),
    ('4', false, 4, NULL, 1772409600000)) AS v
"""
_DAYS = """
SELECT scope || ' ' || owner_id || ' ' || day || ' ' || usage_nano || ' ' || byok_usage_nano
    FROM owner_days WHERE account_id = 'a' ORDER BY scope, day
"""
_LIMITS = """
SELECT owner_id || ' ' || reset_interval || ' ' || coalesce(limit_nano, -1) || ' ' || created_at
    FROM limits WHERE include_byok = (owner_id = 'k') AND updated_at = created_at ORDER BY owner_id
"""


def test_keeps_the_limits_of_keys_and_counts_for_their_owners(
    empty_url: sa.URL, tmp_path: Path
) -> None:
    upgrade_to_before(empty_url, "0009", tmp_path)
    execute(empty_url, *(each.replace(":", r"\:") for each in _BEFORE.split(";")))
    upgrade(empty_url)
    assert execute(empty_url, _LIMITS) == ["k lifetime 5 3", "l daily -1 4"]
    assert execute(empty_url, _DAYS) == [
        "end_user w:u:1 2026-03-01 2 9",
        "workspace w 2026-03-01 5 9",
        "workspace w 2026-03-02 4 0",
    ]
    assert execute(empty_url, "SELECT workspace_id FROM reservations") == ["w"]
