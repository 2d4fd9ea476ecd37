"""Token estimates, and the upper bound of reported token counts."""

from __future__ import annotations

BYTES_PER_TOKEN = 4
"""The usual rule of thumb for English text; good enough for an estimate."""

MAX_TOKENS = 2**31 - 1
"""No response has more; the cost of far more would not fit its column."""


def estimate_tokens(size: int) -> int:
    """Estimate the tokens of a text of `size` bytes; at least one if it is not empty."""
    return -(-size // BYTES_PER_TOKEN)
