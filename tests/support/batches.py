"""Builders of batches for tests."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.clock import START
from tests.support.seams.batches import Batch, BatchEndpoint, BatchStatus


def batch(**fields: Any) -> Batch:
    """Return a newly submitted batch of ten chat requests."""
    plain = Batch(
        id="batch_00000000000000000000000000000001",
        account_id="account",
        workspace_id="workspace",
        key_hash="a" * 64,
        endpoint=BatchEndpoint.CHAT_COMPLETIONS,
        model="acme/large",
        preferences={},
        status=BatchStatus.VALIDATING,
        created_at=START,
        expires_at=START + timedelta(hours=24),
        total=10,
        digest="0" * 64,
    )
    return replace(plain, **fields)
