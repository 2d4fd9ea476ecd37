"""An upgrade that counts requests with own keys: those of before are counted, reserved is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_BEFORE = """
INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0);
INSERT INTO account_days (account_id, day, free_requests) VALUES ('a', '2026-03-01', 2);
INSERT INTO reservations (id, account_id, key_hash, amount_nano, created_at)
    VALUES ('r', 'a', 'k', 7, 0);
INSERT INTO generations (id, account_id, workspace_id, key_hash, api_type, model, is_byok, streamed,
    cancelled, cost_state, cost_nano, input_tokens, cache_read_tokens, cache_write_tokens,
    cache_write_1h_tokens, output_tokens, reasoning_tokens, attempts, created_at)
    SELECT column1, 'a', 'w', 'k', 'chat', 'm', column2, false, false, 'exact', 0, 0, 0, 0, 0, 0, 0,
    '[]', column3 FROM (VALUES ('1', true, 1772323200000), ('2', false, 1772323200000),
    ('3', true, 1772409599999), ('4', true, 1772409600000)) AS v
"""
_DAYS = "SELECT day || ' ' || free_requests || ' ' || byok_requests FROM account_days ORDER BY day"


def test_counts_what_was_booked_and_keeps_what_is_reserved(
    empty_url: sa.URL, tmp_path: Path
) -> None:
    upgrade_to_before(empty_url, "0006", tmp_path)
    execute(empty_url, *_BEFORE.split(";"))
    upgrade(empty_url)
    assert execute(empty_url, _DAYS) == ["2026-03-01 2 2", "2026-03-02 0 1"]
    assert execute(empty_url, "SELECT with_own_nano FROM reservations") == [7]
