"""Differences between Anthropic's models, by name.

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
    """Which parameters a model takes."""

    budget: bool
    """Takes a thinking budget in tokens, and neither `adaptive` nor `effort`."""
    sampling: bool
    """Takes temperature, top_p and top_k."""


def model_traits(model: str) -> ModelTraits:
    """Return the traits of a model; an unknown one counts as new.

    Args:
        model: The provider's name for it: `claude-sonnet-4-20250514`, `claude-opus-4-7` ...
    """
    name = model.lower()
    if "claude" not in name:
        return ModelTraits(budget=False, sampling=True)
    version = _version(name)
    return ModelTraits(budget=version <= _LAST_WITH_BUDGET, sampling=version <= _LAST_WITH_SAMPLING)


def _version(name: str) -> tuple[int, int]:
    match = _VERSION.search(name)
    return (int(match[1]), int(match[2] or 0)) if match else _NEWEST
