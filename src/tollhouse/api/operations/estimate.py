"""`POST /estimate`. Ours."""

from __future__ import annotations

from typing import Any, Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import COUNT, asks_for, reference, text
from tollhouse.kernel.wire import refusals

_AMOUNT: Final = {"type": "number", "minimum": 0}
_FLAG: Final = {"type": "boolean"}
_REASONS: Final = {
    "not_spoken": "its provider speaks nothing that the request can be put into",
    "policy": "a policy blocks it, see `details`",
    "only": "`provider.only` does not name it",
    "ignore": "`provider.ignore` names it",
    "unvouched": "the request wants what nobody here vouches for (`zdr`, `quantizations`)",
    "data_collection": "it may keep data",
    "max_price": "it costs more",
    "require_parameters": "a parameter of the request would be lost",
    "allow_fallbacks": "the first endpoint has the last word",
    "free_limits": "the account's requests to free models are used up",
}


def _closed(title: str, description: str, **properties: object) -> dict[str, Any]:
    """Return the schema of an object that has all of its fields and no others."""
    return {
        "title": title,
        "type": "object",
        "description": description,
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


_OFFER: Final = {
    "model": text("Id of the model."),
    "provider": text("The provider's slug."),
    "provider_name": text("The name that users see."),
    "provider_model": text("The provider's own name of the model."),
}
_REQUEST: Final = _closed(
    "EstimateRequest",
    "A request that is not to be sent.",
    endpoint=text(
        "Which format it has: chat/completions, responses, messages, completions or embeddings, "
        "with or without /v1/ before it.",
        examples=["/v1/chat/completions"],
    ),
    body={
        "type": "object",
        "additionalProperties": True,
        "description": "The request's body, as that endpoint takes it.",
    },
)
_TOKENS: Final = _closed(
    "EstimateTokens",
    "What the request asks for.",
    input={**COUNT, "description": "Input tokens, estimated from the bytes."},
    output={
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "The most that its limits allow, for all answers together; null: no limit.",
    },
    images={**COUNT, "description": "How many images it holds."},
)
_ENDPOINT: Final = _closed(
    "EstimateEndpoint",
    "An endpoint that would be tried.",
    **_OFFER,
    dialect=text("What it is asked in."),
    cooling_down={
        **_FLAG,
        "description": "Whether it failed of late, and is tried after the others for that.",
    },
    output_tokens={
        **COUNT,
        "description": "The most that it may write: the request's limit, or else the model's.",
    },
    cost_estimate={
        **_AMOUNT,
        "description": "The most that the request may cost here, in credits: tokens, fee and "
        "images, without any cap.",
    },
    pricing=reference("PricingReply"),
)
_LEFT_OUT: Final = _closed(
    "EstimateLeftOut",
    "An endpoint of the models that would not be tried.",
    **_OFFER,
    reason={
        "type": "string",
        "enum": list(_REASONS),
        "description": "; ".join(f"{name}: {why}" for name, why in _REASONS.items()) + ".",
    },
    details={
        "type": "array",
        "items": {"type": "string"},
        "description": "What the policies say, a sentence each.",
    },
)
_HOLD: Final = {
    **_closed(
        "EstimateHold",
        "What the request would hold while it runs; null where nobody may serve it.",
        credits={
            **_AMOUNT,
            "description": "Of the in-flight budget: the dearest endpoint's token costs, at most "
            "the cap of a request.",
        },
        balance={
            **_AMOUNT,
            "description": "Of the balance: the most that it may cost, or what is left to pay it.",
        },
        key_limit={**_AMOUNT, "description": "The same of the key's limit."},
        open_ended={
            **_FLAG,
            "description": "Whether it sets no limit of its output, so that it holds the cap.",
        },
    ),
    "type": ["object", "null"],
}
_LIMIT: Final = _closed(
    "EstimateLimit",
    "A limit that holds for the request, as it stands now.",
    name=text(
        "free-models-per-min, free-models-per-day, requests-per-min, or what `limit_source` says "
        "in a 402."
    ),
    payer={
        **_FLAG,
        "description": "Whether it is that of the key which answers for the intern that asks.",
    },
    unit={
        "type": "string",
        "enum": ["requests", "credits"],
        "description": "Whether the limit counts requests or credits.",
    },
    limit={**_AMOUNT, "description": "The limit."},
    used={"type": "number", "description": "What is used of it."},
    held={"type": "number", "description": "What requests under way hold."},
    remaining={**_AMOUNT, "description": "What is left; never negative."},
    resets_at={
        "type": ["string", "null"],
        "format": "date-time",
        "description": "When it starts anew, or something of it becomes free; null: never.",
    },
    fits={**_FLAG, "description": "Whether the request fits into what is left."},
)
_REFUSAL: Final = {
    **_closed(
        "EstimateRefusal",
        "What it would get now in place of a reply; null where it would be sent.",
        status={"type": "integer", "description": "The HTTP status."},
        message=text("What the envelope would say."),
        metadata={
            "type": ["object", "null"],
            "additionalProperties": True,
            "description": "The envelope's metadata.",
        },
        retry_after={
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "The value of Retry-After; null where there is none.",
        },
    ),
    "type": ["object", "null"],
}
_DATA: Final = _closed(
    "EstimateData",
    "What would become of the request.",
    model=text("Id of the model that is asked for."),
    tokens=reference("EstimateTokens"),
    endpoints={
        "type": "array",
        "items": reference("EstimateEndpoint"),
        "description": "In the order in which they would be tried.",
    },
    left_out={
        "type": "array",
        "items": reference("EstimateLeftOut"),
        "description": "The models' other endpoints, and why.",
    },
    hold=reference("EstimateHold"),
    max_tokens={
        **COUNT,
        "type": ["integer", "null"],
        "description": "The limit of output that it would be asked with, since it sets none and "
        "no more can be paid for; null: as it is.",
    },
    limits={
        "type": "array",
        "items": reference("EstimateLimit"),
        "description": "Limits of requests, then those of credits; of these the binding one first.",
    },
    guardrails={
        "type": "array",
        "items": {"type": "string"},
        "description": "The guardrails that would judge the request; none of them was asked.",
    },
    refusal=reference("EstimateRefusal"),
)
_REPLY: Final = _closed(
    "EstimateReply", "The envelope of an estimate.", data=reference("EstimateData")
)

ESTIMATE: Final = HotOperation(
    method="post",
    path="/estimate",
    operation={
        "tags": ["Estimates"],
        "summary": "Estimate",
        "description": "Tell what would become of a request, and what it may cost: the way of a "
        "real one, up to its first effect. Nothing is held, counted, booked or sent. Patterns of "
        "policies are looked for; guardrails are not asked.",
        "operationId": "estimate",
        "requestBody": asks_for("EstimateRequest"),
        "responses": {
            "200": {
                "description": "What would become of it, a refusal included.",
                "content": {"application/json": {"schema": reference("EstimateReply")}},
            },
            **{
                str(status): response
                for status, response in refusals(400, 401, 403, 404, 413, 429, 500, 503).items()
            },
        },
    },
    schemas={
        "EstimateRequest": _REQUEST,
        "EstimateReply": _REPLY,
        "EstimateData": _DATA,
        "EstimateTokens": _TOKENS,
        "EstimateEndpoint": _ENDPOINT,
        "EstimateLeftOut": _LEFT_OUT,
        "EstimateHold": _HOLD,
        "EstimateLimit": _LIMIT,
        "EstimateRefusal": _REFUSAL,
    },
)
