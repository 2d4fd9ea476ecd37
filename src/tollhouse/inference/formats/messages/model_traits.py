"""What Anthropic's models differ in, by their names.

Source: https://docs.anthropic.com/en/docs/build-with-claude/adaptive-thinking (Opus 4.7 and later
take no budget, and no sampling parameters),
https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_LAST_WITH_BUDGET: Final = (4, 5)
_LAST_WITH_SAMPLING: Final = (4, 6)
_NEWEST: Final = (99, 0)


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a model takes."""

    budget: bool
    """It thinks on a budget of tokens, and knows neither `adaptive` nor `effort`."""
    sampling: bool
    """It takes temperature, top_p and top_k."""


def model_traits(model: str) -> ModelTraits:
    """Return what a model takes; one that is not known counts as new.

    Args:
        model: The provider's name of it: `claude-sonnet-4-20250514`, `claude-opus-4-7` ...
    """
    name = model.lower()
    if "claude" not in name:
        return ModelTraits(budget=False, sampling=True)
    version = _version(name)
    return ModelTraits(budget=version <= _LAST_WITH_BUDGET, sampling=version <= _LAST_WITH_SAMPLING)


def _version(name: str) -> tuple[int, int]:
    match = _VERSION.search(name)
    return (int(match[1]), int(match[2] or 0)) if match else _NEWEST
