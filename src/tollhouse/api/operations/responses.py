"""`POST /responses`.

Source: https://platform.openai.com/docs/api-reference/responses and the public gateway's additions.
"""

from __future__ import annotations

from typing import Final

from tollhouse.api.openapi import HotOperation
from tollhouse.api.operations.schemas import (
    COST,
    COUNT,
    ID,
    MODEL,
    STREAM,
    answers,
    asks_for,
    extensible,
    listed,
    number,
    reference,
    text,
    whole,
)

_REQUEST: Final = extensible(
    "ResponsesRequest",
    "A request without memory: the whole conversation comes along. Fields that are not listed here "
    "are passed on to a provider of the same format.",
    ["model", "input"],
    model=MODEL,
    input={
        "description": "A text, or a list of items.",
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "minItems": 1, "items": {"type": "object"}},
        ],
    },
    instructions={"type": ["string", "null"], "description": "What the model is told first."},
    stream=STREAM,
    store={"enum": [False, None], "description": "Nothing is stored."},
    previous_response_id={"type": "null", "description": "There is no memory to continue."},
    max_output_tokens=whole("Most output tokens, reasoning included."),
    temperature=number("Randomness."),
    top_p=number("Share of probability that is drawn from."),
    tools=listed("Functions that the model may call."),
    tool_choice={"description": "Whether and which function it has to call."},
    reasoning={"description": "How much the model is to think, and whether it is summed up."},
    text={"description": "Text, or JSON of a schema."},
    include={"description": "Further parts of the reply, such as reasoning.encrypted_content."},
    user={"type": ["string", "null"], "description": "The end user, for the statement."},
)
_USAGE: Final = extensible(
    "ResponsesUsage",
    "What the reply took.",
    ["input_tokens", "output_tokens", "total_tokens"],
    input_tokens={**COUNT, "description": "Input tokens, cached ones included."},
    output_tokens={**COUNT, "description": "Output tokens, reasoning included."},
    total_tokens={**COUNT, "description": "Both."},
    cost=COST,
)
_REPLY: Final = extensible(
    "ResponsesReply",
    "A whole reply; the provider's further fields are passed on.",
    ["id", "object", "created_at", "status", "model", "output"],
    id=ID,
    object={"const": "response", "description": "Always response."},
    created_at={"type": "integer", "description": "Unix seconds."},
    status=text("completed, or incomplete with `incomplete_details`."),
    model=text("The catalogue's id of the model."),
    output={
        "type": "array",
        "items": {"type": "object", "additionalProperties": True},
        "description": "Messages, reasoning and calls, in order.",
    },
    usage=reference("ResponsesUsage"),
)
RESPONSES: Final = HotOperation(
    method="post",
    path="/responses",
    operation={
        "tags": ["Responses"],
        "summary": "Create Response",
        "description": "Ask a model in the format of OpenAI's responses, whole or streamed.",
        "operationId": "create_response",
        "requestBody": asks_for("ResponsesRequest"),
        "responses": answers(
            "ResponsesReply",
            "The reply; events where `stream` is true.",
            events="Events from response.created to response.completed, response.incomplete or "
            "response.failed, then `data: [DONE]`.",
        ),
    },
    schemas={
        "ResponsesRequest": _REQUEST,
        "ResponsesReply": _REPLY,
        "ResponsesUsage": _USAGE,
    },
)
