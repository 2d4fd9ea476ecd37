"""How much clients may say; the gateway and the command line go by the same. Pure."""

from __future__ import annotations

from typing import Final

MOST_INPUT: Final = 32_000
"""Characters of a prompt."""
LONGEST_NAME: Final = 256
"""Characters of a session's name."""
