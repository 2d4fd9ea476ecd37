"""What a decoder found wrong in a body, apart from the words around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import msgspec


def parse_validation_error(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return where something is wrong, and what.

    Returns:
        A path like `.messages[2].role`, empty for the whole value, and the decoder's own words.

    Source: https://jcristharif.com/msgspec/usage.html#validation
    """
    problem, _, path = str(error).partition(" - at `$")
    return path.removesuffix("`"), problem
