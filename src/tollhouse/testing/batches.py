"""Builders of batches for tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tollhouse.batches.types import Batch, Endpoint, Status
from tollhouse.testing.clock import START


def batch(**fields: Any) -> Batch:  # noqa: ANN401 - any field of the batch
    """Return a newly submitted batch of ten chat requests."""
    plain = Batch(
        id="batch_00000000000000000000000000000001",
        account_id="account",
        workspace_id="workspace",
        key_hash="a" * 64,
        endpoint=Endpoint.CHAT_COMPLETIONS,
        model="acme/large",
        wish={},
        status=Status.VALIDATING,
        created_at=START,
        expires_at=START + timedelta(hours=24),
        total=10,
        digest="0" * 64,
    )
    return replace(plain, **fields)
