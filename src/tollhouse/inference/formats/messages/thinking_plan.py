"""Chooses the thinking parameters of a messages request.

    older models     thinking{enabled, budget_tokens}      a share of max_tokens
    newer models     thinking{adaptive}, output_config{effort}

Source: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking and
https://docs.anthropic.com/en/docs/build-with-claude/effort
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.canonical.request import CanonicalRequest, ThinkingOptions

_SHARES: Final[Mapping[str, float]] = {
    "minimal": 0.1,
    "low": 0.2,
    "medium": 0.5,
    "high": 0.8,
    "xhigh": 0.95,
    "max": 0.95,
}
"""The share of `max_tokens` for each effort."""
_EFFORTS: Final[Mapping[str, str]] = {"minimal": "low"} | {
    effort: effort for effort in ("low", "medium", "high", "xhigh", "max")
}
_USUAL: Final = "medium"
_LEAST_BUDGET: Final = 1024


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """The thinking parameters of a request."""

    max_tokens: int
    thinking: Mapping[str, object] | None = None
    effort: str | None = None


def wants_thinking(prompt: CanonicalRequest) -> bool:
    """Return whether the model is to reason: not with a forced tool or a prefilled answer.

    Anthropic rejects either one together with thinking.
    """
    choice = prompt.tool_choice
    forced = bool(prompt.tools) and choice is not None and choice.mode in {"required", "named"}
    thinking = prompt.thinking
    begun = bool(prompt.turns) and prompt.turns[-1].role == "assistant"
    if thinking is None or thinking.enabled is False or thinking.effort == "none":
        return False
    if forced or begun:
        return False
    return bool(thinking.enabled or thinking.budget_tokens or thinking.effort)


def plan_adaptive(thinking: ThinkingOptions, max_tokens: int) -> ThinkingPlan:
    """Return the plan for a model with adaptive thinking."""
    mode: dict[str, object] = {"type": "adaptive"}
    if thinking.summary is not None and not thinking.exclude:
        mode["display"] = "summarized"
    return ThinkingPlan(max_tokens, mode, _EFFORTS.get(thinking.effort or ""))


def plan_budget(thinking: ThinkingOptions, max_tokens: int, most: int | None) -> ThinkingPlan:
    """Return the plan for a model with a thinking budget.

    Args:
        thinking: The requested options.
        max_tokens: The limit of reasoning and answer together; raised if the budget would leave
            nothing for the answer.
        most: The model's maximum output tokens, if known.
    """
    share = _SHARES.get(thinking.effort or "", _SHARES[_USUAL])
    budget = max(_LEAST_BUDGET, thinking.budget_tokens or int(share * max_tokens))
    if budget >= max_tokens:
        max_tokens += budget
        if most is not None and most > _LEAST_BUDGET:
            max_tokens = min(max_tokens, most)
            budget = min(budget, max_tokens - 1)
    return ThinkingPlan(max_tokens, {"type": "enabled", "budget_tokens": budget})
