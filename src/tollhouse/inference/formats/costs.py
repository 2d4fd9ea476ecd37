"""The cost fields that every format's `usage` has.

Source: the public gateway's reference; its clients parse these fields in every format's usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.kernel.money import nano_to_float

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge


def render_costs(charge: Charge, *, is_byok: bool) -> dict[str, object]:
    """Return the cost fields of a `usage`; `cost` is null if it is unknown."""
    if charge.cost is None:
        return {"cost": None, "is_byok": is_byok}
    return {
        "cost": nano_to_float(charge.cost_nano),
        "is_byok": is_byok,
        "cost_details": {
            "upstream_inference_cost": None,
            "upstream_inference_prompt_cost": nano_to_float(charge.cost.prompt_nano),
            "upstream_inference_completions_cost": nano_to_float(charge.cost.completion_nano),
        },
    }
