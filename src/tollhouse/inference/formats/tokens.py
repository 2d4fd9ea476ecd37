"""A count of tokens where none comes, and a bound on those that come."""

from __future__ import annotations

BYTES_PER_TOKEN = 4
"""The usual rule of thumb for English text; good enough for an estimate that says it is one."""

MAX_TOKENS = 2**31 - 1
"""No reply has more; the price of far more could not be stored."""


def estimate_tokens(size: int) -> int:
    """Return about how many tokens a text of `size` bytes has: at least one if there is any."""
    return -(-size // BYTES_PER_TOKEN)
