"""How an estimate looks on the wire. Amounts are credits, prices USD (= credits) as texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.accounting.admission.types import limit_source
from tollhouse.inference.endpoints.model_wire import pricing_reply
from tollhouse.kernel.clock import iso_utc
from tollhouse.kernel.envelope import error_object
from tollhouse.kernel.money import nano_to_float

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from tollhouse.accounting.admission.types import CreditLimit, RequestLimit
    from tollhouse.inference.dry_run import AdmissionEstimate, EstimatedCandidate, RequestEstimate
    from tollhouse.inference.types import Endpoint, ExcludedEndpoint, Model
    from tollhouse.kernel.errors import TollhouseError

Shown = dict[str, Any]


def estimate_reply(estimate: RequestEstimate, prefix: str) -> Shown:
    """Return the body of an estimate.

    Args:
        estimate: What would become of a request.
        prefix: What every `limit_source` begins with.
    """
    wanted, meets = estimate.demand, estimate.admission
    data = {
        "model": estimate.model,
        "tokens": {
            "input": wanted.input_tokens,
            "output": wanted.output_tokens,
            "images": wanted.images,
        },
        "endpoints": [_candidate(each) for each in estimate.candidates],
        "left_out": [_left_out(each) for each in estimate.excluded],
        "hold": None if meets is None else _hold(meets),
        "max_tokens": estimate.output_limit,
        "limits": [] if meets is None else list(_limits(meets, prefix)),
        "guardrails": list(estimate.guardrails),
        "refusal": None if estimate.refusal is None else _refusal(estimate.refusal),
    }
    return {"data": data}


def _offer(model: Model, endpoint: Endpoint) -> Shown:
    return {
        "model": model.id,
        "provider": endpoint.provider,
        "provider_name": endpoint.provider_name or endpoint.provider,
        "provider_model": endpoint.model,
    }


def _candidate(estimated: EstimatedCandidate) -> Shown:
    candidate = estimated.candidate
    return {
        **_offer(candidate.model, candidate.endpoint),
        "dialect": candidate.adapter.dialect.value,
        "cooling_down": estimated.is_cooling_down,
        "output_tokens": estimated.output_tokens,
        "cost_estimate": nano_to_float(estimated.cost_nano),
        "pricing": pricing_reply(candidate.endpoint.price).model_dump(),
    }


def _left_out(left: ExcludedEndpoint) -> Shown:
    shown = _offer(left.model, left.endpoint)
    return {**shown, "reason": left.reason, "details": list(left.details)}


def _hold(meets: AdmissionEstimate) -> Shown:
    return {
        "credits": nano_to_float(meets.request.estimate_nano),
        "balance": nano_to_float(meets.preview.credits_nano),
        "key_limit": nano_to_float(meets.preview.key_nano),
        "open_ended": meets.request.open_ended,
    }


def _limits(meets: AdmissionEstimate, prefix: str) -> Iterator[Shown]:
    preview = meets.preview
    for each in preview.request_limits:
        yield _of_requests(each)
    for cap in preview.credit_limits:
        yield _of_credits(cap, prefix, fits=cap.source not in preview.too_small)


def _of_requests(cap: RequestLimit) -> Shown:
    return {
        "name": cap.bucket,
        "payer": False,
        "unit": "requests",
        "limit": cap.limit,
        "used": cap.used,
        "held": cap.held,
        "remaining": cap.remaining,
        "resets_at": _time(cap.resets_at),
        "fits": cap.remaining > 0,
    }


def _of_credits(cap: CreditLimit, prefix: str, *, fits: bool) -> Shown:
    return {
        "name": limit_source(cap.source, prefix),
        "payer": cap.is_payers,
        "unit": "credits",
        **cap.amounts(),
        "resets_at": _time(cap.resets_at),
        "fits": fits,
    }


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else iso_utc(instant)


def _refusal(error: TollhouseError) -> Shown:
    shown = error_object(error)
    return {
        "status": shown["code"],
        "message": shown["message"],
        "metadata": shown.get("metadata"),
        "retry_after": error.retry_after,
    }
