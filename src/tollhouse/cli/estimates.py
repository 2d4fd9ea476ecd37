"""An estimate as people read it: money first, then who would be asked, then every limit. Pure."""

from __future__ import annotations

from typing import Any

from tollhouse.cli.output import Column, Item, Listing, Record, Report, field
from tollhouse.cli.values import price_per_million

_OFFER = (field("model"), field("provider"), field("provider_model", "called"))


def estimate_report(found: dict[str, Any]) -> Report:
    """Return what is shown of an estimate."""
    tried = [{"place": place, **each} for place, each in enumerate(found["endpoints"], 1)]
    return Report(
        found,
        (
            ("request", Record(_summary(found))),
            ("endpoints", Listing(tried, _ENDPOINTS)),
            ("left out", Listing(found["left_out"], _LEFT_OUT)),
            ("limits", Listing(found["limits"], _LIMITS)),
        ),
    )


def _summary(found: dict[str, Any]) -> Item:
    tokens, hold, refusal = found["tokens"], found["hold"], found["refusal"]
    costs = [each["cost_estimate"] for each in found["endpoints"]]
    return {
        "model": found["model"],
        "input tokens": tokens["input"],
        "output tokens": "no limit" if tokens["output"] is None else tokens["output"],
        "images": tokens["images"],
        "cost at most": max(costs, default=None),
        "hold": None if hold is None else hold["credits"],
        "would be": "sent" if refusal is None else f"refused with {refusal['status']}",
        "because": None if refusal is None else refusal["message"],
        "guardrails, not asked": ", ".join(found["guardrails"]),
    }


_ENDPOINTS = (
    field("place", "#"),
    *_OFFER,
    field("dialect"),
    field("cost_estimate", "cost at most"),
    Column("input $/m", lambda each: price_per_million(each["pricing"]["prompt"])),
    Column("output $/m", lambda each: price_per_million(each["pricing"]["completion"])),
    field("cooling_down", "cooling down"),
)
_LEFT_OUT = (*_OFFER, field("reason"), Column("details", lambda each: " ".join(each["details"])))
_LIMITS = (
    field("name"),
    field("unit"),
    field("limit"),
    field("used"),
    field("held"),
    field("remaining"),
    field("resets_at", "resets at"),
    field("fits"),
)
