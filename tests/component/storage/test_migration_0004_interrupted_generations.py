"""An upgrade to interrupted generations: those of before stay as they are, and keep their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_GENERATION = (
    "INSERT INTO generations (id, account_id, workspace_id, key_hash, api_type, model, is_byok,"
    " streamed, cancelled, cost_state, cost_nano, input_tokens, cache_read_tokens,"
    " cache_write_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, attempts,"
    " created_at)"
    " VALUES ('{}', 'a', 'w', 'k', 'chat', 'm', false, false, false, '{}', 7, 1, 2, 3, 4, 5, 6,"
    " '[]', 8)"
)


def test_keeps_generations_and_takes_interrupted_ones(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0004", tmp_path)
    execute(empty_url, _GENERATION.format("one", "unknown"))
    upgrade(empty_url)
    execute(empty_url, _GENERATION.format("two", "interrupted"))
    kept = "SELECT cost_nano + output_tokens * created_at FROM generations WHERE cost_state = '{}'"
    assert execute(empty_url, kept.format("unknown")) == [47]
    assert execute(empty_url, kept.format("interrupted")) == [47]
    for refused in (("two", "exact"), ("three", "guessed")):
        with pytest.raises(IntegrityError):
            execute(empty_url, _GENERATION.format(*refused))
